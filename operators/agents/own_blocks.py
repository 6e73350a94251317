"""An agent's own samples in pairs and blocks, whose means show how samples depend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meanstream.operators.agents.agent_memory import Memory
from meanstream.operators.agents.sorting import SortedSamples
from meanstream.operators.agents.state_columns import (
    PRIVATE,
    PUBLIC,
    Column,
    Columns,
    Table,
    declared_columns,
)
from meanstream.operators.records import Ints

PAIR_COLUMNS = (Column("pair_first", np.int64, privacy=PRIVATE, of="dependence"),)
"""The sample that waits for its partner."""


class OwnPairs(NamedTuple):
    """Private: samples 2i-1 and 2i of the agents of a batch.

    Attributes
    ----------
    waits : int array (m,)
        1 where the first sample of a pair came before the batch, else 0.
    number : int array (m,)
        How many pairs each agent of the batch completes.
    difference : int array (p,)
        Absolute difference of the two samples, in grid units, in the order of their agents.
    """

    waits: Ints
    number: Ints
    difference: Ints


def own_pairs(rows: Columns, who: Ints, point: Ints, starts: Ints, added: Ints) -> OwnPairs:
    """Pair the samples of a batch; the samples without a partner are put into the state.

    Parameters
    ----------
    rows : dict
        The agents' state; `count` is that before the batch.
    who, starts, added : int array, shape (m,)
        Agents of the batch, where the samples of each begin, and how many there are.
    point : int array, shape (n,)
        The samples, in grid units.

    Examples
    --------
    >>> rows = {"count": np.array([1]), "pair_first": np.array([7])}
    >>> zero = np.zeros(1, np.int64)
    >>> own_pairs(rows, zero, np.array([3, 9, 9]), zero, np.array([3])).difference.tolist()
    [4, 0]
    """
    before = rows["count"][who]
    waits = before % 2
    pairs = neighbors(point, starts, added, waits, rows["pair_first"][who])
    rows["pair_first"][who] = np.where((before + added) % 2 == 1, point[starts + added - 1], 0)

    return OwnPairs(waits, pairs.number, pairs.difference)


class Neighbors(NamedTuple):
    """Private: pairs of neighbors in a sequence of each agent.

    Attributes
    ----------
    number : int array (m,)
        How many pairs each sequence completes.
    second : int array (p,)
        With which value each is complete.
    difference : int array (p,)
        Absolute difference of the two values.
    """

    number: Ints
    second: Ints
    difference: Ints


def neighbors(value: Ints, starts: Ints, length: Ints, waits: Ints, waiting: Ints) -> Neighbors:
    """Pair the values of sequences that lie one after the other.

    Where `waits` is 1 the value `waiting` came before the first one of its sequence.

    Examples
    --------
    >>> one = np.array([1])
    >>> neighbors(np.array([3, 9, 8]), 0 * one, 3 * one, one, 7 * one).difference.tolist()
    [4, 1]
    """
    number = (waits + length) // 2
    ends = np.cumsum(number)
    second = np.repeat(starts + 1 - waits - 2 * (ends - number), number)
    second += np.arange(0, 2 * int(ends[-1]), 2)
    difference = value.take(second)
    difference -= value.take(second - 1)

    # The first value of a pair may have waited.
    waited = np.flatnonzero((waits == 1) & (number > 0))
    difference[(ends - number)[waited]] = value[starts[waited]] - waiting[waited]

    return Neighbors(number, second, np.abs(difference, out=difference))


SLOTS = 32
"""Ends of blocks that are kept: there are at most 31 blocks, and at least 16 once there are 16
samples."""
INSIDE = 24
"""A memory that counts samples holds at most that many blocks, and at least half of them."""
FADED = 4
"""Half-lives after which a sample is left out: it weighs a sixteenth."""
EARLY = 64
EARLY_GROWTH = 8
"""First samples whose mean blocks still show; by what that number grows when blocks have become
longer."""
PAIRS_BASE = np.int64(1) << 62
"""Sums of squared differences are kept exactly, in two words of this base."""
TOTALS = "block_total"
PAIRS = "block_pairs"


def early_samples(count: Ints) -> Ints:
    """Give the number of first samples whose mean is known.

    64, from 2048 samples on 512, from 16384 on 4096, ...

    Examples
    --------
    >>> early_samples(np.array([100, 2047, 2048, 20_000])).tolist()
    [64, 64, 512, 4096]
    """
    steps = (
        np.maximum(_bits(np.asarray(count, np.int64)) - _bits(np.array([EARLY * SLOTS])), -1) // 3
        + 1
    )

    return np.asarray(EARLY * EARLY_GROWTH**steps, np.int64)


@dataclass(frozen=True, slots=True)
class OwnBlocks:
    """Keeps sums of an agent's samples up to the ends of at most 31 blocks of equal length, a power of two.

    Parameters
    ----------
    memory : Memory
        How much older samples weigh.

    Notes
    -----
    **Privacy.** Private: it reads an agent's raw samples, for this agent's own answer only.

    With n samples blocks hold `2**e` of them, for the least e with `floor(n / 2**e) < 32`. The sum
    of all samples up to the end of block j is in slot `j % 32`, so when blocks double every other
    end stays. All are integers and a function of the sequence of samples alone: batches, restarts
    and moves change no bit.

    With a memory e rises no further than it needs to: the newest blocks take the place of the
    oldest. Then the sum of the squared differences of pairs is kept at the end of each block, too,
    and not of all samples together. A memory of event time does not say how many samples it holds;
    the number in the newest release stands for it.

    References
    ----------
    Yeh, Schmeiser (2000), "Simulation output analysis via dynamic batch means".
    """

    memory: Memory

    @property
    def columns(self) -> Table:
        """What it keeps of each agent; blocks begin and end at public numbers of samples."""
        of = "dependence"
        squares = ("pair_squares_low", "pair_squares_high")
        ends: tuple[str, ...] = (TOTALS,)
        first_block: Table = ()

        # Without a memory blocks begin with the first sample, and their pairs are all pairs.
        if self.memory.forgets:
            ends = (TOTALS, PAIRS)
            first_block = (Column("block_first", np.int64, privacy=PUBLIC, of=of),)

        return (
            *PAIR_COLUMNS,
            *declared_columns(squares, np.int64, privacy=PRIVATE, of=of),
            *first_block,
            *declared_columns(ends, np.int64, (SLOTS,), privacy=PRIVATE, of=of),
            Column("block_log", np.uint8, privacy=PUBLIC, of=of),
        )

    def early_totals(self, rows: Columns, agent: Ints) -> tuple[Ints, Ints]:
        """Private: number and sum of the first samples of agents without a memory.

        0 of agents that have fewer.
        """
        count = rows["count"][agent]
        log = rows["block_log"][agent]
        early = early_samples(count)
        reached = count >= early
        slot = np.where(reached, early >> log, 0)

        return np.where(reached, early, 0), np.where(reached, rows[TOTALS][agent, slot], 0)

    def add(self, rows: Columns, batch: SortedSamples) -> None:
        """Take in the samples of a batch."""
        who = batch.who
        pairs = own_pairs(rows, who, batch.point, batch.starts, batch.added)
        squares = pairs.difference * pairs.difference
        before = np.cumsum(pairs.number) - pairs.number
        self._mark(rows, batch, squares, before)

        completing = np.flatnonzero(pairs.number)
        if len(completing):
            agent = who[completing]
            low = rows["pair_squares_low"][agent] + np.add.reduceat(squares, before[completing])
            rows["pair_squares_low"][agent] = low % PAIRS_BASE
            rows["pair_squares_high"][agent] += low // PAIRS_BASE

    def _mark(self, rows: Columns, batch: SortedSamples, squares: Ints, pairs_before: Ints) -> None:
        """Note what there is at the ends of blocks that samples of the batch complete.

        `squares` are those of its pairs, which begin at `pairs_before` for each agent.
        """
        count = batch.before.number
        log = self._raise(rows, batch.who, count, batch.count)
        last_block = batch.count >> log
        first_block = np.maximum((count >> log) + 1, last_block - (SLOTS - 1))
        number = np.maximum(last_block - first_block + 1, 0)

        # One entry for each block: the place of its agent in the batch, its number, its end.
        place = np.repeat(np.arange(len(number)), number)
        if not len(place):
            return

        block = np.arange(len(place)) + (first_block - np.cumsum(number) + number)[place]
        end = block << log[place]
        slots = batch.who[place] * SLOTS + block % SLOTS
        np.reshape(rows[TOTALS], -1, copy=False)[slots] = batch.total(place, end)

        if not self.memory.forgets:
            return

        # Squares of all pairs up to there: those before the batch, and those of it.
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(squares)])
        begin = pairs_before[place]
        done = end // 2 - (count // 2)[place]
        low = rows["pair_squares_low"][batch.who[place]] + sums[begin + done] - sums[begin]
        np.reshape(rows[PAIRS], -1, copy=False)[slots] = low % PAIRS_BASE

    def _raise(self, rows: Columns, who: Ints, before: Ints, now: Ints) -> Ints:
        """Double blocks until there are fewer than 32, or as many as a memory can hold.

        Give their logarithm.
        """
        log = rows["block_log"][who].astype(np.int64)
        needed = _bits(now) - 5
        if self.memory.forgets:
            needed = np.minimum(needed, _bits(-(-self._held(rows, who) // INSIDE) - 1))

        rising = np.flatnonzero(needed > log)
        if not len(rising):
            return log
        agent = who[rising]
        shift = (needed - log)[rising]

        if not self.memory.forgets:
            last_block = (before[rising] >> needed[rising])[:, np.newaxis]
            block = np.arange(SLOTS)
            old = np.minimum(block << shift[:, np.newaxis], SLOTS - 1)
            rows[TOTALS][agent] = np.where(
                block <= last_block, np.take_along_axis(rows[TOTALS][agent], old, axis=1), 0
            )
        else:
            self._double(rows, agent, before[rising] >> log[rising], shift)

        log[rising] = needed[rising]
        rows["block_log"][agent] = log[rising]
        return log

    @staticmethod
    def _double(rows: Columns, agent: Ints, last: Ints, shift: Ints) -> None:
        """Keep every other end of the newest blocks, up to the last one.

        Note which is the first that is kept.
        """
        first_block = np.maximum(rows["block_first"][agent], last - (SLOTS - 1))
        first_block = -(-first_block // (1 << shift))
        newest = (last >> shift)[:, np.newaxis]
        block = newest - (newest - np.arange(SLOTS)) % SLOTS  # of each slot
        gone = block < first_block[:, np.newaxis]
        old = agent[:, np.newaxis] * SLOTS + (block << shift[:, np.newaxis]) % SLOTS

        for name in (TOTALS, PAIRS):
            sums = rows[name].take(old)
            sums[gone] = 0
            rows[name][agent] = sums

        rows["block_first"][agent] = first_block

    def _held(self, rows: Columns, who: Ints) -> Ints:
        """Give how many samples the memory holds.

        More than there are where that is not known yet.
        """
        faded = FADED if self.memory.kind == "half-life" else 1
        if self.memory.samples is not None:
            return np.full(len(who), faded * self.memory.samples, np.int64)
        released = rows["told_count"][who]

        return np.where(released > 0, max(faded // 2, 1) * released, np.int64(1) << 52)


def _bits(number: Ints) -> Ints:
    """Count the binary digits of each number; 0 has none."""
    return np.frexp(np.maximum(number, 0).astype(np.float64))[1].astype(np.int64)
