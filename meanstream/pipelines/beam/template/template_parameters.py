"""The parameters of the templates, in one table each: what the launcher takes, and what their metadata say."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from meanstream.operators.collaboration.registry import COLLABORATIONS
from meanstream.operators.estimators.registry import ESTIMATORS, estimator_class
from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.beam_samples import SHARDS
from meanstream.pipelines.beam.template import template_forms as forms
from meanstream.pipelines.beam.template.template_forms import Form, choice_form
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.rounds_options import RoundsOptions


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a template.

    Attributes
    ----------
    name : str
        Of the option of `meanstream run` that it is, with the option's default and, unless another is given, its help.
    label : str
        What the console shows.
    form : Form
        Of its text.
    required : bool
    help : str
    """

    name: str
    label: str
    form: Form
    required: bool = False
    help: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """What was given to a template: the options of `meanstream run`, and what only a template has."""

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
    parameters : tuple of Parameter
    """

    key: str
    name: str
    description: str
    options: type[Any]
    parameters: tuple[Parameter, ...]

    def split(self, arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """Tell the parameters from the rest, which is for Beam.

        Raises
        ------
        ValueError
            If one is given twice.
        """
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for parameter in self.parameters:
            parser.add_argument(f"--{parameter.name}", action="append", nargs="?", const="")
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
        for parameter in self.parameters:
            text = given.get(parameter.name)
            require(text is not None or not parameter.required, parameter.name, "be given", None)
            if text is not None:
                values[parameter.name] = parameter.form.read(parameter.name, text)
        own = {name: values.pop(name, default) for name, default in OWN_DEFAULTS.items()}
        return Given(self.options(**values), own)

    def metadata(self) -> dict[str, Any]:
        """Describe the template as `gcloud dataflow flex-template build --metadata-file` takes it."""
        return {
            "name": self.name,
            "description": self.description,
            "streaming": True,
            "supportsExactlyOnce": True,
            "supportsAtLeastOnce": False,
            "parameters": [self._described(parameter) for parameter in self.parameters],
        }

    def _described(self, parameter: Parameter) -> dict[str, Any]:
        form, name = parameter.form, parameter.name
        known = {field.name: field.default for field in fields(self.options)}
        default = OWN_DEFAULTS[name] if name in OWN_DEFAULTS else known[name]
        shown: dict[str, Any] = {
            "name": name,
            "label": parameter.label,
            "helpText": parameter.help or _help_of(self.options, name),
            "isOptional": not parameter.required,
            "regexes": [form.regex],
            "paramType": form.param_type,
        }
        if form.param_type == "ENUM":
            shown["enumOptions"] = [{"value": word, "label": word} for word in form.choices]
        if default is not None and not parameter.required:
            shown["defaultValue"] = str(default).lower() if isinstance(default, bool) else str(default)
        return shown


def _help_of(options: type[Any], name: str) -> str:
    """Give a parameter the help of its option."""
    return str(get_type_hints(options, include_extras=True)[name].__metadata__[0].help)


OWN_DEFAULTS: dict[str, Any] = {"secret": None, "shards": SHARDS, "idle_seconds": None, "sdk_container_image": None}
"""Parameters that are no options of `meanstream run`, and their defaults."""

_SOURCE_HELP = (
    "A file, gs://BUCKET/FILE; or, without end, kafka://HOST:PORT/TOPIC or projects/PROJECT/subscriptions/NAME."
)
_VECTOR_HELP = "Bound of a value; for a vector one, or one each: x,y,z."
_NAME_HELP = "Part of every id and of the key of the noise. Use another name for each job over other data."
_LETTERS_HELP = "Topic for rejected records, without their content."
_READ = (
    Parameter("value", "Column of the value", forms.COLUMN),
    Parameter("time", "Column of the event time", forms.COLUMN),
    Parameter("id", "Column of the id", forms.COLUMN),
    Parameter("until_end", "Stop at the present end of the topic", forms.FLAG),
)
_WORK = (
    Parameter(
        "secret",
        "Key of the noise",
        forms.SECRET,
        required=True,
        help="Location of the key: a numbered version in Secret Manager, or a file on each worker. Not the key itself.",
    ),
    Parameter(
        "shards", "Shards", forms.COUNT, help="Number of parts, and so the largest number of workers that share them."
    ),
    Parameter(
        "sdk_container_image",
        "Image of the workers",
        forms.IMAGE,
        help="Image built from docker/beam.Dockerfile. Required on Dataflow.",
    ),
)
_CLASSES = {name: estimator_class(name) for name in ESTIMATORS}
_ESTIMATORS = tuple(name for name, one in _CLASSES.items() if one.privacy_unit == "user")
_CURATORS = ", ".join(name for name in _ESTIMATORS if estimator_class(name).trust == "central")

AGENTS = Template(
    key="agents",
    name="Meanstream: a private mean for every agent",
    description=(
        "Reads samples of many agents, and gives each agent an estimate of its own mean with an interval, faster than"
        " it could learn alone. Other agents see differentially private releases only: (epsilon, delta) for each"
        " sample's value."
    ),
    options=AgentsOptions,
    parameters=(
        Parameter("source", "Samples (private)", forms.SOURCE, required=True, help=_SOURCE_HELP),
        Parameter("agent", "Column of the agent", forms.COLUMN),
        *_READ,
        Parameter("person", "Column of the person", forms.COLUMN),
        Parameter("lateness", "Allowed lateness", forms.DURATION),
        Parameter("name", "Name of the deployment", forms.NAME, required=True, help=_NAME_HELP),
        Parameter("lower", "Lower bound", forms.NUMBER, required=True),
        Parameter("upper", "Upper bound", forms.NUMBER, required=True),
        Parameter("epsilon", "Epsilon", forms.POSITIVE, required=True),
        Parameter("delta", "Delta", forms.POSITIVE, required=True),
        Parameter("per_person", "Largest number of samples of a person", forms.COUNT),
        Parameter("mode", "Mode", choice_form("tuned", "paper")),
        Parameter("counter", "Counting mechanism", choice_form("optimal", "toeplitz", "pm1", "pm2")),
        Parameter("noise", "Noise", choice_form("gaussian", "laplace")),
        Parameter("calibration", "Calibration of the noise", choice_form("analytic", "classical")),
        Parameter("horizon", "Largest number of releases of an agent", forms.COUNT),
        Parameter("levels", "Levels of pm2", forms.COUNT),
        Parameter("schedule", "Times of an agent's releases", forms.SCHEDULE),
        Parameter("memory", "Memory of a mean", forms.MEMORY),
        Parameter("quantiles", "Quantiles in estimates", forms.NUMBERS),
        Parameter("exceeds", "Thresholds of shares in estimates", forms.NUMBERS),
        Parameter("histogram_share", "Share of the budget for quantiles and shares", forms.POSITIVE),
        Parameter("collaboration", "Collaboration", choice_form(*COLLABORATIONS)),
        Parameter("stddev", "Standard deviation of a sample", forms.POSITIVE),
        Parameter("level", "Coverage of the intervals", forms.POSITIVE),
        Parameter(
            "refresh",
            "Time between answers",
            forms.SPAN,
            help="Estimates for agents with new samples each DURATION of event time; 10s if the source has no end.",
        ),
        Parameter("sink", "Estimates (private)", forms.SINK, required=True, help="Estimates, each for its own agent."),
        Parameter("releases", "Releases (public)", forms.SINK, help="Releases that all agents learn from."),
        Parameter("population", "Population (public)", forms.SINK),
        Parameter("notices", "Notices (public)", forms.SINK),
        Parameter("dead_letters", "Dead letters (public)", forms.SINK, help=_LETTERS_HELP),
        Parameter("max_agents", "Largest number of agents", forms.COUNT),
        Parameter(
            "idle_seconds",
            "Idle partitions",
            forms.POSITIVE,
            help="Seconds after which a Kafka partition without samples stops holding event time back.",
        ),
        *_WORK,
    ),
)  # fmt: skip

ROUNDS = Template(
    key="rounds",
    name="Meanstream: the population's private mean per window",
    description=(
        "Reads samples of many users, and gives the population's mean in each window of event time with an interval."
        " Everything that one user sends within a window is protected: epsilon."
    ),
    options=RoundsOptions,
    parameters=(
        Parameter("source", "Samples (private)", forms.SOURCE, required=True, help=_SOURCE_HELP),
        Parameter("user", "Column of the user", forms.COLUMN),
        Parameter("values", "Columns of a vector", forms.COLUMNS, help="Columns x,y,z, instead of value."),
        *_READ,
        Parameter("window", "Window", forms.WINDOW, required=True),
        Parameter("allowed_lateness", "Allowed lateness", forms.DURATION),
        Parameter("lower", "Lower bound", forms.BOUND, required=True, help=_VECTOR_HELP),
        Parameter("upper", "Upper bound", forms.BOUND, required=True, help=_VECTOR_HELP),
        Parameter("epsilon", "Epsilon", forms.POSITIVE, required=True),
        Parameter("user_budget", "Budget of a user", forms.POSITIVE),
        Parameter("name", "Name of the deployment", forms.NAME, required=True, help=_NAME_HELP),
        Parameter("estimator", "Estimator", choice_form(*_ESTIMATORS), help=f"Estimator. {_CURATORS} trust a curator."),
        Parameter("option", "Options of the estimator", forms.OWN_OPTIONS, help="NAME=VALUE; separate several by ';'."),
        Parameter("mode", "Mode", choice_form("tuned", "paper")),
        Parameter("sizes", "Distribution of numbers of samples", forms.SIZES, help="Such as poisson:3.5, or unknown."),
        Parameter("users", "Users per window", forms.COUNT),
        Parameter("between_users", "Bound on the deviation of users' means", forms.NOT_NEGATIVE),
        Parameter("tails", "Tails of users' means", choice_form("exponential"), help="Default: no assumption."),
        Parameter("edition", "Edition of the estimator's design", forms.COUNT, help="Default 1."),
        Parameter("level", "Coverage of the intervals", forms.POSITIVE),
        Parameter("sink", "Estimates (public)", forms.SINK, required=True, help="Estimates, one per window."),
        Parameter("dead_letters", "Dead letters (public)", forms.SINK, help=_LETTERS_HELP),
        Parameter("max_users", "Largest number of users", forms.COUNT),
        *_WORK,
    ),
)  # fmt: skip

TEMPLATES = {template.key: template for template in (AGENTS, ROUNDS)}
