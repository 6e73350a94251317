"""The reference core, second part: what agents release, one sample after the other.

Nothing here is shared with the product. It has the default: sums of increments with staircase noise
(`pm1`) or blocks of them (`two_level`), a schedule of preferred numbers, and votes on the spread that
leave with releases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import frexp
from typing import Any

from tests.oracles.reference_noise import (
    ReferenceKey,
    laplace_draw,
    staircase_draw,
    staircase_edge,
    staircase_variance,
)

PREFERRED = (10, 15, 20, 30, 50, 70)
EDGES = (0, *(2.0**-halving for halving in (10, 8, 6, 5, 4, 3, 2, 1)))
"""Of the bins of a vote, in widths of the bounds; the last two are all below the width, and the width."""
BINS = 11
FACTOR = 3
"""A host votes again with that many times the pairs of its last vote."""
PAIR_SENSITIVITY = 2

Event = tuple[str, float, float]
"""Agent, value, and event time in seconds."""


@dataclass(frozen=True, kw_only=True)
class ReferenceRelease:
    """What leaves: an agent's noised sum of its first `n` samples, and the votes that it has cast."""

    agent: str
    index: int
    time: float
    n: int
    total: int
    mean: float
    noise_variance: float
    votes: tuple[int, ...]


@dataclass(kw_only=True)
class _Agent:
    count: int = 0
    told: int = 0
    time: float = 0.0
    total: int = 0
    index: int = 0
    due: int = 0
    draws: list[int] = field(default_factory=list)
    waits: int | None = None
    votes: list[int] = field(default_factory=lambda: [0] * (2 + BINS))


@dataclass(kw_only=True)
class ReferenceAgents:
    """All agents of a deployment.

    Attributes
    ----------
    settings : dict
        As the key of the noise spells them: `lower`, `upper`, `epsilon`, `counter`, `noise` ("staircase"),
        `spread_share`, `name`, and what else is not at its default.
    secret : bytes
    first, horizon : int
        Of the schedule, and the most releases of an agent.
    """

    settings: dict[str, Any]
    secret: bytes
    first: int = 10
    horizon: int = 40

    def __post_init__(self) -> None:
        root = ReferenceKey(self.secret, self.settings["name"], "deployment")
        self.key = root.derived("agents", self.settings)
        self.lower = self.settings["lower"]

        # The grid: steps of a power of two, a million of them or a little less.
        width = self.settings["upper"] - self.lower
        mantissa, exponent = frexp(width / 2**20)
        self.step = 2.0 ** (exponent - 1 if mantissa == 0.5 else exponent)
        self.span = round(width / self.step)

        self.vote_share = self.settings["spread_share"]
        self.blocks = self.settings["counter"] == "two_level"
        self.block = _best_block(self.horizon) if self.blocks else 0
        self.agents: dict[str, _Agent] = {}

        # Pairs of all agents that are in no vote yet, and the number of those in votes.
        self.pairs = [0] * BINS
        self.voted = 0

    def releases(self, events: Sequence[Event]) -> Iterator[ReferenceRelease]:
        """Take events in the order of time; give what they release."""
        times = {}
        for place, (name, _, time) in enumerate(events):
            times.setdefault((name, time), []).append(place)

        for place, (name, value, time) in enumerate(events):
            agent = self.agents.setdefault(name, _Agent(due=self._next(0, 0)))
            together = times[name, time]
            point = self._point(value)
            agent.time = time
            agent.count += 1
            agent.total += point

            # Samples of one time have no order that is public: they are in no pair.
            if len(together) == 1:
                self._pair(agent, point)

            if place == together[-1] and agent.due and agent.count >= agent.due:
                yield self._release(name, agent, time)

    def last_releases(self) -> Iterator[ReferenceRelease]:
        """Give what is released when the input ends: everyone's samples since the last release."""
        time = max(agent.time for agent in self.agents.values())
        for name, agent in self.agents.items():
            if agent.count > agent.told and agent.index < self.horizon:
                yield self._release(name, agent, time)

    def _point(self, value: float) -> int:
        inside = min(max(value, self.lower), self.settings["upper"])
        return round((inside - self.lower) / self.step)

    def _pair(self, agent: _Agent, point: int) -> None:
        """Count a pair of samples that follow each other, once it is complete."""
        if agent.waits is None:
            agent.waits = point
            return

        difference = abs(point - agent.waits)
        agent.waits = None
        above = sum(difference > int(edge * self.span) for edge in EDGES)
        self.pairs[above + (difference > self.span - 1)] += 1

    def _release(self, name: str, agent: _Agent, time: float) -> ReferenceRelease:
        agent.index += 1
        version = self.key.version(agent.count, agent.total)
        agent.draws.append(self._staircase(name, agent.index, version))
        self._vote(name, agent, version)

        total = agent.total + sum(self._in_sum(agent.draws))
        agent.due = self._next(agent.index, agent.count)
        agent.told = agent.count

        return ReferenceRelease(
            agent=name,
            index=agent.index,
            time=time,
            n=agent.count,
            total=total,
            mean=self.lower + total / agent.count * self.step,
            noise_variance=self.noise_variance(agent.index, agent.count),
            votes=tuple(agent.votes),
        )

    def noise_variance(self, index: int, n: int) -> float:
        """Give the variance of the noise in a released mean; rounding adds a twelfth of a squared step."""
        edge = staircase_edge(self.span, self._epsilon_of_draw)
        of_draw = staircase_variance(self.span, edge, self._epsilon_of_draw)
        number = len(self._in_sum([0] * index))
        return (number * of_draw + 1 / 12) * (self.step / n) ** 2

    @property
    def _epsilon_of_draw(self) -> float:
        """Give the part of the budget of one draw: votes have their share, and blocks halve the rest."""
        of_means = self.settings["epsilon"] * (1 - self.vote_share)
        if self.block and self.horizon >= self.block:
            return of_means / 2
        return of_means

    @property
    def _scale_of_votes(self) -> float:
        return PAIR_SENSITIVITY / self.vote_share / self.settings["epsilon"]

    def _staircase(self, name: str, index: int, version: int) -> int:
        bits = self.key.bits(name, index, version, 0)
        return staircase_draw(bits, self.span, self._epsilon_of_draw)

    def _in_sum(self, draws: list[int]) -> list[int]:
        """Give the draws that are in the sum of all increments: of whole blocks, and of what follows the last one."""
        if not self.block:
            return draws

        whole = len(draws) // self.block * self.block
        return draws[self.block - 1 : whole : self.block] + draws[whole:]

    def _vote(self, name: str, agent: _Agent, version: int) -> None:
        """Cast a vote of all pairs with this release, if there are enough of them."""
        waiting = sum(self.pairs)
        if waiting < 1 or waiting < (FACTOR - 1) * self.voted:
            return

        # What is voted is part of the version: other pairs meet other noise.
        for number in self.pairs:
            version = self.key.version(version, number)

        bits = [self.key.bits(name, agent.index, version, 1 + b) for b in range(BINS)]
        noised = [
            n + laplace_draw(of_bin, self._scale_of_votes)
            for n, of_bin in zip(self.pairs, bits, strict=True)
        ]

        cast = [1, waiting, *noised]
        agent.votes = [before + more for before, more in zip(agent.votes, cast, strict=True)]
        self.voted += waiting
        self.pairs = [0] * BINS

    def _next(self, index: int, count: int) -> int:
        """Give the number of samples at an agent's next release; 0 where there is none."""
        if index >= self.horizon:
            return 0

        numbers = [n * 10**k // 10 for k in range(12) for n in PREFERRED]
        distinct = sorted({n for n in numbers if n >= self.first})
        passed = max(index, sum(n <= count for n in distinct))
        return distinct[passed]


def _best_block(horizon: int) -> int:
    """Give the length of blocks with the fewest draws in all sums together."""

    def draws(block: int) -> int:
        return sum(k // block + k % block for k in range(1, horizon + 1))

    return min(range(2, max(2, 2 * int(horizon**0.5)) + 1), key=draws)
