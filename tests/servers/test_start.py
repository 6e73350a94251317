"""At the start: brokers that are not there yet are waited for, and told of; what waiting cannot
mend is refused."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from meanstream.streaming.kafka.connection import kafka_topics
from tests.pipelines.command_line import meanstream
from tests.servers.support.broker import Broker, free_ports
from tests.servers.support.programs import Command

SECRET = "7c1e94b05fa3d2681be60c9d37f25a84"  # noqa: S105 - of tests only
KEY = {"MEANSTREAM_SECRET": SECRET}
PATIENT = ("--wait-for", "2m")
MOST_SECONDS = 120.0
"""Whoever waits for brokers waits that long."""
BOUNDS = ("--lower", "0", "--upper", "1", "--epsilon", "1")
COMMANDS: dict[str, tuple[str, ...]] = {
    "agents": (*BOUNDS, "--delta", "1e-6", "--refresh", "1s", "--sink", "estimates.jsonl"),
    "agent-side": (*BOUNDS, "--delta", "1e-6", "--releases", "releases.jsonl"),
    "rounds": (*BOUNDS, "--window", "1h", "--sink", "means.jsonl"),
}


def words(kind: str, source: str, folder: Path) -> list[str]:
    """One side of a deployment that reads a topic."""
    own = [str(folder / word) if word.endswith(".jsonl") else word for word in COMMANDS[kind]]
    return ["run", kind, "--source", source, "--store", str(folder / f"{kind}.db"), *own]


def ask(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()
    except OSError:
        return 0, ""


def test_brokers_that_are_started_later_are_waited_for(own_broker: Broker, tmp_path: Path) -> None:
    """Also the topic is there only later: a broker that has just started does not know it at
    once."""
    broker = own_broker
    _make_topic(broker.address)
    broker.stop()
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    typed = words("agents", f"kafka://{broker.address}/samples", tmp_path)
    with Command(tmp_path, "engine", [*typed, "--metrics", metrics], **KEY) as engine:
        waits = f"source waits for the brokers {broker.address} ("
        engine.until(lambda: ask(metrics, "/readyz")[1].startswith(waits))
        assert ask(metrics, "/readyz")[0] == 503
        assert ask(metrics, "/healthz") == (200, "ok")
        engine.until(lambda: waits in engine.log)
        assert not (tmp_path / "agents.db").exists()
        broker.start()
        engine.until(lambda: ask(metrics, "/readyz") == (200, "ok"))
        assert engine.log.count(waits) == 1
        assert f"source: the brokers {broker.address} answer, after " in engine.log
        assert engine.stop() == 0


@pytest.mark.parametrize("kind", [*COMMANDS, "collaborate"])
def test_nobody_answers_in_time(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_topics, "FIRST_LOG_SECONDS", 0.1)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    option = "releases" if kind == "collaborate" else "source"
    if kind == "collaborate":
        own = ("--store", str(tmp_path / "own.db"), "--releases", str(tmp_path / "releases.jsonl"))
        made = ("run", "agent-side", "--source", "synthetic:2,20", *BOUNDS, "--delta", "1e-6", *own)
        assert meanstream(*made, environment=KEY).code == 0
        typed = [
            "run",
            kind,
            "--releases",
            f"kafka://{address}/releases",
            "--store",
            str(tmp_path / "own.db"),
        ]
    else:
        typed = words(kind, f"kafka://{address}/samples", tmp_path)
    ran = meanstream(*typed, "--wait-for", "0.5s", environment=KEY)
    assert ran.code == 2
    told, line = ran.err.decode().splitlines()
    assert f"{option} waits for the brokers {address} (" in told
    assert line.startswith(
        f"meanstream: {option} must be on brokers that can be reached, got {address} ("
    )


@pytest.mark.parametrize("kind", [*COMMANDS])
def test_a_topic_that_is_misspelled_is_refused_at_once(
    kind: str, broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    name = new_topic()
    began = time.monotonic()
    ran = meanstream(
        *words(kind, f"kafka://{broker_address}/{name}x", tmp_path), *PATIENT, environment=KEY
    )
    assert ran.code == 2
    assert time.monotonic() - began < MOST_SECONDS
    assert (
        ran.err.decode()
        == f"meanstream: source must be a topic that exists, got '{name}x'; did you mean '{name}'?\n"
    )
    assert not (tmp_path / f"{kind}.db").exists()


def test_tls_to_a_listener_without_it_is_refused(
    broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """At once: waiting does not mend it. The other ways round are in
    kafka/test_kafka_security.py."""
    config = tmp_path / "client.yaml"
    config.write_text("security.protocol: SSL\n")
    source = f"kafka://{broker_address}/{new_topic()}?config={config}"
    began = time.monotonic()
    ran = meanstream(*words("agents", source, tmp_path), *PATIENT, environment=KEY)
    assert ran.code == 2
    assert time.monotonic() - began < MOST_SECONDS
    rule = f"source must have the security.protocol of the listener at {broker_address}, PLAINTEXT"
    assert ran.err.decode().splitlines()[-1] == f"meanstream: {rule}, got SSL (see {str(config)!r})"


def _make_topic(address: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("samples", 1, 1)])["samples"].result(30)
