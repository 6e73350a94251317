"""One round of a window whose users report what a public forecast leaves of their mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from meanstream.operators.noise.keyed import KeyedNoise, canonical_plain
from meanstream.operators.records import Ints, Words
from meanstream.operators.rounds.round_protocol import Estimator
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.window_predictions import (
    STEPS,
    Slope,
    WindowPredictions,
    slope_sums,
    slope_tally,
)
from meanstream.operators.validation import require
from meanstream.streaming.rounds.predictions_table import PredictionsTable
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window

_KEY = "prediction"
"""Of what stages and windows hand on: the part that is of the forecast."""

_OF_REPORTS = 2
"""Sums of a report on the bounds: these, and then those that the slope needs."""


def begin_round(
    settings: RoundsSettings,
    window: Window,
    users: Words,
    carried: Public | None,
    predictions: PredictionsTable | None,
) -> WindowRound:
    """Public: the round of a window in which these users take part."""
    if predictions is None:
        return WindowRound(settings, window, users=len(users), carried=carried)

    of_window = predictions.in_window(window, users)
    return PredictedRound(settings, window, len(users), carried, predictions=of_window)


@dataclass(frozen=True)
class PredictedRound(WindowRound):
    """Public: the round of one window with a forecast of its users' means.

    Parameters
    ----------
    predictions : WindowPredictions
        What the forecast says of the users who take part.

    Notes
    -----
    **Privacy.** Predictions come from a public table, by user and window, and not from users'
    records: their mean over those who take part is as public as taking part is. The slope follows
    from reports of earlier windows. So what is taken off a user's mean before it is randomized is
    public, and a report is private for any two means of its user.
    """

    predictions: WindowPredictions | None = None

    @cached_property
    def _known(self) -> WindowPredictions:
        """What the forecast says."""
        require(self.predictions is not None, "prediction", "come with its table", None)
        return cast("WindowPredictions", self.predictions)

    @cached_property
    def slope(self) -> Slope:
        """How much of the forecast is used in this window, announced by the window before."""
        return Slope.of((self.carried or {}).get(_KEY))

    @cached_property
    def estimator(self) -> Estimator:
        """The estimator, designed for the number of users and for what the forecast leaves."""
        # As the mean of the predictions moves from window to window, so does the center.
        before = self.slope.mean
        moved = 0.0 if before is None else self._known.mean - before
        room = abs(self.slope.slope) * self._known.farthest
        designed = cast(Any, self.settings.estimator_for(self.users))

        return cast(
            "Estimator",
            designed.carrying(
                _without(self.carried) or None, shift=self.slope.slope * moved, room=room
            ),
        )

    @property
    def _shaped_by(self) -> Any:
        """What shapes the design of the estimator, besides the protocol and the users."""
        return [self.carried, self._of_key]

    @property
    def _of_key(self) -> dict[str, Any]:
        """What shapes reports: for the key of their noise."""
        return {"digest": self._known.digest, "mean": self._known.mean}

    def stage_noise(self, secret: bytes, stage: int, public: Public) -> KeyedNoise:
        """Keyed noise of one stage; other predictions, or another slope, have another key."""
        return super().stage_noise(secret, stage, public | {_KEY: self._of_key})

    def charged_reports(
        self, secret: bytes, stage: int, public: Public, summaries: Summaries
    ) -> tuple[Reports, Ints]:
        """Give `reports` and `versions` of the same users at once."""
        deviation = self._known.deviation_of(summaries.user)
        offset = np.asarray(self.slope.slope * (deviation / STEPS), np.float64)
        residuals = replace(summaries, offset=offset)
        return super().charged_reports(secret, stage, _without(public), residuals)

    def tally(
        self, stage: int, public: Public, reports: Reports, users: Words | None = None
    ) -> tuple[Tally, int]:
        """Public: add up reports; those on the bounds with what they say of the slope."""
        if stage or not len(reports):
            return super().tally(stage, _without(public), reports)

        require(users is not None, "users", "be given with their reports", None)
        good = self.estimator.rounds[0].valid(reports, {})
        deviation = self._known.deviation_of(cast("Words", users)[good])
        tally, refused = super().tally(0, {}, reports)
        of_slope = slope_tally(reports[good, 0], deviation)

        return Tally(tally.n, tally.sums + of_slope if tally.n else ()), refused

    def decode(self, stage: int, public: Public, tally: Tally) -> Public | Estimate:
        """Public: what the next stage needs, or the estimate on [-1, 1]."""
        if not stage:
            step = cast(Any, self.estimator).bounds_step
            sums = slope_sums(tally, step)
            tally = Tally(tally.n, tally.sums[:_OF_REPORTS])
        else:
            sums = public[_KEY]

        result = super().decode(stage, _without(public), tally)
        if not isinstance(result, Estimate):
            return result | {_KEY: sums}

        used = {
            "stage": _KEY,
            "slope": self.slope.slope,
            "mean": self._known.mean,
            "predicted": self._known.predicted,
            "sums": sums,
        }
        return replace(result, stages=(*result.stages[:-1], used, result.stages[-1]))

    def carried_after(self, estimate: Estimate) -> Public | None:
        """Public: what the next window is given, with the slope that is announced for it."""
        estimator = cast(Any, self.estimator)
        slope = self.slope.after(estimate.stages[-2]["sums"], self._known.mean)
        wanted = slope.better()
        state = estimator.carried_after(estimate)

        # Another slope leaves other residuals, whose spread is voted for anew.
        if wanted != slope.slope:
            explained = slope.explained(wanted, self._known.variance)
            change = abs(wanted - slope.slope) * math.sqrt(self._known.variance)
            other = estimator.with_other_residuals(state, explained, change, first=not slope.slope)
            if other is not None:
                state = other
                slope = replace(slope, slope=wanted)

        carried: Public = canonical_plain(state | {_KEY: slope.plain()})
        return carried


def _without(public: Public | None) -> Public:
    """Give what stages and estimators know of: all but the part of the forecast."""
    return {name: value for name, value in (public or {}).items() if name != _KEY}
