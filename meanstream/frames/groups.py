"""Groups of a frame's rows: their keys as columns, and as the texts that own the noise."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meanstream.operators.records import Ints


def whole_column(table: pa.Table, option: str, name: str) -> pa.ChunkedArray:
    """Give a column that has a value in every row."""
    column = table.column(name)
    if column.null_count:
        got = f"{column.null_count:,} nulls in column {name!r}"
        raise ValueError(f"{option} must have a value in every row, got {got}; nulls='drop' leaves those rows out")
    return column


def rows_by_key(table: pa.Table, grouping: list[str], option: str = "by") -> tuple[Ints, pa.Table]:
    """Give the group of each row, and a table of the groups' keys."""
    codes, sizes, parts = [], [], []
    for name in grouping:
        column = whole_column(table, option, name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind) or _is_no_name(kind):
            raise ValueError(
                f"{option} must be a column of names (text, integers, dates, true and false), got {kind} in {name!r}"
            )
        text = pa.types.is_null(kind) or pa.types.is_string_view(kind) or pa.types.is_large_string(kind)
        octets = pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind)
        plain = _without_codes(column, pa.string() if text else pa.binary() if octets else kind)
        encoded = plain.dictionary_encode().unify_dictionaries().combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):  # of no rows, or too large for one piece
            encoded = (
                pa.concat_arrays(encoded.chunks) if encoded.num_chunks else pa.array([], plain.type).dictionary_encode()
            )
        codes.append(np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64))
        parts.append(encoded.dictionary)
        sizes.append(len(encoded.dictionary))
    if len(grouping) == 1:
        return codes[0], pa.table({grouping[0]: parts[0]})
    joined = codes[0]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        joined = joined * size + code
        _, joined = np.unique(joined, return_inverse=True)  # stays small, however many columns
    _, first, joined = np.unique(joined, return_index=True, return_inverse=True)
    keys = {name: part.take(pa.array(code[first])) for name, part, code in zip(grouping, parts, codes, strict=True)}
    return np.asarray(joined, np.int64), pa.table(keys)


def _is_no_name(kind: pa.DataType) -> bool:
    return bool(pa.types.is_interval(kind) or pa.types.is_run_end_encoded(kind))


def _without_codes(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Give a column's values as such, also those of a categorical column, whose chunks have a list each."""
    if not pa.types.is_dictionary(column.type):
        return column.cast(kind)
    return pa.chunked_array([chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks], kind)


def key_names(keys: pa.Table) -> list[str]:
    """Name each group: by its text, of several columns by a JSON list of theirs."""
    texts = [key_texts(column, name) for name, column in zip(keys.column_names, keys.columns, strict=True)]
    if len(texts) == 1:
        return list(texts[0])
    return [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in zip(*texts, strict=True)]


def key_texts(column: pa.ChunkedArray, name: str, option: str = "by") -> list[str]:
    """Write keys as texts; those that no one could be shown are refused."""
    try:
        if pa.types.is_temporal(column.type):
            column.to_pylist()  # Python has dates of the years 1 to 9999, and zones that it knows
        return list(pc.cast(column, pa.string()).to_pylist())
    except (pa.ArrowException, OverflowError, LookupError, ValueError):  # whose texts show values
        rule = "have names that are UTF-8, or dates that Python has, in every row"
        raise ValueError(f"{option} must {rule}, got others in column {name!r}") from None
