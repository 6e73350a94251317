"""`meanstream run agents|rounds --runner DataflowRunner`: all checks, then the job is submitted.

Dataflow's workers see neither this machine's files nor its environment. So source and sinks are in
buckets or topics, and `--secret-file` names a version in Secret Manager.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from meanstream.operators.validation import require
from meanstream.pipelines.beam.beam_runners import (
    new_runner_pipeline,
    quiet_runner,
    require_beam_of_runners,
    runner_arguments,
)
from meanstream.pipelines.beam.commands import dataflow_locations
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation, require_beam_secret_named
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.declaration import options_of_host
from meanstream.pipelines.options.option_errors import Refusals, refusing_options

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions

DATAFLOW = "DataflowRunner"
ALSO_ON_DATAFLOW = frozenset({"dead_letters", "refresh"})
"""Options of the engine that pipelines without an end have, too."""
NOT_ON_DATAFLOW = frozenset(
    {"batch_size", "covariates", "final_release", "offsets", "partners", "sort", "store"}
)
"""Options of the other runners that need this machine's files, or an end that is known here; a
pipeline keeps its ledger in its own state, not in a store."""
AT_LEAST_ONCE = "streaming_mode_at_least_once"


def options_not_on_dataflow(kind: type[AgentsOptions | RoundsOptions]) -> frozenset[str]:
    """Names of the options of a run that Dataflow refuses."""
    names = {field.name for field in fields(kind)}
    engine_only = options_of_host(kind, "engine") - ALSO_ON_DATAFLOW
    return engine_only | (names & NOT_ON_DATAFLOW)


def submit_to_dataflow(options: AgentsOptions | RoundsOptions) -> None:
    """Submit a job and print its id; the job goes on without this process.

    Raises
    ------
    BadOption
        Before a pipeline is built.
    """
    _refuse_options(options)

    with refusing_options(), quiet_runner():
        require_beam_of_runners()
        secret = secret_on_workers(options.secret_file)
        dataflow_locations.check_locations(options)
        beam_options = dataflow_beam_options(options, options.runner_arg or [])
        pipeline = _new_pipeline(beam_options)

        from meanstream.pipelines.beam.commands.dataflow_pipelines import add_to_pipeline

        add_to_pipeline(pipeline, options, secret)
        result = pipeline.run()

    job = result.job_id() if result.has_job else None
    if options.json:
        print_options_json({"runner": DATAFLOW, "job": job})
    elif not options.quiet:
        written = "written where --template_location says; nothing runs"
        sys.stderr.write(f"{written if job is None else f'submitted: {job}'}\n")


def secret_on_workers(location: Path | str | None) -> SecretLocation:
    """Location of the key of the noise: a file on each worker, or a version in Secret Manager."""
    require(location is not None, "secret_file", f"be given with {DATAFLOW}", location)
    text = str(location)

    if text.startswith("/"):
        return SecretLocation(file=text)
    return SecretLocation(resource=text)


def dataflow_beam_options(
    options: AgentsOptions | RoundsOptions, arguments: Sequence[str]
) -> PipelineOptions:
    """Options of Beam, checked, with what the job needs.

    None of the run's options is among them, so that the job shows none.

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
    )

    typed = PipelineOptions([*runner_arguments(DATAFLOW, arguments), f"--runner={DATAFLOW}"])
    known = typed.get_all_options()
    unknown = typed.get_all_options(retain_unknown_options=True).keys() - known.keys()
    for name in sorted(unknown):
        raise ValueError(f"runner_arg must be an option of Beam, got {name!r}")

    endless = dataflow_locations.is_endless(options)
    typed.view_as(StandardOptions).streaming = endless
    typed.view_as(SetupOptions).save_main_session = False
    _check_job(typed)

    # The list of this machine's packages, editable ones with their folder, would be staged next
    # to the pipeline.
    typed.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")

    return typed


def _refuse_options(options: AgentsOptions | RoundsOptions) -> None:
    """Refuse, in one line, all that can be refused without Beam."""
    refusals = Refusals()
    refused = options_not_on_dataflow(type(options))
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name in refused and value != field.default:
            with refusals.collecting():
                require(False, field.name, f"be left out with {DATAFLOW}", str(value))

    with refusals.collecting():
        require_beam_secret_named(options)

    with refusals.collecting():
        options.settings()

    with refusals.collecting():
        options.engine_options()

    refusals.end()


def _check_job(beam_options: PipelineOptions) -> None:
    """Refuse what Dataflow would take and should not."""
    from apache_beam.options.pipeline_options import DebugOptions, GoogleCloudOptions, WorkerOptions

    image = beam_options.view_as(WorkerOptions).sdk_container_image
    rule = "be given on Dataflow: the image of docker/beam.Dockerfile"
    require(image is not None, "sdk_container_image", rule, image)

    # A sample that is taken in twice makes another sum under the same release id.
    services = beam_options.view_as(GoogleCloudOptions).dataflow_service_options
    experiments = beam_options.view_as(DebugOptions).experiments
    for name, words in (("dataflow_service_options", services), ("experiments", experiments)):
        exactly_once = AT_LEAST_ONCE not in (words or ())
        require(exactly_once, name, "leave every sample exactly once", AT_LEAST_ONCE)


def _new_pipeline(beam_options: PipelineOptions) -> beam.Pipeline:
    try:
        return new_runner_pipeline(DATAFLOW, beam_options)
    except ValueError as error:  # Beam's own validation, a line for each error
        raise ValueError(" ".join(str(error).split())) from None
