"""A few kilobytes that unpack to very many bad lines: bounded room in the store, and the good ones
count."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.engine import unused_records
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.store.state_store import Store
from tests.streaming.support.rounds_world import RoundsWorld, rounds_settings


@pytest.mark.parametrize("sort", [True, False])
def test_the_store_notes_a_bounded_number(
    sort: bool,
    tmp_path: Path,
    new_world: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(unused_records, "MAX_NOTED", 4 * unused_records.PIECE)
    rows = "".join(f"a{i % 3},{i % 7},{i}\n" for i in range(90))
    packed = gzip.compress(("agent,value,time\n" + rows + "x\n" * 60_000).encode())
    assert len(packed) < 2000
    (tmp_path / "x.csv.gz").write_bytes(packed)
    world = new_world("flooded")
    world.options = replace(world.options, batch_size=5000)
    stats = world.run(open_source(str(tmp_path / "x.csv.gz"), ColumnMapping(), sort=sort))
    assert (stats.accepted, stats.rejected["malformed"]) == (90, 60_000)
    with closing(Store.read(world.folder / "s.db")) as store:
        noted = [columns["position"] for _, columns in store.chunks("unused x.csv.gz")]
    assert 3 * unused_records.PIECE < sum(map(len, noted)) <= 4 * unused_records.PIECE
    said = "rejected records are no longer noted for a replay"
    assert [record.getMessage() for record in caplog.records].count(said) == 1
    assert stats.commits >= 12  # no commit holds more dead letters than a batch has records
    assert len(world.lines("dead_letters")) == 60_000
    assert (world.folder / "s.db").stat().st_size < 8 << 20


def flooded(path: Path, bad: int, *, start: int = 0) -> Path:
    good = "".join(f"a{i % 3},{i % 7},{start + i}\n" for i in range(30))
    path.write_text("agent,value,time\n" + good + "x\n" * bad)
    return path


@pytest.mark.parametrize("batch_size", [64, 100_000])
def test_a_store_tells_so_many_over_all_its_runs_and_counts_the_rest(
    batch_size: int,
    tmp_path: Path,
    new_world: Callable[[str], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = new_world("w")
    world.options = replace(world.options, max_dead_letters=1500, batch_size=batch_size)
    for number, left in enumerate((0, 500, 1000)):
        path = flooded(tmp_path / f"{number}.csv", 1000, start=100 * number)
        stats = world.run(open_source(str(path), ColumnMapping()))
        assert (stats.rejected["malformed"], stats.letters_unwritten) == (1000, left)
    assert len(world.lines("dead_letters")) == 1500
    full = [
        r
        for r in caplog.records
        if r.getMessage() == "dead letters are full: records are counted only"
    ]
    assert [(r.levelno, vars(r)["max_dead_letters"]) for r in full] == [
        (logging.WARNING, 1500)
    ] * 2  # one in each run
    world.options = replace(world.options, max_dead_letters=1600)
    world.run(open_source(str(flooded(tmp_path / "3.csv", 1000, start=300)), ColumnMapping()))
    assert len(world.lines("dead_letters")) == 1600


def test_where_nobody_asks_for_letters_none_takes_room(
    tmp_path: Path, new_world: Callable[[str], Any]
) -> None:
    world = new_world("w")
    world.options = replace(world.options, max_dead_letters=1000)
    stats = world.run(
        open_source(str(flooded(tmp_path / "x.csv", 1000)), ColumnMapping()), roles=("releases",)
    )
    assert (stats.rejected["malformed"], stats.letters_unwritten) == (1000, 0)
    stats = world.run(
        open_source(str(flooded(tmp_path / "y.csv", 1000, start=100)), ColumnMapping())
    )
    assert (len(world.lines("dead_letters")), stats.letters_unwritten) == (1000, 0)


def test_in_rounds_no_line_of_the_log_tells_that_they_are_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """How many records were rejected is private there."""
    world = RoundsWorld(tmp_path / "w", rounds_settings(estimator="one_shot", users=3))
    world.options = EngineOptions(batch_size=100, max_dead_letters=150)
    stats = world.run(open_source(str(flooded(tmp_path / "x.csv", 1000)), ColumnMapping()))
    assert (len(world.lines("dead_letters")), stats.letters_unwritten) == (150, 850)
    assert not [r for r in caplog.records if "letter" in r.getMessage()]
