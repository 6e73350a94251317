"""The joint posterior of many means: own parts, and the center that all of them share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import numpy as np
from scipy.special import ndtri

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
