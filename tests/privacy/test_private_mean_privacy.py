"""The private mean keeps (epsilon, delta) over everything it releases: exactly, from the Gaussian
vector it adds.

Two neighboring streams run with the same bits, so that the difference of their releases is the
exact difference `d` of what the noise protects. The releases are Gaussian with covariance S =
variance * B B^T, so the mechanism is exactly the scalar one with sensitivity `sqrt(d^T S^-1 d)`.
"""

import copy
import math
from typing import Any

import numpy as np
import pytest
from river import utils

from meanstream.lab.evidence.one_run import above, audit_epsilon_lower_bound
from meanstream.operators.agents.running_mean import PrivateMean
from meanstream.operators.counters.optimal import LONGEST, Optimal
from meanstream.operators.counters.registry import COUNTERS, make_counter
from meanstream.operators.forecast.simulated_noise import SimulationNoise
from meanstream.operators.noise.calibration import calibration_delta
from meanstream.operators.noise.keyed import KeyedNoise, NoiseSource
from meanstream.operators.records import Floats

EPSILON, DELTA = 1.0, 1e-6
N = 60
SCHEDULES: list[tuple[str | int, int]] = [(1, 60), (5, 12), ("geometric:3,1.4", 9), (60, 1)]


def statistic(
    schedule: str | int,
    horizon: int,
    *,
    window: int | None,
    noise: NoiseSource,
    epsilon: float = EPSILON,
    delta: float = DELTA,
) -> Any:
    settings: dict[str, Any] = {
        "lower": -1.0,
        "upper": 1.0,
        "epsilon": epsilon,
        "delta": delta,
        "noise": noise,
    }
    settings |= {"schedule": schedule, "horizon": horizon}
    if window is None:
        return PrivateMean(**settings)
    return utils.Rolling(PrivateMean, window_size=window, removals=True, **settings)


def releases(mean: Any, stream: Floats) -> Floats:
    """Every released integer, in order."""
    totals, released = [], 0
    for x in stream:
        mean.update(float(x))
        if mean._stream.index > released:
            released = mean._stream.index
            totals.append(mean._stream.released_total)
    return np.array(totals, dtype=np.float64)


def sensitivities(schedule: str | int, horizon: int, *, window: int | None) -> Floats:
    """`sqrt(d^T (B B^T)^-1 d)` in grid units, for a change of each sample of the stream from -1 to
    1."""
    base = np.random.default_rng(4).uniform(-1, 1, N)
    counter = make_counter("toeplitz", horizon=horizon)
    found = []
    for position in range(N):
        low, high = base.copy(), base.copy()
        low[position], high[position] = -1.0, 1.0
        pair = [
            releases(statistic(schedule, horizon, window=window, noise=SimulationNoise(7)), x)
            for x in (low, high)
        ]
        d = pair[1] - pair[0]
        found.append(float(np.linalg.norm(np.linalg.solve(counter.matrix(len(d)), d))))
    return np.array(found)


def delta_of(mean: PrivateMean, sensitivity: float) -> float:
    return calibration_delta(mean._fresh.stddev / sensitivity, EPSILON)


@pytest.mark.parametrize(("schedule", "horizon"), SCHEDULES)
def test_all_releases_of_a_growing_mean_together(schedule: str | int, horizon: int) -> None:
    worst = sensitivities(schedule, horizon, window=None).max()
    delta = delta_of(statistic(schedule, horizon, window=None, noise=SimulationNoise(7)), worst)
    assert 0.9 * DELTA < delta <= DELTA  # tight: the first sample meets every release


@pytest.mark.parametrize(("schedule", "horizon"), SCHEDULES[:3])
@pytest.mark.parametrize("window", [1, 7, 20])
def test_all_releases_of_a_sliding_mean_together(
    schedule: str | int, horizon: int, window: int
) -> None:
    worst = sensitivities(schedule, horizon, window=window).max()
    assert (
        delta_of(statistic(schedule, horizon, window=window, noise=SimulationNoise(7)).obj, worst)
        <= DELTA
    )


def test_known_bad_twin_a_sliding_mean_with_the_noise_of_a_growing_one() -> None:
    worst = sensitivities(1, 60, window=40).max()
    assert delta_of(statistic(1, 60, window=None, noise=SimulationNoise(7)), worst) > 5 * DELTA


MEMORIES: list[tuple[str, str | int]] = [
    ("half-life:8", 1),
    ("half-life:16", "preferred:1"),
    ("half-life:40", 3),
    ("window:12", 2),
    ("window:5", 1),
]


def moved_by(position: int, mean: PrivateMean, twin: PrivateMean) -> float:
    """What one sample moves the Gaussian vector by, in grid units: `sqrt(d^T (B B^T)^-1 d)` of the
    raw sums' change."""
    base = np.random.default_rng(4).uniform(-1, 1, 200)
    pair = []
    for one, value in ((mean, -1.0), (twin, 1.0)):
        base[position] = value
        sums = []
        for x in base:
            before = one._stream.index
            one.update(float(x))
            if one._stream.index > before:
                name = "noised" if "noised" in one._stream.counter else "totals"
                sums.append(
                    float(one._stream.counter[name][0].sum())
                    if name == "noised"
                    else one._stream.released_total
                )
        pair.append(sums)
    d = np.array(pair[1]) - np.array(pair[0])
    return float(np.linalg.norm(np.linalg.solve(mean._counter.matrix(len(d)), d)))


@pytest.mark.parametrize(("memory", "schedule"), MEMORIES)
def test_an_endless_mean_that_forgets(memory: str, schedule: str | int) -> None:
    """With the same draws (input versions aside) the difference of what is released is that of the
    noised vector."""
    worst, tight = 0.0, 0.0
    for position in (0, 1, 2, 5, 17, 60):
        means = [
            PrivateMean(
                -1,
                1,
                epsilon=EPSILON,
                delta=DELTA,
                noise=SimulationNoise(7),
                schedule=schedule,
                memory=memory,
            )
            for _ in range(2)
        ]
        moved = moved_by(position, means[0], means[1])
        worst, tight = max(worst, delta_of(means[0], moved)), max(tight, moved)
    assert worst <= DELTA * (1 + 1e-4)  # rounding moves sums by a grid unit in 2**20
    assert tight > 0.97 * means[0]._grid.span * means[0]._counter.l2_sensitivity


def test_known_bad_twin_decayed_sums_with_the_noise_of_one_release() -> None:
    means = [
        PrivateMean(
            -1,
            1,
            epsilon=EPSILON,
            delta=DELTA,
            noise=SimulationNoise(7),
            schedule=1,
            memory="half-life:16",
        )
        for _ in range(2)
    ]
    alone = PrivateMean(
        -1, 1, epsilon=EPSILON, delta=DELTA, noise=SimulationNoise(7), schedule=1, horizon=1
    )
    assert delta_of(alone, moved_by(0, means[0], means[1])) > 5 * DELTA


@pytest.mark.parametrize(
    ("name", "horizon"),
    [
        (name, n)
        for name in COUNTERS
        for n in (2, 5, 64, 1000)
        if name != Optimal.name or n <= LONGEST
    ],
)
def test_two_columns_of_a_counter_differ_by_at_most_root_two_of_the_longest(
    name: str, horizon: int
) -> None:
    """What the noise of a sliding window rests on: the columns of `C = B^-1 A` have no negative
    products."""
    counter = make_counter(name, horizon=horizon)
    columns = np.linalg.solve(counter.matrix(horizon), np.tri(horizon))
    products = columns.T @ columns
    assert products.min() >= 0.0
    lengths = np.diag(products)
    distance = lengths[:, np.newaxis] + lengths - 2 * products
    assert math.sqrt(distance.max()) <= math.sqrt(2) * counter.l2_sensitivity * (1 + 1e-12)


@pytest.mark.parametrize(("window", "seen_by"), [(None, [0, 1, 1, 1]), (3, [0, 1, 0, 0])])
def test_as_a_black_box(window: int | None, seen_by: list[int]) -> None:
    """1500 instances per input, the releases projected on the most telling direction: false alarm
    1e-6.

    The third of eight samples changes; `seen_by` says which of the four releases contain it.
    """
    epsilon, delta = 4.0, 1e-2
    source = KeyedNoise(
        b"f25735d7f2b7edd3a59407cfb81435ed", deployment="audit", purpose="private mean"
    )
    prototype = statistic(2, 4, window=window, noise=source, epsilon=epsilon, delta=delta)
    direction = np.linalg.solve(
        make_counter("toeplitz", horizon=4).covariance(4), np.array(seen_by, dtype=np.float64)
    )
    projected = []
    for third in (-1.0, 1.0):
        stream = np.array([0.0, 0.0, third, 0.0, 0.0, 0.0, 0.0, 0.0])
        outputs = np.array([releases(copy.deepcopy(prototype), stream) for _ in range(1500)])
        # Centered between the two inputs and in units of what the change moves: about -1/2 and
        # +1/2.
        middle = (
            np.cumsum([2, 2, 2, 2]) * 2.0**20 / 2
            if window is None
            else np.array([2, 3, 3, 3]) * 2.0**20 / 2
        )
        projected.append((outputs - middle) @ direction / (direction @ np.array(seen_by)) / 2.0**20)
    events = above(np.linspace(-2, 2, 17))
    assert (
        0.4 < audit_epsilon_lower_bound(projected[0], projected[1], events, delta=delta) <= epsilon
    )
    means = [p.mean() for p in projected]
    quieter = [
        m + (p - m) / 5 for m, p in zip(means, projected, strict=True)
    ]  # a fifth of the noise
    assert audit_epsilon_lower_bound(quieter[0], quieter[1], events, delta=delta) > epsilon
