"""The rows that count where it is secret which rows there are: each row by itself decides.

Nothing is refused for what a row holds, as a refusal would tell of it; types of columns are public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meanstream.operators.records import Bools
from meanstream.operators.validation import require
from meanstream.pipelines.frames.frame_columns import FrameSamples, frame_samples
from meanstream.pipelines.frames.frame_reader import columns_of_options
from meanstream.pipelines.frames.groups import key_names, key_order
from meanstream.pipelines.frames.values.value_columns import missing_as_nulls
from meanstream.streaming.events.event_columns import MAX_ID_BYTES

NAMES = "be a column of text, whole numbers or true and false with private_counts"
"""Rule for columns of names; dates and others become text by a cast."""


def counted_rows(
    frame: Any,
    *,
    by: Sequence[str],
    value: str,
    person: str | None,
    missing: Sequence[float],
    declared: Sequence[Any] | None,
) -> FrameSamples:
    """Private: the rows with a name, a person and a finite value, in declared groups if any are.

    The groups are all declared ones, or those that have rows.
    """
    persons = [] if person is None else [person]
    table = columns_of_options(frame, {"by": [*by], "value": [value], "person": persons})
    table = missing_as_nulls(table, [value], missing, [*by, *persons])

    # Every column gets the form that the reader of frames accepts in every row.
    for option, names in (("by", by), ("person", persons)):
        for name in names:
            table = _replaced(table, name, _plain_names(table.column(name), option, name))

    table = _replaced(table, value, _finite_numbers(table.column(value), value))
    complete = table.drop_null()
    if person is not None:
        complete = complete.filter(pa.array(_is_identifier(complete.column(person))))

    samples = frame_samples(complete, by=[*by], value=value, time=None, person=person)
    if declared is None:
        return samples

    return _of_declared(samples, declared_keys(declared, complete.schema, by))


def _of_declared(samples: FrameSamples, keys: pa.Table) -> FrameSamples:
    """Give the rows of some groups, which are in the result with rows or without."""
    names = key_names(keys)
    others = {*samples.names} - {*names}
    return replace(samples.without_groups(others).with_groups_in_order(names), keys=keys)


def declared_keys(declared: Sequence[Any], schema: pa.Schema, by: Sequence[str]) -> pa.Table:
    """Give the keys of declared groups, in their order.

    Examples
    --------
    >>> declared_keys(["b", "a"], pa.schema({"ward": pa.string()}), ["ward"])["ward"].to_pylist()
    ['a', 'b']
    """
    listed = isinstance(declared, Sequence) and not isinstance(declared, str)
    require(listed and len(declared) > 0, "groups", "be a list of names", declared)
    rows = [(name,) for name in declared] if len(by) == 1 else [*declared]
    is_key = all(isinstance(row, tuple | list) and len(row) == len(by) for row in rows)
    require(is_key, "groups", "have a tuple with a name for each column of by", declared)

    columns = [
        _declared_column([row[i] for row in rows], schema.field(by[i])) for i in range(len(by))
    ]
    keys = pa.table(dict(zip(by, columns, strict=True)))
    require(len({*key_names(keys)}) == len(rows), "groups", "name each group once", declared)

    return keys.take(pa.array(key_order(keys)))


def _declared_column(names: list[Any], field: pa.Field) -> pa.ChunkedArray:
    """Give declared names the type that the frame has."""
    try:
        column = pa.chunked_array([pa.array(names, field.type)])
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        rule = f"have names of the type of column {field.name!r}, {field.type}"
        raise ValueError(f"groups must {rule}, got others") from None

    require(column.null_count == 0, "groups", "have no missing names", names)
    return _plain_names(column, "groups", field.name)


def _replaced(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def _plain_names(column: pa.ChunkedArray, option: str, name: str) -> pa.ChunkedArray:
    """Give names in their one spelling and in a type that lists no names by itself."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain_names(_decoded(column), option, name)

    # A column without any name has no type of its own.
    if pa.types.is_null(kind):
        return column.cast(pa.string())

    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    require(text or pa.types.is_string_view(kind), option, NAMES, str(kind))

    coded = pc.dictionary_encode(column.cast(pa.string())).unify_dictionaries()
    if not coded.num_chunks:
        return column.cast(pa.string())

    # One spelling for each name: Unicode's NFC.
    spellings = coded.chunk(0).dictionary.to_pylist()
    spelled = pa.array([normalize("NFC", text) for text in spellings], pa.string())

    return pa.chunked_array([spelled.take(chunk.indices) for chunk in coded.chunks], pa.string())


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give a categorical column as one of plain values."""
    kind = column.type.value_type
    kind = pa.string() if pa.types.is_string_view(kind) else kind
    chunks = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(chunks, kind)


def _finite_numbers(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Give the values as numbers, and nulls where they are not finite."""
    kind = column.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    other = pa.types.is_boolean(kind) or pa.types.is_null(kind)
    rule = f"be a column of numbers, or of true and false, as {name!r} is with private_counts"
    require(number or other, "value", rule, str(kind))

    plain = column.cast(pa.float64(), safe=False)
    return pc.if_else(pc.is_finite(plain), plain, pa.scalar(None, pa.float64()))


def _is_identifier(column: pa.ChunkedArray) -> Bools:
    """Say which names of persons have a length that is hashed."""
    length = pc.binary_length(column.cast(pa.string())).to_numpy()
    return np.asarray((length >= 1) & (length <= MAX_ID_BYTES))
