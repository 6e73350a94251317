"""A topic that was just made is waited for, and one that is not there is refused in one line."""

from __future__ import annotations

from typing import Any, cast

import pytest

from meanstream.streaming.kafka.connection import kafka_topics
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import Topic, require_topic

LOCATION = KafkaLocation.parse("kafka://127.0.0.1:9/samples?group=g")


class _Admin:
    def list_topics(self, **_: float) -> Any:
        return type("Listed", (), {"topics": {"sample": None}})


def test_a_topic_that_is_listed_a_moment_later_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([None, None, Topic("samples", "id", 1)])
    monkeypatch.setattr(kafka_topics, "find_topic", lambda *_: next(answers))
    assert require_topic(cast("Any", _Admin()), LOCATION, "READ").partitions == 1


def test_a_topic_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_topics, "find_topic", lambda *_: None)
    monkeypatch.setattr(kafka_topics, "UNLISTED_SECONDS", 0.1)
    with pytest.raises(
        ValueError, match="source must be a topic that exists, got 'samples'; did you mean 'sample'"
    ):
        require_topic(cast("Any", _Admin()), LOCATION, "READ")
