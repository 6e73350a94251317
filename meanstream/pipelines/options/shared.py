"""Options that several commands take: each described once, under the heading that `--help` shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

INPUT, PRIVACY, COLLABORATION, OUTPUT, OPERATION = "Input", "Privacy", "Collaboration", "Output", "Operation"


def cli_option(help_text: str, panel: str, *names: str) -> Any:
    """Describe an option: its help, the heading that it stands under, and its names if they are not its field's."""
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


SOURCE_HELP = (
    ".csv, .tsv, .jsonl, .ndjson (also .gz, .zip), .parquet, kafka://HOST:PORT/TOPIC, or "
    "synthetic:AGENTS,SAMPLES[,SEED]."
)
PLACES = "FILE.jsonl, FILE.parquet, kafka://HOST:PORT/TOPIC or -."
OFFSETS_HELP = "With --runner, of a topic: PARTITION:FIRST-STOP,...; read these offsets, STOP not included."
CollaborationOption = Annotated[
    str | None, cli_option("learned_prior | pooled_prior | james_stein | tests | none.", COLLABORATION)
]
StddevOption = Annotated[
    float | None, cli_option("Standard deviation of one sample, if known; else learned.", COLLABORATION)
]
LevelOption = Annotated[float, cli_option("Coverage of the intervals.", COLLABORATION)]
SinkOption = Annotated[str, cli_option(f"Personal estimates (private): {PLACES}", OUTPUT)]
PopulationOption = Annotated[str | None, cli_option("The fitted population (public).", OUTPUT)]
MetricsOption = Annotated[
    str | None, cli_option("Address for Prometheus, /healthz and /readyz, such as 127.0.0.1:9464.", OPERATION)
]
PrivateMetricsOption = Annotated[
    str | None,
    cli_option(
        "Address for what only the operator may know: process, disk, values clipped; of rounds all counts.", OPERATION
    ),
]
PageOption = Annotated[
    str | None, cli_option("Show the run on a page in the browser, at an address such as 127.0.0.1:8080.", OPERATION)
]
PageRemoteOption = Annotated[
    bool,
    cli_option("Let other machines connect to --page, unencrypted; with its token only.", OPERATION, "--page-remote"),
]
NAME_HELP = "Name of the deployment, in every id and in the key of the noise; default: the store makes and keeps one."
MaxFutureOption = Annotated[str, cli_option("How far a sample's time may lie ahead of the clock here.", INPUT)]
QuorumOption = Annotated[
    int, cli_option("So many senders (2, or 1) must reach a time before others are late by it; unsorted input.", INPUT)
]
MaxAgentsOption = Annotated[int, cli_option("Agents that may ever be entered; samples of others are rejected.", INPUT)]
MaxUsersOption = Annotated[int, cli_option("Users that may ever be entered; samples of others are rejected.", INPUT)]
MaxDeadLettersOption = Annotated[
    int, cli_option("Dead letters that the store may ever have written; further rejected records are counted.", OUTPUT)
]
WAIT_FOR = "5m"
WaitForOption = Annotated[
    str, cli_option("How long brokers that are away at the start are waited for; a refused login is not.", OPERATION)
]
PrivateFiguresOption = Annotated[
    Path | None,
    cli_option("A new .json file for what only the operator may know of the run, such as values clipped.", OPERATION),
]
LogFormatOption = Annotated[str, cli_option("text, or json: one object per line.", OPERATION)]
QuietOption = Annotated[bool, cli_option("Print no progress.", OPERATION, "--quiet")]


def quorum_for(quorum: int, source: str | None, *, sort: bool) -> int:
    """Ask for a quorum where samples may come late: in a file that is sorted none does, whatever a clock says."""
    from meanstream.operators.validation import require
    from meanstream.streaming.kafka.location import is_kafka

    require(quorum in (1, 2), "quorum", "be 1 or 2", quorum)
    return 1 if sort and source is not None and not is_kafka(source) else quorum
