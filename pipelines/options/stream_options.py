"""The options of every engine that reads a stream of samples.

Those of agents and of rounds are made of these.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic.dataclasses import dataclass

from meanstream.operators.limits import MAX_DEAD_LETTERS, MAX_FUTURE
from meanstream.pipelines.options.base import DEFERRED, ConfigOption, JsonOption
from meanstream.pipelines.options.declaration import (
    INPUT,
    OPERATION,
    OUTPUT,
    PRIVACY,
    cli_option,
)
from meanstream.pipelines.options.shared_options import (
    WAIT_FOR,
    DryRunOption,
    LogFormatOption,
    MetricsOption,
    PageOption,
    PageRemoteOption,
    PrivateMetricsOption,
    QuietOption,
    WaitForOption,
)
from meanstream.pipelines.options.stream_defaults import Lateness, Refresh, lateness_in_force

if TYPE_CHECKING:
    from meanstream.streaming.engine.engine_options import EngineOptions
    from meanstream.streaming.sources.mapping import ColumnMapping


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class StreamOptions(ABC):
    """What a user says about samples and an engine that reads them, before anything is checked or opened.

    A field without a default is given one, and its help, by each kind of engine.
    """

    WHO: ClassVar[str]
    """What a sender is called: it is a column, and `max_...s` bounds how many there may be."""
    LATENESS: ClassVar[str]
    """The option that says how late a sample may be."""
    said: frozenset[str] = frozenset()
    """Options that were given, by the command line, the environment or a file, and not left at
    their default."""

    config: ConfigOption = None
    source: str | None
    value: Annotated[
        str,
        cli_option(
            "Column of the value.",
            INPUT,
            first=True,
        ),
    ] = "value"
    time: Annotated[
        str,
        cli_option(
            "Column of the event time: ISO 8601 (default UTC), or a number since 1970: seconds below 1e11, "
            "milliseconds below 1e14, else microseconds.",
            INPUT,
            first=True,
        ),
    ] = "time"
    id: Annotated[
        str | None,
        cli_option(
            "Column of an id, unique within its agent; duplicates are dropped.",
            INPUT,
        ),
    ] = None
    layout: Annotated[
        str,
        cli_option(
            "Layout of JSON: plain | cloudevents (fields: attributes and data.FIELD; both modes) | connect (schema and "
            "payload).",
            INPUT,
        ),
    ] = "plain"
    numbers_in_text: Annotated[
        bool,
        cli_option(
            'Numbers in text, such as "12.5", as values in JSON and Avro; CSV always has them.',
            INPUT,
            "--numbers-in-text",
        ),
    ] = False
    sort: Annotated[
        bool,
        cli_option(
            "Order of a file: --sort replays it by event time, --no-sort as it is.",
            INPUT,
            "--sort/--no-sort",
        ),
    ] = True
    follow: Annotated[
        bool,
        cli_option(
            "Continuous reading of a .jsonl file that grows.", INPUT, "--follow", host="engine"
        ),
    ] = False
    until_end: Annotated[
        bool,
        cli_option(
            "Stop at the last record that a topic holds at the start.",
            INPUT,
            "--until-end",
        ),
    ] = False
    batch_size: Annotated[
        int, cli_option("Largest number of samples per read.", INPUT, unit="samples")
    ] = 262_144
    max_future: Annotated[
        str,
        cli_option(
            "Largest lead of a sample's time over this machine's clock; later ones are rejected.",
            INPUT,
            host="engine",
            unit="duration",
        ),
    ] = f"{MAX_FUTURE:g}s"

    name: Annotated[
        str | None,
        cli_option(
            "Name of the deployment, part of every id and of the key of the noise; default: a random name, kept in "
            "the store.",
            PRIVACY,
        ),
    ] = None
    secret_file: Annotated[
        Path | None,
        cli_option(
            "File with the key of the noise; default: MEANSTREAM_SECRET, else a file next to the store.",
            PRIVACY,
            environment=False,
        ),
    ] = None

    store: Path
    dead_letters: str | None
    max_dead_letters: Annotated[
        int,
        cli_option(
            "Largest number of dead letters of a store, ever; further ones are only counted.",
            OUTPUT,
            unit="letters",
            shows=False,
            host="engine",
        ),
    ] = MAX_DEAD_LETTERS
    notices: str | None
    json: JsonOption = False

    metrics: MetricsOption = None
    private_metrics: PrivateMetricsOption = None
    page: PageOption = None
    page_remote: PageRemoteOption = False
    private_figures: Annotated[
        Path | None,
        cli_option(
            "New .json file for the operator's figures of the run, such as clipped values.",
            OPERATION,
            shows=True,
            host="engine",
        ),
    ] = None
    dry_run: DryRunOption = False
    wait_for: WaitForOption = WAIT_FOR
    log_format: LogFormatOption = "text"
    quiet: QuietOption = False

    def __post_init__(self) -> None:
        """Say in the source that it is followed: it is another kind of source then."""
        if self.follow and self.source is not None and not self.source.startswith("follow:"):
            object.__setattr__(self, "source", f"follow:{self.source}")

    @property
    @abstractmethod
    def sinks(self) -> dict[str, str]:
        """Role of each sink that was asked for, and its place."""

    @abstractmethod
    def column_mapping(self) -> "ColumnMapping":
        """Say which column means what."""

    def lateness_in_force(self) -> Lateness:
        """Say how late samples may be, and why.

        As given, else the store's, else what suits the source.
        """
        typed: str | None = getattr(self, self.LATENESS)
        store = None if getattr(self, "runner", None) else self.store
        return lateness_in_force(
            self.LATENESS, typed, source=self.source, sort=self.sort, store=store
        )

    def refresh_in_force(self) -> Refresh | None:
        """Say how often agents get estimates, and why; None where no agent gets any."""
        return None

    def engine_options(self) -> "EngineOptions":
        """Check everything that is not privacy.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.durations import parse_duration
        from meanstream.streaming.engine.engine_options import EngineOptions

        return EngineOptions(
            batch_size=self.batch_size,
            allowed_lateness=self.lateness_in_force().seconds,
            max_future=parse_duration("max_future", self.max_future),
            max_agents=getattr(self, f"max_{self.WHO}s"),
            max_dead_letters=self.max_dead_letters,
        )
