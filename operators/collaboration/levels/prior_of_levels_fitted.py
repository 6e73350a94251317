"""A population of groups within groups: the answers of the leaves, and what was learned."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from meanstream.operators.collaboration.covariates.prior_with_covariates_fitted import (
    log_predictive_density,
    mixed_estimates,
)
from meanstream.operators.collaboration.levels.group_tree import GroupTree
from meanstream.operators.collaboration.levels.level_spreads import LevelSpreads
from meanstream.operators.collaboration.prior.prior_by_count_fitted import FittedByCount
from meanstream.operators.records import AgentEstimates, Floats, Ints, OwnMeans, ReleaseColumns

_MOVED = ("value", "lower", "upper")
_NOT_BY_LEAF = ("level", "moved")


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLevels:
    """Public: the population without levels, that of what parents leave, and groups of all levels.

    Attributes
    ----------
    without, beyond : FittedByCount
        Of the releases, and of the releases less the offsets.
    tree : GroupTree
    agent : int array, shape (n_leaves,)
        Numbers of the leaves, increasing.
    offset, doubt : float array, shape (n_leaves,)
        What the releases of all other leaves say of the parent's mean, above that of the whole, and
        the variance of that.
    spreads : LevelSpreads
    group_variances : list of float array
        With which the mean of the rows of each group is known: of the whole, then by level without
        the leaves.
    share : float
        Probability that means follow their parents'.
    """

    without: FittedByCount
    beyond: FittedByCount
    tree: GroupTree
    agent: Ints
    offset: Floats
    doubt: Floats
    spreads: LevelSpreads
    group_variances: list[Floats]
    share: float

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each leaf's answer given its own mean, addressed to that leaf only.

        Parameters
        ----------
        own : OwnMeans
            Leaves of the fit, at least one sample each.
        level : float
            Nominal coverage of the interval.
        """
        plain = self.without.plain
        answers = mixed_estimates(
            self.without.estimate(own, level=level),
            self._around_parents(own, level),
            own,
            share=np.full(len(own), self.share),
            bounds=(plain.lower, plain.upper),
        )

        return replace(answers, moved=None)

    def describe(self) -> dict[str, Any]:
        """Public: the fitted population as plain data, with what was learned of levels."""
        return self.without.describe() | self.learned()

    def learned(self) -> dict[str, Any]:
        """Public: what was learned of each level, and how likely means follow their parents'.

        Of a level: the number of its groups, the probability that they differ, their spread around
        their parents, and its share of the spread of the leaves.
        """
        squared = self.spreads.variance
        columns = (
            self.tree.names,
            self.tree.sizes,
            self.spreads.differs.tolist(),
            np.sqrt(squared).tolist(),
            (squared / squared.sum()).tolist(),
        )
        names = ("name", "groups", "probability", "spread", "explained")
        levels = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

        return {"levels": levels, "levels_used": self.share}

    def gained_densities(self, releases: ReleaseColumns, variance: Floats) -> Floats:
        """Give the logarithm of how many times likelier levels make each release."""
        row = self._rows(releases.agent)
        plain = self.without.plain
        wider = self.beyond.plain
        without = log_predictive_density(self.without, releases.mean, variance, releases.count)
        beyond = log_predictive_density(
            self.beyond,
            releases.mean - self.offset[row],
            variance + self.doubt[row],
            releases.count,
        )

        # Both are relative to the widths of their own bounds.
        ratio = (wider.upper - wider.lower) / (plain.upper - plain.lower)
        return np.asarray(beyond - without - np.log(ratio), np.float64)

    def _rows(self, agent: Ints) -> Ints:
        return np.searchsorted(self.agent, agent)

    def _around_parents(self, own: OwnMeans, level: float) -> AgentEstimates:
        """Answer by what offsets leave; the error of an offset makes the prior wider."""
        row = self._rows(own.agent)
        offset = self.offset[row]
        doubt = self.doubt[row]
        beyond = self.beyond
        columns: dict[str, Any] = {}

        # Leaves whose parents are known alike are answered together.
        for extra in np.unique(doubt).tolist():
            alike = np.flatnonzero(doubt == extra)
            part = _taken(own, alike)
            around = replace(
                beyond,
                variance=beyond.variance + extra,
                cautious_variance=beyond.cautious_variance + extra,
            )
            answer = around.estimate(replace(part, mean=part.mean - offset[alike]), level=level)

            for column in fields(answer):
                if column.name not in _NOT_BY_LEAF:
                    values = getattr(answer, column.name)
                    empty = np.zeros(len(own), values.dtype)
                    columns.setdefault(column.name, empty)[alike] = values

        columns |= {name: columns[name] + offset for name in _MOVED}
        return AgentEstimates(level=level, **columns)


def _taken(own: OwnMeans, which: Ints) -> OwnMeans:
    return OwnMeans(**{column.name: getattr(own, column.name)[which] for column in fields(own)})
