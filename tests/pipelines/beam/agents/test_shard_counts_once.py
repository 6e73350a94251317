"""A sample counts once, however often a runner brings it, and in whatever order: none twice, and no
good one lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.pipelines.beam.agents.agents_coders import pack_for_coder, unpack_for_coder
from meanstream.pipelines.beam.agents.agents_elements import AgentSamples, Tick
from meanstream.pipelines.beam.agents.agents_shard import AgentShard, Turn
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.pairwise_shard import FederationShard
from meanstream.pipelines.beam.kafka.read_kafka import record_keys, with_record_keys
from meanstream.streaming.events.event_columns import (
    SampleColumns,
    column_partitions,
    column_position,
)
from meanstream.streaming.store.secret_source import noise_from_secret
from tests.pipelines.beam.agents.test_agents_pairwise import SETTINGS as PAIRWISE
from tests.pipelines.beam.support.agents_world import SETTINGS
from tests.streaming.support.rounds_world import SECRET

WINDOWS = AgentWindows(refresh=60.0)
NAMES = [f"agent {number}" for number in range(6)]
SHOWN, PER_WINDOW = 7, 40
"""Windows, and the records of each."""


def records() -> AgentSamples:
    """A topic of two partitions, each nearly in the order of time; some samples share a time."""
    rng = np.random.default_rng(4)
    n = SHOWN * PER_WINDOW
    time = np.sort(np.round(rng.uniform(0, SHOWN * 60.0, n)))
    time[1::7], time[::7] = time[::7][: len(time[1::7])], time[1::7][: len(time[::7])]
    position = column_position(np.arange(n) % 2, np.arange(n) // 2)
    return AgentSamples(
        names=pa.array(NAMES, pa.large_string()),
        agent=rng.integers(0, len(NAMES), n),
        point=SETTINGS.grid.encode(rng.normal(5, 2, n)),
        time=time,
        key=record_keys("a topic", position),
        position=position,
    )


def shard() -> AgentShard:
    return AgentShard(SETTINGS, noise_from_secret(SECRET.encode(), SETTINGS.name))


def turn(of: AgentShard, samples: Sequence[AgentSamples], numbers: Sequence[int]) -> Turn:
    ticks = [Tick(number, (number + 1) * 60.0) for number in numbers]
    return of.turn(samples, keyed_owner_words, ticks, WINDOWS, final_release=False)


def released(
    turns: Sequence[Turn], names: Sequence[Sequence[str]]
) -> list[tuple[str, int, int, int]]:
    """Releases of turns: who, which, of how many samples, and the noised sum."""
    found = []
    for made, known in zip(turns, names, strict=True):
        for batch in made.released:
            r = batch.releases
            columns = (r.agent.tolist(), r.index.tolist(), r.count.tolist(), r.total.tolist())
            found += [(known[a], *rest) for a, *rest in zip(*columns, strict=True)]
    return sorted(found)


def run(
    deliveries: Sequence[tuple[Sequence[AgentSamples], Sequence[int]]],
) -> tuple[list[tuple[str, int, int, int]], int]:
    """What a shard releases, and how many samples it counted as read again, or late."""
    one, turns, names = shard(), [], []
    for samples, numbers in deliveries:
        one = restored(one)
        turns.append(
            turn(one, [unpack_for_coder(pack_for_coder(part).encoded) for part in samples], numbers)
        )
        names.append(list(one.agents.names))
    return released(turns, names), sum(made.late + made.duplicates for made in turns)


def restored(one: AgentShard) -> AgentShard:
    return AgentShard(SETTINGS, noise_from_secret(SECRET.encode(), SETTINGS.name), one.to_bytes())


def of_window(samples: AgentSamples, number: int) -> AgentSamples:
    return samples.take(WINDOWS.number(samples.time) == number)


def once() -> list[tuple[Sequence[AgentSamples], Sequence[int]]]:
    whole = records()
    return [([of_window(whole, number)], [number]) for number in range(SHOWN)]


@pytest.mark.parametrize("seed", range(3))
def test_any_order_and_any_repeats_release_what_each_record_once_releases(seed: int) -> None:
    """Each window comes in pieces of any order; pieces of it, and of windows before, come again,
    with their ticks."""
    rng = np.random.default_rng(seed)
    whole, deliveries, again = records(), [], 0
    for number in range(SHOWN):
        window = of_window(whole, number)
        pieces = [
            window.take(np.isin(np.arange(len(window)), rows))
            for rows in np.array_split(rng.permutation(len(window)), 5)
        ]
        repeats = [pieces[place] for place in rng.integers(0, 5, 3).tolist()]
        old = (
            of_window(whole, int(rng.integers(0, number)))
            if number
            else window.take(np.zeros(len(window), np.bool_))
        )
        again += sum(map(len, repeats)) + len(old)
        parts = [*pieces, *repeats, old]
        ticks = sorted({number, *([int(WINDOWS.number(old.time)[0])] if len(old) else [])})
        deliveries.append(([parts[place] for place in rng.permutation(len(parts)).tolist()], ticks))
        if number % 3 == 2:  # all of it once more, from the beginning, as a second reader brings it
            for before in range(number + 1):
                deliveries.append(([of_window(whole, before)], [before]))
                again += int(np.count_nonzero(WINDOWS.number(whole.time) == before))
    expected, none = run(once())
    assert none == 0
    assert len(expected) > 30
    assert run(deliveries) == (expected, again)


def test_a_released_window_stays_closed_when_older_ticks_come_again() -> None:
    whole = records()
    one = shard()
    for number in (3, 4, 5):
        turn(one, [of_window(whole, number)], [number])
    had = one.agents.own().count.sum()
    for number in (3, 4, 5):
        made = turn(one, [of_window(whole, number)], [number])
        assert (made.late, sum(map(len, (batch.time for batch in made.released)))) == (
            len(of_window(whole, number)),
            0,
        )
    assert one.agents.own().count.sum() == had
    assert restored(one).reached == 5


def test_a_federation_does_not_open_a_window_again() -> None:
    one = FederationShard(PAIRWISE, noise_from_secret(SECRET.encode(), PAIRWISE.name), 2)
    whole = records()
    whole = whole.take(whole.agent < 2)
    for number in (3, 4, 5):
        one.turn([of_window(whole, number), of_window(whole, number)], number, WINDOWS)
    had = one.stream.counts().tolist()
    assert (
        had
        == np.bincount(
            np.concatenate([of_window(whole, number).agent for number in (3, 4, 5)])
        ).tolist()
    )
    for number in (3, 4, 5):
        made = one.turn([of_window(whole, number)], number, WINDOWS)
        assert made.unused == {"late": len(of_window(whole, number))}
    assert one.stream.counts().tolist() == had


def test_keys_change_neither_the_order_of_ties_nor_what_is_released() -> None:
    without = [
        ([replace(part, key=np.zeros(0, np.uint64)) for part in parts], ticks)
        for parts, ticks in once()
    ]
    assert run(without) == run(once())


def test_other_topics_have_other_keys_and_ids_stay() -> None:
    """Chance that two of 20 topics share a key within 2^44 offsets of 8 partitions: below 2^-8 (200
    pairs of 2^63)."""
    position = column_position(np.repeat(np.arange(8), 3), np.tile([0, 1, 2**43], 8))
    keys = np.concatenate([record_keys(f"topic {number}", position) for number in range(20)])
    assert len(np.unique(keys)) == len(keys)
    ids = np.arange(1, 4, dtype=np.uint64)
    samples = SampleColumns(
        ["a"], np.zeros(3, np.int64), np.zeros(3), np.zeros(3), ids, position[:3]
    )
    assert with_record_keys("a topic", samples) is samples


def test_keys_of_places_need_few_bytes_on_their_way() -> None:
    whole = records()
    part = whole.take(column_partitions(whole.position) == 0)
    keyed = len(pack_for_coder(part).encoded)
    bare = len(pack_for_coder(replace(part, key=np.zeros(0, np.uint64))).encoded)
    assert keyed - bare < 2 * len(part) + 64
