"""Requests for what is private.

On this machine unless the user said otherwise, and with nothing of them in a log.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from meanstream.operators.validation import require
from meanstream.streaming.metrics.background import RequestsWithoutBody


def require_loopback(option: str, host: str, address: str, *, remote: bool) -> None:
    """Refuse an address that others can reach, unless that was requested."""
    rule = f"be an address of this machine only, unless --{option}-remote is given"
    require(remote or _is_loopback(host), option, rule, address)


def hosts_of_this_machine(host: str, *, remote: bool) -> set[str] | None:
    """Say by which names a request may call the server; None for any."""
    if remote:
        return None
    return {host, "localhost"}


def _is_loopback(host: str) -> bool:
    """Tell whether no one but this machine can connect to a host's addresses."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the name of no host, such as `a..b`, is the latter
        return False

    return all(
        ipaddress.ip_address(str(address[0]).split("%")[0]).is_loopback for *_, address in addresses
    )


class PrivateRequests(RequestsWithoutBody):
    """Handles the requests of one connection; the base of those who answer with what is private.

    **Privacy.** Names of agents and tokens are in requests: nothing of one is logged. On an address of this machine a
    request that names another host is refused (`names_host_of`), so that no foreign site gets in by a name of its own.
    """

    protocol_version = "HTTP/1.1"
    timeout = 30.0

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep requests out of the log: names of agents are in them."""

    def version_string(self) -> str:
        """Tell no one what runs here."""
        return "meanstream"

    def names_host_of(self, hosts: set[str] | None) -> bool:
        """Tell whether a request calls the server by one of these names.

        By any of them if there are none.
        """
        if hosts is None:
            return True

        try:
            return urlsplit(f"//{self.headers.get('Host') or ''}").hostname in hosts
        except ValueError:
            return False
