"""`coverage="anytime"` on a store says for which calls it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import meanstream
from tests.pipelines.command_line import SECRET

TOGETHER = "hold at all calls together"


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)


def note_of_call(store: Path, rows: int, coverage: Any) -> str:
    """Ask for the first rows of a table that grows; give what is said of calls together."""
    rng = np.random.default_rng(3)
    table = pa.table(
        {
            "g": [f"g{i % 5}" for i in range(400)],
            "v": rng.uniform(0, 1, 400),
            "t": np.arange(400),
        }
    )
    result = meanstream.private_means(
        table.slice(0, rows), by="g", value="v", time="t", lower=0, upper=1, epsilon=1, delta=1e-6,
        store=store, coverage=coverage,
    )  # fmt: skip
    return next((note for note in result.notes if TOGETHER in note), "")


def test_calls_that_were_pointwise_are_left_out(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    assert not note_of_call(store, 100, "pointwise")
    assert "except for 1 call before" in note_of_call(store, 200, "anytime")
    assert not note_of_call(store, 300, "pointwise")
    assert "except for 2 calls before" in note_of_call(store, 400, "anytime")


def test_without_any_all_calls_hold_together(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    for rows in (100, 200):
        note = note_of_call(store, rows, "anytime")
        assert note
        assert "except" not in note
