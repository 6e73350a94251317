"""Public attributes of agents, as somebody declares them in a table: one row per agent, one column per attribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meanstream.operators.collaboration.covariates.covariate_design import (
    Category,
    CovariateDesign,
    Number,
    categories_of,
    number_of,
)
from meanstream.operators.records import AnyInts
from meanstream.operators.validation import closest_valid, printable

NUMBERS_AS_TEXT, OF_THEM = 50, 0.9
"""Text of so many different values, of which this share are numbers, is a column of numbers that was read as text."""
_SHOWN = 64


@dataclass(frozen=True, slots=True, eq=False)
class AgentCovariates:
    """Public by declaration: attributes of agents.

    Attributes
    ----------
    design : CovariateDesign
    names : tuple of str
        Agents with a row.
    codes : int array, shape (n_agents, n_attributes)

    Examples
    --------
    >>> table = pa.table({"plane": ["a", "b", "c", "d"], "engine": ["jet"] * 3 + [None], "seats": [50, 60, 60, 70]})
    >>> covariates = covariates_of_table(table, "plane")
    >>> covariates.of(["d", "b", "unknown"]).tolist()
    [[2, 30], [0, 16], [2, 32]]
    """

    design: CovariateDesign
    names: tuple[str, ...]
    codes: AnyInts
    _rows: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", {name: row for row, name in enumerate(self.names)})

    def of(self, names: Sequence[str]) -> AnyInts:
        """Give the codes of agents; those without a row have none, in every attribute."""
        row = np.fromiter((self._rows.get(name, -1) for name in names), np.int64, len(names))
        return np.asarray(np.concatenate([self.codes, self.design.missing[None]])[row])

    def known(self, names: Sequence[str]) -> int:
        """Count those that have a row."""
        return sum(name in self._rows for name in names)


def covariates_of_table(table: pa.Table, key: str) -> AgentCovariates:
    """Read declared attributes.

    Parameters
    ----------
    table : pyarrow.Table
        One row per agent. Text and truth values are categories; numbers and dates are numbers; a null is missing.
    key : str
        Column with the agents' names.

    Raises
    ------
    ValueError
        In one line, naming the column and the rule.
    """
    names = _names(table, key)
    return covariates_of_columns(names, {name: table.column(name) for name in table.column_names if name != key})


def covariates_of_columns(names: Sequence[str], columns: dict[str, Any]) -> AgentCovariates:
    """Read attributes of agents whose names are known; see `covariates_of_table`."""
    if not columns:
        raise ValueError("covariates must have a column beside that of the agents, got none")
    kinds = {name: _plain(column) for name, column in columns.items()}
    texts = {name: _levels(name, column) for name, column in kinds.items() if not _is_number(column.type)}
    categories = dict(zip(texts, categories_of([(name, *of) for name, of in texts.items()]), strict=True))
    attributes: list[Category | Number] = []
    codes: list[AnyInts] = []
    for name, column in kinds.items():
        if name in categories:
            one, own = categories[name]
            attributes.append(one)
            codes.append(own)
            continue
        values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
        number = number_of(name, values)
        attributes.append(number)
        codes.append(number.codes(values))
    return AgentCovariates(CovariateDesign(tuple(attributes)), tuple(names), np.stack(codes, axis=1))


def _names(table: pa.Table, key: str) -> list[str]:
    known = list(table.column_names)
    if key not in known:
        rule = f"have the column {printable(key)[:_SHOWN]!r} that names the agents"
        raise ValueError(f"covariates must {rule}, got none{closest_valid(key, known)}")
    twice = next((name for name in known if known.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"covariates must have columns of different names, got two named {printable(twice)[:_SHOWN]!r}")
    column = table.column(key)
    if column.null_count:
        raise ValueError(f"covariates must name an agent in every row, got {column.null_count:,} rows that do not")
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_floating(kind) or pa.types.is_nested(kind):
        raise ValueError(f"covariates must name agents by text or whole numbers, got {kind} in {printable(key)!r}")
    names = [str(name) for name in pc.cast(column.cast(kind), pa.string()).to_pylist()]
    several = len(names) - len(set(names))
    if several:
        raise ValueError(f"covariates must have one row per agent, got {several:,} rows more than agents")
    return names


def _plain(column: Any) -> pa.Array:
    """Give a column's values as such, in one piece; dates as days or the like."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_temporal(column.type) and not pa.types.is_interval(column.type):
        return column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    return column


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _levels(name: str, column: pa.Array) -> tuple[list[str], AnyInts]:
    """Give the levels of a category in order, and each agent's; -1 where it has none."""
    kind, shown = column.type, printable(name)[:_SHOWN]
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not (text or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise ValueError(f"covariates must be text, numbers, dates, or true and false, got {kind} in column {shown!r}")
    encoded = column.cast(pa.string()).dictionary_encode()
    levels = encoded.dictionary.to_pylist()
    given = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = sum(map(_reads_as_number, levels)) if len(levels) > NUMBERS_AS_TEXT else 0
    if numbers > OF_THEM * len(levels):
        raise ValueError(
            f"covariates must hold numbers, or categories, in column {shown!r}, got text with {numbers:,} different "
            "numbers; leave cells without a number empty"
        )
    order = sorted(range(len(levels)), key=levels.__getitem__)
    place = np.empty(len(levels) + 1, np.int64)
    place[order], place[-1] = np.arange(len(levels)), -1
    return [levels[i] for i in order], place[given]


def _reads_as_number(text: str) -> bool:
    try:
        float(text[:_SHOWN].replace(",", ""))
    except ValueError:
        return False
    return True
