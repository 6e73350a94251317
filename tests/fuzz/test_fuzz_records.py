"""A slice of the fuzz of records; `make fuzz` runs a million."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meanstream.streaming.sources.formats.csv_file import CsvFormat
from tests.fuzz.fuzzed_records import (
    HEADER,
    MAPPING,
    Alone,
    Findings,
    Generator,
    fuzz_records,
    fuzz_text,
)


def test_no_record_depends_on_its_neighbors_or_the_batch() -> None:
    found = last(fuzz_records(7, 4000, block=200))
    assert not found.faults, found.examples
    assert min(found.used.values()) > 100
    assert set(found.records) == {
        "csv",
        "jsonl",
        "kafka",
        "parquet",
        "nested",
        "cloudevents",
        "avro",
    }


def test_it_catches_a_reader_that_only_counts_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731 - the reader of before set no line apart
    monkeypatch.setattr(CsvFormat, "stands_out", nothing)
    found, alone = Findings(), Alone(lambda: CsvFormat(HEADER, ",", MAPPING))
    fuzz_text(
        generator=Generator(2), found=found, alone=alone, folder=tmp_path, area="csv", count=1500
    )
    assert found.faults["csv"] > 0


def last(rounds: Iterator[Findings]) -> Findings:
    found = Findings()
    for found in rounds:  # noqa: B007 - the last one counts
        pass
    return found
