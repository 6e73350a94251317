"""Groups of a frame's rows: their keys as columns, and as the texts that own the noise."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meanstream.operators.records import AnyInts, Ints
from meanstream.streaming.sources.source_directory import names_in_one_spelling


def whole_column(table: pa.Table, option: str, name: str) -> pa.ChunkedArray:
    """Give a column that has a value in every row."""
    column = table.column(name)
    if column.null_count:
        got = f"{column.null_count:,} nulls in column {name!r}"
        raise ValueError(
            f"{option} must have a value in every row, got {got}; nulls='drop' leaves those rows out"
        )

    return column


def rows_by_key(
    table: pa.Table, grouping: list[str], option: str = "by"
) -> tuple[AnyInts, pa.Table]:
    """Give the group of each row, and a table of the groups' keys, in the order in which groups are first met."""
    codes, values = _coded_column(table, grouping[0], option)
    keys = pa.table({grouping[0]: values})
    for name in grouping[1:]:
        own_codes, values = _coded_column(table, name, option)
        codes, pairs = _coded(pa.chunked_array([codes.astype(np.int64) * len(values) + own_codes]))
        first, second = np.divmod(np.asarray(pairs, np.int64), len(values))
        keys = keys.take(pa.array(first)).append_column(name, values.take(pa.array(second)))

    return codes, keys


def _coded_column(table: pa.Table, name: str, option: str) -> tuple[AnyInts, pa.Array]:
    """Give the number of each row's value, and the values, in the order in which they are first met."""
    column = whole_column(table, option, name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_floating(kind) or pa.types.is_nested(kind) or _is_no_name(kind):
        raise ValueError(
            f"{option} must be a column of names (text, integers, dates, true and false), got {kind} in {name!r}: "
            "frame[name].astype(str) makes text of it"
        )

    if not pa.types.is_dictionary(column.type):
        codes, values = _coded(column)
        return codes, values.cast(_plain_kind(kind))

    # Of a categorical column the numbers of its categories are coded, whose chunks may have a list
    # each.
    column = column.unify_dictionaries()
    codes, used = _coded(
        pa.chunked_array([chunk.indices for chunk in column.chunks], column.type.index_type)
    )

    listed = (
        column.chunk(0).dictionary.cast(_plain_kind(kind))
        if column.num_chunks
        else pa.array([], kind)
    )
    number, values = _coded(
        pa.chunked_array([listed.take(used)])
    )  # a list may name one category twice

    return number[codes], values


def _plain_kind(kind: pa.DataType) -> pa.DataType:
    """Give the type in which keys are shown."""
    if pa.types.is_null(kind) or pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()

    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def _coded(plain: pa.ChunkedArray) -> tuple[AnyInts, pa.Array]:
    """Give numbers to values in the order in which they are first met."""
    if not len(plain):
        return np.zeros(0, np.int32), pa.array([], plain.type)
    encoded = plain.dictionary_encode().unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # too large for one piece
        encoded = pa.concat_arrays(encoded.chunks)

    return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary


def _is_no_name(kind: pa.DataType) -> bool:
    is_of_a_library = isinstance(kind, pa.BaseExtensionType)  # such as periods of pandas
    return bool(is_of_a_library or pa.types.is_interval(kind) or pa.types.is_run_end_encoded(kind))


def key_order(keys: pa.Table) -> Ints:
    """Give the order of groups by their keys, which says nothing of where they stand in a frame."""
    try:
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    except pa.ArrowException:  # of a kind that Arrow cannot sort
        texts = [key_texts(keys.column(name), name) for name in keys.column_names]
        order = pc.sort_indices(
            pa.table({str(number): column for number, column in enumerate(texts)}),
            sort_keys=[(str(number), "ascending") for number in range(len(texts))],
        )

    return np.asarray(order, np.int64)


def key_names(keys: pa.Table) -> list[str]:
    """Name each group: by its text, of several columns by a JSON list of theirs."""
    texts = [
        key_texts(column, name)
        for name, column in zip(keys.column_names, keys.columns, strict=True)
    ]

    if len(texts) == 1:
        return list(texts[0])
    return [
        json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        for row in zip(*texts, strict=True)
    ]


def look_alikes(names: list[str]) -> int:
    """Public: the number of names that differ from another one only in case or in blanks.

    Examples
    --------
    >>> look_alikes(["S001", "s001 ", "S002"])
    2
    """
    plain = pc.utf8_lower(pc.utf8_trim_whitespace(pa.array(names, pa.string())))
    counts = pc.value_counts(plain).field("counts")

    return pc.sum(counts.filter(pc.greater(counts, 1))).as_py() or 0


def key_texts(column: pa.ChunkedArray, name: str, option: str = "by") -> list[str]:
    """Write keys as texts; those that no one could be shown are refused."""
    return list(key_text_array(column, name, option).to_pylist())


def key_text_array(column: pa.ChunkedArray, name: str, option: str = "by") -> pa.StringArray:
    """Write keys as one array of texts, as `key_texts` does."""
    try:
        if pa.types.is_temporal(column.type):
            column.to_pylist()  # Python has dates of the years 1 to 9999, and zones that it knows

        texts = pa.concat_arrays([pa.array([], pa.string()), *pc.cast(column, pa.string()).chunks])
        texts.validate(full=True)
    except (pa.ArrowException, OverflowError, LookupError, ValueError):  # whose texts show values
        rule = "have names that are UTF-8, or dates that Python has, in every row"
        raise ValueError(f"{option} must {rule}, got others in column {name!r}") from None

    # A group, or a person, has one spelling, and one budget; a category is no owner of any.
    if option != "value":
        wrong = len(texts) - int(np.count_nonzero(names_in_one_spelling(texts)))
        if wrong:
            rule = "be names in Unicode's NFC, each with one spelling (unicodedata.normalize)"
            raise ValueError(f"{option} must {rule}, got {wrong:,} others in column {name!r}")

    return texts
