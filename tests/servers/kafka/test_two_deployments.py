"""Two deployments on one topic: estimates of one would replace those of the other under the same
keys."""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from meanstream.streaming.kafka.claims.name_owners import warn_of_other_readers
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.writing.kafka_sink import KafkaSinks
from meanstream.streaming.open_sink import open_sink
from meanstream.streaming.sinks.sink_protocol import Sink, Trust
from tests.pipelines.command_line import SECRET, meanstream
from tests.servers.support.kafka_reading import send
from tests.servers.support.kafka_sinks import Patient, estimates, read, releases

_stores = itertools.count()
PROMISE = ("--lower", "0", "--upper", "20", "--epsilon", "1")
COMPACTED = {"cleanup.policy": "compact"}


def opened(
    address: str, topic: str, name: str, *, store: str = "", role: str = "sink", query: str = ""
) -> Sink:
    kafka = KafkaSinks(store or f"two-{os.getpid()}-{next(_stores)}", stop=Patient(), name=name)
    trust = Trust.PRIVATE if role == "sink" else Trust.PUBLIC
    return open_sink(f"kafka://{address}/{topic}{query}", trust=trust, role=role, kafka=kafka)


def write_once(sink: Sink) -> None:
    sink.restore({})
    sink.write(estimates(1) if sink.trust is Trust.PRIVATE else releases(1))
    sink.flush()
    sink.close()


def test_the_second_to_write_where_another_deployments_keys_are_is_refused(
    broker_address: str, new_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(config=COMPACTED)
    write_once(opened(broker_address, topic, "temps", store="two-first"))
    assert [record.headers["deployment"] for record in read(broker_address, topic)] == [b"temps"]

    with pytest.raises(ValueError, match=r"of deployment 'other' alone, .*'temps'.*\?shared=1"):
        opened(broker_address, topic, "other")

    with caplog.at_level(logging.WARNING):
        write_once(opened(broker_address, topic, "other", query="?shared=1", store="two-second"))
    assert "add up" in caplog.text
    assert "has events of deployment temps, too" in caplog.text

    # Whoever was there goes on, and learns of it: two that begin at one moment see nothing yet.
    caplog.clear()
    opened(broker_address, topic, "temps", store="two-first").close()
    assert "of deployment other, too: the newest event of a key counts" in caplog.text
    opened(broker_address, topic, "other", query="?shared=1", store="two-second").close()


def test_engines_of_one_deployment_share_a_topic(
    broker_address: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(config=COMPACTED)
    write_once(opened(broker_address, topic, "temps"))
    opened(broker_address, topic, "temps").close()


def test_releases_are_told_apart_by_their_ids_and_share_a_topic(
    broker_address: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    write_once(opened(broker_address, topic, "temps", role="releases"))
    opened(broker_address, topic, "other", role="releases").close()


def test_two_deployments_that_read_one_topic_are_told_that_losses_add_up(
    broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topics = [new_topic(partitions=2) for _ in range(2)]
    for topic in topics:
        for partition, agent in enumerate(("ann", "bob")):
            lines = [{"agent": agent, "value": float(i), "time": 1.7e9 + i} for i in range(20)]
            send(broker_address, topic, [json.dumps(one).encode() for one in lines], partition)

    def warned(name: str, topic: str, query: str = "") -> list[bytes]:
        source = f"kafka://{broker_address}/{topic}?group={name}{query}"
        words = (
            f"run agent-side --until-end --lateness 0s --name {name} --store {tmp_path}/{name}.db"
        )
        words += f" --source {source} --releases {tmp_path}/{name}.jsonl"
        ran = meanstream(*words.split(), *PROMISE, environment={"MEANSTREAM_SECRET": SECRET})
        assert ran.code == 0, ran.err
        return [line for line in ran.err.splitlines() if b"read by other deployments" in line]

    assert warned("temps", topics[0]) == []
    assert warned("temps", topics[0]) == []  # a deployment is no other of its own
    (line,) = warned("power", topics[0])
    assert b"other_deployments=1" in line
    assert b"add up" in line
    # Of partitions apart no sample counts twice.
    assert warned("left", topics[1], "&partitions=0") == []
    assert warned("right", topics[1], "&partitions=1") == []
    (line,) = warned("both", topics[1])
    assert b"other_deployments=2" in line
    assert len(warned("temps", topics[0])) == 1  # also whoever was there first


def test_a_broker_that_may_not_be_asked_stops_no_one() -> None:
    class Refusing:
        def list_consumer_groups(self, **_: Any) -> Any:
            raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))

    location = KafkaLocation.parse("kafka://127.0.0.1:9/t", role="source")
    warn_of_other_readers(cast(Any, Refusing()), location, "meanstream-name-a", [0])
