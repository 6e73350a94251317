"""The grid of Cummings et al.'s estimators: sizes and means in bands, scores, and windows around a mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.round_records import Public, Summaries

FAILURE = 0.1
"""The paper's beta: probability that some window does not hold what it should."""


def _users_bound(n: int, deviation: float, failure: float) -> float:
    """Bound what n users' true means stray from the population's, f_D.

    For normal means of this standard deviation.

    Notes
    -----
    The paper assumes f_D known. Laws with exponential tails exceed it, by what the factor of `operators.
    cummings_deviation` on the window's deviation covers.
    """
    return deviation * float(-ndtri(failure / (2 * max(n, 1))))


def window_sampling_bound(size: npt.ArrayLike, mean: float, failure: float) -> Floats:
    """Bound what the mean of `size` samples in [0, 1] strays from their expectation, f_Bin.

    By Bernstein's inequality.

    Parameters
    ----------
    size : int array
        Number of samples.
    mean : float
        Expectation whose `mean (1 - mean)` bounds the variance of a sample.
    failure : float
        Probability of straying further.

    Examples
    --------
    >>> window_sampling_bound([1, 100, 10_000], 0.5, 0.05).round(4)
    array([3.0617, 0.1487, 0.0137])
    """
    per_sample = math.log(2.0 / failure) / np.asarray(size, dtype=np.float64)
    return np.asarray(
        per_sample / 3.0 + np.sqrt((per_sample / 3.0) ** 2 + 2.0 * mean * (1.0 - mean) * per_sample)
    )


def window_size_bound(
    size: npt.ArrayLike, n: int, mean: float, deviation: float, failure: float = FAILURE
) -> Floats:
    """Bound what n users' observed means stray from the population's, f_D^k(n, deviation, failure), by size.

    References
    ----------
    Cummings et al., Lemma G.1 (upper bound) with `failure / (2 n)`, as in its proof.
    """
    between = _users_bound(n, deviation, failure / 2)
    farthest = min(0.5, min(mean, 1.0 - mean) + between)
    return between + window_sampling_bound(size, farthest, failure / (2 * max(n, 1)))


def window_initial_error(mean: float, n: int, epsilon: float, failure: float = FAILURE) -> float:
    """Bound the error of the mean of one sample from each of n users with Laplace noise, alpha of Lemma F.1.

    Parameters
    ----------
    mean : float
        The noised mean itself.
    n : int
        Number of users who gave a sample.
    epsilon : float
        Privacy of the mean.
    failure : float
        Probability that the error is larger.
    """
    at_least_one = max(n, 1)
    log = math.log(4.0 / failure)
    spread = (
        math.sqrt(
            12.0 * min(mean, 1.0 - mean) * log / at_least_one + 36.0 * log**2 / at_least_one**2
        )
        + 6.0 * log / at_least_one
    )

    return min(2.0 * max(spread, math.log(2.0 / failure) / (epsilon * at_least_one)), 1.0)


def window_tight_initial_error(
    mean: float, n: int, epsilon: float, failure: float = FAILURE
) -> float:
    """Bound the same error without Lemma F.1's constants.

    Bernstein's inequality, and the Laplace tail.
    """
    at_least_one = max(n, 1)
    noise = math.log(2.0 / failure) / (epsilon * at_least_one)
    farthest = min(0.5, min(mean, 1.0 - mean) + 1.0 / math.sqrt(at_least_one))
    return min(float(window_sampling_bound(at_least_one, farthest, failure / 2)) + noise, 1.0)


GRID = 2**20
"""Steps of [0, 1] on which means, weights and their products are held as integers."""

EXACT_SIZES = 32
PER_OCTAVE = 16


def _sizes() -> Ints:
    octaves = np.arange(PER_OCTAVE * 27 + 1) / PER_OCTAVE
    return np.unique(
        np.concatenate([np.arange(1, EXACT_SIZES), np.rint(EXACT_SIZES * 2.0**octaves)])
    ).astype(np.int64)


SIZES = _sizes()
"""Least size of each bin: 1 to 32 exactly, then 16 per octave. A user counts as the least size of
its bin: at most 6 % below its own, which costs the weighted mean less than a thousandth of its
precision."""


def grid_size_bins(count: Ints) -> Ints:
    """Tell the bin of each number of samples, as an index of `SIZES`.

    Sizes beyond the last bin belong to it.
    """
    return np.searchsorted(SIZES, count, side="right").astype(np.int64) - 1


def grid_means(summaries: Summaries) -> Floats:
    """Private: each user's mean on [0, 1]."""
    return np.asarray(summaries.total / summaries.count / summaries.span, dtype=np.float64)


def grid_first_samples(summaries: Summaries) -> Floats:
    """Private: each user's earliest sample on [0, 1]."""
    return np.asarray(summaries.first / summaries.span, dtype=np.float64)


DEVIATION_SHARE = 0.05
ENOUGH = 100
"""Users who tell the deviation well enough."""

Bands = Sequence[Sequence[float]]
"""Ranks by size, each from, inclusive, to, exclusive; 0 are the smallest sizes."""

EVERYBODY: Bands = ((0.0, 1.0),)
SMALLEST: Bands = ((0.0, 0.1),)
LARGEST: Bands = ((0.95, 1.0),)


def cummings_grid_layout(sizes: Sequence[float], *, literal: bool) -> dict[str, Bands]:
    """Choose who makes the initial mean, the initial deviation and the weighted mean, by public size.

    Parameters
    ----------
    sizes : sequence of float (bins,)
        Number of users of each size.
    literal : bool
        Paper mode: the deviation is told by the twentieth with the most samples. Tuned mode: by the
        smallest users that are half as large as the one who holds the median *sample*, a twentieth
        of all and at most half of those, unless that is fewer than a hundred; the larger ones are
        worth more in the weighted mean.
    """
    counts = np.asarray(sizes, dtype=np.float64)
    users = max(counts.sum(), 1.0)
    held = np.cumsum(counts * SIZES)
    if literal or held[-1] == 0.0:
        deviation = LARGEST
    else:
        typical = SIZES[int(np.searchsorted(held, 0.5 * held[-1]))]
        start = max(float(counts[max(typical / 2.0, 2.0) > SIZES].sum() / users), SMALLEST[0][1])
        rest = max(1.0 - start, 0.0)
        deviation = ((start, start + min(DEVIATION_SHARE, rest, max(0.5 * rest, ENOUGH / users))),)

    low, high = deviation[0]
    return {
        "mean": SMALLEST,
        "deviation": deviation,
        "weighted": ((SMALLEST[0][1], low), (high, 1.0)),
    }


def grid_bands(role: str, public: Public) -> Bands:
    """Return the ranks of a role as released with the sizes; everyone where sizes are private."""
    chosen: Bands = public.get("bands", {}).get(role, EVERYBODY)
    return chosen


def in_grid_bands(summaries: Summaries, public: Public, bands: Bands) -> Bools:
    """Tell whose rank by size lies in the bands, where sizes are public.

    Users of one size rank by their hash.

    Parameters
    ----------
    summaries : Summaries
        Of which only the size and the id are used.
    public : dict
        With the number of users of each size as `sizes`; without it, sizes are private and everyone
        is queried.
    bands : tuple of (float, float)
        Within [0, 1].

    Notes
    -----
    **Privacy.** Bands of different ranks are disjoint whatever the users' values are: sizes are public here.
    """
    if "sizes" not in public:
        return np.ones(len(summaries), np.bool_)
    sizes = np.asarray(public["sizes"], dtype=np.float64)
    before = np.cumsum(sizes) - sizes
    bins = grid_size_bins(summaries.count)
    position = (summaries.user[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    rank = (before[bins] + position * sizes[bins]) / max(sizes.sum(), 1.0)

    return np.asarray(sum((rank >= low) & (rank < high) for low, high in bands), dtype=np.bool_)


def grid_band_sizes(public: Public, bands: Bands) -> Floats:
    """Predict the number of users of each size in the bands, from the public sizes."""
    sizes = np.asarray(public["sizes"], dtype=np.float64)
    total = max(sizes.sum(), 1.0)
    before = np.cumsum(sizes) - sizes
    inside = np.zeros(len(sizes))

    for low, high in bands:
        inside += np.maximum(
            np.minimum(before + sizes, high * total) - np.maximum(before, low * total), 0.0
        )

    return inside


def grid_interval_scores(counts: Ints, twice_rank: int) -> Ints:
    """Score how close each interval of values comes to holding the value of a rank, for `noisy_argmax`.

    Parameters
    ----------
    counts : int array (intervals,)
        Private: how many values lie in each interval, ascending.
    twice_rank : int
        Twice the rank from the top, a median's for twice the number of values: `sum(counts)`.

    Returns
    -------
    int64 array (intervals,)
        Minus twice the number of values that would have to move; 0 where the value of that rank
        lies.

    Notes
    -----
    **Privacy.** Moving one value changes each score by at most 2, and so does dropping one while `twice_rank` follows
    the number of values.
    """
    at_least = np.cumsum(counts[::-1])[::-1]
    above = at_least - counts
    missing = np.maximum(np.maximum(2 * above - twice_rank, twice_rank - 2 * at_least), 0)
    return np.asarray(-missing, dtype=np.int64)
