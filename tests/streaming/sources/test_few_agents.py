"""Names that come often are read as a dictionary, and names, codes and rejects are those that they
would be without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.formats import csv_file, parquet_rows
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_directory import NameDirectory

ROWS = 2000
ODD: list[str | None] = [
    None,
    "",
    "NA",
    "N/A",
    "x" * 300,
    "tab\there",
    'qu"ote',
    "a,b",
    "ärger",
    " ",
    "7",
    "7.0",
]


def names(agents: int) -> list[str | None]:
    """Names of which some are none, at random places."""
    rng = np.random.default_rng(11)
    found: list[str | None] = [f"agent {n}" for n in rng.integers(0, agents, ROWS).tolist()]
    for place, odd in zip(rng.integers(0, ROWS, 60).tolist(), ODD * 5, strict=True):
        found[place] = odd
    return found


def read(path: Path) -> list[tuple[Any, ...]]:
    source = open_source(str(path), ColumnMapping(), sort=False)
    found = []
    while True:
        batch = source.next_batch(400)
        s = batch.samples
        rejects = (batch.rejects.reason, batch.rejects.position)
        found.append(
            (
                list(s.names),
                s.agent.tolist(),
                s.value.tolist(),
                s.time.tolist(),
                s.position.tolist(),
                *rejects,
            )
        )
        if batch.exhausted:
            source.close()
            return found


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many names are looked up at once."""
    looked: list[int] = []
    lookup = NameDirectory.lookup

    def count(self: NameDirectory, texts: pa.Array) -> Any:
        looked.append(len(texts))
        return lookup(self, texts)

    monkeypatch.setattr(NameDirectory, "lookup", count)
    return looked


@pytest.mark.parametrize("agents", [7, 10**6])
def test_a_csv_file_is_read_the_same_with_and_without_a_dictionary(
    agents: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    with path.open("w", encoding="utf-8") as file:
        file.write("agent,value,time\n")
        for n, name in enumerate(names(agents)):
            quoted = "" if name is None else f'"{name.replace(chr(34), 2 * chr(34))}"'
            file.write(f"{quoted},{n}{',more' if n % 500 == 3 else ''},{1.7e9 + n}\n")
    looked = counting(monkeypatch)
    with_dictionary, times = read(path), sum(looked)
    looked.clear()
    monkeypatch.setattr(csv_file, "FEW", 10**9)
    assert read(path) == with_dictionary
    assert (times < sum(looked) / 2) == (agents == 7)


@pytest.mark.parametrize("agents", [7, 10**6])
def test_a_parquet_file_is_read_the_same_with_and_without_a_dictionary(
    agents: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    columns = {
        "agent": names(agents),
        "value": np.arange(float(ROWS)),
        "time": 1.7e9 + np.arange(ROWS),
    }
    pq.write_table(pa.table(columns), path, row_group_size=900)
    looked = counting(monkeypatch)
    with_dictionary, times = read(path), sum(looked)
    looked.clear()
    monkeypatch.setattr(parquet_rows, "CODED_BYTES", 0)
    assert read(path) == with_dictionary
    assert (times < sum(looked) / 2) == (agents == 7)
