"""Tables for the search of the tuned plan's design.

What every window costs, for every error of its center.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meanstream.operators.estimators.plan.plan_risk import FINE, MEANS, NormalLaw, plan_risk_laws
from meanstream.operators.estimators.plan.window_effect import (
    LASTING_COST,
    WindowEffect,
    window_effect,
    window_error_nodes,
    window_uniform_nodes,
)
from meanstream.operators.records import Floats
from meanstream.operators.rounds.channels.registry import CHANNELS, make_channel
from meanstream.operators.rounds.user_sizes import SizeDistribution

_SECOND_MOMENTS = (0.02, 0.1, 0.3, 0.6, 1.0)
_WINDOWS = np.array([0.3, 0.42, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0, 2.5, 3.2, 4.0])
_FINE_WINDOWS = np.geomspace(0.25, 4.5, 24)
_CAPS = 8
_STEPS_PER_DECADE = 2.0


@dataclass(frozen=True, slots=True)
class Problem:
    """What a design depends on, with what is derived from it once."""

    epsilon: float
    users: int
    sizes: SizeDistribution
    between_users: float
    laws: tuple[NormalLaw, ...]
    channels: tuple[tuple[str, float, float, float], ...]
    """Name, guessed second moment, c0, c1."""

    @property
    def moments(self) -> list[tuple[float, float]]:
        """(c0, c1) of each channel."""
        return [(c0, c1) for _, _, c0, c1 in self.channels]

    def channel_for(self, second_moment: float) -> tuple[str, float, float]:
        """Name, guess and second moment of the best channel's reports."""
        cost = [c0 + c1 * second_moment for _, _, c0, c1 in self.channels]
        best = int(np.argmin(cost))
        return self.channels[best][0], self.channels[best][1], cost[best]

    def least_moment(self, second_moment: Floats) -> Floats:
        """Second moment of the best channel's reports for each of these second moments."""
        return np.asarray(
            np.min([c0 + c1 * second_moment for _, _, c0, c1 in self.channels], axis=0)
        )

    @property
    def full_moment(self) -> float:
        """Mean square of users' means on [-1, 1]: the largest over the laws."""
        return min(
            1.0,
            max(law.second_moment + theta**2 for law, theta in zip(self.laws, MEANS, strict=False)),
        )


def make_plan_tables(
    epsilon: float,
    users: int,
    sizes: SizeDistribution,
    between_users: float,
    detail: tuple[int, int] = FINE,
    *,
    far: bool = False,
) -> Problem:
    """Collect laws and channels."""
    channels: list[tuple[str, float, float, float]] = []
    for name in CHANNELS:
        for guess in _SECOND_MOMENTS:
            c0, c1 = make_channel(name, epsilon, second_moment=guess).moments
            if not any(have[0] == name and have[2:] == (c0, c1) for have in channels):
                channels.append((name, guess, c0, c1))

    laws = tuple(plan_risk_laws(sizes, between_users, detail, far=far))
    return Problem(epsilon, users, sizes, between_users, laws, tuple(channels))


@dataclass(frozen=True, slots=True, eq=False)
class WindowRow:
    """What every candidate window costs for one error of the center; W candidates, L laws."""

    caps: Floats
    windows: Floats
    effect: WindowEffect


def _caps_of(sizes: SizeDistribution, count: int = _CAPS) -> list[float]:
    """Candidates for the size from which on users are not shrunk."""
    if sizes.least == sizes.greatest:
        return [float(sizes.least)]
    return [float(f"{cap:.4g}") for cap in np.geomspace(sizes.least, sizes.greatest, count)]


def _make_row(
    problem: Problem,
    caps: Sequence[float],
    factors: Floats,
    error: tuple[Floats, Floats],
    far_error: float = 0.0,
) -> WindowRow:
    """Compute the effect of every pair of a cap and a window."""
    node, weight = error
    spread = float(weight @ node**2)
    parts = []
    windows = []

    for cap in caps:
        shrunk = problem.sizes.mean_sqrt(cap) / math.sqrt(cap)
        window = np.minimum(factors * math.sqrt(1 / cap + problem.between_users**2 + spread), 2.0)
        windows.append(window)

        parts.append(
            window_effect(
                problem.laws,
                problem.moments,
                cap=cap,
                shrunk=shrunk,
                window=window,
                error=error,
                far_error=far_error,
            )
        )

    columns = ("variance", "bias_squared", "lasting", "gain", "second_moment", "far")
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in columns
    }
    effect = WindowEffect(**joined, near=np.concatenate([part.near for part in parts]))

    return WindowRow(
        np.repeat(np.asarray(caps, dtype=np.float64), len(factors)), np.concatenate(windows), effect
    )


class Tables:
    """Rows over a grid of errors of the center, interpolated, for a problem in little detail.

    Exact rows in full.
    """

    def __init__(self, coarse: Problem, problem: Problem) -> None:
        self.coarse = coarse
        self.problem = problem
        self.caps = _caps_of(problem.sizes)
        largest = min(1.0, problem.channel_for(problem.full_moment)[2] / (0.02 * problem.users))
        least = 0.02 * largest / problem.sizes.mean_sqrt(math.inf) ** 2
        count = 2 + math.ceil(_STEPS_PER_DECADE * math.log10(largest / least))
        self._log = np.linspace(math.log(least), math.log(largest), count)

        rows = [self.row(math.exp(v)) for v in self._log]
        scale = [1.0 / math.exp(v) for v in self._log]
        self._variance = np.stack([row.effect.variance for row in rows])
        self._bias = np.stack(
            [s * row.effect.bias_squared for s, row in zip(scale, rows, strict=True)]
        )
        self._lasting = np.stack(
            [s * row.effect.lasting for s, row in zip(scale, rows, strict=True)]
        )

    def row(self, variance: float) -> WindowRow:
        """Compute the row of a center with a normal error of this variance, in little detail."""
        return _make_row(self.coarse, self.caps, _WINDOWS, _spread(variance))

    def after_vote(self, half_width: float) -> WindowRow:
        """Compute the row of a center in the middle of the pair of bins that won a vote, in little detail."""
        return _make_row(
            self.coarse, self.caps, _WINDOWS, window_uniform_nodes(2 * half_width), 8 * half_width
        )

    def exact_row(self, variance: float) -> WindowRow:
        """Compute `row` in full detail, for more windows."""
        return _make_row(self.problem, self.caps, _FINE_WINDOWS, _spread(variance))

    def exact_after_vote(self, half_width: float) -> WindowRow:
        """Compute `after_vote` in full detail, for more windows."""
        return _make_row(
            self.problem,
            self.caps,
            _FINE_WINDOWS,
            window_uniform_nodes(2 * half_width),
            8 * half_width,
        )

    def clip(self, variance: float, reports: float) -> float:
        """Risk after the best clip stage, by interpolation."""
        place = np.interp(math.log(variance), self._log, np.arange(len(self._log)))
        i = min(int(place), len(self._log) - 2)
        f = place - i
        spread, bias, lasting = (
            (1 - f) * table[i] + f * table[i + 1]
            for table in (self._variance, self._bias, self._lasting)
        )
        risk = spread / reports + variance * bias
        best = int(np.argmin((risk + LASTING_COST * variance * lasting).max(axis=0)))

        return float(risk[:, best].max())

    @property
    def floor(self) -> float:
        """Risk that no plan beats by much: everyone in one clip stage around a good center."""
        return self.clip(math.exp(self._log[0]), self.problem.users)


def _spread(variance: float) -> tuple[Floats, Floats]:
    node, weight = window_error_nodes()
    return math.sqrt(variance) * node, weight
