"""`meanstream mcp` with a real client over standard input and output: public answers, whatever is
tried."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.code_blocks import page_environment
from tests.pipelines.command_line import SECRET, arguments, files, meanstream

anyio = pytest.importorskip("anyio")
mcp = pytest.importorskip("mcp")

HIDDEN = 0.4242424242
"""In each raw value, and in no public number but by a chance of 1e-9."""
Call = tuple[str, dict[str, Any]]
ATTEMPTS: list[Call] = [
    ("get", {"agent": "a0"}),
    ("estimates", {}),
    ("samples", {"name": "a0"}),
    ("_store", {}),
    ("answer", {"tool": "budget", "arguments": {}}),
    ("spend", {"name": "a0", "releases": 1}),
    ("release", {"name": "a0"}),
    ("budget", {"name": "a0' OR '1'='1"}),
    ("budget", {"spend": 1}),
    ("budget", {"store": "/etc/passwd"}),
    ("budget", {"name": "a0\x00", "limit": True}),
    ("releases", {"name": "'; DELETE FROM ledger; --"}),
    ("releases", {"name": "../../samples.csv"}),
    ("releases", {"sink": "estimates.jsonl"}),
    ("releases", {"after": -1}),
    ("releases", {"after": 2**80}),
    ("releases", {"limit": 10**9}),
    ("releases", {"limit": "1; SELECT * FROM state"}),
    ("releases", {"name": "a" * 1_000_000}),
    ("population", {"method": "none"}),
    ("population", {"method": "meanstream.streaming.agents.store_answers:StoreAnswers"}),
    ("explain", {"epsilon": 100}),
    ("audit", {"signature": "/etc/passwd"}),
    ("plan", {"agents": 3, "sizes": "samples.csv:value", "spread": 0.1}),
    ("plan", {"agents": 3, "sizes": "point:/etc/passwd", "spread": 0.1}),
    ("plan", {"agents": 3, "sizes": "point:5", "spread": 0.1, "covariates": "samples.csv"}),
    ("plan", {"agents": 10**12, "sizes": "point:5", "spread": 0.1}),
    ("plan", {"agents": 3, "sizes": "point:5", "spread": "nan"}),
    ("budget", {"name": {"$ne": None}}),
]
EMPTY = {"budget": "agents", "releases": "releases"}
"""Answers of a name that no agent has."""
ANSWERED: list[Call] = [
    ("explain", {}),
    ("budget", {}),
    ("budget", {"name": "a1"}),
    ("releases", {"limit": 3}),
    ("releases", {"name": "a1", "limit": 1000}),
    ("population", {}),
    ("audit", {}),
    ("plan", {"agents": 100, "sizes": "uniform:1,199", "spread": 0.1}),
]


@dataclass(frozen=True)
class Asked:
    """A store, what a client heard of it, and the files before and after."""

    folder: Path
    tools: list[str]
    answers: Sequence[tuple[Call, bool, str]]
    others: list[str]
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]

    def of(self, call: Call) -> Any:
        ((failed, text),) = [(failed, text) for one, failed, text in self.answers if one == call]
        assert not failed, text
        return json.loads(text)


def ask(folder: Path, store: Path, calls: Sequence[Call]) -> Asked:
    """Run the server in a process of its own, and call its tools."""
    before = files(folder)
    started = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "meanstream.pipelines.commands.main", "mcp", "--store", str(store)],
        env=page_environment(),
        cwd=str(folder),
    )

    async def talk() -> tuple[list[str], list[tuple[Call, bool, str]], list[str]]:
        answers, others = [], []
        async with mcp.Client(mcp.stdio_client(started)) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            for call in calls:
                found = await client.call_tool(*call)
                answers.append((call, bool(found.is_error), found.content[0].text))
            for other in (
                client.list_resources,
                client.list_prompts,
                lambda: client.read_resource("file:///etc/passwd"),
                lambda: client.get_prompt("samples"),
            ):
                try:
                    others.append(str(await other()))
                except mcp.MCPError as error:
                    others.append(f"refused: {error}")
        return tools, answers, others

    tools, answers, others = anyio.run(talk)
    return Asked(folder, tools, answers, others, before, files(folder))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder = tmp_path_factory.mktemp("mcp")
    rows = [
        f"a{i % 5},{HIDDEN + (i % 40) / 100:.10f},2024-01-{1 + i // 24:02}T{i % 24:02}:00:00Z"
        for i in range(300)
    ]
    (folder / "samples.csv").write_text("agent,value,time\n" + "\n".join(rows) + "\n")
    places = {name: folder / f"{name}.jsonl" for name in ("releases",)} | {
        "sink": folder / "estimates.jsonl"
    }
    typed = {
        "source": folder / "samples.csv",
        "lower": 0,
        "upper": 1,
        "epsilon": 1,
        "delta": 1e-6,
        "quiet": True,
    }
    ran = meanstream(
        *("run", "agents", *arguments(typed | places | {"store": folder / "state.db"})),
        environment={"MEANSTREAM_SECRET": SECRET},
    )
    assert ran.code == 0, ran.err
    return ask(folder, folder / "state.db", [*ANSWERED, *ATTEMPTS])


def test_a_client_sees_six_tools_and_no_other_thing(asked: Asked) -> None:
    assert sorted(asked.tools) == ["audit", "budget", "explain", "plan", "population", "releases"]
    assert len(asked.others) == 4
    assert all(other.startswith("refused: Method not found") for other in asked.others)


def test_answers_are_those_of_the_public_commands(asked: Asked) -> None:
    store = str(asked.folder / "state.db")
    budget = meanstream("budget", "--store", store, "--json").json
    for row in budget["agents"]:
        row.pop("ends")
    assert asked.of(("budget", {})) == {"agents": budget["agents"], "summary": budget["summary"]}
    assert (
        asked.of(("audit", {})) == meanstream("ledger", "verify", "--store", store, "--json").json
    )
    lines = [
        json.loads(line) for line in (asked.folder / "releases.jsonl").read_text().splitlines()
    ]
    assert asked.of(("releases", {"limit": 3}))["releases"] == lines[:3]
    of_one = asked.of(("releases", {"name": "a1", "limit": 1000}))
    assert of_one == {
        "releases": [line for line in lines if line["agent"] == "a1"],
        "next": len(lines),
    }
    explained = meanstream("explain", "agents", "--store", store, "--json").json
    explained.pop("collaboration")
    assert asked.of(("explain", {})) == explained
    words = ["--agents", "100", "--sizes", "uniform:1,199", "--spread", "0.1"]
    planned = meanstream("plan", "agents", "--store", store, *words, "--json").json
    planned.pop("unit")
    assert asked.of(ANSWERED[-1]) == planned
    assert asked.of(("population", {}))["agents"] == 5


@pytest.mark.parametrize(
    "attempt", ATTEMPTS, ids=[f"{n}-{tool}" for n, (tool, _) in enumerate(ATTEMPTS)]
)
def test_an_attempt_is_refused_or_answered_with_nothing(attempt: Call, asked: Asked) -> None:
    ((failed, text),) = [(failed, text) for call, failed, text in asked.answers if call == attempt]
    if not failed:
        assert attempt[0] in EMPTY
        assert json.loads(text)[EMPTY[attempt[0]]] == []
    assert len(text) < 1000
    assert "Traceback" not in text


def test_no_raw_value_and_no_private_number_is_in_any_answer_and_nothing_is_spent(
    asked: Asked,
) -> None:
    said = json.dumps([text for _, _, text in asked.answers]) + str(asked.others)
    estimates = [
        json.loads(line) for line in (asked.folder / "estimates.jsonl").read_text().splitlines()
    ]
    private = {repr(one[name]) for one in estimates for name in ("value", "local")}
    assert len(private) > 5
    assert [number for number in private if number in said] == []
    assert "424242" not in said
    assert SECRET not in said
    assert "root:" not in said
    assert asked.after == asked.before
    assert "state.db-wal" not in asked.after


def test_the_check_for_private_numbers_can_fail(asked: Asked) -> None:
    """The same search finds the numbers where they are."""
    said = (asked.folder / "estimates.jsonl").read_text() + (
        asked.folder / "samples.csv"
    ).read_text()
    first = json.loads(said.splitlines()[0])
    assert repr(first["value"]) in said
    assert "424242" in said


def test_a_store_of_rounds_has_no_population(tmp_path: Path) -> None:
    rows = [
        f"u{i % 40},0.{i % 97:02},2024-01-0{1 + i // 100}T00:00:{i % 60:02}Z" for i in range(400)
    ]
    (tmp_path / "samples.csv").write_text("user,value,time\n" + "\n".join(rows) + "\n")
    typed = {
        "source": tmp_path / "samples.csv",
        "lower": 0,
        "upper": 1,
        "epsilon": 1,
        "window": "1d",
        "quiet": True,
    }
    places = {
        "store": tmp_path / "state.db",
        "sink": tmp_path / "means.jsonl",
        "reports": tmp_path / "reports.jsonl",
    }
    ran = meanstream(
        "run", "rounds", *arguments(typed | places), environment={"MEANSTREAM_SECRET": SECRET}
    )
    assert ran.code == 0, ran.err
    plan = ("plan", {"users": 1000, "sizes": "point:10"})
    calls: list[Call] = [
        ("explain", {}),
        ("budget", {"limit": 1}),
        ("releases", {"limit": 1000}),
        ("audit", {}),
        plan,
    ]
    found = ask(tmp_path, tmp_path / "state.db", [*calls, ("population", {})])
    assert "population" not in found.tools
    assert [failed for _, failed, _ in found.answers] == [False] * 5 + [True]
    reports = [json.loads(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()]
    reports = [line for line in reports if "payload" in line]  # without the ends of stages
    assert found.of(calls[2])["releases"] == reports
    assert found.of(("audit", {}))["rows"] == len(reports)
    assert found.after == found.before


def test_what_is_no_store_is_one_line(tmp_path: Path) -> None:
    assert (
        "store must be an existing file"
        in meanstream("mcp", "--store", str(tmp_path / "none.db")).message
    )
