"""The entry that Dataflow's launcher calls, for each template: `launch("agents", sys.argv[1:])`.

Everything is checked before a pipeline is built: a bad parameter is one line on standard error and
exit code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from meanstream.operators.validation import closest_valid, require
from meanstream.pipelines.beam.beam_runners import (
    new_runner_pipeline,
    quiet_runner,
    require_beam_of_runners,
    runner_arguments,
)
from meanstream.pipelines.beam.template.agents_template import agents_pipeline
from meanstream.pipelines.beam.template.rounds_template import rounds_pipeline
from meanstream.pipelines.beam.template.template_parameters import TEMPLATES, Given, Template
from meanstream.pipelines.beam.template.template_places import is_template_endless_place
from meanstream.pipelines.options.base import OPTION_OF
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

PIPELINES: dict[str, Callable[[Given], Callable[[beam.Pipeline], None]]] = {
    "agents": agents_pipeline,
    "rounds": rounds_pipeline,
}
AT_LEAST_ONCE = "streaming_mode_at_least_once"


def launch(key: str, arguments: Sequence[str]) -> None:
    """Launch a template; end with one line and exit code 2 if a parameter is refused."""
    try:
        launch_template(key, arguments)
    except BadOption as error:
        sys.stderr.write(f"meanstream: {error}\n")
        sys.exit(2)


def launch_template(key: str, arguments: Sequence[str]) -> Any:
    """Check, build, submit; return the result.

    Dataflow's launcher waits for the job by itself and wants this program to end, so only other
    runners are waited for.

    Parameters
    ----------
    key : str
        "agents" or "rounds".
    arguments : sequence of str
        Parameters of the template and options of Beam, as `--name=value`.

    Raises
    ------
    BadOption
        Before a pipeline is built.
    """
    template = TEMPLATES[key]
    with refusing_options(), quiet_runner():
        require_beam_of_runners()
        texts, rest = template.split(arguments)
        given = template.read(texts)
        add = PIPELINES[key](given)
        options, runner = launch_beam_options(template, given, rest)
        pipeline = _pipeline(options, runner)
        add(pipeline)

    result = pipeline.run()
    if runner != "DataflowRunner":
        result.wait_until_finish()

    return result


def launch_beam_options(
    template: Template, given: Given, rest: Sequence[str]
) -> tuple[PipelineOptions, str]:
    """Check what is for Beam, and set what the template needs.

    Give the options and the runner's name.

    No parameter of the template is among them, so that the job shows none.

    Raises
    ------
    ValueError
        Naming the option, the rule and the value.
    """
    from apache_beam.options.pipeline_options import (
        DebugOptions,
        PipelineOptions,
        SetupOptions,
        StandardOptions,
        WorkerOptions,
    )

    typed = PipelineOptions(list(rest))
    known = typed.get_all_options()
    unknown = typed.get_all_options(retain_unknown_options=True).keys() - known.keys()
    names = [*template.parameters]

    for name in sorted(unknown):
        raise ValueError(
            f"{name} must be a parameter of this template or an option of Beam{closest_valid(name, names)}"
        )

    runner = typed.view_as(StandardOptions).runner
    options = PipelineOptions(runner_arguments(str(runner), rest))
    options.view_as(SetupOptions).save_main_session = False
    options.view_as(StandardOptions).streaming = is_template_endless_place(
        given.options.source, until_end=given.options.until_end
    )
    options.view_as(WorkerOptions).sdk_container_image = given.own["sdk_container_image"]

    if runner == "DataflowRunner":
        _check_dataflow(options, given)
        # The list of this machine's packages, editable ones with their folder, would be staged next
        # to the pipeline.
        options.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")

    return options, str(runner)


def _check_dataflow(options: PipelineOptions, given: Given) -> None:
    """Refuse what Dataflow would take and should not."""
    from apache_beam.options.pipeline_options import DebugOptions, GoogleCloudOptions, WorkerOptions

    image = options.view_as(WorkerOptions).sdk_container_image
    require(
        image is not None,
        "sdk_container_image",
        "be given on Dataflow: the image of docker/beam.Dockerfile",
        image,
    )
    google = options.view_as(GoogleCloudOptions)

    for name, words in (
        ("dataflow_service_options", google.dataflow_service_options),
        ("experiments", options.view_as(DebugOptions).experiments),
    ):
        # A sample that is taken in twice makes another sum under the same release id.
        require(
            AT_LEAST_ONCE not in (words or ()),
            name,
            "leave every sample exactly once",
            AT_LEAST_ONCE,
        )

    for role, place in {"source": given.options.source, **given.options.sinks}.items():
        rule = "be in a bucket or a topic on Dataflow: a worker's disk goes with it"
        require(not place.startswith("/"), OPTION_OF.get(role, role), rule, place)


def _pipeline(options: PipelineOptions, runner: str) -> beam.Pipeline:
    try:
        return new_runner_pipeline(runner, options)
    except ValueError as error:  # Beam's own validation, a line for each error
        raise ValueError(" ".join(str(error).split())) from None
