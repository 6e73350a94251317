"""Rounds that wait: each comes out at its release, in the order of time, and a release reads few of
the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.utils.timestamp import Timestamp

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.pipelines.beam.rounds.round_queue import MOST_NEAR, RoundQueue
from meanstream.pipelines.beam.rounds.rounds_elements import UserBatch
from meanstream.pipelines.beam.rounds.rounds_windows import window_timestamp
from meanstream.streaming.rounds.summarize_users import UserSums
from meanstream.streaming.rounds.window_widths import Window
from tests.streaming.support.rounds_world import rounds_settings

DAY = 86_400_000_000
SETTINGS = rounds_settings(window="1d", estimator="one_shot")


class Cell:
    def __init__(self) -> None:
        self.value: bytes | None = None
        self.reads = 0

    def read(self) -> bytes | None:
        self.reads += 1
        return self.value

    def write(self, value: bytes) -> None:
        self.value = value


class Bag:
    def __init__(self) -> None:
        self.held: list[bytes] = []

    def add(self, one: bytes) -> None:
        self.held.append(one)

    def read(self) -> list[bytes]:
        return self.held

    def clear(self) -> None:
        self.held = []


class Timer:
    def __init__(self) -> None:
        self.times: dict[str, Timestamp] = {}

    def set(self, time: Timestamp, *, dynamic_timer_tag: str) -> None:
        self.times[dynamic_timer_tag] = time


def batch(day: int, user: str) -> UserBatch:
    one = np.ones(1, np.int64)
    sums = UserSums(user=np.zeros(1, np.int64), count=one, total=one, first_time=one, first=one)
    names = pa.array([user], pa.large_string())
    return UserBatch(
        window=Window(day * DAY, (day + 1) * DAY),
        names=names,
        words=keyed_owner_words([user]),
        sums=sums,
    )


def told(found: list[UserBatch]) -> list[tuple[int, str]]:
    return [(one.window.start // DAY, one.names[0].as_py()) for one in found]


def released(day: int) -> Timestamp:
    return window_timestamp(SETTINGS, Window(day * DAY, (day + 1) * DAY))


def queue_of() -> tuple[RoundQueue, Any, Cell]:
    arrived, near, far = Bag(), Cell(), Cell()
    return RoundQueue(SETTINGS, arrived, near, far), Timer(), far


def test_each_round_comes_out_once_at_its_release_whenever_it_came() -> None:
    rng = np.random.default_rng(3)
    queue, timer, _ = queue_of()
    waiting: list[tuple[int, str]] = []
    days = rng.permutation(np.repeat(np.arange(200), 2)).tolist()
    for now in range(200):
        for n in range(3):
            if days and days[-1] >= now:
                waiting.append((days[-1], f"user {now} {n}"))
                queue.wait(batch(*waiting[-1]), timer)
            days = days[:-1]
        found = told(queue.due(released(now)))
        assert found == [one for one in waiting if one[0] <= now]
        waiting = [one for one in waiting if one[0] > now]
    assert not waiting


def test_a_release_that_was_left_out_comes_with_the_next_one_in_the_order_of_time() -> None:
    queue, timer, _ = queue_of()
    for day in (5, 1, 3, 1):
        queue.wait(batch(day, "a"), timer)
    assert [day for day, _ in told(queue.due(released(4)))] == [1, 1, 3]
    assert len(timer.times) == 3
    assert told(queue.due(released(4))) == []
    queue.wait(batch(2, "late"), timer)
    assert told(queue.due(released(9))) == [(2, "late"), (5, "a")]


def test_most_releases_do_not_read_what_is_far_off() -> None:
    queue, timer, far = queue_of()
    rounds = 10 * MOST_NEAR
    for day in range(rounds):
        queue.wait(batch(day, "a"), timer)
    for day in range(rounds):
        assert told(queue.due(released(day))) == [(day, "a")]
    assert far.reads <= rounds / MOST_NEAR + 1
    assert far.value == b""
