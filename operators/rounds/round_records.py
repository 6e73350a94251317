"""The records of a round.

What a user knows (private), what crosses the boundary, and what is answered (public).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from meanstream.operators.records import Bools, Floats, Ints, Words

Public = dict[str, Any]
"""What everyone knows before a stage, as plain JSON data: results of the stages before it."""

Reports = Ints
"""Public: one row of integers per user, shape (n, width of the round); nothing else leaves a
user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summaries:
    """Private: the samples of each user within one window, summed up; one entry per user.

    Attributes
    ----------
    user : uint64 array (n, 2)
        Hash of each user's id, from `meanstream.operators.noise.keyed.keyed_owner_words`.
    count : int64 array (n,)
        Number of the user's samples, at least 1. Private, as their values are.
    total : int64 array (n,) or (n, d)
        Exact sum of the samples on the grid of `FixedPoint`, each in `0..span`. Estimators of
        vectors take a row of d features for each sample, and sums of these. Numbers of samples of
        each category are unsigned and may be of fewer bytes; so is `first` then.
    first : int64 array (n,) or (n, d)
        The sample with the earliest event time, on the same grid.
    span : int
        Grid points of the declared bounds: `upper - lower` in steps.
    offset : float array (n,), optional
        Public, on [-1, 1]: how far a forecast lets each user's mean lie from the users' mean. It is
        0 in the mean over all users who take part.
    """

    user: Words
    count: Ints
    total: Ints
    first: Ints
    span: int
    offset: Floats | None = None

    def __len__(self) -> int:
        return len(self.count)

    @property
    def mean(self) -> Floats:
        """Each user's raw mean, on [-1, 1], shape (n,) or (n, d)."""
        count = self.count if self.total.ndim == 1 else self.count[:, np.newaxis]
        return np.asarray(2.0 * (self.total / count) / self.span - 1.0, dtype=np.float64)

    @property
    def residual(self) -> Floats:
        """Each user's mean less its public offset: of all users, the mean is the same."""
        return self.mean if self.offset is None else self.mean - self.offset

    @property
    def first_value(self) -> Floats:
        """Each user's earliest sample, on [-1, 1]."""
        return np.asarray(2.0 * self.first / self.span - 1.0, dtype=np.float64)

    def take(self, which: Ints | Bools | slice) -> Summaries:
        """Select users."""
        return replace(
            self,
            user=self.user[which],
            count=self.count[which],
            total=self.total[which],
            first=self.first[which],
            offset=None if self.offset is None else self.offset[which],
        )


@dataclass(frozen=True, slots=True)
class Tally:
    """Public: reports added up. Integers of any size, so that the order of adding changes nothing.

    Attributes
    ----------
    n : int
        Number of reports.
    sums : tuple of int
        What the round adds up, such as the sum and the sum of squares, or the votes for each bin.
        Empty for no reports.
    """

    n: int = 0
    sums: tuple[int, ...] = ()

    def __add__(self, other: Self) -> Tally:
        if not self.sums or not other.sums:
            return Tally(self.n + other.n, self.sums or other.sums)
        return Tally(
            self.n + other.n, tuple(a + b for a, b in zip(self.sums, other.sums, strict=True))
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """Public: a population's private mean in one window, with its interval.

    Or means of features, of components.

    Attributes
    ----------
    value, lower, upper : float array, shape () or (d,)
        The mean over users and its interval, for each coordinate (each component, for a mixture;
        each coefficient, for a density). Estimators answer on [-1, 1]; `in_unit` turns it into the
        value's unit.
    level : float
        Nominal coverage of the interval.
    stderr : float array, shape () or (d,)
        Standard error of `value`.
    epsilon, delta : float
        Privacy of everything a user sent for this answer.
    trust : str
        "local" (each user protects itself) or "central" (a trusted curator adds the noise).
    n_users : int
        Number of users who took part, in all stages. Their number of samples is private.
    method, mode : str
        Name of the estimator; "paper" or "tuned".
    unclipped : float array, shape () or (d,)
        The same answer before it was cut to the declared bounds: unbiased where `value` is not, for
        averaging.
    stages : tuple of dict
        What each stage found, in the estimator's terms: public, for `explain` and for pictures.
    components : tuple of dict
        Of a mixture: `weight` and `weight_stderr` of each component, in the order of `value`.
    function : dict or None
        Of a density: plain data that
        `meanstream.lab.papers.kent.density.DensityFunction.of` reads.
    """

    value: Floats
    lower: Floats
    upper: Floats
    level: float
    stderr: Floats
    epsilon: float
    delta: float = 0.0
    trust: str = "local"
    n_users: int
    method: str
    mode: str
    unclipped: Floats
    stages: tuple[dict[str, Any], ...] = field(default=())
    components: tuple[dict[str, Any], ...] = field(default=())
    function: dict[str, Any] | None = None

    def in_unit(self, lower: npt.ArrayLike, upper: npt.ArrayLike) -> Estimate:
        """Turn an answer on [-1, 1] into one on [lower, upper].

        Coordinates may have bounds of their own.

        A density keeps its coefficients, which have no unit, and moves to [lower, upper].
        """
        if self.function is not None:
            ends = {"lower": float(np.asarray(lower)), "upper": float(np.asarray(upper))}
            return replace(self, function=self.function | ends)

        lower, upper = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
        half = 0.5 * (upper - lower)

        def place(x: npt.ArrayLike) -> Floats:
            return np.asarray(lower + half * (np.asarray(x, dtype=np.float64) + 1.0))

        return replace(
            self,
            value=place(self.value),
            lower=place(self.lower),
            upper=place(self.upper),
            stderr=np.asarray(self.stderr * half),
            unclipped=place(self.unclipped),
        )
