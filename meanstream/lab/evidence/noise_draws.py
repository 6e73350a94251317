"""From public sums to the draws behind them.

Releases are solved for what was drawn for each, with bounds on the rest.

A sum is a linear function of increments and draws, and both the function and the number of samples
in each increment are public. So every release gives its own draw, off by what its samples add; they
lie within declared bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.linalg import solve_triangular

from meanstream.lab.evidence.counters_audit import counter_response
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.half_life_memory import ROUNDED, effective_counts
from meanstream.operators.counters.decayed import Decayed
from meanstream.operators.counters.windowed import Sliding
from meanstream.operators.records import Bools, Floats, Ints

BLOCK = 1 << 13
"""Agents at a time."""
MOST_TIMES = 4
"""That an agent's counts are noised: later counts hide the noise."""
_EQUAL = 1e-6
"""Relative: a variance that differs by less is the one that was expected."""


class PublicSums(NamedTuple):
    """Public: releases of some agents by number, shape (n, releases).

    `there` says which there are.
    """

    samples: Floats
    total: Floats
    variance: Floats
    there: Bools


class NoiseDraws(NamedTuple):
    """Public: what was drawn for releases, in deviations of a draw, shape (n, rows).

    Attributes
    ----------
    seen : float array
        Draws, and what samples add to them, which are taken to lie in the middle of the bounds.
    size : float array
        What one unit of the mean of all samples moves each.
    bound : float array
        By how much samples, and rounding, may move each from where they are taken to lie.
    usable : bool array
        Where there is a draw.
    added : float array
        New samples of each release.
    """

    seen: Floats
    size: Floats
    bound: Floats
    usable: Bools
    added: Floats

    def part(self, where: Any) -> NoiseDraws:
        """Give the draws at an index of all columns."""
        return NoiseDraws(*(cast("Any", column[where]) for column in self))


def public_sums(
    agent: Ints, index: Ints, columns: tuple[Floats, ...], most: int
) -> Iterator[PublicSums]:
    """Put releases in rows, one for each agent, some agents at a time.

    Later ones than `most` are left out.

    Parameters
    ----------
    agent, index : int array (n,)
    columns : tuple of float array (n,)
        Number of samples, sum in grid units, and the variance of its noise.
    most : int
        Releases of an agent.
    """
    early = np.flatnonzero((index >= 1) & (index <= most))
    early = early[np.argsort(agent[early], kind="stable")]
    starts = np.arange(0, int(agent.max(initial=-1)) + 1, BLOCK)
    ends = np.searchsorted(agent[early], [*starts, np.iinfo(np.int64).max])

    for start, first, last in zip(starts, ends[:-1], ends[1:], strict=True):
        rows = early[first:last]
        in_rows = np.full((3, min(BLOCK, int(agent.max()) + 1 - int(start)), most), np.nan)
        for row, column in zip(in_rows, columns, strict=True):
            row[agent[rows] - start, index[rows] - 1] = column[rows]

        samples, total, variance = np.nan_to_num(in_rows)
        yield PublicSums(samples, total, variance, ~np.isnan(in_rows[0]))


class DrawsOfSums:
    """Solves public sums for their draws.

    Parameters
    ----------
    settings : AgentsSettings
        What was declared.
    most : int
        Releases of an agent that are looked at, from the first.
    """

    def __init__(self, settings: AgentsSettings, most: int) -> None:
        self._settings = settings
        self._counter = settings.mechanism

        if isinstance(self._counter, Sliding):  # increments are what is solved for
            self._response = _increment_response(self._counter, most)
            work = np.eye(most)
        else:
            self._response = counter_response(self._counter, most)
            work = self._counter.workload(most)

        self._strategy = np.asarray(solve_triangular(self._response, work, lower=True))
        self._rounding = np.abs(np.linalg.inv(self._response)).sum(axis=1)

    def of(self, sums: PublicSums) -> NoiseDraws:
        """Give the draws, agent by agent, up to where it is not clear any more what a sum is of."""
        total, added, clear = self._increments(sums)
        clear = np.logical_and.accumulate(clear & sums.there, axis=1)
        added, span = np.where(clear, added, 0.0), float(self._settings.grid.span)
        fresh = self._settings.fresh.variance**0.5
        size = added @ self._strategy.T
        seen = solve_triangular(
            self._response, np.where(clear, total, 0.0).T, lower=True, check_finite=False
        ).T
        bound = 0.5 * span * (added @ np.abs(self._strategy).T) + self._rounding

        return NoiseDraws(
            (seen - 0.5 * span * size) / fresh, span * size / fresh, bound / fresh, clear, added
        )

    def _increments(self, sums: PublicSums) -> tuple[Floats, Floats, Bools]:
        """Give the noised vector that draws are solved from, new samples of each release, and where both are known."""
        if isinstance(self._counter, Sliding):
            return self._of_window(sums, self._counter)
        if isinstance(self._counter, Decayed):
            return self._of_half_life(sums, self._counter)

        added = np.diff(sums.samples, axis=1, prepend=0)
        return sums.total, added, added > 0

    def _of_half_life(self, sums: PublicSums, counter: Decayed) -> tuple[Floats, Floats, Bools]:
        """Undo what scales a sum to its effective number of samples.

        The declared variance shows it.

        After a turn without samples, or a sum that begins again, no whole number of new samples
        explains what is declared, and the agent is left there.
        """
        index = np.arange(1, sums.samples.shape[1] + 1)
        rounding = 2 * ROUNDED / (1.0 - counter.decay**2)
        scaled = counter.noise_variance(index) * self._settings.fresh.variance + rounding
        scale = np.sqrt(np.maximum(sums.variance - ROUNDED, 0.0) / scaled)
        scale[scale == 0] = np.inf
        weight = sums.samples / scale
        decay = np.append(0.0, counter.workload(len(index)).diagonal(-1))
        added = weight - decay * np.pad(weight[:, :-1], ((0, 0), (1, 0)))
        whole = np.maximum(np.rint(added), 0.0)
        clear = (whole > 0) & (np.abs(added - whole) <= _EQUAL * np.maximum(weight, 1.0))
        squared = np.zeros(len(whole))

        for k in range(len(index)):
            squared = decay[k] ** 2 * squared + whole[:, k]
            clear[:, k] &= (
                effective_counts(weight[:, k], np.maximum(squared, 1.0)) == sums.samples[:, k]
            )

        return sums.total / scale, whole, clear

    def _of_window(self, sums: PublicSums, counter: Sliding) -> tuple[Floats, Floats, Bools]:
        """Take windows apart.

        A sum is of the newest increments, and the declared variance shows of how many.
        """
        n, most = sums.samples.shape
        ends = np.zeros((2, n, most + 1))  # of samples, and of their noised sum
        clear = np.zeros((n, most), np.bool_)
        rows = np.arange(n)

        for k in range(most):
            parts = np.arange(1, k + 2)
            known = [counter.part_covariance(p, p, np.array([k + 1]))[0] for p in parts.tolist()]
            expected = np.array(known) * self._settings.fresh.variance + ROUNDED * parts
            away = np.abs(sums.variance[:, k, np.newaxis] / expected - 1.0)
            found = away.argmin(axis=1)
            clear[:, k] = away[rows, found] <= _EQUAL
            before = k - found
            ends[:, :, k + 1] = (
                np.stack([sums.samples[:, k], sums.total[:, k]]) + ends[:, rows, before]
            )

        added, total = np.diff(ends, axis=2)
        return total, added, clear & (added > 0)


def _increment_response(counter: Sliding, n: int) -> Floats:
    """Give the noise of each increment when one draw is 1, a column each."""
    state = counter.init(n)
    rows = np.arange(n)
    noise = np.zeros((n, n))
    for k in range(n):
        noise[k] = counter.increment(state, rows, (rows == k).astype(np.float64))

    return noise


class CountDraws(NamedTuple):
    """Public: the draws of bins, shape (agents, times, bins), and the releases that they came with.

    Attributes
    ----------
    draws : NoiseDraws
    release : int array (agents, times)
        Index of the release; 0 where there is none.
    """

    draws: NoiseDraws
    release: Ints

    def of_releases(self, n: int, most: int) -> tuple[Ints, Ints, Ints]:
        """Give agents below `n`, times, and places of releases below `most`, one entry for each that there is."""
        agent, time = np.nonzero((self.release[:n] >= 1) & (self.release[:n] <= most))
        return agent, time, self.release[agent, time] - 1


def draws_of_counts(said: Ints, stddev: float) -> Iterator[CountDraws]:
    """Give the draws of bins, some agents at a time, up to `MOST_TIMES` of each.

    Parameters
    ----------
    said : int array (n, 4 + bins)
        Agent and release, in order, and of that release votes or histograms so far: how many times
        noised, of how many, and the counts.
    stddev : float
        Of a draw.
    """
    agent = said[:, 0]
    counts = said[:, 2:]
    same = np.diff(agent, prepend=-1) == 0
    new = np.where(same[:, np.newaxis], np.diff(counts, axis=0, prepend=0), counts)
    new_times = np.flatnonzero((new[:, 0] == 1) & (counts[:, 0] <= MOST_TIMES))

    for block in range(0, int(agent.max(initial=-1)) + 1, BLOCK):
        rows = new_times[slice(*np.searchsorted(agent[new_times], [block, block + BLOCK]))]
        where = agent[rows] - block, counts[rows, 0] - 1
        counted = np.full((BLOCK, MOST_TIMES, counts.shape[1] - 1), np.nan)
        counted[where] = new[rows, 1:]
        release = np.zeros((BLOCK, MOST_TIMES), np.int64)
        release[where] = said[rows, 1]

        number = np.nan_to_num(counted[:, :, :1])
        seen = (np.nan_to_num(counted[:, :, 1:]) - 0.5 * number) / stddev
        bound = np.broadcast_to((0.5 * number + 0.5) / stddev, seen.shape)
        usable = np.broadcast_to(~np.isnan(counted[:, :, :1]), seen.shape)
        added = np.broadcast_to(number, seen.shape)
        yield CountDraws(NoiseDraws(seen, seen, bound, usable, added), release)
