"""A file is known by all that was read of it: one that changed anywhere there is refused."""

from __future__ import annotations

import gzip
import json
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from meanstream.streaming.open_source import open_source
from tests.streaming.sources.test_sources import MAPPING, read


@pytest.mark.parametrize(
    "name", ["x.csv", "x.tsv", "x.csv.gz", "x.csv.zip", "x.jsonl", "x.jsonl.gz"]
)
@pytest.mark.parametrize("sort", [False, True])
def test_a_file_that_changed_anywhere_in_what_was_read_is_another(
    name: str, sort: bool, tmp_path: Path
) -> None:
    """Behind the first kilobytes as in front: lines that move would count twice."""
    path = tmp_path / name
    lines = jsonl_lines(600) if "jsonl" in name else csv_lines(600, "\t" if "tsv" in name else ",")
    pack(path, lines)
    position = read(open_source(str(path), MAPPING, sort=sort), 250)[1].position
    for at in (300, 450):
        pack(path, [*lines[:at], lines[at - 7], *lines[at:]])
        again = open_source(str(path), MAPPING, sort=sort)
        with closing(again), pytest.raises(ValueError, match=r"filled from.*store adopt"):
            again.restore(position)
    pack(path, lines)
    with closing(open_source(str(path), MAPPING, sort=sort)) as again:
        again.restore(position)
        assert [len(batch.samples) for batch in read(again, 250)] == [100]


def csv_lines(rows: int, separator: str) -> list[bytes]:
    head = separator.join(("who", "x", "t", "key"))
    fields = ((f"agent {i % 3}", str(i), str(1000 + i), f"k{i}") for i in range(rows))
    return [f"{one}\n".encode() for one in (head, *map(separator.join, fields))]


def jsonl_lines(rows: int) -> list[bytes]:
    made = ({"who": f"agent {i % 3}", "x": i, "t": 1000 + i, "key": f"k{i}"} for i in range(rows))
    return [json.dumps(one).encode() + b"\n" for one in made]


def pack(path: Path, lines: list[bytes]) -> None:
    text = b"".join(lines)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x", text)
    else:
        path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
