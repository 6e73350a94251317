"""The broker of the tests serves, and comes back over its data after it was killed."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.support.broker import Broker


def read_all(address: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values = [message.value() for message in consumer.consume(count, 20.0)]
    consumer.close()
    return values


def test_what_is_produced_can_be_read(broker_address: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": broker_address})
    for i in range(10):
        producer.produce(topic, str(i))
    assert producer.flush(20) == 0
    assert read_all(broker_address, topic, 10) == [str(i).encode() for i in range(10)]


def test_a_killed_broker_has_its_data_when_it_is_back(own_broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.address})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
    producer = Producer({"bootstrap.servers": own_broker.address, "enable.idempotence": True})
    producer.produce("kept", b"before")
    assert producer.flush(20) == 0
    own_broker.kill()
    producer.produce("kept", b"while it was away")
    own_broker.start()
    assert producer.flush(30) == 0
    assert read_all(own_broker.address, "kept", 2) == [b"before", b"while it was away"]
