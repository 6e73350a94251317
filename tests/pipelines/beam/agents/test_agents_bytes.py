"""Samples on their way to a shard: the same numbers come back, from as few bytes as hold them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.operators.records import OwnSamples
from meanstream.pipelines.beam.agents.agent_transforms import agent_batch
from meanstream.pipelines.beam.agents.agents_coders import (
    pack_for_coder,
    unpack_for_coder,
)
from meanstream.pipelines.beam.agents.agents_elements import AgentSamples, OwnBatch
from meanstream.pipelines.beam.element_types import packed as packing
from meanstream.pipelines.beam.element_types.beam_samples import AgentBatch, SampleColumnsCoder
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.element_types.packed import (
    numbers_of_packed,
    packed,
    packed_grown,
    packed_shrunk,
    packed_steps,
    unpacked,
)
from meanstream.streaming.events.event_columns import SampleColumns

WHOLE = st.integers(-(2**63), 2**63 - 1)
SMALL = st.sampled_from([0, 1, 255, 256, 2**16 - 1, 2**16, 2**24 - 1, 2**24, 2**32 - 1])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(st.lists(WHOLE | SMALL))
def test_whole_numbers_come_back(numbers: list[int]) -> None:
    column = np.array(numbers, np.int64)
    assert np.array_equal(
        numbers_of_packed("n", packed_steps("n", column), numbers[0] if numbers else 0), column
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(SMALL, min_size=1))
def test_no_more_bytes_than_the_greatest_number_needs(numbers: list[int]) -> None:
    written = packed_shrunk("n", np.array(numbers, np.int64))
    assert packed_grown("n", written).tolist() == numbers
    assert sum(column.itemsize for column in written.values()) == max(
        1, -(-max(numbers).bit_length() // 8)
    )


def samples(times: list[float], keys: list[int]) -> AgentSamples:
    n = len(times)
    return AgentSamples(
        names=pa.array(["a", "b"], pa.large_string()),
        agent=np.arange(n) % 2,
        point=np.arange(n) * 99_991,
        time=np.array(times),
        key=np.array(keys, np.uint64),
        position=np.arange(n)[::-1].copy(),
    )


def assert_come_back(given: AgentSamples) -> None:
    found = unpack_for_coder(pack_for_coder(given).encoded)
    assert found.names.equals(given.names)
    for name in ("agent", "point", "position"):
        assert getattr(found, name).tolist() == getattr(given, name).tolist()
    assert found.time.tobytes() == given.time.tobytes()  # every bit, in any order, before 1970 too
    assert found.key.tolist() == (given.key.tolist() if given.key.any() else [])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(FLOATS, st.integers(0, 2**64 - 1))))
def test_samples_come_back(rows: list[tuple[float, int]]) -> None:
    assert_come_back(samples([time for time, _ in rows], [key for _, key in rows]))


def test_event_times_of_a_stream_take_two_bytes_each() -> None:
    n = 10_000
    long, short = (
        len(pack_for_coder(samples((1.7e9 + np.arange(k) * 0.01).tolist(), [0] * k)).encoded)
        for k in (n, 10)
    )
    # agent 1, point 4, time 2 (steps of 10 ms are 41943 units in the last place), position 8: they
    # fall.
    assert (long - short) / n < 15.2


def test_steps_that_fall_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_greatest", lambda column: int(np.abs(column).max()))
    with pytest.raises(AssertionError):
        assert_come_back(samples([5.0, 4.0, 3.0], [0, 0, 0]))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 4),
    st.lists(st.sampled_from([0.0, -0.0, 1.5, -2.0]), max_size=6),
    st.sampled_from(["i8", "f8"]),
)
def test_tables_come_back_without_what_is_zero_behind(
    rows: int, row: list[float], kind: str
) -> None:
    table = np.tile(np.array(row, kind), (rows, 1))
    (encoded, wide) = (
        packed("own", {}, {"t": one}) for one in (table, np.pad(table, ((0, 0), (0, 50))))
    )
    assert unpacked(encoded, "own")[1]["t"].tobytes() == table.tobytes()  # the sign of a zero, too
    found = unpacked(wide, "own")[1]["t"]
    assert found.shape == (rows, len(row) + 50)
    assert found[:, : len(row)].tobytes() == table.tobytes()
    assert len(wide) - len(encoded) < 20  # the width


def test_a_runner_measures_elements_by_how_many_there_are_and_not_by_their_values() -> None:
    n, rng = 100, np.random.default_rng(1)
    found = set()
    for value in (np.zeros(n), rng.normal(0.0, 1e9, n)):
        batch = agent_batch(["a", "b"] * 50, value, 1.7e9 + value)
        plain = SampleColumns(batch.names, batch.agent, value, batch.time, None, batch.position)
        own = OwnSamples(
            agent=np.arange(n), count=np.arange(n), mean=value, squared_deviations=value
        )
        names, words = pa.array(map(str, range(n)), pa.large_string()), np.zeros((n, 2), np.uint64)
        answered = OwnBatch(
            names=names, words=words, number=0, own=own, part=np.zeros(n, np.int64), newest=value
        )
        sizes = (
            (SampleColumnsCoder(AgentBatch), batch),
            (SampleColumnsCoder(), plain),
            (ColumnsCoder(OwnBatch), answered),
        )
        found.add(tuple(coder.estimate_size(one) for coder, one in sizes))
        assert all(len(coder.encode(one)) / 2 < coder.estimate_size(one) for coder, one in sizes)
    assert len(found) == 1
