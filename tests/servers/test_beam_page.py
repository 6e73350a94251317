"""The program in docs/beam.md runs as it stands, but for the place of broker and secret and that
its input ends."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.servers.support.engine_process import SECRET

PAGE = Path(__file__).parents[2] / "docs" / "beam.md"


def lines_of(address: str, topic: str) -> list[bytes]:
    """Everything that a topic holds."""
    settings = {"bootstrap.servers": address, "group.id": "page", "enable.partition.eof": True}
    consumer = Consumer(settings)
    places = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in places])
    lines, ended = list[bytes](), 0
    while ended < len(places):
        message = consumer.poll(10.0)
        assert message is not None
        if message.error() is None:
            lines.append(message.value() or b"")
        else:
            ended += 1
    consumer.close()
    return lines


def test_the_program_runs(
    broker_address: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = new_topic(partitions=2)
    rng = np.random.default_rng(1)
    producer = Producer({"bootstrap.servers": broker_address})
    for i in range(600):
        sample = {
            "agent": f"agent {i % 6}",
            "value": float(rng.normal(10, 5)),
            "time": 1.7e9 + i,
            "id": f"s{i}",
        }
        producer.produce(
            samples, json.dumps(sample if i else {"agent": "agent 0"}).encode(), partition=i % 2
        )
    assert producer.flush(30) == 0
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", PAGE.read_text())
    (block,) = [block for block in blocks if block.startswith("# agents_on_flink.py\n")]
    changes = {
        "127.0.0.1:9092": broker_address,
        "/samples": f"/{samples}",
        "/releases": f"/{samples}-releases",
        "/estimates": f"/{samples}-estimates",
        "/dead-letters": f"/{samples}-dead-letters",
        "/run/secrets/meanstream": str(tmp_path / "secret"),
        "until_end=False": "until_end=True",
    }
    for here, there in changes.items():
        assert block.count(here) == 1, here
        block = block.replace(here, there)
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "program.py").write_text(block)
    runner = "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    monkeypatch.setattr(sys, "argv", ["program.py", runner])
    runpy.run_path(
        str(tmp_path / "program.py"), run_name="__main__"
    )  # here: another process imports Beam again
    releases = [json.loads(line) for line in lines_of(broker_address, f"{samples}-releases")]
    estimates = [json.loads(line) for line in lines_of(broker_address, f"{samples}-estimates")]
    letters = [json.loads(line) for line in lines_of(broker_address, f"{samples}-dead-letters")]
    names = {f"agent {i}" for i in range(6)}
    assert (
        {release["agent"] for release in releases}
        == {estimate["agent"] for estimate in estimates}
        == names
    )
    assert len({release["release_id"] for release in releases}) == len(releases) > 12
    assert [letter["position"] for letter in letters] == [0]
