"""What the engine counts; plain numbers for anyone who shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from meanstream.streaming.agents.first_release import FirstRelease
    from meanstream.streaming.agents.pairwise.pairs_picture import PairsPicture
    from meanstream.streaming.agents.public_population import AnsweredAgents, PublicPopulation


@dataclass(slots=True)
class EngineStats:
    """Counts since the process started.

    Attributes
    ----------
    events : int
        Records read, good and bad.
    accepted : int
        Samples that were taken.
    rejected : Counter of str
        Dead letters by reason.
    letters_unwritten : int
        Of them, those that no dead letter tells of, because there are as many as there may be.
    clipped : int
        Samples outside the bounds that were clipped. **Privacy.** Depends on values: for the trust
        domain only.
    full : bool
        Whether as many agents are known as are allowed, so that samples of others are rejected.
    agents, releases, refusals, exhausted : int
        Agents known; releases, refused releases, and agents at their horizon.
    drifts, drift_warnings : int
        How often releases showed that their agent's mean has changed, and that it may have.
    commits, estimates : int
        Transactions, and personal estimates written.
    median_half_width : float or None
        Of the intervals of the last refresh. **Privacy.** Depends on values: for the trust domain
        only.
    event_time, watermark : float or None
        Newest event time taken into the sums, and the time that all later samples are expected to
        be after; seconds.
    input_lag : int or None
        Records that the source holds and the engine has not read; None where the source cannot
        tell.
    input_lags : dict of (str, int) to int
        The same by topic and partition, where the source has some.
    group_commit_age : float or None
        Seconds since the group's offsets were last taken, where the source has a group.
    lateness : float or None
        How far a sample may lie behind event time, in seconds: a setting of the run.
    refresh : float or None
        How often agents get estimates, in seconds of event time: a setting of the run; None: at the
        end of the source.
    pending : int
        Samples that were taken and wait for event time.
    first_release : FirstRelease or None
        When the first release can be expected; None once there was one.
    look_ahead : callable or None
        Says when the next release can be expected, None if there is none; for the engine's own
        thread.
    spent : tuple of int
        Number of agents by the releases they have made of their horizon: entry k has made k.
    spenders, most_spent : int
        Agents that have released since the process started, and how often the one that released
        most has.
    messages : int
        Releases from one agent to another, with a pairwise schedule. **Privacy.** Under
        restricted_round_robin it depends on values: for the trust domain only.
    samples_per_partner : float or None
        Median of each agent's samples over its partners, with a pairwise schedule.
    pairs_picture : callable or None
        Draws classes and budgets of agents that query each other; for the engine's own thread.
        **Privacy.** Depends on values: for the trust domain only.
    population : PublicPopulation or None
        What the releases said at the last refresh.
    answers : Answered or None
        What agents were told at the last refresh. **Privacy.** Depends on values: for the trust
        domain only.
    commit_seconds, batch_seconds : float
        Duration of the last transaction, and of the last turn from reading to delivery.
    deliveries : int
        How often something was delivered to the sinks.
    delivery_seconds : float
        How long the last delivery took, from its commit until it was durable, with what was tried
        again.
    """

    events: int = 0
    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    letters_unwritten: int = 0
    clipped: int = 0
    full: bool = False
    agents: int = 0
    releases: int = 0
    refusals: int = 0
    exhausted: int = 0
    drifts: int = 0
    drift_warnings: int = 0
    commits: int = 0
    estimates: int = 0
    median_half_width: float | None = None
    event_time: float | None = None
    watermark: float | None = None
    input_lag: int | None = None
    input_lags: dict[tuple[str, int], int] = field(default_factory=dict)
    group_commit_age: float | None = None
    lateness: float | None = None
    refresh: float | None = None
    pending: int = 0
    first_release: FirstRelease | None = None
    look_ahead: Callable[[], FirstRelease | None] | None = None
    spent: tuple[int, ...] = ()
    spenders: int = 0
    most_spent: int = 0
    messages: int = 0
    samples_per_partner: float | None = None
    pairs_picture: Callable[[], PairsPicture] | None = None
    population: PublicPopulation | None = None
    answers: AnsweredAgents | None = None
    commit_seconds: float = 0.0
    batch_seconds: float = 0.0
    deliveries: int = 0
    delivery_seconds: float = 0.0


Kind = TypeVar("Kind", bound=EngineStats)


def stats_of(stats: EngineStats, kind: type[Kind], whose: str) -> Kind:
    """Take figures of one kind: those of another mean something else, and may be private."""
    if not isinstance(stats, kind):
        raise TypeError(f"figures must be of {whose}, got {type(stats).__name__}")
    return stats
