"""How far partitions were read, which of them event time waits for, and where reading begins:
without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import Topic
from meanstream.streaming.kafka.reading.kafka_progress import (
    ReadProgress,
    Watermarks,
    progress_first_offsets,
    progress_unreachable_partitions,
)


def test_a_partition_is_waited_for_until_its_end_is_old() -> None:
    progress = ReadProgress({0: 0, 1: 0})
    assert progress.active(100.0, 5.0) == (0, 1)  # nothing is known yet
    progress.reached(0, 0, 100.0)
    assert progress.active(104.9, 5.0) == (0, 1)
    assert progress.active(105.0, 5.0) == (1,)
    progress.unreachable = {0}  # what came since is not known
    assert progress.active(105.0, 5.0) == (0, 1)
    progress.unreachable = set()
    progress.read(0, 1)
    assert progress.active(999.0, 5.0) == (0, 1)


def test_a_partition_with_records_that_are_not_read_yet_is_not_idle() -> None:
    """The engine was at something else for a while; what came meanwhile must not be late by
    that."""
    progress = ReadProgress({0: 0, 1: 0}, high={0: 0, 1: 0})
    progress.reached(0, 0, 100.0)
    assert progress.active(200.0, 5.0) == (1,)
    progress.high = {0: 3, 1: 9}
    assert progress.active(200.0, 5.0) == (0, 1)
    assert sum(progress.lags().values()) == 12
    progress.read(0, 3)
    progress.reached(0, 3, 201.0)
    assert progress.active(206.0, 5.0) == (1,)
    progress.look_again()
    assert progress.active(206.0, 5.0) == (0, 1)


def test_the_end_of_a_partition_may_lie_behind_its_last_record() -> None:
    progress = ReadProgress({0: 3})
    progress.reached(0, 7, 0.0)  # control records
    assert progress.next == {0: 7}
    progress.read(0, 9)
    progress.reached(0, 8, 0.0)  # said before the last record came
    assert progress.next == {0: 9}
    assert progress.active(99.0, 5.0) == (0,)


def test_a_bounded_reading_is_done_at_its_ends() -> None:
    progress = ReadProgress({0: 0, 1: 5, 2: 0}, end={0: 4, 1: 5, 2: 3})
    assert progress.done(1)
    assert progress.active(0.0, 5.0) == (0, 2)
    progress.read(0, 50)  # the next record is behind the end
    assert progress.next[0] == 4
    assert not progress.all_done
    progress.reached(2, 9, 0.0)
    assert progress.next[2] == 3
    assert progress.all_done


def test_an_unbounded_reading_is_never_done() -> None:
    assert not ReadProgress({0: 0}).all_done


def test_partitions_without_a_broker_that_answers() -> None:
    statistics: dict[str, Any] = {
        "brokers": {
            "a": {"nodeid": 1, "state": "UP"},
            "b": {"nodeid": 2, "state": "CONNECT"},
            "c": {"nodeid": -1, "state": "UP"},
        },
        "topics": {
            "t": {"partitions": {"0": {"leader": 1}, "1": {"leader": 2}, "2": {"leader": -1}}}
        },
    }
    assert progress_unreachable_partitions(statistics, "t") == {1, 2}
    assert progress_unreachable_partitions(statistics, "other") == set()


TOPIC = Topic("t", "id-1", 3)
MARKS: Watermarks = {0: (10, 20), 1: (0, 5), 2: (3, 8)}


def position(offsets: dict[str, int], *, count: int = 3, topic_id: str = "id-1") -> dict[str, Any]:
    return {"topic": "t", "topic_id": topic_id, "count": count, "partitions": offsets}


def start(
    options: str = "", known: dict[str, Any] | None = None, marks: Watermarks = MARKS
) -> tuple[Any, int]:
    return progress_first_offsets(
        KafkaLocation.parse(f"kafka://h/t?group=g{options}"), TOPIC, known, marks
    )


def test_a_new_store_begins_where_the_address_says() -> None:
    assert start() == ({0: 10, 1: 0, 2: 3}, 0)
    assert start("&start=latest") == ({0: 20, 1: 5, 2: 8}, 0)


def test_a_store_goes_on_where_it_was() -> None:
    assert start(known=position({"0": 10, "1": 5, "2": 4})) == ({0: 10, 1: 5, 2: 4}, 0)


def test_partitions_that_the_store_has_not_seen() -> None:
    taken = position({"0": 15})  # of three: the others were somebody's, or nobody's
    assert start("&start=latest", taken) == ({0: 15, 1: 5, 2: 8}, 0)
    added = position({"0": 15}, count=1)  # the others did not exist
    assert start("&start=latest", added) == ({0: 15, 1: 0, 2: 3}, 0)


def test_gaps_are_counted_where_they_are_skipped() -> None:
    assert start("&gap=skip", position({"0": 4, "1": 1, "2": 1})) == ({0: 10, 1: 1, 2: 3}, 8)


@pytest.mark.parametrize(
    ("options", "known", "marks", "message"),
    [
        (
            "",
            position({"0": 4, "1": 1, "2": 3}),
            MARKS,
            "got 6 offsets of partition 0 of 't' that retention deleted",
        ),
        (
            "&gap=skip",
            position({"0": 21, "1": 1, "2": 3}),
            MARKS,
            "partition 0 of 't' that ends at offset 20, before 21",
        ),
        (
            "",
            position({"0": 15}, topic_id="id-0"),
            MARKS,
            "got a new one of the name 't': begin a new store",
        ),
        (
            "&partitions=0",
            position({"0": 15, "2": 3}),
            {0: (10, 20)},
            "must have those that the store owns",
        ),
        (
            "&partitions=0",
            position({"0": 15}, count=2),
            {0: (10, 20)},
            "must have the 2 partitions that it had",
        ),
    ],
)
def test_what_cannot_be_gone_on_with(
    options: str, known: dict[str, Any], marks: Watermarks, message: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        start(options, known, marks)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
