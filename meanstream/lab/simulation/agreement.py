"""How often agents of one class are distinguished, and agents of two classes are not."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from meanstream.operators.records import Floats, Ints, OwnMeans

MOST_ROWS = 2000
"""Tests of the first that many agents against all others are counted."""


def agreement_component_errors(component: Ints, classes: Ints) -> tuple[float, float]:
    """Share of pairs of one class with different components, and of pairs of two classes with the same.

    Examples
    --------
    >>> agreement_component_errors(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]))
    (0.6666666666666666, 0.3333333333333333)
    """
    if (component < 0).any():
        return float("nan"), float("nan")
    table = np.zeros((component.max() + 1, classes.max() + 1))
    np.add.at(table, (component, classes), 1)
    both = _pairs(table)
    same_class = _pairs(table.sum(axis=0))
    same_component = _pairs(table.sum(axis=1))
    everybody = _pairs(table.sum())

    return _share(same_class - both, same_class), _share(
        same_component - both, everybody - same_class
    )


def agreement_rejection_errors(
    own: OwnMeans, released: Floats, variance: Floats, classes: Ints, significance: float
) -> tuple[float, float]:
    """Share of tests within a class that reject, and between classes that accept."""
    rows = slice(0, MOST_ROWS)
    quantile = -ndtri(0.5 * significance / np.log(own.count[rows, None] + 1.0))
    radius = quantile * np.sqrt(own.variance[rows, None] + variance)
    accepted = np.abs(own.mean[rows, None] - released) < radius
    same = classes[rows, None] == classes
    others = np.arange(len(released)) != own.agent[rows, None]
    within = same & others

    return _share((within & ~accepted).sum(), within.sum()), _share(
        (~same & accepted).sum(), (~same).sum()
    )


def _pairs(sizes: Floats) -> float:
    return float((sizes * (sizes - 1)).sum() / 2)


def _share(part: float, whole: float) -> float:
    if whole:
        return float(part / whole)
    return float("nan")
