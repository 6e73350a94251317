"""One report of each user: the channel by epsilon, and intervals that hold for few users and for
rare groups."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.one_shot import OneShot
from meanstream.operators.records import Floats
from meanstream.operators.rounds.base import round_tally_moments
from meanstream.operators.rounds.channels.registry import CHANNELS, make_channel
from meanstream.operators.rounds.user_sizes import SizeDistribution

RUNS = 1500
"""False alarms: .93 is 3.6 standard errors below .95."""

LAWS: dict[str, tuple[float, float]] = {
    # Share of the users who are at -1; the others are at the second number.
    "all at one place": (0.0, 0.5),
    "two halves": (0.5, 1.0),
    "a tenth far out": (0.1, 1.0),
    "5 % far out": (0.05, 0.9),
    "1 % far out": (0.01, 0.9),
    "0.2 % far out": (0.002, 0.9),
}


def coverage(estimator: OneShot, users: int, law: tuple[float, float]) -> float:
    """Share of the runs whose interval holds the mean of the law, by the stage's own tally and
    decoding."""
    far, place = law
    rng = np.random.default_rng(7)
    values: Floats = np.where(rng.random((RUNS, users)) < far, -1.0, place)
    step = estimator.rounds[0]
    reports = (
        estimator.channel(None)
        .randomize(values.ravel(), SeededWords(rng, values.size))
        .reshape(values.shape)
    )
    theta = place * (1.0 - far) - far
    found = [step.decode(round_tally_moments(row), {}) for row in reports]
    return float(np.mean([float(one.lower) <= theta <= float(one.upper) for one in found]))


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("users", [2, 3, 10, 60])
def test_intervals_of_few_users_cover_whatever_their_law(users: int, epsilon: float) -> None:
    estimator = OneShot(epsilon=epsilon, users=users)
    assert min(coverage(estimator, users, law) for law in LAWS.values()) >= 0.93


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("sizes", [None, "point:1", "point:100"])
def test_the_channel_costs_at_most_half_again_where_users_may_be_anywhere(
    epsilon: float, sizes: str | None
) -> None:
    law = None if sizes is None else SizeDistribution.parse(sizes)
    c0, c1 = OneShot(epsilon=epsilon, users=100, sizes=law).channel(None).moments
    others = [
        make_channel(name, epsilon, second_moment=guess)
        for name in CHANNELS
        for guess in (0.05, 0.5, 1.0)
    ]
    for theta, square in ((0.0, 0.05), (0.0, 0.33), (0.0, 1.0), (0.5, 0.3), (0.5, 1.0), (0.8, 0.7)):
        least = min(one.moments[0] + one.moments[1] * square for one in others) - theta**2
        assert c0 + c1 * square - theta**2 <= 1.5 * least
