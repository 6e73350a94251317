"""Generalized least squares over releases of each agent, whose noise the counter correlates.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are
public.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.counters.base import Counter
from meanstream.operators.records import Floats, Ints

REMEMBERED = 8
"""Newest releases of an agent that are combined: older ones would lower the default's variance by 2
% at most, where a sample varies by a tenth of what the bounds allow or more (`test_own_releases.py`
has the other counters)."""
_LEAST_TABLE = 64


def least_squares_of_releases(
    settings: AgentsSettings, *, index: Ints, length: Ints, count: Ints, total: Ints
) -> tuple[Floats, Floats]:
    """Public: the generalized least-squares mean of each agent's releases, and the variance of what is noise in it.

    Parameters
    ----------
    settings : AgentsSettings
        How the releases were made.
    index, length : int array, shape (n,)
        Number of the newest release of each agent, and how many up to it are given.
    count, total : int array, shape (n, REMEMBERED)
        Samples in each and its noised sum, the newest last; 0 before the first that is given.

    Notes
    -----
    Released sums `G_i = t_i mean + sampling + noise` have the covariance `S_ij = s min(t_i, t_j) + noise_ij` for
    samples of variance `s`; the mean is `t' S^-1 G / t' S^-1 t`. Weights are made for the largest `s` that the bounds
    allow, a quarter of the squared span. With `w_i` the weight of `G_i` the sampling has the variance
    `s sum_j d_j c_j^2`, `d_j = t_j - t_{j-1}` and `c_j = sum_{i >= j} w_i`, which exceeds `s / t` by
    `s sum_j d_j (c_j - 1 / t)^2`: that is counted with the noise, for the largest `s`.

    Examples
    --------
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, noise="gaussian")
    >>> count = np.zeros((1, REMEMBERED), np.int64)
    >>> count[0, -2:] = 10, 15
    >>> found = least_squares_of_releases(settings, index=np.array([2]), length=np.array([2]), count=count,
    ...                                   total=count * settings.grid.span // 5)
    >>> [part.round(3).tolist() for part in found], settings.mean_variance(np.array([2]), np.array([15])).round(3)
    ([[0.2], [0.179]], array([0.195]))
    """
    if not len(index):
        return np.zeros(0), np.zeros(0)
    grid = settings.grid
    places = range(REMEMBERED)
    largest = 0.25 * float(grid.span) ** 2
    times = [count[:, i].astype(np.float64) for i in places]
    noise = _noise_of_sums(settings, index, length)
    whole = [[largest * times[j] + noise[i][j] for j in range(i + 1)] for i in places]
    weight = _weights(whole, times)

    newest = grid.mean(total[:, -1], count[:, -1])
    mean = newest
    later = np.zeros(len(index))
    spread = np.zeros(len(index))
    per_sample = 1.0 / times[-1]

    for i in reversed(places):
        share = weight[i] * times[i]
        of_sum = grid.mean(total[:, i], np.maximum(count[:, i], 1))
        mean = mean + np.where(share == 0.0, 0.0, share * (of_sum - newest))
        later = later + weight[i]  # the weight of a sample that came since the release before
        spread = spread + (times[i] - (times[i - 1] if i else 0.0)) * (later - per_sample) ** 2

    varies = largest * spread
    for i in places:
        for j in range(i + 1):
            varies = varies + (1.0 if i == j else 2.0) * weight[i] * weight[j] * noise[i][j]

    return mean, varies * grid.resolution**2


def _noise_of_sums(settings: AgentsSettings, index: Ints, length: Ints) -> list[list[Floats]]:
    """Covariances of the noise in sums, lower triangle; 1 and 0 for releases that are not there."""
    table = _lagged_covariances(settings.mechanism, _table_size(int(index.max()), settings.horizon))
    found = []
    for i in range(REMEMBERED):
        number = index - (REMEMBERED - 1 - i)
        row = []
        for j in range(i + 1):
            there = length >= REMEMBERED - j  # then the later one is there, too
            place = np.where(there, number, 1) - 1
            of_draws = settings.fresh.variance * table[i - j, place]
            own = 1 / 12 if i == j else 0.0  # the published integer is rounded
            row.append(np.where(there, of_draws + own, 1.0 if i == j else 0.0))

        found.append(row)

    return found


def _weights(covariance: list[list[Floats]], times: list[Floats]) -> list[Floats]:
    """Give `S^-1 t / t' S^-1 t` for a lower triangle of vectors.

    Cholesky, one number of all agents after the other.
    """
    n = len(times)
    factor: list[list[Floats]] = []
    half: list[Floats] = []
    for i in range(n):
        row: list[Floats] = []
        for j in range(i + 1):
            rest = covariance[i][j]
            for k in range(j):
                rest = rest - row[k] * (row[k] if i == j else factor[j][k])

            row.append(np.sqrt(rest) if i == j else rest / factor[j][j])

        factor.append(row)
        rest = times[i]
        for k in range(i):
            rest = rest - row[k] * half[k]

        half.append(rest / row[i])

    information = half[0] * half[0]
    for part in half[1:]:
        information = information + part * part

    found: list[Floats] = [np.zeros(0)] * n
    for i in reversed(range(n)):
        rest = half[i]
        for k in range(i + 1, n):
            rest = rest - factor[k][i] * found[k]

        found[i] = rest / factor[i][i]

    return [part / information for part in found]


def _table_size(index: int, horizon: int) -> int:
    """Give a power of two that a table of that many releases may end at, or the horizon."""
    return min(max(_LEAST_TABLE, 1 << (index - 1).bit_length()), horizon)


@lru_cache(maxsize=16)
def _lagged_covariances(counter: Counter, n: int) -> Floats:
    """Covariances of a noise with those before it, by lag and release.

    Shared, and not to be changed.
    """
    table = counter.lagged_covariance(n, REMEMBERED)
    table.flags.writeable = False
    return table
