"""`--dry-run` refuses what a run would refuse, and makes nothing."""

from __future__ import annotations

from pathlib import Path

from tests.pipelines.command_line import files, meanstream, run_agents, write_samples


def test_it_tells_what_a_run_would_begin_with_and_makes_nothing(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv", rows=240)
    before = files(tmp_path)
    ran = run_agents(tmp_path, dry_run=True)
    assert (ran.code, ran.err) == (0, b"")
    assert "which will begin; deployment 'test'" in ran.out.decode()
    unnamed = run_agents(tmp_path, dry_run=True, name=None).out.decode()
    assert "which will begin; deployment of a new name of its own" in unnamed
    assert "nothing was read or written" in ran.out.decode()
    assert files(tmp_path) == before


def test_it_tells_what_a_store_goes_on_with(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv", rows=240)
    run_agents(tmp_path)
    before = files(tmp_path)
    facts = run_agents(tmp_path, dry_run=True, json=True).json
    assert facts["store"]["agents"] > 0
    kept = meanstream("store", "show", "--store", str(tmp_path / "state.db"), "--json").json["name"]
    assert facts["store"]["name"] == kept
    assert f"deployment {kept!r}" in run_agents(tmp_path, dry_run=True).out.decode()
    assert 0 < facts["store"]["spent_max"] <= facts["privacy"]["horizon"]
    assert files(tmp_path) == before


def test_it_refuses_what_a_run_would_refuse(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv", rows=240)
    run_agents(tmp_path)
    write_samples(tmp_path / "other.csv", rows=240)
    for changes in (
        {"epsilon": 2},
        {"source": tmp_path / "none.csv"},
        {"agent": "tail"},
        {"lateness": "3h"},
        {"source": tmp_path / "other.csv"},
        {"name": "another"},
        {"sink": tmp_path / "estimates.txt"},
        {"secret_file": tmp_path / "none"},
        {"collaboration": "gossip"},
        {"metrics": "nowhere"},
    ):
        refused = run_agents(tmp_path, dry_run=True, **changes).message
        assert refused == run_agents(tmp_path, **changes).message
