"""Several columns of one call: values, ratios, and the squares that variances are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from meanstream.operators.records import Floats
from meanstream.operators.validation import require
from meanstream.pipelines.frames.frame_reader import frame_columns
from meanstream.pipelines.frames.frame_result import PrivateMeans
from meanstream.pipelines.frames.values.question import MeansQuestion
from meanstream.pipelines.frames.values.several_means import (
    SeveralMeans,
    clipped_sentence,
    joined_columns,
    several_means,
)
from meanstream.pipelines.frames.values.value_columns import (
    VARIANCE,
    bound_of_each,
    bounds_of_column,
    is_number,
    missing_as_nulls,
)

_SQUARE = "{} squared"
KURTOSIS = 9.0
"""Of values within a group, for the error of a variance by sampling."""


def columns_of_budget(question: MeansQuestion) -> PrivateMeans | SeveralMeans:
    """Answer for each column of a call under its part of the budget."""
    odds = question.odds
    require(odds is None, "odds", "be left out with several columns, which share epsilon", odds)
    epsilon = question.epsilon
    require(epsilon is not None, "epsilon", "be given for several columns", epsilon)
    if "variance" not in question.statistics:
        return several_means(question)

    ratio = question.ratio
    require(ratio is None, "ratio", "be left out with variances: call once for each", ratio)
    return means_with_variances(question)


def means_with_variances(question: MeansQuestion) -> PrivateMeans | SeveralMeans:
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
    value = question.value
    columns = [value] if isinstance(value, str) else list(cast("Sequence[str]", value))
    store = question.store
    require(store is None, "store", "be left out with variances", str(store))
    others = question.other_columns
    table = frame_columns(question.frame, others, option="value", needed=columns)

    # Numbers that stand for a missing value do so before they are squared, and in no square.
    table = missing_as_nulls(table, columns, question.missing, others)
    ends = _ends(table, columns, question)

    # A square of true and false is no further question.
    # What is neither is refused where values are read.
    bounds = dict(ends)
    for name, (low, high) in ends.items():
        if is_number(table.schema.field(name).type):
            table = _with_square(table, name, low, high)
            bounds[_SQUARE.format(name)] = (0.0, (high - low) ** 2 / 4)

    statistics = question.statistics
    others = [] if isinstance(statistics, str) else [s for s in statistics if s != "variance"]
    of_values_and_squares = replace(
        question,
        frame=table,
        value=list(bounds),
        lower=[low for low, _ in bounds.values()],
        upper=[high for _, high in bounds.values()],
        statistics=others,
        missing=(),
    )

    return _of_values(several_means(of_values_and_squares), question, ends)


def _ends(
    table: pa.Table, columns: Sequence[str], question: MeansQuestion
) -> dict[str, tuple[float, float]]:
    """Bounds of each column by its name."""
    lower = bound_of_each("lower", question.lower, columns)
    upper = bound_of_each("upper", question.upper, columns)
    kinds = [table.schema.field(name).type for name in columns]

    return {
        name: bounds_of_column(kind, name, low, high)
        for name, kind, low, high in zip(columns, kinds, lower, upper, strict=True)
    }


def _of_values(
    several: SeveralMeans, question: MeansQuestion, ends: Mapping[str, tuple[float, float]]
) -> PrivateMeans | SeveralMeans:
    """Give the results of the values alone, with variances in the place of squares."""
    results = {
        name: replace(_with_variance(several.results, name, pair), original=question.frame)
        for name, pair in ends.items()
    }

    # What is protected is said of values: their squares are no columns of the frame.
    counted = f"all {len(several.results)} values"
    protected = several.notes[0].replace(counted, "all values")
    notes = (protected, *several.notes[1:-1], clipped_sentence(results))
    if isinstance(question.value, str):
        only = results[question.value]
        return replace(only, notes=(notes[0], *only.notes[1:]))

    return replace(
        several,
        table=joined_columns(results),
        notes=notes,
        results=results,
        original=question.frame,
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
    most_variance = (high - low) ** 2 / 4
    mean, noise = _released(result)
    away = mean - (low + high) / 2

    # True and false are half a width from the middle, all of them.
    square = np.full(len(result), most_variance), np.zeros(len(result))
    if _SQUARE.format(name) in results:
        square = _released(results[_SQUARE.format(name)])

    variance = np.clip(square[0] - np.square(away) + np.square(noise), 0.0, most_variance)
    of_noise = np.square(square[1]) + np.square(2 * away * noise) + 2 * noise**4
    of_sampling = _fourth_moment(variance, mean, ends) / np.asarray(result.table["rows"])

    error = float(ndtri(0.5 + result.level / 2)) * np.sqrt(of_noise + of_sampling)
    table = result.table
    for column, values in zip(
        VARIANCE, (variance, variance - error, variance + error), strict=True
    ):
        table = table.append_column(column, pa.array(np.clip(values, 0.0, most_variance)))

    return replace(result, table=table)


def _fourth_moment(variance: Floats, mean: Floats, ends: tuple[float, float]) -> Floats:
    """Fourth moment about the mean, less the squared variance: of a law with this kurtosis, or less."""
    low, high = ends

    # Nobody's fourth moment is larger than the variance times the farthest square.
    farthest = np.square(np.maximum(np.abs(mean - low), np.abs(high - mean)))
    square = np.minimum(KURTOSIS * variance, farthest)

    return np.asarray(np.maximum(square - variance, 0.0) * variance)


def _released(result: PrivateMeans) -> tuple[Floats, Floats]:
    """Released means and the standard deviations of their noise."""
    return np.asarray(result.table["released"]), np.asarray(result.table["noise_stddev"])
