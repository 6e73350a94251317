"""The options of everything that hosts agents, declared once: `run agents` and `explain agents` take the same."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from meanstream.operators.limits import MAX_AGENTS, MAX_DEAD_LETTERS, MAX_FUTURE, QUORUM
from meanstream.pipelines.options.base import ConfigOption, JsonOption, given_option
from meanstream.pipelines.options.shared import (
    COLLABORATION,
    INPUT,
    NAME_HELP,
    OFFSETS_HELP,
    OPERATION,
    OUTPUT,
    PLACES,
    PRIVACY,
    SOURCE_HELP,
    WAIT_FOR,
    CollaborationOption,
    LevelOption,
    LogFormatOption,
    MaxAgentsOption,
    MaxDeadLettersOption,
    MaxFutureOption,
    MetricsOption,
    PageOption,
    PageRemoteOption,
    PopulationOption,
    PrivateFiguresOption,
    PrivateMetricsOption,
    QuietOption,
    QuorumOption,
    SinkOption,
    StddevOption,
    WaitForOption,
    cli_option,
    quorum_for,
)

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.streaming.engine.options import EngineOptions
    from meanstream.streaming.sources.mapping import ColumnMapping


@dataclass(frozen=True, kw_only=True)
class AgentSideOptions:
    """What a user says about samples and the releases made of them, before anything is checked or opened."""

    WHO: ClassVar[str] = "agent"
    LATENESS: ClassVar[str] = "lateness"

    config: ConfigOption = None
    source: Annotated[str | None, cli_option(SOURCE_HELP, INPUT)] = None
    agent: Annotated[str, cli_option("Column that says whose sample it is.", INPUT)] = "agent"
    value: Annotated[str, cli_option("Column of the value.", INPUT)] = "value"
    time: Annotated[str, cli_option("Column of the event time (ISO 8601, UTC assumed; or epoch).", INPUT)] = "time"
    id: Annotated[str | None, cli_option("Column that identifies a sample: duplicates are dropped.", INPUT)] = None
    person: Annotated[
        str | None, cli_option("Column that says whose sample it is within its agent; with --per-person.", INPUT)
    ] = None
    sort: Annotated[
        bool,
        cli_option("Replay a file in event-time order; --no-sort takes it as it comes.", INPUT, "--sort/--no-sort"),
    ] = True
    until_end: Annotated[
        bool, cli_option("Stop at what a topic holds at the start, as at the end of a file.", INPUT, "--until-end")
    ] = False
    lateness: Annotated[str, cli_option("How far behind the newest event a sample may arrive.", INPUT)] = "1h"
    batch_size: Annotated[int, cli_option("Samples per commit, at most.", INPUT)] = 262_144
    max_future: MaxFutureOption = f"{MAX_FUTURE:g}s"
    quorum: QuorumOption = QUORUM
    max_agents: MaxAgentsOption = MAX_AGENTS
    out_of_bounds: Annotated[str, cli_option("clip: a value outside counts as the nearest bound.", INPUT)] = "clip"

    name: Annotated[str | None, cli_option(NAME_HELP, PRIVACY)] = None
    lower: Annotated[float | None, cli_option("Declared lower bound of a value.", PRIVACY)] = None
    upper: Annotated[float | None, cli_option("Declared upper bound of a value.", PRIVACY)] = None
    epsilon: Annotated[
        float | None, cli_option("Of one sample's value (see --per-person), over the life of the stream.", PRIVACY)
    ] = None
    delta: Annotated[
        float | None, cli_option("Of one sample's value (see --per-person), over the life of the stream.", PRIVACY)
    ] = None
    per_person: Annotated[
        int | None,
        cli_option(
            "Count at most K samples of a person (--person) within an agent, protect all of them together: K^2 times "
            "the variance of the noise.",
            PRIVACY,
        ),
    ] = None
    mode: Annotated[
        str, cli_option("tuned, or paper: sets the defaults of counter, calibration and collaboration.", PRIVACY)
    ] = "tuned"
    counter: Annotated[str | None, cli_option("toeplitz | optimal (at most 128 releases) | pm1 | pm2.", PRIVACY)] = None
    noise: Annotated[str, cli_option("gaussian | laplace.", PRIVACY)] = "gaussian"
    calibration: Annotated[str | None, cli_option("analytic | classical (epsilon <= 1).", PRIVACY)] = None
    horizon: Annotated[int, cli_option("Releases an agent may ever make: its budget.", PRIVACY)] = 40
    levels: Annotated[int | None, cli_option("Divisor of pm2's budget; default: what the horizon needs.", PRIVACY)] = (
        None
    )
    schedule: Annotated[
        str, cli_option("preferred:FIRST or geometric:FIRST,FACTOR of an agent's samples, or every:DURATION.", PRIVACY)
    ] = "preferred:10"
    final_release: Annotated[
        bool | None,
        cli_option(
            "Release once more at the end; default: of a file, not of what a topic holds (--until-end), which goes on.",
            PRIVACY,
            "--final-release/--no-final-release",
        ),
    ] = None
    spread_share: Annotated[
        float | None,
        cli_option("Part of the budget for votes on how much samples vary; default: the store's, else 0.1.", PRIVACY),
    ] = None
    secret_file: Annotated[
        Path | None, cli_option("Key of the noise (else MEANSTREAM_SECRET, else a file beside the store).", PRIVACY)
    ] = None

    store: Annotated[Path, cli_option("SQLite file of position, state and ledger; resumes from it.", OUTPUT)] = Path(
        "meanstream.db"
    )
    releases: Annotated[str | None, cli_option(f"Releases (public): {PLACES}", OUTPUT)] = None
    dead_letters: Annotated[str | None, cli_option("Rejected records, redacted (public).", OUTPUT)] = None
    max_dead_letters: MaxDeadLettersOption = MAX_DEAD_LETTERS
    notices: Annotated[str | None, cli_option("Agents at their horizon, refused releases (public).", OUTPUT)] = None
    json: JsonOption = False

    metrics: MetricsOption = None
    private_metrics: PrivateMetricsOption = None
    page: PageOption = None
    page_remote: PageRemoteOption = False
    private_figures: PrivateFiguresOption = None
    wait_for: WaitForOption = WAIT_FOR
    log_format: LogFormatOption = "text"
    dry_run: Annotated[
        bool,
        cli_option("Check options, connections, topics, permissions and budget; read and write nothing.", OPERATION),
    ] = False
    quiet: QuietOption = False

    def settings(self) -> AgentsSettings:
        """Check the privacy part.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.agents.agents import AgentsSettings
        from meanstream.operators.validation import require

        lower, upper = given_option("lower", self.lower), given_option("upper", self.upper)
        epsilon, delta = given_option("epsilon", self.epsilon), given_option("delta", self.delta)
        require(self.mode in ("tuned", "paper"), "mode", "be 'tuned' or 'paper'", self.mode)
        require(self.person is None or self.per_person is not None, "per_person", "be given with person", None)
        require(self.per_person is None or self.person is not None, "person", "be given with per_person", None)
        paper = self.mode == "paper"
        return AgentsSettings(
            lower=lower,
            upper=upper,
            epsilon=epsilon,
            delta=delta,
            counter=self.counter or ("pm1" if paper else "toeplitz"),
            horizon=self.horizon,
            schedule=self.schedule,
            noise=self.noise,
            calibration=self.calibration or ("classical" if paper else "analytic"),
            levels=self.levels,
            mode=self.mode,
            per_person=self.per_person,
            name=self.name,
            spread_share=self._default_share(self.store) if self.spread_share is None else self.spread_share,
        )

    def _default_share(self, store: Path) -> float:
        """Part of the budget for votes where nobody says: what agents that already run have, so that they go on."""
        from meanstream.operators.agents.settings import usual_spread_share
        from meanstream.streaming.agents.own_state import own_spread_share

        usual = usual_spread_share(self.mode, self.noise)
        begun = own_spread_share(store) if usual else None
        return usual if begun is None else begun

    def engine_options(self) -> EngineOptions:
        """Check the rest.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.agents.release_times import parse_duration
        from meanstream.streaming.engine.options import EngineOptions
        from meanstream.streaming.kafka.location import is_kafka

        return EngineOptions(
            allowed_lateness=parse_duration("lateness", self.lateness),
            out_of_bounds=self.out_of_bounds,  # type: ignore[arg-type]  # it checks
            max_future=parse_duration("max_future", self.max_future),
            quorum=quorum_for(self.quorum, self.source, sort=self.sort),
            max_agents=self.max_agents,
            max_dead_letters=self.max_dead_letters,
            batch_size=self.batch_size,
            final_release=not is_kafka(self.source or "") if self.final_release is None else self.final_release,
            collaboration="none",
            refresh=None,
        )

    def column_mapping(self) -> ColumnMapping:
        """Say which column means what."""
        from meanstream.streaming.sources.mapping import ColumnMapping

        return ColumnMapping(agent=self.agent, value=self.value, time=self.time, id=self.id, person=self.person)

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
        cli_option(
            "Estimates for agents with new samples each DURATION; else at the end of a file.",
            COLLABORATION,
        ),
    ] = None

    sink: SinkOption = "-"
    population: PopulationOption = None

    runner: Annotated[
        str | None,
        cli_option(
            "FnApiRunner | PrismRunner | FlinkRunner | DataflowRunner: run on Beam, not on this engine.", OPERATION
        ),
    ] = None
    runner_arg: Annotated[
        list[str] | None,
        cli_option("Option of the runner, such as --flink_master=HOST:PORT.", OPERATION, "--runner-arg"),
    ] = None
    offsets: Annotated[str | None, cli_option(OFFSETS_HELP, OPERATION)] = None

    def engine_options(self) -> EngineOptions:
        """Check everything that is not privacy; see `AgentSideOptions.engine_options`."""
        from meanstream.operators.agents.release_times import parse_duration

        return replace(
            super().engine_options(),
            collaboration=self.collaboration_name,
            level=self.level,
            stddev=self.stddev,
            refresh=None if self.refresh is None else parse_duration("refresh", self.refresh),
        )

    def _default_share(self, store: Path) -> float:
        """As of the agents' side; on Beam there is no store."""
        return super()._default_share(Path(os.devnull) if self.runner else store)

    @property
    def collaboration_name(self) -> str:
        """The way to collaborate, by default that of the mode."""
        return self.collaboration or ("tests" if self.mode == "paper" else "learned_prior")

    @property
    def sinks(self) -> dict[str, str]:
        """Role of each sink that was asked for, and its place; the private one is `estimates`."""
        population = {} if self.population is None else {"population": self.population}
        return {"estimates": self.sink, **super().sinks, **population}
