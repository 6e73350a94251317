"""The rate of the last minute, on clocks that are set."""

from __future__ import annotations

from meanstream.streaming.metrics.recent_rate import RecentRate


def steady(rate: RecentRate, begin: float, seconds: int, count: int) -> int:
    """Count fifty a second."""
    for second in range(1, seconds + 1):
        count += 50
        rate.note(begin + second, count)
    return count


def test_a_clock_that_is_set_back_begins_a_new_minute() -> None:
    rate = RecentRate(10_000.0)
    count = steady(rate, 10_000.0, 100, 0)
    assert rate.per_second(10_100.0) == 50.0
    rate.note(6_500.0, count + 50)
    assert rate.per_second(6_500.0) == 0.0  # nothing is known of it yet
    count = steady(rate, 6_500.0, 30, count + 50)
    assert rate.per_second(6_530.0) == 50.0
    steady(rate, 6_530.0, 90, count)
    assert rate.per_second(6_620.0) == 50.0


def test_a_clock_that_is_set_forward_shows_less_for_a_minute_and_never_more() -> None:
    rate = RecentRate(10_000.0)
    count = steady(rate, 10_000.0, 100, 0)
    for second in range(1, 61):
        count += 50
        rate.note(13_700.0 + second, count)
        assert 0.0 <= rate.per_second(13_700.0 + second) <= 50.0
    assert rate.per_second(13_760.0) > 48.0
