"""Errors at the checkpoints, run by run, how often agents of one class are distinguished, and the summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import ndtri

from meanstream.lab.simulation.config import SimulationConfig
from meanstream.operators.records import Floats, Ints, OwnMeans

Series = list[float] | None
Track = Callable[[Sequence[range]], Iterable[range]]
"""Gives chunks of runs one by one, and may tell someone how far that is."""


@dataclass(slots=True)
class RunErrors:
    """Per-run averages at the checkpoints, each of shape (checkpoints, runs).

    NaN where a measure does not apply.

    Fill row i at checkpoint i. `mse`, `local`, `ideal` and `oracle` are mean squared errors over
    the agents, `coverage` the share of nominal intervals that hold the true mean, `type1` the share
    of pairs of one class that are rejected, `type2` of pairs of two classes that are accepted.
    """

    mse: Floats
    local: Floats
    ideal: Floats
    oracle: Floats
    coverage: Floats
    type1: Floats
    type2: Floats

    @classmethod
    def empty(cls, checkpoints: int, runs: int) -> Self:
        """Room for the checkpoints of some runs."""
        return cls(*(np.full((checkpoints, runs), np.nan) for _ in range(7)))

    @classmethod
    def joined(cls, parts: list[RunErrors]) -> RunErrors:
        """Put chunks of runs side by side."""
        return cls(*(np.concatenate([getattr(p, n) for p in parts], axis=1) for n in cls.__slots__))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What a simulation found; a measure that does not apply is None.

    Attributes
    ----------
    checkpoints : list of int
    mse, stderr : list of float
        Mean over the runs of the mean squared error over the agents, and its standard error over
        the runs (None for a single run).
    local, ideal, oracle : list of float or None
        The same for learning alone, for all raw data of the own class (Prop. 2; learning alone
        where there are no classes), and for the same releases with the true classes (None where
        there are no exact classes).
    coverage, type1, type2 : list of float or None
        See `RunErrors`.
    config : dict
        The configuration as plain data.
    """

    checkpoints: list[int]
    mse: list[float]
    stderr: Series
    local: list[float]
    ideal: list[float]
    oracle: Series
    coverage: Series
    type1: Series
    type2: Series
    config: dict[str, Any]

    @classmethod
    def from_errors(cls, config: SimulationConfig, errors: RunErrors) -> Self:
        """Average over the runs."""
        runs = errors.mse.shape[1]
        spread = errors.mse.std(axis=1, ddof=1) / np.sqrt(runs) if runs > 1 else None
        return cls(
            checkpoints=list(config.checkpoints),
            mse=_averages(errors.mse) or [],
            stderr=None if spread is None else spread.tolist(),
            local=_averages(errors.local) or [],
            ideal=_averages(errors.ideal) or [],
            oracle=_averages(errors.oracle),
            coverage=_averages(errors.coverage),
            type1=_averages(errors.type1),
            type2=_averages(errors.type2),
            config=config.as_dict(),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, in the order of the attributes."""
        return {name: getattr(self, name) for name in self.__slots__}


def result_chunks(runs: int, size: int = 1) -> list[range]:
    """Split runs into chunks of a size.

    Examples
    --------
    >>> result_chunks(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(first, min(first + size, runs)) for first in range(0, runs, size)]


def _averages(values: Floats) -> Series:
    """Average over the runs where the measure applies.

    None if it never does, NaN at a checkpoint where it does not.
    """
    defined = ~np.isnan(values)
    if not defined.any():
        return None
    total = np.where(defined, values, 0.0).sum(axis=1)

    with np.errstate(invalid="ignore"):
        averages: list[float] = (total / defined.sum(axis=1)).tolist()

    return averages


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
    same_in_both = _pairs(table)
    same_class = _pairs(table.sum(axis=0))
    same_component = _pairs(table.sum(axis=1))
    everybody = _pairs(table.sum())

    return _share(same_class - same_in_both, same_class), _share(
        same_component - same_in_both, everybody - same_class
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
