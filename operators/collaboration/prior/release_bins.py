"""Releases as counts in bins that do not depend on any other release.

Partial counts of many shards add up exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np

from meanstream.operators.collaboration.noise_share import NoiseShare
from meanstream.operators.collaboration.prior.normal_prior import ReleaseCells
from meanstream.operators.collaboration.prior.prior_points import (
    EXACT,
    FINEST,
    NODE,
    PARTS,
    CellPoints,
    Points,
    columns_without,
    count_prior_point_cells,
    prior_point_cell_level,
    prior_point_octave_classes,
    prior_point_octave_means,
    tally_prior_points,
)
from meanstream.operators.collaboration.release_law import NORMAL_TERMS
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require, require_bounds, require_version

SNAPSHOT_VERSION = 2
FINER_PEAKS = 2
"""Cells of releases with few Laplace draws are halved that many times."""
_CLASSES = 1 << 14  # more than there are classes of either part
_LAWS = _CLASSES * _CLASSES  # groups of one law of the noise
_BLOCK = 1 << 15  # releases at a time: what is computed of them stays in the cache
_ARRAYS = ("rows", "group", "cell", "number", "group_of_sums", "sums")


class ReleaseBins:
    """Everyone's newest release, as far as a fit of the population reads it.

    Mergeable, to the last bit.

    Up to 512 releases are kept one by one. More are counted by cell of the mean, by class of
    both parts of their variance, and by the law of the noise. All edges are fixed by the declared
    bounds and by powers of two, and all sums are of integers, so what merged partial counts hold
    does not depend on how the releases were split, nor on the order of the merges.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample, in the value's unit.

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing.

    A cell is at most a quarter as wide as the standard deviation of the privacy noise of its class.
    Once the variance of one sample is known, `points` joins neighboring cells up to a quarter of
    the standard deviation of the whole.

    Examples
    --------
    >>> mean, count = np.random.default_rng(0).normal(0.5, 0.1, 10**5), np.full(10**5, 100)
    >>> halves = [ReleaseBins(0.0, 1.0), ReleaseBins(0.0, 1.0)]
    >>> for bins, part in zip(halves, (slice(0, 300), slice(300, None)), strict=True):
    ...     bins.update(mean[part], count[part], np.full(len(mean[part]), 0.01))
    >>> halves[0].merge(halves[1])
    >>> points = halves[0].points(0.5)
    >>> halves[0].n, len(points.mean) < 80
    (100000, True)
    """

    def __init__(self, lower: float, upper: float) -> None:
        require_bounds(lower, upper)
        self.lower = lower
        self.upper = upper
        self._rows: Floats = np.zeros((4, 0))
        self._group, self._cell, self._number = (np.zeros(0, np.int64) for _ in range(3))
        self._group_of_sums: Ints = np.zeros(0, np.int64)
        self._sums: Ints = np.zeros(
            (3, 0), np.int64
        )  # by group: releases, and the parts of their variances

    @property
    def n(self) -> int:
        """Number of releases."""
        return int(self._rows.shape[1] + self._sums[0].sum())

    def update(
        self,
        mean: Floats,
        count: Ints | Floats,
        noise_variance: Floats,
        noise_terms: Ints | None = None,
    ) -> None:
        """Add releases; what is no number is left out.

        Parameters
        ----------
        mean : float array, shape (n,)
            Released means.
        count : array, shape (n,)
            Samples in each; infinite where `noise_variance` is all of the variance.
        noise_variance : float array, shape (n,)
            Variance of the privacy noise.
        noise_terms : int array, shape (n,), optional
            Laplace draws in the noise; 0 where it is normal.
        """
        # Sums of many draws have no shape that shows: they are taken for normal.
        terms = np.zeros(len(mean), np.int64) if noise_terms is None else noise_terms
        rows = np.empty((4, len(mean)))
        rows[:] = mean, count, noise_variance, np.where(terms < NORMAL_TERMS, terms, 0)

        # What is no number tells nothing.
        usable = np.isfinite(rows[0]) & (rows[1] > 0) & np.isfinite(rows[2]) & (rows[2] >= 0)
        self._add(rows if usable.all() else rows[:, usable])

    def merge(self, other: ReleaseBins) -> None:
        """Add what another one over the same bounds holds: commutative and associative."""
        bounds = (self.lower, self.upper)
        require(
            (other.lower, other.upper) == bounds,
            "bounds",
            f"be {bounds}",
            (other.lower, other.upper),
        )

        # Rows that are kept one by one are added like new ones; counts are added cell by cell.
        self._add(other._rows)

        if len(other._group):
            self._count_rows()
            self._add_bins(
                (other._group, other._cell, other._number), (other._group_of_sums, other._sums)
            )

    def subtract(self, other: ReleaseBins) -> None:
        """Take out releases that were added before.

        What is left is to the last bit what never had them.
        """
        if not other.n:
            return

        # Few releases are kept one by one, and taken out likewise.
        if not len(self._group) and not len(other._group):
            self._rows = np.stack(columns_without(list(self._rows), list(other._rows)))
            return

        # A copy is counted: the other one may still be needed as it is.
        taken = ReleaseBins.restore(other.snapshot())
        taken._count_rows()
        self._count_rows()
        self._add_bins(
            (taken._group, taken._cell, -taken._number), (taken._group_of_sums, -taken._sums)
        )

        # More cannot be taken out than was added.
        require(
            bool(np.all(self._number >= 0) and np.all(self._sums[0] >= 0)),
            "releases",
            "have been added",
            "others",
        )

        # Empty cells and groups leave, so that the state depends on what it holds only.
        left = self._number > 0
        groups = self._sums[0] > 0
        self._group, self._cell, self._number = (
            self._group[left],
            self._cell[left],
            self._number[left],
        )
        self._group_of_sums, self._sums = self._group_of_sums[groups], self._sums[:, groups]

    def points(self, sample_variance: float, *, trimmed: float = 0.0) -> Points:
        """Give what a fit sees, once the variance of one sample is known.

        Without releases of variance 0.

        Parameters
        ----------
        sample_variance : float
            In squared value units.
        trimmed : float
            Share of the releases whose variances may be less than others': none is taken for less
            than this quantile, and each is spread by what its variance is raised, or the population
            would seem to be spread by less.
        """
        # Few releases are seen exactly; many are seen by cells.
        if not len(self._group):
            mean, count, noise = self._rows_believed(trimmed)
            variance = sample_variance / count + noise

            # A variance that was raised spreads the release by as much.
            usable = np.isfinite(variance) & (variance > 0)
            said = sample_variance / self._rows[1, usable] + self._rows[2, usable]

            return Points.spread_by(
                variance[usable] - said, mean=mean[usable], variance=variance[usable]
            )

        return self._cells(sample_variance, trimmed)

    def cells(self, sample_variance: float, *, trimmed: float = 0.0) -> ReleaseCells:
        """Give releases with both parts of their variance apart; `trimmed` as for `points`.

        Cells are joined up to a quarter of the standard deviation of the whole. Without releases of
        variance 0: they say that they know the mean, and no noise does.
        """
        if not len(self._group):
            mean, count, noise = self._rows_believed(trimmed)
            raised = sample_variance * (1 / count - 1 / self._rows[1]) + noise - self._rows[2]
            usable = sample_variance / count + noise > 0
            terms = self._rows[3].astype(np.int64)
            ones = np.ones(len(mean))
            cells = ReleaseCells(mean, count, noise, terms, 0 * ones, ones)

            return _spread_cells(cells.take(usable), raised[usable])

        width = self.upper - self.lower

        # Each group has a variance of sampling and one of noise, known exactly from its sums.
        sampling, noise = self._parts(trimmed)
        total = sample_variance / width**2 * sampling + noise
        place = np.searchsorted(self._group_of_sums, self._group)
        law = self._group_of_sums // _LAWS

        # Cells of a group are joined once the total variance makes them finer than needed.
        level = _cell_level(self._group_of_sums % _CLASSES, law)
        wide = np.maximum(level, _cell_level(prior_point_octave_classes(total)[0], law))
        shift = np.minimum(wide - level, 62)
        (group, cell), (number,) = tally_prior_points(
            (place, self._cell >> shift[place]), self._number[None]
        )

        # The middle of a cell stands for its releases, with the variance of rounding.
        step = np.ldexp(1.0, wide.astype(np.int32))
        with np.errstate(divide="ignore"):
            count = 1 / sampling

        usable = (total > 0)[group]
        cells = ReleaseCells(
            np.asarray(self.lower + width * (cell + 0.5) * step[group], np.float64),
            count[group],
            (width**2 * noise)[group],
            law[group],
            (width * step[group]) ** 2 / 12,
            number.astype(np.float64),
        )
        raised = self._raised(sample_variance, trimmed)

        return _spread_cells(cells.take(usable), width**2 * raised[group][usable])

    def noise_share(self, sample_variance: float) -> NoiseShare:
        """Give the part of a center's variance that is privacy noise."""
        width = self.upper - self.lower
        if not len(self._group):
            _, count, noise, _ = self._rows
            number = np.ones(len(count))
        else:
            sampling, noise = self._parts(0.0)
            noise = width**2 * noise

            # Groups stand for their releases; their noise is averaged.
            number = self._sums[0].astype(np.float64)

            with np.errstate(divide="ignore"):
                count = 1 / sampling

        total = sample_variance / count + noise
        some = total > 0
        return NoiseShare.of(number[some], noise=noise[some], total=total[some], width=width)

    def _rows_believed(self, trimmed: float) -> tuple[Floats, Floats, Floats]:
        """Means, counts and variances of the noise, none more precise than is believed."""
        mean, count, noise, _ = self._rows
        ones = np.ones(len(mean))
        return mean, -_floored(-count, ones, trimmed), _floored(noise, ones, trimmed)

    def _parts(self, trimmed: float) -> tuple[Floats, Floats]:
        """Both parts of each group's variance, in squared widths."""
        number, sampling, noise = self._sums

        # A group's number holds the classes of both variances.
        of_sampling, of_noise = np.divmod(self._group_of_sums % _LAWS, _CLASSES)
        parts = (
            prior_point_octave_means(of_sampling, sampling, number),
            prior_point_octave_means(of_noise, noise, number),
        )

        return _floored(parts[0], number, trimmed), _floored(parts[1], number, trimmed)

    def _raised(self, sample_variance: float, trimmed: float) -> Floats:
        """By how much the variance of each group is raised, in squared widths."""
        # By as much as a release counts as less precise than it says.
        believed = self._parts(trimmed)
        said = self._parts(0.0)
        of_sample = sample_variance / (self.upper - self.lower) ** 2
        return np.maximum(of_sample * (believed[0] - said[0]) + believed[1] - said[1], 0.0)

    def snapshot(self) -> dict[str, Any]:
        """Plain data: numbers and copies of arrays."""
        arrays = {name: getattr(self, f"_{name}").copy() for name in _ARRAYS}
        return {"version": SNAPSHOT_VERSION, "lower": self.lower, "upper": self.upper, **arrays}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Make the same of its snapshot."""
        require_version(state, SNAPSHOT_VERSION)
        bins = cls(state["lower"], state["upper"])

        for name in _ARRAYS:
            there = getattr(bins, f"_{name}")
            setattr(
                bins, f"_{name}", np.array(state[name], there.dtype).reshape(*there.shape[:-1], -1)
            )

        return bins

    def _add(self, rows: Floats) -> None:
        # Beyond a number of releases all are counted: the state has one size from then on.
        self._rows = np.concatenate([self._rows, rows], axis=1) if self._rows.shape[1] else rows
        if len(self._group) or self._rows.shape[1] > EXACT:
            self._count_rows()
        else:
            self._rows = self._rows[:, np.lexsort(self._rows)]

    def _count_rows(self) -> None:
        """Put what was kept one by one into bins."""
        if not self._rows.shape[1]:
            return

        # The rows leave before they are counted.
        rows, self._rows = self._rows, np.zeros((4, 0))
        group, cell = (np.empty(rows.shape[1], np.int64) for _ in range(2))
        groups = []
        sums = []

        # In blocks, as the arrays between would be large.
        for start in range(0, rows.shape[1], _BLOCK):
            part = slice(start, start + _BLOCK)
            group[part], cell[part], (keys, values) = self._group_and_cell(rows[:, part])
            groups.append((keys[2] * _CLASSES + keys[0]) * _CLASSES + keys[1])
            sums.append(values)

        self._add_bins(
            count_prior_point_cells(group, cell),
            (np.concatenate(groups), np.concatenate(sums, axis=1)),
        )

    def _group_and_cell(self, rows: Floats) -> tuple[Ints, Ints, tuple[tuple[Ints, ...], Ints]]:
        """Group and cell of each release, and the sums of the groups."""
        mean, count, noise, terms = rows
        law = terms.astype(np.int64)
        width = self.upper - self.lower

        # Classes are octaves of the variances, which are public.
        of_sampling, sampling = prior_point_octave_classes(1 / count)
        of_noise, noise_part = prior_point_octave_classes(noise / width**2)

        # Cells are narrower where noise is small: they lose nothing that shows.
        place = np.ldexp((mean - self.lower) / width, -_cell_level(of_noise, law).astype(np.int32))
        sums = tally_prior_points(
            (of_sampling, of_noise, law), np.stack([np.ones_like(of_noise), sampling, noise_part])
        )

        group = (law * _CLASSES + of_sampling) * _CLASSES + of_noise
        return group, np.floor(place).astype(np.int64), sums

    def _add_bins(self, bins: tuple[Ints, Ints, Ints], groups: tuple[Ints, Ints]) -> None:
        """Add counts of cells, those in order, and sums of groups."""
        # Cells and groups are kept in order, so that equal contents are equal bytes.
        if len(self._group):
            key = tuple(
                np.concatenate(both)
                for both in zip((self._group, self._cell), bins[:2], strict=True)
            )
            (self._group, self._cell), number = tally_prior_points(
                key, np.concatenate([self._number, bins[2]])[None]
            )
            self._number = number[0]
        else:
            self._group, self._cell, self._number = bins

        joined = np.concatenate([self._group_of_sums, groups[0]])
        (self._group_of_sums,), self._sums = tally_prior_points(
            (joined,), np.concatenate([self._sums, groups[1]], axis=1)
        )

    def _cells(self, sample_variance: float, trimmed: float) -> Points:
        """Give the classes their total variance; join what is similar enough."""
        width = self.upper - self.lower
        sampling, noise = self._parts(trimmed)

        # Variances of the groups decide how wide cells may be.
        variance = sample_variance / width**2 * sampling + noise

        usable = np.isfinite(variance) & (variance > 0)
        size = np.diff(np.searchsorted(self._group, self._group_of_sums), append=len(self._group))

        # Cells are in the order of their groups.
        points = np.repeat(usable, size)  # cells are in the order of their groups
        cell = self._cell[points]
        number = self._number[points]
        group = np.repeat(np.arange(int(usable.sum())), size[usable])

        level = _cell_level(self._group_of_sums % _CLASSES, self._group_of_sums // _LAWS)[usable]
        variance = variance[usable]

        # Releases whose variance was raised are spread over three cells.
        step = np.ldexp(1.0, level.astype(np.int32))
        away = np.rint(
            np.sqrt(NODE**2 * self._raised(sample_variance, trimmed)[usable]) / step
        ).astype(np.int64)[group]
        raised = away > 0

        return CellPoints.join(
            np.concatenate([cell, (cell - away)[raised], (cell + away)[raised]]),
            np.concatenate([group, group[raised], group[raised]]),
            np.concatenate([number * np.where(raised, PARTS - 2, PARTS), number[raised], number[raised]]),
            level=level, variance=variance, lower=self.lower, width=width,
        )  # fmt: skip


def _cell_level(of: Ints, law: Ints) -> Ints:
    """Width of a cell as a power of two; few Laplace draws have a peak, which needs narrower ones."""
    return np.maximum(prior_point_cell_level(of) - np.where(law > 0, FINER_PEAKS, 0), FINEST)


def _spread_cells(cells: ReleaseCells, raised: Floats) -> ReleaseCells:
    """Spread releases by what their variance was raised: what they show of the population is as before."""
    some = raised > 0
    if not some.any():
        return cells

    # To both sides and the middle, so that the mean stays and the variance grows by what was
    # raised.
    away = NODE * np.sqrt(raised[some])
    part = cells.take(some)
    sides = (replace(part, mean=part.mean + s * away, weight=part.weight / PARTS) for s in (-1, 1))
    middle = replace(cells, weight=np.where(some, cells.weight * (1 - 2 / PARTS), cells.weight))

    return middle.followed_by(*sides)


def _floored(part: Floats, number: Floats | Ints, share: float) -> Floats:
    """Raise what is below the quantile that a share of all lies under; 0 raises nothing.

    Examples
    --------
    >>> _floored(np.array([0.1, 5.0, 3.0, 4.0]), np.ones(4), 0.25).tolist()
    [3.0, 5.0, 3.0, 4.0]
    """
    if share <= 0 or not len(part):
        return part

    # The quantile by numbers of releases: what is below is raised to it.
    order = np.argsort(part, kind="stable")
    below = np.cumsum(number[order])
    least = part[order][np.searchsorted(below, share * below[-1], side="right")]

    return np.asarray(np.maximum(part, least), dtype=np.float64)


def bin_releases(mean: Floats, variance: Floats, *, lower: float, upper: float) -> Points:
    """Give what a fit sees of releases whose total variances are known.

    Parameters
    ----------
    mean, variance : float array, shape (n_agents,)
        Releases whose variance is not finite and positive are left out.
    lower, upper : float
        Declared bounds of a sample.

    Examples
    --------
    >>> points = bin_releases(np.random.default_rng(0).normal(0, 1, 10**5), np.ones(10**5), lower=-5, upper=5)
    >>> points.total, len(points.mean) < 80
    (100000.0, True)
    """
    bins = ReleaseBins(lower, upper)
    bins.update(mean, np.full(len(mean), np.inf), variance)
    return bins.points(0.0)
