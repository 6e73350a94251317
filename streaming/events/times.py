"""Event times in many notations, to seconds since the epoch, and back to ISO 8601."""

from __future__ import annotations

import math
import re
import sys
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Literal

import numpy as np
import pyarrow as pa

from meanstream.operators.records import Bools, Floats, Ints

NUMBER = re.compile(r"[+-]?(\d++\.?\d*+|\.\d++)([eE][+-]?\d++)?", re.ASCII)
"""A decimal number. It gives nothing back: of megabytes of digits with a letter after them it fails
at once."""

MOST_DIGITS = 320
"""A whole number of more digits is beyond all floats, and too long for a name or an id."""

LARGEST = sys.float_info.max


def nearest_float_number(text: str) -> float:
    """Read a decimal number; of one beyond all floats, the largest one of its sign.

    Whether a sample is one is public and its value is not: that must follow from its form, not from
    its size.

    Examples
    --------
    >>> nearest_float_number("2.5"), nearest_float_number("-1e400"), nearest_float_number("1" + "0" * 400)
    (2.5, -1.7976931348623157e+308, 1.7976931348623157e+308)
    """
    return min(max(float(text), -LARGEST), LARGEST)


def whole_number(text: str) -> int | float:
    """Read a whole number; one of too many digits as a float.

    Examples
    --------
    >>> whole_number("-12"), whole_number("9" * 5000)
    (-12, 1.7976931348623157e+308)
    """
    if len(text) <= MOST_DIGITS:
        return int(text)
    return nearest_float_number(text)


TimeUnit = Literal["auto", "s", "ms", "us"]

EARLIEST = -2208988800.0
LATEST = 4102444800.0
"""Plausible event times: the years 1900 to 2099."""

FIRST_DAY = 19000101
LAST_DAY = 20991231
"""Days of these years, written without marks between year, month and day."""

_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6}


class ColumnTypeError(ValueError):
    """A column of a type that holds no times; the message names the type and no datum."""


class TimeParser:
    """Reads a column of times; tries the notation that served last before the others.

    Notations: ISO 8601 with a zone or without (taken as UTC), and epoch seconds, milliseconds or
    microseconds.

    A whole number that may be meant as a day, such as 20240101, is no time unless the unit is
    given: as seconds it would lie in August 1970. A year alone is seconds, as all small numbers
    are: 2013 is half past midnight in 1970.
    """

    def __init__(self, unit: TimeUnit = "auto") -> None:
        self._unit = unit
        self._notations = [_with_zone, _without_zone, self._numbers]

    def parse(self, column: pa.Array) -> Floats:
        """Seconds since the epoch; NaN where the time is missing, unreadable or implausible."""
        seconds = self._parse(column)
        if (
            len(seconds) and seconds.min() >= EARLIEST and seconds.max() < LATEST
        ):  # false if one is NaN
            return seconds

        with np.errstate(invalid="ignore"):
            plausible = (seconds >= EARLIEST) & (seconds < LATEST)

        return np.asarray(np.where(plausible, seconds, np.nan), np.float64)

    def _parse(self, column: pa.Array) -> Floats:
        kind = column.type
        if pa.types.is_timestamp(kind):
            if kind.unit in ("s", "ms"):  # as microseconds an absurd one would be another time
                return _floats(column.cast(pa.int64())) / (1 if kind.unit == "s" else 1e3)
            return _seconds(column.cast(pa.timestamp("us", kind.tz), safe=False))

        if pa.types.is_date(kind):
            return _dates(column)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return self._scale(_floats(column))
        if kind not in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.null()):
            raise ColumnTypeError(f"time column must hold times, got {kind}")

        for notation in self._notations:
            try:
                seconds = notation(column)
            except pa.ArrowInvalid:
                continue

            self._notations.sort(key=lambda n, best=notation: n is not best)  # type: ignore[misc]
            return seconds

        return self._each(column)

    def _numbers(self, column: pa.Array) -> Floats:
        return self._scale(_floats(column.cast(pa.string()).cast(pa.float64())))

    def _scale(self, number: Floats) -> Floats:
        if self._unit != "auto":
            return number / _PER_SECOND[self._unit]
        size = np.abs(number)
        with np.errstate(
            invalid="ignore"
        ):  # NaN of any kind: damaged files have those that processors report
            seconds = np.where(
                size < 1e11, number, np.where(size < 1e14, number / 1e3, number / 1e6)
            )
            days = (number >= FIRST_DAY) & (number <= LAST_DAY)

        if days.any():
            return np.where(days & _name_days(number), np.nan, seconds)
        return seconds

    def _each(self, column: pa.Array) -> Floats:
        """Read the distinct times one by one.

        Some are in another notation than the rest, or in none.
        """
        encoded = column.dictionary_encode()
        distinct = np.array(
            [self._one(text) for text in encoded.dictionary.to_pylist()] + [math.nan]
        )
        indices: Ints = encoded.indices.fill_null(len(distinct) - 1).to_numpy(zero_copy_only=False)

        return distinct[indices]

    def _one(self, raw: bytes | str) -> float:
        try:
            text = (raw.decode() if isinstance(raw, bytes) else raw).strip()
            if NUMBER.fullmatch(text):
                return float(self._scale(np.array([float(text)]))[0])
            moment = datetime.fromisoformat(text)

            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return math.nan


def _name_days(number: Floats) -> Bools:
    """Say which numbers are days when they are read as year, month and day."""
    month = number // 100 % 100
    day = number % 100
    return np.asarray(
        (number == np.floor(number)) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    )


def _with_zone(column: pa.Array) -> Floats:
    return _seconds(column.cast(pa.string()).cast(pa.timestamp("us", "UTC")))


def _without_zone(column: pa.Array) -> Floats:
    return _seconds(column.cast(pa.string()).cast(pa.timestamp("us")))


def _seconds(column: pa.Array) -> Floats:
    micros = column.cast(pa.int64())
    filled = micros.fill_null(0) if column.null_count else micros
    seconds: Floats = filled.to_numpy(zero_copy_only=False) / 1e6
    if column.null_count:
        seconds[column.is_null().to_numpy(zero_copy_only=False)] = np.nan

    return seconds


def _dates(column: pa.Array) -> Floats:
    """Read days, or milliseconds.

    By way of timestamps an absurd one would be an error of the whole column.
    """
    if pa.types.is_date32(column.type):
        return _floats(column.cast(pa.int32())) * 86_400.0
    return _floats(column.cast(pa.int64())) / 1e3


def _floats(column: pa.Array) -> Floats:
    numbers: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def iso_times(seconds: Floats) -> list[str]:
    """Write times as ISO 8601 in UTC, to the microsecond, without a fraction where it is zero.

    Examples
    --------
    >>> iso_times(np.array([1357034400.0, 0.25]))
    ['2013-01-01T10:00:00Z', '1970-01-01T00:00:00.250000Z']
    """
    micros = np.rint(np.asarray(seconds) * 1e6).astype(np.int64)
    begins = np.flatnonzero(
        np.append(np.ones(min(len(micros), 1), np.bool_), micros[1:] != micros[:-1])
    )
    texts = _iso_texts(micros[begins])

    if len(begins) == len(micros):
        return texts
    runs = np.diff(begins, append=len(micros)).tolist()
    return list(chain.from_iterable(map(repeat, texts, runs)))


def _iso_texts(micros: Ints) -> list[str]:
    is_whole = micros % 1_000_000 == 0
    moments = micros.astype("datetime64[us]")
    texts: list[str]
    if is_whole.all():
        texts = np.datetime_as_string(moments, unit="s", timezone="UTC").tolist()
        return texts

    texts = np.datetime_as_string(moments, unit="us", timezone="UTC").tolist()
    for place in np.flatnonzero(is_whole).tolist():
        texts[place] = texts[place].replace(".000000", "")

    return texts


def known_time(seconds: float) -> float | None:
    """Give a time; None for what is before or after all times, as the watermark is where no sample has come."""
    if abs(seconds) < 1e11:
        return seconds
    return None


def iso_time(seconds: float | None) -> str | None:
    """Write one time as `iso` does; None where there is none, or none that has a date.

    Examples
    --------
    >>> iso_time(1357034400.0), iso_time(None), iso_time(-math.inf)
    ('2013-01-01T10:00:00Z', None, None)
    """
    if seconds is None or known_time(seconds) is None:
        return None
    return iso_times(np.array([seconds]))[0]


def time_as_datetime(seconds: float) -> datetime:
    """Give a time as an aware datetime, to the microsecond."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(seconds * 1e6))
