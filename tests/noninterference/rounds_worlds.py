"""Worlds of rounds: the same users but for what one of them sends within a window, under reports
that are the same."""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.estimators.registry import estimator_class
from meanstream.operators.rounds.round_records import Summaries
from meanstream.pipelines.beam.worker.beam_metrics import PRIVATE_NAMESPACE
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.rounds import round_runner as run
from meanstream.streaming.rounds.window_round import WindowRound
from tests.noninterference.agents_worlds import watching_beam
from tests.noninterference.comparison import Seen
from tests.noninterference.product import Clock, Watched, same_clock_and_coins
from tests.streaming.support.dying import Died

DAY = 86_400.0
BEGIN = 1_600_041_600.0
CHANGED = "u1"
CHANGES = ("values", "number", "times", "rejected", "invalid")
"""What is other, in a world, of that which the changed user sends."""


def write_stream(path: Path, users: int, *, changed: str | None = None, sort: bool = True) -> None:
    """Write two days of samples in the order of time; one user's may be others, as `CHANGES` says.

    Unsorted, each user's samples come a time of its own later, up to a day and a half.
    """
    rng = np.random.default_rng(11)
    rows = []
    for user in range(users):
        for day in range(2):
            n = 3 + int(rng.integers(0, 3))
            values, times = (
                rng.normal(4 + user % 3, 1, n).round(3),
                np.sort(rng.uniform(0.2, 0.8, n)),
            )
            if f"u{user}" == CHANGED and changed in ("values", "number", "times") and day == 0:
                values, times = _changed(changed, values, times)
            rows += [
                (BEGIN + DAY * (day + t), f"u{user}", v)
                for v, t in zip(values.tolist(), times.tolist(), strict=True)
            ]
    rows.sort(key=lambda row: row if sort else (row[0] + _delay(row[1]), *row))
    lines = [f"{user},{value},{time:.3f},id{time:.6f}{user}" for time, user, value in rows]
    if changed == "invalid":
        lines = [
            _invalid(number, line) if line.startswith(f"{CHANGED},") else line
            for number, line in enumerate(lines)
        ]
    if changed == "rejected":  # some of the changed user's come three times, under one id
        lines = [line for line in lines for _ in range(3 if line.startswith(f"{CHANGED},") else 1)]
    path.write_text(
        "\n".join(["user,value,time,id", *lines, "u0,x,1600050000,b1", ",1,1600050000,b2"]) + "\n"
    )


def _invalid(number: int, line: str) -> str:
    """Give a record without a valid value."""
    user, _, time, identity = line.split(",")
    value = ("", "nan", "0x10", "fridge", "-inf")[number % 5]
    return f"{user},{value},{time},{identity}"


def _delay(user: str) -> float:
    return 1.5 * DAY * hashlib.sha256(user.encode()).digest()[0] / 256


def _changed(how: str, values: Any, times: Any) -> tuple[Any, Any]:
    if how == "values":
        return values * 0 - 900.0, times
    if how == "times":  # the changed user is now the first that is seen of all
        return values, np.linspace(0.05, 0.1, len(times))
    return np.tile(values, 40), np.sort(np.tile(times, 40) + np.linspace(0, 0.01, 40 * len(times)))


def texts_of(path: Path) -> None:
    """Write words for the values of a stream: categories, not all of which are declared."""
    head, *lines = path.read_text().splitlines()
    rows = [line.split(",") for line in lines]
    worded = [
        [user, f"v{float(value):.0f}" if _is_number(value) else value, *rest]
        for user, value, *rest in rows
    ]
    path.write_text("\n".join([head, *map(",".join, worded)]) + "\n")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def common(**more: Any) -> dict[str, Any]:
    if estimator_class(more["estimator"]).answers == "shares":
        return {
            name: value for name, value in _common(**more).items() if name not in ("lower", "upper")
        } | {"categories": "v3,v4,v5,v6"}
    if estimator_class(more["estimator"]).answers == "quantiles":
        return _common(**more) | {"quantiles": ".1,.5"}
    return _common(**more)


def _common(**more: Any) -> dict[str, Any]:
    return {
        "source": "private-stream.csv", "id": "id", "window": "1d", "lower": 0, "upper": 10, "epsilon": 2,
        "batch_size": 50, **more,
    }  # fmt: skip


def outputs(watched: Watched, run: str) -> dict[str, Any]:
    """All that an engine of rounds is given to write to; what is the operator's among it is looked
    for nowhere."""
    roles = {role: f"{role}.jsonl" for role in ("reports", "dead_letters", "notices")}
    addresses = {
        "metrics": f"127.0.0.1:{watched.ports[0]}",
        "page": f"127.0.0.1:{watched.ports[1]}",
    }
    private = {"private_metrics": f"127.0.0.1:{watched.ports[2]}", "private_figures": f"{run}.json"}
    return {**roles, **addresses, **private, "user_budget": 2, "json": True}


def one_process(
    folder: Path,
    users: int,
    ports: tuple[int, ...],
    changed: str | None,
    estimator: str,
    **more: Any,
) -> Seen:
    """Run both sides in one process, with all outputs: killed, continued, started again; then what
    reads the store."""
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock, ports)
        write_stream(
            folder / "private-stream.csv", users, changed=changed, sort=more.get("sort", True)
        )
        if estimator_class(estimator).answers == "shares":
            texts_of(folder / "private-stream.csv")
        options = common(
            estimator=estimator,
            store="rounds.db",
            sink="means.jsonl",
            stages="stages.jsonl",
            **more,
        )
        watched.run(
            "killed",
            "run",
            "rounds",
            die=DieOnceCharged(folder / "rounds.db"),
            **options,
            **outputs(watched, "a"),
        )
        watched.run("continued", "run", "rounds", **options, **outputs(watched, "b"))
        watched.run("again", "run", "rounds", log_format="json", **options, **outputs(watched, "c"))
        watched.run("with another epsilon", "run", "rounds", **{**options, "epsilon": 1})
        watched.run("dry", "run", "rounds", dry_run=True, user_budget=2, **options)
        read_all(watched, "rounds.db")
        return of_everybody(watched.seen())


def at_once(
    folder: Path, users: int, ports: tuple[int, ...], changed: str | None, estimator: str
) -> Seen:
    """Run both sides in one process with all outputs, once."""
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock, ports)
        write_stream(folder / "private-stream.csv", users, changed=changed)
        options = common(
            estimator=estimator, store="rounds.db", sink="means.jsonl", stages="stages.jsonl"
        )
        watched.run("once", "run", "rounds", **options, **outputs(watched, "once"))
        return of_everybody(watched.seen())


def two_sides(
    folder: Path, users: int, ports: tuple[int, ...], changed: str | None, estimator: str
) -> Seen:
    """Run the users' side and the statistician's, each in its turn, until nothing waits."""
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock, ports)
        write_stream(folder / "private-stream.csv", users, changed=changed)
        both = {
            "estimator": estimator,
            "sizes": "point:4",
            "stages": "stages.jsonl",
            "name": "sides",
        }
        agreed = {
            k: v for k, v in common(**both).items() if k not in ("source", "id", "batch_size")
        }
        for turn in range(2):
            side = outputs(watched, str(turn)) | {
                "reports_only": "reports.jsonl",
                "store": "users.db",
            }
            side.pop("reports")
            watched.run(f"users, turn {turn}", "run", "rounds", **common(**both), **side)
            watched.run(
                f"statistician, turn {turn}", "run", "rounds", from_reports="reports.jsonl", store="statistician.db",
                sink="means.jsonl", log_format="json", json=True, **agreed,
            )  # fmt: skip
        watched.run(
            "dry run of the statistician", "run", "rounds", from_reports="reports.jsonl", store="statistician.db",
            sink="means.jsonl", dry_run=True, **agreed,
        )  # fmt: skip
        watched.run(
            "ledger verify of the statistician's", "ledger", "verify", "--store", "statistician.db"
        )
        read_all(watched, "users.db")
        return of_everybody(watched.seen())


def on_beam(folder: Path, users: int, changed: str | None, estimator: str) -> Seen:
    """Run the same on Beam, twice: what is written, counted for everybody, displayed, and the graph
    of the job."""
    watched = Watched(folder, Clock())
    write_stream(folder / "private-stream.csv", users, changed=changed)
    options = common(
        estimator=estimator, store="rounds.db", name="worlds", runner="FnApiRunner", user_budget=2
    )
    options.pop("batch_size")
    with watching_beam(watched):
        for sink in ("means.jsonl", "again.jsonl"):
            watched.run(f"beam to {sink}", "run", "rounds", json=True, sink=sink, **options)
    return of_everybody(watched.seen())


def read_all(watched: Watched, store: str) -> None:
    """All that anybody is given of a store, and of a copy of it."""
    watched.run("ledger backup", "ledger", "backup", "--store", store, "--to", "copy.db")
    watched.run("ledger export", "ledger", "export", "--store", store, "--to", "ledger.jsonl")
    watched.run("report", "report", "report.html", store=store)
    for one in (store, "copy.db"):
        watched.run(f"budget of {one}", "budget", "--store", one, "--json")
        watched.run(f"ledger verify of {one}", "ledger", "verify", "--store", one, "--json")


def of_everybody(seen: Seen) -> Seen:
    """Leave out what is the operator's in rounds: dead letters, and what Beam counts in a namespace
    of its own."""
    shown = {name: data for name, data in seen.items() if name != "file dead_letters.jsonl"}
    if "counters" in shown:
        lines = shown["counters"].splitlines()
        shown["counters"] = b"\n".join(
            one for one in lines if PRIVATE_NAMESPACE.encode() not in one
        )
    return shown


class DieOnceCharged:
    """Die before anything is durable of what the first window has charged, however many batches
    that takes."""

    def __init__(self, store: Path, point: CrashPoint = CrashPoint.FLUSH_SINKS) -> None:
        self._store, self._point = store, point

    def __call__(self, point: CrashPoint, moment: Moment) -> None:
        if (point, moment) == (self._point, Moment.BEFORE):
            with closing(sqlite3.connect(self._store)) as store:
                if store.execute("SELECT count(*) FROM ledger").fetchone() != (0,):
                    raise Died


@contextmanager
def charged_as(told: dict[Any, Any]) -> Iterator[None]:
    """Force reports, and what a curator releases, to be those of the first world, with the digests
    of their inputs."""
    reports, versions, once = (
        WindowRound.charged_reports,
        WindowRound.versions,
        run.curator_noise_once,
    )

    def per_user(kind: str, this: WindowRound, stage: int, summaries: Summaries, made: Any) -> Any:
        for i, user in enumerate(summaries.user.tolist()):
            made[i] = told.setdefault((kind, this.id, stage, tuple(user)), made[i].copy())
        return made

    def forced_reports(
        self: WindowRound, secret: bytes, stage: int, public: Any, summaries: Summaries
    ) -> Any:
        made, version = reports(self, secret, stage, public, summaries)
        forced = per_user("report", self, stage, summaries, made)
        return forced, per_user("version", self, stage, summaries, version.copy())

    def forced_versions(
        self: WindowRound, secret: bytes, stage: int, public: Any, summaries: Summaries
    ) -> Any:
        made = versions(self, secret, stage, public, summaries).copy()
        return per_user("version", self, stage, summaries, made)

    def forced_once(this: WindowRound, secret: bytes, release: int, public: Any, tally: Any) -> Any:
        return told.setdefault(
            ("release", this.id, release), once(this, secret, release, public, tally)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WindowRound, "charged_reports", forced_reports)
        patch.setattr(WindowRound, "versions", forced_versions)
        patch.setattr(run, "curator_noise_once", forced_once)
        patch.setattr(
            "meanstream.pipelines.beam.rounds.answer_rounds.curator_noise_once", forced_once
        )
        yield
