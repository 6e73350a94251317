"""`meanstream run agents|rounds --runner DataflowRunner`: the template, launched from here.

Dataflow's workers see neither this machine's files nor its environment. So source and sinks are in
buckets or topics, and `--secret-file` names a version in Secret Manager.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from meanstream.operators.validation import require
from meanstream.pipelines.beam.template.launch_template import launch_template
from meanstream.pipelines.beam.template.template_parameters import TEMPLATES
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import Refusals

if TYPE_CHECKING:
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions

DATAFLOW = "DataflowRunner"
HERE = ("config", "said", "store", "json", "quiet", "log_format", "runner", "runner_arg")
"""Options of the command alone, and which were typed: no store is made, as on other runners."""
SAME = {"secret_file": "secret"}
"""Parameters of a template that have another name."""


def template_command_on_dataflow(
    key: str, options: AgentsOptions | RoundsOptions, runner_args: Sequence[str]
) -> None:
    """Submit a job and say which; it goes on without this process.

    Parameters
    ----------
    key : str
        "agents" or "rounds".
    options : AgentsOptions or RoundsOptions
        What was typed.
    runner_args : sequence of str
        Options of Beam, and parameters that only a template has, such as
        `--sdk_container_image=...`.

    Raises
    ------
    BadOption
        Before a pipeline is built.
    """
    arguments = _template_arguments(key, options)
    result = launch_template(key, [*arguments, *runner_args, f"--runner={DATAFLOW}"])
    job = result.job_id() if result.has_job else None
    if options.json:
        print_options_json({"runner": DATAFLOW, "job": job})
    elif not options.quiet:
        sys.stderr.write(
            f"submitted: {job}\n"
            if job
            else "written where --template_location says; nothing runs\n"
        )


def _template_arguments(key: str, options: AgentsOptions | RoundsOptions) -> list[str]:
    """Give the options that were typed as parameters of the template.

    Raises
    ------
    BadOption
        Naming all that are none of the template's.
    """
    refusals = Refusals()
    known = TEMPLATES[key].parameters.keys()
    arguments = []
    for field in fields(options):
        value = getattr(options, field.name)
        if value == field.default or field.name in HERE:
            continue
        name = SAME.get(field.name, field.name)
        text = ";".join(value) if isinstance(value, list) else str(value)

        with refusals.collecting():
            require(name in known, name, f"be left out with {DATAFLOW}", text)

        arguments.append(f"--{name}={text.lower() if isinstance(value, bool) else text}")

    refusals.end()
    return arguments
