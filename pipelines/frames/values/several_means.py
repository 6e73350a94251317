"""Private means of several columns of one frame: one budget, one result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.records import Floats
from meanstream.operators.validation import closest_valid, require, valid_int
from meanstream.pipelines.frames.budget_shares import (
    epsilon_of_each,
    epsilon_of_releases,
    spread_share_of_rows,
)
from meanstream.pipelines.frames.frame_columns import group_sizes
from meanstream.pipelines.frames.frame_reader import frame_columns
from meanstream.pipelines.frames.frame_releases import CLIPPED
from meanstream.pipelines.frames.frame_result import PrivateMeans
from meanstream.pipelines.frames.frame_table import ShownTable
from meanstream.pipelines.frames.private_frame import frame_like
from meanstream.pipelines.frames.values.means_of_column import means_of_column
from meanstream.pipelines.frames.values.question import MeansQuestion
from meanstream.pipelines.frames.values.value_columns import bound_of_each, missing_as_nulls

MOST_COLUMNS = 100
_OF_VALUE = ("mean", "lower", "upper", "released", "noise_stddev")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SeveralMeans(ShownTable):
    """Public: private means of several columns; `found["delay"]` is the result of one of them.

    Attributes
    ----------
    table : pyarrow.Table
        Keys, rows, and for each column its answer (by the column's name), `_lower`, `_upper`,
        `_released`, `_noise_stddev` and what else was requested; with a ratio its three columns.
    notes : tuple of str
        What is protected, in words.
    results : dict of PrivateMeans
        By value column. Each promises what its part of the budget is.
    """

    results: dict[str, PrivateMeans]
    keys: tuple[str, ...]
    original: Any = field(repr=False)

    def __getitem__(self, value: str) -> PrivateMeans:
        if value not in self.results:
            hint = closest_valid(str(value), list(self.results))
            raise KeyError(f"value must be a column of the result, got {value!r}{hint}")

        return self.results[value]

    def to_frame(self) -> Any:
        """Give the answers as a frame of the kind that was given."""
        return frame_like(self.table, self.original, self.keys)

    @property
    def guarantee(self) -> str:
        """What is protected, in words."""
        return self.notes[0]

    def explain(self) -> str:
        """Say in plain words what all columns together promise, and what each of them does."""
        each = [
            f"{name}\n{'=' * len(name)}\n{means.explain()}" for name, means in self.results.items()
        ]
        return "\n\n".join([".\n".join([*self.notes, ""]).rstrip("\n"), *each])

    def _shown(self, table: pa.Table) -> Any:
        return frame_like(table, self.original, self.keys)


def several_means(question: MeansQuestion) -> SeveralMeans:
    """Release the means of several columns under one budget; see `private_means`.

    Notes
    -----
    **Privacy.** One row's values in all columns are protected together: each column is released with noise of its own
    and the part of the budget that `epsilon_of_each` gives it.
    """
    columns = _value_columns(question.value, question.ratio)
    rule = "be left out with several columns: call once per column, each with its own store and part of epsilon"
    require(question.store is None, "store", rule, str(question.store))
    lower = bound_of_each("lower", question.lower, columns)
    upper = bound_of_each("upper", question.upper, columns)
    table, dropped = _rows(question, columns)
    question = _with_spread_share(question, table, len(columns))

    # Columns have votes of their own. Groups of one person share one in each column.
    groups = cast("int | None", question.max_groups)
    budget = question.budget
    together = epsilon_of_releases if groups is None else AgentsSettings.epsilon_over
    epsilon = epsilon_of_each(_settings_of_one(question), len(columns), budget, together)
    of_column = replace(question, frame=table, ratio=None, epsilon=epsilon, missing=())
    results: dict[str, PrivateMeans] = {}

    for number, (name, low, high) in enumerate(zip(columns, lower, upper, strict=True), 1):
        # Every column is a deployment of its own: two columns never share a draw.
        deployment = None if question.name is None else f"{question.name} value {number}"
        of_one = replace(of_column, value=name, lower=low, upper=high, name=deployment)
        results[name] = replace(means_of_column(of_one), original=question.frame)

    within = (groups or 1) * len(columns)
    spent = max(together(means.settings, within) for means in results.values())
    if spent > budget:
        raise AssertionError("all columns must have the budget together")

    return SeveralMeans(
        table=joined_columns(results, question.ratio),
        notes=(*_notes(question, epsilon, dropped, len(columns)), clipped_sentence(results)),
        results=results,
        keys=results[columns[0]].keys,
        original=question.frame,
    )


def _with_spread_share(question: MeansQuestion, table: pa.Table, n_columns: int) -> MeansQuestion:
    """Give the vote on the spread as little of the budget as these rows need, where nobody says more."""
    if "mode" in question.settings or question.max_groups is not None:
        return question

    sizes = group_sizes(table, question.by, None)
    units = valid_int("per_person", question.per_person or 1) * n_columns
    share = spread_share_of_rows(sizes, question.budget, units)

    return replace(question, settings={"spread_share": share, **question.settings})


def _notes(question: MeansQuestion, epsilon: float, dropped: int, n_columns: int) -> Iterator[str]:
    """Sentences on what is protected in all columns together, and on rows that were left out."""
    unit = "one row"
    if question.person is not None:
        within = "in a group" if question.max_groups is None else "in all groups"
        unit = f"all rows of one person {within}"

    delta = question.delta
    yield (
        f"({question.epsilon:g}, {delta:g})-differentially private towards all {n_columns} values of {unit} together; "
        f"each column has ({epsilon:.4g}, {delta:g}) of it"
    )
    if dropped:
        yield f"{dropped:,} rows with a missing value were left out; which rows have one is public"


def clipped_sentence(results: Mapping[str, PrivateMeans]) -> str:
    """Say what becomes of values beyond the bounds of each column."""
    bounds = [
        f"[{means.settings.lower:g}, {means.settings.upper:g}] ({name})"
        for name, means in results.items()
    ]
    return f"Values outside {', '.join(bounds)} {CLIPPED}"


def _value_columns(value: str | Sequence[str] | None, ratio: Sequence[str] | None) -> list[str]:
    """Name the columns, those of the ratio last."""
    named = _names("value", () if value is None else value)
    pair = _names("ratio", () if ratio is None else ratio)
    right = ratio is None or (len(pair) == 2 and pair[0] != pair[1])
    require(right, "ratio", "name two different columns, as ('delay', 'flights')", pair)

    columns = [*named, *(name for name in pair if name not in named)]
    require(len({*columns}) == len(columns), "value", "name different columns", columns)
    several = f"name a column, or up to {MOST_COLUMNS} of them"
    require(0 < len(columns) <= MOST_COLUMNS, "value", several, len(columns))

    return columns


def _names(option: str, names: Any) -> list[str]:
    """Give names of columns; whatever else was passed is named by its type, as it may hold values."""
    listed = [names] if isinstance(names, str) or not isinstance(names, Sequence) else list(names)
    wrong = next((name for name in listed if not isinstance(name, str)), None)
    if wrong is not None:
        raise ValueError(f"{option} must be the name of a column, got {type(wrong).__name__}")

    return listed


def _settings_of_one(question: MeansQuestion) -> Callable[[float], AgentsSettings]:
    """What makes the settings of one column from its epsilon; bounds do not matter."""
    without_histogram = {n: v for n, v in question.settings.items() if n != "histogram_share"}

    def settings(epsilon: float) -> AgentsSettings:
        return AgentsSettings(
            lower=0.0,
            upper=1.0,
            epsilon=epsilon,
            delta=question.delta,
            horizon=question.releases or 1,
            per_person=question.per_person,
            **without_histogram,
        )

    return settings


def _rows(question: MeansQuestion, columns: list[str]) -> tuple[pa.Table, int]:
    """Read the rows that all columns are answered from, and how many of them were left out."""
    others = question.other_columns
    # A refusal names the option of the column that is wrong.
    table = frame_columns(question.frame, others, option="value", needed=columns)
    table = missing_as_nulls(table, columns, question.missing, others)
    if question.nulls != "drop":
        return table, 0

    complete = table.drop_null()
    return complete, table.num_rows - complete.num_rows


def joined_columns(
    results: Mapping[str, PrivateMeans], ratio: Sequence[str] | None = None
) -> pa.Table:
    """Put the columns of all results beside each other."""
    first_result = next(iter(results.values()))
    table = first_result.table.select([*first_result.keys, "rows"])

    for value, result in results.items():
        for name in result.table.column_names:
            if name in first_result.keys or name == "rows":
                continue
            called = value if name == "mean" else f"{value}_{name}"
            rule = f"not be named like a column of the result, {called!r}"
            require(called not in table.column_names, "value", rule, value)
            table = table.append_column(called, result.table[name])

    if ratio is None:
        return table
    top, bottom = (mean_and_error(results[name]) for name in ratio)
    columns = fieller_intervals(top, bottom, level=first_result.level)

    for name, column in zip(("ratio", "ratio_lower", "ratio_upper"), columns, strict=True):
        table = table.append_column(name, pa.array(column))

    return table


def mean_and_error(result: PrivateMeans) -> tuple[Floats, Floats]:
    """Means and their standard errors."""
    joint = result.joint
    shared = np.square(joint.weight) * joint.center_variance
    return joint.value, np.sqrt(np.square(joint.stddev) + shared)


def fieller_intervals(
    top: tuple[Floats, Floats], bottom: tuple[Floats, Floats], *, level: float
) -> tuple[Floats, Floats, Floats]:
    """Give the ratios of means, and the ends of their intervals.

    Parameters
    ----------
    top, bottom : pair of float arrays
        Means and their standard errors.
    level : float
        Nominal coverage.

    Notes
    -----
    An interval holds the ratios r for which `top - r bottom` is within the errors of 0, when those of both means are
    independent. Where the bottom mean is within its error of 0, it has no ends. Where rows with a higher top have a
    lower bottom, the interval is too short for what both share by sampling.

    References
    ----------
    E. C. Fieller, Some Problems in Interval Estimation, Journal of the Royal Statistical Society B 1954.

    Examples
    --------
    >>> one = np.ones(2)
    >>> ratio, low, high = fieller_intervals((6 * one, 0.3 * one), (np.array([2.0, 0.1]), 0.1 * one), level=0.95)
    >>> ratio.round(1).tolist(), low.round(2).tolist(), high.round(2).tolist()
    ([3.0, 60.0], [2.61, -inf], [3.45, inf])
    """
    squared = float(ndtri(0.5 + level / 2)) ** 2
    a = top[0] ** 2 - squared * top[1] ** 2
    b = bottom[0] ** 2 - squared * bottom[1] ** 2
    product = top[0] * bottom[0]
    root = np.sqrt(np.maximum(product**2 - a * b, 0.0))
    ends = b > 0
    safe = np.where(ends, b, 1.0)

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = top[0] / bottom[0]

    low = np.where(ends, (product - root) / safe, -np.inf)
    high = np.where(ends, (product + root) / safe, np.inf)

    return ratio, low, high
