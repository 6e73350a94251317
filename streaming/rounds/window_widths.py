"""Windows of event time.

Fixed, sliding, session and calendar windows, with Beam's arithmetic, for arrays of times.

Beam holds times as whole microseconds, and so does this file: a window is the same pair of integers
on both hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np

from meanstream.operators.durations import duration_text, parse_duration
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import closest_valid, require
from meanstream.streaming.events.times import iso_times

MICROS_PER_SECOND = 1_000_000
HOUR = 3600 * MICROS_PER_SECOND
LONGEST = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}
"""Days of a unit, at most; a clock that is set back adds hours."""
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
STEP = 900 * MICROS_PER_SECOND
"""Local midnights of all zones of today are multiples of a quarter of an hour in UTC."""
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True, slots=True)
class CalendarDays:
    """A unit of the calendar, in a time zone.

    Parameters
    ----------
    unit : {"day", "week", "month", "quarter", "year"}
        What a window is.
    zone : str
        Name of a time zone of the tz database, such as "Europe/Berlin".
    weekday : int
        First day of a week, 0 is Monday; of other units 0.

    Notes
    -----
    A unit begins at local midnight, so a day has 23 or 25 hours where the clocks change. Where a zone skips midnight,
    or a whole day, the next time that it has counts.

    Examples
    --------
    >>> berlin = CalendarDays.parse("month@Europe/Berlin")
    >>> start, end = berlin.around(np.array([1_774_000_000 * MICROS_PER_SECOND]))
    >>> [str(datetime.fromtimestamp(t[0] / MICROS_PER_SECOND, UTC)) for t in (start, end)]
    ['2026-02-28 23:00:00+00:00', '2026-03-31 22:00:00+00:00']
    >>> str(CalendarDays.parse("week:sunday@UTC"))
    'week:sunday'
    """

    unit: str
    zone: str = "UTC"
    weekday: int = 0

    @classmethod
    def parse(cls, text: str) -> CalendarDays | None:
        """Read `month`, `week:sunday` or `day@Europe/Berlin`.

        None if it is no unit of the calendar.
        """
        named, separator, zone = text.partition("@")
        unit, colon, weekday = named.partition(":")
        if unit not in LONGEST:
            return None

        is_weekday = not colon or (unit == "week" and weekday in WEEKDAYS)
        require(is_weekday, "window", f"be week:WEEKDAY with one of {', '.join(WEEKDAYS)}", text)

        if separator:
            try:
                ZoneInfo(zone)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                hint = closest_valid(zone, sorted(available_timezones()), listed="such as")
                raise ValueError(
                    f"window must be in a known time zone, got {zone!r}{hint}"
                ) from None

        return cls(unit, zone if separator else "UTC", WEEKDAYS.index(weekday) if colon else 0)

    def __str__(self) -> str:
        first = f":{WEEKDAYS[self.weekday]}" if self.weekday else ""
        return f"{self.unit}{first}" + (f"@{self.zone}" if self.zone != "UTC" else "")

    @property
    def longest(self) -> int:
        """Microseconds that a window lasts at most, and a day more.

        Zones have moved over the date line.
        """
        return (LONGEST[self.unit] + 1) * 24 * HOUR

    def around(self, micros: Ints) -> tuple[Ints, Ints]:
        """Give start and end of the unit that each time lies in, in microseconds."""
        if not len(micros):
            return micros.astype(np.int64), micros.astype(np.int64)
        bounds = self._boundaries(int(micros.min()), int(micros.max()))
        index = np.searchsorted(bounds, micros, side="right")

        return bounds[index - 1], bounds[index]

    def _boundaries(self, first: int, last: int) -> Ints:
        """List the midnights at which units begin, from one at or before a time to one after another."""
        zone = ZoneInfo(self.zone)
        day = self._begin(
            (
                datetime.fromtimestamp(first // MICROS_PER_SECOND, UTC).astimezone(zone)
                - timedelta(days=1)
            ).date()
        )
        midnights: list[int] = []

        while not midnights or midnights[-1] <= last:
            midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
            midnights.append(
                (midnight - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
            )
            day = self._next(day)

        return np.unique(np.array(midnights, np.int64))

    def _begin(self, day: date) -> date:
        """Give the first day of the unit that a day lies in."""
        if self.unit == "day":
            return day
        if self.unit == "week":
            return day - timedelta(days=(day.weekday() - self.weekday) % 7)

        months = _MONTHS[self.unit]
        return day.replace(month=(day.month - 1) // months * months + 1, day=1)

    def _next(self, day: date) -> date:
        """Give the first day of the next unit."""
        if self.unit in ("day", "week"):
            return day + timedelta(days=LONGEST[self.unit])
        month = day.month - 1 + _MONTHS[self.unit]
        return day.replace(year=day.year + month // 12, month=month % 12 + 1)


MICROS = MICROS_PER_SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FORMS = (
    "be SIZE, SIZE,PERIOD, session:GAP or day, week, month, quarter, year with an optional @ZONE (such as 7d, 7d,1d, "
    "session:30m, week:sunday or month@Europe/Berlin)"
)


class Window(NamedTuple):
    """Event time from `start` (included) to `end` (not included), in microseconds since the epoch."""

    start: int
    end: int

    @classmethod
    def between(cls, start: datetime, end: datetime) -> Self:
        """Take it from an event, to the microsecond."""
        return cls(*((time - _EPOCH) // timedelta(microseconds=1) for time in (start, end)))

    def iso(self) -> tuple[str, str]:
        """Write both ends as ISO 8601 in UTC."""
        start, end = iso_times(np.array([self.start / MICROS, self.end / MICROS]))
        return start, end


class Assigned(NamedTuple):
    """Samples to their windows, one entry per pair of both.

    A sample of sliding windows has several.

    Attributes
    ----------
    sample : int64 array (n,)
        Index of the sample.
    start : int64 array (n,)
        Start of the window, microseconds.
    end : int64 array (n,)
        End of the window, microseconds. Of a session: as if the sample were alone in it
        (`merge_session_windows`).
    """

    sample: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True, slots=True)
class Windows:
    """How event time is cut into windows.

    Attributes
    ----------
    kind : {"fixed", "sliding", "session"}
        Fixed windows follow one another from the epoch on. Sliding windows of one size begin every
        period, so that a sample is in several. A session goes on as long as no gap between two
        samples, of whichever users, is longer: the key of a session is the population, not the
        user, because the answer is about the population.
    size : int
        Microseconds; of a session, its gap; of a calendar, more than its longest window.
    period : int
        Microseconds between two starts; the size, except for sliding windows.
    calendar : CalendarDays, optional
        Of fixed windows that follow the calendar of a time zone: days, weeks, months, quarters or
        years.

    Notes
    -----
    **Privacy.** A user is protected within one window. Sliding windows overlap: what a user did
    then is in `overlap` windows, and costs that many times epsilon. Fixed and sliding windows begin
    and end at times that no user decides; a session begins and ends with a sample, whose time is
    therefore public.

    Examples
    --------
    >>> weeks = Windows.parse("7d")
    >>> times = np.array([1357034400.0, 1357172400.0])
    >>> [Window(int(a), int(b)).iso() for a, b in zip(*weeks.assign(times)[1:], strict=True)]
    [('2012-12-27T00:00:00Z', '2013-01-03T00:00:00Z'), ('2013-01-03T00:00:00Z', '2013-01-10T00:00:00Z')]
    >>> Windows.parse("7d,1d").overlap, str(Windows.parse("168h,24h"))
    (7, '7d,1d')
    >>> Window(*(int(end[0]) for end in Windows.parse("month").assign(times[:1])[1:])).iso()
    ('2013-01-01T00:00:00Z', '2013-02-01T00:00:00Z')
    """

    kind: Literal["fixed", "sliding", "session"]
    size: int
    period: int
    calendar: CalendarDays | None = None

    @classmethod
    def parse(cls, text: str) -> Windows:
        """Read `7d`, `7d,1d`, `session:30m` or `month@Europe/Berlin`."""
        calendar = CalendarDays.parse(text)
        if calendar is not None:
            return cls("fixed", calendar.longest, calendar.longest, calendar)
        first, *rest = text.removeprefix("session:").split(",")

        if text.startswith("session:"):
            require(not rest, "window", FORMS, text)
            gap = _micros(first, text)
            return cls("session", gap, gap)

        require(len(rest) <= 1, "window", FORMS, text)
        size = _micros(first, text)
        if not rest:
            return cls("fixed", size, size)

        period = _micros(rest[0], text)
        require(
            period <= size and size % period == 0,
            "window",
            "have a SIZE that is a multiple of its PERIOD",
            text,
        )

        return cls("sliding" if period < size else "fixed", size, period)

    def __str__(self) -> str:
        """Give the one text of all that name the same windows."""
        if self.calendar is not None:
            return str(self.calendar)
        size, period = (duration_text(micros / MICROS) for micros in (self.size, self.period))
        return {"session": f"session:{size}", "fixed": size, "sliding": f"{size},{period}"}[
            self.kind
        ]

    @property
    def overlap(self) -> int:
        """How many windows a sample is in."""
        return self.size // self.period

    @property
    def step(self) -> int:
        """Microseconds of which the ends of all windows are multiples, but for sessions."""
        if self.calendar is None:
            return self.period
        return STEP

    def start(self, micros: int) -> int:
        """Give where the newest window of a time begins, which windows before it have ended by."""
        if self.calendar is not None:
            return int(self.calendar.around(np.array([micros]))[0][0])
        return micros - micros % self.period

    def assign(self, time: Floats) -> Assigned:
        """Find the windows of samples.

        Returns
        -------
        Assigned
            In the order of the samples; a sample's own windows from the newest to the oldest.
        """
        micros = windows_in_micros(time)
        if self.kind == "session":
            return Assigned(np.arange(len(micros)), micros, micros + self.size)
        if self.calendar is not None:
            return Assigned(np.arange(len(micros)), *self.calendar.around(micros))

        newest = micros - micros % self.period
        if self.overlap == 1:
            return Assigned(np.arange(len(micros)), newest, newest + self.size)
        start = (newest[:, None] - self.period * np.arange(self.overlap)).reshape(-1)

        return Assigned(np.repeat(np.arange(len(micros)), self.overlap), start, start + self.size)


def windows_in_micros(time: Floats) -> Ints:
    """Whole microseconds of times in seconds, as Beam's `Timestamp(seconds)` cuts them."""
    return np.asarray(time * float(MICROS)).astype(np.int64)


def merge_session_windows(start: Ints, end: Ints) -> tuple[Ints, list[Window]]:
    """Join windows that overlap, as Beam's `Sessions` does; windows that only touch stay apart.

    Returns
    -------
    int64 array (n,), list of Window
        The number of the session of each window, and the sessions in the order of time.

    Examples
    --------
    >>> merge_session_windows(np.array([50, 0, 10, 30]), np.array([70, 20, 30, 50]))
    (array([2, 0, 0, 1]), [Window(start=0, end=30), Window(start=30, end=50), Window(start=50, end=70)])
    """
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])
    begins = np.ones(len(order), np.bool_)
    begins[1:] = start[order][1:] >= reach[:-1]
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins) - 1

    last = (
        np.r_[np.flatnonzero(begins)[1:] - 1, len(order) - 1]
        if len(order)
        else np.zeros(0, np.int64)
    )
    starts = start[order][begins].tolist()
    ends = reach[last].tolist()

    return number, [Window(a, b) for a, b in zip(starts, ends, strict=True)]


def _micros(duration: str, text: str) -> int:
    try:
        seconds = parse_duration("window", duration)
    except ValueError:
        seconds = 0.0

    require(seconds >= 1 and seconds == int(seconds), "window", FORMS, text)
    return int(seconds) * MICROS
