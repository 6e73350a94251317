"""`meanstream run rounds` as a user runs it: files in, estimates out, one line for a bad option."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.wire import EVENTS
from meanstream.streaming.metrics.rounds_metrics import StatisticianMetrics
from meanstream.streaming.sources import lines as sources_lines
from tests.pipelines.command_line import SECRET, Ran, arguments, files, meanstream, spoil_row

WEEKS = 3


def write_flights(path: Path, *, users: int = 40, rows: int = 600, shuffle: bool = False) -> Path:
    """Delays of planes over three weeks, 7 minutes on average, from a Thursday on."""
    rng = np.random.default_rng(4)
    lines = [
        f"N{u},{d:.1f},2013-01-{3 + day:02}T{h:02}:00:00Z,F{i}"
        for i, (u, d, day, h) in enumerate(
            zip(
                rng.integers(0, users, rows),
                rng.normal(7, 20, rows),
                np.sort(rng.integers(0, 7 * WEEKS, rows)),
                rng.integers(0, 24, rows),
                strict=True,
            )
        )
    ]
    if shuffle:
        rng.shuffle(lines)
    path.write_text("\n".join(["tailnum,dep_delay,time_hour,flight", *lines]) + "\n")
    return path


def options(folder: Path, **changes: Any) -> dict[str, Any]:
    named: dict[str, Any] = {
        "source": folder / "flights.csv",
        "user": "tailnum",
        "value": "dep_delay",
        "time": "time_hour",
        "lower": -30,
        "upper": 120,
        "epsilon": 1,
        "window": "7d",
        "name": "test",
        "store": folder / "rounds.db",
        "sink": folder / "means.jsonl",
        **changes,
    }
    return {name: value for name, value in named.items() if value is not None}


def run(folder: Path, *more: str, **changes: Any) -> Ran:
    typed = ["run", "rounds", *arguments(options(folder, quiet=True, **changes)), *more]
    return meanstream(*typed, environment={"MEANSTREAM_SECRET": SECRET})


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_flights(tmp_path / "flights.csv")
    return tmp_path


@pytest.mark.parametrize("estimator", ["plan", "one_shot", "duchi"])
def test_a_file_becomes_a_mean_per_week(folder: Path, estimator: str) -> None:
    ran = run(
        folder, "--json", estimator=estimator, epsilon=4, private_figures=folder / "private.json"
    )
    assert (ran.code, ran.err) == (0, b"")
    told, private = ran.json, json.loads((folder / "private.json").read_bytes())
    assert (told["estimates"], told["waiting"]) == (WEEKS, 0)
    assert (private["events"], private["accepted"], private["trust"]) == (600, 600, "private")
    assert not told.keys() & private.keys()
    assert (folder / "private.json").stat().st_mode & 0o777 == 0o600
    again = run(folder, estimator=estimator, epsilon=4, private_figures=folder / "private.json")
    assert again.message.startswith("private_figures must be a new file, got ")
    found = lines(folder / "means.jsonl")
    assert [(e["start"], e["end"]) for e in found] == [
        (f"2013-01-{a:02}T00:00:00Z", f"2013-01-{a + 7:02}T00:00:00Z") for a in (3, 10, 17)
    ]
    for line in (folder / "means.jsonl").read_bytes().splitlines():
        EVENTS["window_estimate"].model_validate_json(line, strict=True)
    assert told["reports"] == sum(e["users"] for e in found) <= 40 * WEEKS
    # 40 users at epsilon 4 on a width of 150: a standard error of about 15 minutes; 5 of them never
    # fail here.
    for e in found:
        assert abs(e["unclipped"] - 7) < 5 * e["stderr"] < 150
        assert e["interval"][0] <= e["value"] <= e["interval"][1]


def test_order_of_the_file_and_a_second_run_change_nothing(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("shuffled")
    write_flights(other / "flights.csv", shuffle=True)
    for place, more in ((folder, []), (other, ["--no-sort"])):
        assert run(place, *more, reports=place / "reports.jsonl", batch_size=50).code == 0
    assert (other / "means.jsonl").read_bytes() == (folder / "means.jsonl").read_bytes()
    payloads = [
        {
            (e["round_id"], e["user"]): e["payload"]
            for e in lines(place / "reports.jsonl")
            if "user" in e
        }
        for place in (folder, other)
    ]
    assert payloads[0] == payloads[1]
    before = files(folder)
    again = run(folder, "--json", reports=folder / "reports.jsonl", batch_size=50)
    assert again.json["estimates"] == 0
    for name in ("means.jsonl", "reports.jsonl"):
        assert (folder / name).read_bytes() == before[name]


def test_another_secret_is_other_noise(folder: Path) -> None:
    run(folder)
    typed = arguments(
        options(folder, quiet=True, store=folder / "other.db", sink=folder / "other.jsonl")
    )
    assert (
        meanstream("run", "rounds", *typed, environment={"MEANSTREAM_SECRET": SECRET[::-1]}).code
        == 0
    )
    one, two = ([e["unclipped"] for e in lines(folder / f)] for f in ("means.jsonl", "other.jsonl"))
    assert one != two


def test_estimates_on_standard_output(folder: Path) -> None:
    ran = run(folder, sink="-")
    assert len(ran.out.splitlines()) == WEEKS


def test_the_summary_is_one_line(folder: Path) -> None:
    typed = arguments(options(folder, user_budget=2))
    ran = meanstream("run", "rounds", *typed, environment={"MEANSTREAM_SECRET": SECRET})
    last = ran.err.decode().splitlines()[-1]
    assert last == "40 users, 80 reports, 38 times a user over budget, 3 estimates"


def test_both_sides_apart_find_what_one_command_finds(folder: Path) -> None:
    protocol = {
        "estimator": "dame",
        "sizes": "point:1000",
        "option": "effective_size=1000",
        "epsilon": 2,
    }
    assert run(folder, stages=folder / "stages-together.jsonl", **protocol).code == 0
    users = {
        "store": folder / "u.db",
        "sink": None,
        "reports_only": folder / "r.jsonl",
        "stages": folder / "s.jsonl",
    }
    nothing = dict.fromkeys(("source", "user", "value", "time"))
    tally = {
        "store": folder / "t.db",
        "sink": folder / "apart.jsonl",
        "from_reports": folder / "r.jsonl",
    }
    tally |= {"stages": folder / "s.jsonl", **nothing}
    waiting = []
    for _ in range(2):
        waiting.append(run(folder, "--json", **users, **protocol).json["waiting"])
        told = run(folder, "--json", **tally, **protocol).json
    assert waiting == [WEEKS, 0]
    assert (told["estimates"], told["waiting"], told["rejected"]) == (WEEKS, 0, {})
    assert (folder / "apart.jsonl").read_bytes() == (folder / "means.jsonl").read_bytes()
    assert (folder / "s.jsonl").read_bytes() == (folder / "stages-together.jsonl").read_bytes()
    kinds = {"report" if "payload" in e else "stage_reports" for e in lines(folder / "r.jsonl")}
    assert kinds == {"report", "stage_reports"}


def test_a_config_file_and_options_of_the_estimator(folder: Path) -> None:
    given = {k: str(v) if isinstance(v, Path) else v for k, v in options(folder).items()}
    (folder / "rounds.yaml").write_text(
        json.dumps(
            {**given, "estimator": "dame", "sizes": "point:15", "option": ["effective_size=5"]}
        )
    )
    ran = meanstream(
        "run",
        "rounds",
        "--config",
        str(folder / "rounds.yaml"),
        "--quiet",
        environment={"MEANSTREAM_SECRET": SECRET},
    )
    assert ran.code == 0
    assert {e["method"] for e in lines(folder / "means.jsonl")} == {"dame"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": None}, "source must be given"),
        ({"window": None}, "window must be given, got None: add --window ..."),
        (
            {"window": None, "lower": None, "epsilon": None},
            "lower, epsilon and window must be given, got None: add --lower ... --epsilon ... --window ...",
        ),
        ({"epsilon": 0}, "epsilon must be positive and finite, got 0"),
        ({"lower": 200}, "lower must be below upper (120), got 200"),
        ({"window": "weekly"}, "window must be SIZE, SIZE,PERIOD, session:GAP or day"),
        (
            {"window": "7d,1d"},
            "user_budget must be at least 7 for sliding windows '7d,1d' (a sample is in 7 windows, each costs epsilon",
        ),
        ({"level": 1.5}, "level must lie strictly between 0 and 1, got 1.5"),
        ({"user": "tailnumber"}, "user column must be in the source, got 'tailnumber'; did you mean 'tailnum'?"),
        ({"estimator": "split"}, "sizes must be given for split"),
        (
            {"estimator": "item", "sizes": "point:5"},
            "estimator must protect users, not single samples (it can be simulated), got 'item'",
        ),
        ({"sizes": "unknown", "between_users": 0}, "users must be declared with unknown sizes, got None"),
        ({"sizes": "unknown", "users": 20000}, "between_users must be declared with unknown sizes, got None"),
        (
            {"sizes": "unknown", "users": 200, "between_users": 0},
            "sizes must be given where users * epsilon**2 is below 10000",
        ),
        (
            {"sizes": "unknown", "users": 20000, "between_users": 0, "estimator": "dame"},
            "sizes must be known unless the estimator is 'plan', got 'unknown'",
        ),
        ({"option": "literal"}, "option must be NAME=VALUE, got 'literal'"),
        ({"option": "litteral=true", "estimator": "duchi"}, "duchi takes no option 'litteral'"),
        ({"allowed_lateness": "5m"}, "allowed_lateness must be left out for a file that ends: no sample of it is late"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"name": "a/b"}, "name must be 1 to 64 printable characters in Unicode's NFC, without '/', got 'a/b'"),
        (
            {"runner": "DirectRunner"},
            "runner must be one of FnApiRunner, PrismRunner, FlinkRunner, DataflowRunner, got 'DirectRunner' (it may",
        ),
        ({"runner": "SparkRunner"}, "runner must be one of"),
        ({"runner_arg": "--x=1"}, "runner_arg must come with --runner"),
        ({"reports_only": "r.jsonl"}, "stages must be given with --reports-only"),
        ({"reports_only": "r.jsonl", "stages": "s.parquet"}, "stages must be a .jsonl file or a topic with --reports"),
        ({"reports_only": "r.jsonl", "stages": "kafka://x:1/y?registry=http://h:1"}, "registry must be left out of"),
        ({"reports_only": "r.parquet", "stages": "s.jsonl"}, "reports_only must be a .jsonl file, a topic or '-'"),
        ({"reports": "r.parquet"}, "reports must be a .jsonl file, a topic or '-', got 'r.parquet'"),
        ({"from_reports": "r.jsonl"}, "stages must be given with --from-reports"),
        ({"from_reports": "r.jsonl", "stages": "s.jsonl"}, "source must not come with --from-reports"),
        ({"from_reports": "r.jsonl", "stages": "s.jsonl", "source": None}, "from_reports must be a readable file or"),
        ({"from_reports": "r", "reports_only": "r", "stages": "s"}, "reports_only must not come with --from-reports"),
    ],
)  # fmt: skip
def test_a_bad_option_is_one_line_before_anything_is_read(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    before = files(folder)
    assert run(folder, **changes).message.startswith(message)
    assert files(folder) == before


def test_the_store_of_one_side_is_refused_by_the_other(folder: Path) -> None:
    assert run(folder, reports=folder / "reports.jsonl").code == 0
    nothing = dict.fromkeys(("source", "user", "value", "time"))
    other = run(
        folder,
        from_reports=folder / "reports.jsonl",
        stages=folder / "s.jsonl",
        sink=folder / "o.jsonl",
        **nothing,
    )
    store = folder / "rounds.db"
    assert (
        other.message
        == f"store must be one of a statistician in rounds, got '{store}', one of users in rounds"
    )
    assert run(folder, epsilon=2).message == (
        "epsilon must be 1.0 as in the store that is continued, got 2: a store keeps its settings; another value needs "
        "a new --store, whose budget adds up to this one's"
    )


def test_a_signal_ends_the_run_with_everything_committed(folder: Path) -> None:
    """Known good beside it: the whole file in one go."""
    whole = folder / "whole"
    whole.mkdir()
    assert run(folder, store=whole / "s.db", sink=whole / "means.jsonl").code == 0
    program = (
        "import os, signal, meanstream.streaming.rounds.rounds_engine as e\n"
        "turn, n = e.RoundsEngine._turn, [0]\n"
        "def turned(self, *a, **k):\n"
        "    turn(self, *a, **k); n[0] += 1\n"
        "    if n[0] == 4: os.kill(os.getpid(), signal.SIGTERM)\n"
        "e.RoundsEngine._turn = turned\n"
        "from meanstream.pipelines.commands.main import main; main()\n"
    )
    typed = arguments(
        options(folder, quiet=True, batch_size=100, private_figures=folder / "private.json")
    )
    subprocess.run(
        [sys.executable, "-c", program, "run", "rounds", *typed],
        env={"MEANSTREAM_SECRET": SECRET, "PATH": ""},
        capture_output=True,
        check=True,
    )
    assert json.loads((folder / "private.json").read_bytes())["events"] == 400
    assert run(folder, batch_size=100).code == 0
    assert (folder / "means.jsonl").read_bytes() == (whole / "means.jsonl").read_bytes()


@pytest.mark.parametrize("budget", [2, None])
def test_budget_and_ledger_of_rounds(folder: Path, budget: float | None) -> None:
    assert run(folder, user_budget=budget, reports=folder / "reports.jsonl").code == 0
    spent: dict[str, int] = {}
    for event in lines(folder / "reports.jsonl"):
        if "user" in event:
            spent[event["user"]] = spent.get(event["user"], 0) + 1
    store = str(folder / "rounds.db")
    told = meanstream("budget", "--store", store, "--json").json
    assert {row["user"]: row["reports"] for row in told["users"]} == spent
    assert all(row["spent"] == row["reports"] for row in told["users"])
    assert {row["remaining"] for row in told["users"]} == {None if budget is None else 0.0}
    assert told["summary"]["reports"] == sum(spent.values())
    assert told["summary"]["at_budget"] == (0 if budget is None else 40)
    early = meanstream("budget", "--store", store, "--json", "--as-of", "2013-01-10T00:00:00Z").json
    assert early["summary"]["spent_max"] == 1.0
    text = meanstream("budget", "--store", store).out.decode()
    assert "40 users" in text
    one = meanstream("budget", "--store", store, "--agent", "N1").out.decode().splitlines()
    assert len(one) == 2
    assert "users, got 'N99'" in meanstream("budget", "--store", store, "--agent", "N99").message
    assert meanstream("ledger", "verify", "--store", store, "--json").json["rows"] == sum(
        spent.values()
    )


def test_a_changed_report_in_the_ledger_is_found(folder: Path) -> None:
    assert run(folder).code == 0
    spoil_row(folder / "rounds.db", 3)
    ran = meanstream("ledger", "verify", "--store", str(folder / "rounds.db"))
    assert ran.code == 1
    assert b"rows 1 to " in ran.err


def test_a_dry_run_looks_at_everything_and_touches_nothing(folder: Path) -> None:
    before = files(folder)
    told = run(folder, "--dry-run", "--json").json
    assert told["store"] == {"path": str(folder / "rounds.db"), "name": "test", "users": 0}
    assert told["privacy"] == {
        "epsilon": 1.0, "delta": 0.0, "window": "7d", "user_budget": None, "user_windows": None,
    }  # fmt: skip
    assert files(folder) == before
    assert run(folder, user_budget=2).code == 0
    before = files(folder)
    text = run(folder, "--dry-run", user_budget=2).out.decode()
    assert "continues with 40 users: at most epsilon 2 spent, 40 cannot pay" in text
    assert run(folder, "--dry-run", user_budget=2, epsilon=2).message.startswith(
        "epsilon must be 1.0 as in the store"
    )
    assert run(folder, "--dry-run", runner="FnApiRunner").message.startswith(
        "dry_run must be left out with --runner"
    )
    assert files(folder) == before


def test_a_dry_run_of_the_statistician_touches_nothing(folder: Path) -> None:
    assert run(folder, reports=folder / "reports.jsonl").code == 0
    side = dict.fromkeys(("source", "user", "value", "time")) | {
        "sink": folder / "means.jsonl",
        "name": "test",
    }
    side |= {
        "from_reports": folder / "reports.jsonl",
        "stages": folder / "s.jsonl",
        "store": folder / "other.db",
    }
    before = files(folder)
    told = run(folder, "--dry-run", "--json", **side).json
    assert told["store"] == {"path": str(folder / "other.db"), "name": "test", "begun": False}
    assert told["from_reports"] == str(folder / "reports.jsonl")
    assert files(folder) == before
    assert run(folder, **side).code == 0
    before = files(folder)
    text = run(folder, "--dry-run", **side).out.decode()
    assert "other.db, which continues; deployment 'test'" in text
    for changes, said in (
        ({"epsilon": 2}, "epsilon must be 1.0 as in the store that is continued"),
        ({"store": folder / "rounds.db"}, "store must be one of a statistician"),
        (
            {"from_reports": folder / "none.jsonl"},
            "from_reports must be a readable file or a topic",
        ),
        ({"metrics": "nowhere"}, "metrics must be HOST:PORT"),
    ):
        assert run(folder, "--dry-run", **{**side, **changes}).message.startswith(said)
    assert files(folder) == before


def test_the_statistician_serves_its_metrics(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for at the last pass is what the run says at its end."""
    assert run(folder, reports=folder / "reports.jsonl").code == 0
    side = dict.fromkeys(("source", "user", "value", "time")) | {
        "sink": folder / "means.jsonl",
        "name": "test",
    }
    side |= {
        "from_reports": folder / "reports.jsonl",
        "stages": folder / "s.jsonl",
        "store": folder / "other.db",
    }
    pages: list[str] = []
    observe = StatisticianMetrics.observe

    def asked(self: StatisticianMetrics, stats: EngineStats) -> None:
        observe(self, stats)
        pages.append(self.exposition().decode())

    monkeypatch.setattr(StatisticianMetrics, "observe", asked)
    ran = run(folder, "--json", metrics="127.0.0.1:0", **side)
    assert len(pages) == 2
    assert f"meanstream_statistician_reports_total {float(ran.json['reports'])}" in pages[-1]
    assert f"meanstream_rounds_total {float(ran.json['estimates'])}" in pages[-1]


def test_reports_that_cannot_be_read_are_one_line_and_the_next_run_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the other side lies on a disk that breaks."""
    assert run(folder, reports=folder / "reports.jsonl").code == 0
    nothing = dict.fromkeys(("source", "user", "value", "time"))
    side = {
        "from_reports": folder / "reports.jsonl",
        "stages": folder / "s.jsonl",
        "sink": folder / "o.jsonl",
    }
    side |= {"store": folder / "other.db", "name": "test", **nothing}

    class Broken(io.BytesIO):
        def readinto(self, _: Any) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(sources_lines, "_open_bytes", lambda *_: Broken())
        ran = run(folder, **side)
    (line,) = ran.err.decode().splitlines()
    assert (ran.code, line) == (
        1,
        f"meanstream: from_reports must be an undamaged file, got '{folder / 'reports.jsonl'}' (Input/output error)",
    )
    assert run(folder, **side).code == 0
