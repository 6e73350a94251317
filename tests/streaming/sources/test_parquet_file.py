"""A Parquet file is known by its bytes, and a damaged one is one line."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meanstream.streaming.events.event_columns import Position
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.source_protocol import UnreadableSourceError
from tests.streaming.sources.test_sources import MAPPING, read


def test_a_parquet_file_with_another_value_is_refused(tmp_path: Path) -> None:
    """As many rows of as many bytes, and the same extremes: it was read on."""
    path = tmp_path / "x.parquet"

    def written(value: float) -> None:
        columns = {
            "who": ["a"] * 50,
            "x": [0.0, 9.0, value, *[5.0] * 47],
            "t": range(50),
            "key": ["k"] * 50,
        }
        pq.write_table(pa.table(columns), path, use_dictionary=False, compression="none")

    written(3.0)
    size, position = (
        path.stat().st_size,
        read(open_source(str(path), MAPPING, sort=False), 20)[0].position,
    )
    written(4.0)
    assert path.stat().st_size == size
    with (
        closing(open_source(str(path), MAPPING, sort=False)) as source,
        pytest.raises(ValueError, match="file that"),
    ):
        source.restore(position)
    written(3.0)
    with closing(open_source(str(path), MAPPING, sort=False)) as source:
        source.restore(position)


@pytest.mark.parametrize("column", ["who", "x", "t", "key"])
def test_any_byte_of_a_column_that_was_read_makes_another_file(column: str, tmp_path: Path) -> None:
    """Far behind the beginning, of as many bytes with the same extremes; row groups that were not
    read may differ."""
    path, rows = tmp_path / "x.parquet", 4000
    columns: dict[str, list[Any]] = {
        "who": [f"agent {i % 9}" for i in range(rows)],
        "x": [float(i % 5) for i in range(rows)],
        "t": [float(i % 7) for i in range(rows)],
        "key": [f"k{i:05d}" for i in range(rows)],
    }

    def restored(position: Position | None, *swapped: int) -> Position:
        new = {name: list(values) for name, values in columns.items()}
        if swapped:
            a, b = swapped
            new[column][a], new[column][b] = new[column][b], new[column][a]
        pq.write_table(
            pa.table(new), path, row_group_size=1000, use_dictionary=False, compression="none"
        )
        with closing(open_source(str(path), MAPPING, sort=False)) as source:
            if position is not None:
                source.restore(position)
            return source.next_batch(1500).position

    position = restored(None)
    for swapped in ((10, 11), (900, 901), (1900, 1901)):
        with pytest.raises(ValueError, match="file that this store was filled from"):
            restored(position, *swapped)
    assert restored(position, 2900, 2901)["row"] == 3000


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("group", [0, 2])
def test_a_damaged_row_group_is_one_line(group: int, column: int, tmp_path: Path) -> None:
    """The first one before anything is begun; another one where it is met, after what stands before
    it."""
    path = tmp_path / "x.parquet"
    x = np.random.default_rng(5).normal(size=300)
    columns: dict[str, Any] = {
        "who": ["ab"] * 300,
        "x": x,
        "t": np.arange(300) * 7.5,
        "key": ["k"] * 300,
    }
    pq.write_table(pa.table(columns), path, row_group_size=100, compression="snappy")
    with pq.ParquetFile(path) as file:
        chunk = file.metadata.row_group(group).column(column)
        at = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(path.read_bytes())
    data[at : at + 24] = bytes(255 - byte for byte in data[at : at + 24])
    path.write_bytes(data)
    with pytest.raises(
        UnreadableSourceError, match=r"^source must be an undamaged Parquet file, got 'x.parquet'$"
    ):
        read(open_source(str(path), MAPPING, sort=False), 50)
    if group == 0:
        with pytest.raises(UnreadableSourceError):
            open_source(str(path), MAPPING, sort=False)
