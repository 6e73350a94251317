"""A header whose name is no text, which the Python client can neither send nor take."""

from __future__ import annotations

import ctypes
from contextlib import closing
from pathlib import Path

import confluent_kafka
import numpy as np
import pytest

from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.kafka.connection.values import PartitionRecords, message_extras
from meanstream.streaming.kafka.reading.kafka_messages import TopicParser
from meanstream.streaming.sources.mapping import ColumnMapping

VALUE = b'{"agent":"a","value":1,"time":1}'


class Sender:
    """librdkafka itself, to a broker of its own in this process."""

    def __init__(self) -> None:
        libraries = sorted(
            Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*.so*")
        )
        if not libraries:
            pytest.skip("this client has its library elsewhere")
        self._library = ctypes.CDLL(str(libraries[0]))
        self._library.rd_kafka_conf_new.restype = self._library.rd_kafka_new.restype = (
            ctypes.c_void_p
        )
        self._broker = confluent_kafka.Producer(
            {"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0}
        )
        (broker,) = self._broker.list_topics("t", timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"
        options, said = (
            ctypes.c_void_p(self._library.rd_kafka_conf_new()),
            ctypes.create_string_buffer(512),
        )
        for name, value in (("bootstrap.servers", self.address), ("log_level", "0")):
            self._library.rd_kafka_conf_set(
                options, name.encode(), value.encode(), said, ctypes.c_size_t(512)
            )
        self._client = ctypes.c_void_p(
            self._library.rd_kafka_new(0, options, said, ctypes.c_size_t(512))
        )

    def send(self, header: bytes, text: bytes) -> None:
        """Send a message; the numbers are librdkafka's for topic, partition, value, header, flags
        (copy), end."""
        whole, size = ctypes.c_int, ctypes.c_size_t
        topic = (whole(1), ctypes.c_char_p(b"t"), whole(3), ctypes.c_int32(0))
        value = (whole(4), ctypes.c_char_p(VALUE), size(len(VALUE)))
        beside = (whole(9), ctypes.c_char_p(header), ctypes.c_char_p(text), size(len(text)))
        sent = self._library.rd_kafka_producev(
            self._client, *topic, *value, *beside, whole(7), whole(2), whole(0)
        )
        assert sent == 0

    def close(self) -> None:
        assert self._library.rd_kafka_flush(self._client, 10_000) == 0
        self._library.rd_kafka_destroy(self._client)


def test_a_message_whose_header_has_no_name_is_a_dead_letter_and_those_beside_it_count() -> None:
    parser = TopicParser(ColumnMapping(agent="@header.who"))
    sender = Sender()
    for name in (b"who", b"\xff\xfe", b"who"):
        sender.send(name, b"ann")
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": sender.address, "group.id": "g", "log_level": 0}
    )
    with closing(client), closing(sender):
        client.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        messages = client.consume(3, 20)
    assert len(messages) == 3
    values = [message.value() for message in messages]
    records = PartitionRecords(
        np.zeros(3, np.int64), np.arange(3), values, message_extras(messages, parser.wanted)
    )
    rejects = Rejects()
    assert parser.parse(records, rejects).position.tolist() == [0, 2]
    assert (rejects.reason, rejects.position) == (["missing_agent"], [1])
