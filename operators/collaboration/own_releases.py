"""All of an agent's own releases as one.

Generalized least squares over the newest of them, never worse than the last.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are
public.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.sorting import order_by_agent
from meanstream.operators.counters.base import Counter
from meanstream.operators.records import Bools, Floats, Ints, ReleaseColumns
from meanstream.operators.validation import require_version

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
    rows = []
    for i in range(REMEMBERED):
        number = index - (REMEMBERED - 1 - i)
        row = []
        for j in range(i + 1):
            is_made = length >= REMEMBERED - j  # then the later one is there, too
            row_number = np.where(is_made, number, 1) - 1
            of_draws = settings.fresh.variance * table[i - j, row_number]
            rounding = 1 / 12 if i == j else 0.0  # the published integer is rounded
            row.append(np.where(is_made, of_draws + rounding, 1.0 if i == j else 0.0))

        rows.append(row)

    return rows


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
            left = covariance[i][j]
            for k in range(j):
                left = left - row[k] * (row[k] if i == j else factor[j][k])

            row.append(np.sqrt(left) if i == j else left / factor[j][j])

        factor.append(row)
        left = times[i]
        for k in range(i):
            left = left - row[k] * half[k]

        half.append(left / row[i])

    information = half[0] * half[0]
    for entry in half[1:]:
        information = information + entry * entry

    solution: list[Floats] = [np.zeros(0)] * n
    for i in reversed(range(n)):
        left = half[i]
        for k in range(i + 1, n):
            left = left - factor[k][i] * solution[k]

        solution[i] = left / factor[i][i]

    return [entry / information for entry in solution]


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


CHUNK = 1024
"""Agents per saved chunk."""
SNAPSHOT_VERSION = 1
_CLOSE = 1e-9
_BLOCK = 1 << 14
_COLUMNS = ("index", "length", "count", "total", "mean", "noise_variance")


class OwnReleases:
    """Public: the newest releases of every agent, and the one mean that each agent's own releases say together.

    Released: nothing new; it reads public releases and is public.

    Parameters
    ----------
    settings : AgentsSettings
        How the releases were made. In paper mode nothing is combined: the papers read the newest
        release; nor where older samples weigh less: the newest release holds what is left of them.
    agents : int
        Room for that many agents; it grows.

    Attributes
    ----------
    combines : bool
        Whether anything is combined.

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing.

    The noise of an agent's releases is correlated, by the counter's exact covariance; so are their
    samples. Of all linear unbiased combinations the generalized least-squares one (Aitken 1935) has
    the least variance. Its weights need the variance of one sample. They are made for the largest
    that the bounds allow, a quarter of the squared width (Popoviciu): then the combination has no
    more variance than the newest release *whatever* the true one is, because the mean of all
    samples has the least sampling variance, and what the weights add to it is outweighed by what
    they take from the noise even at the largest. `noise_variance` holds the noise of the
    combination and what its weights add to the sampling, at the largest: some hundredths of it.
    `count` stays that of the newest release, so the variance of one sample over it is the rest, and
    the whole is never too small.

    A release that is not as the settings say, of other noise or of a count that did not grow, is
    left as it is, and nothing before it is used; neither is what lies before a release that is
    missing.

    The same bits for every batch and on every host: only elementwise operations in a fixed order.

    Examples
    --------
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, noise="gaussian")
    >>> count = np.array([10, 15, 20])
    >>> releases = ReleaseColumns(agent=np.zeros(3, np.int64), index=np.array([1, 2, 3]), count=count,
    ...                           total=settings.grid.span // 2 * count, mean=np.full(3, 0.5),
    ...                           noise_variance=settings.mean_variance(np.array([1, 2, 3]), count))
    >>> own = OwnReleases(settings)
    >>> own.observe(releases)
    >>> together = own.combined(releases.take(np.array([2])))
    >>> together.mean.tolist(), (together.noise_variance / releases.noise_variance[2:]).round(2).tolist()
    ([0.5], [0.9])
    """

    def __init__(self, settings: AgentsSettings, agents: int = 0) -> None:
        self._settings = settings
        self.combines = settings.mode == "tuned" and not settings.remembers.forgets
        self._rows = _no_rows(agents)
        self._changed: set[int] = set()
        self._stale: Bools = np.zeros(agents, np.bool_)  # whose mean is of older releases

    def observe(self, releases: ReleaseColumns) -> None:
        """Take new releases; those of an agent in the order in which they were made."""
        if not self.combines or not len(releases):
            return
        self._reserve(int(releases.agent.max()) + 1)
        fits = self._fits(releases)

        for turn in _turns(releases.agent):
            self._remember(releases, fits, turn)

        # What they say together is computed once it is read: more of them may come before.
        self._stale[releases.agent] = True
        self._changed.update(np.flatnonzero(np.bincount(releases.agent // CHUNK)).tolist())

    def combined(self, latest: ReleaseColumns) -> ReleaseColumns:
        """Give each newest release the mean of all that are remembered of its agent, and the variance of its noise.

        Parameters
        ----------
        latest : ReleaseColumns
            At most one release per agent. One that was not observed stays as it is.
        """
        rows = self.columns()
        remembered = np.flatnonzero(latest.agent < len(rows["index"]))
        agent = latest.agent[remembered]
        same = (rows["length"][agent] > 1) & (rows["index"][agent] == latest.index[remembered])
        same &= (rows["total"][agent, -1] == latest.total[remembered]) & (
            rows["count"][agent, -1] == latest.count[remembered]
        )
        same &= rows["noise_variance"][agent] < latest.noise_variance[remembered]
        rows_combined = remembered[same]

        mean = latest.mean.astype(np.float64)
        noise = latest.noise_variance.astype(np.float64)  # copies
        mean[rows_combined] = rows["mean"][agent[same]]
        noise[rows_combined] = rows["noise_variance"][agent[same]]

        return replace(latest, mean=mean, noise_variance=noise)

    def renumbered(self, agents: int, number: Ints) -> OwnReleases:
        """Give the same with room for that many agents, of which those of today have these numbers."""
        if not self.combines:
            return self
        fresh = OwnReleases(self._settings, agents)
        for name, column in self.columns().items():
            fresh._rows[name][number] = column

        return fresh

    def columns(self) -> dict[str, np.ndarray]:
        """Plain arrays, one row per agent."""
        stale = np.flatnonzero(self._stale)
        for start in range(0, len(stale), _BLOCK):
            self._combine(stale[start : start + _BLOCK])

        self._stale[stale] = False
        return self._rows

    @classmethod
    def of_columns(cls, settings: AgentsSettings, columns: dict[str, np.ndarray]) -> OwnReleases:
        """Make the same of its arrays."""
        own = cls(settings)
        own._rows = {name: columns[name] for name in _COLUMNS}
        own._stale = np.zeros(len(columns["index"]), np.bool_)
        return own

    def changes(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Give the chunks of 1024 agents that changed since the last `mark_clean`.

        Views, with a version.
        """
        columns = self.columns()
        for chunk in sorted(self._changed):
            rows_of_chunk = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
            rows = {name: column[rows_of_chunk] for name, column in columns.items()}
            yield chunk, {"version": np.array(SNAPSHOT_VERSION), **rows}

    def mark_clean(self) -> None:
        """Forget what changed: it has been saved."""
        self._changed.clear()

    def restore(self, chunk: int, state: dict[str, np.ndarray]) -> None:
        """Put one chunk back."""
        require_version(state, SNAPSHOT_VERSION)
        first = chunk * CHUNK
        self._reserve(first + len(state["index"]))

        for name in _COLUMNS:
            self._rows[name][first : first + len(state[name])] = state[name]

        self._stale[first : first + len(state["index"])] = False

    # -- internals ---------------------------------------------------------------------------------------------

    def _fits(self, releases: ReleaseColumns) -> Bools:
        """Say which releases have the noise that the settings say."""
        possible = (
            (releases.index >= 1)
            & (releases.index <= self._settings.horizon)
            & (releases.count >= 1)
        )
        index = np.where(possible, releases.index, 1)
        count = np.where(possible, releases.count, 1)
        noise = self._settings.mean_variance(index, count)

        return possible & (np.abs(releases.noise_variance - noise) <= _CLOSE * noise)

    def _remember(self, releases: ReleaseColumns, fits: Bools, which: Ints) -> None:
        """Put one release of each of some agents after what is remembered of it."""
        rows, agent, fits = self._rows, releases.agent[which], fits[which]
        index, count, total = (
            column[which] for column in (releases.index, releases.count, releases.total)
        )
        goes_on = fits & (rows["index"][agent] == index - 1) & (rows["count"][agent, -1] < count)
        length = np.where(goes_on, rows["length"][agent], 0) + 1
        further = np.flatnonzero(goes_on)

        for name, newest in (("count", count), ("total", total)):
            past = rows[name][agent[further], 1:]
            rows[name][agent] = 0
            rows[name][agent[further], :-1] = past
            rows[name][agent, -1] = newest

        rows["index"][agent] = np.where(fits, index, 0)
        rows["length"][agent] = np.where(fits, np.minimum(length, REMEMBERED), 0)

    def _combine(self, agent: Ints) -> None:
        """Compute what the releases of some agents say together."""
        rows = {name: self._rows[name][agent] for name in ("index", "length", "count", "total")}
        several = np.flatnonzero(rows["length"] > 1)
        mean, variance = least_squares_of_releases(
            self._settings, **{name: column[several] for name, column in rows.items()}
        )
        self._rows["mean"][agent[several]] = mean
        self._rows["noise_variance"][agent[several]] = variance

    def _reserve(self, needed: int) -> None:
        room = len(self._rows["index"])
        if needed > room:
            grown = _no_rows(max(needed, 2 * room))
            for name, column in self._rows.items():
                grown[name][:room] = column

            self._rows = grown
            self._stale = np.append(self._stale, np.zeros(len(grown["index"]) - room, np.bool_))


def _no_rows(agents: int) -> dict[str, np.ndarray]:
    """Give rows of agents without releases.

    Columns are the newest index, how many releases up to it are remembered, their counts and totals
    (the last one is the newest), and what they say together.
    """
    wide = (agents, REMEMBERED)
    narrow = (agents,)
    shapes = {"index": narrow, "length": narrow, "count": wide, "total": wide}
    reals = {name: np.zeros(agents) for name in ("mean", "noise_variance")}

    return {**{name: np.zeros(shape, np.int64) for name, shape in shapes.items()}, **reals}


def _turns(agent: Ints) -> Iterator[Ints]:
    """Give places, each agent at most once at a time, in its order.

    Of many releases of an agent the newest.
    """
    order = order_by_agent(agent, int(agent.max()) + 1)
    ends = np.append(np.flatnonzero(np.diff(agent[order])) + 1, len(agent))
    size = np.diff(ends, prepend=0)
    left = np.repeat(ends, size) - np.arange(len(agent))  # 1 for the newest

    for turn in range(min(int(size.max()), REMEMBERED), 0, -1):
        yield order[left == turn]
