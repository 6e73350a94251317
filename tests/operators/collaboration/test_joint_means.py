"""Differences and ranks from a joint posterior: shared errors cancel, and what holds together does."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.operators.collaboration.joint_means import (
    JointMeans,
    difference_of_two,
    differences_from_one,
    rank_sets,
)
from meanstream.operators.records import Floats, Ints

CENTER_STDDEV = 2.0
SPREAD = 4.0


def world(rng: np.random.Generator, n: int, noise: float) -> tuple[Floats, JointMeans]:
    """Give true means and their exact posterior, when the center is drawn as well."""
    truth = rng.normal(10 + CENTER_STDDEV * rng.normal(), SPREAD, n)
    error = noise * rng.uniform(0.5, 2.0, n)
    mean = truth + error * rng.normal(size=n)
    precision = 1 / (SPREAD**2 + error**2)
    center_variance = 1 / (precision.sum() + CENTER_STDDEV**-2)
    center = center_variance * ((precision * mean).sum() + 10 / CENTER_STDDEV**2)
    keep = SPREAD**2 * precision
    joint = JointMeans(
        value=center + keep * (mean - center),
        stddev=np.sqrt(keep) * error,
        weight=1 - keep,
        center_variance=center_variance,
    )
    return truth, joint


def true_ranks(truth: Floats) -> Ints:
    return np.argsort(np.argsort(-truth)) + 1


def test_an_error_that_both_share_cancels() -> None:
    apart = JointMeans(
        value=np.array([3.0, 1.0, 2.0]),
        stddev=np.array([0.3, 0.4, 0.4]),
        weight=np.array([1.0, 1.0, 0.0]),
        center_variance=9.0,
    )
    assert difference_of_two(apart, 0, 1, level=0.95)[1] == pytest.approx(1.96 * 0.5, rel=1e-3)
    assert difference_of_two(apart, 0, 2, level=0.95)[1] > 1.96 * 3


@pytest.mark.parametrize(("n", "noise"), [(12, 1.0), (12, 4.0), (40, 2.0)])
def test_sets_of_ranks_hold_together(n: int, noise: float) -> None:
    """All true ranks are in their sets in .95 of 200 worlds, and all comparisons too: four standard
    errors are .062 (a false alarm in 1 of 15,000)."""
    rng = np.random.default_rng(7)
    ranks = comparisons = 0
    for _ in range(200):
        truth, joint = world(rng, n, noise)
        _, least, greatest = rank_sets(joint, level=0.95)
        ranks += bool(((least <= true_ranks(truth)) & (true_ranks(truth) <= greatest)).all())
        difference, half_width, _ = differences_from_one(joint, 0, level=0.95)
        comparisons += bool((np.abs(truth - truth[0] - difference) <= half_width + 1e-12).all())
    assert ranks / 200 > 0.95 - 0.062
    assert comparisons / 200 == pytest.approx(0.95, abs=0.062)


def test_sets_from_intervals_that_are_too_long_hold_as_well() -> None:
    """With errors said to be twice as large: in all of 100 worlds but two at most, of 40 means."""
    rng = np.random.default_rng(8)
    missed = 0
    for _ in range(100):
        truth, joint = world(rng, 40, 1.0)
        half_width = 1.96 * 2 * joint.stddev
        known = JointMeans.independent(
            joint.value, joint.value - half_width, joint.value + half_width, 0.95
        )
        _, least, greatest = rank_sets(known, level=0.95)
        missed += not ((least <= true_ranks(truth)) & (true_ranks(truth) <= greatest)).all()
    assert missed <= 2


def test_the_sets_are_no_longer_than_needed() -> None:
    """Of 80 means of spread 4 and errors of 1, sets leave out more than a third of the ranks."""
    _, joint = world(np.random.default_rng(1), 80, 1.0)
    rank, least, greatest = rank_sets(joint, level=0.95)
    assert (least <= rank).all()
    assert (rank <= greatest).all()
    assert (greatest - least).mean() < 0.67 * 79


def test_ranks_without_noise_are_exact_and_those_without_means_are_empty() -> None:
    exact = np.array([2.0, 5.0, 1.0])
    joint = JointMeans.independent(exact, exact - 1e-9, exact + 1e-9, 0.95)
    rank, least, greatest = rank_sets(joint, level=0.95)
    assert rank.tolist() == least.tolist() == greatest.tolist() == [2, 1, 3]
    assert differences_from_one(joint.take(np.array([0])), 0, level=0.95)[1].tolist() == [0.0]
    assert [len(part) for part in rank_sets(joint.take(np.zeros(0, int)), level=0.95)] == [0, 0, 0]


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, joint = world(np.random.default_rng(3), 40, 1.0)
    whole = rank_sets(joint, level=0.9)
    monkeypatch.setattr("meanstream.operators.collaboration.joint_means._PAIRS", 130)
    assert all(
        a.tolist() == b.tolist() for a, b in zip(whole, rank_sets(joint, level=0.9), strict=True)
    )
