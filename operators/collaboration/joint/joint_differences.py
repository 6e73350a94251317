"""Differences of means under their joint posterior: of two, and of all from one."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from meanstream.operators.collaboration.joint.joint_draws import DRAWS, joint_errors
from meanstream.operators.collaboration.joint.joint_means import JointMeans
from meanstream.operators.records import Floats


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
