"""Private: answers whose interval rests on the long-run variance of an agent's samples, and whose value on both."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meanstream.operators.records import AgentEstimates, Floats, OwnMeans

if TYPE_CHECKING:
    from meanstream.operators.collaboration.registry import FittedPopulation

ALIKE = 1.02
"""Variances whose ratio is within this of 1 give one answer."""


def estimate_with_two_variances(fitted: FittedPopulation, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
    """Private: answer each agent, given its own raw mean; addressed to that agent only.

    Parameters
    ----------
    fitted : FittedPopulation
        Public: what everybody's releases say.
    own : OwnMeans
        With the variance of each mean for its interval and for its value.
    level : float
        Nominal coverage of the intervals.

    Notes
    -----
    Where samples depend on each other an own mean is worth less than so many independent samples if the next month is
    asked for, and as much if another half of the same samples is. So the value is half-way: the mean of the answers
    with both variances. The interval is that of the long-run variance, about the value; each of its sides is the root
    of the squares of its own length and of what the value was moved by.

    Examples
    --------
    >>> from meanstream.operators.collaboration.alone import FittedAlone
    >>> own = OwnMeans(agent=np.array([0]), count=np.array([4]), mean=np.array([2.0]), variance=np.array([1.0]),
    ...                value_variance=np.array([0.25]))
    >>> answer = estimate_with_two_variances(FittedAlone(), own)
    >>> answer.value.tolist(), answer.upper.round(2).tolist()
    ([2.0], [3.96])
    """
    answer = fitted.estimate(own, level=level)
    ratio = own.variance / np.maximum(own.value_variance, np.finfo(np.float64).tiny)
    some = np.flatnonzero((ratio > ALIKE) | (ratio < 1 / ALIKE))
    if not len(some):
        return answer
    columns: dict[str, Any] = {of.name: getattr(own, of.name)[some] for of in fields(own)}
    short = fitted.estimate(OwnMeans(**{**columns, "variance": columns["value_variance"]}), level=level)
    value = 0.5 * (answer.value[some] + short.value)
    moved = value - answer.value[some]

    def side(length: Floats) -> Floats:
        return np.asarray(np.sqrt(np.square(length) + np.square(moved)))

    found = {name: getattr(answer, name).copy() for name in ("value", "lower", "upper")}
    lower, upper = side(answer.value[some] - answer.lower[some]), side(answer.upper[some] - answer.value[some])
    found["value"][some], found["lower"][some], found["upper"][some] = value, value - lower, value + upper
    if answer.moved is not None and short.moved is not None:
        found["moved"] = answer.moved.copy()
        found["moved"][some] = 0.5 * (answer.moved[some] + short.moved)
    return replace(answer, **found)
