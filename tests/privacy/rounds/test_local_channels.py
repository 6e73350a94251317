"""The channels' privacy, counted exactly on the code as it runs, and twins with classic mistakes
that are caught."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from meanstream.lab.evidence.local_audit import (
    TOLERANCE,
    ChosenWords,
    hybrid_loss,
    hybrid_masses,
    hybrid_shares,
    laplace_loss,
    window_masses,
    worst_loss,
    worst_pmf_loss,
    worst_window_loss,
)
from meanstream.operators.noise.distributions import LaplaceNoise
from meanstream.operators.noise.random_bits import round_at_random
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.channels.hybrid import HybridChannel
from meanstream.operators.rounds.channels.laplace import LaplaceChannel
from meanstream.operators.rounds.channels.registry import CHANNELS, make_channel
from meanstream.operators.rounds.channels.window_channel import (
    DitheredChannel,
    OneBitChannel,
    PiecewiseChannel,
    WindowChannel,
)

EPSILONS = (0.01, 0.1, 22 / 35, 1.0, 2.0, 4.0, 8.0, 20.0, 50.0)
# What users may hold: bounds, edges between places, values between them, and whatever lies outside
# the bounds.
VALUES = (
    -1e300,
    -7.0,
    -1.0,
    np.nextafter(-1.0, 0.0),
    -0.5,
    -1e-9,
    0.0,
    5e-324,
    1 / 3,
    0.5,
    1.0,
    1.5,
    1e300,
)


def middles(channel: WindowChannel, most: int = 40) -> list[float]:
    """Values between two places, for all places, or about `most` of them: rounding either way
    reaches every place."""
    places = channel.points - channel.window
    return [-1.0 + (2 * j + 1) / places for j in range(0, places, -(-places // most))] + [
        1.0 - 1.0 / places
    ]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", ["one_bit", "dithered", "piecewise", "window"])
def test_window_channels(name: str, epsilon: float) -> None:
    channel = make_channel(name, epsilon, second_moment=0.05)
    assert isinstance(channel, WindowChannel)
    loss = worst_window_loss(
        channel, [*middles(channel, 6 if channel.points > 1000 else 40), *VALUES]
    )
    assert loss <= epsilon + TOLERANCE
    # The privacy that is paid for is used.
    assert loss > epsilon - 1e-6 or epsilon >= 20.0


@pytest.mark.parametrize(("points", "window"), [(2, 1), (3, 1), (5, 2), (7, 3), (8, 5), (9, 1)])
def test_every_place_of_small_windows(points: int, window: int) -> None:
    channel = WindowChannel(1.5, points=points, window=window)
    masses = [
        window_masses(channel, x, rounded_up=up) for x in middles(channel) for up in (False, True)
    ]
    assert len({tuple(sorted(one.items())) for one in masses}) == points - window + 1
    for one in masses:
        assert sum(one.values()) == 2**63
        assert set(one) == set(range(1 - points, points, 2))
        assert (
            sorted(one.values())
            == [channel.unlikely] * (points - window) + [channel.likely] * window
        )
    assert worst_loss(masses) <= 1.5 + TOLERANCE


@pytest.mark.parametrize("name", ["one_bit", "dithered", "piecewise", "hybrid", "window"])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_declared_probabilities(name: str, epsilon: float) -> None:
    channel = make_channel(name, epsilon, second_moment=0.05)
    assert isinstance(channel, WindowChannel | HybridChannel)
    pmfs = np.array([channel.pmf(x) for x in (*VALUES, *np.linspace(-1.0, 1.0, 21))])
    assert np.allclose(pmfs.sum(axis=1), 1.0, rtol=0.0, atol=1e-12)
    assert worst_pmf_loss(pmfs) <= epsilon + TOLERANCE


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_hybrid_bit(epsilon: float) -> None:
    loss = worst_loss(hybrid_masses(HybridChannel(epsilon), x) for x in VALUES)
    assert 0.9 * min(epsilon, 8.0) < loss <= epsilon + TOLERANCE


def test_hybrid_coin_is_the_same_for_all_values() -> None:
    channel = HybridChannel(1.0)
    share = round(channel.share * 2**53)
    assert 0 < share < 2**53
    assert hybrid_shares(channel, VALUES) == [share] * len(VALUES)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_hybrid_as_a_whole(epsilon: float) -> None:
    loss = hybrid_loss(HybridChannel(epsilon), (-1.0, 0.0, 1 / 3, 1.0))
    assert 0.99 * min(epsilon, 20.0) < loss <= epsilon + TOLERANCE


@pytest.mark.parametrize("epsilon", [2.0**-15, 0.1, 1.0, 4.0, 8.0])
def test_laplace(epsilon: float) -> None:
    channel = LaplaceChannel(epsilon)
    loss = laplace_loss(channel)
    assert 0.99 * epsilon < loss <= epsilon
    assert 2 * channel.half / channel.noise.scale + channel.noise.epsilon_slack <= epsilon


def test_laplace_reports_end_where_the_bits_do() -> None:
    channel = LaplaceChannel(0.5)
    farthest = np.array([[0, 0], [2**63, 0]], dtype=np.uint64)
    assert channel.valid(channel.randomize(np.array([1.0, -1.0]), ChosenWords(farthest))).all()


@pytest.mark.parametrize("name", CHANNELS)
def test_charge_is_epsilon(name: str) -> None:
    assert make_channel(name, 0.7).spend() == 0.7


# Known-bad twins


class Unclipped(WindowChannel):
    """Trusts its users to hold values within the bounds."""

    def place(self, x: npt.ArrayLike, number: Ints) -> Ints:
        position = 0.5 * (self.points - self.window) * (np.asarray(x, dtype=np.float64) + 1.0)
        return round_at_random(np.maximum(position, 0.0), number)


def test_twin_without_clipping() -> None:
    values = (-1.0, 0.1, 1.5, 2.5)
    good, bad = WindowChannel(1.0, points=5, window=1), Unclipped(1.0, points=5, window=1)
    assert worst_window_loss(good, values) <= 1.0 + TOLERANCE
    assert worst_window_loss(bad, values) == math.inf


@pytest.mark.parametrize("build", [OneBitChannel, PiecewiseChannel, DitheredChannel])
def test_twin_with_a_tenth_more_budget(build: type[WindowChannel]) -> None:
    assert worst_window_loss(build(1.1), (-1.0, 1.0)) > 1.0 + TOLERANCE  # type: ignore[call-arg]


def test_twin_that_rounds_masses_down() -> None:
    bad = WindowChannel(1.0, points=2, window=1)
    bad.unlikely -= 2**25  # 1e-11 of the mass: a float threshold of a few bits less
    bad.likely += 2**25
    assert worst_window_loss(bad, (-1.0, 1.0)) > 1.0 + TOLERANCE


class MissingPoint(WindowChannel):
    """Rejects reports that fall on the last point of the window: no value near the end can send
    it."""

    def randomize(self, x: npt.ArrayLike, words: object, first_draw: int = 0) -> Ints:
        reports = super().randomize(x, words, first_draw)  # type: ignore[arg-type]
        return np.where((reports == self.high) & (np.asarray(x) < 0.0), self.low, reports)


def test_twin_whose_reports_show_the_sign() -> None:
    assert worst_window_loss(MissingPoint(1.0, points=5, window=2), (-0.5, 0.5)) == math.inf


class CoinThatKnows(HybridChannel):
    """Tosses the coin by the value: wide reports for values near 0, one bit for the others."""

    def pmf(self, x: float) -> Floats:
        self.share = 1.0 - abs(x)
        return super().pmf(x)


def test_twin_whose_coin_knows_the_value() -> None:
    values = (0.0, 0.5, 0.9)
    assert worst_pmf_loss(np.array([HybridChannel(1.0).pmf(x) for x in values])) <= 1.0 + TOLERANCE
    assert worst_pmf_loss(np.array([CoinThatKnows(1.0).pmf(x) for x in values])) > 1.0 + TOLERANCE


class NearBit(HybridChannel):
    """Reports the bit at a point less far out than its privacy allows, and flips it less often."""

    def __init__(self, epsilon: float) -> None:
        super().__init__(epsilon)
        self.bit -= 100


def test_twin_whose_bit_is_too_near() -> None:
    assert worst_loss(hybrid_masses(NearBit(1.0), x) for x in VALUES) > 1.0 + TOLERANCE


@pytest.mark.parametrize("width", [0.5, 0.999])
def test_twin_with_too_small_a_scale(width: float) -> None:
    bad = LaplaceChannel(1.0)
    bad.noise = LaplaceNoise(width * 2 * bad.half)
    assert laplace_loss(bad) > 1.0 + TOLERANCE


class UnclippedLaplace(LaplaceChannel):
    """Adds the noise of the declared width to values that may lie outside the bounds."""

    def _on_grid(self, x: npt.ArrayLike) -> Ints:
        return np.rint(np.clip(np.asarray(x), -1.2, 1.2) * self.half).astype(np.int64)


def test_twin_that_does_not_clip_to_the_width() -> None:
    assert laplace_loss(UnclippedLaplace(1.0)) > 1.0 + TOLERANCE
