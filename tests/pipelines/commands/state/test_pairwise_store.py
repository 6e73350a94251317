"""Commands on a store of agents that query each other: what each says, and what it must not say."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pytest

from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.pipelines.page.page_answers import AnswersServer
from meanstream.streaming.agents.pairwise.pairwise_engine import pairs_at_rest
from meanstream.streaming.store.state_store import Store
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream
from tests.streaming.support.stored_rows import stored_rows

NAMES = [f"agent {number}" for number in range(6)]
STEPS = 40
SCHEDULES = ("round_robin", "restricted_round_robin")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the samples of two classes of three agents, one sample a minute each."""
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    write(tmp_path / "samples.csv")
    rows = [(a, b) for a in NAMES[:5] for b in NAMES[:4] if a != b]
    text = "\n".join(["agent,partner", *(",".join(row) for row in rows)])
    (tmp_path / "partners.csv").write_text(text + "\n")
    return tmp_path


def write(path: Path, begin: int = 0, shift: float = 0.0, of: int = 0) -> Path:
    rng = np.random.default_rng(3 + begin)
    means = np.where(np.arange(len(NAMES)) % 2, 0.2, 0.8)
    values = means + rng.normal(0, 0.05, (STEPS, len(NAMES)))
    values[:, of] += shift
    rows = [
        f"{name},{value!r},{60 * (begin + step)}"
        for step, row in enumerate(values.tolist())
        for name, value in zip(NAMES, row, strict=True)
    ]
    path.write_text("\n".join(["agent,value,time", *rows]) + "\n")
    return path


def later(folder: Path) -> Path:
    """Adopt a file of as many later samples, and return it."""
    file = write(folder / "later.csv", STEPS)
    assert on_store(folder, "store", "adopt", "--source", str(file)).code == 0
    return file


def run(folder: Path, **changes: Any) -> Ran:
    named = {
        "source": folder / "samples.csv", "lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6,
        "name": "test", "store": folder / "state.db", "sink": folder / "estimates.jsonl", "schedule": "round_robin",
        "stddev": 0.05, "members": True, "level": 0.9, "quiet": True, **changes,
    }  # fmt: skip
    given = {name: value for name, value in named.items() if value is not None}
    ran = meanstream("run", "agents", *arguments(given))
    assert ran.code == 0, ran.err
    return ran


def on_store(folder: Path, *words: str) -> Ran:
    return meanstream(*words, "--store", str(folder / "state.db"))


def last_lines(folder: Path) -> dict[str, dict[str, Any]]:
    rows = map(json.loads, (folder / "estimates.jsonl").read_bytes().splitlines())
    return {row["agent"]: row for row in rows}


def told(folder: Path, until: float = np.inf) -> Counter[tuple[str, str]]:
    """Count the releases by agent and reader, as the rows of the ledger say."""
    rows = [(json.loads(row[-2]), row[-3]) for row in stored_rows(folder / "state.db")]
    return Counter((one["agent"], one["reader"]) for one, time in rows if time <= until)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("partners", [False, True])
def test_get_answers_as_the_run_did_with_members(
    schedule: str, partners: bool, folder: Path
) -> None:
    file = folder / "partners.csv" if partners else None
    run(folder, schedule=schedule, partners=file)
    for name, line in last_lines(folder).items():
        found = on_store(folder, "get", name, "--json").json
        age = found.pop("age_seconds")
        found.pop("budget")
        assert found == line
        assert age > 0

    # Both classes were found, so that members say something.
    line = on_store(folder, "get", NAMES[0], "--json").json
    assert line["members"] == ["agent 2"] if partners else ["agent 2", "agent 4"]
    shown = on_store(folder, "get", NAMES[0]).out.decode()
    assert f"class: with {', '.join(line['members'])}\n" in shown
    assert "towards each reader" in shown


def test_get_shows_an_agent_what_it_has_spent_towards_its_readers(folder: Path) -> None:
    run(folder)
    release = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, counter="pm1", spread_share=0)
    five = PairwiseStreamSettings(release=release).coalition_epsilon(5)
    for name in NAMES:
        most = max(made for (agent, _), made in told(folder).items() if agent == name)
        assert on_store(folder, "get", name, "--json").json["budget"] == {
            "readers": 5,
            "spent": most,
            "remaining": 1_000_000 - most,
            "horizon": 1_000_000,
            "epsilon_of_all_readers": pytest.approx(five),
        }


def test_what_depends_on_values_of_readers_is_not_in_an_answer(folder: Path) -> None:
    """Whom an agent is queried by follows from its readers' raw means: the operator sees it."""
    run(folder, schedule="restricted_round_robin")
    budget = on_store(folder, "get", NAMES[0], "--json").json["budget"]
    assert budget == {"readers": None, "spent": None, "remaining": None, "horizon": 1_000_000}
    assert b"at most 1000000 releases to each reader" in on_store(folder, "get", NAMES[0]).out
    assert b"for the operator" in on_store(folder, "budget").out


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_values_of_a_reader_change_nothing_in_the_answers_of_those_it_queries(
    schedule: str, folder: Path
) -> None:
    """Two worlds: agent 5, which nobody queries, has other values, and so queries others."""
    rows = [(a, b) for a in NAMES for b in NAMES[:5] if a != b]
    partners = folder / "all.csv"
    partners.write_text("\n".join(["agent,partner", *(",".join(row) for row in rows)]) + "\n")
    answers = []
    budgets = []
    for world, shift in (("w1", 0.0), ("w2", 0.4)):
        place = folder / world
        place.mkdir()
        write(place / "samples.csv", shift=shift, of=5)
        run(place, schedule=schedule, epsilon=30, partners=partners)
        found = [on_store(place, "get", name, "--json").json for name in NAMES[:5]]
        answers.append([{**one, "age_seconds": 0} for one in found])
        budgets.append(on_store(place, "budget", "--json").json["agents"][:5])

    assert answers[0] == answers[1]

    # What would leak, if an answer had it; with round robin it is a function of times.
    assert (budgets[0] == budgets[1]) == (schedule == "round_robin")


@pytest.mark.parametrize("words", [("--top", "2"), ("--difference", *NAMES[:2])])
def test_releases_for_one_reader_rank_nobody(words: tuple[str, ...], folder: Path) -> None:
    run(folder)
    message = on_store(folder, "get", *words).message
    assert "store must have releases that everyone reads" in message
    assert "`meanstream get AGENT` has the answer of each" in message


@pytest.mark.parametrize("fault", ["gone", "changed"])
def test_a_graph_that_is_no_longer_there_is_one_line_with_a_way_out(
    fault: str, folder: Path
) -> None:
    place = folder / "partners.csv"
    run(folder, partners=place)
    text = place.read_text()
    other = folder / "elsewhere.csv"
    other.write_text(text)
    if fault == "gone":
        place.unlink()
    else:
        place.write_text(text + "agent 5,agent 0\n")

    for words in (("get", NAMES[0]), ("store", "forget", NAMES[0])):
        message = on_store(folder, *words).message
        assert "partners must be " in message
        assert "run once more with --partners" in message

    # The way out: the next run knows where the file is now.
    run(folder, partners=other)
    assert on_store(folder, "get", NAMES[0], "--json").json["n"] == STEPS
    assert on_store(folder, "budget").code == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_budget_counts_the_rows_of_the_ledger_by_reader(schedule: str, folder: Path) -> None:
    run(folder, schedule=schedule, counter="pm2", horizon=9)
    rows = told(folder)
    found = on_store(folder, "budget", "--json").json
    assert found["public"] == (schedule == "round_robin")
    for row in found["agents"]:
        own = {reader: made for (agent, reader), made in rows.items() if agent == row["agent"]}
        assert (row["readers"], row["spent"]) == (len(own), max(own.values()))
        assert row["spent"] + row["remaining"] == row["horizon"] == 9
        one = on_store(folder, "budget", "--agent", row["agent"], "--json").json
        assert one["agents"] == [row]
        assert {r["reader"]: (r["spent"], r["remaining"]) for r in one["readers"]} == {
            reader: (made, 9 - made) for reader, made in own.items()
        }

    summary = found["summary"]
    assert (summary["pairs"], summary["releases"]) == (len(rows), rows.total())
    assert summary["at_horizon"] == sum(made == 9 for made in rows.values())
    shown = on_store(folder, "budget").out.decode()
    assert f"6 agents: {rows.total():,} releases in {len(rows):,} pairs" in shown


def test_the_budget_as_of_a_time_counts_what_was_released_until_then(folder: Path) -> None:
    run(folder)
    until = "1970-01-01T00:10:00Z"
    found = on_store(folder, "budget", "--as-of", until, "--json").json
    assert 0 < found["summary"]["releases"] == told(folder, 600.0).total() < told(folder).total()
    assert "agent must be one of the store's" in on_store(folder, "budget", "--agent", "x").message


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("partners", [False, True])
def test_a_forgotten_agent_sends_nothing_more_and_others_keep_what_they_have(
    schedule: str, partners: bool, folder: Path
) -> None:
    shared = {"schedule": schedule, "partners": folder / "partners.csv" if partners else None}
    run(folder, **shared)
    before = {name: on_store(folder, "get", name, "--json").json for name in NAMES[1:]}
    spent = told(folder)
    gone = on_store(folder, "store", "forget", NAMES[0], "--json").json
    assert gone["releases"] == sum(n for (agent, _), n in spent.items() if agent == NAMES[0])
    assert gone["name_kept"]
    assert "must have a sample that counts" in on_store(folder, "get", NAMES[0]).message

    # Answers of others, and all that was spent, are as before.
    for name, answer in before.items():
        found = on_store(folder, "get", name, "--json").json
        assert {**found, "age_seconds": 0} == {**answer, "age_seconds": 0}
    assert told(folder) == spent

    # Later samples of it are rejected, and nobody receives anything of it.
    ran = run(folder, **shared, source=later(folder), json=True)
    assert ran.json["rejected"] == {"forgotten": STEPS}
    after = told(folder)
    involved = {pair: n for pair, n in after.items() if NAMES[0] in pair}
    assert involved == {pair: n for pair, n in spent.items() if NAMES[0] in pair}
    assert after.total() > spent.total()
    assert on_store(folder, "get", NAMES[1], "--json").json["n"] == 2 * STEPS


@pytest.mark.parametrize("partners", [False, True])
def test_nothing_private_of_a_forgotten_agent_is_in_the_file(partners: bool, folder: Path) -> None:
    run(folder, stddev=None, partners=folder / "partners.csv" if partners else None)
    place = folder / "state.db"
    with closing(Store.read(place)) as store:
        stream = pairs_at_rest(store, store.settings() or {})

    # Its sums, its mean, what it makes of what it received, and the noise that others received.
    own = stream._own
    needles = [struct.pack("<q", int(own["exact"][0]))[:4]]  # of integers of four or eight bytes
    needles += [struct.pack("<d", float(own[name][0])) for name in ("total", "mean", "spread")]
    columns = dict(stream._arrays())
    received = stream._layout.partner_rows(0, len(NAMES))[-1]
    needles.append(struct.pack("<d", float(columns["pair value"][received])))
    noised = stream._layout.readers(0, len(NAMES))[1][0]
    noise = next(array for name, array in columns.items() if name.startswith("counter "))
    needles.append(struct.pack("<d", float(noise[noised])))
    before = files(folder)
    assert all(needle in before for needle in needles), "the control: it was there"

    assert on_store(folder, "store", "forget", NAMES[0]).code == 0
    after = files(folder)
    assert not [needle for needle in needles if needle in after]


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("state.db*")))


def test_an_agent_that_exchanged_nothing_leaves_no_name(folder: Path) -> None:
    """The graph names agent 5 nowhere: it learns alone."""
    run(folder, partners=folder / "partners.csv")
    shown = on_store(folder, "store", "forget", NAMES[5]).out.decode()
    assert "its name is gone, too" in shown
    assert NAMES[5].encode() not in (folder / "state.db").read_bytes()
    assert (
        "must be one that the store has samples of"
        in on_store(folder, "store", "forget", NAMES[5]).message
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_agents_ask_for_their_answers_over_http(schedule: str, folder: Path) -> None:
    run(folder, schedule=schedule, answers="127.0.0.1:0")
    line = last_lines(folder)[NAMES[2]]
    with AnswersServer("127.0.0.1:0", [folder / "state.db"]) as server:
        connection = HTTPConnection(urlsplit(server.url).netloc, timeout=10)
        for token, status in ((server.token, 200), ("another-token-0001", 401)):
            headers = {"Authorization": f"Bearer {token}"}
            connection.request("GET", f"/v1/agents/{quote(NAMES[2])}", headers=headers)
            answer = connection.getresponse()
            found = json.loads(answer.read())
            assert answer.status == status
            if status == 200:
                assert {name: found[name] for name in line} == line
                assert (found["budget"]["spent"] is None) == (schedule != "round_robin")
        connection.close()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_explain_says_what_one_reader_learns_and_several_who_pool(
    schedule: str, folder: Path
) -> None:
    run(folder, schedule=schedule, partners=folder / "partners.csv", counter="pm2", horizon=9)
    found = on_store(folder, "explain", "agents", "--json").json
    settings = PairwiseStreamSettings(
        release=AgentsSettings(
            lower=0, upper=1, epsilon=1, delta=1e-6, counter="pm2", horizon=9, spread_share=0
        )
    )
    assert found["readers_who_pool"] == [
        {"readers": 1, "epsilon": 1.0},
        *({"readers": n, "epsilon": pytest.approx(settings.coalition_epsilon(n))} for n in (5, 50)),
    ]
    assert (found["releases"]["schedule"], found["mechanism"]["horizon"]) == (schedule, 9)
    assert found["name"] == "test"
    shown = on_store(folder, "explain", "agents").out.decode()
    assert "goes to its reader alone" in shown
    assert "per-person" not in shown, "no option of a pairwise schedule"
    assert (
        "registry must be left out" in on_store(folder, "explain", "agents", "--registry").message
    )


def test_explain_takes_the_file_of_a_pairwise_run(folder: Path) -> None:
    config = folder / "run.yaml"
    config.write_text("lower: 0\nupper: 1\nepsilon: 1\nschedule: round_robin\nmode: tuned\n")
    found = meanstream("explain", "agents", "--config", str(config), "--json").json
    assert [one["readers"] for one in found["readers_who_pool"]] == [1, 5, 50]
    config.write_text(config.read_text() + "collaboration: tests\n")
    message = meanstream("explain", "agents", "--config", str(config)).message
    assert "collaboration must be left out with --schedule round_robin" in message


REFUSALS = {
    "plan": (
        (
            "plan",
            "agents",
            "--sizes",
            "point:40",
            "--agents",
            "6",
            "--stddev",
            ".05",
            "--spread",
            ".2",
        ),
        "`run agents` with its default --schedule has some for all",
    ),
    "mcp": (("mcp",), "`meanstream report` has what everyone may know of it"),
    "run": (
        (
            "run",
            "agents",
            "--source",
            "synthetic:3,9",
            "--lower",
            "0",
            "--upper",
            "1",
            "--epsilon",
            "1",
        ),
        "go on with its --schedule round_robin",
    ),
}


@pytest.mark.parametrize("command", REFUSALS)
def test_what_is_not_for_pairs_is_refused_with_a_way_out(command: str, folder: Path) -> None:
    run(folder)
    words, way_out = REFUSALS[command]
    message = on_store(folder, *words).message
    assert "one of agents that query each other: " in message
    assert message.endswith(way_out), message


def test_a_partition_of_pairs_cannot_move_to_another_store(folder: Path) -> None:
    run(folder)
    places = ("--from", str(folder / "state.db"), "--to", str(folder / "other.db"))
    message = meanstream("store", "move", *places, "--partition", "0").message
    assert message.endswith("their pairs live in one store; --partners FILE lets each query fewer")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_report_is_the_same_whatever_the_values_are(schedule: str, folder: Path) -> None:
    """Two worlds: all values of one agent differ, and with them releases, classes and queries."""
    reports = []
    releases = []
    for world, shift in (("w1", 0.0), ("w2", -0.6)):
        place = folder / world
        place.mkdir()
        write(place / "samples.csv", shift=shift)
        run(place, schedule=schedule, epsilon=30)
        assert on_store(place, "report", str(place / "r.html")).code == 0
        text = (place / "r.html").read_text()
        reports.append(re.sub(r"<tr><th>made</th>.*?</tr>|/\S*/w[12]/", "", text))
        releases.append([json.loads(row[-2])["total"] for row in stored_rows(place / "state.db")])

    assert reports[0] == reports[1]
    assert releases[0] != releases[1]
    assert ("<svg" in reports[0]) == (schedule == "round_robin")
    assert "Readers who pool" in reports[0]
    assert f"--schedule {schedule}" in reports[0]


def test_a_run_goes_on_with_room_for_fewer_agents(folder: Path) -> None:
    """Saved for the most agents, the state holds rows of agents that never came."""
    run(folder)
    run(folder, max_agents=700)
    run(folder, max_agents=len(NAMES), source=later(folder))
    assert {row["n"] for row in last_lines(folder).values()} == {2 * STEPS}
