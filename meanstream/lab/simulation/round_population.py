"""A population of users for simulated rounds.

Their sizes, their own means, and the exact law of what they hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from meanstream.lab.simulation.round_laws import SPAN, BetweenLaw, SampleLaw
from meanstream.operators.records import Ints
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require

ORDERS = ("shuffled", "sorted")


def draw_population_sizes(sizes: SizeDistribution, users: int, rng: np.random.Generator) -> Ints:
    """Draw the sizes of users.

    Examples
    --------
    >>> draw_population_sizes(SizeDistribution.parse("two:100,10000,0.25"), 6, np.random.default_rng(1))
    array([  100, 10000,   100, 10000,   100,   100])
    """
    cumulative = np.cumsum(sizes.probability)
    last = int(np.flatnonzero(sizes.probability)[-1])
    return sizes.support[
        np.minimum(np.searchsorted(cumulative, rng.random(users), side="right"), last)
    ]


@dataclass(frozen=True)
class RoundPopulation:
    """Users who differ in their number of samples, and perhaps in their mean.

    Parameters
    ----------
    users : int
        How many there are.
    sizes : SizeDistribution
        Law of a user's number of samples, independent of everything else.
    data : SampleLaw
        Law of the samples, given the user's mean.
    between : BetweenLaw or None
        Law of the users' means around that of the data; None: all are alike.
    order : {"shuffled", "sorted"}
        Sorted by size, or not: nothing may depend on it.

    Examples
    --------
    >>> from meanstream.lab.simulation.round_laws import parse_round_law
    >>> sizes = SizeDistribution.parse("two:10,1000000,0.5")
    >>> population = RoundPopulation(5, sizes, parse_round_law("rademacher:0.5"), None, "sorted")
    >>> drawn = population.draw(np.random.default_rng(1))
    >>> drawn.count, drawn.mean.round(3), population.theta
    (array([     10,      10, 1000000, 1000000, 1000000]), array([0.6  , 0.2  , 0.5  , 0.501, 0.499]), 0.5)
    """

    users: int
    sizes: SizeDistribution
    data: SampleLaw
    between: BetweenLaw | None
    order: str

    def __post_init__(self) -> None:
        require(self.order in ORDERS, "order", f"be one of {', '.join(ORDERS)}", self.order)

    @cached_property
    def theta(self) -> float:
        """Mean of the law of users' means.

        Every user counts once, whatever its number of samples.
        """
        if self.between is None:
            return self.data.mean
        return self.between.mean_of_cut(self.data.mean, self.data.lower, self.data.upper)

    def draw(self, rng: np.random.Generator) -> Summaries:
        """Draw everyone's samples, summed up; users' ids are random."""
        count = draw_population_sizes(self.sizes, self.users, rng)
        if self.order == "sorted":
            count.sort()

        mean = np.full(self.users, self.data.mean)
        if self.between is not None:
            mean = np.clip(
                mean + self.between.draw(self.users, rng), self.data.lower, self.data.upper
            )

        total, first = self.data.draw(mean, count, rng)
        ids = rng.integers(0, 2**64, (self.users, 2), dtype=np.uint64)
        return Summaries(user=ids, count=count, total=total, first=first, span=SPAN)

    def of_at_least(self, size: int) -> RoundPopulation:
        """Build the population of the users with at least that many samples, in their expected number."""
        if size <= self.sizes.least:
            return self
        share = self.sizes.tail(size)
        require(
            share > 0.0,
            "least_size",
            f"be a size that some users have (at most {self.sizes.greatest})",
            size,
        )
        kept = self.sizes.support >= size
        sizes = SizeDistribution(self.sizes.support[kept], self.sizes.probability[kept] / share)

        return replace(self, users=max(round(self.users * share), 1), sizes=sizes)
