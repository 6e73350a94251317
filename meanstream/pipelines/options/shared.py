"""Options that several commands take: each described once, under the heading that `--help` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from meanstream.streaming.sources.mapping import Layout

INPUT, PRIVACY, COLLABORATION, OUTPUT, OPERATION = "Input", "Privacy", "Collaboration", "Output", "Operation"


def cli_option(help_text: str, panel: str, *names: str) -> Any:
    """Describe an option: its help, the heading that it stands under, and its names if they are not its field's."""
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


COLUMN_HELP = "a path such as data.delay, or of a message @key, @timestamp, @topic, @header.NAME."
SOURCE_HELP = (
    ".csv, .tsv, .jsonl, .ndjson (also .gz, .zip), .parquet, kafka://HOST:PORT/TOPIC[,TOPIC...], - (JSON lines "
    "piped in) or synthetic:AGENTS,SAMPLES[,SEED]."
)
PLACES = "FILE.jsonl, FILE.parquet, kafka://HOST:PORT/TOPIC or -."
CollaborationOption = Annotated[
    str | None, cli_option("learned_prior | pooled_prior | james_stein | tests | none.", COLLABORATION)
]
StddevOption = Annotated[
    float | None, cli_option("Standard deviation of one sample, if known; else learned.", COLLABORATION)
]
CovariatesOption = Annotated[
    str | None,
    cli_option(
        "Public attributes of the agents: CSV or Parquet, a row per agent, the key column named as --agent.",
        COLLABORATION,
    ),
]
LevelOption = Annotated[float, cli_option("Coverage of the intervals.", COLLABORATION)]
QuantilesOption = Annotated[
    str | None,
    cli_option("Quantiles of its own values that each agent is told, too, as .5,.9; of a histogram.", COLLABORATION),
]
SinkOption = Annotated[str, cli_option(f"Personal estimates (private): {PLACES}", OUTPUT)]
PopulationOption = Annotated[str | None, cli_option("The fitted population (public).", OUTPUT)]
MetricsOption = Annotated[
    str | None, cli_option("Address for Prometheus, /healthz and /readyz, such as 127.0.0.1:9464.", OPERATION)
]
PageOption = Annotated[
    str | None, cli_option("Show the run on a page in the browser, at an address such as 127.0.0.1:8080.", OPERATION)
]
DryRunOption = Annotated[
    bool,
    cli_option("Check options, connections, topics, permissions and budget; read and write nothing.", OPERATION),
]
PrivateMetricsOption = Annotated[
    str | None,
    cli_option(
        "Address for what only the operator may know: process, disk, values clipped; of rounds all counts.", OPERATION
    ),
]
PageRemoteOption = Annotated[
    bool,
    cli_option("Let other machines connect to --page, unencrypted; with its token only.", OPERATION, "--page-remote"),
]
LATENESS_HELP = "default: the store's, else 10s of a topic, 0s of a sorted file, 1h with --no-sort."
MaxAgentsOption = Annotated[int, cli_option("Agents that may ever be entered; samples of others are rejected.", INPUT)]
MaxUsersOption = Annotated[int, cli_option("Users that may ever be entered; samples of others are rejected.", INPUT)]
RunnerOption = Annotated[
    str | None,
    cli_option("FnApiRunner | PrismRunner | FlinkRunner | DataflowRunner: run on Beam, not on this engine.", OPERATION),
]
RunnerArgOption = Annotated[
    list[str] | None, cli_option("Option of the runner, such as --flink_master=HOST:PORT.", OPERATION, "--runner-arg")
]
OffsetsOption = Annotated[
    str | None,
    cli_option(
        "With --runner, of a topic: PARTITION:FIRST-STOP,...; read these offsets, STOP not included.", OPERATION
    ),
]
WAIT_FOR = "5m"
WaitForOption = Annotated[
    str, cli_option("How long brokers that are away at the start are waited for; a refused login is not.", OPERATION)
]
LogFormatOption = Annotated[str, cli_option("text, or json: one object per line.", OPERATION)]
QuietOption = Annotated[bool, cli_option("Print no progress.", OPERATION, "--quiet")]


def option_numbers(name: str, text: str | None) -> list[float]:
    """Read numbers separated by commas; none where nothing was given.

    Raises
    ------
    ValueError
        Naming the option.

    Examples
    --------
    >>> option_numbers("quantiles", ".5,.9")
    [0.5, 0.9]
    """
    from meanstream.operators.validation import require, valid_float

    parts = [] if text is None else text.removeprefix("[").removesuffix("]").split(",")
    try:
        return [valid_float(name, part) for part in parts]
    except ValueError:
        require(False, name, "be numbers separated by commas", text)
        raise


def checked_layout(layout: str) -> Layout:
    """Refuse a layout that nobody knows."""
    from meanstream.operators.validation import require
    from meanstream.streaming.sources.mapping import LAYOUTS

    require(layout in LAYOUTS, "layout", f"be one of {', '.join(LAYOUTS)}", layout)
    return cast("Layout", layout)


def quorum_for(quorum: int, source: str | None, *, sort: bool) -> int:
    """Ask for a quorum where samples may come late: in a file that is sorted none does, whatever a clock says."""
    from meanstream.operators.validation import require

    require(quorum in (1, 2), "quorum", "be 1 or 2", quorum)
    return 1 if sort and source is not None and not is_live_source(source) else quorum


def is_live_source(source: str) -> bool:
    """Say whether samples come as they are made: of a topic, a growing file, a pipe; not replayed and not sorted."""
    from meanstream.streaming.kafka.location import is_kafka_location

    return is_kafka_location(source) or source == "-" or source.startswith("follow:")
