"""Options that several commands take: each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from meanstream.pipelines.options.declaration import (
    COLLABORATION,
    INPUT,
    OPERATION,
    OUTPUT,
    cli_option,
)

if TYPE_CHECKING:
    from meanstream.streaming.sources.mapping import Layout

COLUMN_HELP = (
    "a name, a path such as data.delay, or of a message @key, @timestamp, @topic, @header.NAME."
)
SOURCE_HELP = (
    "Samples: .csv, .tsv, .jsonl, .ndjson (also .gz, .zip), .parquet, kafka://HOST:PORT/TOPIC[,TOPIC...], - (JSON "
    "lines from a pipe) or synthetic:AGENTS,SAMPLES[,SEED]."
)
PLACES = "FILE.jsonl, FILE.parquet, kafka://HOST:PORT/TOPIC or -."
BUDGET = ("lower", "upper", "epsilon", "odds", "delta")
ASKED = ("config", "store", *BUDGET, "json")
"""Options of a command line that asks about a run; a file and the environment may give all
others."""
RELEASES_HELP = f"Releases (public): iceberg://CATALOG/NAMESPACE.TABLE, {PLACES}"
ReleasesOption = Annotated[
    str | None,
    cli_option(
        RELEASES_HELP,
        OUTPUT,
        first=True,
    ),
]
CollaborationOption = Annotated[
    str | None,
    cli_option(
        "How agents learn from each other: learned_prior | pooled_prior | james_stein | tests | consensus | none.",
        COLLABORATION,
    ),
]
CovariatesOption = Annotated[
    str | None,
    cli_option(
        "Public attributes of the agents: CSV or Parquet, a row per agent, the key column named as --agent.",
        COLLABORATION,
    ),
]
StddevOption = Annotated[
    float | None,
    cli_option(
        "Standard deviation of one sample; default: learned.",
        COLLABORATION,
    ),
]
LevelOption = Annotated[
    float,
    cli_option(
        "Coverage of the intervals.",
        COLLABORATION,
    ),
]
CoverageOption = Annotated[
    str,
    cli_option(
        "Promise of the intervals of means: pointwise (each at its moment) | anytime (all of them together).",
        COLLABORATION,
    ),
]
QuantilesOption = Annotated[
    str | None,
    cli_option(
        "Quantiles of an agent's own values to report with its estimate, such as .5,.9.",
        COLLABORATION,
    ),
]
SinkOption = Annotated[
    str,
    cli_option(
        f"Personal estimates (private): {PLACES}",
        OUTPUT,
        first=True,
    ),
]
PopulationOption = Annotated[
    str | None,
    cli_option(
        "The fitted population (public).",
        OUTPUT,
    ),
]
MetricsOption = Annotated[
    str | None,
    cli_option(
        "Address of public metrics for Prometheus, /healthz and /readyz, such as 127.0.0.1:9464.",
        OPERATION,
        shows=True,
        host="engine",
    ),
]
PageOption = Annotated[
    str | None,
    cli_option(
        "Address of a live page for the browser, such as 127.0.0.1:8080.",
        OPERATION,
        shows=True,
        host="engine",
    ),
]
DryRunOption = Annotated[
    bool,
    cli_option(
        "Check options, connections, topics, permissions and budget; read and write nothing.",
        OPERATION,
        shows=True,
        host="engine",
    ),
]
PrivateMetricsOption = Annotated[
    str | None,
    cli_option(
        "Address of the operator's metrics: process, disk, clipped values; for rounds all counts.",
        OPERATION,
        shows=True,
        host="engine",
    ),
]
PageRemoteOption = Annotated[
    bool,
    cli_option(
        "Access to --page from other machines, unencrypted, with its token only.",
        OPERATION,
        "--page-remote",
        shows=True,
        host="engine",
    ),
]
LATENESS_HELP = (
    "default: the store's, else 10s for a topic, 0s for a sorted file, 1h with --no-sort."
)
MaxAgentsOption = Annotated[
    int,
    cli_option(
        "Largest number of agents, ever; samples of others are rejected.",
        INPUT,
        unit="agents",
    ),
]
MaxUsersOption = Annotated[
    int,
    cli_option(
        "Largest number of users, ever; samples of others are rejected.",
        INPUT,
        unit="users",
    ),
]
RunnerOption = Annotated[
    str | None,
    cli_option(
        "Beam runner to use instead of the engine: FnApiRunner | PrismRunner | FlinkRunner | DataflowRunner.",
        OPERATION,
        shows=False,
        host="runner",
    ),
]
RunnerArgOption = Annotated[
    list[str] | None,
    cli_option(
        "Option of the runner, such as --flink_master=HOST:PORT; may be repeated.",
        OPERATION,
        "--runner-arg",
        shows=False,
        host="runner",
    ),
]
OffsetsOption = Annotated[
    str | None,
    cli_option(
        "Offsets of a topic to read with --runner: PARTITION:FIRST-STOP,..., without STOP.",
        OPERATION,
        shows=False,
        host="runner",
    ),
]
AskedStoreOption = Annotated[
    Path,
    cli_option(
        "Store of the run, for its settings if no bounds and no budget are given.",
        INPUT,
        show_default=False,
    ),
]
RegistryOption = Annotated[
    bool,
    cli_option(
        "Write YAML for the DP Deployments Registry, with gaps for the facts that only you know.",
        INPUT,
        "--registry",
    ),
]
WAIT_FOR = "5m"
WaitForOption = Annotated[
    str,
    cli_option(
        "Longest wait for unreachable brokers at the start. A refused login ends the run at once.",
        OPERATION,
        shows=False,
        unit="duration",
        host="engine",
    ),
]
LogFormatOption = Annotated[
    str, cli_option("Format of log lines: text | json.", OPERATION, shows=True, host="engine")
]
QuietOption = Annotated[bool, cli_option("No progress lines.", OPERATION, "--quiet", shows=True)]


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
    """Refuse an unknown layout."""
    from meanstream.operators.validation import require
    from meanstream.streaming.sources.mapping import LAYOUTS

    require(layout in LAYOUTS, "layout", f"be one of {', '.join(LAYOUTS)}", layout)
    return cast("Layout", layout)


def quorum_for(quorum: int, source: str | None, *, sort: bool) -> int:
    """Ask for a quorum where samples may come late.

    In a file that is sorted none does, whatever a clock says.
    """
    from meanstream.operators.validation import require

    require(quorum in (1, 2), "quorum", "be 1 or 2", quorum)

    if sort and source is not None and not is_live_source(source):
        return 1
    return quorum


def is_live_source(source: str) -> bool:
    """Say whether samples come as they are made.

    Of a topic, a growing file, a pipe; not replayed and not sorted.
    """
    from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location

    return is_kafka_location(source) or source == "-" or source.startswith("follow:")
