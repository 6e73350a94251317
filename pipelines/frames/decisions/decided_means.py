"""Decisions as methods of a result that knows the joint posterior of its means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from meanstream.pipelines.frames.decisions.decided_tables import (
    Comparison,
    Difference,
    GroupRanks,
    TopGroups,
)
from meanstream.pipelines.frames.decisions.named_means import NamedMeans


class DecidedMeans(ABC):
    """Public: a result whose groups can be compared, at no privacy cost."""

    @property
    @abstractmethod
    def named_means(self) -> NamedMeans:
        """The groups by their names, with the joint posterior of their means."""

    def difference(self, first: Any, second: Any) -> Difference:
        """Estimate by how much the mean of one group is above that of another.

        Parameters
        ----------
        first, second : key
            Of the groups; tuples where `by` has several columns.

        Returns
        -------
        Difference
            With `value`, `interval`, and the `probability` that the first group's mean is above.

        Notes
        -----
        **Privacy.** From the answers alone, as are `compare`, `ranks` and `top`: they spend nothing. What the answers
        have in common, an error of a learned center, cancels where it enters both alike.
        """
        return self.named_means.difference(first, second)

    def compare(self, to: Any) -> Comparison:
        """Estimate the difference of every other group from one.

        All intervals hold together at the level of the result.
        """
        return self.named_means.compare(to)

    def ranks(self) -> GroupRanks:
        """Rank the groups by their means, the highest first, with the ranks that each may have.

        The ranks of all groups lie between `lower` and `upper` together at the level of the result.
        """
        return self.named_means.ranks()

    def top(self, count: int) -> TopGroups:
        """List the groups that may be among the `count` highest: `surely` and `possibly`.

        Both lists hold together at the level of the result.
        """
        return self.named_means.top(count)
