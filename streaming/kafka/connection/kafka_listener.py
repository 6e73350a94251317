"""Which security.protocol a listener speaks.

Asked on the wire, since to another one it just hangs up.
"""

from __future__ import annotations

import socket
import ssl
import struct

DEFAULT_PORT = 9092

_SASL_HANDSHAKE = 17
_UNSUPPORTED_MECHANISM = 33
_NO_SASL_HERE = 34
_NO_MECHANISM = b"none"
_CORRELATION = 1
_MOST_BYTES = 4096


def protocols_of_listener(broker: str, seconds: float) -> tuple[str, ...]:
    """Ask a broker which values of `security.protocol` its listener takes.

    None where it does not say.

    Nothing is sent but the name of a mechanism that no broker has, and no certificate is looked at:
    anyone who answers is told nothing, and learns from the brokers' refusals that someone with
    wrong properties came.
    """
    address = _address(broker)
    try:
        with socket.create_connection(address, seconds) as plain:
            sasl = _wants_sasl(plain)

        if sasl is not None:
            if sasl:
                return ("SASL_PLAINTEXT",)
            return ("PLAINTEXT",)

        with socket.create_connection(address, seconds) as connection:
            return _protocols_with_tls(connection, address[0])
    except (OSError, UnicodeError):  # the name of no host, such as `a..b`, is the latter
        return ()


def _protocols_with_tls(connection: socket.socket, host: str) -> tuple[str, ...]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is queried whether, not who

    try:
        tls = context.wrap_socket(connection, server_hostname=host)
    except (
        ssl.SSLError
    ) as error:  # an alert is TLS, too: of a listener that wants a certificate, say
        if "ALERT" in (error.reason or ""):
            return ("SSL", "SASL_SSL")
        return ()

    with tls:
        sasl = _wants_sasl(tls)

    if sasl is None:
        return ("SSL", "SASL_SSL")

    if sasl:
        return ("SASL_SSL",)
    return ("SSL",)


def _wants_sasl(connection: socket.socket) -> bool | None:
    """Ask for a mechanism that there is not.

    A listener without SASL says so; None where it does not answer that.
    """
    header = struct.pack(">hhih", _SASL_HANDSHAKE, 1, _CORRELATION, -1)
    request = header + struct.pack(">h", len(_NO_MECHANISM)) + _NO_MECHANISM
    try:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = _read(connection, 10)
    except OSError:
        return None

    if len(answer) < 10:
        return None
    size, correlation, code = struct.unpack(">iih", answer)
    if correlation != _CORRELATION or not 6 <= size <= _MOST_BYTES:
        return None

    return {_UNSUPPORTED_MECHANISM: True, _NO_SASL_HERE: False}.get(code)


def _read(connection: socket.socket, count: int) -> bytes:
    """Read that many bytes, or fewer if it ends."""
    found = b""
    while len(found) < count and (more := connection.recv(count - len(found))):
        found += more

    return found


def _address(broker: str) -> tuple[str, int]:
    host, _, port = broker.rpartition(":")
    if not host or not port.isdecimal():
        return broker.strip("[]"), DEFAULT_PORT
    return host.strip("[]"), int(port)
