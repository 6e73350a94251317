"""What the stages of the honest default know beforehand, and the window that a scale asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from meanstream.operators.estimators.adaptive.adaptive_scale import Scale, scale_window_factor
from meanstream.operators.rounds.base import Settings
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import best_channel
from meanstream.operators.rounds.round_records import Public
from meanstream.operators.rounds.round_results import MOST, Count, Error, Number, StageFound

EVERYTHING = (0.0, 1.0)
"""Center and half-width of [-1, 1]."""

WIDEST = 0.8
"""A window of this half-width or more gains too little over [-1, 1] for its assumption."""

TOP_EDGE = 0.4
"""Where the last bin of the first vote begins: scales beyond half of it lead to [-1, 1] anyway."""

NARROW_MOMENT = 0.06
"""Mean square of deviations within a window, in half-widths: a window reaches about 4 scales."""

CENTER_ERRORS = 4.0
"""Standard errors of the center that a window reaches at least, on each side."""

SATURATED = 0.6
"""Distance of the reports' mean from the center of their window, in half-widths, that tells it
missed the users."""

LEAST_REPORTS = 30
"""Reports below which their spread says too little about the standard error of their mean."""

WORST_LOG_STDERR = 0.35
"""Standard error of a scale's logarithm from which on it is not believed."""

LEAST_STDERR = 1e-12


class ReportsFound(StageFound, frozen=True, kw_only=True):
    """Public: what is known of the reports of one stage."""

    stage: str
    n: Count
    center: Number
    half_width: Number
    position: Number
    mean: Number
    stderr: Number


class ScaleFound(StageFound, frozen=True, kw_only=True):
    """Public: how widely users differ, by a vote."""

    value: Error
    log_stderr: Error


class AdaptiveFound(StageFound, frozen=True, kw_only=True):
    """Public: what is known after some stages.

    Attributes
    ----------
    n_users : int
        Who took part so far.
    parts : list of ReportsFound
        One for each stage that asked for reports.
    center, center_stderr : float
        Mean of the parts, weighted by their precision.
    scales : list of ScaleFound
        One for each vote.
    mode : str
        "wide" means that everyone left reports on all of [-1, 1].
    window : list of float
        Center and half-width of the next reports.
    moment : float
        Expected mean square of what is reported, in half-widths of the window.
    watch, wider : list of int, int
        Where others watch the window: how many are in it, in one of twice its width, and outside of
        both; and whether it was made that wide.
    """

    n_users: Count
    parts: list[ReportsFound] = msgspec.field(default_factory=list)
    center: Number | None = None
    center_stderr: Annotated[float, msgspec.Meta(ge=LEAST_STDERR, le=MOST)] | None = None
    scales: list[ScaleFound] = msgspec.field(default_factory=list)
    mode: Literal["wide", "narrow"] | None = None
    window: Annotated[list[Number], msgspec.Meta(min_length=2, max_length=2)] | None = None
    moment: Annotated[float, msgspec.Meta(ge=0.01, le=1.0)] | None = None
    watch: Annotated[list[Count], msgspec.Meta(min_length=3, max_length=3)] | None = None
    wider: Annotated[int, msgspec.Meta(ge=0, le=1)] | None = None

    @classmethod
    def known(cls, public: Public) -> AdaptiveFound:
        """Read what is known; before the first stage nothing is."""
        return cls.of(public or {"n_users": 0})

    @property
    def place(self) -> tuple[float, float]:
        """Center and half-width of the next reports, cut to the bounds."""
        return adaptive_design_cut_window(*(self.window or EVERYTHING))


@dataclass(frozen=True)
class AdaptivePlan:
    """Public: what all stages know beforehand.

    Attributes
    ----------
    settings : Settings
        Privacy of a report, expected number of users, nominal coverage.
    shares : tuple of float
        Share of the users in each stage.
    size_factor : float
        Scales that the window must reach because of users with few samples; see `risk`.
    start_moment : float
        Expected mean square of users' means while nothing is known.
    """

    settings: Settings
    shares: tuple[float, ...]
    size_factor: float = 0.0
    start_moment: float = 1.0

    def channel(self, moment: float) -> Mechanism:
        """Channel of reports whose mean square is about this."""
        return _channel(self.settings.epsilon, moment)

    def noise(self, count: float, moment: float) -> float:
        """Predict the standard error of the mean of that many reports of this mean square, in half-widths."""
        c0, c1 = self.channel(moment).moments
        return math.sqrt((c0 + c1 * moment) / count)

    def window(self, scale: Scale, center_stderr: float, stage: int) -> float:
        """Half-width of the window after the vote of this stage.

        From the scale, by predicted risk.
        """
        left = max(self.settings.users * sum(self.shares[stage + 1 :]), 1.0)
        factor = max(
            scale_window_factor(self.noise(left, NARROW_MOMENT), scale.log_stderr), self.size_factor
        )

        return max(factor * scale.value, CENTER_ERRORS * center_stderr)

    def pays(self, center: float, half_width: float, scale: Scale) -> bool:
        """Tell whether reports in this window are worth its assumption."""
        narrow = adaptive_design_cut_window(center, half_width)[1] < WIDEST
        return narrow and scale.log_stderr <= WORST_LOG_STDERR


def adaptive_design_next_window(
    plan: AdaptivePlan, scale: Scale, known: AdaptiveFound, stage: int
) -> dict[str, Any]:
    """Public: the window of the next reports, after the vote of this stage."""
    assert known.center is not None  # noqa: S101 - votes are around a center
    assert known.center_stderr is not None  # noqa: S101
    center = known.center
    stderr = known.center_stderr
    half_width = plan.window(scale, stderr, stage)
    if known.window is not None:  # A second vote never widens the window.
        half_width = min(half_width, known.window[1])
    elif not plan.pays(center, half_width, scale):
        return adaptive_design_whole_window(_rounded(center**2 + stderr**2 + scale.value**2))

    return {
        "mode": "narrow",
        "window": [center, half_width],
        "moment": adaptive_design_window_moment(center, half_width),
    }


def adaptive_design_whole_window(moment: float) -> dict[str, Any]:
    """Public: everyone left reports on [-1, 1]."""
    return {"mode": "wide", "window": list(EVERYTHING), "moment": moment}


def adaptive_design_window_moment(center: float, half_width: float) -> float:
    """Public: expected mean square of reports in a window.

    Where the bounds cut it, users do not lie at its middle.
    """
    middle, half = adaptive_design_cut_window(center, half_width)
    return _rounded(((center - middle) ** 2 + NARROW_MOMENT * half_width**2) / half**2)


def adaptive_design_cut_window(center: float, half_width: float) -> tuple[float, float]:
    """Public: center and half-width of a window, cut to [-1, 1]."""
    low = max(center - half_width, -1.0)
    high = min(center + half_width, 1.0)
    if (
        high - low < 0.01 * half_width
    ):  # The center lies beyond the bounds: nearly all the window would be cut.
        return EVERYTHING

    return 0.5 * (low + high), 0.5 * (high - low)


def _rounded(moment: float) -> float:
    """Two digits are more than a guess is worth, and channels are kept."""
    return min(max(round(moment, 2), 0.01), 1.0)


@lru_cache(maxsize=256)
def _channel(epsilon: float, moment: float) -> Mechanism:
    return best_channel(epsilon, moment)
