"""`meanstream report` writes one file that refers to no other, says what the ledger says, and tells
no secret."""

from __future__ import annotations

import json
import random
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.pipelines.commands.report import report_charts as charts
from meanstream.pipelines.commands.report.report_parts import (
    ReportPage,
    ReportPart,
    report_parts_as_html,
)
from meanstream.pipelines.commands.report.report_rounds import report_answers_of_rounds
from meanstream.pipelines.commands.report.report_store import report_convergence_of_store
from meanstream.streaming.agents.saved_agents import own_settings
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from tests.pipelines.command_line import (
    SECRET,
    asks,
    meanstream,
    run_agents,
    spoil_row,
    write_samples,
)

SECTIONS = ["Privacy budget", "Reliability", "Privacy promise"]
ROUNDS = (
    "--user",
    "tailnum",
    "--value",
    "dep_delay",
    "--time",
    "time_hour",
    "--lower",
    "-30",
    "--upper",
    "120",
)
ENVIRONMENT = {"MEANSTREAM_SECRET": SECRET}
WIDTHS = dict(charts._WIDTHS)


@pytest.fixture(autouse=True)
def _one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw each picture in one of its widths: drawing is most of the time of a report."""
    monkeypatch.setattr(charts, "_WIDTHS", {"narrow": WIDTHS["narrow"]})


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing, where a test reads what is written around the pictures."""
    monkeypatch.setattr(charts, "_picture", lambda name, *_, **__: f"<svg id={name!r}></svg>")


class References(HTMLParser):
    """Collects everything by which a page could fetch something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.headings: list[str] = []
        self._heading = False
        self.feed(text)
        self.outside += [
            url for url in re.findall(r"url\(([^)]*)\)", text) if not url.startswith("#")
        ]
        self.outside += re.findall(r"@import|<!ENTITY|<!DOCTYPE svg", text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._heading = tag == "h2"
        if tag in ("script", "iframe", "object", "embed"):
            self.outside.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "action") and not (
                value or ""
            ).startswith(("#", "data:")):
                self.outside.append(str(value))

    def handle_data(self, data: str) -> None:
        if self._heading:
            self.headings.append(data)
            self._heading = False


def report(folder: Path, *arguments: str) -> str:
    ran = meanstream("report", str(folder / "out.html"), *arguments)
    assert (ran.code, ran.err) == (0, b""), ran.err
    text = (folder / "out.html").read_text(encoding="utf-8")
    assert References(text).outside == []
    return text


def run_rounds(folder: Path, **changes: Any) -> Path:
    write_samples(folder / "flights.csv", agents=60, rows=600)
    flags = {
        "epsilon": "4",
        "window": "5d",
        "store": str(folder / "rounds.db"),
        "sink": str(folder / "means.jsonl"),
    }
    typed = [
        word
        for name, value in (flags | changes).items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    ran = meanstream(
        "run",
        "rounds",
        "--source",
        str(folder / "flights.csv"),
        *ROUNDS,
        *typed,
        "--quiet",
        environment=ENVIRONMENT,
    )
    assert ran.code == 0, ran.err
    return folder / "rounds.db"


def test_a_store_of_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "_WIDTHS", WIDTHS)
    write_samples(tmp_path / "flights.csv", agents=20, rows=2000)
    run_agents(tmp_path, horizon=12)
    text = report(tmp_path, "--store", str(tmp_path / "state.db"))
    assert References(text).headings[:2] == ["Convergence", "Learned population"]
    assert set(SECTIONS) <= set(References(text).headings)
    assert text.count('<div class="wide"><svg') == text.count('<div class="narrow"><svg') >= 3
    assert not re.search(
        r"<svg(?:(?!</svg>).)*#[0-9a-f]{6}\b", text, re.DOTALL
    )  # colors are those of the page's style
    for fact in (
        "<td>flights.csv</td>",
        "<td>test</td>",
        "of one sample, over at most 12 releases",
        "At this rate N",
    ):
        assert fact in text
    assert re.search(r"<th>made</th><td>\d{4}-\d\d-\d\d \d\d:\d\d UTC</td>", text)
    rows = len((tmp_path / "releases.jsonl").read_bytes().splitlines())
    assert f"<td>{rows:,}</td>" in text
    head = meanstream("ledger", "verify", "--store", str(tmp_path / "state.db"), "--json").json[
        "head"
    ]
    assert head in text
    explained = asks(
        "explain",
        "agents",
        "--lower",
        "-30",
        "--upper",
        "120",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--horizon",
        "12",
    )
    lines = explained.out.decode().splitlines()
    assert (
        next(line for line in lines if line.startswith("total")).removeprefix("total").strip()
        in text
    )


@pytest.mark.usefixtures("no_pictures")
def test_it_tells_releases_and_no_raw_mean(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv", agents=5, rows=400)
    run_agents(tmp_path)
    text = report(tmp_path, "--store", str(tmp_path / "state.db"))
    written = [
        json.loads(line) for line in (tmp_path / "estimates.jsonl").read_bytes().splitlines()
    ]
    private = {f"{event[name]:.4g}" for event in written for name in ("value", "local")}
    shown = set(re.findall(r"-?\d+\.\d+", re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)))
    assert not private & shown
    assert SECRET not in text
    assert str(tmp_path) not in text  # nor where the store is
    assert private & {f"{written[0]['local']:.4g}"}  # and would be found


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(("noise", "part"), [("auto", "epsilon"), ("gaussian", "rho")])
def test_a_store_of_agents_that_tell_quantiles(noise: str, part: str, tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv", agents=5, rows=400)
    run_agents(tmp_path, quantiles="0.5,0.9", noise=noise)
    text = report(tmp_path, "--store", str(tmp_path / "state.db"))
    assert f"of the budget (of {part}): an agent&#x27;s samples, counted in" in text


def test_convergence_follows_the_releases(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv", agents=10, rows=3000)
    run_agents(tmp_path, epsilon=5)
    store = tmp_path / "state.db"
    points, population = report_convergence_of_store(store, own_settings(store))
    assert population is not None
    releases = [
        json.loads(line) for line in (tmp_path / "releases.jsonl").read_bytes().splitlines()
    ]
    newest = {event["agent"]: event for event in releases}
    assert points["events"][-1] == sum(event["n"] for event in newest.values())
    assert points["events"] == sorted(points["events"])
    for name in ("together", "alone"):
        low, median, high = (np.array(points[name][band]) for band in ("low", "median", "high"))
        assert np.all((low <= median) & (median <= high))
        assert median[-1] < median[0]
    assert np.sort(population.releases.total).tolist() == sorted(
        event["total"] for event in newest.values()
    )


@pytest.mark.parametrize("estimator", ["kent", "adaptive", "one_shot"])
def test_answers_of_rounds_are_computed_again_from_the_ledger(
    tmp_path: Path, estimator: str
) -> None:
    sizes = {"sizes": "point:2"} if estimator == "kent" else {}
    store = run_rounds(tmp_path, estimator=estimator, **sizes)
    text = report(tmp_path, "--store", str(store))
    assert set(SECTIONS) | {"Rounds per window"} <= set(References(text).headings)
    assert "Stages of a round" in References(text).headings
    settings = RoundsSettings(
        name="rounds",
        lower=-30.0,
        upper=120.0,
        epsilon=4.0,
        window="5d",
        estimator=estimator,
        allowed_lateness=3600.0,
        **sizes,
    )
    written = [json.loads(line) for line in (tmp_path / "means.jsonl").read_bytes().splitlines()]
    again = report_answers_of_rounds(store, settings)
    assert [(row["start"], row["value"], row["users"]) for row in again] == [
        (event["start"], event["value"], event["users"]) for event in written
    ]
    assert len(again) > 3


def test_a_trusted_curator_and_an_empty_store(tmp_path: Path) -> None:
    store = run_rounds(tmp_path, estimator="cummings.ratio", option="largest_size=20")
    text = report(tmp_path, "--store", str(store))
    assert "give the file of --sink" in text
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "flights.csv").write_text("tailnum,dep_delay,time_hour,flight\n")
    run_agents(tmp_path / "empty")
    assert "No agent has released anything yet" in report(
        tmp_path, "--store", str(tmp_path / "empty" / "state.db")
    )


def test_means_of_rounds(tmp_path: Path) -> None:
    run_rounds(tmp_path, estimator="one_shot")
    text = report(tmp_path, "--result", str(tmp_path / "means.jsonl"))
    assert "Rounds per window" in References(text).headings
    assert "<td>one_shot</td>" in text
    first = (tmp_path / "means.jsonl").read_bytes().splitlines(keepends=True)[0]
    (tmp_path / "one.jsonl").write_bytes(first)  # of the first window alone
    text = report(tmp_path, "--result", str(tmp_path / "one.jsonl"))
    assert "half-width of the interval, median" in text


@pytest.mark.parametrize(
    "command",
    [
        "simulate agents --agents 6 --steps 60 --runs 2 --checkpoints 20,60 --class-sizes 2,2,2 --seed 3",
        "simulate rounds --estimator kent --users 500 --sizes uniform:1,9 --runs 5 --threshold median --epsilon 2",
        "simulate agents --agents 6 --steps 700 --runs 2 --change step:0.4,0.5@200 --memory window:200 --seed 3",
        "simulate agents --agents 6 --steps 700 --runs 1 --change all:0.4 --memory auto --class-sizes 2,2,2",
    ],
)
def test_the_command_of_a_simulation_makes_the_same_result(tmp_path: Path, command: str) -> None:
    typed = asks(*command.split(), "--json")
    (tmp_path / "result.json").write_bytes(typed.out)
    text = report(tmp_path, "--result", str(tmp_path / "result.json"))
    found = re.search(
        r"<h2>The command that made the result</h2>\n<pre>meanstream (.*?)</pre>", text
    )
    assert found is not None
    again = meanstream(*shlex.split(found[1])).json
    assert again.get("mse") == typed.json.get("mse")
    assert again.get("changed") == typed.json.get("changed")
    assert again["config"] == typed.json["config"]


def test_an_audit_is_drawn_and_told(tmp_path: Path) -> None:
    ran = meanstream("audit", "mechanism", "counter.pm1", "central.central.mean", "--json")
    (tmp_path / "audit.json").write_bytes(ran.out)
    text = report(tmp_path, "--result", str(tmp_path / "audit.json"))
    assert References(text).outside == []
    assert "Nothing promises more than it keeps." in text
    for row in ran.json["rows"]:
        said = f"claimed {row['claimed']:.4g}{' at delta 1e-06' if row['delta'] else ''}, proved {row['proved']:.4g}"
        assert f"<th>{row['name']}</th><td>{said}" in text
        assert row["method"] in text
    first = ran.json["rows"][0]
    wrong = ran.json | {"rows": [first | {"violated": True, "fault": "2 ids twice"}]}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    again = report(tmp_path, "--result", str(tmp_path / "wrong.json"))
    assert "VIOLATED 2 ids twice" in again
    assert first["name"].startswith("counter.pm1.")
    assert f"{first['name']} promise more than they keep." in again


@pytest.mark.parametrize(
    "broken", [{"claimed": 0}, {"proved": "1"}, {"ceiling": float("nan")}, {"method": None}]
)
def test_what_no_audit_prints_is_none(tmp_path: Path, broken: dict[str, object]) -> None:
    rows = meanstream("audit", "mechanism", "counter.pm1", "--json").json["rows"]
    forged = {"rows": [rows[0] | broken], "violated": [], "notes": []}
    (tmp_path / "forged.json").write_text(json.dumps(forged))
    out = str(tmp_path / "out.html")
    assert (
        "result must be what"
        in meanstream("report", out, "--result", str(tmp_path / "forged.json")).message
    )


ODD = (None, True, -1, 1e308, 10**400, "x", "", [], {}, float("nan"), float("-inf"), "\ud800", "\0")
"""Values that no result holds in most of its places."""


def broken(found: Any, rng: random.Random) -> Any:
    """Put an odd value, or nothing, somewhere into a result."""
    if isinstance(found, dict | list) and found and rng.random() < 0.8:
        place = rng.choice([*found] if isinstance(found, dict) else range(len(found)))
        inner = broken(found[place], rng)
        if isinstance(found, list):
            return [*found[:place], inner, *found[place + 1 :]]
        return (
            {k: v for k, v in found.items() if k != place}
            if rng.random() < 0.1
            else found | {place: inner}
        )
    return rng.choice(ODD)


@pytest.mark.parametrize("forged", [6, pytest.param(60, marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", ["audit", "simulation", "windows", "drift"])
def test_a_broken_result_is_drawn_or_refused_in_one_line(
    kind: str, forged: int, tmp_path: Path
) -> None:
    if kind == "windows":
        run_rounds(tmp_path, estimator="one_shot")
        typed = (tmp_path / "means.jsonl").read_bytes().splitlines()[0]
    elif kind == "audit":
        typed = meanstream("audit", "mechanism", "channel.one_bit", "--json").out
    elif kind == "drift":
        moved = ("--change", "all:0.4@200", "--steps", "700")
        typed = meanstream(
            "simulate", "agents", *moved, "--agents", "6", "--runs", "2", "--json"
        ).out
    else:
        typed = meanstream(
            "simulate", "rounds", "--users", "400", "--runs", "3", "--epsilon", "1", "--json"
        ).out
    rng, out = random.Random(21), tmp_path / "out.html"  # noqa: S311 - broken files
    for _ in range(forged):
        (tmp_path / "forged.json").write_text(json.dumps(broken(json.loads(typed), rng)))
        ran = meanstream("report", str(out), "--result", str(tmp_path / "forged.json"))
        if ran.code:
            assert ran.message.startswith("result must be "), ran.err
        else:
            assert ran.err == b""


def test_names_cannot_write_html(tmp_path: Path) -> None:
    evil = '<script src="http://x.invalid/"></script>'
    part = ReportPart(title=evil, text=evil, table=[(evil, evil)], lines=evil)
    assert (
        References(report_parts_as_html(ReportPage(title=evil, about=evil, parts=[part]))).outside
        == []
    )
    assert References(f"<p>{evil}</p>").outside == [
        "script",
        "http://x.invalid/",
    ]  # and would be found


def test_what_is_refused(tmp_path: Path) -> None:
    out = str(tmp_path / "out.html")
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "broken.json").write_text('{"a": ')
    assert "one of --store FILE and --result FILE" in meanstream("report", out).message
    assert (
        meanstream("report", out, "--store", "a", "--result", "b").message
        == "report must have one of --store FILE and --result FILE"
    )
    for name in ("other.json", "broken.json"):
        assert (
            "result must be what"
            in meanstream("report", out, "--result", str(tmp_path / name)).message
        )
    assert (
        "readable file"
        in meanstream("report", out, "--result", str(tmp_path / "none.json")).message
    )
    assert (
        "existing file" in meanstream("report", out, "--store", str(tmp_path / "none.db")).message
    )
    nowhere = str(tmp_path / "none" / "out.html")
    assert (
        "out must be"
        in meanstream("report", nowhere, "--result", str(tmp_path / "other.json")).message
    )
    assert not Path(out).exists()


def test_a_changed_ledger_is_not_reported(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv", rows=200)
    run_agents(tmp_path)
    spoil_row(tmp_path / "state.db", 2)
    assert (
        "rows 1 to "
        in meanstream(
            "report", str(tmp_path / "out.html"), "--store", str(tmp_path / "state.db")
        ).message
    )
    assert not (tmp_path / "out.html").exists()
