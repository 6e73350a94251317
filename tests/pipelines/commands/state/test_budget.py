"""`meanstream budget` tells what was spent and what remains, before, during and at the end of a
stream."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.pipelines.command_line import (
    SECRET,
    files,
    meanstream,
    run_agents,
    spoil_row,
    write_samples,
)


def budget(folder: Path, *more: str) -> dict[str, dict[str, Any]]:
    rows = meanstream("budget", "--store", str(folder / "state.db"), "--json", *more).json["agents"]
    return {row.pop("agent"): row for row in rows}


def released(folder: Path) -> Counter[str]:
    return Counter(
        json.loads(line)["agent"] for line in (folder / "releases.jsonl").read_bytes().splitlines()
    )


def test_spent_and_remaining_before_and_after_more_samples(tmp_path: Path) -> None:
    source = tmp_path / "flights.csv"
    notices = tmp_path / "notices.jsonl"
    assert "existing file" in meanstream("budget", "--store", str(tmp_path / "state.db")).message
    spent = []
    for rows in (27, 60, 240):
        write_samples(source, rows=rows)
        ran = run_agents(
            tmp_path,
            sort=None,
            horizon=5,
            notices=notices,
            config=_in_file_order(tmp_path),
            json=True,
        )
        assert ran.code == 0, ran.err
        rows_of = budget(tmp_path)
        before = spent[-1] if spent else dict.fromkeys(rows_of, 0)
        spent.append({agent: row["spent"] for agent, row in rows_of.items()})
        now = [n - before[agent] for agent, n in spent[-1].items()]
        assert ran.json["spent"] == {"agents": sum(map(bool, now)), "most": max(now)}
        assert Counter({a: n for a, n in spent[-1].items() if n}) == released(tmp_path)
        for row in rows_of.values():
            assert row["spent"] + row["remaining"] == row["horizon"] == 5
            assert (row["epsilon"], row["delta"]) == (1.0, 1e-6)
    assert spent[0] == dict.fromkeys(
        ("N0", "N1", "N2"), 1
    )  # 9 samples: the release at the end of the file
    assert 1 < spent[1]["N0"] < 5
    assert spent[2] == dict.fromkeys(("N0", "N1", "N2"), 5)
    told = [json.loads(line) for line in notices.read_bytes().splitlines()]
    assert sorted(event["agent"] for event in told) == ["N0", "N1", "N2"]
    assert {(event["spent"], event["horizon"]) for event in told} == {(5, 5)}


def _in_file_order(folder: Path) -> Path:
    config = folder / "agents.yaml"
    config.write_text("sort: false\n")
    return config


def test_past_the_horizon_estimates_go_on_without_releases(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv", rows=240)
    run_agents(tmp_path, horizon=2)
    last = [json.loads(line) for line in (tmp_path / "estimates.jsonl").read_bytes().splitlines()][
        -3:
    ]
    assert [event["n"] for event in last] == [80, 80, 80]
    assert released(tmp_path) == Counter({"N0": 2, "N1": 2, "N2": 2})


def test_one_agent_and_the_table(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    run_agents(tmp_path)
    assert list(budget(tmp_path, "--agent", "N1")) == ["N1"]
    table = meanstream("budget", "--store", str(tmp_path / "state.db")).out.decode().splitlines()
    assert table[0].split() == ["agent", "spent", "remaining", "horizon", "ends", "protected", "at"]
    rows = budget(tmp_path)
    assert [line.split()[:4] for line in table[1:4]] == [
        [agent, *(str(row[k]) for k in ("spent", "remaining", "horizon"))]
        for agent, row in rows.items()
    ]
    assert {line.partition("  (")[0].split(maxsplit=4)[4] for line in table[1:4]} == {
        "after year 5138"
    }
    assert table[4] == "At this rate no budget ends within 200 years (of 3 agents with a rate)."
    assert len(table) == 6
    most = max(row["spent"] for row in rows.values())
    assert (
        table[-1]
        == f"3 agents: at most {most} of 40 releases spent, 0 at their horizon, 0 releases refused"
    )
    one = (
        meanstream("budget", "--store", str(tmp_path / "state.db"), "--agent", "N1")
        .out.decode()
        .splitlines()
    )
    assert one == [table[0], table[2]]
    message = meanstream("budget", "--store", str(tmp_path / "state.db"), "--agent", "N9").message
    assert message == "agent must be one of the store's, got 'N9'"


def test_when_the_budgets_end_at_this_rate_is_when_they_end(tmp_path: Path) -> None:
    """Samples come at a steady rate: what is foretold from the first of them is what the rest
    brings."""
    write_samples(tmp_path / "flights.csv", rows=240)
    run_agents(tmp_path, horizon=6, schedule="geometric:10,1.4")
    releases = [
        json.loads(line) for line in (tmp_path / "releases.jsonl").read_bytes().splitlines()
    ]
    last = {event["agent"]: event["time"] for event in releases}
    early = sorted(event["time"] for event in releases if event["index"] == 3)[-1]
    foretold = budget(tmp_path, "--as-of", early)
    found = meanstream(
        "budget", "--store", str(tmp_path / "state.db"), "--json", "--as-of", early
    ).json["forecast"]
    assert found["agents"] == 3
    assert found["first_ends"] == min(row["ends"] for row in foretold.values())
    for agent, row in foretold.items():
        told, came = (datetime.fromisoformat(text) for text in (row["ends"], last[agent]))
        assert abs(told - came) < timedelta(hours=3), agent
    assert {row["ends"] for row in budget(tmp_path).values()} == {None}  # all have made it
    table = meanstream("budget", "--store", str(tmp_path / "state.db")).out.decode().splitlines()
    assert {line.split()[4] for line in table[1:4]} == {"ended"}
    assert len(table) == 5


def test_the_summary_counts_all_agents(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv", rows=90)
    run_agents(tmp_path, horizon=4)
    summary = meanstream("budget", "--store", str(tmp_path / "state.db"), "--json").json["summary"]
    assert summary == {"agents": 3, "spent_max": 4, "horizon": 4, "at_horizon": 3, "refused": 0}


def test_as_of_a_time_the_releases_until_then_are_spent(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv", rows=240)
    run_agents(tmp_path)
    releases = [
        json.loads(line) for line in (tmp_path / "releases.jsonl").read_bytes().splitlines()
    ]
    times = sorted({event["time"] for event in releases})
    assert len(times) > 3
    for at in (times[0], times[len(times) // 2], times[-1]):
        spent = {agent: row["spent"] for agent, row in budget(tmp_path, "--as-of", at).items()}
        assert spent == {
            a: sum(e["agent"] == a and e["time"] <= at for e in releases)
            for a in ("N0", "N1", "N2")
        }
    for same in (times[2], times[2].removesuffix("Z"), times[2].replace("Z", "+00:00")):
        assert budget(tmp_path, "--as-of", same) == budget(tmp_path, "--as-of", times[2])
    assert {row["spent"] for row in budget(tmp_path, "--as-of", "2012-12-31").values()} == {0}
    asked = ["budget", "--store", str(tmp_path / "state.db"), "--as-of"]
    assert meanstream(*asked, times[0], "--json").json["summary"]["refused"] is None
    assert meanstream(*asked, times[0]).out.endswith(b"at their horizon\n")
    assert meanstream(*asked, "noon").message == "as_of must be a time in ISO 8601, got 'noon'"


def test_looking_changes_nothing(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    run_agents(tmp_path)
    before = files(tmp_path)
    budget(tmp_path)
    assert {name: data for name, data in files(tmp_path).items() if name in before} == before


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("something else " * 100)
    assert "Meanstream store" in meanstream("budget", "--store", str(tmp_path / "state.db")).message


def test_a_changed_release_is_found_on_the_way(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    run_agents(tmp_path)
    spoil_row(tmp_path / "state.db", 2)
    message = meanstream("budget", "--store", str(tmp_path / "state.db")).message
    assert "store must be undamaged, got a fault in rows 1 to " in message


def test_names_are_shown_as_they_are_and_turn_no_terminal_around(tmp_path: Path) -> None:
    """Right-to-left marks and what has no width are good in a name, and written out wherever one is
    shown."""
    name, shown, store = (
        "ann\u202e\u200bé\ufeff",
        "ann\\u202e\\u200bé\\ufeff",
        ("--store", str(tmp_path / "s.db")),
    )
    lines = [json.dumps({"agent": name, "value": i % 7, "time": 1000 + i}) for i in range(30)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    bounds = ("--lower", "0", "--upper", "9", "--epsilon", "1", "--delta", "1e-6", "--quiet")
    places = ("--source", str(tmp_path / "x.jsonl"), *store, "--sink", str(tmp_path / "e.jsonl"))
    assert (
        meanstream(
            "run", "agents", *bounds, *places, environment={"MEANSTREAM_SECRET": SECRET}
        ).code
        == 0
    )
    for command in (
        ("budget",),
        ("get", name),
        ("budget", "--agent", name),
        ("budget", "--agent", name + "x"),
    ):
        ran = meanstream(*command, *store)
        text = (ran.out + ran.err).decode()
        assert shown in text
        assert [one for one in text.replace("\n", "") if not one.isprintable()] == []
