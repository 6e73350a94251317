"""Sets of ranks that hold together, from draws of the joint posterior of all means."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from meanstream.operators.collaboration.joint.joint_draws import DRAWS, joint_errors
from meanstream.operators.collaboration.joint.joint_means import JointMeans
from meanstream.operators.records import Floats, Ints

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
