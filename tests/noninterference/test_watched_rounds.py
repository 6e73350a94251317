"""Non-interference of `run rounds`: what one user sends, and when, changes no byte, under reports
that are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.metrics import rounds_metrics as metrics_of_rounds
from meanstream.streaming.metrics.private_answers import PrivateRoundsMetrics
from meanstream.streaming.store.ledger_chain import LedgerChain, LedgerColumns
from tests.noninterference.comparison import Compared, Seen, nothing_differs
from tests.noninterference.rounds_worlds import (
    CHANGES,
    at_once,
    charged_as,
    on_beam,
    one_process,
    two_sides,
    write_stream,
)

Ports = tuple[int, ...]


def assert_all_is_seen(seen: Seen, users: int, failed: set[str]) -> None:
    """Nothing is compared that is empty in all worlds, and what should fail has failed."""
    codes = {
        name.removesuffix(": exit code"): data
        for name, data in seen.items()
        if name.endswith("exit code")
    }
    assert {name for name, code in codes.items() if code != b"0"} == failed
    assert seen["file means.jsonl"]
    if "file reports.jsonl" in seen:
        assert seen["file reports.jsonl"].count(b"\n") >= users
        assert b"meanstream_rounds_reports" in seen["GET /metrics of the metrics"]
        assert b"windows" in seen["GET /data of the page"]


@pytest.mark.parametrize(
    ("estimator", "users"),
    [
        ("one_shot", 30),
        ("cummings.known_sizes", 30),
        ("repeating", 60),
        ("plan", 300),
        ("category_shares", 30),
        ("quantile_tree", 40),
    ],
)
def test_what_a_user_sends_changes_no_byte_under_reports_that_are_the_same(
    estimator: str, users: int, tmp_path: Path, ports: Ports
) -> None:
    told: dict[Any, Any] = {}
    with charged_as(told):
        first = one_process(tmp_path / "first", users, ports, None, estimator)
        others = [one_process(tmp_path / how, users, ports, how, estimator) for how in CHANGES]
    assert told
    assert_all_is_seen(first, users, {"killed", "with another epsilon"})
    assert nothing_differs(first, *others)


def with_a_forecast(
    folder: Path, ports: Ports, changed: str | None, *, of_records: bool = False
) -> Seen:
    """Run with a forecast: of a public table; or, known-bad, of the means of the users' records."""
    folder.mkdir()
    lines = [f"u{user},{4 + user % 3}" for user in range(60)]
    if of_records:
        write_stream(folder / "records.csv", 60, changed=changed)
        rows = [line.split(",") for line in (folder / "records.csv").read_text().splitlines()[1:-2]]
        lines = [f"{user},{value}" for user, value, *_ in rows]
        (folder / "records.csv").unlink()
    (folder / "forecast.csv").write_text("\n".join(["user,level", *lines]) + "\n")
    return one_process(folder, 60, ports, changed, "repeating", prediction="forecast.csv:level")


def test_neither_do_they_with_a_public_forecast_but_they_do_with_one_of_the_records(
    tmp_path: Path, ports: Ports
) -> None:
    """Where predictions come from records, their mean shows what one user's records are."""
    told: dict[Any, Any] = {}
    with charged_as(told):
        first = with_a_forecast(tmp_path / "first", ports, None)
        others = [with_a_forecast(tmp_path / how, ports, how) for how in ("values", "number")]
    assert_all_is_seen(first, 60, {"killed", "with another epsilon"})
    assert b'"stage":"prediction"' in first["file means.jsonl"]
    assert nothing_differs(first, *others)

    told = {}
    with charged_as(told):
        bad = [
            with_a_forecast(tmp_path / f"bad {how}", ports, how, of_records=True)
            for how in (None, "values")
        ]
    assert bad[0]["file means.jsonl"] != bad[1]["file means.jsonl"]


@pytest.mark.parametrize("places", [1000, 9], ids=["room", "full"])
def test_neither_do_they_without_order(places: int, tmp_path: Path, ports: Ports) -> None:
    """A file as it stands, whose windows overlap in it; there may be fewer places than users."""
    told: dict[Any, Any] = {}
    how = {"sort": False, "max_users": places}
    with charged_as(told):
        first = one_process(tmp_path / "first", 12, ports, None, "one_shot", **how)
        others = [
            one_process(tmp_path / changed, 12, ports, changed, "one_shot", **how)
            for changed in CHANGES
        ]
    assert_all_is_seen(first, min(places, 12), {"killed", "with another epsilon"})
    assert nothing_differs(first, *others)


@pytest.mark.parametrize(
    ("estimator", "users"), [("kent", 30), pytest.param("kent", 300, marks=pytest.mark.full)]
)
def test_neither_do_they_between_the_two_sides(
    estimator: str, users: int, tmp_path: Path, ports: Ports
) -> None:
    told: dict[Any, Any] = {}
    with charged_as(told):
        first = two_sides(tmp_path / "first", users, ports, None, estimator)
        others = [two_sides(tmp_path / how, users, ports, how, estimator) for how in CHANGES]
    assert_all_is_seen(first, users, set())
    assert first["file stages.jsonl"]
    assert nothing_differs(first, *others)


@pytest.mark.parametrize(
    ("estimator", "users"), [("one_shot", 3), ("cummings.known_sizes", 30), ("plan", 300)]
)
def test_neither_do_they_on_beam(estimator: str, users: int, tmp_path: Path) -> None:
    told: dict[Any, Any] = {}
    with charged_as(told):
        first = on_beam(tmp_path / "first", users, None, estimator)
        others = [on_beam(tmp_path / how, users, how, estimator) for how in CHANGES]
    assert told
    assert_all_is_seen(first, users, set())
    assert first["file means.jsonl"] == first["file again.jsonl"]
    assert nothing_differs(first, *others)


# -- known-bad twins -------------------------------------------------------------------------------------------------


def in_worlds(folder: Path, ports: Ports, changed: str, world: Callable[..., Seen]) -> Compared:
    with charged_as({}):
        first = world(folder / "first", 30, ports, None, "one_shot")
        other = world(folder / "other", 30, ports, changed, "one_shot")
    return Compared(first, other)


def test_the_metrics_of_before_are_caught(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: the public address showed what is the operator's, events and rejected records among
    it."""
    monkeypatch.setattr(metrics_of_rounds, "RoundsMetrics", PrivateRoundsMetrics)
    assert in_worlds(tmp_path, ports, "number", at_once)["GET /metrics of the metrics"] > 0


def test_a_chain_that_holds_the_order_of_arrival_is_caught(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: users' numbers, given as they are first seen, were in the ledger's chain."""

    extend = LedgerChain.extend

    def numbered(chain: LedgerChain, rows: LedgerColumns, names: Sequence[bytes]) -> None:
        extend(chain, rows, [b"%d %s" % one for one in enumerate(names)])

    monkeypatch.setattr(LedgerChain, "extend", numbered)
    differing = in_worlds(tmp_path, ports, "times", one_process)
    assert {"ledger verify of rounds.db: standard output", "file report.html"} <= set(differing)
