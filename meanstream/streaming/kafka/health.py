"""Whether brokers can be reached: librdkafka's complaints as few lines of the logger `meanstream.kafka`."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

logger = logging.getLogger("meanstream.kafka")

QUIET_SECONDS = 60.0
"""Lines of one kind are not repeated within so many seconds; the next one says how many were left out."""

_STATE = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")

_SAID_OTHERWISE = ("FAIL", "ERROR", "CONFWARN", "ADDOFFSETS", "ADDPARTS", "FATAL", "GETPID", "METADATAUPDATE", "TXNERR")
"""Kinds of lines that the error callback reports too, that a transactional call returns as its error (not the end of
anything: another client is made), or that say that a producer's property is not a consumer's, or that the topics of a
broker that was just started are not known yet."""


class ErrorLike(Protocol):
    """What is needed of a `KafkaError`."""

    def name(self) -> str:
        """Name of the code."""

    def str(self) -> str:
        """Say what happened."""


class Health:
    """Follows one client; its methods are the client's callbacks, and the client's own threads may call them.

    Parameters
    ----------
    brokers : str
        Addresses, for messages.
    secrets : sequence of str
        Texts that no line may show.
    on_statistics : callable, optional
        Takes the client's statistics too.
    """

    def __init__(
        self, brokers: str, secrets: Sequence[str] = (), on_statistics: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self.connected = False  # until then whoever connects reports
        self.denied: str | None = None  # authentication or TLS failed
        self.last = "no answer"
        self._brokers = brokers
        self._secrets = secrets
        self._on_statistics = on_statistics
        self._down = False
        self._quiet: dict[str, tuple[float, int]] = {}  # kind of line to when it was said, and how many were left out
        self._lock = threading.Lock()

    def on_error(self, error: ErrorLike) -> None:
        """Take an error that no call returned."""
        name, text = error.name(), self.redact(error.str())
        if name in ("_AUTHENTICATION", "_SSL"):
            self.denied = text
        if name == "_ALL_BROKERS_DOWN":
            self.lost(self.last)
        elif name in ("_TRANSPORT", "_RESOLVE", "_TIMED_OUT", "_AUTHENTICATION", "_SSL"):
            self.last = text
        else:
            self._say(logging.WARNING, name, text)

    def on_statistics(self, text: str) -> None:
        """Take the client's statistics, by which a broker that is back is noticed."""
        if not self._down and self._on_statistics is None:
            return
        statistics = json.loads(text)
        if self._down and any(broker["state"] == "UP" for broker in statistics["brokers"].values()):
            self.reached()
        if self._on_statistics is not None:
            self._on_statistics(statistics)

    def log(self, level: int, form: str, *values: object) -> None:
        """Take a line of librdkafka: kind, name of the client, text."""
        kind = str(values[0]) if values else ""
        if kind in _SAID_OTHERWISE:
            level = logging.DEBUG
        self._say(level, kind, self.redact(form % values))

    def lost(self, why: str) -> None:
        """Note that no broker answers; one line per outage."""
        with self._lock:
            news, self._down = not self._down, True
        if news and self.connected:
            logger.warning("brokers cannot be reached: %s (%s)", self._brokers, why)

    def reached(self) -> None:
        """Note that a broker answers."""
        with self._lock:
            news, self._down, self.denied = self._down, False, None
        if news and self.connected:
            logger.warning("brokers can be reached again: %s", self._brokers)

    @property
    def down(self) -> bool:
        """Whether no broker answers."""
        return self._down

    def redact(self, text: str) -> str:
        """Take secrets, line ends and librdkafka's inner states out of a text."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return " ".join(_STATE.sub("", text).split())

    def _say(self, level: int, kind: str, text: str) -> None:
        now = time.monotonic()
        with self._lock:
            since, left_out = self._quiet.get(kind, (-QUIET_SECONDS, 0))
            if now - since < QUIET_SECONDS:
                self._quiet[kind] = (since, left_out + 1)
                return
            self._quiet[kind] = (now, 0)
        more = f" ({left_out} more lines of this kind were left out)" if left_out else ""
        logger.log(level, "%s%s", text, more)
