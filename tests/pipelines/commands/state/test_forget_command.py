"""`meanstream store forget`: what it says, and what other commands say of the agent afterwards."""

from __future__ import annotations

from pathlib import Path

from tests.pipelines.command_line import meanstream, run_agents, write_samples


def test_a_forgotten_agent_keeps_its_spent_budget_and_has_no_answer(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    run_agents(tmp_path, collaboration="none")
    place = ("--store", str(tmp_path / "state.db"))
    spent = {
        row["agent"]: row["spent"] for row in meanstream("budget", *place, "--json").json["agents"]
    }
    ran = meanstream("store", "forget", "N1", *place)
    kept = f"{spent['N1']} releases stay public, and stay spent in the ledger"
    assert ran.out.decode().splitlines() == [
        f"'N1' is forgotten, with 0 samples that waited; {kept}",
        "estimates already written stay in their sinks, and older backups keep what they hold",
    ]
    told = meanstream("store", "forget", "N2", *place, "--json").json
    assert told == {"agent": "N2", "releases": spent["N2"], "samples_waiting": 0, "name_kept": True}
    after = {
        row["agent"]: row["spent"] for row in meanstream("budget", *place, "--json").json["agents"]
    }
    assert after == spent
    assert meanstream("get", "N1", *place).code == meanstream("get", "N9", *place).code != 0
    assert meanstream("get", "N0", *place).code == 0
    assert run_agents(tmp_path, collaboration="none", json=True).json["rejected"] == {}


def test_an_agent_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    run_agents(tmp_path, collaboration="none")
    message = meanstream("store", "forget", "N9", "--store", str(tmp_path / "state.db")).message
    assert message == "agent must be one that the store has samples of, got 'N9'"


def test_a_folder_of_shards_forgets_an_agent_in_each_store_that_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "stores"
    folder.mkdir()
    for number, agents in enumerate((2, 3)):
        write_samples(tmp_path / "flights.csv", agents=agents)
        places = {role: tmp_path / f"{role}-{number}.jsonl" for role in ("sink", "releases")}
        run_agents(tmp_path, collaboration="none", store=folder / f"{number}.db", **places)
    stores = ("--store", str(folder))
    spent = meanstream("budget", *stores, "--json").json["agents"]
    of_both = sum(row["spent"] for row in spent if row["agent"] == "N1")
    gone = meanstream("store", "forget", "N1", *stores, "--json").json
    assert (gone["releases"], gone["name_kept"]) == (of_both, True)
    assert meanstream("get", "N1", *stores).code == 2
    assert meanstream("get", "N0", *stores).code == 0
    assert meanstream("store", "forget", "N2", *stores).code == 0
    assert meanstream("get", "N2", *stores).code == 2
    assert "name one of its stores, such as" in meanstream("store", "show", *stores).message
    assert meanstream("budget", *stores, "--json").json["agents"] == spent
    message = meanstream("store", "forget", "N9", *stores).message
    assert message == f"agent must be one that a store in {str(folder)!r} has samples of, got 'N9'"
