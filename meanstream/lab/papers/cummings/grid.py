"""Grids of the central estimators: users' means as integers on [0, 1], numbers of samples in bins.

The paper's data lie in [0, 1], where a variance is at most `p (1 - p)`; everything between a user's
summary and the `Estimate` is on that scale, `(x + 1) / 2` of the answer's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.round_records import Public, Summaries

GRID = 2**20
"""Steps of [0, 1] on which means, weights and their products are held as integers."""

EXACT_SIZES = 32
PER_OCTAVE = 16
LARGEST_SIZE = 2**32


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
