"""The options of everything that hosts agents, declared once.

`run agents` and `explain agents` take the same.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic.dataclasses import dataclass

from meanstream.pipelines.options.agent_side import AgentSideOptions
from meanstream.pipelines.options.base import DEFERRED
from meanstream.pipelines.options.declaration import (
    COLLABORATION,
    OPERATION,
    cli_option,
)
from meanstream.pipelines.options.shared_options import (
    CollaborationOption,
    CovariatesOption,
    CoverageOption,
    LevelOption,
    OffsetsOption,
    PopulationOption,
    QuantilesOption,
    ReleasesOption,
    RunnerArgOption,
    RunnerOption,
    SinkOption,
    StddevOption,
    option_numbers,
    quorum_for,
)
from meanstream.pipelines.options.stream_defaults import Refresh, refresh_in_force

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
    from meanstream.streaming.engine.engine_options import EngineOptions


PAIRWISE = ("round_robin", "restricted_round_robin")
"""Schedules by which agents query each other: their releases go from pair to pair."""


@dataclass(frozen=True, kw_only=True, config=DEFERRED)
class AgentsOptions(AgentSideOptions):
    """What a user says about a stream of agents that get their estimates here."""

    collaboration: CollaborationOption = None
    stddev: StddevOption = None
    covariates: CovariatesOption = None
    level: LevelOption = 0.95
    coverage: CoverageOption = "pointwise"
    quantiles: QuantilesOption = None
    weights: Annotated[
        str | None,
        cli_option(
            "Weights of one agent's releases to another, with a pairwise --schedule: last (default) | mean_of_means "
            "(MoM) | windowed (wMoM).",
            COLLABORATION,
        ),
    ] = None
    variance: Annotated[
        str | None,
        cli_option(
            "Source of the variance of one sample, with a pairwise --schedule: known (default with --stddev) | "
            "from_releases (default without) | bayesian | jeffreys | uniform | released (takes half of the budget).",
            COLLABORATION,
        ),
    ] = None
    partners: Annotated[
        Path | None,
        cli_option(
            "CSV file (public) with columns agent and partner: whom each agent may query, with a pairwise --schedule. "
            "Default: everyone.",
            COLLABORATION,
        ),
    ] = None
    members: Annotated[
        bool,
        cli_option(
            "Names of the other agents that count in each agent's estimate, in it (private), with --collaboration "
            "tests or a pairwise --schedule.",
            COLLABORATION,
            "--members",
            host="engine",
        ),
    ] = False
    refresh: Annotated[
        str | None,
        cli_option(
            "How often agents with new samples get estimates, in event time, or never; default: 10s of a source "
            "without end, else once at its end.",
            COLLABORATION,
            unit="duration",
            host="engine",
        ),
    ] = None

    shards: Annotated[
        str | None,
        cli_option(
            "Processes that share a topic's partitions, with --store as their folder: N | auto "
            "(one for each core) | K/N (shard K of N alone, from 0).",
            OPERATION,
            shows=False,
            host="engine",
        ),
    ] = None
    answers: Annotated[
        str | None,
        cli_option(
            "Address that serves each agent its newest estimate (private): GET /v1/agents/AGENT with its token.",
            OPERATION,
            shows=True,
            host="engine",
        ),
    ] = None
    answer_tokens: Annotated[
        Path | None,
        cli_option(
            "YAML file of AGENT: TOKEN for --answers; the empty name is for all agents. Default: a new token for all.",
            OPERATION,
            shows=False,
            host="engine",
        ),
    ] = None
    answers_remote: Annotated[
        bool,
        cli_option(
            "Access to --answers from other machines, unencrypted.",
            OPERATION,
            "--answers-remote",
            shows=True,
            host="engine",
        ),
    ] = False
    sink: SinkOption = "-"
    releases: ReleasesOption = None
    population: PopulationOption = None

    runner: RunnerOption = None
    runner_arg: RunnerArgOption = None
    offsets: OffsetsOption = None

    def engine_options(self) -> "EngineOptions":
        """Check everything that is not privacy; see `StreamOptions.engine_options`."""
        from meanstream.operators.limits import MAX_AGENTS, MOST_MEMBERS
        from meanstream.operators.validation import require

        rule = f"be at most {MOST_MEMBERS} with --members"
        few = not self.members or self.max_agents in (
            MAX_AGENTS,
            min(self.max_agents, MOST_MEMBERS),
        )
        require(few, "max_agents", rule, self.max_agents)
        from meanstream.operators.collaboration.anytime_intervals import valid_coverage

        return replace(
            super().engine_options(),
            max_agents=min(self.max_agents, MOST_MEMBERS) if self.members else self.max_agents,
            collaboration=self.collaboration_name,
            level=self.level,
            coverage=valid_coverage(self.coverage),
            stddev=self.stddev,
            covariates=self.declared_covariates,
            quantiles=self.asked_quantiles,
            members=self.members,
            refresh=self.refresh_in_force().seconds,
        )

    def settings(self) -> "AgentsSettings":
        """Check the privacy part; a pairwise schedule has its own, see `pairwise_options`."""
        from meanstream.operators.validation import require

        rule = f"come with --schedule {' or '.join(PAIRWISE)}"
        for name in ("weights", "variance", "partners"):
            require(getattr(self, name) is None, name, rule, getattr(self, name))

        return super().settings()

    def refresh_in_force(self) -> Refresh:
        """Say how often agents get estimates, and why: as given, else what suits the source."""
        ends = self.until_end or self.offsets is not None
        quorum = quorum_for(self.quorum, self.source, sort=self.sort)
        return refresh_in_force(self.refresh, source=self.source, ends=ends, quorum=quorum)

    def _begun(self) -> dict[str, Any]:
        """As of the agents' side; on Beam there is no store."""
        if self.runner:
            return {}
        return super()._begun()

    @property
    def answers_here(self) -> bool:
        """They are."""
        return True

    @property
    def asked_quantiles(self) -> tuple[float, ...]:
        """Quantiles that agents are told."""
        from meanstream.operators.collaboration.shares.shares_quantiles import valid_quantiles

        return valid_quantiles(option_numbers("quantiles", self.quantiles))

    @property
    def declared_covariates(self) -> "AgentCovariates | None":
        """Public attributes of the agents, read from their file."""
        if self.covariates is None:
            return None

        from meanstream.streaming.agents.declared_covariates import read_covariates_file

        return read_covariates_file(self.covariates, self.agent)

    @property
    def collaboration_name(self) -> str:
        """The way to collaborate, by default that of the mode."""
        return self.collaboration or ("tests" if self.mode == "paper" else "learned_prior")

    @property
    def sinks(self) -> dict[str, str]:
        """Role of each sink that was asked for, and its place; the private one is `estimates`."""
        population = {} if self.population is None else {"population": self.population}
        return {"estimates": self.sink, **super().sinks, **population}
