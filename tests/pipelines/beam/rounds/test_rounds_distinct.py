"""Samples that come again under their id count once in each window, on Beam as in the engine; and
are counted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.pipelines.beam.agents.agent_transforms import agent_batch
from meanstream.pipelines.beam.input import parse_messages as parsing
from meanstream.pipelines.beam.input.parse_messages import ParseMessages
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.rounds import summaries_on_beam as distinct
from meanstream.pipelines.beam.rounds.round_transforms import (
    RunRounds,
    SummarizeUsers,
    sample_batch,
)
from meanstream.pipelines.beam.rounds.summaries_on_beam import (
    JoinBatches,
    SumBatches,
    distinct_by_shard,
)
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.rounds.test_curator import CURATORS
from tests.pipelines.beam.support.collecting import collector, lines, run, run_pipeline
from tests.streaming.rounds.test_rounds_vectors import vector_settings, vectors
from tests.streaming.support.rounds_world import DAY, RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource

STREAM = samples()
N = len(STREAM)
CASES: dict[str, dict[str, Any]] = {
    "days": {},
    "sliding": {"window": "2d,1d", "user_budget": 1e3},
    "sessions": {"window": "session:1h", "estimator": "plan"},
    "watched": {"estimator": "plan", "users": 20_000},
    "one shot": {"estimator": "one_shot"},
    "budget": {"estimator": "one_shot", "user_budget": 4.0},
    "curator": CURATORS["sizes public"] | {"users": 12},
}
BAD = {
    b"{": "malformed",
    b'{"user":"user 1","value":NaN,"time":9,"id":"x"}': "not_finite",
    b'{"user":"user 1","time":9,"id":"y"}': "missing_value",
}


def encoded(number: int) -> bytes:
    user, value, at = STREAM[number]
    return json.dumps({"user": user, "value": value, "time": at, "id": f"id {number}"}).encode()


def messages(*, sent_twice: bool = False) -> list[PubsubMessage]:
    """Every sample as a message, in disorder; each third comes again; some cannot be used.

    What is delivered again has its message id; what was sent twice has two, and one id in its
    payload.
    """
    rng = np.random.default_rng(6)
    again = np.arange(0, N, 3)
    first = [PubsubMessage(encoded(at), {}, message_id=str(2**50 + at)) for at in range(N)]
    second = [
        PubsubMessage(encoded(at), {}, message_id=str(2**50 + at + sent_twice * N))
        for at in again.tolist()
    ]
    spoiled = [
        PubsubMessage(data, {}, message_id=str(2**51 + place)) for place, data in enumerate(BAD)
    ]
    everything = [*first, *second, *spoiled]
    return [everything[place] for place in rng.permutation(len(everything)).tolist()]


def from_messages(
    settings: Any, *, by_field: bool
) -> tuple[list[bytes], dict[str, int], list[Any]]:
    """Rounds over messages as a subscription gives them: answers, counters and dead letters."""
    mapping = ColumnMapping(agent="user", id="id" if by_field else None)
    parse = ParseMessages(mapping, batch_size=40)
    keep, dead = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        given = pipeline | beam.Create(messages(sent_twice=by_field))
        read = given | parse
        _ = read.rejected | "Letters" >> keep
        return read.samples | RunRounds(settings, shards=3)

    estimates, counters = run_pipeline(build)
    return lines(estimates), counters, dead


def engine(folder: Path, settings: Any, without: int = 0) -> RoundsWorld:
    """The engine, on samples of which none comes again, some of them without a valid value."""
    world = RoundsWorld(folder, settings)
    world.run(ScriptedSource([*[("user 1", math.nan, 9.0)] * without, *STREAM]))
    return world


@pytest.mark.parametrize("by_field", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_messages_that_come_again_change_nothing_and_are_counted(
    case: str, by_field: bool, tmp_path: Path
) -> None:
    settings = rounds_settings(**CASES[case])
    answers, counters, dead = from_messages(settings, by_field=by_field)
    assert len(answers) >= 4
    assert answers == engine(tmp_path, settings, without=2).lines("means")
    told = {
        name: count for name, count in counters.items() if name.startswith("rejected_") and count
    }
    assert told == {
        "rejected_duplicate": N // 3,
        **{f"rejected_{reason}": 1 for reason in BAD.values()},
    }
    assert sorted(letter.reason for letter in dead) == sorted(
        BAD.values()
    )  # a repeat is counted and is no letter
    assert counters["samples"] == N + N // 3 + 2


def no_ids(ids: Any) -> Any:
    return np.zeros(len(ids), np.uint64)


def none_repeats(user: Any, key: Any) -> Any:
    return np.zeros(len(key), np.bool_)


@pytest.mark.parametrize("fault", ["without ids", "without comparing them"])
@pytest.mark.parametrize("case", CASES)
def test_were_they_not_told_apart_the_answers_would_differ(
    case: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "without ids":
        monkeypatch.setattr(parsing, "message_keys", no_ids)
    else:
        monkeypatch.setattr(distinct, "repeated_samples", none_repeats)
    settings = rounds_settings(**CASES[case])
    answers, counters, _ = from_messages(settings, by_field=False)
    assert counters.get("rejected_duplicate", 0) == 0
    assert answers != engine(tmp_path, settings).lines("means")


def count_of(batches: list[Any]) -> int:
    return sum(int(batch.sums.count.sum()) for _, batch in batches)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_each_sample_is_in_the_sums_of_its_windows_once(case: str, shards: int) -> None:
    settings = rounds_settings(**CASES[case])
    ids = [f"id {number}" for number in range(N)]
    order = np.random.default_rng(8).permutation(2 * N) % N
    rows = [STREAM[place] for place in order.tolist()]
    cuts = [slice(0, 7), slice(7, 300), slice(300, None)]
    keyed = [
        agent_batch(*zip(*rows[cut], strict=True), ids=[ids[p] for p in order[cut]]) for cut in cuts
    ]
    found, counters = run(keyed, SummarizeUsers(settings, shards=shards))
    expected, _ = run(
        [sample_batch(*zip(*STREAM, strict=True))], SummarizeUsers(settings, shards=shards)
    )
    assert plain(found) == plain(expected)
    assert counters["rejected_duplicate"] == N


def plain(batches: list[Any]) -> list[Any]:
    return sorted(
        (shard, batch.window, name, *row)
        for shard, batch in batches
        for name, *row in zip(
            batch.names.to_pylist(),
            *(column.tolist() for column in batch.sums.columns().values()),
            strict=True,
        )
    )


def test_samples_with_and_without_ids_count_together(tmp_path: Path) -> None:
    half = N // 2
    with_ids = agent_batch(
        *zip(*STREAM[:half], strict=True), ids=[f"id {number}" for number in range(half)]
    )
    without = sample_batch(*zip(*STREAM[half:], strict=True))
    estimates, counters = run([with_ids, without, with_ids], RunRounds(rounds_settings(), shards=2))
    assert lines(estimates) == engine(tmp_path, rounds_settings()).lines("means")
    assert counters["rejected_duplicate"] == half


def test_vectors_that_come_again_count_once(tmp_path: Path) -> None:
    rows, settings = vectors(), vector_settings(epsilon=6.0)
    user, value, time = zip(*rows, strict=True)
    ids = [f"id {number}" for number in range(len(rows))]
    once, _ = run([sample_batch(user, value, time)], RunRounds(settings))
    twice, counters = run(
        [agent_batch(user, value, time, ids=ids)] * 2, RunRounds(settings, shards=3)
    )
    assert lines(twice) == lines(once)
    assert counters["rejected_duplicate"] == len(rows)


@pytest.mark.parametrize("shards", [1, 8])
def test_of_two_samples_of_a_user_with_one_id_the_first_in_event_time_counts(shards: int) -> None:
    rows = [("a", 1.0, 50.0), ("a", 9.0, 20.0), ("a", 5.0, DAY + 1.0), ("b", 2.0, 50.0)]
    batch = agent_batch(*zip(*rows, strict=True), ids=["x", "x", "x", "x"])
    settings = rounds_settings(users=5)
    batches, counters = run([batch], SummarizeUsers(settings, shards=shards))
    first = settings.grid.encode(np.array([9.0, 5.0, 2.0])).tolist()
    found = sorted(
        (name, window.start, total) for _, window, name, _, _, total, *_ in plain(batches)
    )
    # Another window and another user are asked apart.
    assert found == sorted(
        [("a", 0, first[0]), ("a", round(DAY * 1e6), first[1]), ("b", 0, first[2])]
    )
    assert counters["rejected_duplicate"] == 1


@pytest.mark.parametrize(
    ("timing", "counted"), [(PaneInfoTiming.ON_TIME, (1, 0)), (PaneInfoTiming.LATE, (0, 3))]
)
def test_a_copy_behind_the_release_is_late(timing: int, counted: tuple[int, int]) -> None:
    """As it is for agents; the answer has left."""
    settings = rounds_settings(users=5)
    join, counters = JoinBatches(settings, 1, StateOwner(settings={})), [Counter(), Counter()]
    join.setup()
    join._again, join._late = counters
    keyed = agent_batch(["a", "b", "a"], [1.0, 2.0, 1.0], [1.0, 2.0, 1.0], ids=["1", "2", "1"])
    parts = [out.value[1] for out in distinct_by_shard(settings, keyed, keyed_owner_words, 1)]
    joined = list(
        join.process(((join._mark.key(0), 0), parts), PaneInfo(True, False, timing, 0, 0))
    )
    assert tuple(counter.n for counter in counters) == counted
    assert sum(batch.n_samples for _, batch in joined) == (
        2 if timing == PaneInfoTiming.ON_TIME else 0
    )


class Counter:
    """Adds up."""

    n = 0

    def inc(self, n: int = 1) -> None:
        self.n += n


def test_what_has_no_id_is_summed_up_where_it_is_read() -> None:
    settings = rounds_settings(users=5)
    total = SumBatches(settings, 1, SummarizeUsers(settings)._intake)
    total.setup()
    total.start_bundle()
    ids = agent_batch(["a", "a"], [1.0, 2.0], [5.0, 6.0], ids=["1", "2"])
    for element in (ids, sample_batch(["b", "b"], [1.0, 2.0], [5.0, 6.0])):
        assert list(total.process(element, Timestamp(0))) == []
    found = [out.value[1] for out in total.finish_bundle()]
    assert [type(one).__name__ for one in found] == ["UserBatch", "UserSamples"]
    assert [one.n_samples for one in found] == [2, 2]
