"""The histogram of an agent's samples.

Counted in public bins and noised, for quantiles, shares and exceedances.

A part of the budget goes into the counts. `meanstream.operators.collaboration.shares` learns a
prior of everyone's noised counts, and answers each agent with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meanstream.operators.agents.state_columns import (
    PRIVATE,
    PUBLIC,
    Column,
    Columns,
    Public,
    Table,
)
from meanstream.operators.agents.vote_of_spread import FACTOR, MOST_VOTES, SpreadPairs
from meanstream.operators.noise.distributions import GaussianNoise, LaplaceNoise
from meanstream.operators.noise.draw_owners import AGENT_HISTOGRAMS
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds
from meanstream.operators.records import Bools, Floats, Ints, ReleaseColumns, Words
from meanstream.operators.validation import require, valid_floats

EVEN_BINS = 17
"""Bins of equal width between the bounds; the two bounds themselves are bins of their own."""
CELLS = 8
"""An agent's own samples are counted in finer cells, that many in each bin but those of the bounds;
never released."""
MOST_THRESHOLDS = 16
MOST_BINS = EVEN_BINS + 2 + MOST_THRESHOLDS
SAMPLE_SENSITIVITY = {1: 2.0, 2: math.sqrt(2.0)}
"""By the norm. A replaced sample leaves one bin and enters another: two counts change by one
each."""


class HistogramColumns(NamedTuple):
    """Public: the noised histograms of some agents.

    Attributes
    ----------
    agent, number, samples : int array (n,)
        Index of the agent, how many noised counts each bin is the sum of, and how many samples they
        comprise.
    counts : int array (n, bins)
        The noised counts.
    """

    agent: Ints
    number: Ints
    samples: Ints
    counts: Ints

    def take(self, which: Ints) -> HistogramColumns:
        """Select agents."""
        return HistogramColumns(*(column[which] for column in self))


_NONE: Ints = np.zeros(0, np.int64)
NO_HISTOGRAMS = HistogramColumns(_NONE, _NONE, _NONE, np.zeros((0, 0), np.int64))
"""Of no one."""


def histograms_of_releases(releases: ReleaseColumns) -> HistogramColumns:
    """Give the histograms that releases carry; of no one where none does."""
    if not releases.histogram.shape[1]:
        return NO_HISTOGRAMS
    with_histogram = np.flatnonzero(releases.histogram[:, 0])
    said = releases.histogram[with_histogram]

    return HistogramColumns(releases.agent[with_histogram], said[:, 0], said[:, 1], said[:, 2:])


def histogram_thresholds(exceeds: Sequence[float], lower: float, upper: float) -> tuple[float, ...]:
    """Bring thresholds to their one spelling: in order, each once.

    Examples
    --------
    >>> histogram_thresholds([30, "15"], -30.0, 120.0)
    (15.0, 30.0)
    """
    thresholds = tuple(sorted({*valid_floats("exceeds", exceeds)}))
    for threshold in thresholds:
        require(lower <= threshold < upper, "exceeds", f"lie in [{lower!r}, {upper!r})", threshold)

    require(
        len(thresholds) <= MOST_THRESHOLDS,
        "exceeds",
        f"be at most {MOST_THRESHOLDS} thresholds",
        len(thresholds),
    )

    return thresholds


def histogram_edges(grid: FixedPoint, exceeds: Sequence[float]) -> tuple[int, ...]:
    """Give the largest grid point of each bin but the last.

    A public function of bounds and thresholds.

    The lower bound is a bin, and so is the upper bound, where clipped samples and yes/no data lie.
    Every threshold is an edge, in place of an edge of the equal bins that is nearer than half their
    width.

    Examples
    --------
    >>> edges = histogram_edges(FixedPoint(0.0, 170.0), [32.0])
    >>> [round(e * FixedPoint(0.0, 170.0).resolution) for e in edges]
    [0, 10, 20, 32, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150, 160, 170]
    """
    even = np.arange(1, EVEN_BINS) * grid.span // EVEN_BINS
    declared = np.array([grid.encode_one(threshold) for threshold in exceeds], np.int64)
    far = np.abs(even[:, None] - declared) * 2 * EVEN_BINS > grid.span
    return tuple(
        np.unique(np.concatenate([[0, grid.span - 1], even[far.all(axis=1)], declared])).tolist()
    )


def histogram_cells(edges: Sequence[int]) -> Ints:
    """Give the largest grid point of each cell but the last.

    Examples
    --------
    >>> histogram_cells([0, 16, 31]).tolist()
    [0, 2, 4, 6, 8, 10, 12, 14, 16, 17, 19, 21, 23, 25, 27, 29, 31]
    """
    ends = np.array(edges, np.int64)
    steps = ends[:-1, None] + np.diff(ends)[:, None] * np.arange(1, CELLS + 1) // CELLS
    return np.concatenate([ends[:1], steps.ravel()])


def histogram_bin_of_cells(bins: int) -> Ints:
    """Give the bin that each cell is a part of.

    Examples
    --------
    >>> histogram_bin_of_cells(3).tolist()
    [0, 1, 1, 1, 1, 1, 1, 1, 1, 2]
    """
    return np.repeat(np.arange(bins), [1, *[CELLS] * (bins - 2), 1])


@dataclass(frozen=True, slots=True)
class SampleHistogram:
    """Counts each agent's samples by bins and noises the counts when it is time.

    Parameters
    ----------
    edges : tuple of int
        As from `histogram_edges`.
    noise : GaussianNoise or LaplaceNoise
        Distribution of the noise of one bin in one release.

    Notes
    -----
    Counts are noised with the first release, and then with each that comprises three times the samples of the last
    time: those that are new are noised, once, and added to what was released. The k-th sum has k times the variance of
    one. A counter of prefix sums would renew all bins with every release and keep its past noise for each; at the usual
    horizon it has 1.9 (optimal) or 2.3 (toeplitz) times the variance at first, when it matters, and no less before some
    300 samples.

    **Privacy.** A sample is counted with one release of its agent: a replaced one changes two of these counts by one,
    so them all by 2 (l1) and `sqrt(2)` (l2). Every bin of a release has a draw of its own, so all histograms of an
    agent are one mechanism of that sensitivity. When they come follows from public counts alone.
    """

    edges: tuple[int, ...]
    noise: GaussianNoise | LaplaceNoise

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.edges) + 1

    @property
    def cells(self) -> int:
        """Number of cells of an agent's own samples."""
        return CELLS * (self.bins - 2) + 2

    def bins_of_cells(self, cells: Ints) -> Ints:
        """Private: add up an agent's cells by bins, shape (n, bins)."""
        starts = np.flatnonzero(np.diff(histogram_bin_of_cells(self.bins), prepend=-1))
        return np.asarray(np.add.reduceat(cells, starts, axis=1), np.int64)

    def possible(
        self, found: HistogramColumns, noise_variance: Floats, *, index: Ints, count: Ints
    ) -> Bools:
        """Tell which histograms an agent with these bounds and this budget may have released.

        Parameters
        ----------
        found : HistogramColumns
            As they came from someone else.
        noise_variance : float array (n,)
            What each says of its noise.
        index, count : int array (n,)
            Number of the release that each came with, and of the samples in it.

        Notes
        -----
        Nothing is told from a count that noise alone may give: ten standard deviations are.
        """
        slack = 10 * np.sqrt(np.maximum(found.number, 0) * self.noise.variance) + 1
        usual = noise_variance == self.noise.variance
        usual &= (found.number >= 1) & (found.number <= np.minimum(index, MOST_VOTES))
        usual &= (found.samples >= found.number) & (found.samples <= count)
        inside = (found.counts >= -slack[:, None]) & (
            found.counts <= (found.samples + slack)[:, None]
        )
        of_all = (
            np.abs(found.counts.sum(axis=1, dtype=np.float64) - found.samples)
            <= math.sqrt(self.bins) * slack
        )

        return np.asarray(usual & inside.all(axis=1) & of_all, np.bool_)

    def possible_of(self, releases: ReleaseColumns, noise_variance: Floats) -> Bools:
        """Tell which releases carry a histogram that is `possible`, given what each says of its noise."""
        said = releases.histogram
        histograms = HistogramColumns(releases.agent, said[:, 0], said[:, 1], said[:, 2:])
        return self.possible(histograms, noise_variance, index=releases.index, count=releases.count)

    @property
    def noised(self) -> Column[Public]:
        """As `ReleaseColumns.histogram`."""
        shape = (2 + self.bins,)
        return Column(
            "histogram_noised", np.int64, shape, privacy=PUBLIC, of="histogram", kept=True
        )

    @property
    def columns(self) -> Table:
        """All samples by cells, those since counts were released, their number then, the counts."""
        of = "histogram"
        return (
            Column("histogram_own", np.int64, (self.cells,), privacy=PRIVATE, of=of),
            Column("histogram_new", np.int64, (self.bins,), privacy=PRIVATE, of=of),
            Column("histogram_count", np.int64, privacy=PUBLIC, of=of),
            self.noised,
        )

    def samples(self, rows: Columns, who: Ints, point: Ints, starts: Ints) -> SpreadPairs:
        """Put the samples of a batch, which are in the order of their agents, into bins."""
        cells = np.searchsorted(histogram_cells(self.edges), point, side="left")
        agent = np.repeat(who, np.diff(starts, append=len(point)))
        filled, times = np.unique(agent * self.cells + cells, return_counts=True)
        rows["histogram_own"].reshape(-1)[filled] += times
        bins = histogram_bin_of_cells(self.bins)[cells]

        return SpreadPairs(counts=rows["histogram_new"], who=who, bins=bins, first=starts)

    def release(
        self, rows: Columns, agent: Ints, count: Ints, ids: NoiseIds, noise: KeyedNoise
    ) -> None:
        """Release counts of the agents that are due, with their releases after `count` samples.

        Counts are a part of the input of these releases, whose versions in `ids` change in place.
        """
        due = np.flatnonzero(self.due(rows, agent, count))
        if not len(due):
            return

        ids.version[due] = self.version(rows, agent[due], ids.version[due], noise)
        self.cast(rows, agent[due], count[due], ids.take(due), noise)

    def due(self, rows: Columns, agent: Ints, count: Ints) -> Bools:
        """Tell which agents release counts with their release after `count` samples."""
        return np.asarray(count // FACTOR >= rows["histogram_count"][agent])

    def version(self, rows: Columns, agent: Ints, version: Words, noise: KeyedNoise) -> Words:
        """Digest what is released along with the rest of the input.

        Other counts meet other noise.
        """
        for counts in rows["histogram_new"][agent].T:
            version = noise.version_of(version.view(np.int64), counts)

        return version

    def cast(
        self,
        rows: Columns,
        agent: Ints,
        count: Ints,
        ids: NoiseIds,
        noise: KeyedNoise,
    ) -> None:
        """Noise the counts since each agent's last release of them, and add them to its released sum."""
        new = rows["histogram_new"][agent]
        # Every bin has bits of its own; the law is taken of all of them in one call.
        bits = np.concatenate([noise.bits(ids, AGENT_HISTOGRAMS.at(b)) for b in range(self.bins)])
        draws = np.rint(self.noise.sample(bits)).astype(np.int64).reshape(self.bins, -1)

        said = np.concatenate(
            [np.ones((len(agent), 1), np.int64), new.sum(axis=1, keepdims=True), new], axis=1
        )
        said[:, 2:] += draws.T
        rows["histogram_noised"][agent] += said
        rows["histogram_new"][agent] = 0
        rows["histogram_count"][agent] = count

    def released(self, rows: Columns, agent: Ints) -> HistogramColumns:
        """Public: the noised histograms of some agents."""
        said = rows["histogram_noised"][agent]
        return HistogramColumns(agent, said[:, 0], said[:, 1], said[:, 2:])
