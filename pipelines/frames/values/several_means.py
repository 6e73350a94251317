"""Private means of several columns of one frame: one budget, one result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.records import Floats
from meanstream.operators.validation import closest_valid, require, valid_int
from meanstream.pipelines.frames.budget_shares import (
    epsilon_of_each,
    epsilon_of_releases,
    spread_share_of_rows,
)
from meanstream.pipelines.frames.frame_columns import frame_columns, group_sizes
from meanstream.pipelines.frames.frame_releases import CLIPPED
from meanstream.pipelines.frames.frame_result import PrivateMeans, frame_like
from meanstream.pipelines.frames.frame_table import ShownTable
from meanstream.pipelines.frames.values.missing_values import further_columns, missing_as_nulls
from meanstream.pipelines.frames.values.ratio_intervals import fieller_intervals
from meanstream.pipelines.frames.values.value_bounds import bound_of_each

if TYPE_CHECKING:
    from meanstream.pipelines.frames.values.value_bounds import Bounds

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
        each = [f"{name}\n{'=' * len(name)}\n{one.explain()}" for name, one in self.results.items()]
        return "\n\n".join([".\n".join([*self.notes, ""]).rstrip("\n"), *each])

    def _shown(self, table: pa.Table) -> Any:
        return frame_like(table, self.original, self.keys)


def several_means(  # noqa: PLR0917 - the question of one call
    means: Callable[..., Any],
    frame: Any,
    value: str | Sequence[str] | None,
    ratio: Sequence[str] | None,
    bounds: tuple[Bounds, Bounds],
    budget: tuple[float, float],
    options: Mapping[str, Any],
) -> SeveralMeans:
    """Release the means of several columns under one budget; see `private_means`.

    Notes
    -----
    **Privacy.** One row's values in all columns are protected together: each column is released with noise of its own
    and the part of the budget that `epsilon_of_each` gives it.
    """
    columns = _value_columns(value, ratio)
    rule = "be left out with several columns: call once per column, each with its own store and part of epsilon"
    require(options["store"] is None, "store", rule, str(options["store"]))
    lower, upper = (
        bound_of_each(option, bound, columns)
        for option, bound in zip(("lower", "upper"), bounds, strict=True)
    )

    table, dropped = _rows(frame, columns, options)
    if "mode" not in options and options["max_groups"] is None:
        sizes = group_sizes(table, options["by"], None)
        units = valid_int("per_person", options["per_person"] or 1) * len(columns)
        options = {"spread_share": spread_share_of_rows(sizes, budget[0], units), **options}

    # Columns have votes of their own. Groups of one person share one in each column.
    groups = options["max_groups"]
    together = epsilon_of_releases if groups is None else AgentsSettings.epsilon_over
    settings = _settings_of_one(budget[1], options)
    epsilon = epsilon_of_each(settings, len(columns), budget[0], together)
    results: dict[str, PrivateMeans] = {}

    for number, name in enumerate(columns):
        # Every column is a deployment of its own: two columns never share a draw.
        called = None if options["name"] is None else f"{options['name']} value {number + 1}"
        own = {**options, "name": called, "epsilon": epsilon, "delta": budget[1], "missing": ()}
        result = means(table, value=name, lower=lower[number], upper=upper[number], **own)
        results[name] = replace(result, original=frame)

    rows = "in all groups" if groups is not None else "in a group"
    unit = "one row" if options["person"] is None else f"all rows of one person {rows}"
    within = (groups or 1) * len(columns)
    spent = max(together(result.settings, within) for result in results.values())

    if spent > budget[0]:
        raise AssertionError("all columns must have the budget together")

    notes = [
        f"({budget[0]:g}, {budget[1]:g})-differentially private towards all {len(columns)} values of {unit} together; "
        f"each column has ({epsilon:.4g}, {budget[1]:g}) of it"
    ]

    if dropped:
        notes.append(
            f"{dropped:,} rows with a missing value were left out; which rows have one is public"
        )

    clipped = [
        f"[{result.settings.lower:g}, {result.settings.upper:g}] ({name})"
        for name, result in results.items()
    ]
    notes.append(f"Values outside {', '.join(clipped)} {CLIPPED}")

    return SeveralMeans(
        table=_joined(results, ratio),
        notes=tuple(notes),
        results=results,
        keys=results[columns[0]].keys,
        original=frame,
    )


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


def _settings_of_one(delta: float, options: Mapping[str, Any]) -> Callable[[float], AgentsSettings]:
    """Give what makes the settings of one column from its epsilon; bounds do not matter."""
    names = ("counter", "noise", "calibration", "levels", "mode", "spread_share")
    chosen = {name: options[name] for name in names if name in options}

    def settings(epsilon: float) -> AgentsSettings:
        return AgentsSettings(
            lower=0.0,
            upper=1.0,
            epsilon=epsilon,
            delta=delta,
            horizon=options["releases"] or 1,
            per_person=options["per_person"],
            **chosen,
        )

    return settings


def _rows(frame: Any, columns: list[str], options: Mapping[str, Any]) -> tuple[pa.Table, int]:
    """Read the rows that all columns are answered from, and how many of them were left out."""
    others = further_columns(options)
    # A refusal names the option of the column that is wrong.
    table = frame_columns(frame, others, option="value", needed=columns)
    table = missing_as_nulls(table, columns, options["missing"], others)
    if options["nulls"] != "drop":
        return table, 0

    kept = table.drop_null()

    return kept, table.num_rows - kept.num_rows


def _joined(results: Mapping[str, PrivateMeans], ratio: Sequence[str] | None) -> pa.Table:
    """Put the columns of all results beside each other."""
    first = next(iter(results.values()))
    table = first.table.select([*first.keys, "rows"])

    for value, result in results.items():
        for name in result.table.column_names:
            if name in first.keys or name == "rows":
                continue
            called = value if name == "mean" else f"{value}_{name}"
            rule = f"not be named like a column of the result, {called!r}"
            require(called not in table.column_names, "value", rule, value)
            table = table.append_column(called, result.table[name])

    if ratio is None:
        return table
    top, bottom = (_mean_and_error(results[name]) for name in ratio)
    columns = fieller_intervals(top, bottom, level=first.level)

    for name, column in zip(("ratio", "ratio_lower", "ratio_upper"), columns, strict=True):
        table = table.append_column(name, pa.array(column))

    return table


def _mean_and_error(result: PrivateMeans) -> tuple[Floats, Floats]:
    joint = result.joint
    shared = np.square(joint.weight) * joint.center_variance
    return joint.value, np.sqrt(np.square(joint.stddev) + shared)
