"""Two deployments on one topic: estimates of one would replace those of the other under the same
keys."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable

import pytest

from meanstream.streaming.kafka.writing.kafka_sink import KafkaSinks
from meanstream.streaming.open_sink import open_sink
from meanstream.streaming.sinks.sink_protocol import Sink, Trust
from tests.servers.support.kafka_sinks import Patient, estimates, read, releases

_stores = itertools.count()
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
    assert caplog.records[-1].__dict__["deployments"] == "temps"

    # Whoever was there goes on.
    opened(broker_address, topic, "temps", store="two-first").close()
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
