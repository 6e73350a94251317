"""A store and several processes: one writer by its lock, readers meanwhile, and what remains of one
that was killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.agents.agents_budget import agents_budgets
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_audit import audit_ledger

ROOT = Path(__file__).parents[3]
SECRET = b"7c1e94b05fa3d2681be60c9d37f25a84"
SETTINGS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "horizon": 100}

OPENED = f"""
import sys
from pathlib import Path
from meanstream.streaming.store import database
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import StoreLock
from meanstream.streaming.store.state_store import Store
database.SYNCHRONOUS = "OFF"
def opened():
    return Store.open(Path(sys.argv[1]), settings={SETTINGS!r}, secret={SECRET!r})
"""

HOLD = f"""{OPENED}
store = opened()
print("ready", flush=True)
sys.stdin.readline()
"""

CHARGE = f"""{OPENED}
class NoLock:
    note = close = lambda *_: None
StoreLock.take = lambda _: NoLock()
agent, store = int(sys.argv[2]), opened()
print("ready", flush=True)
sys.stdin.readline()
for index in range(1, 41):
    with store.transaction():
        row = LedgerRows(agent=[agent], release_index=[index], input_version=[7], time=[float(index)],
                         output=[b"%d:%d" % (agent, index)])
        assert store.ledger.charge(row) == []
store.close()
"""


def open_store(path: Path) -> Store:
    return Store.open(path, settings=SETTINGS, secret=SECRET)


@contextmanager
def process(program: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that says when it is ready; at the end it is gone."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == b"ready\n"
            yield started
        finally:
            started.kill()


def go_on(started: subprocess.Popen[bytes]) -> None:
    assert started.stdin is not None
    started.stdin.write(b"\n")
    started.stdin.flush()


def test_a_second_process_is_refused_with_the_id_of_the_first_until_that_is_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    (tmp_path / "link.db").symlink_to(path)
    with process(HOLD, path) as owner:
        for name in ("s.db", "link.db"):
            with pytest.raises(
                StoreError,
                match=rf"must be used by one process, .*{name}' in use by process {owner.pid}$",
            ):
                open_store(tmp_path / name)
        looked = Store.read(path)
        assert looked.agents() == []
        looked.close()
        owner.kill()
        owner.wait()
        assert (tmp_path / "s.db.lock").exists()
        open_store(path).close()
    with process(HOLD, path):
        pass


def test_a_lock_file_of_other_content_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    open_store(path).close()
    lock = tmp_path / "s.db.lock"
    lock.write_bytes(b"\xff nonsense")
    first = open_store(path)
    lock.write_bytes(b"\xff nonsense")
    with pytest.raises(StoreError, match="in use by another process"):
        open_store(path)
    first.close()
    lock.unlink()
    lock.mkdir()
    with pytest.raises(StoreError, match=r"must be in a writable folder, got .* directory"):
        open_store(path)


def test_a_store_that_lost_commits_is_refused(tmp_path: Path) -> None:
    """An older copy, or a write-ahead log of which SQLite ignores the damaged end."""
    path = tmp_path / "s.db"
    open_store(path).close()
    shutil.copy(path, tmp_path / "older.db")
    store = open_store(path)
    for _ in range(3):
        with store.transaction():
            store.post("budget", [b"{}"])
    store.close()
    open_store(path).close()
    shutil.copy(tmp_path / "older.db", path)
    for look in (open_store, Store.read):
        with pytest.raises(
            StoreError,
            match=r"must have the 5 commits that its lock file counts, got 2 in .*lock file",
        ):
            look(path)
    path.write_bytes(b"")
    with pytest.raises(
        StoreError, match="must have the 5 commits that its lock file counts, got 0 in"
    ):
        open_store(path)
    shutil.copy(tmp_path / "older.db", path)
    (tmp_path / "s.db.lock").unlink()
    open_store(path).close()
    path.unlink()
    open_store(path).close()  # another store in the same place


def test_writers_come_one_after_the_other_and_a_reader_sees_whole_commits(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = open_store(path)
    with store.transaction():
        store.add_agents(0, ["ann", "bob"])
    store.close()
    seen = []
    with process(CHARGE, path, 0) as ann, process(CHARGE, path, 1) as bob:
        go_on(ann)
        go_on(bob)
        while ann.poll() is None or bob.poll() is None:
            shown = agents_budgets(path)
            seen.append([row.spent for row in shown.agents])
            assert shown.summary.spent_max == max(seen[-1])
        assert (ann.returncode, bob.returncode) == (0, 0)
    assert seen == sorted(seen, key=sum)
    assert [row.spent for row in agents_budgets(path).agents] == [40, 40]
    assert audit_ledger(path).rows == 80
    looked = Store.read(path)
    outputs = looked.ledger.after(0)
    looked.close()
    for agent in (0, 1):
        assert [o for o in outputs if o.startswith(b"%d:" % agent)] == [
            b"%d:%d" % (agent, i) for i in range(1, 41)
        ]
