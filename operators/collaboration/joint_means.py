"""The joint posterior of many means: own parts, and the center that all of them share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from meanstream.operators.records import Bools, Floats, Ints, OwnMeans


@dataclass(frozen=True, slots=True, kw_only=True)
class JointMeans:
    """Public: normal posterior of many means, `value + weight * (center error) + stddev * (own error)`.

    Attributes
    ----------
    value : float array (n,)
        Posterior mean of each.
    stddev : float array (n,)
        Standard deviation of the part of the error that no other mean shares.
    weight : float array (n,)
        Share of the center in each value: the part of the center's error that it takes over.
    center_variance : float
        Variance with which the shared center is known.
    calibrated : bool
        Whether the standard errors are those of the errors. False where they come from intervals,
        which may be longer than their level needs: what is then said of ranks rests on a bound.

    Notes
    -----
    **Privacy.** Post-processing of releases: it spends nothing.

    Of two means with equal weights the center's error cancels in the difference.

    Examples
    --------
    >>> two = JointMeans(value=np.array([3.0, 1.0]), stddev=np.array([0.3, 0.4]),
    ...                  weight=np.ones(2), center_variance=9.0)
    >>> two.difference_stddev(np.array([0]), np.array([1])).round(12).tolist()
    [0.5]
    """

    value: Floats
    stddev: Floats
    weight: Floats
    center_variance: float = 0.0
    calibrated: bool = True

    def __len__(self) -> int:
        return len(self.value)

    @classmethod
    def independent(cls, value: Floats, lower: Floats, upper: Floats, level: float) -> Self:
        """Give independent normal posteriors that have these intervals.

        The longer side of an interval counts: the other one may be cut off by a bound.

        Examples
        --------
        >>> ends = np.array([-1.0]), np.array([1.96])
        >>> JointMeans.independent(np.array([0.0]), *ends, level=0.95).stddev.round(3).tolist()
        [1.0]
        """
        side = np.maximum(value - lower, upper - value)
        stddev = side / float(ndtri(0.5 + level / 2))
        return cls(value=value, stddev=stddev, weight=np.zeros(len(value)), calibrated=False)

    def take(self, rows: Ints | Bools) -> JointMeans:
        """Give the same of some of the means."""
        return replace(
            self, value=self.value[rows], stddev=self.stddev[rows], weight=self.weight[rows]
        )

    def centered_on(self, value: Floats) -> JointMeans:
        """Give the same errors around other values."""
        return replace(self, value=value)

    def difference_stddev(self, first: Ints, second: Ints) -> Floats:
        """Give the standard error of the difference of each pair of means."""
        shared = np.square(self.weight[first] - self.weight[second]) * self.center_variance
        own = np.square(self.stddev[first]) + np.square(self.stddev[second])
        return np.sqrt(own + shared)


@runtime_checkable
class JointPosterior(Protocol):
    """A fitted population that knows what the errors of its answers have in common."""

    def joint(self, own: OwnMeans) -> JointMeans:
        """Give the joint posterior of the agents whose own means these are, in their order."""
        ...


DRAWS = 2000
"""Draws of a joint posterior: a level of .95 is met within .005 (one standard error)."""
SEED = 1
_NUMBERS = 1 << 18
"""Numbers that are drawn at a time."""


def joint_errors(joint: JointMeans) -> Iterator[tuple[slice, Floats]]:
    """Draw errors of all means, some draws at a time, shape (draws, n), the same ones at every call.

    **Privacy.** They are no noise: everyone knows the seed. The posterior is public.

    Examples
    --------
    >>> one = JointMeans(value=np.zeros(1), stddev=np.ones(1), weight=np.zeros(1))
    >>> [errors.shape for _, errors in joint_errors(one)]
    [(2000, 1)]
    """
    generator = np.random.default_rng(SEED)
    n = len(joint)
    block = max(1, _NUMBERS // max(n, 1))
    center_stddev = math.sqrt(joint.center_variance)

    for start in range(0, DRAWS, block):
        draws = slice(start, min(start + block, DRAWS))
        own = generator.standard_normal((draws.stop - start, n))
        center = generator.standard_normal((draws.stop - start, 1))
        yield draws, joint.stddev * own + joint.weight * (center_stddev * center)


def difference_of_two(
    joint: JointMeans, first: int, second: int, *, level: float
) -> tuple[float, float, float]:
    """Give a difference, half the length of its interval, and the probability that the first mean is above.

    Examples
    --------
    >>> two = JointMeans(value=np.array([3.0, 1.0]), stddev=np.array([0.6, 0.8]), weight=np.zeros(2))
    >>> [round(number, 3) for number in difference_of_two(two, 0, 1, level=0.95)]
    [2.0, 1.96, 0.977]
    """
    stddev = float(joint.difference_stddev(np.array([first]), np.array([second]))[0])
    value = float(joint.value[first] - joint.value[second])
    probability = float(ndtr(value / max(stddev, np.finfo(np.float64).tiny)))

    return value, float(ndtri(0.5 + level / 2)) * stddev, probability


def differences_from_one(
    joint: JointMeans, reference: int, *, level: float
) -> tuple[Floats, Floats, Floats]:
    """Give the differences of all means from one, their half-widths, which hold together, and probabilities.

    Notes
    -----
    All half-widths are one multiple of the standard errors: the quantile at `level` of the largest of the errors in
    units of those, in draws of the joint posterior. The reference has no difference from itself: 0, 0 and one half.

    Examples
    --------
    >>> three = JointMeans(value=np.array([3.0, 1.0, 0.0]), stddev=np.ones(3), weight=np.zeros(3))
    >>> difference, half_width, _ = differences_from_one(three, 0, level=0.95)
    >>> difference.tolist(), (half_width / np.sqrt(2)).round(1).tolist()
    ([0.0, -2.0, -3.0], [0.0, 2.2, 2.2])
    """
    n = len(joint)
    others = np.delete(np.arange(n), reference)
    difference = joint.value - joint.value[reference]
    stddev = np.zeros(n)
    stddev[others] = joint.difference_stddev(others, np.full(n - 1, reference))
    usable = np.maximum(stddev, np.finfo(np.float64).tiny)

    largest = np.zeros(DRAWS)
    for draws, errors in joint_errors(joint):
        away = np.abs(errors - errors[:, [reference]]) / usable
        largest[draws] = away[:, others].max(axis=1, initial=0.0)

    multiple = float(np.quantile(largest, level, method="higher"))
    return difference, multiple * stddev, (ndtr(difference / usable))


_PAIRS = 1 << 21
"""Pairs at a time."""


def rank_sets(joint: JointMeans, *, level: float) -> tuple[Ints, Ints, Ints]:
    """Give the rank of each mean, 1 for the highest, and the least and greatest rank that it may have.

    The sets of all means hold together with probability `level`.

    Notes
    -----
    A mean is surely above another if it is more than a threshold of standard errors above it. Its least rank counts
    the means that are surely above it, its greatest one those surely below. The threshold is the least one at which
    the ranks of all means are in their sets in a share `level` of the draws: the quantile of a maximum over means.

    That rests on right standard errors. Longer ones make the drawn means spread more than the true
    ones, and sets too short. So where they are not `calibrated`, the threshold is that of Mogstad
    and others: all differences hold together, for errors that are as large as said or smaller.

    References
    ----------
    M. Mogstad, J. P. Romano, A. M. Shaikh, D. Wilhelm, Inference for Ranks with Applications to Mobility across
    Neighbourhoods and Academic Achievement across Countries, Review of Economic Studies 2024: sets of ranks from
    simultaneous differences. Here the draws are of a posterior, and the threshold is that of the ranks themselves.

    Examples
    --------
    >>> far = JointMeans(value=np.array([0.0, 9.0, 0.5]), stddev=np.ones(3), weight=np.zeros(3))
    >>> [ranks.tolist() for ranks in rank_sets(far, level=0.95)]
    [[3, 1, 2], [2, 1, 2], [3, 1, 3]]
    """
    n = len(joint)
    threshold = _rank_threshold(joint, level) if joint.calibrated else _pair_threshold(joint, level)
    above = np.zeros(n, np.int64)
    below = np.zeros(n, np.int64)

    for rows, apart in _differences(joint):
        above[rows] = np.count_nonzero(apart < -threshold, axis=1)
        below[rows] = np.count_nonzero(apart > threshold, axis=1)

    return _ranks(joint.value).astype(np.int64), 1 + above, n - below


def _pair_threshold(joint: JointMeans, level: float) -> float:
    """Give a bound on the errors of all differences, in standard errors.

    By Cauchy and Schwarz the difference of two independent errors is at most the root of their
    squares in units of its own standard error: that of the two largest ones bounds all.
    """
    largest = np.zeros(DRAWS)
    for draws, errors in joint_errors(joint):
        squares = np.square(errors / np.maximum(joint.stddev, np.finfo(np.float64).tiny))
        squares.sort(axis=1)
        largest[draws] = np.sqrt(squares[:, -2:].sum(axis=1))

    return float(np.quantile(largest, level, method="higher"))


def _rank_threshold(joint: JointMeans, level: float) -> float:
    """Give how many standard errors apart means must be to be surely in order, see `rank_sets`."""
    n = len(joint)
    drawn = np.empty((DRAWS, n), np.int32)
    for draws, errors in joint_errors(joint):
        drawn[draws] = _ranks(joint.value + errors)

    # A mean of drawn rank r has r - 1 means above it. If more were surely above, its rank would not
    # be in its set: so the threshold is at least the r-th largest of the differences by which
    # others are above it, and likewise below.
    largest = np.zeros(DRAWS)
    for rows, apart in _differences(joint):
        apart.sort(axis=1)
        of_rows = np.arange(apart.shape[0])
        rank = drawn[:, rows]
        higher = -apart[of_rows, rank - 1]
        lower = apart[of_rows, rank - 1]
        np.maximum(largest, np.maximum(higher, lower).max(axis=1), out=largest)

    return float(np.quantile(largest, level, method="higher"))


def _ranks(value: Floats) -> npt.NDArray[np.int32]:
    """Rank numbers from the highest one, which is 1."""
    rank = np.empty(value.shape, np.int32)
    numbers = np.broadcast_to(np.arange(1, value.shape[-1] + 1, dtype=np.int32), value.shape)
    order = np.argsort(-value, axis=-1, kind="stable")
    np.put_along_axis(rank, order, numbers, axis=-1)

    return rank


def _differences(joint: JointMeans) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """Give the differences of some means from all, in standard errors, a block of rows at a time."""
    n = len(joint)
    block = max(1, _PAIRS // max(n, 1))
    own = np.square(joint.stddev)

    for start in range(0, n, block):
        rows = slice(start, min(start + block, n))
        variance = np.add.outer(own[rows], own)

        if joint.center_variance:
            weight = np.subtract.outer(joint.weight[rows], joint.weight)
            variance += np.square(weight) * joint.center_variance

        apart = np.subtract.outer(joint.value[rows], joint.value)
        apart /= np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny))
        yield rows, apart.astype(np.float32)
