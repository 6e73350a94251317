"""The distribution of how many samples a user has.

Public knowledge that decides what an estimator can do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require, valid_float

MAX_SIZES = 10_000_000
FORMS = (
    "point:k, two:a,b,p, uniform:a,b, poisson:l, binomial:n,p, lognormal:mean,s[,max], zipf:s,max"
)


@dataclass(frozen=True, slots=True, eq=False)
class SizeDistribution:
    """Probabilities of the numbers of samples of one user, all at least 1.

    Parameters
    ----------
    support : int array (k,)
        Possible sizes, ascending. The first one is the least even if its probability is too small
        for a float.
    probability : float array (k,)
        Of each size; adds to 1.

    Notes
    -----
    **Privacy.** Users' sizes are private; their distribution is assumed public. Where it is read off the data at hand,
    that reading is not covered by any epsilon: take it from elsewhere, or from earlier published counts.

    Examples
    --------
    >>> sizes = SizeDistribution.parse("two:100,10000,0.25")
    >>> sizes.mean_sqrt(), sizes.mean_sqrt(400), sizes.tail(101), sizes.tail(100)
    (32.5, 12.5, 0.25, 1.0)
    """

    support: Ints
    probability: Floats
    _tails: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        support = np.asarray(self.support, dtype=np.int64)
        probability = np.asarray(self.probability, dtype=np.float64)
        require(
            support.ndim == 1 and support.size > 0,
            "support",
            "hold at least one size",
            support.shape,
        )

        require(
            support.shape == probability.shape,
            "probability",
            f"have shape {support.shape}",
            probability.shape,
        )

        require(bool((np.diff(support) > 0).all()), "support", "be ascending", "sizes that are not")
        require(int(support[0]) >= 1, "support", "start at 1 or more", int(support[0]))
        require(
            bool((probability >= 0).all()), "probability", "be at least 0", float(probability.min())
        )
        total = float(probability.sum())
        require(abs(total - 1.0) < 1e-6, "probability", "add up to 1", total)
        object.__setattr__(self, "support", support)
        probability = probability / total
        object.__setattr__(self, "probability", probability)
        # Added up from the far end: small tails keep their digits, and none exceeds the one before
        # it.
        object.__setattr__(self, "_tails", np.minimum(np.cumsum(probability[::-1])[::-1], 1.0))

    @classmethod
    def from_counts(cls, counts: npt.ArrayLike) -> Self:
        """Make the distribution of some users' sizes.

        Parameters
        ----------
        counts : int array (n,)
            Number of samples of each user; users without any do not take part.
        """
        sizes, times = np.unique(np.asarray(counts, dtype=np.int64), return_counts=True)
        times = times[sizes > 0]
        require(times.size > 0, "counts", "hold at least one user with samples", "none")
        return cls(sizes[sizes > 0], times / times.sum())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a distribution from an option of the command line.

        Parameters
        ----------
        text : str
            `point:k`; `two:a,b,p`, where p is the probability of b; `uniform:a,b`, both included;
            `poisson:l` and `binomial:n,p`, given that the size is at least 1;
            `lognormal:mean,s[,max]`, rounded up and cut at max (by default the 99.99 % quantile);
            `zipf:s,max`, where k has probability proportional to k**-s.
        """
        form, separator, rest = text.rpartition(":")
        require(bool(separator) and form in _PARSERS, "sizes", f"be one of {FORMS}", text)
        numbers = _numbers(text, rest)
        make, allowed = _PARSERS[form]
        require(len(numbers) in allowed, "sizes", f"be one of {FORMS}", text)

        return cls(*make(text, *numbers))

    @staticmethod
    def respelled(text: str) -> str:
        """Give the one text of all that name the same law.

        What `parse` does not read stays as it is.

        Examples
        --------
        >>> SizeDistribution.respelled("two:1e2,1000.0,.50"), SizeDistribution.respelled("flights.csv:tailnum")
        ('two:100,1000,0.5', 'flights.csv:tailnum')
        """
        form, _, rest = text.rpartition(":")
        try:
            numbers = _numbers(text, rest) if form in _PARSERS else []
        except ValueError:  # it is refused where it is read
            return text

        shown = [str(int(number)) if number.is_integer() else repr(number) for number in numbers]

        if shown:
            return f"{form}:{','.join(shown)}"
        return text

    @property
    def least(self) -> int:
        """Smallest possible size."""
        return int(self.support[0])

    @property
    def greatest(self) -> int:
        """Largest possible size."""
        return int(self.support[-1])

    @property
    def mean(self) -> float:
        """Expected size."""
        return float(self.probability @ self.support)

    def mean_sqrt(self, cap: float = math.inf) -> float:
        """Compute the expected square root of a size, where sizes above `cap` count as `cap`."""
        return float(self.probability @ np.sqrt(np.minimum(self.support, cap)))

    def tail(self, size: float) -> float:
        """Probability of at least this size.

        Exactly 1 up to the least one, exactly 0 above the greatest.
        """
        start = int(np.searchsorted(self.support, math.ceil(size)))
        if start == 0:
            return 1.0

        if start < len(self._tails):
            return float(self._tails[start])
        return 0.0

    def describe(self) -> dict[str, Any]:
        """Summary as plain data."""
        return {
            "least": self.least,
            "greatest": self.greatest,
            "mean": self.mean,
            "mean_sqrt": self.mean_sqrt(),
        }


_Table = tuple[Ints, Floats]


def _point(text: str, k: float) -> _Table:
    return np.array([_size(text, k)]), np.ones(1)


def _two(text: str, a: float, b: float, p: float) -> _Table:
    require(0.0 <= p <= 1.0, "sizes", "have a probability between 0 and 1", text)
    small = _size(text, a)
    large = _size(text, b)
    require(small < large, "sizes", "have its sizes in order", text)
    possible = np.array([p < 1.0, p > 0.0])

    return np.array([small, large])[possible], np.array([1.0 - p, p])[possible]


def _uniform(text: str, a: float, b: float) -> _Table:
    low = _size(text, a)
    high = _size(text, b)
    require(low <= high and high - low < MAX_SIZES, "sizes", "have its bounds in order", text)
    return np.arange(low, high + 1), np.full(high - low + 1, 1.0 / (high - low + 1))


def _poisson(text: str, mean: float) -> _Table:
    require(
        0.0 < mean <= MAX_SIZES / 10, "sizes", "have a positive mean of at most a million", text
    )
    from scipy.stats import poisson  # noqa: PLC0415 - a second of every start, where no one asks for it

    support = np.arange(1, 2 + int(poisson.isf(1e-16, mean)))
    return support, _positive_part(poisson.pmf(support, mean))


def _binomial(text: str, n: float, p: float) -> _Table:
    require(0.0 < p <= 1.0, "sizes", "have a probability above 0, up to 1", text)
    trials = _size(text, n)
    require(trials <= MAX_SIZES, "sizes", f"have at most {MAX_SIZES} trials", text)

    if p == 1.0:
        return np.array([trials]), np.ones(1)
    from meanstream.operators.rounds.binomial import binomial_probability  # noqa: PLC0415 - the same

    support = np.arange(1, trials + 1)
    return support, _positive_part(binomial_probability(support, trials, p))


def _lognormal(text: str, mean: float, s: float, greatest: float = math.nan) -> _Table:
    require(mean > 0.0 and s > 0.0, "sizes", "have a positive mean and s", text)
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - the same

    median = mean * math.exp(-0.5 * s * s)
    most = (
        np.exp(s * ndtri(0.9999)) * median
    )  # as `scipy.stats.lognorm` computes, half a second of imports later
    cut = math.ceil(most) if math.isnan(greatest) else _size(text, greatest)
    require(cut <= MAX_SIZES, "sizes", f"be at most {MAX_SIZES}", text)
    edges = np.concatenate([[0.0], ndtr(np.log(np.arange(1, cut) / median) / s), [1.0]])

    return np.arange(1, cut + 1), np.diff(edges)


def _zipf(text: str, s: float, greatest: float) -> _Table:
    require(s >= 0.0, "sizes", "have an s of at least 0", text)
    last = _size(text, greatest)
    require(last <= MAX_SIZES, "sizes", f"be at most {MAX_SIZES}", text)
    support = np.arange(1, last + 1)

    return support, _positive_part(support.astype(np.float64) ** -s)


_PARSERS: dict[str, tuple[Callable[..., _Table], tuple[int, ...]]] = {
    "point": (_point, (1,)),
    "two": (_two, (3,)),
    "uniform": (_uniform, (2,)),
    "poisson": (_poisson, (1,)),
    "binomial": (_binomial, (2,)),
    "lognormal": (_lognormal, (2, 3)),
    "zipf": (_zipf, (2,)),
}


def _positive_part(pmf: Floats) -> Floats:
    """Condition on the sizes from 1 that are listed."""
    return np.asarray(pmf / pmf.sum())


def _numbers(text: str, rest: str) -> list[float]:
    try:
        found = [valid_float("sizes", part) for part in rest.split(",")]
    except ValueError:
        raise ValueError(f"sizes must be one of {FORMS}, got {text!r}") from None

    require(all(map(math.isfinite, found)), "sizes", "have finite numbers", text)
    return found


def _size(text: str, value: float) -> int:
    require(value == int(value) and 1 <= value <= 2**53, "sizes", "have whole sizes from 1", text)
    return int(value)
