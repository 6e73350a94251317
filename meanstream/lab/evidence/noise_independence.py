"""Whether single draws are independent and as large as declared, from what is public.

Exact laws, and samples bounded.

Two columns of draws are `g + d` and `h + e`: noise that is standard normal, and what samples add.
Given the first one `h` is still noise, so its product with that column is normal, with a deviation
that is the column's length. Of d and e there are public bounds; and as the noise has a known
length, the columns' lengths bound theirs (Cauchy and Schwarz). A product beyond what this law and
these bounds allow shows noise that is shared. Samples may be anything that does not follow the
noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import gammaincinv, ndtri

from meanstream.lab.evidence.noise_draws import NoiseDraws
from meanstream.lab.evidence.one_run import ALARM_ERROR
from meanstream.operators.noise.distributions import (
    GaussianNoise,
    NoiseDistribution,
    StaircaseNoise,
)
from meanstream.operators.records import Floats

MOST_MOVED = 2.5
MOST_HIDDEN = 0.7
"""Deviations by which samples may move a draw that is compared with others, and one whose size is
looked at."""
LEAST_DRAWS = 1000
"""In a column, for a comparison: noise that fewer share is not surely seen."""
_LAPLACE = 2.0
_LAPLACE_SHARE = 0.4
"""Sums of Laplace draws stay within twice as many deviations as of normal ones, and squares of few
of them tell half as much as `square_share` says. Others in proportion."""
_STEPS = 64
"""Of a staircase, in units of what its probability falls by e within."""


def square_share(noise: NoiseDistribution) -> float:
    """Tell how much a square of a draw tells of the scale, as a share of what a Gaussian one does.

    That is 2 over the variance of the square of a draw of variance 1.

    Examples
    --------
    >>> from meanstream.operators.noise.distributions import LaplaceNoise
    >>> square_share(LaplaceNoise(1e6)), round(square_share(StaircaseNoise(2**20, 1.0)), 2)
    (0.4, 0.38)
    """
    if isinstance(noise, GaussianNoise):
        return 1.0
    if not isinstance(noise, StaircaseNoise):
        return _LAPLACE_SHARE

    # Integrals of x^2 and x^4 over the steps of constant probability, in units of the span.
    number = math.ceil(_STEPS / noise.epsilon) + 2
    start = np.repeat(np.arange(number), 2) + np.tile([0.0, noise.edge / noise.span], number)
    end = np.append(start[1:], float(number))
    chance = np.exp(-noise.epsilon * np.repeat(np.arange(number), 2))
    chance[1::2] *= math.exp(-noise.epsilon)
    chance /= (chance * (end - start)).sum()
    second, fourth = (
        float((chance * (end**power - start**power)).sum()) / power for power in (3, 5)
    )

    return 2.0 / (fourth / second**2 - 1.0)


@dataclass
class _Product:
    """Sums over pairs of draws, and over the bounds of what samples add to them."""

    n: int = 0
    sums: Floats = field(default_factory=lambda: np.zeros(6))

    def add(self, n: int, *sums: float) -> None:
        """Take more pairs: their product, both columns' squares, the product of both bounds, and their squares."""
        self.n += n
        self.sums += sums

    def excess(self, law: _Law) -> float:
        """Give the product as a share of what noise and samples can make of it."""
        product, one, other, bounds, one_bound, other_bound = self.sums.tolist()
        first, second = (
            min(math.sqrt(bound), law.samples(self.n, squares))
            for squares, bound in ((one, one_bound), (other, other_bound))
        )

        return float(
            abs(product) / (law.most * (math.sqrt(one) + second) + min(bounds, first * second))
        )

    @property
    def correlation(self) -> float:
        """Of both columns."""
        return float(self.sums[0] / math.sqrt(self.sums[1] * self.sums[2]))


@dataclass(frozen=True)
class _Law:
    """What noise that keeps to its law stays within, but for one chance in 1 / `error`.

    Attributes
    ----------
    most : float
        Of a normal variable.
    """

    error: float
    square_share: float

    @property
    def most(self) -> float:
        return float(-ndtri(self.error / 2)) * self._wider

    @property
    def _wider(self) -> float:
        normal = self.square_share == 1.0

        if normal:
            return 1.0
        return _LAPLACE * math.sqrt(_LAPLACE_SHARE / self.square_share)

    def squares(self, n: int, p: float) -> float:
        """Quantile of a sum of squares of that many draws."""
        freedom = 0.5 * n * (1.0 if self.square_share == 1.0 else 0.5 * self.square_share)
        return n * float(gammaincinv(freedom, p)) / freedom

    def samples(self, n: int, squares: float) -> float:
        """Bound the length of what samples add to that many draws, by the squares of both together."""
        more = max(squares - self.squares(n, self.error), 0.0)
        return self.most + math.sqrt(self.most**2 + more)


@dataclass
class NoiseIndependence:
    """Adds up products of draws that should be independent, and their squares.

    Parameters
    ----------
    square_share : float
        How much a square of a draw tells, 1 for Gaussian noise (`square_share`).

    Examples
    --------
    >>> draws = np.random.default_rng(1).normal(size=(4000, 3))
    >>> draws = np.column_stack([draws, draws[:, 0]])
    >>> found = NoiseIndependence()
    >>> found.take_together("bins", NoiseDraws(draws, draws, 0 * draws, np.ones(draws.shape, bool), draws))
    >>> found.fault()
    'bins 0 and 3 share noise (correlation 1.00)'
    """

    square_share: float = 1.0
    _products: dict[str, _Product] = field(default_factory=dict)
    _sizes: _Product = field(default_factory=_Product)

    def take_sizes(self, draws: NoiseDraws) -> None:
        """Take draws of which each is new."""
        clear = draws.usable & (draws.bound <= MOST_HIDDEN)
        seen = draws.seen[clear]
        bound = draws.bound[clear]
        self._sizes.add(len(seen), 0.0, float(seen @ seen), 0.0, 0.0, float(bound @ bound), 0.0)

    def take_together(self, of: str, draws: NoiseDraws) -> None:
        """Take draws that were made at once, a row each, with one bound.

        Any two of a row should be independent.
        """
        clear = draws.bound[:, 0] <= MOST_MOVED
        seen = draws.seen[clear]
        bounds = float((draws.bound[clear, 0] ** 2).sum())
        products = seen.T @ seen

        for j in range(len(products)):
            for k in range(j + 1, len(products)):
                squares = products[[j, j, k], [k, j, k]].tolist()
                self._product(f"{of} {j} and {k}").add(len(seen), *squares, bounds, bounds, bounds)

    def take_across(self, of: tuple[str, str], draws: NoiseDraws, others: NoiseDraws) -> None:
        """Take draws of two kinds that were made with one release, a row each.

        Any of the first should be independent of any of the others.
        """
        clear = draws.usable[:, 0] & (draws.bound[:, 0] <= MOST_MOVED)
        clear &= others.usable[:, 0] & (others.bound[:, 0] <= MOST_MOVED)
        n = int(clear.sum())
        seen = draws.seen[clear]
        bound = draws.bound[clear, 0]
        others_seen = others.seen[clear]
        other_bound = others.bound[clear, 0]
        bounds = (bound @ other_bound, bound @ bound, other_bound @ other_bound)
        squares = (seen**2).sum(axis=0)
        other_squares = (others_seen**2).sum(axis=0)

        for (j, k), product in np.ndenumerate(seen.T @ others_seen):
            first = of[0] if len(squares) == 1 else f"{of[0]} {j}"
            second = of[1] if len(other_squares) == 1 else f"{of[1]} {k}"
            name = f"{first} and {second} of one release"
            self._product(name).add(n, product, squares[j], other_squares[k], *bounds)

    def take_in_turn(self, of: str, draws: NoiseDraws, neighbors: str = "of two agents") -> None:
        """Take draws of agents, shape (n, number).

        Each should be independent of later ones, and of a neighbor's, which `neighbors` names.
        """
        number = np.arange(draws.seen.shape[1])

        for lag in range(1, len(number)):
            first = number[: len(number) - lag]
            first = first[first // lag % 2 == 0]  # no draw is in two pairs
            self._compare(f"{of} {lag} apart", draws, np.s_[:, first], np.s_[:, first + lag])

        self.take_of_neighbors(f"{of} {neighbors}", draws)

    def take_of_neighbors(self, name: str, draws: NoiseDraws) -> None:
        """Take draws, shape (n, number): rows 2 i and 2 i + 1 should be independent."""
        even = len(draws.seen) // 2 * 2
        self._compare(name, draws, np.s_[0:even:2], np.s_[1:even:2])

    def _compare(self, name: str, draws: NoiseDraws, one: Any, other: Any) -> None:
        usable = draws.usable & (draws.bound <= MOST_MOVED)
        clear = usable[one] & usable[other]
        if clear.any():
            (x, bound_x), (y, bound_y) = (
                (draws.seen[side][clear], draws.bound[side][clear]) for side in (one, other)
            )
            bounds = (bound_x @ bound_y, bound_x @ bound_x, bound_y @ bound_y)
            self._product(name).add(len(x), x @ y, x @ x, y @ y, *bounds)

    def _product(self, name: str) -> _Product:
        return self._products.setdefault(name, _Product())

    def fault(self, error: float | None = None) -> str | None:
        """Name the pair that shares most noise beyond chance, or say that draws are of another size than declared.

        What keeps to its law is blamed once in 1 / `error` audits (`ALARM_ERROR` where none is
        given), all comparisons of an audit together.
        """
        error = ALARM_ERROR if error is None else error
        compared = {
            name: product for name, product in self._products.items() if product.n >= LEAST_DRAWS
        }
        # Of each comparison, two products of noise and the lengths of two columns; of the sizes,
        # both ends.
        law = _Law(error / (4 * len(compared) + 2), self.square_share)
        if compared:
            name = max(compared, key=lambda product: compared[product].excess(law))
            if compared[name].excess(law) > 1.0:
                return f"{name} share noise (correlation {compared[name].correlation:.2f})"

        sizes = self._sizes
        if sizes.n < LEAST_DRAWS:
            return None
        length = math.sqrt(sizes.sums[1])
        off = math.sqrt(sizes.sums[4])
        least, greatest = (math.sqrt(law.squares(sizes.n, p)) for p in (law.error, 1.0 - law.error))

        if least - off <= length <= greatest + off:
            return None
        return f"single draws are {length / math.sqrt(sizes.n):.2f} times as large as declared"

    @property
    def comparisons(self) -> int:
        """Pairs of draws of which there are enough."""
        return sum(product.n >= LEAST_DRAWS for product in self._products.values())
