"""Two organizations, each with its own private side and store, share one broker: only releases are
on it."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.pipelines.command_line import SECRET, meanstream
from tests.servers.support.wait_until import NotInTimeError

AGENTS = 8
SAMPLES = 120
DOUBLES, SINGLES = ("<d", ">d"), ("<f", ">f")
SETTINGS = {"lower": 0, "upper": 10, "epsilon": 20, "delta": 1e-6, "lateness": "0s"}


def write_samples(path: Path, organization: str) -> list[str]:
    """Write distinctive values, twelve digits each; return their texts."""
    n = AGENTS * SAMPLES
    values = (
        np.random.default_rng(len(organization))
        .normal(np.where(np.arange(n) % 2, 3, 7), 1)
        .clip(0.1, 9.9)
    )
    texts = [f"{value:.12f}" for value in values]
    with path.open("w") as file:
        for i, text in enumerate(texts):
            file.write(
                f'{{"agent": "{organization}-{i % AGENTS}", "time": {1.7e9 + i}, "value": {text}}}\n'
            )
    return texts


def typed(options: dict[str, Any]) -> list[str]:
    return [
        text
        for name, value in options.items()
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]


def own_topics(address: str) -> list[str]:
    """Names of the broker's own topics."""
    return [
        name
        for name in AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).topics
        if name.startswith("__")
    ]


def every_byte(address: str, topics: list[str]) -> Iterator[bytes]:
    """Every key, value and header of every record of topics, committed or not."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader of everything",
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    known = AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).topics
    left = {(name, partition) for name in topics for partition in known[name].partitions}
    consumer.assign([TopicPartition(name, partition, OFFSET_BEGINNING) for name, partition in left])
    end = time.monotonic() + 60
    while left:
        if time.monotonic() > end:
            raise NotInTimeError(str(left))
        for message in consumer.consume(1000, 1.0):
            if message.error():
                left.discard((message.topic(), message.partition()))
                continue
            yield b"\n".join([message.key() or b"", message.value() or b""])
            yield from (value or b"" for _, value in message.headers() or ())
    consumer.close()


def found_in(
    texts: list[str], records: list[bytes], kinds: Sequence[str] = DOUBLES + SINGLES
) -> set[str]:
    """Texts whose value is in a record, as decimals (without the last, rounded digit) or as a
    binary number."""
    whole = b"\0".join(records)
    return {
        text
        for text in texts
        if text[:-1].encode() in whole
        or any(struct.pack(kind, float(text)) in whole for kind in kinds)
    }


def test_two_organizations_share_nothing_but_releases(broker_address: str, tmp_path: Path) -> None:
    raw = []
    releases = f"kafka://{broker_address}/shared-releases"
    for organization in ("left", "right"):
        folder = tmp_path / organization
        folder.mkdir()
        raw += write_samples(folder / "samples.jsonl", organization)
        ran = meanstream(
            *("run", "agent-side", "--json", "--name", organization),
            *typed({"source": folder / "samples.jsonl", "store": folder / "state.db", **SETTINGS}),
            *typed(
                {
                    "releases": f"{releases}?create=2",
                    "notices": f"kafka://{broker_address}/notices?create=1",
                }
            ),
            *typed({"dead_letters": f"kafka://{broker_address}/dead-letters?create=1"}),
            environment={"MEANSTREAM_SECRET": SECRET + organization},
        )
        assert ran.code == 0, ran.err
        assert ran.json["accepted"] == AGENTS * SAMPLES
    for organization in ("left", "right"):
        folder = tmp_path / organization
        ran = meanstream(
            *("run", "collaborate", "--until-end", "--json", "--releases", releases),
            *typed({"store": folder / "state.db", "sink": folder / "estimates.jsonl"}),
            *typed({"population": folder / "population.jsonl"}),
        )
        assert ran.code == 0, ran.err
        assert ran.json["agents"] == 2 * AGENTS
        lines = (folder / "estimates.jsonl").read_bytes().splitlines()
        answers = [json.loads(line) for line in lines]
        assert {answer["agent"] for answer in answers} == {
            f"{organization}-{i}" for i in range(AGENTS)
        }
        assert (
            sum(answer["effective_class_size"] for answer in answers) / AGENTS > 1.25
        )  # the others were of use: an agent alone has 1

    records = list(every_byte(broker_address, ["shared-releases", "notices", "dead-letters"]))
    assert sum(b'"release_id"' in record for record in records) > 100
    assert found_in(raw, records) == set()
    # The broker's own topics hold binary data of the whole session. In ten random megabytes some
    # four bytes are those of one of these values nine times (3,840 * 1e7 / 2**32), some eight bytes
    # never (2e-9).
    assert (
        found_in(raw, list(every_byte(broker_address, own_topics(broker_address))), DOUBLES)
        == set()
    )


def test_a_raw_value_on_a_topic_would_be_found(
    broker_address: str, new_topic: Callable[..., str]
) -> None:
    """The twin: an event that holds a value, as text or as a binary number, does not escape the
    search."""
    producer = Producer({"bootstrap.servers": broker_address})
    topic = new_topic()
    producer.produce(topic, b'{"value":3.141592653589}')
    producer.produce(topic, b"x", headers={"value": struct.pack("<d", 2.718281828459)})
    assert producer.flush(20) == 0
    texts = ["3.141592653589", "2.718281828459", "1.414213562373"]
    assert found_in(texts, list(every_byte(broker_address, [topic]))) == set(texts[:2])
