"""Laws of samples on [-1, 1] with exact draws of the sum of any number of samples, and populations of users.

Users have laws of their own means, sizes, and the exact law of what they hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import betainc, ndtr

from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require, require_positive

DATA_FORMS = "rademacher:mean, three:q, beta:a,b, bernoulli:p or normal:mean,sd"
BETWEEN_FORMS = "normal:SD, skewed:SD or far:SHARE"
SPAN = 2**20
"""Grid points of [-1, 1]."""
HALF = SPAN // 2
CELLS = 64
"""Beta samples are recorded on a grid of that many steps."""
_FARTHEST = 2.0
_CHUNK = 50_000


class SampleLaw(Protocol):
    """Law of the samples of users with given means."""

    @property
    def mean(self) -> float:
        """Mean of the users who are as the law says."""
        ...

    @property
    def lower(self) -> float:
        """Smallest sample."""
        ...

    @property
    def upper(self) -> float:
        """Largest sample."""
        ...

    def draw(self, mean: Floats, count: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Sum of `count` samples of each user, and its first one.

        On the grid of `SPAN` points, each int64 (n,).
        """
        ...


@dataclass(frozen=True, slots=True)
class TwoPoints:
    """Samples are `lower` or `upper`: the sum is binomial.

    Examples
    --------
    >>> law = TwoPoints(mean=0.0, lower=-1.0, upper=1.0)
    >>> total, first = law.draw(np.zeros(4), np.array([1, 2, 10, 10**6]), np.random.default_rng(1))
    >>> (total / SPAN).tolist(), (first / SPAN).tolist()
    ([1.0, 2.0, 3.0, 500996.0], [1.0, 1.0, 0.0, 0.0])
    """

    mean: float
    lower: float
    upper: float

    def draw(self, mean: Floats, count: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Sum and first sample, on the grid."""
        chance = np.clip((mean - self.lower) / (self.upper - self.lower), 0.0, 1.0)
        high = rng.binomial(count, chance)
        # Given how many of a user's samples are high, each of them is as likely to be the first.
        first = rng.random(len(count)) * count < high
        low = _grid_point(self.lower)
        step = _grid_point(self.upper) - _grid_point(self.lower)

        return low * count + step * high, low + step * first


@dataclass(frozen=True, slots=True)
class ThreePoints:
    """Samples are -1, 0 or 1.

    `spread` is the probability of not 0, which is the variance at mean 0.
    """

    spread: float
    mean: float = 0.0
    lower: float = -1.0
    upper: float = 1.0

    def draw(self, mean: Floats, count: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Sum and first sample, on the grid."""
        moved = np.maximum(np.abs(mean), self.spread)
        outside = rng.binomial(count, moved)
        high = rng.binomial(
            outside, 0.5 + 0.5 * np.divide(mean, moved, out=np.zeros_like(mean), where=moved > 0)
        )
        turn = rng.random(len(count)) * count
        first = np.where(turn < high, 1, np.where(turn < outside, -1, 0))

        return HALF * (count + 2 * high - outside), HALF * (1 + first)


@dataclass(frozen=True, slots=True)
class NormalSamples:
    """Samples are normal: sub-Gaussian instead of bounded, as Kent et al. remark in Section 3.4.

    Only a user's mean is cut to [-1, 1], and its first sample.
    """

    mean: float
    stddev: float
    lower: float = -1.0
    upper: float = 1.0

    def draw(self, mean: Floats, count: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Sum and first sample, on the grid."""
        own = mean + self.stddev / np.sqrt(count) * rng.standard_normal(len(count))

        # Given the mean of a user's samples, each of them is normal around it.
        left = self.stddev * np.sqrt(1.0 - 1.0 / count)
        first = own + left * rng.standard_normal(len(count))
        total = np.clip((own + 1.0) * HALF, 0, SPAN) * count

        return (
            np.rint(total).astype(np.int64),
            np.rint(np.clip((first + 1.0) * HALF, 0, SPAN)).astype(np.int64),
        )


class BetaSamples:
    """Samples are `2 B - 1` for a beta variable B, rounded at random to one of two grid points next to it.

    The rounding keeps the mean exactly and makes the sum of any number of samples a multinomial
    draw. A user whose mean differs has its samples drawn towards -1 or 1 by a share that moves the
    mean.
    """

    lower = -1.0
    upper = 1.0

    def __init__(self, a: float, b: float) -> None:
        self.a = a
        self.b = b
        self.mean = 2.0 * a / (a + b) - 1.0

    @cached_property
    def probability(self) -> Floats:
        """Of each of the `CELLS + 1` grid points.

        The expected share of a sample that is rounded to it.
        """
        x = np.linspace(0.0, 1.0, CELLS + 1)
        below = np.diff(betainc(self.a, self.b, x))
        first_moment = np.diff(betainc(self.a + 1.0, self.b, x)) * self.a / (self.a + self.b)
        up = CELLS * (first_moment - x[:-1] * below)
        down = CELLS * (x[1:] * below - first_moment)
        chance = np.concatenate((down, [0.0])) + np.concatenate(([0.0], up))

        return np.asarray(np.maximum(chance, 0.0) / np.maximum(chance, 0.0).sum())

    def draw(self, mean: Floats, count: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Sum and first sample, on the grid."""
        total = np.empty_like(count)
        first = np.empty_like(count)
        few = count <= CELLS
        total[few], first[few] = self._one_by_one(count[few], rng)

        for start in range(0, len(count), _CHUNK):
            rows = start + np.flatnonzero(~few[start : start + _CHUNK])
            total[rows], first[rows] = self._by_cells(count[rows], rng)

        return self._drawn_out(total, mean, count), self._drawn_out(
            first, mean, np.ones_like(count)
        )

    def _one_by_one(self, count: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        if not len(count):
            return count, count
        edges = np.cumsum(self.probability)[:-1]
        cell = np.searchsorted(edges, rng.random(int(count.sum())), side="right")
        start = np.cumsum(count) - count

        return np.add.reduceat(cell, start), cell[start]

    def _by_cells(self, count: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        times = rng.multinomial(count, self.probability)
        turn = rng.random(len(count)) * count
        first = (np.cumsum(times, axis=1) <= turn[:, np.newaxis]).sum(axis=1)
        return times @ np.arange(CELLS + 1), np.minimum(first, CELLS)

    def _drawn_out(self, cells: Ints, mean: Floats, count: Ints) -> Ints:
        """From cells to the grid, drawn towards an end so that the mean is the user's."""
        step = SPAN // CELLS
        distance = mean - self.mean
        room = np.where(distance > 0, 1.0 - self.mean, 1.0 + self.mean)
        share = np.abs(distance) / room
        end = np.where(distance > 0, SPAN, 0)

        return cells * step + np.rint(share * (end * count - cells * step)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class BetweenLaw:
    """Users have means of their own.

    Theta plus a normal or a skewed deviation, cut to where samples can lie.

    Parameters
    ----------
    kind : str
        "normal": N(0, stddev**2); "skewed": stddev (Exp(1) - 1); "far": a group of this share has
        its mean at the lower end, wherever the others are.
    stddev : float
        Before cutting, positive; of a group far out, its share, below 1.
    """

    kind: str
    stddev: float

    @property
    def spread(self) -> float:
        """Standard deviation of users' means, for who is told it.

        Of a group far out, the largest that it can make.
        """
        if self.kind == "far":
            return 2.0 * math.sqrt(self.stddev * (1.0 - self.stddev))
        return self.stddev

    @classmethod
    def parse(cls, text: str) -> BetweenLaw:
        """Read `normal:SD`, `skewed:SD` or `far:SHARE`.

        Examples
        --------
        >>> BetweenLaw.parse("normal:0.2")
        BetweenLaw(kind='normal', stddev=0.2)
        """
        kind, _, rest = text.partition(":")
        require(
            kind in ("normal", "skewed", "far"), "between_users_law", f"be {BETWEEN_FORMS}", text
        )
        (stddev,) = _numbers("between_users_law", BETWEEN_FORMS, text, rest, 1)
        require_positive(between_users_law=stddev)
        require(kind != "far" or stddev < 1.0, "between_users_law", "have a share below 1", text)

        return cls(kind, stddev)

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Deviations of n users."""
        if self.kind == "normal":
            return rng.normal(0.0, self.stddev, n)
        if self.kind == "far":
            return np.where(rng.random(n) < self.stddev, -_FARTHEST, 0.0)

        return self.stddev * (rng.exponential(1.0, n) - 1.0)

    def mean_of_cut(self, center: float, lower: float, upper: float) -> float:
        """Exact mean of `center` plus a deviation, cut to [lower, upper].

        Examples
        --------
        >>> round(BetweenLaw("normal", 0.2).mean_of_cut(0.5, -1.0, 1.0), 4)
        0.4996
        >>> round(BetweenLaw("skewed", 1.0).mean_of_cut(0.0, -0.5, 1.0), 4)
        -0.0288
        """
        if self.kind == "far":
            return (1.0 - self.stddev) * center + self.stddev * lower

        if self.kind == "normal":
            a = (lower - center) / self.stddev
            b = (upper - center) / self.stddev
            return lower + self.stddev * (_normal_part(-a) - _normal_part(-b))

        # The integral of P(deviation > y) from lower to upper; below -stddev it is 1.
        least = center - self.stddev
        start = max(lower, least)
        end = max(upper, least)
        tail = self.stddev * (
            math.exp((least - start) / self.stddev) - math.exp((least - end) / self.stddev)
        )

        return min(start, upper) + tail


def parse_round_law(text: str) -> SampleLaw:
    """Read the law of the samples.

    Parameters
    ----------
    text : str
        `rademacher:mean` (-1 and 1), `bernoulli:p` (0 and 1), `three:q` (-1 and 1 with probability
        q / 2 each, 0 otherwise), `beta:a,b` (2 B - 1), or `normal:mean,sd`.

    Examples
    --------
    >>> parse_round_law("rademacher:0.5").mean, parse_round_law("bernoulli:0.3").mean, parse_round_law("beta:2,6").mean
    (0.5, 0.3, -0.5)
    """
    form, _, rest = text.partition(":")
    require(form in _DATA, "data", f"be {DATA_FORMS}", text)
    build, least, greatest, n = _DATA[form]
    numbers = _numbers("data", DATA_FORMS, text, rest, n)
    inside = all(least <= x <= greatest for x in numbers) and (form != "beta" or min(numbers) > 0)
    inside = inside and (form != "normal" or (abs(numbers[0]) <= 1.0 and numbers[1] > 0))
    require(inside, "data", f"have numbers from {least:g} to {greatest:g} for {form}", text)

    return build(*numbers)


_DATA: dict[str, tuple[Callable[..., SampleLaw], float, float, int]] = {
    "rademacher": (lambda mean: TwoPoints(mean, -1.0, 1.0), -1.0, 1.0, 1),
    "bernoulli": (lambda p: TwoPoints(p, 0.0, 1.0), 0.0, 1.0, 1),
    "three": (ThreePoints, 0.0, 1.0, 1),
    "beta": (BetaSamples, 0.0, 1e6, 2),
    "normal": (NormalSamples, -1.0, 1e6, 2),
}


def _grid_point(value: float) -> int:
    """Place a value of [-1, 1] on the grid."""
    return round((value + 1.0) * HALF)


def _normal_part(z: float) -> float:
    """Integral of the normal distribution function up to z."""
    return z * float(ndtr(z)) + math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


def _numbers(name: str, forms: str, text: str, rest: str, n: int) -> list[float]:
    try:
        numbers = [float(word) for word in rest.split(",")]
    except ValueError:
        numbers = []

    require(len(numbers) == n and all(map(math.isfinite, numbers)), name, f"be {forms}", text)
    return numbers


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
        large_enough = self.sizes.support >= size
        sizes = SizeDistribution(
            self.sizes.support[large_enough], self.sizes.probability[large_enough] / share
        )

        return replace(self, users=max(round(self.users * share), 1), sizes=sizes)
