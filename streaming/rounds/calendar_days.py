"""Days, weeks, months, quarters and years of a calendar in a time zone, as microseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np

from meanstream.operators.records import Ints
from meanstream.operators.validation import closest_valid, require

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
        named, at, zone = text.partition("@")
        unit, colon, weekday = named.partition(":")
        if unit not in LONGEST:
            return None

        known = not colon or (unit == "week" and weekday in WEEKDAYS)
        require(known, "window", f"be week:WEEKDAY with one of {', '.join(WEEKDAYS)}", text)

        if at:
            try:
                ZoneInfo(zone)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                hint = closest_valid(zone, sorted(available_timezones()), listed="such as")
                raise ValueError(
                    f"window must be in a known time zone, got {zone!r}{hint}"
                ) from None

        return cls(unit, zone if at else "UTC", WEEKDAYS.index(weekday) if colon else 0)

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
        place = np.searchsorted(bounds, micros, side="right")

        return bounds[place - 1], bounds[place]

    def _boundaries(self, first: int, last: int) -> Ints:
        """List the midnights at which units begin, from one at or before a time to one after another."""
        zone = ZoneInfo(self.zone)
        day = self._begin(
            (
                datetime.fromtimestamp(first // MICROS_PER_SECOND, UTC).astimezone(zone)
                - timedelta(days=1)
            ).date()
        )
        found: list[int] = []

        while not found or found[-1] <= last:
            midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
            found.append((midnight - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
            day = self._next(day)

        return np.unique(np.array(found, np.int64))

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
