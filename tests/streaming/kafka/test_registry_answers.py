"""Registries that no one should run: each answer is bounded in time and in size, and none of them
ends reading."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.kafka.connection import registered, schema_registry
from meanstream.streaming.kafka.connection import schema_registry as registry
from meanstream.streaming.kafka.connection.registered import RegistryValues, wire_head
from meanstream.streaming.kafka.connection.schema_registry import (
    RegistryAwayError,
    SchemaRegistry,
    registry_address,
)
from meanstream.streaming.kafka.connection.values import PartitionRecords
from meanstream.streaming.sources.decode import Decoder
from meanstream.streaming.sources.mapping import ColumnMapping

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
Talk = Callable[[socket.socket, threading.Event], None]


@contextmanager
def talking(talk: Talk) -> Iterator[str]:
    """Serve one connection after the other by whatever a test sends."""
    listening, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client, suppress(OSError):
                client.recv(65536)
                talk(client, over)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def dripping(first: bytes, drop: bytes) -> Talk:
    def talk(client: socket.socket, over: threading.Event) -> None:
        client.sendall(first)
        while not over.wait(0.02):
            client.sendall(drop)

    return talk


def sending(answer: bytes) -> Talk:
    return lambda client, over: client.sendall(answer)


@pytest.mark.parametrize(
    ("talk", "got"),
    [
        (dripping(HEAD, b" "), "no whole answer in 0.3 s"),
        (dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"), "no whole answer in 0.3 s"),
        (dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "no whole answer in 0.3 s"),
        (lambda client, over: over.wait(), "no whole answer in 0.3 s"),
        (sending(HEAD + b"x" * 2000), "more than 1000 bytes"),
        (sending(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"), "HTTP 302"),
        (sending(b"\x00" * 100_000), "BadStatusLine|LineTooLong|Connection reset by peer"),
        (sending(HEAD + b"[" * 900), "an answer that is no JSON"),
        (sending(HEAD + b"9" * 900 + b"\xff"), "an answer that is no JSON"),
        (sending(b""), "RemoteDisconnected|Connection reset by peer"),
    ],
)
def test_an_answer_that_is_none_is_one_line_in_bounded_time(
    talk: Talk, got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "SECONDS", 0.3)
    monkeypatch.setattr(registry, "MAX_ANSWER", 1000)
    with (
        talking(talk) as address,
        pytest.raises(RegistryAwayError, match=f"registry must answer at .*, got ({got})"),
    ):
        SchemaRegistry(address).schema(1)


def test_what_a_registry_is_asked_goes_to_its_path_with_its_password() -> None:
    asked: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listening.accept()
        with client:
            asked.append(client.recv(65536))
            client.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"schema":"\\"int\\""} ')

    threading.Thread(target=serve, daemon=True).start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/apis/ccompat/v7/"
    found = SchemaRegistry(address, (("schema.registry.basic.auth.user.info", "u:p"),)).schema(7)
    listening.close()
    assert found is not None
    assert (found.kind, found.text) == ("AVRO", '"int"')
    assert asked[0].startswith(b"GET /apis/ccompat/v7/schemas/ids/7 HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Basic dTpw\r\n" in asked[0]


def certificate(folder: Path) -> Path:
    """Write a key and a certificate of this machine that nobody has signed."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "me")]),
    )
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "both.pem"
    path.write_bytes(private + signed.public_bytes(pem))
    return path


def test_a_certificate_is_checked_and_a_slow_handshake_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    listening = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except ssl.SSLError:  # who does not trust us
                continue
            except OSError:
                return
            with client, suppress(OSError):
                client.recv(65536)
                client.sendall(HEAD + b'{"schema":"x"}')

    threading.Thread(target=serve, daemon=True).start()
    address = f"https://127.0.0.1:{listening.getsockname()[1]}"
    found = SchemaRegistry(address, (("schema.registry.ssl.ca.location", str(path)),)).schema(7)
    assert found is not None
    assert found.text == "x"
    with pytest.raises(
        RegistryAwayError, match=r"certificate verify failed|CERTIFICATE_VERIFY_FAILED"
    ):
        SchemaRegistry(address).schema(7)
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    monkeypatch.setattr(registry, "SECONDS", 0.3)
    with (
        talking(dripping(b"\x16\x03\x03\x3f\xff", b"\x02")) as slow,
        pytest.raises(RegistryAwayError, match="got "),
    ):
        SchemaRegistry(slow.replace("http:", "https:")).schema(7)


class Lying(SchemaRegistry):
    """One whose answers are made up."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        super().__init__("http://127.0.0.1:1")
        self.made_up, self.asked = answer, 0

    def _answer(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        self.asked += 1
        return 200, json.dumps(self.made_up(path)).encode()


def records_of(*values: bytes) -> PartitionRecords:
    return PartitionRecords(np.zeros(len(values), np.int64), np.arange(len(values)), list(values))


@pytest.mark.parametrize("subject", ["\ud800", "../../config", "a\r\nX: y", "a"])
def test_references_in_a_circle_and_subjects_that_are_none_end(subject: str) -> None:
    many = [{"name": f"n{i}", "subject": subject, "version": 1} for i in range(500)]
    lying = Lying(lambda path: {"schema": '"nope"', "references": many})
    values = RegistryValues(lying, ColumnMapping(), Decoder(ColumnMapping()))
    rejects = Rejects()
    assert values.parse(records_of(wire_head(1) + b"\x00"), np.array([5]), {}, rejects) == []
    assert (rejects.position, rejects.reason) == ([5], ["unknown_schema"])
    assert lying.asked == 1 + registry.MAX_REFERENCES


def test_schemas_that_are_kept_are_bounded_by_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_TEXT", 1000)
    monkeypatch.setattr(registered, "MAX_CHARACTERS", 500)
    lying = Lying(lambda path: {"schema": json.dumps({"type": "int", "doc": "x" * 200})})
    values = RegistryValues(lying, ColumnMapping(), Decoder(ColumnMapping()))
    for number in range(50):
        values.parse(records_of(wire_head(number) + b"\x00"), np.array([0]), {}, Rejects())
        assert sum(one.characters for one in lying._known.values()) <= 1000
        assert len(values._readers) <= 2
    values.parse(records_of(*[wire_head(49) + b"\x00"] * 3), np.arange(3), {}, Rejects())
    assert lying.asked == 50


class Knowing(SchemaRegistry):
    """Has the schema of some ids and answers of others, after a while, that there is none."""

    def __init__(self, known: set[int]) -> None:
        super().__init__("http://127.0.0.1:1")
        self.known, self.asked = known, list[int]()

    def _answer(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        self.asked.append(number := int(path.rpartition("/")[2]))
        found = number in self.known
        return (200 if found else 404), json.dumps({"schemaType": "JSON", "schema": "{}"}).encode()


def test_a_flood_of_made_up_ids_does_not_stop_those_that_are_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A hundred thousand ids of no schema, each of which takes an answer, with good records among
    them."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    knowing, rejects, good = Knowing({7}), Rejects(), b'{"agent":"ann","value":1,"time":5}'
    values = RegistryValues(knowing, ColumnMapping(), Decoder(ColumnMapping()))
    values.parse(records_of(wire_head(7) + good), np.array([0]), {}, rejects)
    made_up = [wire_head(2**31 + i) + good for i in range(100_000)]
    flood = records_of(
        *[
            value
            for i in range(0, 100_000, 1000)
            for value in (*made_up[i : i + 1000], wire_head(7) + good)
        ]
    )
    samples = values.parse(flood, np.arange(100_100), {}, rejects)
    assert sum(map(len, samples)) == 100
    assert set(rejects.reason) == {"unknown_schema"}
    assert len(rejects.reason) == 100_000 == len(set(rejects.position))
    assert len(knowing.asked) == 1 + schema_registry.MAX_MISSES
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    knowing.known.add(8)  # registered now: it is asked for when the flood was a while ago
    asking = records_of(wire_head(8) + good)
    assert values.parse(asking, np.array([0]), {}, rejects) == []
    now[0] += registry.FORGET_SECONDS
    assert sum(map(len, values.parse(asking, np.array([0]), {}, rejects))) == 1


def test_slow_answers_that_there_is_none_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    class Slow(Knowing):
        def _answer(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
            now[0] += 2.0
            return super()._answer(method, path, body)

    slow = Slow(set())
    values = RegistryValues(slow, ColumnMapping(), Decoder(ColumnMapping()))
    values.parse(
        records_of(*[wire_head(i) + b"{}" for i in range(1000)]), np.arange(1000), {}, Rejects()
    )
    assert len(slow.asked) == 3  # six seconds: the last one was under way when five were over


@pytest.mark.parametrize(
    "text",
    [
        "http://[",
        "http://h/ x",
        "http://h:0",
        "http://h:x",
        "ftp://h",
        "http://h?x",
        "http:///x",
        "http://h\n",
    ],
)
def test_an_address_that_is_none_is_one_line(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"registry must be http://HOST:PORT or https://HOST:PORT, got"
    ):
        registry_address(text)


@pytest.mark.parametrize(
    "text", ["http://user:secret@h", "http://user:secret\u2100@h", "http://u:sec/ret@h"]
)
def test_an_address_with_a_password_is_refused_without_it(text: str) -> None:
    with pytest.raises(
        ValueError, match="registry must be an address, got a user or password"
    ) as refused:
        registry_address(text)
    assert "sec" not in str(refused.value).replace("basic.auth", "")


class OfSubject(Knowing):
    """Has schemas under the subject of a topic, too."""

    def _answer(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        if path == "/subjects/samples-value/versions":
            return 200, json.dumps(list(range(1, len(self.known) + 1))).encode()
        if path.startswith("/subjects/samples-value/versions/"):
            number = sorted(self.known)[int(path.rpartition("/")[2]) - 1]
            return 200, json.dumps({"id": number, "schemaType": "JSON", "schema": "{}"}).encode()
        return super()._answer(method, path, body)


@pytest.mark.parametrize("known_by", ["store", "number", "topic"])
def test_made_up_ids_decide_nothing_about_records_of_a_schema(
    known_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schema that was not asked for yet, behind more made-up ids than are asked for in a
    while."""
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)
    asked, rejects, good = OfSubject({7, 9}), Rejects(), b'{"agent":"ann","value":1,"time":5}'
    values = RegistryValues(asked, ColumnMapping(), Decoder(ColumnMapping()))
    made_up = [wire_head(2**31 + i) + good for i in range(3 * schema_registry.MAX_MISSES)]
    if known_by == "store":
        asked.familiar.update({7, 9})
    if known_by == "topic":
        asked.subjects = ("samples-value",)
        values.parse(records_of(*made_up), np.arange(len(made_up)), {}, rejects)
    several = 2 if known_by == "number" else 1
    mixed = records_of(*made_up, *[wire_head(7) + good, wire_head(9) + good] * several)
    samples = values.parse(mixed, np.arange(len(mixed.values)), {}, rejects)
    assert sum(map(len, samples)) == 2 * several
    assert asked.familiar == {7, 9}
    assert len(asked.asked) <= 2 + schema_registry.MAX_MISSES
