"""An agent's own samples, summed up, and how much means of neighboring stretches of them differ."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.own_blocks import (
    PAIRS,
    PAIRS_BASE,
    SLOTS,
    TOTALS,
    OwnBlocks,
)
from meanstream.operators.agents.own_moments import SumsNow
from meanstream.operators.agents.state_columns import Columns, chunks
from meanstream.operators.records import ENERGIES, Floats, Ints, OwnSamples

LEAST_SAMPLES = 16
"""Of fewer samples nothing is known of how they depend."""
MOST_DEGREES = 16.0
"""Short stretches are many, and say little of the long ones that matter: they count as at most that
many."""
_BLOCKS = SLOTS - 1
_LEVELS = 4
_TOGETHER = 1 << 11
"""Agents at a time: what is computed of them stays in the processor's cache."""
_HELD = 1 << 14
"""Rows that wait to be summed up."""
_READ = (
    *("count", "total", "squares_high", "squares_low", "seen", "histogram_own"),
    *("block_log", TOTALS, "pair_squares_low", "pair_squares_high"),
)
"""Columns that say what an agent without a memory has."""
_Floats32 = NDArray[np.float32]


def own_samples(settings: AgentsSettings, rows: Columns, agent: Ints) -> OwnSamples:
    """Private: the samples of some agents, summed up, each for that agent only."""
    memory = settings.kept
    blocks = settings.blocks
    begin = None

    # With a memory the sums are those of what it still holds.
    if memory is None:
        samples = _all_samples(settings, rows, agent)
    else:
        samples = memory.own(rows, agent)
        begin = memory.begin(rows, agent)

    if blocks is None:
        return samples
    return own_samples_with_energies(blocks, rows, samples, settings.grid.resolution, begin)


class OwnAtMoments:
    """Private: the samples of agents at several moments, summed up together.

    To sum up the rows of many moments costs as much as those of one. The result is the same.

    Parameters
    ----------
    settings : AgentsSettings
    """

    def __init__(self, settings: AgentsSettings) -> None:
        self._settings = settings
        self._agents: list[Ints] = []
        self._rows: list[Columns] = []
        self._waiting = 0
        self._summed: list[OwnSamples] = []

    def note(self, rows: Columns, agent: Ints) -> None:
        """Note what some agents have at this moment."""
        self._agents.append(agent)

        # What a memory holds is read where it stands.
        if self._settings.kept is not None:
            self._summed.append(own_samples(self._settings, rows, agent))
            return

        self._rows.append({name: rows[name][agent] for name in _READ if name in rows})
        self._waiting += len(agent)
        if self._waiting >= _HELD:
            self._sum_up()

    def joined(self) -> OwnSamples:
        """Give all of them, one moment after the other; one moment at least was noted."""
        if self._rows:
            self._sum_up()

        columns = {
            field.name: np.concatenate([getattr(own, field.name) for own in self._summed])
            for field in fields(OwnSamples)
        }
        return OwnSamples(**columns | {"agent": np.concatenate(self._agents)})

    def _sum_up(self) -> None:
        names = list(self._rows[0])
        joined = {name: np.concatenate([row[name] for row in self._rows]) for name in names}
        self._summed.append(own_samples(self._settings, joined, np.arange(self._waiting)))
        self._rows = []
        self._waiting = 0


def _all_samples(settings: AgentsSettings, rows: Columns, agent: Ints) -> OwnSamples:
    """Means and deviations of exact sums, and samples by cells where there is a histogram."""
    grid = settings.grid
    sums = SumsNow.of(rows, agent).moment
    n = np.maximum(sums.number, 1)

    # Squares are kept around the middle of the grid: what cancels here is small against them.
    centered = (sums.total - sums.number * (grid.span // 2)).astype(np.float64)
    deviations = np.maximum(sums.squares - centered * centered / n, 0.0) * grid.resolution**2
    samples = OwnSamples(
        agent=agent,
        count=sums.number,
        mean=np.where(sums.number > 0, grid.mean(sums.total, n), np.nan),
        squared_deviations=deviations,
    )

    if settings.histogram is not None:
        samples = replace(samples, cells=np.asarray(rows["histogram_own"][agent], np.int64))

    if settings.blocks is None:
        return samples

    # A mean of the early half tells whether the rest was drawn from the same law.
    early, early_total = settings.blocks.early_totals(rows, agent)
    early_mean = grid.mean(early_total, np.maximum(early, 1))
    return replace(samples, early_mean=np.where(early > 0, early_mean, np.nan))


def own_samples_with_energies(
    blocks: OwnBlocks, rows: Columns, own: OwnSamples, resolution: float, begin: Ints | None = None
) -> OwnSamples:
    """Private: add to what agents know of their own samples how much means of neighboring stretches differ.

    Parameters
    ----------
    blocks : OwnBlocks
    rows : dict
        The agents' state.
    own : OwnSamples
        Of the agents at the places `own.agent` of the state.
    resolution : float
        Width of a step of the grid, in the value's unit.
    begin : int array, shape (len(own),)
        How many samples of each came before those that count; with a memory only.

    Notes
    -----
    Of h-means, the means of h samples in a row, half the mean squared difference of pairs times h is an energy: of
    independent samples each is the variance of one sample. There are six, for pairs of samples, for what lies between
    pairs and blocks, and for 1, 2, 4 and 8 blocks; each has degrees of freedom. With a half-life a block of age a
    weighs `2 ** (-a / half-life)`.
    """
    n = len(own)
    energies = np.zeros((n, ENERGIES))
    degrees = np.zeros((n, ENERGIES))
    log = rows["block_log"][own.agent].astype(np.int64)
    enough = np.flatnonzero(own.count >= LEAST_SAMPLES)

    for part in chunks(len(enough), _TOGETHER):
        # Sums run along columns, in one order for any number of agents but one.
        chunk = np.resize(enough[part], max(2, len(enough[part])))
        squares = own.squared_deviations[chunk] / resolution**2
        columns = _Part(blocks, rows, own.agent[chunk], None if begin is None else begin[chunk])
        chunk_energies, free = columns.energies(own.count[chunk].astype(np.float64), squares)
        chunk_energies *= resolution**2
        energies[chunk] = chunk_energies.T
        degrees[chunk] = free.T

    return replace(own, block_log=log, energies=energies, energy_degrees=degrees)


class _Part:
    """Some agents' blocks, oldest first, shape (31, m), and their weights."""

    def __init__(self, blocks: OwnBlocks, rows: Columns, agent: Ints, begin: Ints | None) -> None:
        self._log = rows["block_log"][agent].astype(np.int64)
        last_block = rows["count"][agent] >> self._log
        first_block = np.zeros(len(agent), np.int64)
        ends = rows[TOTALS][agent]

        if begin is not None:
            first_block = np.maximum(rows["block_first"][agent], last_block - _BLOCKS)
            first_block = np.minimum(np.maximum(first_block, -(-begin >> self._log)), last_block)
            slot = (first_block[:, np.newaxis] + np.arange(SLOTS)) % SLOTS
            ends = np.take_along_axis(ends, slot, axis=1)

        self._first = first_block
        self._last = last_block
        self._blocks = blocks
        self._rows = rows
        self._agent = agent
        self.number = last_block - first_block

        middle = (ends[np.arange(len(agent)), self.number] - ends[:, 0]) // np.maximum(
            self.number, 1
        )
        sums = np.diff(ends, axis=1)
        sums -= middle[:, np.newaxis]
        self.sums: _Floats32 = np.ascontiguousarray(sums.T, np.float32)

    def energies(self, count: Floats, squares: Floats) -> tuple[Floats, Floats]:
        """Give the energies in squared grid units, and their degrees of freedom, shape (6, m)."""
        energies = np.zeros((ENERGIES, len(count)))
        degrees = np.zeros((ENERGIES, len(count)))
        pairs, energies[0] = self._pairs()
        degrees[0] = np.minimum(pairs, MOST_DEGREES)
        weight = self._weights(count)
        self.sums *= weight > 0
        length = np.ldexp(1.0, self._log.astype(np.int32))
        energies[1], degrees[1] = self._between(
            count, squares - energies[0] * count / 2, weight, length
        )
        sums = self.sums

        for level in range(_LEVELS):
            pairs_of = len(sums) // 2
            left = sums[0 : 2 * pairs_of : 2]
            right = sums[1 : 2 * pairs_of : 2]
            weight = np.minimum(weight[0 : 2 * pairs_of : 2], weight[1 : 2 * pairs_of : 2])
            total, number = self._number(weight)

            squares_apart = left - right
            squares_apart *= squares_apart
            squares_apart *= weight
            weighed = total > 0
            np.divide(
                _total(squares_apart), 2 * length * total, out=energies[2 + level], where=weighed
            )
            degrees[2 + level] = number
            sums, length = left + right, 2 * length

        degrees[2, self._log == 0] = 0.0  # they are the pairs of samples
        return energies, degrees

    def _weights(self, count: Floats) -> _Floats32:
        """Weigh each block; 0 where there is none."""
        block = np.arange(_BLOCKS)[:, np.newaxis]
        exists = block < self.number
        if not self._fades:
            return exists.astype(np.float32)

        memory = self._blocks.memory
        half_life = count * (math.log(2) / 2) if memory.samples is None else float(memory.samples)
        age = (self.number - 1 - block) * np.ldexp(1.0, self._log.astype(np.int32)) / half_life
        return np.where(exists, np.exp2(-np.maximum(age, 0.0)), 0.0).astype(np.float32)

    @property
    def _fades(self) -> bool:
        return self._blocks.memory.kind == "half-life"

    def _number(self, weight: _Floats32) -> tuple[Floats, Floats]:
        """Give the sum of weights, and how many equal weights are worth as much."""
        total = _total(weight)
        if not self._fades:
            return total, total
        return total, total * total / np.maximum(_total(weight * weight), 1e-30)

    def _pairs(self) -> tuple[Floats, Floats]:
        """Give the number of pairs of samples, and half the mean of their squared differences."""
        rows = self._rows
        agent = self._agent
        low = rows["pair_squares_low"][agent]
        if not self._blocks.memory.forgets:
            number = (rows["count"][agent] // 2).astype(np.float64)
            squares = rows["pair_squares_high"][agent] * float(PAIRS_BASE) + low
        else:
            until, since = (end << self._log for end in (self._last, self._first))
            number = (until // 2 - since // 2).astype(np.float64)
            sums = (rows[PAIRS][agent, end % SLOTS] for end in (self._last, self._first))
            until, since = sums
            squares = ((until - since) % PAIRS_BASE).astype(np.float64)

        return number, squares / (2 * np.maximum(number, 1.0))

    def _between(
        self, count: Floats, rest: Floats, weight: _Floats32, length: Floats
    ) -> tuple[Floats, Floats]:
        """Give the energy of what lies between pairs and blocks.

        What both leave of the squared deviations.
        """
        total, number = self._number(weight)
        divisor = np.maximum(total, 1e-30)
        weighted = weight * self.sums
        mean = _total(weighted) / divisor
        weighted *= self.sums
        spread = np.maximum(_total(weighted) / divisor - mean * mean, 0.0) / length**2
        inside = count if self._fades else np.minimum(self.number * length, count)
        free = count / 2 - number
        comparable = (self._log >= 2) & (free > 0)
        energy = np.maximum(rest - inside * spread, 0.0) / np.where(comparable, free, 1.0)

        return np.where(comparable, energy, 0.0), np.where(
            comparable, np.minimum(free, MOST_DEGREES), 0.0
        )


def _total(parts: _Floats32) -> Floats:
    """Add up along the first axis, in that order for any number of agents but one."""
    return np.asarray(np.add.reduce(parts, axis=0), np.float64)
