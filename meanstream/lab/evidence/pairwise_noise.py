"""The noise of agents that query each other: its law, and whether two readers share it.

Each ordered pair of an agent and a reader is a stream of its own, with a counter of its own. So a
pair stands where `NoiseLaw` has an agent, and draws are compared along the three ways in which two
pairs could meet one draw: two readers of one agent, two agents of one reader, and both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import bdtrc

from meanstream.lab.evidence.noise_draws import DrawsOfSums, public_sums
from meanstream.lab.evidence.noise_independence import NoiseIndependence
from meanstream.lab.evidence.noise_law import MOST_OF_MEMORY, NoiseLaw
from meanstream.lab.evidence.one_run import ALARM_ERROR
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.distributions import NoiseDistribution
from meanstream.operators.records import Bools, Floats, Ints, ReleaseColumns

_EXACT = 2**53
"""Sums below it are whole numbers of a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairColumns:
    """Private, of a store: what agents released to their readers, in the order of the ledger.

    Attributes
    ----------
    agent, reader : int array (n,)
        Numbers of the agent that was queried, and of the one that did.
    index : int array (n,)
        Which release of the one to the other it is, from 1.
    count, total : int array (n,)
        Samples in the sum; the noised sum in grid units.
    mean, noise_variance : float array (n,)
        As they were released, in the value's unit.
    version : int array (n,)
        Keyed digest of the exact input.
    """

    agent: Ints
    reader: Ints
    index: Ints
    count: Ints
    total: Ints
    mean: Floats
    noise_variance: Floats
    version: Ints

    @classmethod
    def joined(cls, parts: Sequence[PairColumns]) -> PairColumns:
        """Give several, one after the other."""
        kinds: dict[str, Any] = dict.fromkeys(cls.__slots__, np.int64)
        kinds |= dict.fromkeys(("mean", "noise_variance"), np.float64)
        return cls(
            **{
                name: np.concatenate(
                    [np.zeros(0, kind), *(getattr(columns, name) for columns in parts)]
                )
                for name, kind in kinds.items()
            }
        )

    def part(self, which: Bools) -> PairColumns:
        """Give some of the releases."""
        return PairColumns(**{name: getattr(self, name)[which] for name in self.__slots__})

    def of_pairs(self, pair: Ints) -> ReleaseColumns:
        """Give the releases with the number of the pair in the place of the agent's."""
        return ReleaseColumns(
            agent=pair,
            index=self.index,
            count=self.count,
            total=self.total,
            mean=self.mean,
            noise_variance=self.noise_variance,
        )


def paired_rows(group: Ints, member: Ints) -> Ints:
    """Number the pairs so that each group begins at an even number.

    Then the rows 2 i and 2 i + 1 are of one group, or one of them is empty.

    Examples
    --------
    >>> paired_rows(np.array([4, 4, 4, 7, 7]), np.array([0, 1, 2, 0, 0])).tolist()
    [0, 1, 2, 4, 4]
    """
    pairs, row_of = np.unique(np.stack([group, member]), axis=1, return_inverse=True)
    _, first, size = np.unique(pairs[0], return_index=True, return_counts=True)

    # Of groups with an odd number the last place is left empty.
    room = size + size % 2
    start = np.cumsum(room) - room
    within = np.arange(pairs.shape[1]) - np.repeat(first, size)
    number: Ints = (np.repeat(start, size) + within)[row_of.reshape(-1)]

    return number


class PairwiseNoise(NoiseLaw):
    """Says what the releases of agents to their readers prove of their noise.

    Parameters
    ----------
    settings : AgentsSettings
        How one agent releases to one reader.

    Examples
    --------
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, horizon=3, spread_share=0)
    >>> PairwiseNoise(settings).row("ledger").method
    'scale of the noise unknown: too few releases, 0 degrees of freedom, 0 pairs of draws compared'
    """

    neighbors = "to two readers"

    def __init__(self, settings: AgentsSettings) -> None:
        # An increment is as long as those before it, so later ones hide no more.
        super().__init__(settings, most=MOST_OF_MEMORY)
        self._columns: list[PairColumns] = []

    def take_pairs(self, columns: PairColumns) -> None:
        """Take all releases of a store, each once."""
        self._columns.append(columns)
        self.take(columns.of_pairs(paired_rows(columns.agent, columns.reader)))

    def fault_of_equal_inputs(self, error: float = ALARM_ERROR) -> str | None:
        """Say that two readers received one sum of one input."""
        for columns in self._columns:
            if fault := shared_by_equal_inputs(columns, self._settings.fresh, error):
                return fault

        return None

    def _compare_further(self, single: NoiseIndependence) -> None:
        """Compare the pairs of one reader, and both directions; `NoiseLaw` those of one agent."""
        for columns in self._columns:
            low = np.minimum(columns.agent, columns.reader)
            high = np.maximum(columns.agent, columns.reader)
            width = int(high.max(initial=0)) + 1
            ways = {
                "releases to one reader": paired_rows(columns.reader, columns.agent),
                "releases in both directions": paired_rows(low * width + high, columns.agent),
            }

            for name, pair in ways.items():
                self._compare_pairs(single, name, columns, pair)

    def _compare_pairs(
        self, single: NoiseIndependence, name: str, columns: PairColumns, pair: Ints
    ) -> None:
        resolution = self._settings.grid.resolution
        variance = columns.noise_variance * (columns.count / resolution) ** 2
        fields = (columns.count.astype(np.float64), columns.total.astype(np.float64), variance)
        solved = DrawsOfSums(self._settings, self._most)

        for sums in public_sums(pair, columns.index, fields, self._most):
            single.take_of_neighbors(name, solved.of(sums))


def shared_by_equal_inputs(
    columns: PairColumns, noise: NoiseDistribution, error: float = ALARM_ERROR
) -> str | None:
    """Say that one agent released one exact input to several readers with one noise.

    Equal digests of an input mean equal inputs, so that samples hide nothing here: the sums differ
    by noise alone.

    Notes
    -----
    Each release is compared with the one before it of the same input. It has a fresh draw, whatever
    came before. So the sums are equal with at most the probability of the likeliest integer, and
    their number is at most binomial.

    Examples
    --------
    >>> from meanstream.operators.noise.distributions import GaussianNoise
    >>> names = ("agent", "index", "count", "total", "mean", "noise_variance", "version")
    >>> columns = PairColumns(reader=np.arange(4), **dict.fromkeys(names, np.ones(4, np.int64)))
    >>> shared_by_equal_inputs(columns, GaussianNoise(1e6))
    'one sum was released to two readers 3 times in 3 releases of equal inputs'
    """
    order = np.lexsort(
        (np.arange(len(columns.agent)), columns.version, columns.count, columns.agent)
    )
    agent, count, version, total = (
        column[order] for column in (columns.agent, columns.count, columns.version, columns.total)
    )
    same_input = (
        (np.diff(agent) == 0)
        & (np.diff(count) == 0)
        & (version[1:] == version[:-1])
        & (np.abs(total[1:]) < _EXACT)
    )
    number = int(np.count_nonzero(same_input))
    equal = int(np.count_nonzero(same_input & (total[1:] == total[:-1])))
    likeliest = float(noise.pmf(0))

    if not equal or float(bdtrc(equal - 1, number, likeliest)) >= error:
        return None
    return (
        f"one sum was released to two readers {equal:,} times "
        f"in {number:,} releases of equal inputs"
    )
