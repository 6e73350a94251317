"""TLS and SASL against a real broker: secrets from files and the environment, and one line for each
refusal."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from meanstream.streaming.kafka.connection import kafka_client as client
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.reading.kafka_source import KafkaSource
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.servers.conftest import need, shared_by_workers
from tests.servers.support import broker as kafka
from tests.servers.support.kafka_reading import read_count, send, value
from tests.servers.support.security import Authority, secure_properties

USER = "alice"
PASSWORD = "tell-nobody-7.0314159"  # noqa: S105 - it must not show
SCRAM_PASSWORD = "another-2.718281828"  # noqa: S105
TOPIC, GROUP = "samples", "readers"


@dataclass(frozen=True)
class Secure:
    """A broker with several listeners, and a folder with passwords and certificates; all workers
    share it."""

    pid: int
    folder: Path
    listeners: dict[str, str]
    """Addresses by the security.protocol that they speak."""

    @property
    def address(self) -> str:
        """The listener of these tests."""
        return self.listeners["SASL_SSL"]


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """A broker where alice may read one topic under groups of one kind, and three samples are in
    it."""
    need(kafka.missing())
    with shared_by_workers(tmp_path_factory, "secure", start_secure) as shared:
        yield Secure(shared["pid"], Path(shared["folder"]), shared["listeners"])


def start_secure(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    others = dict(zip(("SASL_PLAINTEXT", "SSL"), kafka.free_ports(2), strict=True))
    authority = Authority.make("test authority")
    broker = kafka.Broker(
        folder / "kafka", secure_properties(folder, authority, USER, PASSWORD, others)
    )
    (folder / "password").write_text(PASSWORD + "\n")
    broker.start()
    let_alice_in(broker.address)
    send(broker.address, TOPIC, [value(i) for i in range(3)])
    listeners = {"PLAINTEXT": broker.address, "SASL_SSL": broker.spare_address}
    listeners |= {protocol: f"127.0.0.1:{port}" for protocol, port in others.items()}
    return {"pid": broker.detach(), "folder": str(folder), "listeners": listeners}


def let_alice_in(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for topic in (TOPIC, "other"):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    allowed = [
        (ResourceType.TOPIC, TOPIC, AclOperation.READ),
        (ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE),
        (ResourceType.TOPIC, "other", AclOperation.DESCRIBE),
        (ResourceType.GROUP, GROUP, AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, f"meanstream-claim-{GROUP}", AclOperation.WRITE),
    ]
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.PREFIXED,
            f"User:{USER}",
            "*",
            what,
            AclPermissionType.ALLOW,
        )
        for kind, name, what in allowed
    ]
    for future in admin.create_acls(bindings).values():
        future.result(30)
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    entered = UserScramCredentialUpsertion(USER, scram, SCRAM_PASSWORD.encode())
    admin.alter_user_scram_credentials([entered])[USER].result(30)


Open = Callable[..., KafkaSource]


@pytest.fixture
def opening(secure: Secure, tmp_path: Path) -> Open:
    """Open the secure listener with the right properties, some of them changed or left out
    (None)."""
    right = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": USER,
        "sasl.password": f"file:{secure.folder / 'password'}",
        "ssl.ca.location": str(secure.folder / "trusted.pem"),
    }

    def make(
        topic: str = TOPIC,
        group: str = f"{GROUP}-{os.getpid()}",
        brokers: str = "",
        **changed: str | None,
    ) -> KafkaSource:
        properties = {**right, **{name.replace("_", "."): text for name, text in changed.items()}}
        config = tmp_path / "kafka.yaml"
        config.write_text(
            json.dumps({name: text for name, text in properties.items() if text is not None})
        )
        location = KafkaLocation.parse(
            f"kafka://{brokers or secure.address}/{topic}?group={group}&config={config}",
            environment={"SCRAM": SCRAM_PASSWORD},
        )
        assert PASSWORD not in repr(location)
        return KafkaSource(location, ColumnMapping(), owner="store-1")

    return make


def test_samples_are_read_with_a_password_from_a_file(opening: Open) -> None:
    with closing(opening()) as opened:
        found, _ = read_count(opened, 3)
    assert sorted(found.values()) == [0.0, 1.0, 2.0]


def test_samples_are_read_by_scram_with_a_password_from_the_environment(opening: Open) -> None:
    with closing(opening(sasl_mechanisms="SCRAM-SHA-256", sasl_password="env:SCRAM")) as opened:  # noqa: S106
        found, _ = read_count(opened, 3)
    assert sorted(found.values()) == [0.0, 1.0, 2.0]


def refusal(
    opening: Open,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    **changed: str,
) -> str:
    """The line by which opening is refused; no secret is in it, nor in the logs or on standard
    error."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ValueError, match="source must ") as caught:
        opening(**changed)
    message = str(caught.value)
    assert "\n" not in message
    shown = message + caplog.text + "".join(capfd.readouterr())
    assert PASSWORD not in shown
    assert SCRAM_PASSWORD not in shown
    return message


def test_a_wrong_password_is_one_line(
    opening: Open,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    secure: Secure,
) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        wrong = "env:SCRAM" if mechanism == "PLAIN" else f"file:{secure.folder / 'password'}"
        message = refusal(opening, caplog, capfd, sasl_mechanisms=mechanism, sasl_password=wrong)
        assert message.startswith(f"source must be allowed in by {secure.address}, got: ")
        assert "Authentication failed" in message


def test_an_authority_that_is_not_trusted_is_one_line(
    opening: Open,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    secure: Secure,
    tmp_path: Path,
) -> None:
    other = Authority.make("another authority").write(tmp_path / "other.pem")
    message = refusal(opening, caplog, capfd, ssl_ca_location=str(other))
    assert message.startswith(f"source must be allowed in by {secure.address}, got: ")
    assert "certificate" in message


@pytest.mark.parametrize(
    ("given", "spoken"),
    [
        (None, "SASL_SSL"),
        ("PLAINTEXT", "SASL_SSL"),
        ("SASL_PLAINTEXT", "SASL_SSL"),
        ("SSL", "SASL_SSL"),
        ("SSL", "PLAINTEXT"),
        ("SASL_SSL", "PLAINTEXT"),
        (None, "SASL_PLAINTEXT"),
        ("SASL_SSL", "SASL_PLAINTEXT"),
        (None, "SSL"),
        ("SASL_SSL", "SSL"),
    ],
)
def test_a_listener_that_speaks_something_else_is_one_line_at_once(  # noqa: PLR0917
    monkeypatch: pytest.MonkeyPatch,
    opening: Open,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    secure: Secure,
    given: str | None,
    spoken: str,
) -> None:
    """Whoever hangs up without a word might be a broker that is started: it is asked what it
    speaks, not waited for."""
    address = secure.listeners[spoken]
    monkeypatch.setattr(client, "CONNECT_SECONDS", 120.0)
    began = time.monotonic()
    message = refusal(opening, caplog, capfd, brokers=address, security_protocol=given)
    assert time.monotonic() - began < client.CONNECT_SECONDS
    rule = f"source must have the security.protocol of the listener at {address}, {spoken}, got {given or 'PLAINTEXT'}"
    assert message.startswith(f"{rule} (see ")


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("other", "source must be a topic with the right to READ, got 'other'"),
        ("hidden", "source must be a topic that these credentials may use, got 'hidden'"),
    ],
)
def test_a_topic_without_the_right_to_it_is_one_line(
    topic: str,
    message: str,
    opening: Open,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert refusal(opening, caplog, capfd, topic=topic) == message


def test_a_group_without_the_right_to_it_is_one_line(opening: Open) -> None:
    with (
        closing(opening(group="others")) as opened,
        pytest.raises(
            ValueError,
            match=r"group must be one with the rights to READ it and to WRITE .*, got 'others'$",
        ),
    ):
        opened.begin()
