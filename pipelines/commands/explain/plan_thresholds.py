"""Which epsilon to announce, where each user accepts another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meanstream.operators.validation import require

if TYPE_CHECKING:
    from meanstream.operators.forecast.rounds_forecast import Forecast

MOST = 16
"""Epsilons that are compared: those of equally many users, if the table has more."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Public: what is predicted if this epsilon is announced.

    Attributes
    ----------
    epsilon : float
    users : int
        Those who accept it.
    half_width : float
        Of the interval, by the recommended estimator.
    """

    epsilon: float
    users: int
    half_width: float


def best_threshold(
    place: str, epsilon: float | None, forecast: Callable[[float, int], Forecast]
) -> tuple[Forecast, Sequence[Threshold]]:
    """Predict for each epsilon of a table, or for the one that is given; give the best forecast.

    Users who accept more than what is announced report at what is announced, and the others not.
    """
    import numpy as np

    from meanstream.streaming.rounds.user_epsilons import OPTION, accepted_levels

    epsilons, users = accepted_levels(place)
    if epsilon is not None:
        accepting = int(users[epsilons >= epsilon].max(initial=0))
        require(accepting > 0, OPTION, f"have a user who accepts epsilon {epsilon:g}", place)
        epsilons, users = np.array([epsilon]), np.array([accepting])

    if len(epsilons) > MOST:
        steps = np.linspace(users[0], users[-1], MOST)
        chosen = np.unique(np.searchsorted(-users, -steps))
        epsilons, users = epsilons[chosen], users[chosen]

    forecasts = [forecast(*level) for level in zip(epsilons.tolist(), users.tolist(), strict=True)]
    thresholds = [Threshold(found.epsilon, found.users, _half_width(found)) for found in forecasts]
    best = int(np.argmin([threshold.half_width for threshold in thresholds]))
    return forecasts[best], thresholds


def threshold_lines(best: Forecast, thresholds: Sequence[Threshold]) -> Iterator[str]:
    """Say what each epsilon would give, and which one to announce."""
    for threshold in thresholds:
        yield (
            f"epsilon {threshold.epsilon:g}: {threshold.users:,} users accept it, "
            f"half-width {threshold.half_width:.3g}"
        )

    if len(thresholds) > 1:
        yield f"Announce epsilon {best.epsilon:g} before the first window: it has the least error."


def _half_width(found: Forecast) -> float:
    (recommended,) = (one for one in found.candidates if one.name == found.recommended)
    return recommended.half_width
