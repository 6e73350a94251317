"""The events of one round of one window, as lines.

The same bytes whichever host or side writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meanstream.operators.noise.keyed import canonical_plain
from meanstream.operators.records import Ints
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Tally
from meanstream.streaming.events.encode import EventLines, encode_columns_as_lines, encode_lines
from meanstream.streaming.events.round_events import (
    Report,
    RoundRefusal,
    StageReports,
    StageResult,
    WindowEstimate,
)
from meanstream.streaming.events.times import time_as_datetime
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import MICROS
from meanstream.streaming.sources.categories import category_names


def report_event_lines(
    this: WindowRound, stage: int, users: Sequence[str], reports: Reports
) -> EventLines:
    """Write reports as events, in the order of the users."""
    step = this.estimator.rounds[stage]
    constants = {"round_id": this.id, "stage": stage, "epsilon": float(step.epsilon)}
    return encode_columns_as_lines(Report, {"user": list(users), "payload": reports}, constants)


def complete_event_line(this: WindowRound, stage: int, reports: int) -> EventLines:
    """Tell that all reports of a stage are out, that many."""
    start, end = _ends(this)
    users = this.settings.design_users(this.users)
    event = StageReports(
        round_id=this.id, start=start, end=end, stage=stage, users=users, reports=reports
    )

    return encode_lines(StageReports, [event])


def stage_event_line(this: WindowRound, stage: int, tally: Tally, public: Public) -> EventLines:
    """Write what a stage found as an event."""
    start, end = _ends(this)
    event = StageResult(
        round_id=this.id,
        start=start,
        end=end,
        stage=stage,
        users=tally.n,
        public=canonical_plain(public),
    )

    return encode_lines(StageResult, [event])


def estimate_event_line(this: WindowRound, estimate: Estimate, users: int) -> EventLines:
    """Write the answer as an event, in the value's unit."""
    there = estimate.in_unit(*this.settings.ends)
    start, end = _ends(this)
    interval = np.stack([there.lower, there.upper], axis=-1).tolist()

    event = WindowEstimate(
        round_id=this.id,
        start=start,
        end=end,
        value=there.value.tolist(),
        interval=tuple(interval) if there.value.ndim == 0 else [tuple(ends) for ends in interval],
        level=there.level,
        stderr=np.asarray(there.stderr).tolist(),
        unclipped=np.asarray(there.unclipped).tolist(),
        users=users,
        epsilon=there.epsilon,
        delta=there.delta,
        trust=there.trust,  # type: ignore[arg-type]
        method=there.method,
        mode=there.mode,  # type: ignore[arg-type]
        stages=canonical_plain(list(there.stages)),
        values=None
        if this.settings.values is None or there.function is not None
        else list(this.settings.values),
        categories=None
        if this.settings.categories is None
        else category_names(this.settings.categories),
        quantiles=None if this.settings.quantiles is None else list(this.settings.quantiles),
        components=canonical_plain(list(there.components)) or None,
        function=None if there.function is None else canonical_plain(there.function),
    )

    return encode_lines(WindowEstimate, [event])


def refusal_event_lines(this: WindowRound, users: Sequence[str], rounds: Ints) -> EventLines:
    """Tell whose data did not enter, and how many rounds each has paid for."""
    settings = this.settings
    budget = 0.0 if settings.user_budget is None else settings.user_budget
    spent = rounds * settings.epsilon
    columns: dict[str, Sequence[Any]] = {
        "user": list(users),
        "spent": spent.tolist(),
        "remaining": np.maximum(budget - spent, 0.0).tolist(),
    }

    return encode_columns_as_lines(
        RoundRefusal, columns, {"round_id": this.id, "asked": float(settings.epsilon)}
    )


def _ends(this: WindowRound) -> tuple[Any, Any]:
    return time_as_datetime(this.window.start / MICROS), time_as_datetime(this.window.end / MICROS)
