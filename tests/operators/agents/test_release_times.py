"""Schedules of releases: strictly increasing, invertible, refused when malformed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.operators.agents.release_times import (
    Every,
    Geometric,
    Preferred,
    parse_release_times,
)


@given(st.integers(1, 1000), st.floats(1.001, 10), st.integers(1, 400))
def test_times_are_strictly_increasing_and_start_at_first(
    first: int, factor: float, n: int
) -> None:
    times = Geometric(first, factor).times(n)
    assert times.dtype == np.int64
    assert len(times) == n
    assert times[0] == first
    assert (np.diff(times) > 0).all()


@given(
    st.integers(1, 100),
    st.floats(1.01, 4),
    st.lists(st.integers(0, 10**7), min_size=1, max_size=20),
)
def test_releases_up_to_counts_the_times(first: int, factor: float, counts: list[int]) -> None:
    schedule, count = Geometric(first, factor), np.array(counts)
    expected = [int((schedule.times(2000) <= c).sum()) for c in counts]
    assert schedule.releases_up_to(count).tolist() == expected


def test_default_serves_small_and_large_agents() -> None:
    schedule = parse_release_times("geometric:10,1.25")
    assert schedule == Geometric(10, 1.25)
    assert isinstance(schedule, Geometric)
    assert schedule.releases_up_to(np.array([9, 15, 10**6])).tolist() == [0, 2, 52]


def test_growth_below_one_sample_releases_at_every_sample() -> None:
    assert Geometric(1, 1.1).times(6).tolist() == [1, 2, 3, 4, 5, 6]


def test_times_past_any_count_go_on_one_by_one() -> None:
    times = Geometric(1, 10.0).times(25)
    assert (np.diff(times) > 0).all()
    assert times[-1] - times[-2] == 1
    assert times[-2] >= 2**62


def test_the_array_is_shared_and_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Geometric(10, 1.25).times(5)[0] = 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("every:30s", 30),
        ("every:5m", 300),
        ("every:2h", 7200),
        ("every:1d", 86400),
        ("every:1w", 604800),
        ("every:.5s", 0.5),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_release_times(text) == Every(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "", "geometric", "geometric:10", "geometric:10,1.25,3", "geometric:0,2", "geometric:10,1", "geometric:10,nan",
        "geometric:10,inf", "geometric:ten,2", "every:", "every:d", "every:1", "every:1y", "every:-1d", "every:0s",
        "every:infd", "daily:1", "preferred", "preferred:0", "preferred:1.5",
    ],
)  # fmt: skip
def test_malformed_schedules_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(
        ValueError,
        match="schedule must be preferred:FIRST, geometric:FIRST,FACTOR or every:DURATION",
    ) as caught:
        parse_release_times(text)
    assert "\n" not in str(caught.value)
    assert repr(text) in str(caught.value)


def test_preferred_numbers_are_round_increasing_and_six_to_a_decade() -> None:
    times = parse_release_times("preferred:10").times(60)  # type: ignore[union-attr]
    assert times[:7].tolist() == [10, 15, 20, 30, 50, 70, 100]
    assert np.all(np.diff(times) > 0)
    assert times[6:60].tolist() == (10 * times[:54]).tolist()
    assert parse_release_times("preferred:1").times(12).tolist() == [
        1,
        2,
        3,
        5,
        7,
        10,
        15,
        20,
        30,
        50,
        70,
        100,
    ]  # type: ignore[union-attr]
    assert Preferred(10).times(200)[-1] > 2**62  # no end


@given(first=st.integers(1, 10**6), counts=st.lists(st.integers(0, 10**9), max_size=20))
def test_preferred_releases_up_to_a_count(first: int, counts: list[int]) -> None:
    times = Preferred(first).times(80).tolist()
    expected = [sum(t <= c for t in times) for c in counts]
    assert Preferred(first).releases_up_to(np.array(counts, np.int64)).tolist() == expected
