"""The templates: parameters that the launcher takes, and their metadata, as the options of a run declare them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.beam_samples import SHARDS
from meanstream.pipelines.beam.template.template_forms import CURATORS, Form, form_named
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.declaration import (
    INPUT,
    PRIVACY,
    Declared,
    InTemplate,
    cli_option,
    declared_options,
)
from meanstream.pipelines.options.rounds_options import RoundsOptions


@dataclass(frozen=True, slots=True)
class Given:
    """What was given to a template.

    The options of `meanstream run`, and what only a template has.
    """

    options: Any
    own: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Template:
    """A template: its parameters, and the options that they fill.

    Attributes
    ----------
    key : str
        "agents" or "rounds".
    name, description : str
        What the console shows.
    options : type
        `AgentsOptions` or `RoundsOptions`.
    own : type
        `TemplateOptions`, or one made of it.
    """

    key: str
    name: str
    description: str
    options: type[Any]
    own: type[Any]

    @property
    def parameters(self) -> dict[str, InTemplate]:
        """How the template has each of its parameters."""
        found = {name: one.template for name, one in self._declared.items()}
        return {name: one for name, one in found.items() if one is not None}

    @property
    def _declared(self) -> dict[str, Declared]:
        return {**declared_options(self.options), **declared_options(self.own)}

    def split(self, arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """Tell the parameters from the rest, which is for Beam.

        Raises
        ------
        ValueError
            If one is given twice.
        """
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for parameter in self.parameters:
            parser.add_argument(f"--{parameter}", action="append", nargs="?", const="")

        found, rest = parser.parse_known_args(list(arguments))
        given = {name: texts for name, texts in vars(found).items() if texts is not None}
        for name, texts in given.items():
            require(len(texts) == 1, name, "be given once", ", ".join(texts))

        return {name: texts[0] for name, texts in given.items()}, rest

    def read(self, given: Mapping[str, str]) -> Given:
        """Check each text, and fill in the options.

        Raises
        ------
        ValueError
            Naming the parameter, the rule and the text.
        """
        values: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            text = given.get(name)
            require(text is not None or not parameter.required, name, "be given", None)

            if text is not None:
                values[name] = form_named(parameter.form).read(name, text)

        own = {
            field.name: values.pop(field.name) for field in fields(self.own) if field.name in values
        }
        return Given(self.options(**values), asdict(self.own(**own)))

    def metadata(self) -> dict[str, Any]:
        """Describe the template as `gcloud dataflow flex-template build --metadata-file` takes it."""
        return {
            "name": self.name,
            "description": self.description,
            "streaming": True,
            "supportsExactlyOnce": True,
            "supportsAtLeastOnce": False,
            "parameters": [
                self._described(name, parameter) for name, parameter in self.parameters.items()
            ],
        }

    def _described(self, name: str, parameter: InTemplate) -> dict[str, Any]:
        form: Form = form_named(parameter.form)
        default = {
            field.name: field.default for kind in (self.options, self.own) for field in fields(kind)
        }[name]
        shown: dict[str, Any] = {
            "name": name,
            "label": parameter.label,
            "helpText": parameter.help.format(curators=CURATORS) or self._declared[name].help,
            "isOptional": not parameter.required,
            "regexes": [form.regex],
            "paramType": form.param_type,
        }

        if form.param_type == "ENUM":
            shown["enumOptions"] = [{"value": word, "label": word} for word in form.choices]

        if default is not None and not parameter.required:
            shown["defaultValue"] = (
                str(default).lower() if isinstance(default, bool) else str(default)
            )

        return shown


@dataclass(frozen=True, kw_only=True)
class TemplateOptions:
    """Parameters that are no options of `meanstream run`."""

    secret: Annotated[
        str | None,
        cli_option(
            "Location of the key: a numbered version in Secret Manager, or a file on each worker. Not the key itself.",
            PRIVACY,
            template=InTemplate("Key of the noise", "secret", required=True),
        ),
    ] = None
    shards: Annotated[
        int,
        cli_option(
            "Number of parts, and so the largest number of workers that share them.",
            INPUT,
            template=InTemplate("Shards", "count"),
        ),
    ] = SHARDS
    sdk_container_image: Annotated[
        str | None,
        cli_option(
            "Image built from docker/beam.Dockerfile. Required on Dataflow.",
            INPUT,
            template=InTemplate("Image of the workers", "image"),
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AgentsTemplateOptions(TemplateOptions):
    """The same of agents."""

    idle_seconds: Annotated[
        float | None,
        cli_option(
            "Seconds after which a Kafka partition without samples stops holding event time back.",
            INPUT,
            template=InTemplate("Idle partitions", "positive"),
        ),
    ] = None


AGENTS = Template(
    key="agents",
    name="Meanstream: a private mean for every agent",
    description=(
        "Reads samples of many agents, and gives each agent an estimate of its own mean with an interval, faster than"
        " it could learn alone. Other agents see differentially private releases only: (epsilon, delta) for each"
        " sample's value."
    ),
    options=AgentsOptions,
    own=AgentsTemplateOptions,
)
ROUNDS = Template(
    key="rounds",
    name="Meanstream: the population's private mean per window",
    description=(
        "Reads samples of many users, and gives the population's mean in each window of event time with an interval."
        " Everything that one user sends within a window is protected: epsilon."
    ),
    options=RoundsOptions,
    own=TemplateOptions,
)
TEMPLATES = {template.key: template for template in (AGENTS, ROUNDS)}
