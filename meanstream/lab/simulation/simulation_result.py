"""Errors at the checkpoints, run by run, and the summary that the command prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from meanstream.lab.simulation.config import SimulationConfig
from meanstream.operators.records import Floats

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
