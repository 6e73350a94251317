"""Five classic mistakes and the shared identity: the audit flags each, and passes the right way of
doing the same.

Each pair runs the same audit at epsilon 1 on two neighboring inputs; the good one's false-alarm
rate is 1e-6.
"""

from collections.abc import Callable

import numpy as np
import pytest

from meanstream.lab.evidence.one_run import Event, Outputs, above, audit_epsilon_lower_bound
from meanstream.operators.noise.calibration import calibrated_laplace_scale
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import KeyedNoise, LaplaceNoise, NoiseIds, keyed_owner_words
from meanstream.operators.records import Bools, Floats, Ints

EPSILON = 1.0
N = 60_000
GRID = FixedPoint(0.0, 1.0, bits=10)
SCALE = GRID.span * calibrated_laplace_scale(EPSILON)
SOURCE = KeyedNoise(b"f25735d7f2b7edd3a59407cfb81435ed", deployment="audit", purpose="twins")
OWNERS = keyed_owner_words([f"agent {i}" for i in range(N)])

Mechanism = Callable[[float, int], Outputs]


def keyed_laplace(totals: Ints, *, run: int, version: Ints | None = None, index: int = 1) -> Ints:
    """Discrete Laplace for N owners; `run` keeps the two inputs of one audit independent of each
    other."""
    versions = SOURCE.version_of(np.full(N, run), totals if version is None else version)
    bits = SOURCE.bits(NoiseIds(OWNERS, np.full(N, index), versions), draw=run)
    return LaplaceNoise(SCALE).sample(bits).astype(np.int64)


def audited_epsilon(
    mechanism: Mechanism, events: list[Event], values: tuple[float, float] = (0.0, 1.0)
) -> float:
    a, b = (mechanism(value, run) for run, value in enumerate(values))
    return audit_epsilon_lower_bound(a, b, events, delta=1e-9)


def release(value: float, run: int) -> Floats:
    """The right way: clip, encode, add keyed noise on the grid, publish the integer (shown here in
    value units)."""
    totals = np.full(N, GRID.encode_one(value))
    return GRID.mean(totals + keyed_laplace(totals, run=run), 1)


THRESHOLDS = above(np.linspace(-1.0, 2.0, 13))


def low_bits(outputs: Outputs) -> Bools:
    """Outputs near 0 that no float of the form `1.0 + noise` can be: those have no bits below
    2**-53."""
    y = np.asarray(outputs, dtype=np.float64)
    return np.asarray((np.abs(y) < 0.125) & (y * 2.0**53 != np.rint(y * 2.0**53)))


def test_float_noise_of_numpy() -> None:
    def bad(value: float, run: int) -> Floats:
        return value + np.random.default_rng(run).laplace(0.0, calibrated_laplace_scale(EPSILON), N)

    events = [*THRESHOLDS, low_bits]
    assert (
        audited_epsilon(bad, THRESHOLDS) <= EPSILON
    )  # in distribution it is right: only the low bits tell
    assert audited_epsilon(bad, events) > 3 * EPSILON
    assert 0.8 < audited_epsilon(release, events) <= EPSILON


def test_fresh_noise_on_retry() -> None:
    """An observer averages 16 deliveries of one release."""

    def bad(value: float, run: int) -> Floats:
        totals = np.full(N, GRID.encode_one(value))
        retries = [
            GRID.mean(totals + keyed_laplace(totals, run=run, index=attempt), 1)
            for attempt in range(16)
        ]
        return np.asarray(np.mean(retries, axis=0))

    def good(value: float, run: int) -> Floats:
        return np.asarray(np.mean([release(value, run) for _ in range(16)], axis=0))

    assert audited_epsilon(bad, THRESHOLDS) > 2 * EPSILON
    assert 0.8 < audited_epsilon(good, THRESHOLDS) <= EPSILON
    assert np.array_equal(good(0.3, 0), release(0.3, 0))


def test_wrong_sensitivity() -> None:
    """Noise for half of the width of the bounds, as if a sample could move the sum from its middle
    only."""

    def bad(value: float, run: int) -> Floats:
        totals = np.full(N, GRID.encode_one(value))
        return GRID.mean(totals + keyed_laplace(totals, run=run) // 2, 1)

    assert audited_epsilon(bad, THRESHOLDS) > 1.6 * EPSILON
    assert 0.8 < audited_epsilon(release, THRESHOLDS) <= EPSILON


def test_unclipped_input() -> None:
    """A neighboring sample far outside the declared bounds."""

    def bad(value: float, run: int) -> Floats:
        totals = np.full(N, round(value / GRID.resolution))
        return GRID.mean(totals + keyed_laplace(totals, run=run), 1)

    assert audited_epsilon(bad, THRESHOLDS, values=(0.0, 5.0)) > 3 * EPSILON
    assert 0.8 < audited_epsilon(release, THRESHOLDS, values=(0.0, 5.0)) <= EPSILON


def difference_shows(outputs: Outputs) -> Bools:
    """The two releases differ by exactly the span, as their inputs do if the second sample is 1."""
    return np.asarray(outputs[:, 1] - outputs[:, 0] == GRID.span)


@pytest.mark.parametrize("reused", [True, False])
def test_noise_reused_for_a_different_input(reused: bool) -> None:
    """A release id is published for a total, then again after a sample of value 0 or 1 has been
    added to it."""

    def two_releases(value: float, run: int) -> Ints:
        before = np.full(N, 300)
        after = before + GRID.encode_one(value)
        first = before + keyed_laplace(before, run=run)
        second = after + keyed_laplace(after, run=run, version=before if reused else after)
        return np.stack([first, second], axis=1)

    def second_above(threshold: float) -> Event:
        return lambda outputs: np.asarray(outputs[:, 1] > threshold)

    events = [difference_shows, *(second_above(300 + GRID.span * t) for t in np.linspace(-1, 2, 7))]
    bound = audited_epsilon(two_releases, events)
    assert bound > 3 * EPSILON if reused else 0.8 < bound <= EPSILON


@pytest.mark.parametrize("shared", [True, False])
def test_an_identity_shared_by_two_streams(shared: bool) -> None:
    """Two groups with equal noise ids: equal releases tell that their data are equal."""

    def two_groups(value: float, run: int) -> Ints:
        ours = np.full(N, 300 + GRID.encode_one(value))
        theirs = np.full(N, 300)
        noise_ours = keyed_laplace(ours, run=run)
        noise_theirs = keyed_laplace(theirs, run=run, index=1 if shared else 2)
        return np.stack([ours + noise_ours, theirs + noise_theirs], axis=1)

    def equal(outputs: Outputs) -> Bools:
        return np.asarray(outputs[:, 0] == outputs[:, 1])

    bound = audited_epsilon(two_groups, [equal])
    assert bound > 3 * EPSILON if shared else bound <= EPSILON
