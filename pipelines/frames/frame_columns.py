"""Columns of a data frame as arrays, whichever library it is of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meanstream.operators.records import AnyInts, Bools, Floats, Ints, Words
from meanstream.operators.validation import require
from meanstream.pipelines.frames.converting_calls import (
    library_of,
    numbers_advice,
    times_advice,
)
from meanstream.pipelines.frames.dirty_columns import (
    ZONE,
    is_text,
    kinds_said,
    plain_text,
)
from meanstream.pipelines.frames.frame_reader import columns_of_options
from meanstream.pipelines.frames.groups import (
    key_names,
    key_order,
    key_text_array,
    key_texts,
    rows_by_key,
    whole_column,
)
from meanstream.streaming.events.event_columns import MAX_ID_BYTES, PERSONS, hash_ids
from meanstream.streaming.events.times import TimeParser
from meanstream.streaming.sources.categories import CategoryNumbers


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSamples:
    """Private: the samples of a frame, in event-time order.

    Attributes
    ----------
    keys : pyarrow.Table
        Values of the grouping columns, a row per group, in the order of the values.
    names : list of str
        One text per group: the owner of its noise.
    group, value : array (n,)
        Number of the group, sample.
    time : array (n,), optional
        Event time in seconds; None where the frame has no column of times, and the number of a row
        is its time.
    person : int array (n,), optional
        Number of the person whose sample it is.
    persons : uint64 array, optional
        Hash of each person.
    dropped : int
        Rows that were left out because a value is missing.
    """

    keys: pa.Table
    names: list[str]
    group: AnyInts
    value: Floats
    time: Floats | None
    person: AnyInts | None = None
    persons: Words | None = None
    dropped: int = 0

    def with_groups_in_order(self, names: Sequence[str]) -> FrameSamples:
        """Give the same samples with the groups numbered as in `names`.

        One that the frame lacks has no keys.
        """
        # A store may know groups that the frame lacks, and has an order of its own.
        before = {name: number for number, name in enumerate(self.names)}
        number_of = {name: number for number, name in enumerate(names)}
        keys = self.keys.take(pa.array([before.get(name) for name in names], pa.int64()))
        group = (
            np.array([number_of[name] for name in self.names], np.int64)[self.group]
            if before
            else self.group
        )

        return replace(self, keys=keys, names=list(names), group=group)

    def in_order(self, order: Ints) -> FrameSamples:
        """Give the same samples in another order."""
        return replace(
            self,
            group=self.group[order],
            value=self.value[order],
            time=None if self.time is None else self.time[order],
            person=None if self.person is None else self.person[order],
        )

    def without_groups(self, names: Collection[str]) -> FrameSamples:
        """Leave out some groups and their rows."""
        if not names:
            return self

        # Groups that stay keep their order and are numbered anew.
        stays = np.array([name not in names for name in self.names], np.bool_)
        rows = stays[self.group]
        number = np.cumsum(stays) - 1

        return replace(
            self,
            keys=self.keys.filter(pa.array(stays)),
            names=[name for name in self.names if name not in names],
            group=number[self.group[rows]].astype(np.int64),
            value=self.value[rows],
            time=None if self.time is None else self.time[rows],
            person=None if self.person is None else self.person[rows],
        )

    def times(self, rows: slice = slice(None)) -> Floats:
        """Give event times of some rows, or their numbers."""
        if self.time is not None:
            return self.time[rows]
        return np.arange(*rows.indices(len(self.group)), dtype=np.float64)

    def person_hashes(self, rows: slice | Ints = slice(None)) -> Words | None:
        """Give the hash of the person of some rows; None where there are no persons."""
        if self.person is None or self.persons is None:
            return None
        return self.persons[self.person[rows]]

    def groups_of_a_person(self) -> int:
        """Public: in how many groups one person has rows, at most."""
        if self.person is None or not len(self.person):
            return 0

        # A pair of person and group is one number, so that one sort finds all different ones.
        pairs = self.person.astype(np.int64)
        pairs *= len(self.names)
        pairs += self.group
        pairs.sort()
        other = np.append(True, pairs[1:] != pairs[:-1])
        pairs //= len(self.names)

        return int(np.bincount(pairs[other]).max())


def key_columns(by: str | Sequence[str]) -> list[str]:
    """Names of the columns of groups, of which there are one or several."""
    return [by] if isinstance(by, str) else [str(name) for name in by]


def frame_samples(
    frame: Any,
    *,
    by: str | Sequence[str],
    value: str,
    time: str | None,
    person: str | None = None,
    nulls: str = "refuse",
    tz: str | None = None,
    categories: Sequence[str] | None = None,
    protect_validity: bool = False,
) -> FrameSamples:
    """Read the columns that are needed, and put the samples into event-time order.

    Where there are `categories`, the value is the number of a text's category. With
    `protect_validity` a row whose value is null is not left out by `nulls="drop"`: its sample is
    NaN.
    """
    # What the caller named is checked before the frame is touched.
    grouping = key_columns(by)
    if not grouping or len({*grouping}) < len(grouping):
        raise ValueError(f"by must name one column or several different ones, got {by!r}")
    require(nulls in ("refuse", "drop"), "nulls", "be 'refuse' or 'drop'", nulls)
    if not isinstance(value, str):
        raise ValueError(f"value must be the name of a column, got {type(value).__name__}")

    # Rows without a value may have to stay, where validity is private.
    table = _needed_columns(frame, grouping, value, {"time": time, "person": person})
    n_rows = table.num_rows
    without_value = nulls == "drop" and protect_validity
    if nulls == "drop":
        table = _without_nulls(table, kept=value if without_value else None)

    values = _values_of_rows(frame, table, value, categories, without_value=without_value)
    when = None if time is None else _times(frame, table, time, tz)
    codes, keys = _by_key(*rows_by_key(table, grouping))
    whose, persons = (None, None) if person is None else _persons(table, person)
    samples = FrameSamples(
        keys=keys,
        names=key_names(keys),
        group=codes,
        value=values,
        time=when,
        person=whose,
        persons=persons,
        dropped=n_rows - table.num_rows,
    )

    # All columns follow one order, which keys have decided and not values.
    if when is None or not (np.diff(when) < 0).any():
        return samples

    return samples.in_order(np.argsort(when, kind="stable"))


def _needed_columns(
    frame: Any, grouping: list[str], value: str, optional: Mapping[str, str | None]
) -> pa.Table:
    """Columns that options name; no other is converted, as they may hold anything."""
    wanted = {"by": grouping, "value": [value]}
    wanted |= {option: [name] for option, name in optional.items() if name is not None}
    return columns_of_options(frame, wanted)


def group_sizes(frame: Any, by: str | Sequence[str], rows: str | None) -> Ints:
    """Public: the number of rows of each group, counted, or as a column of the frame says."""
    # Counted, or declared by a column of numbers.
    grouping = key_columns(by)
    table = columns_of_options(frame, {"by": grouping} | ({} if rows is None else {"rows": [rows]}))
    codes, keys = rows_by_key(table, grouping)
    if rows is None:
        return np.bincount(codes, minlength=keys.num_rows)

    column = whole_column(table, "rows", rows)
    ok = pa.types.is_integer(column.type) and (pc.min(column).as_py() or 1) >= 1
    require(ok, "rows", "be a column of whole numbers of at least 1", rows)

    return np.bincount(codes, np.asarray(column.to_numpy(), np.float64), keys.num_rows).astype(
        np.int64
    )


def counted_sizes(frame: Any, by: str | Sequence[str], person: str, per_person: int) -> Ints:
    """Public: the number of rows of each group that count, at most so many of one person."""
    grouping = key_columns(by)
    table = columns_of_options(frame, {"by": grouping, "person": [person]})
    group, keys = rows_by_key(table, grouping)
    whose, persons = rows_by_key(table, [person], option="person")

    # A pair of group and person is one number; of each at most `per_person` rows count.
    pair = group.astype(np.int64) * max(persons.num_rows, 1) + whose
    unique, rows = np.unique(pair, return_counts=True)
    counted = np.minimum(rows, per_person)

    return np.bincount(unique // max(persons.num_rows, 1), counted, minlength=keys.num_rows).astype(
        np.int64
    )


def _without_nulls(table: pa.Table, kept: str | None) -> pa.Table:
    """Leave out rows in which a column has no value, except for the column that is named."""
    # Views of Arrow have no kernels for filters: they become plain texts.
    views = {
        pa.string_view(): pa.string(),
        pa.binary_view(): pa.binary(),
    }  # which Arrow cannot filter
    plain = pa.schema(
        [pa.field(field.name, views.get(field.type, field.type)) for field in table.schema]
    )

    table = table.cast(plain)
    if kept is None:
        return table.drop_null()

    whole = np.ones(table.num_rows, np.bool_)
    for name in table.column_names:
        if name != kept:
            whole &= table.column(name).is_valid().to_numpy()

    return table.filter(pa.array(whole))


def _persons(table: pa.Table, name: str) -> tuple[AnyInts, Words]:
    """Find whose rows they are, and hash each person as `meanstream run agents --person` does."""
    codes, keys = rows_by_key(table, [name], option="person")

    # Persons are hashed as the command line does, so that one key draws the same rows of them.
    texts = key_text_array(keys.column(0), name, "person")
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset).astype(
        np.int64
    )
    lengths = np.diff(offsets)
    wrong = int(np.count_nonzero((lengths < 1) | (lengths > MAX_ID_BYTES)))

    if wrong:
        rule = f"have texts of 1 to {MAX_ID_BYTES} bytes in every row"
        raise ValueError(f"person must {rule}, got {wrong:,} others in column {name!r}")

    octets = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    return codes, hash_ids(octets, offsets, PERSONS)


def _values_of_rows(
    frame: Any, table: pa.Table, name: str, categories: Sequence[str] | None, *, without_value: bool
) -> Floats:
    """Give the value of each row, or the number of its category; NaN of a null, if rows may be without."""
    # Rows without a value keep their place, where it is private whether a value is valid.
    empty = table.column(name).is_null().to_numpy() if without_value else np.zeros(0, np.bool_)
    held = table.filter(pa.array(~empty)) if empty.any() else table
    values = (
        _numbers(frame, held, name) if categories is None else _categories(held, name, categories)
    )

    if held is table:
        return values

    value = np.full(table.num_rows, np.nan)
    value[~empty] = values
    return value


def _numbers(frame: Any, table: pa.Table, name: str) -> Floats:
    column = whole_column(table, "value", name)
    kind = column.type

    # Texts of numbers are not converted silently: the message has the call.
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (numeric or pa.types.is_boolean(kind)):
        got = f"{kinds_said(column)} in column {name!r}"
        advice = f": {numbers_advice(frame, name, column)}" if is_text(kind) else ""
        raise ValueError(f"value must be a column of numbers, got {got}{advice}")

    # Not finite is not a number to clip, and a count of such rows says enough.
    numbers: Floats = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)
    wrong = len(numbers) - int(np.isfinite(numbers).sum())
    if wrong:
        said = f"value must be finite in every row, got {wrong:,} that are not in column {name!r}"
        if library_of(frame) == "polars" and np.isnan(numbers).any():
            said += f"; pl.col({name!r}).fill_nan(None) makes nulls of NaN"
        raise ValueError(said)

    return numbers


def _categories(table: pa.Table, name: str, categories: Sequence[str]) -> Floats:
    # Each distinct text is looked up once.
    whole_column(table, "value", name)  # it refuses rows without a value
    codes, keys = rows_by_key(table, [name], option="value")
    numbers = CategoryNumbers(categories)
    number_of_key = np.array(
        [numbers.of(text.encode()) for text in key_texts(keys.column(0), name, "value")]
    )[codes]
    wrong = int(np.isnan(number_of_key).sum())

    if wrong:
        rule = "be of a category in every row (a category NAME=* takes all others)"
        raise ValueError(f"value must {rule}, got {wrong:,} others in column {name!r}")

    return np.asarray(number_of_key, np.float64)


def _times(frame: Any, table: pa.Table, name: str, tz: str | None) -> Floats:
    """Event times of the rows; dates and times without a zone are of the time zone `tz`, or of UTC."""
    column = whole_column(table, "time", name)
    column = _timestamps_of_text(column, tz) if is_text(column.type) else column
    kind = column.type
    is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    if not (is_time or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        got = f"{kinds_said(column)} in column {name!r}"
        raise ValueError(f"time must be a column of times or seconds, got {got}")

    when = TimeParser("s").parse(column)
    _require_times(frame, table.column(name), name, wrong=np.isnan(when))
    is_local = pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)
    if tz is None or not is_local:
        return when

    local = pa.array(np.round(when * 1e6).astype(np.int64)).cast(pa.timestamp("us"))
    zoned = pc.assume_timezone(local, tz, ambiguous="earliest", nonexistent="earliest")
    return TimeParser().parse(zoned)


def _require_times(frame: Any, column: pa.ChunkedArray, name: str, *, wrong: Bools) -> None:
    """Refuse rows whose time cannot be read; of texts, with the call that mends them."""
    if not wrong.any():
        return

    if not is_text(column.type):
        rule = "lie between the years 1900 and 2100 in every row (numbers are seconds since 1970)"
        got = f"{wrong.sum():,} that do not in column {name!r}"
        raise ValueError(f"time must {rule}, got {got}")

    texts = plain_text(column)
    rule = "be times, ISO 8601 text such as 2026-01-31T08:00:00Z, or seconds in every row"
    got = f"{kinds_said(texts.filter(pa.array(wrong)))} in column {name!r}"
    raise ValueError(f"time must {rule}, got {got}: {times_advice(frame, name, texts)}")


def _timestamps_of_text(column: pa.ChunkedArray, tz: str | None) -> pa.ChunkedArray:
    """Event times of a column of text, as a command reads them from a file: timestamps or seconds.

    Where there is a `tz`, it is that of texts without a zone: then all have one, or none.
    """
    text = plain_text(column)
    if tz is not None:
        try:
            return text.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:  # some have a zone, and the others are no times
            text = pc.if_else(pc.match_substring_regex(text, ZONE), text, "")

    parser = TimeParser()
    seconds = [np.zeros(0), *(parser.parse(chunk) for chunk in text.chunks)]

    return pa.chunked_array([pa.array(np.concatenate(seconds))])


def _by_key(codes: AnyInts, keys: pa.Table) -> tuple[AnyInts, pa.Table]:
    """Renumber the groups in the order of their keys: the order of rows is private."""
    order = key_order(keys)
    rank = np.empty(len(order), codes.dtype)
    rank[order] = np.arange(len(order))

    return rank[codes], keys.take(pa.array(order))
