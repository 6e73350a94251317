"""Whether brokers can be reached.

Librdkafka's complaints as few lines of the logger `meanstream.kafka`.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from meanstream.streaming.client_logs import current_client_logs
from meanstream.streaming.repeated_lines import OncePerSecond

logger = logging.getLogger("meanstream.kafka")
logger.addFilter(OncePerSecond())

QUIET_SECONDS = 60.0
"""Lines of one kind are not repeated within that many seconds; the next one says how many were left
out."""

_THREAD = re.compile(r"^\[thrd:[^]]*\]: ")
_STATE = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")

_SAID_OTHERWISE = (
    "FAIL",
    "ERROR",
    "CONFWARN",
    "ADDOFFSETS",
    "ADDPARTS",
    "FATAL",
    "GETPID",
    "METADATAUPDATE",
    "REQTMOUT",
    "TXNERR",
)
"""Kinds of lines that the error callback reports too, that a transactional call returns as its
error (not the end of anything: another client is made), or that say that a producer's property is
not a consumer's, that the topics of a broker that was just started are not known yet, or that a
request took too long, which statistics and calls report."""


class ErrorLike(Protocol):
    """What is needed of a `KafkaError`."""

    def name(self) -> str:
        """Name of the code."""

    def str(self) -> str:
        """Say what happened."""


SILENT_US = 8_000_000
"""A broker that owes an answer, and has sent nothing for that many microseconds, is silent."""
TRYING = 3
"""So many statistics one after the other in which no broker is connected, though one is tried, are
an outage."""
ANSWERS_US = 2_000_000
"""A broker that was silent answers again when it owes none, or has sent something since."""


class Health:
    """Follows one client, or one after the other.

    Its methods are the callbacks, which any thread may call.

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
        self,
        brokers: str,
        secrets: Sequence[str] = (),
        on_statistics: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.connected = False  # until then anyone who connects reports
        self.denied: str | None = None  # authentication or TLS failed
        self.last = "no answer"
        self._brokers = brokers
        self._secrets = secrets
        self._on_statistics = on_statistics
        self._logs = current_client_logs()
        self._ended = False
        self._down = False
        self._why = ""

        self._trying = 0
        self._owing: dict[
            str, int
        ] = {}  # since when a broker was seen to owe an answer, by librdkafka's clock
        self._quiet: dict[
            str, tuple[float, int]
        ] = {}  # kind of line to when it was said, and how many were left out
        self._lock = threading.Lock()

    def end(self) -> None:
        """Write no more lines: whoever had the client does not need it any more."""
        self._ended = True

    @property
    def is_silent(self) -> bool:
        """Whether the client, or the command that made it, has ended."""
        return self._ended or (self._logs is not None and self._logs.ended)

    def on_error(self, error: ErrorLike) -> None:
        """Take an error that no call returned."""
        name = error.name()
        text = self.redact(error.str())
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
        statistics = json.loads(text)
        up = [broker for broker in statistics["brokers"].values() if broker["state"] == "UP"]
        most = ANSWERS_US if self._down else SILENT_US
        silences = self._silences(up, statistics["ts"])
        fresh = [broker_up for broker_up in up if 0 <= broker_up.get("rxidle", 0) < most]
        silent = [silence for silence in silences if silence >= most]
        answering = up and (
            fresh or not silent
        )  # a connection without requests says nothing for the others

        trying = not up and any(
            broker["state"] != "INIT" for broker in statistics["brokers"].values()
        )
        self._trying = self._trying + 1 if trying else 0

        if answering and self._down:
            self.reached()
        elif up and not answering:
            self.lost(f"no answer for {min(silent) / 1e6:.0f} s")
        elif self._trying >= TRYING:
            self.lost(self.last)

        if self._on_statistics is not None:
            self._on_statistics(statistics)

    def _silences(self, up: Sequence[Mapping[str, Any]], now: int) -> list[int]:
        """Microseconds without a word from brokers that owe an answer.

        A question after a long rest is a new one.
        """
        owing = [broker for broker in up if broker.get("waitresp_cnt")]
        self._owing = {broker["name"]: self._owing.get(broker["name"], now) for broker in owing}
        return [min(broker.get("rxidle", 0), now - self._owing[broker["name"]]) for broker in owing]

    def log(self, level: int, form: str, *values: object) -> None:
        """Take a line of librdkafka: kind, name of the client, text."""
        kind = str(values[0]) if values else ""
        text = form % values

        if (
            kind == "FAIL" and not self.connected
        ):  # of a listener that hangs up without a word only the log tells
            self.last = self.redact(_THREAD.sub("", str(values[-1])))

        if kind in _SAID_OTHERWISE:
            level = logging.DEBUG

        self._say(level, kind, self.redact(text))

    def lost(self, why: str) -> None:
        """Note that no broker answers; one line per outage."""
        with self._lock:
            news, self._down = not self._down, True
            self._why = why

        if news and self.connected and not self.is_silent:
            logger.warning("brokers cannot be reached: %s (%s)", self._brokers, why)

    def reached(self) -> None:
        """Note that a broker answers."""
        with self._lock:
            news, self._down, self.denied = self._down, False, None

        if news and self.connected and not self.is_silent:
            logger.warning("brokers can be reached again: %s", self._brokers)

    def problem(self) -> str | None:
        """Say which brokers do not answer, and why; None if one does."""
        with self._lock:
            if self._down:
                return f"{self._brokers} ({self._why})"
            return None

    def redact(self, text: str) -> str:
        """Take secrets, line ends and librdkafka's inner states out of a text."""
        for secret in self._secrets:
            text = text.replace(secret, "***")

        return " ".join(_STATE.sub("", text).split())

    def _say(self, level: int, kind: str, text: str) -> None:
        if self.is_silent:
            return

        now = time.monotonic()
        with self._lock:
            since, left_out = self._quiet.get(kind, (-QUIET_SECONDS, 0))
            if now - since < QUIET_SECONDS:
                self._quiet[kind] = (since, left_out + 1)
                return

            self._quiet[kind] = (now, 0)

        more = f" ({left_out} more lines of this kind were left out)" if left_out else ""
        logger.log(level, "%s%s", text, more)
