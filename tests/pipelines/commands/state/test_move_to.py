"""`meanstream store move` to a place: one that somebody was killed at is gone on with, every other
one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from meanstream.pipelines.commands.state.partition_moves import _taker
from meanstream.streaming.store.secret_source import secret_path
from meanstream.streaming.store.state_store import Store
from tests.pipelines.command_line import meanstream

RULES = (
    "--lower",
    "0",
    "--upper",
    "10",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--name",
    "n",
    "--quiet",
)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with its key beside it."""
    folder = tmp_path_factory.mktemp("move")
    places = ("--store", str(folder / "a.db"), "--sink", str(folder / "e.jsonl"))
    assert meanstream("run", "agents", "--source", "synthetic:3,60", *places, *RULES).code == 0
    return folder / "a.db"


@pytest.mark.parametrize("bytes_of_key", [None, 0, 7, 100])
@pytest.mark.parametrize("store_too", [False, True])
def test_a_store_that_was_only_half_made_is_made(
    bytes_of_key: int | None, store_too: bool, begun: Path, tmp_path: Path
) -> None:
    key, to = secret_path(begun).read_bytes(), tmp_path / "b.db"
    if bytes_of_key is not None:
        secret_path(to).write_bytes(key[:bytes_of_key])
        secret_path(to).chmod(0o600)
    if store_too:
        to.touch()
    giver = Store.amend(begun)
    taker = _taker(giver, to, {})
    assert taker.state("identity") is not None
    assert secret_path(to).read_bytes().strip() == key.strip()
    taker.keep()
    taker.close()
    _taker(giver, to, {}).close()  # it is whole now
    giver.close()


def test_other_places_are_one_line_and_stay_as_they_were(begun: Path, tmp_path: Path) -> None:
    (tmp_path / "other.db.secret").write_bytes(b"another key, of thirty-two bytes")
    (tmp_path / "open.db.secret").touch(0o644)
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "junk.db").write_bytes(b"hello" * 1000)
    (tmp_path / "link.db").symlink_to(begun)
    (tmp_path / "hard.db").hardlink_to(begun)
    (tmp_path / "named.db.secret").symlink_to(tmp_path / "elsewhere")
    before = {path.name for path in tmp_path.iterdir()}
    for name, rule in (
        ("other.db", "be a store with the same key next to it, or none"),
        ("open.db", "be a store with the same key next to it, or none"),
        ("folder.db", "be an existing file"),
        ("junk.db", "be a Meanstream store"),
        ("link.db", "be another store than from"),
        ("hard.db", "be another store than from"),
        ("named.db", "be in a folder that can hold its key"),
        ("no/b.db", "be in a folder that can hold its key"),
    ):
        ran = meanstream(
            "store", "move", "--from", str(begun), "--to", str(tmp_path / name), "--partition", "0"
        )
        assert ran.message.startswith(f"to must {rule}, got "), name
    assert {path.name for path in tmp_path.iterdir()} - before <= {"junk.db.lock"}
    assert (tmp_path / "open.db.secret").read_bytes() == b""
    assert (tmp_path / "other.db.secret").read_bytes() == b"another key, of thirty-two bytes"
