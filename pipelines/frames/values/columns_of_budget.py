"""Several columns of one call: values, ratios, and the squares that variances are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from meanstream.operators.records import Floats
from meanstream.operators.validation import require
from meanstream.pipelines.frames.frame_columns import frame_columns
from meanstream.pipelines.frames.frame_result import PrivateMeans
from meanstream.pipelines.frames.values.further_statistics import VARIANCE
from meanstream.pipelines.frames.values.missing_values import further_columns
from meanstream.pipelines.frames.values.several_means import (
    SeveralMeans,
    joined_columns,
    several_means,
)
from meanstream.pipelines.frames.values.value_bounds import bound_of_each, bounds_of_column

if TYPE_CHECKING:
    from meanstream.pipelines.frames.values.value_bounds import Bounds

_SQUARE = "{} squared"


SINGLE = ("frame", "value", "lower", "upper", "epsilon", "delta", "odds", "ratio", "settings")
"""Arguments that are each column's own, or of the whole call."""
SECRET = ("private_counts", "groups")
KURTOSIS = 9.0
"""Of values within a group, for the error of a variance by sampling."""


def columns_of_budget(
    means: Callable[..., Any], frame: Any, question: Mapping[str, Any]
) -> PrivateMeans | SeveralMeans:
    """Ask for each column of a call of `private_means` under its part of the budget."""
    odds = question["odds"]
    require(odds is None, "odds", "be left out with several columns, which share epsilon", odds)
    epsilon = question["epsilon"]
    require(epsilon is not None, "epsilon", "be given for several columns", epsilon)

    own = (*SINGLE, *SECRET)
    options = {name: value for name, value in question.items() if name not in own}
    options |= question["settings"]
    value = question["value"]
    ratio = question["ratio"]
    bounds = question["lower"], question["upper"]
    budget = epsilon, question["delta"]

    asked = options["statistics"]
    if "variance" not in asked:
        return several_means(means, frame, value, ratio, bounds, budget, options)

    require(ratio is None, "ratio", "be left out with variances: call once for each", ratio)
    others = [] if isinstance(asked, str) else [name for name in asked if name != "variance"]
    options["statistics"] = others
    return means_with_variances(means, frame, value, bounds, budget, options)


def means_with_variances(  # noqa: PLR0917 - the question of one call
    means: Callable[..., Any],
    frame: Any,
    value: str | Sequence[str],
    bounds: tuple[Bounds, Bounds],
    budget: tuple[float, float],
    options: Mapping[str, Any],
) -> PrivateMeans | SeveralMeans:
    """Release means of values and of their squares; see `private_means(statistics=)`.

    Notes
    -----
    **Privacy.** One row's values and squares are protected together: they are as many columns of one budget.

    Values are clipped, and squared as distances from the middle c of their bounds, so that a square
    lies in a quarter of the squared width. With the group's own releases m of the values (noise of
    standard deviation s) and q of the squares (noise r) the variance is `q - (m - c)^2 + s^2`. Its
    error has the variance `r^2 + 4 (m - c)^2 s^2 + 2 s^4` by noise, and by sampling that of a law
    with a kurtosis of 9, as the exponential law has. Nothing is taken from other groups.
    """
    columns = [value] if isinstance(value, str) else list(value)
    require(options["store"] is None, "store", "be left out with variances", str(options["store"]))
    table = frame_columns(frame, further_columns(options), option="value", needed=columns)
    lower, upper = (
        bound_of_each(option, bound, columns)
        for option, bound in zip(("lower", "upper"), bounds, strict=True)
    )

    # A square of true and false is no further question.
    numbers = []
    ends: dict[str, tuple[float, float]] = {}
    for name, low, high in zip(columns, lower, upper, strict=True):
        kind = table.schema.field(name).type
        ends[name] = bounds_of_column(kind, name, low, high)
        if not pa.types.is_boolean(kind):
            numbers.append(name)
            table = _with_square(table, name, *ends[name])

    squares = [_SQUARE.format(name) for name in numbers]
    asked = ends | {
        _SQUARE.format(name): (0.0, (high - low) ** 2 / 4)
        for name, (low, high) in ends.items()
        if name in numbers
    }
    every = [*columns, *squares]
    bound_pairs = [asked[name] for name in every]
    found = several_means(
        means,
        table,
        every,
        None,
        ([low for low, _ in bound_pairs], [high for _, high in bound_pairs]),
        budget,
        options,
    )

    results = {name: _with_variance(found.results, name, ends[name]) for name in columns}
    notes = (found.notes[0].replace(f"all {len(every)} values", "all values"), *found.notes[1:])
    if isinstance(value, str):
        only = results[value]
        return replace(only, original=frame, notes=(notes[0], *only.notes[1:]))

    return replace(
        found, table=joined_columns(results), notes=notes, results=results, original=frame
    )


def _with_square(table: pa.Table, name: str, low: float, high: float) -> pa.Table:
    """Append a column of squared distances from the middle of the bounds; what is missing stays so."""
    called = _SQUARE.format(name)
    rule = f"not be named like a column of squares, {called!r}"
    require(called not in table.column_names, "value", rule, name)

    column = table.column(name).cast(pa.float64(), safe=False)
    away = np.clip(column.to_numpy(), low, high) - (low + high) / 2
    missing = np.asarray(column.is_null())

    return table.append_column(called, pa.array(np.square(away), mask=missing))


def _with_variance(
    results: Mapping[str, PrivateMeans], name: str, ends: tuple[float, float]
) -> PrivateMeans:
    """Give the result of a column with its variance, its lower and its upper end."""
    result = results[name]
    low, high = ends
    most = (high - low) ** 2 / 4
    mean, noise = _released(result)
    away = mean - (low + high) / 2

    # True and false are half a width from the middle, all of them.
    square = np.full(len(result), most), np.zeros(len(result))
    if _SQUARE.format(name) in results:
        square = _released(results[_SQUARE.format(name)])

    variance = np.clip(square[0] - np.square(away) + np.square(noise), 0.0, most)
    of_noise = np.square(square[1]) + np.square(2 * away * noise) + 2 * noise**4

    # Nobody's fourth moment is larger than the variance times the farthest square.
    farthest = np.square(np.maximum(np.abs(mean - low), np.abs(high - mean)))
    kurtosis = np.minimum(KURTOSIS * variance, farthest)
    of_sampling = np.maximum(kurtosis - variance, 0.0) * variance / np.asarray(result.table["rows"])

    error = float(ndtri(0.5 + result.level / 2)) * np.sqrt(of_noise + of_sampling)
    table = result.table
    for column, values in zip(
        VARIANCE, (variance, variance - error, variance + error), strict=True
    ):
        table = table.append_column(column, pa.array(np.clip(values, 0.0, most)))

    return replace(result, table=table)


def _released(result: PrivateMeans) -> tuple[Floats, Floats]:
    """Released means and the standard deviations of their noise."""
    return np.asarray(result.table["released"]), np.asarray(result.table["noise_stddev"])
