"""What decisions are given as: a difference, and tables of comparisons, ranks and top groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanstream.pipelines.drawn_text import drawn_text
from meanstream.pipelines.frames.frame_table import ShownTable, table_axes, texts_of_row

DRAWN = 40
"""Groups that a picture of ranks has room for; of more, those evenly spaced by their ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Public: by how much one group's mean is above another's.

    Attributes
    ----------
    value : float
        The difference of the two answers.
    interval : tuple of float
        Its lower and its upper end.
    probability : float
        Probability that the first group's mean is above the second one's.
    level : float
        Nominal coverage of the interval.

    Examples
    --------
    >>> print(Difference(value=2.0, interval=(0.04, 3.96), probability=0.977, level=0.95))
    2 [0.04, 3.96] (95 %), above with probability 0.977
    """

    value: float
    interval: tuple[float, float]
    probability: float
    level: float

    def __str__(self) -> str:
        low, high = self.interval
        ends = f"{self.value:.4g} [{low:.4g}, {high:.4g}] ({100 * self.level:g} %)"
        return f"{ends}, above with probability {self.probability:.3g}"


class Comparison(ShownTable):
    """Public: the differences of all other groups from one, whose intervals hold together."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GroupRanks(ShownTable):
    """Public: groups by rank, with the least and the greatest rank that each may have.

    Attributes
    ----------
    keys : tuple of str
        Columns of the groups' names.
    """

    keys: tuple[str, ...]

    def plot(self, axes: Any = None) -> Any:
        """Draw the ranks with their sets; give the axes."""
        n = len(self)
        rows = np.unique(np.linspace(0, max(n - 1, 0), min(n, DRAWN)).astype(int))
        shown = self.table.take(rows)
        rank, low, high = (np.asarray(shown[name]) for name in ("rank", "lower", "upper"))
        names = [
            drawn_text(", ".join(texts_of_row(row)))
            for row in shown.select(list(self.keys)).to_pylist()
        ]

        axes = table_axes(axes, (7, 1.4 + 0.22 * len(rows)))
        height = np.arange(len(rows))
        axes.errorbar(rank, height, xerr=[rank - low, high - rank], fmt="o", ms=3, lw=1)
        axes.set_yticks(height, names, fontsize=7)
        axes.invert_yaxis()
        axes.margins(y=0.02)

        part = f"{len(rows):,} of {n:,}" if len(rows) < n else f"all {n:,}"
        label = "rank by mean (1 is the highest), with the ranks that are possible"
        axes.set(
            xlabel=label, ylabel=drawn_text(", ".join(self.keys)), title=f"Ranks of {part} groups"
        )

        return axes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TopGroups(ShownTable):
    """Public: the groups that may be among the highest ones.

    Attributes
    ----------
    surely, possibly : tuple
        Keys of the groups that surely are, and of those that may be, by rank.
    """

    surely: tuple[Any, ...]
    possibly: tuple[Any, ...]
