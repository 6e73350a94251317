"""No raw value of a round leaves: every byte of every output and of both standard streams is
searched for the values.

Everything that rounds write is public, so the store, which is private and holds sums until a window
ends, shows that the search would find what leaks.
"""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from meanstream.pipelines.commands.run import progress_line as progress
from meanstream.streaming.store.state_snapshot import unpack_columns, unseal_snapshot
from tests.contracts.test_no_raw_values import LOWER, UPPER, found, write_stream
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream

ROLES = ("sink", "reports", "stages", "dead_letters", "notices")


def typed(folder: Path, **changes: Any) -> list[str]:
    named = {
        "source": folder / "flights.csv",
        "user": "tailnum",
        "value": "dep_delay",
        "time": "time_hour",
        "id": "flight",
        "lower": LOWER,
        "upper": UPPER,
        "epsilon": 1,
        "window": "6h",
        "user_budget": 2,
        "store": folder / "state.db",
        **{role: folder / f"{role}.jsonl" for role in ROLES},
        **changes,
    }
    return [
        "run",
        "rounds",
        *arguments({name: value for name, value in named.items() if value is not None}),
    ]


def searched(folder: Path, ran: Ran, digits: list[str]) -> dict[str, list[str]]:
    data = {
        role: (folder / f"{role}.jsonl").read_bytes()
        for role in ROLES
        if (folder / f"{role}.jsonl").exists()
    }
    return {
        name: found(text, digits) for name, text in {**data, "out": ran.out, "err": ran.err}.items()
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"json": True},
        {"sort": False, "log_format": "json"},
        {"estimator": "duchi"},
        {"estimator": "cummings.ratio"},
        {"estimator": "cummings.known_sizes"},
        {"estimator": "kent.linf", "values": "dep_delay", "value": None, "sizes": "point:9"},
        {"estimator": "kent.density", "option": "terms=4", "sizes": "point:9"},
    ],
)
def test_no_byte_holds_a_value(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    digits = write_stream(tmp_path / "flights.csv")
    ran = meanstream(*typed(tmp_path, **changes), environment={"MEANSTREAM_SECRET": SECRET})
    assert ran.code == 0
    assert not any(searched(tmp_path, ran, digits).values())
    written = {role for role in ROLES if (tmp_path / f"{role}.jsonl").stat().st_size}
    assert written >= {"sink", "reports", "dead_letters", "notices"}


def test_the_users_side_alone_holds_no_value_either(tmp_path: Path) -> None:
    digits = write_stream(tmp_path / "flights.csv")
    alone = {
        "sink": None,
        "reports": None,
        "reports_only": tmp_path / "reports.jsonl",
        "name": "flights",
    }
    ran = meanstream(*typed(tmp_path, **alone), environment={"MEANSTREAM_SECRET": SECRET})
    assert ran.code == 0
    assert not any(searched(tmp_path, ran, digits).values())


def test_refusals_and_a_damaged_store_tell_nothing(tmp_path: Path) -> None:
    digits = write_stream(tmp_path / "flights.csv")
    environment = {"MEANSTREAM_SECRET": SECRET}
    assert meanstream(*typed(tmp_path, quiet=True), environment=environment).code == 0
    runs = [
        meanstream(*typed(tmp_path, **c), environment=environment)
        for c in ({"epsilon": 2}, {"value": "delay"})
    ]
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute("UPDATE state SET value = zeroblob(length(value)) WHERE name = 'rounds'")
    connection.close()
    runs.append(meanstream(*typed(tmp_path), environment=environment))
    assert [ran.code for ran in runs] == [2, 2, 2]
    for ran in runs:
        assert not any(searched(tmp_path, ran, digits).values())


def test_the_store_holds_sums_until_their_window_ends_and_belongs_to_its_owner(
    tmp_path: Path,
) -> None:
    """The other side: the sum of a user with one sample is that sample, so the search would find a
    leak."""
    value = 123_456 * 2**20
    lines = ["tailnum,dep_delay,time_hour,flight", f"N1,{value},2013-01-01T00:00:00Z,a"]
    (tmp_path / "flights.csv").write_text("\n".join(lines) + "\n")
    program = typed(tmp_path, user_budget=None)
    totals: list[int] = []

    from meanstream.streaming.rounds.rounds_engine import RoundsEngine

    original = RoundsEngine._turn

    def watched(self: RoundsEngine, *a: Any, **k: Any) -> None:
        original(self, *a, **k)
        for _, columns in self._store.chunks("rounds_open"):
            totals.extend(columns["total"].tolist())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundsEngine, "_turn", watched)
        assert meanstream(*program, environment={"MEANSTREAM_SECRET": SECRET}).code == 0
    assert totals == [123_456]
    assert stat.S_IMODE((tmp_path / "state.db").stat().st_mode) == 0o600
    with sqlite3.connect(tmp_path / "state.db") as connection:
        left = connection.execute("SELECT data FROM chunks").fetchall()
    connection.close()
    assert all("total" not in unpack_columns(unseal_snapshot(data)) for (data,) in left)
    assert SECRET.encode() not in (tmp_path / "state.db").read_bytes()
