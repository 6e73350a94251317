"""Agents ask for their own newest answer: `GET /v1/agents/AGENT`, each with its own token."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from meanstream.operators.validation import require
from meanstream.pipelines.page.private_requests import (
    PrivateRequests,
    hosts_of_this_machine,
    require_loopback,
)
from meanstream.streaming.agents.pairwise.pairwise_answers import HostedAnswers
from meanstream.streaming.agents.store_answers import answer_of_stores
from meanstream.streaming.metrics.background import (
    BackgroundServer,
    BoundedThreads,
    parse_server_address,
)
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.strict_yaml import read_strict_yaml_file

AGENTS = "/v1/agents/"
OPERATOR = ""
"""Stands for who runs the store, whose token opens every agent's answer: no agent can have an empty
name."""
LEAST_TOKEN = 16
MOST_TOKEN = 512


def _read_answer_tokens(path: Path) -> dict[str, str]:
    """Read the token of each agent from a YAML file that its owner alone can read: `AGENT: TOKEN`.

    The token of an empty name, `"": TOKEN`, opens every agent's answer. Names come from data, and
    this one cannot.
    """
    what = f"answer_tokens must be a YAML file of AGENT: TOKEN, got {str(path)!r}"
    try:
        shared = path.stat().st_mode & 0o077
        entries = read_strict_yaml_file(path)
    except OSError as error:
        raise ValueError(f"{what} ({error.strerror})") from None
    except Exception:  # its text may quote a token
        raise ValueError(what) from None

    require(not shared, "answer_tokens", "be readable by its owner alone (chmod 600)", str(path))
    if not isinstance(entries, dict) or not entries:
        raise ValueError(what)
    plain = all(isinstance(name, str | int) and not isinstance(name, bool) for name in entries)
    tokens = {str(name): token for name, token in entries.items()}
    rule = "have names of agents in quotes where they look like a number, true, false or null, and each once"
    require(plain and len(tokens) == len(entries), "answer_tokens", rule, str(path))

    for name, token in tokens.items():
        good = (
            isinstance(token, str) and LEAST_TOKEN <= len(token) <= MOST_TOKEN and token.isascii()
        )
        if not good or not token.isprintable() or " " in token:
            rule = f"have texts of {LEAST_TOKEN} to {MOST_TOKEN} visible characters"
            raise ValueError(f"answer_tokens must {rule}, got another of {name!r}")

    require(
        len(set(tokens.values())) == len(tokens),
        "answer_tokens",
        "have another token for each agent",
        str(path),
    )

    return tokens


def check_answers(address: str, tokens: Path | None, *, remote: bool = False) -> dict[str, str]:
    """Read whose token is which.

    Refuse an address that answers would not be served at, or tokens that are none.
    """
    host, _ = parse_server_address(address, "answers")
    require_loopback("answers", host, address, remote=remote)
    require(
        not remote or tokens is not None, "answer_tokens", "be given with --answers-remote", None
    )

    if tokens is None:
        return {}
    return _read_answer_tokens(tokens)


class AnswersServer(BackgroundServer["_AnswersServer"]):
    """Serves `GET /v1/agents/AGENT` while it is open; use as a context manager.

    Parameters
    ----------
    address : str
        `HOST:PORT`; port 0 takes a free one (see `url`).
    stores : sequence of Path
        The store that the engine fills; with shards all of them, of which each agent lives in one.
    tokens : Path, optional
        Whose token is which. Without it there is one for every agent, made at random (see `token`).
    remote : bool
        Listen where other machines can connect. There is no encryption: put a proxy in front of it.

    Notes
    -----
    **Privacy.** An answer mixes in its agent's raw mean: a token opens one agent's answer, or, of who runs the store,
    all. It comes in the header `Authorization: Bearer TOKEN`, never in an address, and is compared in constant time;
    without the right one an agent that exists and one that does not are answered alike.
    """

    def __init__(
        self,
        address: str,
        stores: Sequence[Path],
        tokens: Path | None = None,
        *,
        remote: bool = False,
    ) -> None:
        known = check_answers(address, tokens, remote=remote)
        super().__init__("answers", address, _AnswersServer, _AnswersHandler)
        self.token = None if known else secrets.token_urlsafe(24)
        self._server.answers = [HostedAnswers(store) for store in stores]
        self._server.tokens = known or {OPERATOR: str(self.token)}
        self._server.hosts = hosts_of_this_machine(self.host, remote=remote)
        self.url += AGENTS


class _AnswersServer(BoundedThreads):
    answers: Sequence[HostedAnswers]
    tokens: Mapping[str, str]
    hosts: set[str] | None

    def may_read(self, agent: str, header: str | None) -> bool:
        """Say whether a token opens an agent's answer.

        Each is compared whatever the others were.
        """
        kind, _, given = (header or "").partition(" ")
        typed = given.strip().encode("utf-8", "replace") if kind.lower() == "bearer" else b""
        tokens = [self.tokens.get(token, "") for token in (agent, OPERATOR)]
        return bool(
            sum(hmac.compare_digest(typed, token.encode()) and bool(token) for token in tokens)
        )


class _AnswersHandler(PrivateRequests):
    server: _AnswersServer

    def do_GET(self) -> None:  # noqa: N802
        """Answer if the token is right."""
        path = urlsplit(self.path).path
        server = self.server
        if not self.names_host_of(server.hosts):
            self._say(HTTPStatus.FORBIDDEN, {"error": "answers are for this machine only"})
            return

        name = unquote(path.removeprefix(AGENTS), errors="replace")
        if not path.startswith(AGENTS) or not name or "/" in path.removeprefix(AGENTS):
            self._say(HTTPStatus.NOT_FOUND, {"error": f"there is nothing here but {AGENTS}AGENT"})
        elif not server.may_read(name, self.headers.get("Authorization")):
            self._say(
                HTTPStatus.UNAUTHORIZED,
                {"error": "a token of this agent must come as Authorization: Bearer"},
            )
        else:
            self._answer(name)

    def _answer(self, name: str) -> None:
        try:
            answer = answer_of_stores(self.server.answers, name)
        except StoreError:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the store cannot be read"})
            return

        if answer is None:
            self._say(HTTPStatus.NOT_FOUND, {"error": "no sample of this agent counts yet"})
        else:
            self._say(HTTPStatus.OK, answer)

    def _say(self, status: HTTPStatus, found: Mapping[str, Any]) -> None:
        body = json.dumps(found, allow_nan=False).encode() + b"\n"
        self.send_response(status)
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
        }
        headers |= {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}

        for name, value in {**headers, "X-Content-Type-Options": "nosniff"}.items():
            self.send_header(name, value)

        self.end_headers()
        self.wfile.write(body)
