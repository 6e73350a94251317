"""The records that cross between operators.

Columns of many agents at once, and the answers an estimator gives.

`ReleaseColumns` is public (what crossed the privacy boundary); `OwnMeans` is private (it holds raw
means and goes to its owner only). Every array of a record has one entry per agent, in the same
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
AnyInts = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

VOTE_BINS = 11
"""Bins of a spread vote."""
ENERGIES = 6
"""Lengths of stretches of own samples whose means are compared."""


def records_without_votes() -> Ints:
    """Votes of no one, which stand for none of anyone in `ReleaseColumns`."""
    return np.zeros((0, 2 + VOTE_BINS), np.int64)


def records_without_columns() -> Ints:
    """Rows of no one where none has columns."""
    return np.zeros((0, 0), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseColumns:
    """Public: one release per entry; the newest of each agent makes a snapshot of the population.

    Attributes
    ----------
    agent : int array
        Index of the releasing agent.
    index : int array
        Which release of that agent this is, from 1.
    count : int array
        Number of samples in the released mean (public).
    total : int array
        The noised sum in grid units: the integer that is published.
    mean : float array
        The noised mean in the value's unit: `total` on the grid divided by `count`.
    noise_variance : float array
        Variance of the privacy noise in `mean`, in squared value units; known from the mechanism.
    noise_terms : int array
        Number of Laplace-like draws of equal scale whose sum the noise is; public, from settings
        and index. 0, the default, where it is normal.
    votes : int array, shape (n, 2 + VOTE_BINS)
        Spread votes of the agent so far, added up: how many, how many pairs of samples they
        counted, and the noised counts by bin (`meanstream.operators.agents.vote_of_spread`). All 0
        where none was cast, the default.
    histogram : int array, shape (n, 2 + bins)
        Noised histogram of the agent so far, added up: how many, how many samples they counted, and
        the noised counts by bin (`agents.own_histogram`). All 0 where there is none; without
        columns, the default, where no part of the budget is for them.
    covariates : int array, shape (n, attributes)
        Codes of the agent's public attributes (`CovariateDesign`); without columns where none are
        declared, the default.
    """

    agent: Ints
    index: Ints
    count: Ints
    total: Ints
    mean: Floats
    noise_variance: Floats
    noise_terms: Ints = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)
    votes: Ints = field(default_factory=records_without_votes)
    histogram: Ints = field(default_factory=records_without_columns)
    covariates: AnyInts = field(default_factory=records_without_columns)

    def __post_init__(self) -> None:
        if len(self.noise_terms) != len(self.agent):
            object.__setattr__(self, "noise_terms", np.zeros(len(self.agent), np.int64))

        columns = ("histogram", self.histogram.shape[1]), ("covariates", self.covariates.shape[1])
        for name, width in (("votes", 2 + VOTE_BINS), *columns):
            if len(getattr(self, name)) != len(self.agent):
                object.__setattr__(
                    self, name, np.broadcast_to(np.int64(0), (len(self.agent), width))
                )

    def __len__(self) -> int:
        return len(self.agent)

    @classmethod
    def joined(cls, parts: Sequence[ReleaseColumns]) -> ReleaseColumns:
        """Put releases one after the other."""
        none = np.zeros(0, np.int64)
        nothing = np.zeros(0)
        nobody = cls(
            agent=none, index=none, count=none, total=none, mean=nothing, noise_variance=nothing
        )
        columns = {
            f.name: np.concatenate([getattr(part, f.name) for part in (nobody, *parts)])
            for f in fields(cls)
            if f.name not in ("histogram", "covariates")
        }

        return cls(**columns, histogram=_joined_histograms([part.histogram for part in parts]))

    def with_votes(self, valid: Bools) -> ReleaseColumns:
        """Leave out the votes of all but some."""
        return replace(self, votes=np.where(valid[:, None], self.votes, 0))

    def with_histograms(self, valid: Bools) -> ReleaseColumns:
        """Leave out the histograms of all but some."""
        return replace(self, histogram=np.where(valid[:, None], self.histogram, 0))

    def take(self, which: Ints | Bools) -> ReleaseColumns:
        """Select entries."""
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        return ReleaseColumns(**{name: column[which] for name, column in columns.items()})


def _joined_histograms(parts: Sequence[Ints]) -> Ints:
    """Put histograms one after the other; those of releases without any are 0."""
    width = max((part.shape[1] for part in parts), default=0)
    whole = [
        part if part.shape[1] == width else np.zeros((len(part), width), np.int64) for part in parts
    ]

    return np.concatenate([np.zeros((0, width), np.int64), *whole])


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMeans:
    """Private: what each agent knows of itself, before any collaboration.

    Attributes
    ----------
    agent : int array
        Index of the agent.
    count : int array
        Number of its samples.
    mean : float array
        Its raw running mean, in the value's unit.
    variance : float array
        Variance of that mean, in squared value units: what the interval rests on, so the long-run
        variance where samples depend on each other, divided by `count`.
    ahead : bool array
        As in `OwnSamples`.
    value_variance : float array
        The variance that the value rests on: of one sample, divided by `count`. By default it is
        the same.
    noise_variance, noise_terms : float array, int array
        How much of both variances is privacy noise: nothing, unless a release takes the place of
        the raw mean; and its law, as in `ReleaseColumns`.
    covariates : int array, shape (n, attributes)
        As in `ReleaseColumns`.
    early_mean : float array
        As in `OwnSamples`.
    """

    agent: Ints
    count: Ints
    mean: Floats
    variance: Floats
    ahead: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    noise_variance: Floats = field(default_factory=lambda: np.zeros(0))
    value_variance: Floats = field(default_factory=lambda: np.zeros(0))
    noise_terms: Ints = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)
    covariates: AnyInts = field(default_factory=records_without_columns, repr=False)
    early_mean: Floats = field(default_factory=lambda: np.zeros(0), repr=False)

    def __post_init__(self) -> None:
        if len(self.early_mean) != len(self.agent):
            object.__setattr__(self, "early_mean", np.full(len(self.agent), np.nan))

        if len(self.covariates) != len(self.agent):
            object.__setattr__(self, "covariates", np.zeros((len(self.agent), 0), np.int64))

        if len(self.value_variance) != len(self.agent):
            object.__setattr__(self, "value_variance", self.variance)

        kinds = {"ahead": np.bool_, "noise_variance": np.float64, "noise_terms": np.int64}
        for name, kind in kinds.items():
            if len(getattr(self, name)) != len(self.agent):
                object.__setattr__(self, name, np.zeros(len(self.agent), kind))

    def __len__(self) -> int:
        return len(self.agent)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEstimates:
    """Private: each agent's answer, addressed to that agent and to no one else.

    Attributes
    ----------
    value, lower, upper : float array
        The estimate and its interval, in the value's unit.
    level : float
        Nominal coverage of the interval.
    effective_class_size : float array
        By how much the variance fell: variance of learning alone divided by the variance of the
        estimate; 1 means that nothing was gained.
    class_size : float array
        How many agents the answer treats as the own class, itself included (prior: expected size of
        its component).
    component : int array
        Most likely component of the fitted population, as numbered by its description; -1 where
        there are none.
    membership : float array
        Probability of that component; 1 where there are none.
    noise_half_width : float array or None
        Part of the interval's half-width that is privacy noise in what was taken from others'
        releases, what was fitted to them held still; the rest, the root of the difference of the
        squares, is sampling. None where the collaboration does not tell.
    moved : float array or None
        By how much public covariates have moved the estimate, in the value's unit; None where none
        are declared.
    """

    value: Floats
    lower: Floats
    upper: Floats
    level: float
    effective_class_size: Floats
    class_size: Floats
    component: Ints
    membership: Floats
    noise_half_width: Floats | None = None
    moved: Floats | None = None

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSamples:
    """Private: the sufficient statistics of each agent's own samples.

    Attributes
    ----------
    agent, count : int array
        Index of the agent and number of its samples.
    mean : float array
        Its raw running mean, in the value's unit; NaN where `count` is 0.
    squared_deviations : float array
        Sum of squared deviations from that mean, in squared value units.
    ahead : bool array
        Whose mean has changed, and whose newest release does not hold enough of it yet. False for
        all by default.
    cells : int array, shape (n, cells)
        Its samples, counted in the cells of a histogram
        (`meanstream.operators.agents.own_histogram`). Without columns where no part of the budget
        is for histograms, the default.
    block_log : int array (n,)
        Logarithm, to base 2, of the length of the shortest blocks that are compared.
    energies, energy_degrees : float array, shape (n, 6)
        How much means of neighboring stretches differ, in squared value units, and their degrees of
        freedom (`meanstream.operators.agents.own_samples`). Without columns where nothing
        is known of it, the default.
    early_mean : float array
        Mean of the first samples (`meanstream.operators.agents.own_blocks.early_samples`);
        NaN where it is not known, the default.
    """

    agent: Ints
    count: Ints
    mean: Floats
    squared_deviations: Floats
    ahead: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    cells: Ints = field(default_factory=records_without_columns)
    block_log: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    energies: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    energy_degrees: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    early_mean: Floats = field(default_factory=lambda: np.zeros(0), repr=False)

    def __post_init__(self) -> None:
        n = len(self.agent)
        shapes: dict[str, tuple[Any, ...]] = {
            "ahead": (n, np.bool_), "cells": ((n, 0), np.int64), "block_log": (n, np.int64),
            "energies": ((n, 0), np.float64), "energy_degrees": ((n, 0), np.float64),
        }  # fmt: skip

        for name, (shape, kind) in shapes.items():
            if len(getattr(self, name)) != n:
                object.__setattr__(self, name, np.zeros(shape, kind))

        if len(self.early_mean) != n:
            object.__setattr__(self, "early_mean", np.full(n, np.nan))

    def __len__(self) -> int:
        return len(self.agent)
