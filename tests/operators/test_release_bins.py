"""Summaries of releases: partial ones merge to the last bit, and bins keep what a fit needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators import release_bins
from operators.collaboration import COLLABORATIONS, SUMMARIES, make_collaboration
from operators.learned_prior import LearnedPrior
from operators.learned_prior_bins import EXACT, CellPoints, Points, octave_classes, octave_means
from operators.learned_prior_fit import fit_mixtures
from operators.records import Floats, Ints, ReleaseColumns
from operators.release_bins import ReleaseBins

LOWER, UPPER = -30.0, 120.0


def releases_of(n: int, seed: int = 0) -> ReleaseColumns:
    """Releases at many counts, of three classes of agents."""
    rng = np.random.default_rng(seed)
    count = np.rint(np.exp(rng.uniform(1, 8, n))).astype(np.int64)
    noise = (300 / count) ** 2
    mean = rng.choice([0.0, 40.0, 90.0], n) + rng.normal(0, 1, n) * np.sqrt(noise + 400 / count)
    one = np.ones(n, np.int64)
    return ReleaseColumns(agent=np.arange(n), index=one, count=count, total=one, mean=mean, noise_variance=noise)


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
        return octave_classes(value)[0], value

    def add(keys: Any, values: Any) -> Any:
        order = np.lexsort(keys[::-1])
        kept = [key[order] for key in keys]
        starts = np.flatnonzero(np.r_[True, np.any([k[1:] != k[:-1] for k in kept], axis=0)])
        return tuple(k[starts] for k in kept), np.add.reduceat(values[:, order], starts, axis=1)

    monkeypatch.setattr(release_bins, "octave_classes", floats)
    monkeypatch.setattr(release_bins, "tally", add)
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
    with pytest.raises(ValueError, match="snapshot version must be 1, got 2"):
        kind.restore({**summary.snapshot(), "version": 2})


@pytest.mark.parametrize("name", sorted(COLLABORATIONS))
def test_few_releases_are_fitted_as_they_are(name: str) -> None:
    releases, sample = releases_of(EXACT), 400.0
    collaboration = make_collaboration(name, lower=LOWER, upper=UPPER)
    expected = collaboration.fit(releases, sample / releases.count + releases.noise_variance).describe()
    assert collaboration.fit_summary(collaboration.summarize(releases), sample).describe() == expected


def standard_errors_apart(points: Points, exact: Points) -> float:
    """By how much the fits of three classes differ, in standard errors of the centers."""
    fits = [{m.size: m for m in fit_mixtures(which, np.array([0.0]))}[3] for which in (points, exact)]
    return float(np.max(np.abs(fits[0].center - fits[1].center) / np.sqrt(fits[1].center_variance)))


def check_bins(make: Callable[[ReleaseColumns], Points]) -> None:
    """Fits to bins are those to single releases, up to a part of their standard error.

    Rounding makes a variance up to a fiftieth larger, and classes weigh releases by variances that are up to an eighth
    off: what either fit loses against the other is a fifth of a standard error.
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
    level = release_bins.cell_level
    monkeypatch.setattr(release_bins, "cell_level", lambda of: level(of) + 5)
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
            inside = np.abs(where - (coarse.mean - LOWER) / (UPPER - LOWER)) <= width / 2 - 2.0**cell / 2 + 1e-12
            assert inside.any()


def test_what_is_no_number_is_left_out() -> None:
    bins = ReleaseBins(0.0, 1.0)
    bins.update(np.array([0.5, np.nan, 0.4, 0.3]), np.array([4, 4, 0, 4]), np.array([0.1, 0.1, 0.1, np.inf]))
    assert bins.n == 1
    assert bins.points(np.inf).total == 0


def test_bounds_must_agree() -> None:
    with pytest.raises(ValueError, match=r"bounds must be \(0.0, 1.0\), got \(0.0, 2.0\)"):
        ReleaseBins(0.0, 1.0).merge(ReleaseBins(0.0, 2.0))


@given(value=st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=50))
def test_classes_are_narrow_and_keep_their_mean(value: list[float]) -> None:
    given_values = np.array([0.0, *value])
    of, place = octave_classes(given_values)
    assert (np.diff(of[np.argsort(given_values)]) >= 0).all()
    np.testing.assert_allclose(octave_means(of, place, np.ones(len(of))), given_values, rtol=2e-9)
    for one in np.unique(of[1:]):
        inside = given_values[of == one]
        assert inside.max() <= 1.25 * inside.min()
