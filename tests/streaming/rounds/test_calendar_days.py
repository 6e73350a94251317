"""Windows of the calendar: local midnights, whatever the clocks do, on arrays and one time after
the other."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_widths import LONGEST, MICROS, STEP, CalendarDays, Windows

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "America/Sao_Paulo",
]
TIMES = st.integers(
    int(datetime(1990, 1, 1, tzinfo=UTC).timestamp()),
    int(datetime(2040, 1, 1, tzinfo=UTC).timestamp()),
)


def window_of(text: str, time: float) -> tuple[datetime, datetime]:
    """Give the window of a time, as local times of its zone."""
    windows = Windows.parse(text)
    assert windows.calendar is not None
    _, start, end = windows.assign(np.array([time]))
    zone = ZoneInfo(windows.calendar.zone)
    return tuple(
        datetime.fromtimestamp(int(t[0]) / MICROS, UTC).astimezone(zone) for t in (start, end)
    )  # type: ignore[return-value]


@pytest.mark.parametrize(("text", "time", "start", "end"), [
    ("month@Europe/Berlin", "2026-03-31T21:59:59+00:00", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00"),
    ("month@Europe/Berlin", "2026-03-31T22:00:00+00:00", "2026-04-01T00:00:00+02:00", "2026-05-01T00:00:00+02:00"),
    ("day@Europe/Berlin", "2026-10-25T12:00:00+00:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"),
    ("week", "2026-11-26T12:00:00+00:00", "2026-11-23T00:00:00+00:00", "2026-11-30T00:00:00+00:00"),
    ("week:sunday", "2026-11-26T12:00:00+00:00", "2026-11-22T00:00:00+00:00", "2026-11-29T00:00:00+00:00"),
    ("quarter@America/New_York", "2026-01-01T04:59:59+00:00", "2025-10-01T00:00:00-04:00", "2026-01-01T00:00:00-05:00"),
    ("year@Asia/Kathmandu", "2026-06-01T00:00:00+00:00", "2026-01-01T00:00:00+05:45", "2027-01-01T00:00:00+05:45"),
    ("day@Pacific/Apia", "2011-12-30T09:00:00+00:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"),
    ("day@America/Sao_Paulo", "2018-11-04T12:00:00+00:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"),
])  # fmt: skip
def test_windows_begin_at_local_midnight(text: str, time: str, start: str, end: str) -> None:
    found = window_of(text, datetime.fromisoformat(time).timestamp())
    assert found == (datetime.fromisoformat(start), datetime.fromisoformat(end))


@given(
    unit=st.sampled_from([*LONGEST, "week:sunday"]),
    zone=st.sampled_from(ZONES),
    times=st.lists(TIMES, min_size=1),
)
def test_each_time_lies_in_one_window_whatever_else_is_in_the_batch(
    unit: str, zone: str, times: list[int]
) -> None:
    windows = Windows.parse(f"{unit}@{zone}")
    at = np.array(times, np.float64)
    sample, start, end = windows.assign(at)
    micros = at.astype(np.int64) * MICROS
    assert sample.tolist() == list(range(len(times)))
    assert ((start <= micros) & (micros < end) & (end - start <= windows.size)).all()
    alone = [windows.assign(at[i : i + 1]) for i in range(len(times))]
    assert start.tolist() == [int(one.start[0]) for one in alone]
    assert end.tolist() == [int(one.end[0]) for one in alone]
    assert not (start % STEP).any()
    assert [windows.start(int(one)) for one in start] == start.tolist()
    following = windows.assign(end / MICROS)
    assert following.start.tolist() == end.tolist()  # no gap, no overlap


def test_one_text_names_the_same_windows_and_settings_keep_it() -> None:
    for text, named in (
        ("week:monday@UTC", "week"),
        ("month", "month"),
        ("day@Europe/Berlin", "day@Europe/Berlin"),
    ):
        assert str(Windows.parse(text)) == named
        assert (
            RoundsSettings(lower=0, upper=1, epsilon=1.0, window=text, estimator="one_shot").window
            == named
        )


@pytest.mark.parametrize(("text", "said"), [
    ("month@Europe/Berln", "window must be in a known time zone, got 'Europe/Berln'; did you mean 'Europe/Berlin'?"),
    ("month@", "window must be in a known time zone, got ''"),
    ("week:sonntag", "window must be week:WEEKDAY with one of monday, tuesday"),
    ("month:sunday", "window must be week:WEEKDAY with one of monday, tuesday"),
    ("month@../../etc/passwd", "window must be in a known time zone, got '../../etc/passwd'"),
    ("fortnight", "window must be SIZE, SIZE,PERIOD, session:GAP or day, week, month, quarter, year with an optional"),
])  # fmt: skip
def test_what_is_no_calendar_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as refusal:
        Windows.parse(text)
    assert "\n" not in str(refusal.value)


def test_no_day_is_longer_than_is_said() -> None:
    """Over 60 years in zones that have changed most: the longest day has 25 hours, the longest step
    back 24."""
    for zone in ZONES:
        days = CalendarDays.parse(f"day@{zone}")
        assert days is not None
        first, last = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1980, 2040))
        start, end = days.around(np.arange(first, last, 21_600) * MICROS)
        assert timedelta(microseconds=int((end - start).max())) <= timedelta(hours=25)
        assert timedelta(microseconds=int((end - start).min())) >= timedelta(hours=23)
