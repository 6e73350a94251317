"""`meanstream run agents`: from a file to everybody's estimate, again and again, and what it shows
meanwhile."""

from __future__ import annotations

import gc
import gzip
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from meanstream.pipelines.commands.run import progress_line as progress
from meanstream.streaming.engine.engine_stats import EngineStats
from tests.pipelines.command_line import (
    SECRET,
    arguments,
    files,
    meanstream,
    options,
    run_agents,
    write_samples,
)
from tests.warm_command import run_forked


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_samples(tmp_path / "flights.csv")
    return tmp_path


def events(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_every_agent_with_a_sample_has_an_estimate_and_the_last_is_its_newest(folder: Path) -> None:
    with (folder / "flights.csv").open("a") as file:
        file.write("LONER,7,2013-01-02T00:00:00Z,F60\n")
    summary = run_agents(folder, json=True).json
    assert (summary["events"], summary["accepted"], summary["agents"]) == (61, 61, 4)
    assert summary["releases"] == len(events(folder / "releases.jsonl"))
    last = {event["agent"]: event for event in events(folder / "estimates.jsonl")}
    assert {agent: event["n"] for agent, event in last.items()} == {
        "N0": 20,
        "N1": 20,
        "N2": 20,
        "LONER": 1,
    }
    for event in last.values():
        low, high = event["interval"]  # type: ignore[misc]
        assert -30 <= low <= event["value"] <= high <= 120  # type: ignore[has-type]
        assert (event["epsilon"], event["delta"], event["mode"], event["level"]) == (
            1.0,
            1e-6,
            "tuned",
            0.95,
        )
    assert last["LONER"]["local"] == 7.0


def test_a_second_run_emits_nothing_new(folder: Path) -> None:
    outputs = {
        "population": folder / "population.jsonl",
        "notices": folder / "n.jsonl",
        "dead_letters": folder / "d.jsonl",
    }
    assert run_agents(folder, json=True, **outputs).json["releases"] > 0
    before = {name: data for name, data in files(folder).items() if "state.db" not in name}
    for _ in range(2):
        summary = run_agents(folder, json=True, **outputs).json
        assert (summary["releases"], summary["estimates"], summary["accepted"]) == (0, 0, 0)
        assert {
            name: data for name, data in files(folder).items() if "state.db" not in name
        } == before


def test_the_same_name_secret_and_input_give_the_same_releases(folder: Path) -> None:
    """Noise is a function of secret, name, release and input: a store that is put back repeats what
    it released."""
    run_agents(folder)
    run_agents(
        folder, store=folder / "second.db", sink=folder / "e.jsonl", releases=folder / "r.jsonl"
    )
    assert (folder / "r.jsonl").read_bytes() == (folder / "releases.jsonl").read_bytes()
    assert (folder / "e.jsonl").read_bytes() == (folder / "estimates.jsonl").read_bytes()


def test_without_a_secret_one_is_made_beside_the_store_and_found_again(folder: Path) -> None:
    typed = arguments(options(folder, quiet=True))
    assert meanstream("run", "agents", *typed).code == 0
    made = folder / "state.db.secret"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert meanstream("run", "agents", *typed).code == 0
    moved = folder / "elsewhere.key"
    made.rename(moved)
    assert meanstream("run", "agents", *typed, "--secret-file", str(moved)).code == 0


def test_a_named_secret_file_wins_over_the_environment(folder: Path) -> None:
    key = folder / "own.key"
    key.write_text(SECRET[::-1])
    assert run_agents(folder, secret_file=key).code == 0
    assert "secret must be the one" in run_agents(folder).message


def test_what_is_private_can_be_read_by_its_owner_only(folder: Path) -> None:
    run_agents(folder)
    for name, mode in (("state.db", 0o600), ("estimates.jsonl", 0o600), ("releases.jsonl", 0o644)):
        assert stat.S_IMODE((folder / name).stat().st_mode) == mode & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("kind", ["gz", "jsonl", "tsv", "parquet"])
def test_other_forms_of_the_same_file_give_the_same_releases(kind: str, folder: Path) -> None:
    from pyarrow import csv, parquet

    run_agents(folder)
    text = (folder / "flights.csv").read_text()
    source = folder / {"gz": "flights.csv.gz"}.get(kind, f"flights.{kind}")
    if kind == "gz":
        source.write_bytes(gzip.compress(text.encode()))
    elif kind == "tsv":
        source.write_text(text.replace(",", "\t"))
    elif kind == "parquet":
        parquet.write_table(csv.read_csv(folder / "flights.csv"), source)
    else:
        header, *rows = [line.split(",") for line in text.splitlines()]
        records = [dict(zip(header, row, strict=True)) for row in rows]
        source.write_text(
            "".join(json.dumps({**r, "dep_delay": float(r["dep_delay"])}) + "\n" for r in records)
        )
    run_agents(
        folder,
        source=source,
        store=folder / "b.db",
        sink=folder / "e.jsonl",
        releases=folder / "r.jsonl",
    )
    assert (folder / "r.jsonl").read_bytes() == (folder / "releases.jsonl").read_bytes()


def test_standard_output_carries_estimates_and_nothing_else(folder: Path) -> None:
    ran = run_agents(folder, sink="-")
    assert (ran.code, ran.err) == (0, b"")
    assert [json.loads(line)["n"] for line in ran.out.splitlines()][-3:] == [20, 20, 20]


def test_a_replay_is_sorted_by_event_time_unless_told_not_to(folder: Path) -> None:
    lines = (folder / "flights.csv").read_text().splitlines()
    (folder / "flights.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    assert run_agents(folder, json=True).json["rejected"] == {}
    other = {"store": folder / "b.db", "sink": folder / "e.jsonl", "releases": folder / "r.jsonl"}
    typed = arguments(options(folder, quiet=True, json=True, **other))
    environment = {"MEANSTREAM_SECRET": SECRET}
    assert meanstream("run", "agents", *typed, "--no-sort", environment=environment).json[
        "rejected"
    ] == {"late": 57}


def test_the_collaborations_answer_differently_from_the_same_releases(folder: Path) -> None:
    answers = {}
    for name in ("learned_prior", "tests", "none"):
        place = {
            "store": folder / f"{name}.db",
            "sink": folder / f"{name}.jsonl",
            "releases": folder / f"{name}.r.jsonl",
        }
        assert run_agents(folder, collaboration=name, **place).code == 0
        answers[name] = events(place["sink"])
        assert {event["method"] for event in answers[name]} == {name}
    assert all(event["value"] == event["local"] for event in answers["none"])
    assert any(event["value"] != event["local"] for event in answers["learned_prior"])
    releases = {(folder / f"{name}.r.jsonl").read_bytes() for name in answers}
    assert len(releases) == 1


def test_a_higher_level_gives_wider_intervals(folder: Path) -> None:
    widths = []
    for level in (0.5, 0.99):
        place = {key: folder / f"{level}.{key}.jsonl" for key in ("sink", "releases")} | {
            "store": folder / f"{level}.db"
        }
        run_agents(folder, level=level, **place)
        low, high = events(place["sink"])[-1]["interval"]  # type: ignore[misc]
        widths.append(high - low)  # type: ignore[has-type]
    assert widths[0] < widths[1]


def test_plain_progress_goes_to_standard_error_unless_quiet(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    typed = arguments(options(folder))
    ran = meanstream("run", "agents", *typed, environment={"MEANSTREAM_SECRET": SECRET})
    lines = ran.err.decode().splitlines()
    assert ran.out == b""
    assert len(lines) >= 2
    assert lines[-2].startswith("60 events (")
    for part in ("/s)", "3 agents", "releases", "event time 2013-01-03", "lag "):
        assert part in lines[-2]
    assert lines[-1].startswith("60 events, 60 accepted, ")
    assert (
        run_agents(folder, store=folder / "b.db", sink=folder / "b.jsonl", releases=None).err == b""
    )


def test_the_live_line_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = EngineStats(
        events=1200, agents=3, releases=7, pending=9, event_time=3600.0, watermark=3540.0
    )
    line = progress.Progress().line(stats, 600.0)
    assert line == (
        "1,200 events (600/s) | 3 agents | 7 releases | 9 wait | lag 60 s | event time 1970-01-01 01:00"
    )
    stats.rejected.update({"missing_agent": 1100, "late": 20})
    assert " | 1,120 rejected: missing_agent, ..." in progress.Progress().line(stats, 600.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "LIVE_SECONDS", 0.0)
    with progress.Progress() as live:
        assert live._status is not None
        live(stats)
        assert "1,200 events" in str(live._status.get_renderable())


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_run_after_a_commit(name: str, tmp_path: Path) -> None:
    """A signal in a real process: exit code 0, and the next run completes what one run would have
    done."""
    write_samples(tmp_path / "flights.csv", agents=50, rows=480)
    program = (
        "import sys, os, signal; sys.argv[0] = 'meanstream'\n"
        + (
            "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # whoever runs the tests may ignore it
            "from meanstream.streaming.agents.agents_engine import Engine\n"
            "turn = Engine._turn\n"
            "def stopped(self, *batch, ended):\n"
            "    turn(self, *batch, ended=ended); os.kill(os.getpid(), signal." + name + ")\n"
            "Engine._turn = stopped\n"
            "from meanstream.pipelines.commands.main import main; main()\n"
        )
    )
    typed = arguments(options(tmp_path, quiet=True, json=True))
    environment = {**os.environ, "MEANSTREAM_SECRET": SECRET}
    ran = run_forked(program, "run", "agents", *typed, env=environment)
    assert (ran.returncode, ran.stderr) == (0, b"")
    first = json.loads(ran.stdout)
    rest = run_agents(tmp_path, json=True).json
    assert first["accepted"] + rest["accepted"] == 480
    whole = tmp_path / "whole"
    whole.mkdir()
    write_samples(whole / "flights.csv", agents=50, rows=480)
    run_agents(whole)
    assert (whole / "releases.jsonl").read_bytes() == (tmp_path / "releases.jsonl").read_bytes()


def test_a_known_stddev_is_used(folder: Path) -> None:
    """An agent that knows its spread knows how far its own mean can be off: sd / sqrt(n)."""
    run_agents(folder, stddev=2, collaboration="none")
    low, high = events(folder / "estimates.jsonl")[-1]["local_interval"]  # type: ignore[misc]
    assert high - low == pytest.approx(2 * 1.959964 * 2 / 20**0.5, rel=1e-6)  # type: ignore[has-type]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_private_sink_that_was_there_before_is_closed_to_others(folder: Path, kind: str) -> None:
    sink = folder / f"private.{kind}"
    if kind == "jsonl":
        sink.touch(mode=0o644)
    else:
        sink.mkdir(mode=0o755)
    assert run_agents(folder, sink=sink).code == 0
    assert stat.S_IMODE(sink.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"releases": "estimates.jsonl"}, "releases must be another place than sink"),
        ({"sink": "-", "releases": "-"}, "releases must be another place than sink"),
        ({"sink": "-", "json": True}, "sink must be a file with --json"),
        ({"stddev": -5}, "stddev must be positive and finite, got -5"),
        ({"horizon": 10**11}, "horizon must lie in 1..1000000"),
        ({"secret_file": "."}, "secret must be in a readable file"),
        ({"store": "."}, "store must be a file in an existing folder"),
    ],
)
def test_places_and_numbers_that_cannot_be_meant_are_refused(
    folder: Path, more: dict[str, object], message: str
) -> None:
    given = {
        k: folder / v if k in ("releases", "secret_file", "store") and v != "-" else v
        for k, v in more.items()
    }
    ran = run_agents(folder, **given)
    assert ran.code == 2
    assert message in ran.message
    assert not (folder / "releases.jsonl").exists()


def test_a_run_that_never_lets_anything_out_is_refused(folder: Path) -> None:
    ran = run_agents(folder, source="kafka://127.0.0.1:1/endless", releases=None, refresh="never")
    assert ran.code == 2
    assert ran.message == (
        "refresh must be a duration with a source that has no end and no --releases: else nothing ever comes out, "
        "got 'never'"
    )
    assert not (folder / "state.db").exists()


def test_the_final_release_can_be_left_out(folder: Path) -> None:
    write_samples(folder / "flights.csv", rows=66)
    other = {
        "store": folder / "without.db",
        "releases": folder / "without.jsonl",
        "sink": folder / "other.jsonl",
    }
    run_agents(folder, final_release=False, **other)
    run_agents(folder)
    without, with_final = events(folder / "without.jsonl"), events(folder / "releases.jsonl")
    assert [e["n"] for e in without] == [10, 10, 10, 15, 15, 15, 20, 20, 20]
    assert sorted(e["n"] for e in with_final) == [10, 10, 10, 15, 15, 15, 20, 20, 20, 22, 22, 22]
    assert {e["release_id"] for e in without} < {e["release_id"] for e in with_final}


def test_refresh_gives_every_agent_with_new_samples_an_estimate_per_period(folder: Path) -> None:
    run_agents(folder, refresh="6h", lateness="0s")
    times = [(e["agent"], e["time"]) for e in events(folder / "estimates.jsonl")]
    # The newest hour waits for the watermark, so a period of six hours is told with its first five;
    # then the end.
    told = [*range(4, 60, 6), 59]
    assert sorted({time for _, time in times}) == [
        f"2013-01-{1 + h // 24:02}T{h % 24:02}:00:00Z" for h in told
    ]
    assert len(times) == len(set(times)) == 3 * len(told)


def test_a_synthetic_stream_needs_no_file(folder: Path) -> None:
    given = {"agent": None, "value": None, "time": None, "lower": 0, "upper": 1}
    summary = run_agents(folder, source="synthetic:30,6000,1", json=True, **given).json
    assert (summary["events"], summary["agents"]) == (6000, 30)
    last = {e["agent"]: e["value"] for e in events(folder / "estimates.jsonl")}
    assert abs(sum(last.values()) / 30 - (0.2 + 0.4 + 0.8) / 3) < 0.02  # type: ignore[arg-type]
    wrong = run_agents(folder, source="synthetic:30", store=folder / "b.db", **given).message
    assert wrong == "source must be a file or synthetic:AGENTS,SAMPLES[,SEED], got 'synthetic:30'"
    assert (
        "agent column must be"
        in run_agents(folder, source="synthetic:3,9", store=folder / "b.db").message
    )


def test_what_is_there_when_a_run_begins_is_not_collected_again(tmp_path: Path) -> None:
    """At the end of a process a collection over all modules takes longer than many runs."""
    before = gc.get_threshold()
    gc.unfreeze()
    try:
        write_samples(tmp_path / "flights.csv")
        assert run_agents(tmp_path).code == 0
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        assert run_agents(tmp_path).code == 0
        assert (
            gc.get_freeze_count() <= frozen
        )  # once in a process: what later runs leave behind is collected
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
