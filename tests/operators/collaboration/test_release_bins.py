"""Summaries of releases: partial ones merge to the last bit, and bins keep what a fit needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.operators.collaboration.prior import release_bins
from meanstream.operators.collaboration.prior.mixture_prior import LearnedPrior
from meanstream.operators.collaboration.prior.prior_fit import NormalMixture, fit_prior_mixtures
from meanstream.operators.collaboration.prior.prior_points import (
    EXACT,
    CellPoints,
    Points,
    prior_point_octave_classes,
    prior_point_octave_means,
)
from meanstream.operators.collaboration.prior.release_bins import ReleaseBins
from meanstream.operators.collaboration.registry import (
    COLLABORATIONS,
    SUMMARIES,
    make_collaboration,
)
from meanstream.operators.records import Floats, Ints, ReleaseColumns

LOWER, UPPER = -30.0, 120.0


def releases_of(n: int, seed: int = 0) -> ReleaseColumns:
    """Releases at many counts, of three classes of agents."""
    rng = np.random.default_rng(seed)
    count = np.rint(np.exp(rng.uniform(1, 8, n))).astype(np.int64)
    noise = (300 / count) ** 2
    mean = rng.choice([0.0, 40.0, 90.0], n) + rng.normal(0, 1, n) * np.sqrt(noise + 400 / count)
    one = np.ones(n, np.int64)
    return ReleaseColumns(
        agent=np.arange(n), index=one, count=count, total=one, mean=mean, noise_variance=noise
    )


def summary_of(name: str, releases: ReleaseColumns) -> Any:
    return make_collaboration(name, lower=LOWER, upper=UPPER).summarize(releases)


def plain(summary: Any) -> list[Any]:
    return [v.tobytes() if isinstance(v, np.ndarray) else v for v in summary.snapshot().values()]


def merged(name: str, releases: ReleaseColumns, part: Ints, order: Ints) -> Any:
    """Summaries of the parts, merged in an order, two at a time from both ends."""
    queue = [summary_of(name, releases.take(part == number)) for number in order.tolist()]
    while len(queue) > 1:
        first, last = queue.pop(0), queue.pop()
        last.merge(first)
        queue.append(last)
    return queue[0]


def check_merging(name: str, n: int, seed: int) -> None:
    """However releases are split, and in whatever order parts are merged: the same bytes."""
    releases = releases_of(n, seed)
    rng = np.random.default_rng(seed)
    part, order = rng.integers(0, 5, n), rng.permutation(5)
    whole, found = summary_of(name, releases), merged(name, releases, part, order)
    assert found.n == whole.n == n
    assert plain(found) == plain(whole)


@pytest.mark.parametrize("name", sorted(COLLABORATIONS))
@given(n=st.sampled_from([0, 1, 30, EXACT, EXACT + 1, 3000]), seed=st.integers(0, 5))
def test_merging_does_not_depend_on_the_parts_or_their_order(name: str, n: int, seed: int) -> None:
    check_merging(name, n, seed)


def test_sums_of_floats_would_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known-bad twin: the parts of variances are added up as floats."""

    def floats(value: Floats) -> tuple[Ints, Floats]:
        return prior_point_octave_classes(value)[0], value

    def add(keys: Any, values: Any) -> Any:
        order = np.lexsort(keys[::-1])
        kept = [key[order] for key in keys]
        starts = np.flatnonzero(np.r_[True, np.any([k[1:] != k[:-1] for k in kept], axis=0)])
        return tuple(k[starts] for k in kept), np.add.reduceat(values[:, order], starts, axis=1)

    monkeypatch.setattr(release_bins, "prior_point_octave_classes", floats)
    monkeypatch.setattr(release_bins, "tally_prior_points", add)
    with pytest.raises(AssertionError):
        check_merging("learned_prior", 3000, 0)


@pytest.mark.parametrize("name", sorted(COLLABORATIONS))
@pytest.mark.parametrize("n", [3, 3000])
def test_a_snapshot_restored_is_the_same(name: str, n: int) -> None:
    summary = summary_of(name, releases_of(n))
    (kind,) = {kind for kind in SUMMARIES.values() if isinstance(summary, kind)}
    again = kind.restore(summary.snapshot())
    assert plain(again) == plain(summary)
    again.merge(summary_of(name, releases_of(700, 1)))
    summary.merge(summary_of(name, releases_of(700, 1)))
    assert plain(again) == plain(summary)
    version = summary.snapshot()["version"]
    with pytest.raises(ValueError, match=f"snapshot version must be {version}, got 9"):
        kind.restore({**summary.snapshot(), "version": 9})


@pytest.mark.parametrize("name", sorted(COLLABORATIONS))
def test_few_releases_are_fitted_as_they_are(name: str) -> None:
    releases, sample = releases_of(EXACT), 400.0
    collaboration = make_collaboration(name, lower=LOWER, upper=UPPER)
    expected = collaboration.fit(
        releases, sample / releases.count + releases.noise_variance
    ).describe()
    found = collaboration.fit_summary(collaboration.summarize(releases), sample).describe()
    # A summary adds up the same numbers in another order: the last bits are the processor's.
    assert found == close_to(expected)


def close_to(fit: Any) -> Any:
    """A fit as plain data, its numbers to 12 digits."""
    if isinstance(fit, dict):
        return {name: close_to(part) for name, part in fit.items()}
    if isinstance(fit, list):
        return [close_to(part) for part in fit]
    return pytest.approx(fit, rel=1e-12) if isinstance(fit, float) else fit


def standard_errors_apart(points: Points, exact: Points) -> float:
    """By how much the fits of three classes differ, in standard errors of the centers."""

    def of(which: Points) -> list[NormalMixture]:
        return fit_prior_mixtures(which, np.array([0.0]), lower=LOWER, upper=UPPER)

    fits = [{m.size: m for m in of(which)}[3] for which in (points, exact)]
    return float(np.max(np.abs(fits[0].center - fits[1].center) / np.sqrt(fits[1].center_variance)))


def check_bins(make: Callable[[ReleaseColumns], Points]) -> None:
    """Fits to bins are those to single releases, up to a part of their standard error.

    Rounding makes a variance up to a fiftieth larger, and classes weigh releases by variances that
    are up to an eighth off: what either fit loses against the other is a fifth of a standard error.
    """
    releases, sample = releases_of(20_000, 3), 400.0
    variance = sample / releases.count + releases.noise_variance
    points = make(releases)
    assert points.total == len(releases)
    assert len(points.mean) < len(releases) / 5
    exact = Points(mean=releases.mean, variance=variance, weight=np.ones(len(releases)))
    assert standard_errors_apart(points, exact) < 0.5


def test_bins_show_what_single_releases_show() -> None:
    check_bins(lambda releases: LearnedPrior(LOWER, UPPER).summarize(releases).points(400.0))


def test_wide_cells_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    level = release_bins.prior_point_cell_level
    monkeypatch.setattr(release_bins, "prior_point_cell_level", lambda of: level(of) + 5)
    with pytest.raises(AssertionError):
        check_bins(lambda releases: LearnedPrior(LOWER, UPPER).summarize(releases).points(400.0))


def test_cells_are_joined_without_rounding_twice() -> None:
    bins = LearnedPrior(LOWER, UPPER).summarize(releases_of(20_000))
    points = bins.points(400.0)
    assert isinstance(points, CellPoints)
    for spread in (1.0, 10.0, 40.0):
        coarse = points.coarser(spread)
        assert coarse.total == points.total
        assert len(coarse.mean) < len(points.mean)
        edge = (points.mean - LOWER) / (UPPER - LOWER)
        width = np.ldexp(1.0, coarse.level.astype(np.int32))
        for where, cell in zip(edge[:50], points.level[:50], strict=True):
            inside = (
                np.abs(where - (coarse.mean - LOWER) / (UPPER - LOWER))
                <= width / 2 - 2.0**cell / 2 + 1e-12
            )
            assert inside.any()


def test_what_is_no_number_is_left_out() -> None:
    bins = ReleaseBins(0.0, 1.0)
    bins.update(
        np.array([0.5, np.nan, 0.4, 0.3]), np.array([4, 4, 0, 4]), np.array([0.1, 0.1, 0.1, np.inf])
    )
    assert bins.n == 1
    assert bins.points(np.inf).total == 0


def test_bounds_must_agree() -> None:
    with pytest.raises(ValueError, match=r"bounds must be \(0.0, 1.0\), got \(0.0, 2.0\)"):
        ReleaseBins(0.0, 1.0).merge(ReleaseBins(0.0, 2.0))


@given(value=st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=50))
def test_classes_are_narrow_and_keep_their_mean(value: list[float]) -> None:
    given_values = np.array([0.0, *value])
    of, place = prior_point_octave_classes(given_values)
    assert (np.diff(of[np.argsort(given_values)]) >= 0).all()
    np.testing.assert_allclose(
        prior_point_octave_means(of, place, np.ones(len(of))), given_values, rtol=2e-9
    )
    for one in np.unique(of[1:]):
        inside = given_values[of == one]
        assert inside.max() <= 1.25 * inside.min()


@pytest.mark.parametrize(("n", "accuracy"), [(400, 1e-9), (20_000, 0.02)])
def test_who_is_not_believed_to_be_precise_shows_the_same_spread(n: int, accuracy: float) -> None:
    """Releases one by one, and in cells; the twin raises variances and leaves the means, and sees
    less of the spread.

    What the releases vary by more than they should is the population's spread, here of sd 0.01.
    """
    rng = np.random.default_rng(12)
    count = np.exp(rng.uniform(np.log(200), np.log(2000), n)).round()
    noise, of_sample = (4 / count) ** 2, 0.04
    mean = 0.5 + rng.normal(0, 1, n) * np.sqrt(0.01**2 + noise + of_sample / count)
    bins = ReleaseBins(0.0, 1.0)
    bins.update(mean, count, noise)

    def excess(points: Points) -> float:
        return float(points.weight @ ((points.mean - 0.5) ** 2 - points.variance)) / points.total

    said, believed = bins.points(of_sample), bins.points(of_sample, trimmed=0.5)
    assert believed.total == pytest.approx(n)
    assert believed.variance.min() > 1.5 * said.variance.min()
    assert excess(believed) == pytest.approx(excess(said), rel=accuracy)
    cells = [bins.cells(of_sample, trimmed=trimmed) for trimmed in (0.0, 0.5)]
    squares = [
        float(
            c.weight @ ((c.mean - 0.5) ** 2 - c.noise_variance - of_sample / c.count - c.rounding)
        )
        for c in cells
    ]
    assert squares[1] == pytest.approx(squares[0], rel=accuracy)

    raised = np.sort(noise + of_sample / count)
    twin = np.maximum(raised, raised[n // 2])
    assert np.mean((mean - 0.5) ** 2) - twin.mean() < 0.9 * excess(said)
