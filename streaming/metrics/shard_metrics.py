"""The metrics and probes of several processes at one address, each with the number of its shard."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

from meanstream.streaming.metrics.engine_metrics import LIVE, labelled_exposition

TIMEOUT_SECONDS = 5.0
MOST_AT_ONCE = 16
LABEL = "shard"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NOT_READY = (
    f"# HELP meanstream_ready {LIVE['ready']}\n"
    "# TYPE meanstream_ready gauge\n"
    "meanstream_ready%s 0\n"
)


def _read(url: str, path: str) -> tuple[int, str]:
    """Ask a process of this machine, never through a proxy."""
    if not url:
        return 0, "the process has not begun"

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/{path}", timeout=TIMEOUT_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, "the process does not answer"


def _read_all(urls: Sequence[str], path: str) -> list[tuple[int, str]]:
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        return list(pool.map(_read, urls, [path] * len(urls)))


class ShardMetrics:
    """The metrics of all shards; of one that does not answer, that it is not ready.

    Parameters
    ----------
    urls : sequence of str
        Where each shard answers, in the order of their numbers; empty until it says so.
    private : bool
        Whether each sample has the label of metrics for the operator alone.
    """

    def __init__(self, urls: Sequence[str], *, private: bool = False) -> None:
        self._urls = urls
        self._not_ready = _NOT_READY % ('{trust="private"}' if private else "")

    def application(self) -> Callable[..., Iterable[bytes]]:
        """Return the WSGI application that answers a scrape, in Prometheus' text format."""
        return self._answer

    def _answer(self, _: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
        answers = _read_all(self._urls, "metrics")
        headers = [("Content-Type", CONTENT_TYPE), ("Cache-Control", "no-store")]
        if all(status != HTTPStatus.OK for status, _ in answers):
            start_response("503 Service Unavailable", headers)
            return [b"no shard answers\n"]

        # Without a series of a shard that hangs no alert would fire.
        texts = {
            str(number): text if status == HTTPStatus.OK else self._not_ready
            for number, (status, text) in enumerate(answers)
        }
        start_response("200 OK", headers)
        return [labelled_exposition(texts, LABEL)]


class ShardHealth:
    """The probes of all shards: the first that has a problem, and which."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls

    def not_alive(self) -> str | None:
        """Say why the processes should be replaced, or None."""
        return self._problem("healthz")

    def not_ready(self) -> str | None:
        """Say why a shard cannot do its work now, or None."""
        return self._problem("readyz")

    def _problem(self, probe: str) -> str | None:
        for number, (status, text) in enumerate(_read_all(self._urls, probe)):
            if status != HTTPStatus.OK:
                return f"shard {number}: {text.strip()}"

        return None
