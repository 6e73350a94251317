"""A Parquet file is known by its bytes, and a damaged one is one line."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources import parquet_file
from meanstream.streaming.sources.source import UnreadableSourceError
from tests.streaming.sources.test_sources import MAPPING, read


def test_a_parquet_file_with_another_value_is_refused(tmp_path: Path) -> None:
    """As many rows of as many bytes, and the same extremes: it was read on."""
    path = tmp_path / "x.parquet"

    def written(value: float) -> None:
        columns = {"who": ["a"] * 50, "x": [0.0, 9.0, value, *[5.0] * 47], "t": range(50), "key": ["k"] * 50}
        pq.write_table(pa.table(columns), path, use_dictionary=False, compression="none")

    written(3.0)
    size, position = path.stat().st_size, read(open_source(str(path), MAPPING, sort=False), 20)[0].position
    written(4.0)
    assert path.stat().st_size == size
    with closing(open_source(str(path), MAPPING, sort=False)) as source, pytest.raises(ValueError, match="file that"):
        source.restore(position)
    written(3.0)
    kept = {name: value for name, value in position.items() if name != "digest"}
    for one in (position, kept):  # the latter is of before there was a digest
        with closing(open_source(str(path), MAPPING, sort=False)) as source:
            source.restore(one)


def test_pieces_of_a_large_parquet_file_recognize_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "_HEAD", 64)
    monkeypatch.setattr(parquet_file, "_PIECE", 1 << 12)
    path = tmp_path / "x.parquet"
    x = np.random.default_rng(5).normal(size=4000)
    columns: dict[str, Any] = {"who": ["a"] * 4000, "x": x, "t": range(4000), "key": ["k"] * 4000}
    pq.write_table(pa.table(columns), path)
    with closing(open_source(str(path), MAPPING, sort=False)) as source:
        position = source.next_batch(10).position
    pq.write_table(pa.table({**columns, "x": np.sort(x)}), path)
    with closing(open_source(str(path), MAPPING, sort=False)) as source, pytest.raises(ValueError, match="file that"):
        source.restore(position)


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("group", [0, 2])
def test_a_damaged_row_group_is_one_line(group: int, column: int, tmp_path: Path) -> None:
    """The first one before anything is begun; another one where it is met, after what stands before it."""
    path = tmp_path / "x.parquet"
    x = np.random.default_rng(5).normal(size=300)
    columns: dict[str, Any] = {"who": ["ab"] * 300, "x": x, "t": np.arange(300) * 7.5, "key": ["k"] * 300}
    pq.write_table(pa.table(columns), path, row_group_size=100, compression="snappy")
    with pq.ParquetFile(path) as file:
        chunk = file.metadata.row_group(group).column(column)
        at = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(path.read_bytes())
    data[at : at + 24] = bytes(255 - byte for byte in data[at : at + 24])
    path.write_bytes(data)
    with pytest.raises(UnreadableSourceError, match=r"^source must be an undamaged Parquet file, got 'x.parquet'$"):
        read(open_source(str(path), MAPPING, sort=False), 50)
    if group == 0:
        with pytest.raises(UnreadableSourceError):
            open_source(str(path), MAPPING, sort=False)
