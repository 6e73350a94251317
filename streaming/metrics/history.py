"""What a page of agents has shown, as it outlives a restart in the store: plain values, bounded.

**Privacy.** Half-widths of personal estimates depend on raw values: the store is inside the trust
domain like the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from typing import Any

import numpy as np

from meanstream.operators.records import Floats
from meanstream.streaming.agents.public_population import AnsweredAgents
from meanstream.streaming.metrics.metric_records import FlowPoint, Precision, TurnRecord

NEWEST_COLUMNS = 4


class NewestAnswers:
    """Private: keeps of each agent how precise its newest estimate is, whichever refresh made it."""

    def __init__(self) -> None:
        self.rows = np.full((0, NEWEST_COLUMNS), np.nan)  # by the agent's number

    def take(self, answered: AnsweredAgents) -> None:
        """Take the answers of a refresh."""
        if not len(answered.agent):
            return
        most = int(answered.agent.max()) + 1
        if most > len(self.rows):
            fresh = np.full(
                (max(most, 2 * len(self.rows)) - len(self.rows), NEWEST_COLUMNS), np.nan
            )
            self.rows = np.concatenate([self.rows, fresh])

        for column, interval in enumerate((answered.interval, answered.local_interval)):
            self.rows[answered.agent, column] = (interval[:, 1] - interval[:, 0]) / 2

        self.rows[answered.agent, 2] = answered.effective_class_size
        self.rows[answered.agent, 3] = answered.class_size

    def half_widths(self) -> tuple[Floats, Floats]:
        """Half-widths of the intervals of all who were answered.

        Of their estimates, and of what they have alone.
        """
        answered = self._known()
        return answered[:, 0], answered[:, 1]

    def class_sizes(self) -> Floats:
        """Variance of what each has alone over that of its estimate."""
        return self._known()[:, 2]

    def class_members(self) -> Floats:
        """Return the number of agents in the class of each, with itself."""
        return self._known()[:, 3]

    def classes(self) -> float:
        """Return the number of classes: each agent counts for one over the size of its own."""
        return float((1 / np.maximum(self.class_members(), 1.0)).sum())

    def _known(self) -> Floats:
        known: Floats = self.rows[np.isfinite(self.rows[:, 0])]
        return known


MOST_FLOW = 360
MOST_NEWEST = 20_000
SMOOTH_SECONDS = 5.0
"""A rate is over so long a time, and over a sixtieth of the whole at least."""
LEAST_SPAN = 1.0
"""At the begin of a run, before that much time has passed, there is no rate yet."""


def flow_points(turns: Sequence[TurnRecord]) -> list[FlowPoint]:
    """Give smooth rates: each over the same length of time before it, however the turns fell.

    Examples
    --------
    >>> from meanstream.streaming.engine.engine_stats import EngineStats
    >>> from meanstream.streaming.metrics.metric_records import turn_record
    >>> turns = [turn_record(EngineStats(events=100 * (k // 2)), k, k) for k in range(21)]
    >>> [round(point.rate) for point in flow_points(turns)[9:12]]
    [60, 40, 60]
    """
    span = max(SMOOTH_SECONDS, (turns[-1].seconds - turns[0].seconds) / 60) if turns else 0.0
    points = []
    begin = 0
    for before, turn in pairwise(turns):
        while turns[begin + 1].seconds <= turn.seconds - span:
            begin += 1

        first = turns[begin]
        if turn.seconds > before.seconds and turn.seconds - first.seconds >= LEAST_SPAN:
            rate = (turn.events - first.events) / (turn.seconds - first.seconds)
            points.append(
                FlowPoint(clock=turn.clock, rate=rate, lag=turn.input_lag, behind=_behind(turn))
            )

    return points


def kept_history(
    points: Sequence[Precision],
    flow: Sequence[FlowPoint],
    answered_until: float | None,
    newest: Floats,
) -> dict[str, Any]:
    """Write the courses as plain values; of a long flow every second point, or fewer.

    The newest half-widths of each agent, on which the next point is built, are kept of that many
    agents as take little room; with more of them the course after a restart begins with those who
    are answered then.
    """
    step = -(-len(flow) // MOST_FLOW) or 1
    return {
        "precision": [asdict(point) for point in points],
        "flow": [asdict(point) for point in flow[::step]],
        "answered_until": answered_until,
        **({"newest": newest.astype("<f4").tobytes().hex()} if len(newest) <= MOST_NEWEST else {}),
    }


def restored_history(
    kept: dict[str, Any],
) -> tuple[list[Precision], tuple[FlowPoint, ...], float | None, Floats]:
    """Read what `kept_history` wrote; fields of another version are left out."""
    points = [Precision(**_known(Precision, plain)) for plain in kept.get("precision", ())]
    flow = tuple(FlowPoint(**_known(FlowPoint, plain)) for plain in kept.get("flow", ()))
    newest = (
        np.frombuffer(bytes.fromhex(kept.get("newest", "")), "<f4")
        .astype(np.float64)
        .reshape(-1, NEWEST_COLUMNS)
    )

    return points, flow, kept.get("answered_until"), newest


def _known(kind: Any, plain: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in plain.items()
        if name in names
    }


def _behind(turn: TurnRecord) -> float | None:
    """Event time that was read but waits for the watermark."""
    if turn.event_time is None or turn.watermark is None:
        return None
    return max(turn.event_time - turn.watermark, 0.0)
