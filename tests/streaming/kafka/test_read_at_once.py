"""Values that are read as they come become what they are alone, whatever comes with them."""

from __future__ import annotations

import numpy as np
import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.streaming.events.event_columns import Rejects, column_position
from meanstream.streaming.kafka.connection.values import PartitionRecords
from meanstream.streaming.kafka.reading import gathered
from meanstream.streaming.kafka.reading.gathered import GatheredMessages
from meanstream.streaming.kafka.reading.kafka_messages import TopicParser
from meanstream.streaming.kafka.reading.several_topics import _joined
from meanstream.streaming.sources import decode, source_directory
from meanstream.streaming.sources.mapping import ColumnMapping

MAPPING = ColumnMapping(id="id")
GOOD = [
    b'{"agent":"%s","value":%d.5,"time":50,"id":"%d"}' % (b"abc"[i % 3 : i % 3 + 1], i, i)
    for i in range(12)
]
ODD = [
    None,
    b"",
    b" ",
    GOOD[0] + GOOD[0],
    b" " + GOOD[1] + b"\r\n",
    b'{"agent":"b","agent":"c","value":2,"time":50}',  # as many quotes as a good one
    b'{"agent":"b","agent":"c","value":2,"time":50,"id":"y"}',
    b'{"agent":"b","value":2,"date":50,"id":"y"}',
    b'{"agent":"b","value":2,"time":50,"id":"y","more":"z"}',
    b'{"agent":"b","value":null,"time":50,"id":"y"}',
    b'{"agent":"b","value":"2","time":50,"id":7}',
    b'{"agent":"b","value":1e400,"time":50,"id":"y"}',
    b'{"agent":" ","value":2,"time":50,"id":"y"}',
    b'{"agent":"\\u0000","value":2,"time":50,"id":"y"}',
    b'{"agent":"b","value":2,"time":1e300,"id":"y"}',
    b'{"agent":"b","value":2,"time":50,"id":""}',
    b'{"agent":"b","value":2,"time":50,"id":"%s"}' % (b"y" * 200),
    b'{"agent":"b","value":2,"time":50,"id":"\xff"}',
    b'{"agent":"b","value":2,"time":50,"id":"y"',
]
VALUES = st.lists(st.sampled_from(GOOD * 9 + ODD), min_size=1, max_size=150)
MOST_BYTES = 150

Outcome = dict[int, object]


def taken(
    parser: TopicParser, values: list[bytes | None], *, partition: int = 2
) -> PartitionRecords:
    messages = GatheredMessages((), joins=True, read=parser.read_at_once)
    for first in range(0, len(values), 7):
        part = enumerate(values[first : first + 7], first)
        messages.add(
            [Message(topic="t", partition=partition, offset=at, value=value) for at, value in part]
        )
    return messages.records()


def outcome(parser: TopicParser, records: PartitionRecords) -> Outcome:
    """By position: the sample, or why there is none."""
    samples = parser.parse(records, rejects := Rejects())
    assert samples.key is not None or not len(samples)
    keys = [] if samples.key is None else samples.key.tolist()
    rows = zip(
        samples.agent.tolist(), samples.value.tolist(), samples.time.tolist(), keys, strict=True
    )
    where = samples.position.tolist()
    assert [
        at for at in column_position(records.partition, records.offset).tolist() if at in where
    ] == where
    found = {
        at: (samples.names[agent], *rest) for at, (agent, *rest) in zip(where, rows, strict=True)
    }
    return {**found, **dict(zip(rejects.position, rejects.reason, strict=True))}


def reads(monkeypatch: pytest.MonkeyPatch, few: int = decode.FEW_NAMES) -> TopicParser:
    """Make a parser that has seen what the values look like, and reads few of them at once."""
    monkeypatch.setattr(gathered, "TOGETHER", 20)
    monkeypatch.setattr(decode, "FEW_NAMES", few)
    parser = TopicParser(MAPPING, max_record_bytes=MOST_BYTES)
    first = taken(parser, [GOOD[0]] * 40)
    assert first.read is None
    parser.parse(first, Rejects())
    parser.parse(
        taken(parser, [GOOD[0]] * 40), Rejects()
    )  # how names are looked up follows from how many there are
    return parser


def alone(values: list[bytes | None], *, partition: int = 2) -> Outcome:
    found: Outcome = {}
    for at, value in enumerate(values):
        parser = TopicParser(MAPPING, max_record_bytes=MOST_BYTES)
        records = PartitionRecords(np.array([partition]), np.array([at]), [value])
        found.update(outcome(parser, records))
    return found


@settings(max_examples=60, deadline=None)
@given(VALUES, st.sampled_from([0, 100]))
def test_neighbors_change_nothing(values: list[bytes | None], few: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        parser = reads(monkeypatch, few)
        assert outcome(parser, taken(parser, values)) == alone(values)


@pytest.mark.parametrize("odd", ODD)
def test_only_the_values_around_an_odd_one_are_kept_as_text(
    odd: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = reads(monkeypatch)
    values = [*GOOD * 4, odd, *GOOD * 4]
    records = taken(parser, values)
    assert records.read is not None
    assert records.read.which.sum() >= len(values) - 21
    assert outcome(parser, records) == alone(values)


@settings(max_examples=30, deadline=None)
@given(VALUES, VALUES, st.integers(1, 5))
def test_some_are_selected_and_topics_are_joined(
    values: list[bytes | None], others: list[bytes | None], every: int
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        parser = reads(monkeypatch)
        records = _joined([taken(parser, values), taken(parser, others, partition=5)])
        kept = np.arange(len(records.offset)) % every == 0
        expected = {**alone(values), **alone(others, partition=5)}
        positions = column_position(records.partition, records.offset)[kept].tolist()
        assert outcome(parser, records.select(kept)) == {at: expected[at] for at in positions}


def test_a_full_directory_begins_again_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_directory, "MAX_DIRECTORY", 5)
    parser = reads(monkeypatch)
    for batch in range(4):
        values = [GOOD[0].replace(b'"a"', b'"n%d"' % (batch * 3 + i % 3)) for i in range(40)]
        found = outcome(parser, taken(parser, list(values)))
        assert {one[0] for one in found.values() if isinstance(one, tuple)} == {
            f"n{batch * 3 + i}" for i in range(3)
        }
        assert len(found) == 40
