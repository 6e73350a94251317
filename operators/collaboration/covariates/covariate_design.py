"""How public attributes of agents become columns of a regression.

A column per level, or one for a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from meanstream.operators.records import AnyInts, Floats, Ints
from meanstream.operators.validation import require

LEAST_AGENTS = 3
"""Levels of fewer agents are joined."""
MOST_LEVELS = 1000
MOST_OTHER_LEVELS = 128
"""Levels of the largest category, and of all others together; rarer ones are joined."""
STEPS = 4096
CUT = 6.0
"""Codes of a number, and where it is cut, in standard deviations: a hostile value moves little, and
agents that are far out in earnest do not look like a spread that nothing explains."""
_OCTAVES = 32
_OCTAVE_STEPS = 16
_RANGES = ((0.25, 0.75, 1.349), (0.05, 0.95, 3.290)), ((0.01, 0.99, 4.653), (0.0, 1.0, 2.0))
"""Ranges of quantiles and their widths in standard deviations: the widest of the first two scales a
number, or, where both are empty, that of the others."""
MOST_NAME = 64
"""Characters of a name or of a level that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A public attribute with names for values.

    Attributes
    ----------
    name : str
    levels : tuple of str
        Levels with a column each; then come one for all others, and one for agents that have none.
    """

    name: str
    levels: tuple[str, ...]
    kind: ClassVar[str] = "category"

    @property
    def size(self) -> int:
        """Number of codes."""
        return len(self.levels) + 2

    @property
    def other(self) -> int:
        """Code of all other levels."""
        return len(self.levels)

    @property
    def missing(self) -> int:
        """Code of agents without a value."""
        return len(self.levels) + 1

    @property
    def n_columns(self) -> int:
        """A column for each code."""
        return self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A public attribute that is a number.

    One standardized column, and one for agents without a value.

    Attributes
    ----------
    name : str
    center, scale : float
        Median of the declared values, and a standard deviation that outliers do not change.
    """

    name: str
    center: float
    scale: float
    kind: ClassVar[str] = "number"

    n_columns: ClassVar[int] = 2
    size: ClassVar[int] = STEPS + 1
    missing: ClassVar[int] = STEPS

    def codes(self, values: Floats) -> AnyInts:
        """Give the code of each value; what is not finite is missing."""
        known = np.isfinite(values)
        steps = STEPS

        with np.errstate(over="ignore", invalid="ignore"):
            away = np.clip(
                (np.where(known, values, self.center) - self.center) / self.scale, -CUT, CUT
            )

        step = np.minimum(np.floor((away + CUT) * (steps / (2 * CUT))), steps - 1)
        return np.where(known, step, self.missing).astype(np.int16)

    def center_of(self, codes: AnyInts) -> int:
        """Give the mean of the codes, rounded."""
        return _rounded_mean(codes[codes != self.missing])

    def columns(self, codes: AnyInts, center: int) -> Ints:
        """Give the code above the center, and whether it is missing; shape (n, 2)."""
        absent = codes == self.missing
        return np.stack([np.where(absent, 0, codes.astype(np.int64) - center), absent], axis=1)


@dataclass(frozen=True, slots=True)
class SampleCount:
    """The public number of an agent's samples, on a logarithmic scale."""

    name: ClassVar[str] = "number of samples"
    kind: ClassVar[str] = "number"
    n_columns: ClassVar[int] = 1
    size: ClassVar[int] = _OCTAVES * _OCTAVE_STEPS

    @staticmethod
    def codes(count: Ints) -> AnyInts:
        """Give the code of each count."""
        step = np.floor(_OCTAVE_STEPS * np.log2(np.maximum(count, 1)) + 1e-9)
        return np.clip(step, 0, SampleCount.size - 1).astype(np.int16)

    @staticmethod
    def center_of(codes: AnyInts) -> int:
        """Give the mean of the codes, rounded."""
        return _rounded_mean(codes)

    @staticmethod
    def columns(codes: AnyInts, center: int) -> Ints:
        """Give the code above the center, shape (n, 1)."""
        return codes.astype(np.int64)[:, None] - center


Attribute = Category | Number | SampleCount


@dataclass(frozen=True, slots=True)
class CovariateDesign:
    """Public: the attributes of agents, and how their values become codes.

    Attributes
    ----------
    attributes : tuple of Category or Number
        In the order of the columns of codes.
    """

    attributes: tuple[Category | Number, ...]

    def __len__(self) -> int:
        return len(self.attributes)

    @property
    def missing(self) -> AnyInts:
        """Codes of an agent without any value, shape (n_attributes,)."""
        return np.array([attribute.missing for attribute in self.attributes], np.int16)


def number_of(name: str, values: Floats) -> Number:
    """Make an attribute of declared numbers; what is not finite is missing.

    Examples
    --------
    >>> number_of("seats", np.array([2.0, 50.0, 100.0, 150.0, 1e300])).center
    100.0
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return Number(name=name, center=0.0, scale=1.0)
    scale = 0.0

    for ranges in _RANGES:
        for low, high, widths in ranges:
            ends = np.quantile(known, [low, high], method="nearest") / widths
            scale = max(scale, ends[1].item() - ends[0].item())  # Python's floats overflow silently

        if scale > 0:
            break

    center = float(np.quantile(known, 0.5, method="nearest"))
    return Number(name=name, center=center, scale=scale if 0 < scale < np.inf else 1.0)


def categories_of(
    columns: Sequence[tuple[str, Sequence[str], Ints]],
) -> list[tuple[Category, AnyInts]]:
    """Make attributes of declared levels, with the code of each agent.

    Parameters
    ----------
    columns : sequence of (str, sequence of str, int array)
        Name, levels, and the level of each agent; -1 where it has none.

    Examples
    --------
    >>> ((region, codes),) = categories_of([("region", ["north", "south"], np.array([0, 0, 0, 1, -1]))])
    >>> region.levels, codes.tolist()
    (('north',), [0, 0, 0, 1, 2])
    """
    numbers = [
        np.bincount(codes[codes >= 0], minlength=len(levels)) for _, levels, codes in columns
    ]
    sizes = [int((number >= LEAST_AGENTS).sum()) for number in numbers]
    limits = _limits(sizes)
    categories: list[tuple[Category, AnyInts]] = []

    for (name, levels, codes), number, limit in zip(columns, numbers, limits, strict=True):
        order = (
            np.lexsort((np.array(levels, dtype=object), -number))
            if len(levels)
            else np.zeros(0, np.int64)
        )
        shown = np.sort(order[:limit][number[order[:limit]] >= LEAST_AGENTS])
        category = Category(name=name, levels=tuple(levels[i] for i in shown.tolist()))
        new = np.full(len(levels) + 1, category.other, np.int16)
        new[-1] = category.missing
        new[shown] = np.arange(len(shown))
        categories.append((category, new[codes]))

    return categories


def _limits(sizes: list[int]) -> list[int]:
    """Say how many levels of each category are kept."""
    if not sizes:
        return []
    largest = int(np.argmax(sizes))
    others = [size for i, size in enumerate(sizes) if i != largest]
    limit = MOST_LEVELS

    while limit > 1 and sum(min(size, limit) for size in others) > MOST_OTHER_LEVELS:
        limit -= 1

    return [MOST_LEVELS if i == largest else limit for i in range(len(sizes))]


def require_codes(design: CovariateDesign, codes: AnyInts, n: int) -> None:
    """Refuse codes of other agents or attributes."""
    require(
        codes.shape == (n, len(design)), "covariates", f"have shape {(n, len(design))}", codes.shape
    )


def _rounded_mean(codes: AnyInts) -> int:
    if len(codes):
        return round(int(codes.sum(dtype=np.int64)) / len(codes))
    return 0


@dataclass(frozen=True, slots=True, eq=False)
class AgentCovariates:
    """Public by declaration: attributes of agents.

    Attributes
    ----------
    design : CovariateDesign
    names : tuple of str
        Agents with a row.
    codes : int array, shape (n_agents, n_attributes)
    place : str or None
        File that they were read from, and its key column.
    """

    design: CovariateDesign
    names: tuple[str, ...]
    codes: AnyInts
    place: tuple[str, str] | None = None
    _rows: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", {name: row for row, name in enumerate(self.names)})

    def of(self, names: Sequence[str]) -> AnyInts:
        """Give the codes of agents; those without a row have none, in every attribute."""
        row = np.fromiter((self._rows.get(name, -1) for name in names), np.int64, len(names))
        return np.concatenate([self.codes, self.design.missing[None]])[row]

    def known(self, names: Sequence[str]) -> int:
        """Count those that have a row."""
        return sum(name in self._rows for name in names)
