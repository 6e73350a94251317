"""Bounds that nobody knows, from a noisy histogram of magnitudes and a part of epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from meanstream.operators.noise.distributions import LaplaceNoise
from meanstream.operators.noise.draw_owners import BOUND_COUNTS
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds, keyed_owner_words
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require

PURPOSE = "learned bounds"
SMALLEST, LARGEST = -20, 40
"""Powers of two between which magnitudes have bins; larger ones are in the outermost."""
FINENESS = ((300.0, 1), (20_000.0, 2), (math.inf, 4))
"""Bins of each octave, by the number of counted rows times epsilon up to which it has so many."""
UNIT = 1_000
"""What a row of a small group counts; those of larger groups count less, in whole numbers."""
VISIBLE = 28.0
"""Rows times epsilon from which on a group is seen by itself, by twice the least that is kept."""
FALSE_BINS = 0.03
"""Expected number of empty bins near the values that are taken for full ones."""
NEAR = 8
"""Octaves below the largest magnitude whose bins are near it."""
LIKELY = 4.0
SURELY = 12.0
PER_OCTAVE = 1.0
"""Logarithms of how much rarer noise passes: for a bin that leads alone, for one that is surely
full, and for one that is so many octaves beyond the largest of these. A false bin far out would
cost more than all others."""
OF_GROUPS = 0.4
"""Part of the variance of what bounds cut off that is taken to be between groups.

Cut values are often those of a few groups, which lose far more than the average.
"""
OF_MEANS = 0.1
"""Likewise, part of the variance of values: how far other groups may replace a noisy mean."""


def magnitude_edges(fineness: int) -> Floats:
    """Edges of the histogram's bins: 0, and powers of two of both signs, to three digits.

    Examples
    --------
    >>> edges = magnitude_edges(2)
    >>> edges[len(edges) // 2 :][:3].tolist(), float(edges[-1])
    ([0.0, 9.54e-07, 1.35e-06], 1100000000000.0)
    """
    powers = 2.0 ** (np.arange(fineness * SMALLEST, fineness * LARGEST + 1) / fineness)
    rounded = np.array([float(f"{power:.3g}") for power in powers.tolist()])
    return np.concatenate([-rounded[::-1], [0.0], rounded])


def row_weights(sizes: Ints, epsilon: float) -> Ints:
    """Weights of rows by the sizes of their groups: groups that are seen by themselves count alike.

    A small group whose values are far from those of others is lost among the rows of large ones.

    Examples
    --------
    >>> row_weights(np.array([10, 560, 56_000]), 0.05).tolist()
    [1000, 1000, 10]
    """
    least = VISIBLE / epsilon
    weight: Floats = np.floor(UNIT * np.minimum(least / sizes, 1.0))
    return weight.astype(np.int64)


def noisy_magnitudes(
    value: Floats, weight: Ints, *, epsilon: float, units: int, source: KeyedNoise
) -> tuple[Floats, Floats]:
    """Count values by bins, with noise, and give the counts and the edges of the bins.

    Parameters
    ----------
    value, weight : array (n,)
        Values, and what each counts, from 0 to `UNIT`: weights are public.
    epsilon : float
        Of the histogram.
    units : int
        Rows that are protected together.
    source : KeyedNoise
        Of the deployment.

    Notes
    -----
    **Privacy.** A value that is replaced leaves one bin and enters another: 2 `UNIT` in the l1
    norm, and for several values of one unit as many times that. Discrete Laplace noise on all bins,
    empty ones among them. Counts that noise alone may have made are 0.
    """
    total = float(weight.sum()) / UNIT
    fineness = next(number for most, number in FINENESS if total * epsilon / units <= most)
    edges = magnitude_edges(fineness)
    n_bins = len(edges) - 1

    inside = np.clip(value, edges[0], np.nextafter(edges[-1], 0))
    bins = np.searchsorted(edges, inside, side="right") - 1
    exact = np.bincount(bins, weight, n_bins).astype(np.int64)

    # The draws of one histogram are new for every other histogram.
    keyed = source.derived(PURPOSE, {"epsilon": epsilon, "units": units, "bins": n_bins})
    number = np.arange(n_bins, dtype=np.int64)

    version = np.bitwise_xor.reduce(keyed.version_of(number, exact))
    owner = np.repeat(keyed_owner_words(["bins"]).reshape(-1, 2), n_bins, axis=0)
    ids = NoiseIds(owner, number, np.full(n_bins, version, np.uint64))

    # All bins are noised, empty ones too.
    noise = LaplaceNoise(2 * units * UNIT / epsilon)
    noisy = exact + noise.sample(keyed.bits(ids, BOUND_COUNTS.at()))

    return np.where(_is_full(noisy / noise.scale, edges), noisy, 0.0) / UNIT, edges


def _is_full(counts: Floats, edges: Floats) -> Bools:
    """Say which bins are full, by noisy counts in units of the noise's scale."""
    magnitude = np.maximum(np.abs(edges[1:]), np.abs(edges[:-1]))
    other = np.where(magnitude > magnitude.min(), counts, 0.0)  # many values are 0 in many columns
    is_sure = other > math.log(len(counts) / 2) + SURELY

    if not is_sure.any():
        # Where nothing is sure, the likeliest bin leads, unless noise may well have made it.
        is_sure = (other == other.max()) & (other > math.log(len(counts) / 2) + LIKELY)
        if not is_sure.any():
            return np.zeros(len(counts), np.bool_)

    largest = magnitude[is_sure].max()

    # Bins that are near the largest may be full sooner than the many below, and those far out.
    octaves = np.log2(magnitude / largest)
    near = len(counts) * NEAR / (LARGEST - SMALLEST)

    number = np.where(octaves > -NEAR, near, float(len(counts)))
    least = np.log(number / (2 * FALSE_BINS)) + PER_OCTAVE * np.maximum(octaves, 0.0)
    return np.asarray(counts > least)


def best_bounds(
    counts: Floats, edges: Floats, sizes: Ints, *, epsilon: float
) -> tuple[float, float]:
    """Choose the bounds of least expected squared error of means, by a noisy histogram.

    Parameters
    ----------
    counts, edges : float array
        Noisy counts of bins, and their edges.
    sizes : int array
        Public: rows of each group.
    epsilon : float
        For one row's part in the means.

    Notes
    -----
    Wide bounds cost noise, narrow ones a bias. Noise has the variance `2 (width / (n epsilon))^2`
    in a mean of n rows, less what the other groups know. The bias is what is cut off on average,
    and what of its variance may lie between groups.

    Examples
    --------
    >>> edges = np.array([0.0, 1.0, 2.0, 4.0, 8.0])
    >>> best_bounds(np.array([900.0, 80.0, 0.0, 0.0]), edges, np.full(10, 98), epsilon=1.0)
    (0.0, 2.0)
    """
    full = np.flatnonzero(counts)
    rule = "be given: too few values show bounds at this epsilon, a part of which is spent"
    require(len(full) > 0, "lower", rule, None)
    unique, groups = np.unique(sizes, return_counts=True)
    errors = ExpectedErrors(
        weight=counts[full] / counts[full].sum(),
        middle=(edges[full] + edges[full + 1]) / 2,
        noise=2 / (unique * epsilon) ** 2,
        groups=groups.astype(np.float64),
    )

    # The ends of full bins are all that can be best.
    pairs = [
        (lower, upper)
        for lower in edges[full].tolist()
        for upper in edges[full + 1].tolist()
        if lower < upper
    ]

    return min(pairs, key=errors.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedErrors:
    """Public: what bounds cost, by a noisy histogram and the sizes of groups.

    Attributes
    ----------
    weight, middle : float array
        Shares of values in full bins, and the middles of these.
    noise, groups : float array
        Variance of the noise in a mean within bounds of width 1, and how many groups have it.
    """

    weight: Floats
    middle: Floats
    noise: Floats
    groups: Floats

    def of(self, bounds: tuple[float, float]) -> float:
        """Give the expected squared error of a mean."""
        inside = np.clip(self.middle, *bounds)
        spread = float(self.weight @ (inside - self.weight @ inside) ** 2)
        noise = (bounds[1] - bounds[0]) ** 2 * self.noise

        # What others know takes the place of a mean that is mostly noise.
        between = OF_MEANS * spread
        variance_known = noise * between / (noise + between) if between > 0 else noise

        # What is cut off above and below, on average, and what may lie between groups.
        cut = self.middle - inside
        above = float(self.weight @ np.maximum(cut, 0.0))
        below = float(self.weight @ np.maximum(-cut, 0.0))
        of_groups = OF_GROUPS * float(self.weight @ cut**2)

        return (
            float(np.average(variance_known, weights=self.groups)) + above**2 + below**2 + of_groups
        )
