"""`audit topic` of a real topic: what the engine put there is as promised; a forged release on it
is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer

from tests.pipelines.command_line import SECRET, asks, meanstream

pytestmark = pytest.mark.servers

PROMISED = (
    "--lower", "0", "--upper", "8", "--epsilon", "1", "--delta", "1e-6", "--horizon", "4",
    "--noise", "gaussian",
)  # fmt: skip
"""Gaussian noise: of pure noise, so few releases prove nothing."""
AGENTS, SAMPLES = 400, 22


def test_a_topic_is_audited_by_anybody_who_can_read_it(
    broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The mean of the forged one has noise of its own, in floats: the oldest of the known-bad
    twins."""
    rng = np.random.default_rng(3)
    means = rng.uniform(2, 6, AGENTS)
    rows = [
        f"a{i},{value:.3f},{1_357_000_000 + 60 * k}"
        for k in range(SAMPLES)
        for i, value in enumerate(rng.normal(means, 1))
    ]
    (tmp_path / "samples.csv").write_text("\n".join(["agent,value,time", *rows]) + "\n")
    topic = new_topic(partitions=3)
    address = f"kafka://{broker_address}/{topic}"
    places = (
        "--source",
        f"{tmp_path}/samples.csv",
        "--store",
        f"{tmp_path}/s.db",
        "--releases",
        address,
    )
    ran = meanstream(
        "run", "agents", *places, *PROMISED, "--sink", f"{tmp_path}/e.jsonl", "--quiet",
        environment={"MEANSTREAM_SECRET": SECRET},
    )  # fmt: skip
    assert ran.code == 0, ran.err

    audited = asks("audit", "topic", address, *PROMISED, "--json")
    assert (audited.code, audited.json["violated"]) == (0, [])
    assert 0.8 < audited.json["rows"][0]["proved"] < 1.1
    assert "400 agents, 1,600 releases, at most 4 of one agent" in " ".join(audited.json["notes"])
    halved = [*PROMISED[:5], "0.4", *PROMISED[6:]]
    assert (
        asks("audit", "topic", address, *halved).code == 1
    )  # noise for epsilon 1 was promised for 0.4

    (line,) = releases_on(topic, broker_address)[:1]
    line["mean"] += 1e-3 * float(rng.laplace())
    producer = Producer({"bootstrap.servers": broker_address})
    producer.produce(topic, json.dumps(line).encode(), key=str(line["agent"]).encode())
    assert producer.flush(20) == 0
    forged = asks("audit", "topic", address, *PROMISED, "--json")
    assert (forged.code, forged.json["violated"]) == (1, ["releases"]), forged.json
    assert forged.json["rows"][0]["fault"]


def releases_on(topic: str, address: str) -> list[dict[str, Any]]:
    """Read the releases back from the topic, as any consumer does."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[dict[str, Any]] = []
    while not found:
        found += [json.loads(m.value()) for m in consumer.consume(100, 5.0) if m.error() is None]
    consumer.close()
    return found
