"""The options of agents that release.

`run agent-side` takes these, `run agents` and `explain agents` more.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from pydantic.dataclasses import dataclass

from meanstream.operators.limits import MAX_AGENTS, QUORUM
from meanstream.pipelines.options.base import DEFERRED, given_option, require_given
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, PRIVACY, cli_option
from meanstream.pipelines.options.shared_options import (
    COLUMN_HELP,
    LATENESS_HELP,
    RELEASES_HELP,
    SOURCE_HELP,
    MaxAgentsOption,
    checked_layout,
    is_live_source,
    option_numbers,
    quorum_for,
)
from meanstream.pipelines.options.stream_options import StreamOptions

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.streaming.engine.engine_options import EngineOptions
    from meanstream.streaming.sources.mapping import ColumnMapping

IDLE_AFTER = "1m"
NEVER = "never"
"""Default silence of a topic after which event time advances by the clock; or never."""


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class AgentSideOptions(StreamOptions):
    """What a user says about samples and the releases made of them, before anything is checked or opened."""

    WHO: ClassVar[str] = "agent"
    LATENESS: ClassVar[str] = "lateness"

    source: Annotated[
        str | None,
        cli_option(
            SOURCE_HELP,
            INPUT,
            first=True,
            required=True,
        ),
    ] = None
    agent: Annotated[
        str,
        cli_option(
            f"Column of the agent: {COLUMN_HELP}",
            INPUT,
            first=True,
        ),
    ] = "agent"
    person: Annotated[
        str | None,
        cli_option(
            "Column of the person within an agent; requires --per-person.",
            INPUT,
        ),
    ] = None
    lateness: Annotated[
        str | None,
        cli_option(
            f"Largest delay of a sample behind the newest event; {LATENESS_HELP}",
            INPUT,
            unit="duration",
        ),
    ] = None
    quorum: Annotated[
        int,
        cli_option(
            "Agents (1 or 2) that must pass a time before the watermark does, for unsorted input.",
            INPUT,
            host="engine",
        ),
    ] = QUORUM
    idle_after: Annotated[
        str | None,
        cli_option(
            "Silence of a whole topic after which event time advances by the clock, or never; default 1m.",
            INPUT,
            host="engine",
            unit="duration",
        ),
    ] = None
    max_agents: MaxAgentsOption = MAX_AGENTS
    lower: Annotated[
        float | None,
        cli_option(
            "Lower bound of a value, declared without a look at the data.",
            PRIVACY,
            first=True,
            required=True,
        ),
    ] = None
    upper: Annotated[
        float | None,
        cli_option(
            "Upper bound of a value, declared without a look at the data.",
            PRIVACY,
            first=True,
            required=True,
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        cli_option(
            "Privacy budget of one sample over the life of the stream (see --per-person); or --odds.",
            PRIVACY,
            first=True,
            required=True,
        ),
    ] = None
    delta: Annotated[
        float | None,
        cli_option(
            "Probability that the promise of epsilon fails, for the same unit; such as 1e-6. Gaussian noise needs "
            "one; default 0.",
            PRIVACY,
            first=True,
        ),
    ] = None
    odds: Annotated[
        str | None,
        cli_option(
            "Promise instead of --epsilon, such as 55%: how often a reader of all releases who knows everything "
            "else guesses one of two values of a sample right, at most.",
            PRIVACY,
        ),
    ] = None
    per_person: Annotated[
        int | None,
        cli_option(
            "Samples of one person (--person) that count within an agent and are protected together; K multiplies the "
            "variance of the noise by about K^2.",
            PRIVACY,
            unit="samples",
        ),
    ] = None
    mode: Annotated[
        str,
        cli_option(
            "Defaults of counter, calibration and collaboration: tuned | paper.",
            PRIVACY,
        ),
    ] = "tuned"
    counter: Annotated[
        str | None,
        cli_option(
            "Counting mechanism: pm1 | two_level | pm2 | toeplitz | optimal (at most 128 releases); default of new "
            "stores: the one of least noise.",
            PRIVACY,
        ),
    ] = None
    noise: Annotated[
        str,
        cli_option(
            "Distribution of the noise: auto (the least for the promise) | laplace | staircase | gaussian (needs "
            "--delta).",
            PRIVACY,
        ),
    ] = "auto"
    calibration: Annotated[
        str | None,
        cli_option(
            "Calibration of Gaussian noise: analytic | classical (epsilon <= 1).",
            PRIVACY,
        ),
    ] = None
    horizon: Annotated[
        int | None,
        cli_option(
            "Largest number of releases of an agent; default 40, unlimited with --memory.",
            PRIVACY,
            unit="releases",
        ),
    ] = None
    levels: Annotated[
        int | None,
        cli_option(
            "Levels of pm2's tree; default: as many as the horizon needs.",
            PRIVACY,
        ),
    ] = None
    schedule: Annotated[
        str,
        cli_option(
            "Times of releases: preferred:FIRST or geometric:FIRST,FACTOR in an agent's samples, or every:DURATION "
            "(15min, 6h, 1d, 2w). With `run agents` also round_robin | restricted_round_robin: agents query each other "
            "at each sample, as in Private-ColME. One reader is promised epsilon; readers who pool learn more.",
            PRIVACY,
        ),
    ] = "preferred:10"
    memory: Annotated[
        str | None,
        cli_option(
            "Weight of old samples: forever | half-life:LENGTH | window:LENGTH | auto (half-life of 40 releases). "
            "LENGTH is in samples of an agent, or a duration with --schedule every:... Releases then have no end. "
            "Default: the store's, else forever.",
            PRIVACY,
        ),
    ] = None
    final_release: Annotated[
        bool | None,
        cli_option(
            "Last release at the end of the input; default: yes for a file, no for a topic (--until-end).",
            PRIVACY,
            "--final-release/--no-final-release",
        ),
    ] = None
    spread_share: Annotated[
        float | None,
        cli_option(
            "Share of the budget for votes on the spread of samples; default: the store's, else 0.1.",
            PRIVACY,
        ),
    ] = None
    exceeds: Annotated[
        str | None,
        cli_option(
            "Thresholds such as 15,30, to report each agent's share of values above them; default: the store's.",
            PRIVACY,
        ),
    ] = None
    histogram_share: Annotated[
        float | None,
        cli_option(
            "Share of the budget for the histogram behind --quantiles and --exceeds; default: the store's, else 0.1 "
            "with one of them.",
            PRIVACY,
        ),
    ] = None

    store: Annotated[
        Path,
        cli_option(
            "SQLite file of position, state and ledger. A run continues from it.",
            OUTPUT,
            first=True,
        ),
    ] = Path("meanstream.db")
    releases: Annotated[
        str | None, cli_option(RELEASES_HELP, OUTPUT, first=True, required=True)
    ] = None
    dead_letters: Annotated[
        str | None,
        cli_option(
            "Dead letters (public): rejected records without their content.",
            OUTPUT,
            host="engine",
        ),
    ] = None
    notices: Annotated[
        str | None,
        cli_option(
            "Notices (public): agents at their horizon, refused releases, drifts.",
            OUTPUT,
        ),
    ] = None

    def settings(self) -> "AgentsSettings":
        """Check the privacy part.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.agents.agent_memory import FOREVER
        from meanstream.operators.agents.agents import AgentsSettings
        from meanstream.operators.validation import require

        require_given(self, "lower", "upper", *(() if self.odds is not None else ("epsilon",)))
        lower = given_option("lower", self.lower)
        upper = given_option("upper", self.upper)

        # Rules that say which option goes with which one.
        require(self.mode in ("tuned", "paper"), "mode", "be 'tuned' or 'paper'", self.mode)

        require(
            self.person is None or self.per_person is not None,
            "per_person",
            "be given with person",
            None,
        )

        require(
            self.per_person is None or self.person is not None,
            "person",
            "be given with per_person",
            None,
        )

        # The paper's mode has its counter; a memory has another one.
        paper = self.mode == "paper"
        begun = self._begun()
        forgets = (self.memory or begun.get("memory", FOREVER)) != FOREVER

        # A store that has begun decides what is not given.
        if forgets:  # it has its own counter
            begun.pop("counter", None)

        chosen = {
            "noise": None if begun and self.noise == "auto" else self.noise,
            "counter": self.counter or ("pm1" if paper and not forgets else None),
            "spread_share": self.spread_share,
            "memory": self.memory,
            "horizon": self.horizon,
            **self._histogram(begun),
        }

        return AgentsSettings(
            lower=lower,
            upper=upper,
            epsilon=cast("float", self.epsilon),  # it checks, as it does odds
            odds=self.odds,
            delta=0.0 if self.delta is None else self.delta,
            schedule=self.schedule,
            calibration=self.calibration or ("classical" if paper else "analytic"),
            levels=self.levels,
            mode=self.mode,
            per_person=self.per_person,
            name=self.name,
            **begun | {name: value for name, value in chosen.items() if value is not None},
        )

    def _begun(self) -> dict[str, Any]:
        """Read what agents that already run on the store have, which holds where nobody says otherwise: they go on."""
        from meanstream.operators.agents.agent_memory import memory_for
        from meanstream.operators.agents.release_times import parse_release_times
        from meanstream.operators.validation import require
        from meanstream.streaming.agents.saved_agents import own_settings_if_begun

        begun = own_settings_if_begun(self.store)
        same_noise = begun is not None and self.noise in ("auto", begun.noise)
        if begun is None or begun.mode != self.mode or not same_noise:
            return {}

        # The memory is part of the promise: it cannot change on a store.
        if self.memory is not None:
            rule = f"be {begun.memory} as in the store that is continued"
            same = str(memory_for(self.memory, parse_release_times(self.schedule))) == begun.memory
            require(same, "memory", rule, self.memory)

        memory = {"memory": begun.memory} if begun.remembers.forgets else {"counter": begun.counter}
        told = (
            {"histogram_share": begun.histogram_share, "exceeds": begun.exceeds}
            if begun.histogram_share
            else {}
        )

        return {**memory, "noise": begun.noise, "spread_share": begun.spread_share, **told}

    def _histogram(self, begun: Mapping[str, Any]) -> dict[str, Any]:
        """Say what of a histogram was asked for; what is None is as on the store."""
        from meanstream.operators.agents.defaults import usual_histogram
        from meanstream.operators.validation import require

        exceeds = option_numbers("exceeds", self.exceeds)
        share = self.histogram_share

        # A store without a histogram never gets one: its budget is given away.
        if begun and "histogram_share" not in begun:
            rule = "be left out, since the store began without a histogram"
            for name in ("quantiles", "exceeds", "histogram_share"):
                value = getattr(self, name, None)
                require(not value, name, rule, value)

            return {}

        # With a histogram its share stays as it was.
        if "histogram_share" in begun or (share is not None and not self.answers_here):
            return {
                "histogram_share": share,
                "exceeds": None if self.exceeds is None else tuple(exceeds),
            }

        return usual_histogram(
            self.asked_quantiles, exceeds, {} if share is None else {"histogram_share": share}
        )

    @property
    def answers_here(self) -> bool:
        """Whether agents are answered here, or only release."""
        return False

    @property
    def asked_quantiles(self) -> tuple[float, ...]:
        """Quantiles that agents are told."""
        return ()

    def engine_options(self) -> "EngineOptions":
        """Check everything that is not privacy; see `StreamOptions.engine_options`."""
        # This side only releases: nobody is answered here.
        return replace(
            super().engine_options(),
            quorum=quorum_for(self.quorum, self.source, sort=self.sort),
            idle_after=self.idle_seconds(),
            final_release=not is_live_source(self.source or "")
            if self.final_release is None
            else self.final_release,
            collaboration="none",
            refresh=None,
        )

    def idle_seconds(self) -> float | None:
        """Say after how much silence event time goes on by the clock; None where it does not.

        Raises
        ------
        ValueError
            If that is asked for of a source that is no topic.
        """
        from meanstream.operators.durations import parse_duration
        from meanstream.operators.validation import require
        from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location

        # Only a topic can fall silent: a file ends.
        if self.source is None or not is_kafka_location(self.source):
            require(
                self.idle_after is None,
                "idle_after",
                "be left out unless the source is a topic",
                self.idle_after,
            )

            return None

        if self.idle_after == NEVER:
            return None
        return parse_duration("idle_after", self.idle_after or IDLE_AFTER)

    def column_mapping(self) -> "ColumnMapping":
        """Say which column means what."""
        from meanstream.streaming.sources.mapping import ColumnMapping

        return ColumnMapping(
            agent=self.agent,
            value=self.value,
            time=self.time,
            id=self.id,
            person=self.person,
            layout=checked_layout(self.layout),
            numbers_in_text=self.numbers_in_text,
        )

    @property
    def sinks(self) -> dict[str, str]:
        """Role of each sink that was asked for, and its place; the private one is `estimates`."""
        places = {
            "releases": self.releases,
            "dead_letters": self.dead_letters,
            "notices": self.notices,
        }

        return {role: location for role, location in places.items() if location is not None}
