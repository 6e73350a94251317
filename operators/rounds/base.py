"""What all local estimators share.

Validated settings, exact sums of reports, and an answer from these sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_ndtr, ndtri

from meanstream.operators.limits import LEAST_EPSILON
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.round_records import Estimate, Tally
from meanstream.operators.validation import require, require_between, require_epsilon

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

MODES = ("paper", "tuned")
COMMON_OPTIONS = frozenset({"sizes", "mode", "level"})

_LIMB_BITS = 16
_LIMBS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What every local estimator is told.

    Parameters
    ----------
    method : str
        Name of the estimator.
    epsilon : float
        Privacy of everything that one user sends.
    users : int
        How many users take part (public), at least 1.
    sizes : SizeDistribution or None
        Law of a user's number of samples (public); None if the estimator does not need it.
    mode : str
        "paper" or "tuned".
    level : float
        Nominal coverage of the interval, between 0 and 1.
    trust : {"local", "central"}
        Who sees users' samples: no one, or a curator.

    Examples
    --------
    >>> Settings(method="duchi", epsilon=0.0, users=10, sizes=None, mode="paper", level=0.95)
    Traceback (most recent call last):
    ValueError: epsilon must be positive and finite, got 0.0
    """

    method: str
    epsilon: float
    users: int
    sizes: SizeDistribution | None
    mode: str
    level: float
    trust: str = "local"

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon, least=LEAST_EPSILON)
        require(
            self.users >= 1 and self.users == int(self.users),
            "users",
            "be an integer, at least 1",
            self.users,
        )
        require(self.mode in MODES, "mode", f"be one of {', '.join(MODES)}", self.mode)
        require_between(0.0, 1.0, level=self.level)

    @property
    def known_sizes(self) -> SizeDistribution:
        """The law of sizes, for an estimator that cannot do without it."""
        if self.sizes is None:
            rule = (
                f"be given for {self.method} (for example poisson:5): it decides what users report"
            )
            require(False, "sizes", rule, None)
            raise AssertionError

        return self.sizes

    @property
    def averaging(self) -> float:
        """E 1/M: variance of a user's mean of samples of variance 1.

        Of one sample where sizes are not known.
        """
        if self.sizes is None:
            return 1.0
        return float((self.sizes.probability / self.sizes.support).sum())

    @property
    def tuned(self) -> bool:
        """Whether the paper's choices may be improved."""
        return self.mode == "tuned"

    def describe(self) -> dict[str, Any]:
        """Public, plain data."""
        return {
            "method": self.method,
            "mode": self.mode,
            "epsilon": self.epsilon,
            "users": self.users,
            "level": self.level,
            "trust": self.trust,
            "sizes": None if self.sizes is None else self.sizes.describe(),
        }

    def answer(
        self,
        unclipped: float,
        stderr: float,
        *,
        n_users: int,
        stages: Sequence[dict[str, Any]] = (),
        margin: float | None = None,
        interval: tuple[float, float] | None = None,
    ) -> Estimate:
        """Make the estimate: cut to [-1, 1], which is free and never farther from the truth.

        The interval is normal, unless it is given, or its half-width as `margin`.
        """
        margin = float(ndtri(0.5 * (1.0 + self.level))) * stderr if margin is None else margin
        ends = (unclipped - margin, unclipped + margin) if interval is None else interval
        return self._estimate(unclipped, stderr, ends, n_users, stages)

    def no_answer(
        self,
        *,
        n_users: int,
        unclipped: float = 0.0,
        stderr: float = 1.0,
        stages: Sequence[dict[str, Any]] = (),
    ) -> Estimate:
        """Make the estimate from too few reports to tell their spread.

        The interval is all of [-1, 1].
        """
        return self._estimate(unclipped, stderr, (-1.0, 1.0), n_users, stages)

    def _estimate(
        self,
        unclipped: float,
        stderr: float,
        interval: tuple[float, float],
        n_users: int,
        stages: Sequence[dict[str, Any]],
    ) -> Estimate:
        value, lower, upper = np.clip([unclipped, *interval], -1.0, 1.0)
        return Estimate(
            value=np.asarray(value),
            lower=np.asarray(lower),
            upper=np.asarray(upper),
            level=self.level,
            stderr=np.asarray(stderr, np.float64),
            epsilon=self.epsilon,
            trust=self.trust,
            n_users=n_users,
            method=self.method,
            mode=self.mode,
            unclipped=np.asarray(unclipped, np.float64),
            stages=tuple(stages),
        )


def round_tally_moments(reports: Ints) -> Tally:
    """Add up reports and their squares, exactly.

    Parameters
    ----------
    reports : int64 array (n,)

    Returns
    -------
    Tally
        With sums (sum, sum of squares).

    Examples
    --------
    >>> round_tally_moments(np.array([2**40, -(2**40), 3])).sums == (3, 2 * 2**80 + 9)
    True
    """
    if not len(reports):
        return Tally()
    return Tally(len(reports), (int(reports.sum()), exact_round_dot(reports, reports)))


def exact_round_dot(a: Ints, b: Ints) -> int:
    """Sum of products of two int64 arrays as an integer of any size.

    Examples
    --------
    >>> exact_round_dot(np.array([2**50, -(2**50)]), np.array([2**50, 2**49])) == 2**100 - 2**99
    True
    """
    if not len(a):
        return 0
    largest = int(np.abs(a).max()) * int(np.abs(b).max())
    if largest * len(a) < 2**62:
        return int(np.dot(a, b))

    # Products of 16-bit pieces are below 2**32: 2**31 of them add up without overflow.
    pieces_a = _limbs(a)
    pieces_b = _limbs(b)
    return sum(
        int(np.dot(x, y)) << (_LIMB_BITS * (i + j))
        for i, x in enumerate(pieces_a)
        for j, y in enumerate(pieces_b)
    )


def _limbs(values: Ints) -> list[Ints]:
    """Split into 16-bit pieces, lowest first; the highest carries the sign."""
    low = [(values >> (_LIMB_BITS * i)) & (2**_LIMB_BITS - 1) for i in range(_LIMBS - 1)]
    return [*low, values >> (_LIMB_BITS * (_LIMBS - 1))]


def round_mean_and_stderr(tally: Tally) -> tuple[float, float]:
    """Mean of the reports and its standard error, from their own sample variance.

    Parameters
    ----------
    tally : Tally
        Of `round_tally_moments`, with at least two reports.

    Examples
    --------
    >>> round_mean_and_stderr(round_tally_moments(np.array([1, 2, 3, 6])))
    (3.0, 1.0801234497346435)
    """
    total, squares = tally.sums
    n = tally.n
    # n * squares - total**2 is exact and not negative: nothing cancels.
    variance = (n * squares - total * total) / (n * (n - 1))
    return total / n, math.sqrt(variance / n)


def round_wrong_bin_chance(margin: float, *, right: int, wrong: int) -> float:
    """Probability that noisy votes elect one of the bins that no one voted for.

    Parameters
    ----------
    margin : float
        Expected lead of the voters' bins over the others, in standard deviations of one bin's noisy
        count.
    right, wrong : int
        Number of bins with everyone's votes, and with no one's.

    Returns
    -------
    float
        For independent normal counts.

    Examples
    --------
    >>> [round(round_wrong_bin_chance(margin, right=1, wrong=99), 3) for margin in (0.0, 3.0, 6.0)]
    [0.99, 0.322, 0.001]
    """
    if wrong <= 0:
        return 0.0
    x: Floats = np.linspace(-9.0, 9.0, 2001) + margin
    best = np.exp(right * log_ndtr(x - margin))
    all_lose = np.exp(wrong * log_ndtr(0.5 * (x[1:] + x[:-1])))

    return float(np.clip(1.0 - (np.diff(best) * all_lose).sum(), 0.0, 1.0))
