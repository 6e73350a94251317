"""What a page is shown.

Immutable records, and a course that is kept in a bounded number of points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeGuard, TypeVar

import numpy as np

from meanstream.streaming.agents.first_release import FirstRelease
from meanstream.streaming.agents.pairwise.pairs_picture import PairsPicture
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.times import iso_time

T = TypeVar("T")
Quantiles = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """The engine's counts after a turn, that many seconds after the begin.

    As in `EngineStats`, nothing private.

    `clock` is the time of day, in seconds.
    """

    seconds: float
    clock: float = 0.0
    events: int
    accepted: int
    agents: int
    releases: int
    refusals: int
    drifts: int = 0
    estimates: int
    rejected: tuple[tuple[str, int], ...]
    input_lag: int | None
    event_time: float | None
    watermark: float | None
    spent: tuple[int, ...]
    waiting: int = 0
    over_budget: int = 0
    own_agents: int = 0
    pending: int = 0
    first_release: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How precise the agents' estimates were at one refresh. **Privacy.** Of private estimates.

    Inside only.

    Half-widths are the quantiles `QUANTILES` of the newest intervals of all `answered` agents;
    errors are root mean squares over the agents whose true mean is known, None outside of a demo.
    `classes` is the number of classes, and `class_agents` the quantiles over agents of how many are
    in one's class.
    """

    events: int
    answered: int
    together: Quantiles
    alone: Quantiles
    event_time: float | None = None
    clock: float = 0.0
    error: float | None = None
    error_alone: float | None = None
    classes: float | None = None
    class_agents: Quantiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPicture:
    """Public: what was learned of the population, and how many of the releasing agents are at each component."""

    description: dict[str, Any]
    agents: int
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPoint:
    """How fast events came and how far behind the engine was, at a time of the clock."""

    clock: float
    rate: float | None
    lag: int | None = None
    behind: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """What a page shows: a consistent set of snapshots."""

    version: int
    running: bool
    about: Mapping[str, Any] = field(default_factory=dict)
    """Which run it is: public settings and names."""
    flow: tuple[FlowPoint, ...] = ()
    """Of the runs before this one."""
    next_release: FirstRelease | None = None
    answered_until: float | None = None
    """Event time that the newest answers include."""
    problem: str | None = None
    """Why the engine is not ready, as /readyz says."""
    turns: tuple[TurnRecord, ...]
    precision: tuple[Precision, ...] = ()
    population: FittedPicture | None = None
    pairs: PairsPicture | None = None
    windows: tuple[dict[str, Any], ...] = ()


class Thinned(Generic[T]):
    """Keeps the whole course of something in a bounded number of points.

    When full, every second one is dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[T] = []
        self._newest: T | None = None
        self._every = 1
        self._seen = 0

    def add(self, point: T) -> None:
        """Take a point; the newest is always among those that are shown."""
        self._newest = point
        if self._seen % self._every == 0:
            self._kept.append(point)

        self._seen += 1
        if len(self._kept) >= self._most:
            self.halve()

    def halve(self) -> None:
        """Drop every second point, and take only every second one from now on."""
        self._kept = self._kept[::2]
        self._every *= 2

    def points(self) -> tuple[T, ...]:
        """Give the points in order.

        Examples
        --------
        >>> course = Thinned(4)
        >>> for i in range(10):
        ...     course.add(i)
        >>> course.points()
        (0, 4, 8, 9)
        """
        last = (
            ()
            if self._newest is None or (self._kept and self._kept[-1] is self._newest)
            else (self._newest,)
        )

        return (*self._kept, *last)


def first_release_record(stats: EngineStats) -> str | None:
    """Public: say when the first release is due, and why; None once there was one."""
    due = stats.first_release
    if due is None:
        return None
    when = "" if due.event_time is None else f"at event time {iso_time(due.event_time)}, "

    return f"first release {when}with {due.why}"


_COUNTED = frozenset(field.name for field in fields(TurnRecord)) - {
    *("seconds", "clock", "rejected", "first_release")
}
"""Figures of a turn as the engine has them; 0 where its kind has none."""


def turn_record(stats: EngineStats, seconds: float, clock: float = 0.0) -> TurnRecord:
    """Take the counts of a turn."""
    counts: dict[str, Any] = {name: getattr(stats, name, 0) for name in _COUNTED}

    return TurnRecord(
        seconds=seconds,
        clock=clock,
        rejected=tuple(stats.rejected.items()),
        first_release=first_release_record(stats),
        **counts,
    )


def budget_histogram_record(
    agents: int, spent: Sequence[int], horizon: int | None
) -> dict[str, Any]:
    """Public: a histogram of what the agents have spent, and what the one that spent most has.

    Examples
    --------
    >>> found = budget_histogram_record(4, (1, 2, 1), 2)
    >>> found["most"], found["agents"]
    (2, [1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1])
    """
    counts = np.array([agents - sum(spent[1:]), *spent[1:]], np.int64)
    most = int(np.flatnonzero(counts).max(initial=0))
    if horizon is None:
        labels = [str(k) for k in range(most + 1)]
        return {
            "horizon": None,
            "most": most,
            "labels": labels,
            "agents": counts[: most + 1].tolist(),
        }

    tenth = np.ceil(np.arange(len(counts)) * 10 / horizon - 1e-9).astype(np.int64).clip(0, 10)
    shares = np.bincount(tenth, counts, minlength=11).astype(np.int64)
    labels = ["0", *(f"{10 * k - 9}-{10 * k} %" for k in range(1, 11))]
    return {"horizon": horizon, "most": most, "labels": labels, "agents": shares.tolist()}


def carried_figures(answer: Mapping[str, Any], lower: float, upper: float) -> dict[str, Any] | None:
    """Public: what a window's answer hands on to the next window; None where it hands on nothing.

    Returns
    -------
    dict
        `windows`: how many windows it was learned from, since it began or began again.
        `half_width`: of the narrow window that the next round asks in, in the value's unit; None
        while reports on the bounds are all there is. `gain`: how many times as large the standard
        error would be, had every user of this window reported on the bounds and nothing been
        carried; None with fewer than two such reports. `contradicts`: why this window's reports did
        not let anything be carried into it; empty if they did.

    Notes
    -----
    The gain is measured, not predicted: the variance of this window's mean on the bounds, of `n` reports, would be
    n / users times as large with one report of each user. It is below 1 in the first windows, in which a part of the
    users votes for the spread. It is not that of the interval, which reaches as far as reports on the bounds leave it
    open, unless `tails` is declared.

    **Privacy.** A function of one public event (`round_events.WindowEstimate`), for anyone.

    Examples
    --------
    >>> state = {"windows": 7, "half_width": 0.1}
    >>> stages = [{"n": 100, "variance": 0.04}, {"stage": "carried", "state": state}]
    >>> answer = {"users": 400, "stderr": 0.25, "stages": stages}
    >>> carried_figures(answer, 0.0, 10.0)
    {'windows': 7, 'half_width': 0.5, 'gain': 2.0, 'contradicts': ''}
    """
    stages = [stage for stage in answer.get("stages", ()) if isinstance(stage, Mapping)]
    last = stages[-1] if stages else {}
    state = last.get("state")
    if last.get("stage") != "carried" or not isinstance(state, Mapping):
        return None

    windows = state.get("windows")
    half = (upper - lower) / 2.0
    reach = state.get("half_width")
    return {
        "windows": windows if _positive(windows) else 0,
        "half_width": half * reach if _positive(reach) else None,
        "gain": _gain(stages[0], answer, half),
        "contradicts": str(last.get("contradicts", "")),
    }


def _gain(bounds: Mapping[str, Any], answer: Mapping[str, Any], half: float) -> float | None:
    n = bounds.get("n")
    variance = bounds.get("variance")
    users = answer.get("users")
    stderr = answer.get("stderr")

    if (
        not (_positive(n) and _positive(variance) and _positive(users) and _positive(stderr))
        or n < 2
    ):
        return None

    return half * math.sqrt(variance * n / users) / stderr


def _positive(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
