"""An agent's newest answer, from the store and over HTTP: its own, by its token, and nobody
else's."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, urlsplit

import pytest

from meanstream.pipelines.commands.run.progress_line import announcing_address
from meanstream.pipelines.commands.run.run_agents import run_agents_engine
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.page.page_answers import AnswersServer
from meanstream.streaming.engine.engine_stats import EngineStats
from tests.pipelines.command_line import SECRET, meanstream

Capture = pytest.CaptureFixture[str]
SOME = ("--source", "synthetic:3,60")
RUN = (
    "--lower",
    "0",
    "--upper",
    "10",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--level",
    "0.9",
    "--quiet",
)
TOKENS = {
    "ann": "token-of-ann-000001",
    "b/ö": "token-of-bob-000002",
    "*": "token-of-star-0004",
    "": "token-of-all-000003",
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of three agents, their last estimates, and tokens."""
    folder = tmp_path_factory.mktemp("answers")
    rows = [
        (name, (i * 7) % 10, 1_700_000_000 + i) for i in range(60) for name in ("ann", "b/ö", "cy")
    ]
    lines = [json.dumps({"agent": a, "value": v, "time": t}) for a, v, t in rows]
    (folder / "samples.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "tokens.yaml").write_text(json.dumps(TOKENS))
    (folder / "tokens.yaml").chmod(0o600)
    files = ("--source", str(folder / "samples.jsonl"), "--store", str(folder / "state.db"))
    ran = meanstream(
        *("run", "agents", *files, "--sink", str(folder / "estimates.jsonl"), *RUN),
        environment={"MEANSTREAM_SECRET": SECRET},
    )
    assert ran.code == 0, ran.err
    return folder


def test_the_store_answers_as_the_run_did_with_age_and_budget(filled: Path) -> None:
    last = {
        row["agent"]: row
        for row in map(json.loads, (filled / "estimates.jsonl").read_text().splitlines())
    }
    for name, told in last.items():
        found = meanstream("get", name, "--store", str(filled / "state.db"), "--json").json
        age, budget = found.pop("age_seconds"), found.pop("budget")
        assert found == told
        assert age > 0
        assert budget["spent"] + budget["remaining"] == budget["horizon"] == 40
        assert budget["spent"] > 0
    shown = meanstream("get", "ann", "--store", str(filled / "state.db"))
    assert (shown.code, len(shown.out.splitlines())) == (0, 4)
    assert b"(90 %), of 60 samples" in shown.out


def test_an_agent_or_a_store_that_is_none_is_one_line(filled: Path, tmp_path: Path) -> None:
    message = meanstream("get", "dan", "--store", str(filled / "state.db")).message
    assert message.startswith("agent must have a sample that counts in ")
    misspelled = meanstream("get", " Ann", "--store", str(filled / "state.db")).message
    assert misspelled.endswith("got ' Ann'; did you mean 'ann'?")
    assert meanstream("get", "ann", "--store", str(tmp_path / "no.db")).message.startswith(
        "store must be"
    )


@contextmanager
def served(filled: Path, tokens: Path | None) -> Iterator[AnswersServer]:
    with AnswersServer("127.0.0.1:0", [filled / "state.db"], tokens) as server:
        yield server


def ask(
    server: AnswersServer, path: str, token: str | None = None, host: str | None = None
) -> tuple[int, dict[str, object]]:
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request("GET", path, headers=headers | ({} if host is None else {"Host": host}))
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, json.loads(body)


def test_a_token_opens_its_own_agent_and_no_other(filled: Path) -> None:
    with served(filled, filled / "tokens.yaml") as server:
        status, found = ask(server, "/v1/agents/ann", TOKENS["ann"])
        assert (status, found["agent"], found["n"]) == (200, "ann", 60)
        assert {"interval", "age_seconds", "budget"} <= found.keys()
        assert (
            ask(server, f"/v1/agents/{quote('b/ö', safe='')}", TOKENS["b/ö"])[1]["agent"] == "b/ö"
        )
        assert ask(server, "/v1/agents/cy", TOKENS[""])[1]["agent"] == "cy"
        assert ask(server, "/v1/agents/dan", TOKENS[""])[0] == 404
        assert (
            ask(server, "/v1/agents/*", TOKENS["*"])[0] == 404
        )  # a name like any other, that no sample has
        refused = [
            ask(server, "/v1/agents/cy", TOKENS["ann"]),  # another's
            ask(server, "/v1/agents/cy", TOKENS["*"]),
            ask(server, "/v1/agents/dan", TOKENS["ann"]),  # nobody's: told apart by nothing
            ask(server, "/v1/agents/ann", TOKENS["ann"] + "x"),
            ask(server, "/v1/agents/*", ""),
            ask(server, "/v1/agents/ann"),
            ask(server, f"/v1/agents/ann?token={TOKENS['ann']}"),
        ]
        assert {status for status, _ in refused} == {401}
        assert len({json.dumps(body) for _, body in refused}) == 1
        assert ask(server, "/v1/agents/ann", TOKENS["ann"], host="evil.example")[0] == 403
        assert ask(server, "/v1/agents/", TOKENS[""])[0] == 404
        assert ask(server, "/data", TOKENS[""])[0] == 404


@pytest.mark.parametrize(
    "hostile",
    [
        f"Content-Length: {len(TOKENS['ann'])}",
        "Transfer-Encoding: chunked",
        "Content-Length: 0\r\nContent-Length: 9",
        "Content-Length : 9",
        "Content-Length: +0",
        "Host: evil.example",
    ],
)
def test_what_follows_a_request_is_never_taken_for_the_next_one(hostile: str, filled: Path) -> None:
    """Behind a proxy the second answer would be given to whoever asks next."""
    with served(filled, filled / "tokens.yaml") as server:
        place = urlsplit(server.url)
        own = f"Host: {place.netloc}\r\nAuthorization: Bearer {TOKENS['ann']}\r\n"
        second = f"GET /v1/agents/ann HTTP/1.1\r\n{own}Connection: close\r\n\r\n"
        with socket.create_connection((place.hostname, place.port), 10) as client:
            client.sendall(
                f"GET /v1/agents/ann HTTP/1.1\r\n{own}{hostile}\r\n\r\n{second}".encode()
            )
            answer = b""
            with suppress(ConnectionResetError):
                while more := client.recv(65536):
                    answer += more
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_an_address_that_is_none_is_answered(filled: Path) -> None:
    with served(filled, filled / "tokens.yaml") as server:
        place = urlsplit(server.url)
        with socket.create_connection((place.hostname, place.port), 10) as client:
            client.sendall(
                f"GET http://[/v1/agents/ann HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode()
            )
            assert client.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_what_is_not_asked_for_by_get_is_refused_in_one_line(filled: Path) -> None:
    """Not by a page of HTML, which a program that reads JSON would show to somebody."""
    with served(filled, filled / "tokens.yaml") as server:
        place = urlsplit(server.url)
        with socket.create_connection((place.hostname, place.port), 10) as client:
            client.sendall(b"POST /v1/agents/ann HTTP/1.0\r\n\r\n")
            head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 501 ")
    assert b"Content-Type: text/plain" in head
    assert body == b"Unsupported method ('POST')\n"


def test_without_tokens_one_is_made(filled: Path) -> None:
    with served(filled, None) as server:
        assert ask(server, "/v1/agents/ann", server.token)[0] == 200
        assert ask(server, "/v1/agents/ann", "")[0] == 401


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (
            "ann: short",
            0o600,
            "answer_tokens must have texts of 16 to 512 visible characters, got another of 'ann'",
        ),
        ("ann: 12345678901234567", 0o600, "answer_tokens must have texts of 16"),
        (
            "a: token-of-ann-000001\nb: token-of-ann-000001",
            0o600,
            "answer_tokens must have another token for each agent",
        ),
        ("a: token-of-ann-000001", 0o644, "answer_tokens must be readable by its owner alone"),
        ("- a", 0o600, "answer_tokens must be a YAML file of AGENT: TOKEN"),
        (
            "1.5: token-of-ann-000001\n1.50: token-of-bob-000001",
            0o600,
            "answer_tokens must have names of agents in quotes",
        ),
        ("true: token-of-ann-000001", 0o600, "answer_tokens must have names of agents in quotes"),
        ("a: {", 0o600, "answer_tokens must be a YAML file of AGENT: TOKEN"),
    ],
)
def test_tokens_that_are_none_are_refused_without_being_shown(
    text: str, mode: int, message: str, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(text)
    os.chmod(tokens, mode)
    ran = meanstream(
        "run", "agents", *SOME, "--answers", "127.0.0.1:0", "--answer-tokens", str(tokens), *RUN
    )
    assert ran.message.startswith(message)
    assert "token-of" not in ran.message


def test_other_machines_are_let_in_only_where_that_is_said_and_by_tokens() -> None:
    message = meanstream("run", "agents", *SOME, "--answers", "0.0.0.0:9", *RUN).message
    assert message.startswith(
        "answers must be an address of this machine only, unless --answers-remote"
    )
    message = meanstream(
        "run", "agents", *SOME, "--answers", "0.0.0.0:9", "--answers-remote", *RUN
    ).message
    assert message.startswith("answer_tokens must be given with --answers-remote")
    assert meanstream("run", "agents", *SOME, "--answers-remote", *RUN).message.startswith(
        "answers_remote must come with"
    )


def test_a_running_engine_answers_from_what_it_has_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard error is a log, which others may read: the token that opens every answer is in a
    file of the owner's."""
    answers: list[tuple[int, dict[str, object]]] = []
    told = tmp_path / "state.db.answers"

    def look(stats: EngineStats) -> None:
        found = re.fullmatch(
            r"(http://.*/v1/agents/)AGENT, Authorization: Bearer (\S+)\n", told.read_text()
        )
        assert found is not None
        assert told.stat().st_mode & 0o077 == 0
        assert found[2] not in "".join(capsys.readouterr())
        server = SimpleNamespace(url=found[1])
        answers.append(ask(server, "/v1/agents/agent-000000", found[2]))  # type: ignore[arg-type]

    options = AgentsOptions(
        source="synthetic:3,600", store=tmp_path / "state.db", sink=str(tmp_path / "estimates.jsonl"), batch_size=100,
        lower=0, upper=1, epsilon=1, delta=1e-6, quiet=True, sort=False, answers="127.0.0.1:0",
    )  # fmt: skip
    run_agents_engine(options, also=look)
    counts = [found["n"] for status, found in answers if status == 200]
    assert answers[0][0] == 404
    assert len(counts) >= 1
    assert counts == sorted(counts)
    assert not told.exists()


def test_a_terminal_is_told_the_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with announcing_address(
        "answers", "http://x/AGENT", "secret", store=tmp_path / "s.db", suffix=".answers"
    ) as tell:
        tell()
        assert capsys.readouterr().err == "answers: secret\n"
        assert list(tmp_path.iterdir()) == []
