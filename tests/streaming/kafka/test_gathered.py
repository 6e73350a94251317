"""What is taken of messages as they come: each has its own place and value, however the text of
them is made."""

from __future__ import annotations

import numpy as np
import pytest
from confluent_kafka import Message

from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.kafka.connection.values import (
    PartitionRecords,
    block_of_records,
    fit_records,
)
from meanstream.streaming.kafka.reading.gathered import GatheredMessages

Place = tuple[int, int, bytes | None]

RUN = [(2, 10 + i, b"%d" % i) for i in range(50)]
GAP = [(2, 70, b"a"), (2, 72, b"b"), (2, 73, b"c")]
MIXED = [(0, 5, b"d"), (1, 4, b"ee"), (0, 6, b""), (1, 7, None), (0, 8, b"f")]
# The ends alone would look like a run: another partition stands in a gap of this one.
ALIKE = [(0, 20, b"g"), (1, 90, b"h"), (0, 22, b"i")]


def gathered(*parts: list[Place], joins: bool) -> PartitionRecords:
    taken = GatheredMessages(["@key"], joins=joins)
    for part in parts:
        taken.add(
            [Message(topic="t", partition=p, offset=o, key=b"k%d" % o, value=v) for p, o, v in part]
        )
    assert len(taken) == sum(map(len, parts))
    return taken.records()


def read(records: PartitionRecords) -> list[Place]:
    """Give what each record is, by way of the lines that a parser is given."""
    rejects = Rejects()
    records, number = fit_records(records, rejects, 1000)
    lines = block_of_records(records, number).lines()
    return list(zip(records.partition.tolist(), records.offset.tolist(), lines, strict=True))


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("parts", [[RUN], [GAP], [MIXED], [ALIKE], [RUN, GAP, MIXED, ALIKE]])
def test_every_message_keeps_its_place_and_value(parts: list[list[Place]], joins: bool) -> None:
    records = gathered(*parts, joins=joins)
    every = [place for part in parts for place in part]
    assert read(records) == [place for place in every if place[2]]
    assert list(records.beside["@key"]) == [b"k%d" % o for _, o, _ in every]
    assert bool(records.values) != joins  # held once


@pytest.mark.parametrize("joins", [True, False])
def test_some_are_selected_alike(joins: bool) -> None:
    records = gathered(RUN, MIXED, joins=joins)
    kept = np.arange(len(records.offset)) % 3 == 0
    every = [
        place
        for place, is_kept in zip(RUN + MIXED, kept.tolist(), strict=True)
        if is_kept and place[2]
    ]
    assert read(records.select(kept)) == every
