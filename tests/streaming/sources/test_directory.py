"""A directory of names that begins anew, after few names here, changes no result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.streaming.events.event_columns import concatenate_columns
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources import source_directory as directory
from meanstream.streaming.sources.decode import Decoder
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.streaming.support.rounds_world import RoundsWorld, rounds_settings

MAPPING = ColumnMapping(id="id")


def written(path: Path, rows: int = 600) -> Path:
    lines = [
        f"agent {i % 5},{i % 7},{60 * i},{i % 280}\nmade up {i},1,{60 * i},x" for i in range(rows)
    ]
    path.write_text("agent,value,time,id\n" + "\n".join(lines) + "\n")
    return path


def batches(names: list[str], n: int = 10) -> list[Any]:
    decoder = Decoder(ColumnMapping())
    found = []
    for first in range(0, len(names), n):
        part = names[first : first + n]
        raw = {
            "agent": pa.array(part),
            "value": pa.array([1.0] * len(part)),
            "time": pa.array([5.0] * len(part)),
        }
        found.append(decoder.decode(raw, np.arange(len(part)))[0])
    return found


def test_it_holds_so_many_and_those_of_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"name {i}" for i in range(1000)]
    whole = batches(names)
    assert len(whole[-1].names) == 1000
    monkeypatch.setattr(directory, "MAX_DIRECTORY", 25)
    cut = batches(names)
    assert max(len(batch.names) for batch in cut) == 30
    assert [batch.names[code] for batch in cut for code in batch.agent.tolist()] == names
    assert concatenate_columns(cut).names == concatenate_columns(whole).names
    assert concatenate_columns(cut).agent.tolist() == concatenate_columns(whole).agent.tolist()


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("quorum", [1, 2])
def test_the_engine_gives_the_same_bytes(
    sort: bool,
    quorum: int,
    tmp_path: Path,
    new_world: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, files = written(tmp_path / "x.csv"), []
    for most in (2_000_000, 40):
        monkeypatch.setattr(directory, "MAX_DIRECTORY", most)
        (tmp_path / str(most)).mkdir()
        world = new_world(f"{most}/world")
        world.options = replace(
            world.options, quorum=quorum, max_agents=300, batch_size=64, allowed_lateness=1e6
        )
        stats = world.run(open_source(str(path), MAPPING, sort=sort))
        assert {"duplicate", "too_many_agents"} <= set(stats.rejected)
        files.append(world.files())
    assert files[0] == files[1]


def test_rounds_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, found = written(tmp_path / "x.csv"), []
    for most in (2_000_000, 40):
        monkeypatch.setattr(directory, "MAX_DIRECTORY", most)
        world = RoundsWorld(
            tmp_path / str(most), rounds_settings(estimator="one_shot", users=300, window="1h")
        )
        world.options = replace(world.options, batch_size=64)
        world.run(open_source(str(path), MAPPING, sort=False))
        found.append([world.lines(role) for role in ("reports", "means", "dead_letters")])
    assert found[0] == found[1]
    assert len(found[0][1]) == 10


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=6),
            st.text(max_size=6).map(str.encode),
            st.text(" ~!ab\n", max_size=300).map(str.encode),
        )
    )
)
def test_names_that_are_entered_together_are_those_that_are_entered_one_by_one(
    texts: list[bytes],
) -> None:
    together, alone = directory.NameDirectory(), directory.NameDirectory()
    codes = together.lookup(pa.array(texts, pa.binary())).tolist()
    each = [int(alone.lookup(pa.array([text], pa.binary()))[0]) for text in texts]
    assert codes == each
    assert (
        together.names
        == alone.names
        == [n for t in dict.fromkeys(texts) if (n := directory._valid_name(t)) is not None]
    )


def test_plain_names_are_names() -> None:
    """What is entered without a look at each: printable ASCII, not blank, not too long."""
    for text in (
        [bytes([byte]) for byte in range(256)]
        + [b"x" * n for n in (255, 256, 257)]
        + [b"", b" ", b" x\n", b"\nx"]
    ):
        plain = directory._all_plain(pa.array([b"ok", text], pa.binary()))
        assert not plain or directory._valid_name(text) is not None
    assert directory._all_plain(pa.array([bytes([byte]) for byte in range(33, 127)]))
