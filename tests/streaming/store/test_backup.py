"""Backups: made while the engine runs, restored as if nothing had been lost, and what must not be
restored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meanstream.pipelines.commands.main import app
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.engine.earlier_releases import EarlierReleases
from meanstream.streaming.store.secret_source import load_secret
from meanstream.streaming.store.source_identity import adopt_source_identity_of_copy
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_audit import (
    LedgerReport,
    NotedLedger,
    OtherLedgerError,
    audit_ledger,
    back_up_store,
)
from tests.streaming.support.scripted_source import ScriptedSource

SAMPLES = [(f"agent {i % 5}", float(i * 7 % 11), float(i)) for i in range(200)]


def source() -> ScriptedSource:
    return ScriptedSource(SAMPLES)


class BacksUp:
    """Makes a copy at some visit of a step of a running engine."""

    def __init__(self, store: Path, place: Path, visit: int) -> None:
        self.store, self.place, self._left = store, place, visit
        self.report: LedgerReport | None = None

    def __call__(self, point: CrashPoint, moment: Moment) -> None:
        if (point, moment) == (CrashPoint.COMMIT, Moment.AFTER):
            self._left -= 1
            if not self._left:
                self.copy()

    def copy(self) -> None:
        self.report = back_up_store(self.store, self.place)


def put_back(folder: Path) -> None:
    """Say on record that an older copy goes on with the input that it had read from."""
    store = Store.amend(folder / "s.db")
    adopt_source_identity_of_copy(store)
    store.close()


@pytest.mark.parametrize("visit", [1, 4, 9])
def test_a_store_lost_later_is_restored_and_everything_is_as_if_it_had_not_been_lost(
    visit: int, new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    whole, world = new_world("whole"), new_world("lost")
    whole.run(source())
    copy = BacksUp(world.folder / "s.db", tmp_path / "backup.db", visit)
    world.run(source(), crash=copy)
    assert copy.report is not None
    assert copy.report.rows < audit_ledger(world.folder / "s.db").rows, (
        "the copy is of before the end"
    )
    lost = world.files()
    for path in world.folder.glob("s.db*"):
        path.unlink()

    shutil.copy(
        copy.place, world.folder / "s.db"
    )  # with the same secret, which World keeps elsewhere
    with pytest.raises(
        ValueError, match=r"releases must hold nothing that this store has not charged, got other"
    ):
        world.run(source())
    put_back(world.folder)
    world.run(source())
    assert world.files() == lost == whole.files()
    after, never = audit_ledger(world.folder / "s.db"), audit_ledger(whole.folder / "s.db")
    assert (after.rows, after.agents, after.head) == (never.rows, never.agents, never.head), (
        "charged once"
    )
    audit_ledger(world.folder / "s.db", NotedLedger(rows=copy.report.rows, head=copy.report.head))


def test_copying_the_file_by_hand_misses_what_is_in_the_log(
    new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    """The known-bad twin: `cp` of the file alone while the engine runs."""
    world = new_world("w")

    class Copies(BacksUp):
        def copy(self) -> None:
            super().copy()
            shutil.copy(self.store, tmp_path / "by_hand.db")

    copy = Copies(world.folder / "s.db", tmp_path / "backup.db", 9)
    world.run(source(), crash=copy)
    assert copy.report is not None
    noted = NotedLedger(rows=copy.report.rows, head=copy.report.head)
    assert audit_ledger(copy.place, noted) == copy.report
    with pytest.raises(OtherLedgerError):
        audit_ledger(tmp_path / "by_hand.db", noted)


def test_an_older_copy_is_refused_where_the_lock_file_knows_better(
    new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    world = new_world("w")
    world.run(source(), crash=BacksUp(world.folder / "s.db", tmp_path / "backup.db", 4))
    shutil.copy(tmp_path / "backup.db", world.folder / "s.db")
    with pytest.raises(StoreError, match="damaged or an older copy"):
        world.run(source())


@pytest.mark.parametrize("checked", [True, False])
def test_other_input_after_a_restore_is_refused_before_anything_is_charged(
    checked: bool,
    new_world: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two releases of one index would differ by raw sums alone; the known-bad twin, which compares nothing, makes
    them."""
    if not checked:
        monkeypatch.setattr(EarlierReleases, "require_same", lambda *_: None)
    world = new_world("w")
    world.run(source(), crash=BacksUp(world.folder / "s.db", tmp_path / "backup.db", 1))
    first = {(e["agent"], e["index"]): e for e in world.events("releases")}
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(tmp_path / "backup.db", other / "s.db")
    put_back(other)
    elsewhere = type(world)(other)
    for role in ("releases", "estimates", "dead_letters", "notices", "population"):
        if (world.folder / f"{role}.jsonl").exists():
            shutil.copy(world.folder / f"{role}.jsonl", other)
    changed = ScriptedSource(
        [(agent, min(value + 1, 10.0), time) for agent, value, time in SAMPLES]
    )
    if checked:
        rows = audit_ledger(other / "s.db").rows
        for _ in range(2):  # and the next run knows it, too
            with pytest.raises(StoreError, match=r"releases must be made again as they left"):
                elsewhere.run(changed)
        assert audit_ledger(other / "s.db").rows == rows
        elsewhere.run(source())
        made = elsewhere.events("releases")
        assert {(e["agent"], e["index"]): e for e in made} == first
        return
    elsewhere.run(changed)
    second = {(e["agent"], e["index"]): e for e in elsewhere.events("releases")}
    both = [key for key in first if key in second and first[key] != second[key]]
    assert both, "some releases were made twice from different input"


def test_a_copy_is_private_new_and_of_a_store(world: Any, tmp_path: Path) -> None:
    world.run(source())
    back_up_store(world.folder / "s.db", tmp_path / "copy.db")
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.glob("copy.db*")} == {"copy.db"}, (
        "nothing is left beside it"
    )
    before = (tmp_path / "copy.db").read_bytes()
    with pytest.raises(
        StoreError, match=r"backup must be a new file, got .*copy\.db', which exists"
    ):
        back_up_store(world.folder / "s.db", tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_bytes() == before
    with pytest.raises(StoreError, match="backup must be in a writable folder"):
        back_up_store(world.folder / "s.db", tmp_path / "missing" / "copy.db")
    (tmp_path / "other.db").write_bytes(b"no store" * 1000)
    with pytest.raises(StoreError, match="must be a Meanstream store"):
        back_up_store(tmp_path / "other.db", tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def test_a_damaged_store_gives_no_copy(world: Any, tmp_path: Path) -> None:
    world.run(source())
    path = world.folder / "s.db"
    data = bytearray(path.read_bytes())
    at = data.find(b'"release_id"')
    data[at + 20] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError):
        back_up_store(path, tmp_path / "copy.db")
    assert list(tmp_path.glob("copy.db*")) == []


def test_the_command(world: Any, tmp_path: Path) -> None:
    world.run(source())
    arguments = [
        "ledger",
        "backup",
        "--store",
        str(world.folder / "s.db"),
        "--to",
        str(tmp_path / "c.db"),
        "--json",
    ]
    ran = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert ran.exit_code == 0
    report = audit_ledger(tmp_path / "c.db")
    assert json.loads(ran.stdout) == {
        "rows": report.rows,
        "agents": report.agents,
        "head": report.head.hex(),
    }
    again = CliRunner().invoke(app, arguments)
    assert "backup must be a new file" in str(again.exception)


def test_a_secret_beside_the_store_is_not_in_a_copy(tmp_path: Path) -> None:
    """And a restored store without it is refused."""
    folder = tmp_path / "a"
    folder.mkdir()
    secret = load_secret(folder / "s.db", environment={})
    Store.open(folder / "s.db", settings={"epsilon": 1.0}, secret=secret).close()
    back_up_store(folder / "s.db", tmp_path / "copy.db")
    assert secret not in (tmp_path / "copy.db").read_bytes()
    with pytest.raises(ValueError, match="secret must be in a readable file"):
        load_secret(tmp_path / "copy.db", environment={})
