"""No space for the store: one line that names it, nothing half written, and nothing lost when there
is space again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.store.database import Database
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_audit import audit_ledger
from tests.pipelines.command_line import SECRET, arguments, options, run_agents, write_samples
from tests.streaming.support.scripted_source import ScriptedSource
from tests.warm_command import run_forked

SAMPLES = [(f"agent {i % 3}", float(i % 11), float(i)) for i in range(120)]
FULL = r"^store must have space on a working disk, got '(database or disk is full|disk I/O error)' for '{}'; committed "
LIMITED = """
import resource, sys
from meanstream.pipelines.commands.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
main()
"""


def limited(pages: int) -> Callable[..., None]:
    """Let SQLite itself say that there is no space beyond so many pages."""
    begin = Database._begin

    def begin_limited(database: Database, *, read_only: bool) -> None:
        begin(database, read_only=read_only)
        database.rows(f"PRAGMA max_page_count = {pages}")

    return begin_limited


def test_wherever_the_space_ends_a_run_with_space_goes_on(new_world: Callable[[str], Any]) -> None:
    reference = new_world("reference")
    reference.run(ScriptedSource(SAMPLES))
    needed = (reference.folder / "s.db").stat().st_size // 4096
    ends = []
    for pages in range(2, needed):
        world = new_world(f"{pages} pages")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Database, "_begin", limited(pages))
            with pytest.raises(StoreError, match=FULL.format(world.folder / "s.db")) as caught:
                world.run(ScriptedSource(SAMPLES))
        assert len(str(caught.value).splitlines()) == 1
        ends.append(
            len(world.lines("releases")) if (world.folder / "releases.jsonl").exists() else None
        )
        world.run(ScriptedSource(SAMPLES))
        assert world.files() == reference.files()
        assert audit_ledger(world.folder / "s.db") == audit_ledger(reference.folder / "s.db")
    assert ends[0] is None  # not even the tables had space
    assert len(set(ends)) >= 3


def test_a_commit_without_space_leaves_what_was_there(tmp_path: Path) -> None:
    store = Store.open(
        tmp_path / "s.db", settings={}, secret=b"a secret of more than sixteen bytes"
    )
    with store.transaction():
        store.post("budget", [b"{}"])
    store._database.rows("PRAGMA max_page_count = 12")
    with pytest.raises(StoreError, match=FULL.format(tmp_path / "s.db")), store.transaction():
        store.post("dead_letter", [b"x" * 1000] * 1000)
    assert store.outbox() == [(1, "budget", b"{}")]
    store._database.rows("PRAGMA max_page_count = 1000000")
    with store.transaction():
        store.post("dead_letter", [b"x" * 1000] * 1000)
    assert len(store.outbox()) == 1001
    store.close()


def test_the_command_ends_with_one_line_and_goes_on_when_there_is_space(tmp_path: Path) -> None:
    """The operating system refuses to let any file grow beyond a limit; there is a store already,
    and more samples."""
    outputs = []
    for limit in (None, 0, 16_384, 65_536):
        folder = tmp_path / f"limit {limit}"
        folder.mkdir()
        (folder / "agents.yaml").write_text("sort: false\n")
        given: dict[str, Any] = {"sort": None, "config": folder / "agents.yaml"}
        write_samples(folder / "flights.csv", rows=30)
        assert run_agents(folder, **given).code == 0
        write_samples(folder / "flights.csv", rows=90)
        if limit is not None:
            command = ["run", "agents", *arguments(options(folder, quiet=True, **given))]
            environment = {**os.environ, "MEANSTREAM_SECRET": SECRET}
            ended = run_forked(LIMITED.format(limit=limit), *command, env=environment)
            (line,) = ended.stderr.decode().splitlines()
            assert ended.returncode in (1, 2)
            assert "store must have " in line
            assert f"{folder / 'state.db'}'" in line
        assert run_agents(folder, **given).code == 0
        outputs.append(
            [(folder / f"{role}.jsonl").read_bytes() for role in ("releases", "estimates")]
        )
    assert outputs[1:] == outputs[:1] * 3


def test_a_first_run_without_space_leaves_nothing_in_the_way_of_the_next(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MEANSTREAM_SECRET")
    }
    command = ["run", "agents", *arguments(options(tmp_path, quiet=True))]
    for limit, code in ((0, 2), (10, 2), (4096, 2), (1 << 30, 0)):
        ran = run_forked(LIMITED.format(limit=limit), *command, env=environment)
        assert (ran.returncode, len(ran.stderr.splitlines())) == (code, min(code, 1)), ran.stderr
