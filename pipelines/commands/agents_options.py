"""The options of everything that hosts agents, declared once: `run agents` and `explain agents` take the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.commands.options import ConfigOption, JsonOption

if TYPE_CHECKING:
    from operators.agents import AgentsSettings
    from streaming.options import EngineOptions

INPUT, PRIVACY, COLLABORATION, OUTPUT, OPERATION = "Input", "Privacy", "Collaboration", "Output", "Operation"


def _option(help_text: str, panel: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


SOURCE_HELP = (
    ".csv, .tsv, .jsonl, .ndjson (also .gz, .zip), .parquet, kafka://HOST:PORT/TOPIC, or "
    "synthetic:AGENTS,SAMPLES[,SEED]."
)
PLACES = "FILE.jsonl, FILE.parquet, kafka://HOST:PORT/TOPIC or -."
OFFSETS_HELP = "With --runner, of a topic: PARTITION:FIRST-STOP,...; read these offsets, STOP not included."
CollaborationOption = Annotated[str | None, _option("learned_prior | tests | none.", COLLABORATION)]
StddevOption = Annotated[
    float | None, _option("Standard deviation of one sample, if known; else learned.", COLLABORATION)
]
LevelOption = Annotated[float, _option("Coverage of the intervals.", COLLABORATION)]
SinkOption = Annotated[str, _option(f"Personal estimates (private): {PLACES}", OUTPUT)]
PopulationOption = Annotated[str | None, _option("The fitted population (public).", OUTPUT)]
MetricsOption = Annotated[
    str | None, _option("Address for Prometheus, /healthz and /readyz, such as 127.0.0.1:9464.", OPERATION)
]
PageOption = Annotated[
    str | None, _option("Show the run on a page in the browser, at an address such as 127.0.0.1:8080.", OPERATION)
]
PageRemoteOption = Annotated[
    bool, _option("Let other machines connect to --page, unencrypted; with its token only.", OPERATION, "--page-remote")
]
LogFormatOption = Annotated[str, _option("text, or json: one object per line.", OPERATION)]
QuietOption = Annotated[bool, _option("Print no progress.", OPERATION, "--quiet")]


@dataclass(frozen=True, kw_only=True)
class AgentSideOptions:
    """What a user says about samples and the releases made of them, before anything is checked or opened."""

    config: ConfigOption = None
    source: Annotated[str | None, _option(SOURCE_HELP, INPUT)] = None
    agent: Annotated[str, _option("Column that says whose sample it is.", INPUT)] = "agent"
    value: Annotated[str, _option("Column of the value.", INPUT)] = "value"
    time: Annotated[str, _option("Column of the event time (ISO 8601, UTC assumed; or epoch).", INPUT)] = "time"
    id: Annotated[str | None, _option("Column that identifies a sample: duplicates are dropped.", INPUT)] = None
    sort: Annotated[
        bool, _option("Replay a file in event-time order; --no-sort takes it as it comes.", INPUT, "--sort/--no-sort")
    ] = True
    until_end: Annotated[
        bool, _option("Stop at what a topic holds at the start, as at the end of a file.", INPUT, "--until-end")
    ] = False
    lateness: Annotated[str, _option("How far behind the newest event a sample may arrive.", INPUT)] = "1h"
    batch_size: Annotated[int, _option("Samples per commit, at most.", INPUT)] = 262_144
    out_of_bounds: Annotated[str, _option("clip: clip and count; reject: dead-letter.", INPUT)] = "clip"

    lower: Annotated[float | None, _option("Declared lower bound of a value.", PRIVACY)] = None
    upper: Annotated[float | None, _option("Declared upper bound of a value.", PRIVACY)] = None
    epsilon: Annotated[float | None, _option("Of one sample's value, over the life of the stream.", PRIVACY)] = None
    delta: Annotated[float | None, _option("Of one sample's value, over the life of the stream.", PRIVACY)] = None
    mode: Annotated[
        str, _option("tuned, or paper: sets the defaults of counter, calibration and collaboration.", PRIVACY)
    ] = "tuned"
    counter: Annotated[str | None, _option("toeplitz | pm1 | pm2.", PRIVACY)] = None
    noise: Annotated[str, _option("gaussian | laplace.", PRIVACY)] = "gaussian"
    calibration: Annotated[str | None, _option("analytic | classical (epsilon <= 1).", PRIVACY)] = None
    horizon: Annotated[int, _option("Releases an agent may ever make: its budget.", PRIVACY)] = 40
    levels: Annotated[int | None, _option("Divisor of pm2's budget; default: what the horizon needs.", PRIVACY)] = None
    schedule: Annotated[
        str, _option("preferred:FIRST or geometric:FIRST,FACTOR of an agent's samples, or every:DURATION.", PRIVACY)
    ] = "preferred:10"
    final_release: Annotated[
        bool,
        _option("Release once more at the end of a file.", PRIVACY, "--final-release/--no-final-release"),
    ] = True
    secret_file: Annotated[
        Path | None, _option("Key of the noise (else MEANSTREAM_SECRET, else a file beside the store).", PRIVACY)
    ] = None

    store: Annotated[Path, _option("SQLite file of position, state and ledger; resumes from it.", OUTPUT)] = Path(
        "meanstream.db"
    )
    releases: Annotated[str | None, _option(f"Releases (public): {PLACES}", OUTPUT)] = None
    dead_letters: Annotated[str | None, _option("Rejected records, redacted (public).", OUTPUT)] = None
    notices: Annotated[str | None, _option("Agents at their horizon, refused releases (public).", OUTPUT)] = None
    json: JsonOption = False

    metrics: MetricsOption = None
    page: PageOption = None
    page_remote: PageRemoteOption = False
    log_format: LogFormatOption = "text"
    dry_run: Annotated[
        bool,
        _option("Check options, connections, topics, permissions and budget; read and write nothing.", OPERATION),
    ] = False
    quiet: QuietOption = False

    def settings(self) -> AgentsSettings:
        """Check the privacy part.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from operators.agents import AgentsSettings
        from operators.validation import require

        for name in ("lower", "upper", "epsilon", "delta"):
            require(getattr(self, name) is not None, name, "be given", None)
        assert self.lower is not None  # noqa: S101 - said above, for the type checker
        assert self.upper is not None  # noqa: S101
        assert self.epsilon is not None  # noqa: S101
        assert self.delta is not None  # noqa: S101
        require(self.mode in ("tuned", "paper"), "mode", "be 'tuned' or 'paper'", self.mode)
        paper = self.mode == "paper"
        return AgentsSettings(
            lower=self.lower,
            upper=self.upper,
            epsilon=self.epsilon,
            delta=self.delta,
            counter=self.counter or ("pm1" if paper else "toeplitz"),
            horizon=self.horizon,
            schedule=self.schedule,
            noise=self.noise,
            calibration=self.calibration or ("classical" if paper else "analytic"),
            levels=self.levels,
            mode=self.mode,
        )

    def engine_options(self) -> EngineOptions:
        """Check the rest.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from operators.release_times import parse_duration
        from streaming.options import EngineOptions

        return EngineOptions(
            allowed_lateness=parse_duration("lateness", self.lateness),
            out_of_bounds=self.out_of_bounds,  # type: ignore[arg-type]  # it checks
            batch_size=self.batch_size,
            final_release=self.final_release,
            collaboration="none",
            refresh=None,
        )

    @property
    def sinks(self) -> dict[str, str]:
        """Role of each sink that was asked for, and its place; the private one is `estimates`."""
        places = {"releases": self.releases, "dead_letters": self.dead_letters, "notices": self.notices}
        return {role: place for role, place in places.items() if place is not None}


@dataclass(frozen=True, kw_only=True)
class AgentsOptions(AgentSideOptions):
    """What a user says about a stream of agents that get their estimates here."""

    collaboration: CollaborationOption = None
    stddev: StddevOption = None
    level: LevelOption = 0.95
    refresh: Annotated[
        str | None,
        _option(
            "Estimates for agents with new samples each DURATION; else at the end of a file.",
            COLLABORATION,
        ),
    ] = None

    sink: SinkOption = "-"
    population: PopulationOption = None

    runner: Annotated[
        str | None,
        _option(
            "FnApiRunner | PrismRunner | FlinkRunner | DataflowRunner: run on Beam, not on this engine.", OPERATION
        ),
    ] = None
    runner_arg: Annotated[
        list[str] | None,
        _option("Option of the runner, such as --flink_master=HOST:PORT.", OPERATION, "--runner-arg"),
    ] = None
    offsets: Annotated[str | None, _option(OFFSETS_HELP, OPERATION)] = None

    def engine_options(self) -> EngineOptions:
        """Check everything that is not privacy; see `AgentSideOptions.engine_options`."""
        from operators.release_times import parse_duration

        return replace(
            super().engine_options(),
            collaboration=self.collaboration_name,
            level=self.level,
            stddev=self.stddev,
            refresh=None if self.refresh is None else parse_duration("refresh", self.refresh),
        )

    @property
    def collaboration_name(self) -> str:
        """The way to collaborate, by default that of the mode."""
        return self.collaboration or ("tests" if self.mode == "paper" else "learned_prior")

    @property
    def sinks(self) -> dict[str, str]:
        """Role of each sink that was asked for, and its place; the private one is `estimates`."""
        population = {} if self.population is None else {"population": self.population}
        return {"estimates": self.sink, **super().sinks, **population}


@dataclass(frozen=True, kw_only=True)
class CollaborateOptions:
    """What a user says about answering the agents of a store from everybody's releases."""

    config: ConfigOption = None
    releases: Annotated[str | None, _option("Everybody's releases: kafka://HOST:PORT/TOPIC, or FILE.jsonl.", INPUT)] = (
        None
    )
    store: Annotated[Path | None, _option("Store of the own agents' `run agent-side`; it is only read.", INPUT)] = None
    until_end: Annotated[bool, _option("Answer once, from the releases that are there, and stop.", INPUT)] = False
    collaboration: CollaborationOption = "learned_prior"
    stddev: StddevOption = None
    level: LevelOption = 0.95
    refresh: Annotated[
        str, _option("Answer at most once each DURATION, when releases or own samples have come.", COLLABORATION)
    ] = "10s"
    sink: SinkOption = "-"
    population: PopulationOption = None
    json: JsonOption = False
    log_format: LogFormatOption = "text"
    quiet: QuietOption = False

    @property
    def sinks(self) -> dict[str, str]:
        """Role of each sink that was asked for, and its place; the private one is `estimates`."""
        return {"estimates": self.sink, **({} if self.population is None else {"population": self.population})}
