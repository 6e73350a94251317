"""What a listener speaks is asked; what answers anything else, or nothing, is not known to speak
something else."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from meanstream.streaming.kafka.connection.kafka_client import protocols_of_listener


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """A listener that sends this to whoever comes, and hangs up; None: it takes connections and
    says nothing."""
    taken: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            if answer is None:
                taken.append(connection)
                continue
            with connection:
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in taken:
            connection.close()


def handshake(size: int, correlation: int, code: int) -> bytes:
    return struct.pack(">iih", size, correlation, code) + bytes(40)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        bytes(9),
        bytes(10),
        handshake(-1, 1, 34),
        handshake(1 << 30, 1, 34),
        handshake(10, 2, 34),
        handshake(10, 1, 0),
        b"\x15\x03\x03\x00\x02\x02",
    ],
)
def test_who_does_not_say_is_not_known(answer: bytes | None) -> None:
    """It may be a broker that is started, behind what already takes its connections."""
    with answering(answer) as address:
        assert protocols_of_listener(address, 0.3) == ()


@pytest.mark.parametrize(("code", "spoken"), [(33, ("SASL_PLAINTEXT",)), (34, ("PLAINTEXT",))])
def test_a_listener_says_whether_it_wants_a_login(code: int, spoken: tuple[str, ...]) -> None:
    with answering(handshake(10, 1, code)) as address:
        assert protocols_of_listener(address, 5.0) == spoken


def test_an_alert_is_of_a_listener_with_tls() -> None:
    """Of one that wants a certificate, say."""
    with answering(b"\x15\x03\x03\x00\x02\x02\x28") as address:
        assert protocols_of_listener(address, 5.0) == ("SSL", "SASL_SSL")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert protocols_of_listener(f"127.0.0.1:{port}", 0.3) == ()
