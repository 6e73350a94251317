"""How the engine runs, apart from privacy: all of this may change between two runs on a store."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from meanstream.operators.agents.agents_settings import WIDEST
from meanstream.operators.collaboration.anytime_intervals import Coverage, valid_coverage
from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
from meanstream.operators.collaboration.covariates.prior_with_covariates import PRIORS
from meanstream.operators.collaboration.registry import collaboration_name
from meanstream.operators.collaboration.shares.shares_quantiles import valid_quantiles
from meanstream.operators.limits import MAX_AGENTS, MAX_DEAD_LETTERS, MAX_FUTURE, QUORUM
from meanstream.operators.validation import require, require_between, require_positive, valid_float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of a run.

    Parameters
    ----------
    batch_size : int
        Greatest number of samples per turn; a commit may take several turns where there are many
        agents.
    allowed_lateness : float
        How far a sample's event time may lie behind the newest one, in seconds. Releases wait for
        it. Of rounds without end: how long a window stays open behind its end by the clock.
    max_future : float
        How far event time may run ahead of the clock, in seconds; a device that is hours fast is
        refused.
    quorum : {1, 2}
        How many agents of a partition must have reached a time before others are late by it; not of
        rounds. With 2, no single clock can make the others late; see
        `meanstream.streaming.engine.watermark.Watermark`. 1 is for a source that is sorted, or
        whose senders are trusted.
    max_agents : int
        Agents or users that may ever be entered; samples of further ones are rejected. It bounds
        memory and store.
    max_dead_letters : int
        Rejected records that the store ever tells of one by one, where a sink asks for them; the
        rest are counted.
    late : {"reject", "accept"}
        What becomes of late samples. "accept" lets them count from now on, at the watermark: for
        replayed records.
    collaboration : str or Collaboration
        How an agent learns from the releases: "learned_prior", "pooled_prior", "james_stein",
        "tests", "consensus" or "none". An object of your own becomes its name, under which this
        process has it.
    level : float
        Nominal coverage of the intervals.
    coverage : {"pointwise", "anytime"}
        Promise of the intervals of means: each holds at its moment, or all of them hold together,
        however often one looks. The second is for agents without a memory. Quantiles stay
        pointwise.
    stddev : float or None
        Standard deviation of one sample, where it is known; otherwise it is learned from the
        releases and, for an agent's own mean, from its own samples.
    covariates : AgentCovariates or None
        Public attributes of the agents, by declaration: the learned prior knows their effects. They
        are for "learned_prior" and "pooled_prior".
    quantiles : tuple of float
        Quantiles of its own values that an agent gets, if the settings have a histogram; each in
        (0, 1).
    members : bool
        Name the other agents of its class in each estimate: with "tests" and with pairwise
        schedules.
    refresh : float or None
        Seconds of event time: when it comes to the next multiple, the agents with new samples get
        new estimates, at most once per commit; 0: at each commit; None: only at the end of a
        bounded source.
    drain : bool
        At the end of a bounded source, take in the samples that still wait for event time; what
        lies before them is late from then on.
    final_release : bool
        At the end of a bounded source every agent with new samples releases once more, within its
        horizon.
    idle_after : float or None
        Seconds without a record after which event time goes on by the clock, so that samples which
        wait are let go. Only for sources that say when no partition has more to come, as topics do.
        None: never. Rounds do not use it: their windows end by what is public.
    poll : float
        Seconds to wait when a source has nothing.
    """

    batch_size: int = 262_144
    allowed_lateness: float = 0.0
    max_future: float = MAX_FUTURE
    quorum: int = QUORUM
    max_agents: int = MAX_AGENTS
    max_dead_letters: int = MAX_DEAD_LETTERS
    late: Literal["reject", "accept"] = "reject"
    collaboration: str = "learned_prior"
    level: float = 0.95
    coverage: Coverage = "pointwise"
    stddev: float | None = None
    covariates: AgentCovariates | None = None
    quantiles: tuple[float, ...] = ()
    members: bool = False
    refresh: float | None = 86_400.0
    drain: bool = True
    final_release: bool = True
    idle_after: float | None = None
    poll: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "collaboration", collaboration_name(self.collaboration))
        require(self.batch_size >= 1, "batch_size", "be at least 1", self.batch_size)

        for name in (
            "allowed_lateness",
            "max_future",
            *(() if self.refresh is None else ("refresh",)),
        ):
            value = valid_float(name, getattr(self, name))
            object.__setattr__(self, name, value)
            require(math.isfinite(value) and value >= 0, name, "be at least 0 and finite", value)

        require(
            isinstance(self.final_release, bool),
            "final_release",
            "be true or false",
            self.final_release,
        )
        require(self.quorum in (1, 2), "quorum", "be 1 or 2", self.quorum)
        require(self.max_agents >= 1, "max_agents", "be at least 1", self.max_agents)

        require(
            self.max_dead_letters >= 0, "max_dead_letters", "be at least 0", self.max_dead_letters
        )
        require(self.late in ("reject", "accept"), "late", "be 'reject' or 'accept'", self.late)
        object.__setattr__(self, "level", valid_float("level", self.level))
        require_between(0, 1, level=self.level)
        valid_coverage(self.coverage)
        object.__setattr__(self, "quantiles", valid_quantiles(self.quantiles))

        if self.stddev is not None:
            object.__setattr__(self, "stddev", valid_float("stddev", self.stddev))
            require_positive(stddev=self.stddev)
            require(
                self.stddev <= WIDEST, "stddev", f"be at most {WIDEST:g}", self.stddev
            )  # its square is a number

        if self.covariates is not None:
            rule = f"be {' or '.join(PRIORS)} where there are covariates"
            require(self.collaboration in PRIORS, "collaboration", rule, self.collaboration)

        rule = "come with collaboration tests or a pairwise schedule"
        require(not self.members or self.collaboration == "tests", "members", rule, self.members)

        if self.idle_after is not None:
            require(math.isfinite(self.idle_after), "idle_after", "be finite", self.idle_after)
            require_positive(idle_after=self.idle_after)

        require_positive(poll=self.poll)
