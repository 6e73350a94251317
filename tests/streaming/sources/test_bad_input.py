"""Every kind of malformed record: counted by reason, a redacted dead letter, good neighbors and
state unharmed."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.events.wire import DeadLetter
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.formats.csv_file import CsvSource
from meanstream.streaming.sources.formats.jsonl_file import JsonlSource
from meanstream.streaming.sources.mapping import ColumnMapping

MAPPING = ColumnMapping(id="id")
PRIVATE_VALUE = "7.0314159"  # must not show anywhere

CSV_CASES: dict[str, tuple[bytes, dict[str, int]]] = {
    "missing value": (b"a,NA,50,x\n", {"missing_value": 1}),
    "empty value": (b"a,,50,x\n", {"missing_value": 1}),
    "text for a number": (b"a,seven 7.0314159,50,x\n", {"bad_value": 1}),
    "number with junk": (b"a,7.0314159kg,50,x\n", {"bad_value": 1}),
    "hexadecimal": (b"a,0x1F,50,x\n", {"bad_value": 1}),
    "underscores": (b"a,1_0,50,x\n", {"bad_value": 1}),
    "nan": (b"a,NaN,50,x\n", {"not_finite": 1}),
    "infinity": (b"a,-inf,50,x\n", {"not_finite": 1}),
    "nul in the value": (b"a,7.0314159\x00,50,x\n", {"bad_value": 1}),
    "too few fields": (b"a,7.0314159\n", {"malformed": 1}),
    "too many fields": (b"a,7.0314159,50,x,extra\n", {"malformed": 1}),
    "spaces only": (b"   \n", {"malformed": 1}),
    "stray quote": (b'"a,7.0314159,50,x\n', {"malformed": 1}),
    "two stray quotes": (b'"a,7.0314159,50,x\nb,1,58,y\n"c,1,50,z\n', {"malformed": 2}),
    "stray carriage return": (b"a,7.0314159\r,50,x\n", {"malformed": 1}),
    "blank line": (b"\n\r\n", {}),
    "10 MB line": (b"a," + b"7" * 10_000_000 + b",50,x\n", {"oversized": 1}),
    "line of 1 MB of separators": (b"," * 1_000_000 + b"\n", {"malformed": 1}),
    "broken UTF-8 in the agent": (b"\xff\xfe,7.0314159,50,x\n", {"bad_agent": 1}),
    "broken UTF-8 in the value": (b"a,\xff,50,x\n", {"bad_value": 1}),
    "broken UTF-8 in the id": (b"a,7.0314159,50,\xff\n", {"bad_id": 1}),
    "missing agent": (b"NA,7.0314159,50,x\n", {"missing_agent": 1}),
    "empty agent": (b",7.0314159,50,x\n", {"missing_agent": 1}),
    "blank agent": (b"  ,7.0314159,50,x\n", {"bad_agent": 1}),
    "nul in the agent": (b"a\x00b,7.0314159,50,x\n", {"bad_agent": 1}),
    "control character in the agent": (b"a\x1bb,7.0314159,50,x\n", {"bad_agent": 1}),
    "long agent": (b"a" * 300 + b",7.0314159,50,x\n", {"bad_agent": 1}),
    "empty id": (b"a,7.0314159,50,\n", {"bad_id": 1}),
    "long id": (b"a,7.0314159,50," + b"x" * 300 + b"\n", {"bad_id": 1}),
    "control character in the id": (b"a,7.0314159,50,x\x01\n", {"bad_id": 1}),
    "missing time": (b"a,7.0314159,,x\n", {"missing_time": 1}),
    "unreadable time": (b"a,7.0314159,yesterday,x\n", {"bad_time": 1}),
    "time before 1900": (b"a,7.0314159,0001-01-01,x\n", {"bad_time": 1}),
    "time after 2100": (b"a,7.0314159,9999-12-31T00:00:00Z,x\n", {"bad_time": 1}),
    "time in the future": (b"a,7.0314159,2099-01-01T00:00:00Z,x\n", {"in_future": 1}),
    "late": (b"a,7.0314159,1,x\n", {"late": 1}),
    "duplicate": (b"a,7.0314159,57,x\na,7.0314159,57,x\n", {"duplicate": 1}),
}

JSON_CASES: dict[str, tuple[bytes, dict[str, int]]] = {
    "not JSON": (b"a,7.0314159,50\n", {"malformed": 1}),
    "torn": (b'{"agent":"a","value":7.0314159,"ti\n', {"malformed": 1}),
    "two objects in a line": (b'{"agent":"a"}{"agent":"b"}\n', {"malformed": 1}),
    "not an object": (b"[7.0314159]\n", {"malformed": 1}),
    "deeply nested": (b'{"agent":' + b"[" * 100_000 + b"\n", {"malformed": 1}),
    "duplicate field": (
        b'{"agent":"a","value":1,"value":7.0314159,"time":50,"id":"x"}\n',
        {"duplicate_columns": 1},
    ),
    "value is text": (b'{"agent":"a","value":"7.0314159","time":50,"id":"x"}\n', {"bad_value": 1}),
    "value is a truth": (b'{"agent":"a","value":true,"time":50,"id":"x"}\n', {"bad_value": 1}),
    "value is a list": (
        b'{"agent":"a","value":[7.0314159],"time":50,"id":"x"}\n',
        {"bad_value": 1},
    ),
    "value is null": (b'{"agent":"a","value":null,"time":50,"id":"x"}\n', {"missing_value": 1}),
    "no value": (b'{"agent":"a","time":50,"id":"x"}\n', {"missing_value": 1}),
    "NaN": (b'{"agent":"a","value":NaN,"time":50,"id":"x"}\n', {"not_finite": 1}),
    "-Infinity": (b'{"agent":"a","value":-Infinity,"time":50,"id":"x"}\n', {"not_finite": 1}),
    "agent is a list": (
        b'{"agent":["a"],"value":7.0314159,"time":50,"id":"x"}\n',
        {"bad_agent": 1},
    ),
    "agent is empty": (
        b'{"agent":"","value":7.0314159,"time":50,"id":"x"}\n',
        {"missing_agent": 1},
    ),
    "agent with an escaped nul": (
        b'{"agent":"a\\u0000","value":7.0314159,"time":50,"id":"x"}\n',
        {"bad_agent": 1},
    ),
    "agent is half a character": (
        b'{"agent":"\\ud800","value":7.0314159,"time":50,"id":"x"}\n',
        {"bad_agent": 1},
    ),
    "broken UTF-8": (b'{"agent":"\xff","value":7.0314159,"time":50,"id":"x"}\n', {"malformed": 1}),
    "id is a truth": (b'{"agent":"a","value":7.0314159,"time":50,"id":true}\n', {"bad_id": 1}),
    "no id": (b'{"agent":"a","value":7.0314159,"time":50}\n', {"bad_id": 1}),
    "time is a list": (b'{"agent":"a","value":7.0314159,"time":[50],"id":"x"}\n', {"bad_time": 1}),
    "unreadable time": (
        b'{"agent":"a","value":7.0314159,"time":"soon","id":"x"}\n',
        {"bad_time": 1},
    ),
    "unknown schema version": (
        b'{"agent":"a","value":7.0314159,"time":50,"id":"x","schema_version":2}\n',
        {"unknown_schema_version": 1},
    ),
    "schema version is text": (
        b'{"agent":"a","value":7.0314159,"time":50,"id":"x","schema_version":"1"}\n',
        {"unknown_schema_version": 1},
    ),
    "10 MB line": (b'{"agent":"' + b"a" * 10_000_000 + b'"}\n', {"oversized": 1}),
    "blank line": (b"\n", {}),
}

GOOD_ROWS = 100
SPOILED_AT = 60


def csv_file(spoiled: bytes) -> bytes:
    rows = [f"agent {i % 3},{i % 7},{i},id {i}\n".encode() for i in range(GOOD_ROWS)]
    return b"agent,value,time,id\n" + b"".join([*rows[:SPOILED_AT], spoiled, *rows[SPOILED_AT:]])


def jsonl_file(spoiled: bytes) -> bytes:
    rows = [
        b'{"agent":"agent %d","value":%d,"time":%d,"id":"id %d"}\n' % (i % 3, i % 7, i, i)
        for i in range(GOOD_ROWS)
    ]
    return b"".join([*rows[:SPOILED_AT], spoiled, *rows[SPOILED_AT:]])


CASES = [
    *(
        pytest.param("x.csv", csv_file(bad), reasons, id=f"csv: {name}")
        for name, (bad, reasons) in CSV_CASES.items()
    ),
    *(
        pytest.param("x.jsonl", jsonl_file(bad), reasons, id=f"jsonl: {name}")
        for name, (bad, reasons) in JSON_CASES.items()
    ),
]


@pytest.mark.parametrize(("name", "content", "reasons"), CASES)
def test_a_bad_record_is_a_dead_letter_and_nothing_else(  # noqa: PLR0917 - fixtures
    name: str,
    content: bytes,
    reasons: dict[str, int],
    tmp_path: Path,
    new_world: Callable[[str], Any],
    clean: tuple[list[bytes], list[bytes]],
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    world = new_world("spoiled")
    stats = world.run(open_source(str(path), MAPPING, sort=False))
    survivors = sum(line.count(b",58,y") for line in content.splitlines() if len(line) < 1000)
    extra = 1 if "duplicate" in reasons else survivors
    assert stats.rejected == Counter(reasons)
    assert stats.accepted == GOOD_ROWS + extra
    letters = [DeadLetter.model_validate_json(line) for line in world.lines("dead_letters")]
    assert Counter(letter.reason for letter in letters) == Counter(reasons)
    assert all(letter.source == name for letter in letters)
    first = SPOILED_AT + (2 if name == "x.csv" else 1)
    assert {letter.position for letter in letters} <= {first, first + 1, first + 2}
    if not extra:
        assert (sorted(world.lines("releases")), world.lines("estimates")[-3:]) == clean
    public = (
        b"".join(world.lines("dead_letters")).decode() + caplog.text + "".join(capsys.readouterr())
    )
    assert PRIVATE_VALUE not in public


@pytest.fixture(scope="module")
def clean(
    tmp_path_factory: pytest.TempPathFactory, world_type: Any
) -> tuple[list[bytes], list[bytes]]:
    """What the good records alone give."""
    folder = tmp_path_factory.mktemp("clean")
    (folder / "x.csv").write_bytes(csv_file(b""))
    world = world_type(folder / "world")
    world.run(open_source(str(folder / "x.csv"), MAPPING, sort=False))
    return sorted(world.lines("releases")), world.lines("estimates")[-3:]


def test_a_value_outside_counts_as_the_nearest_bound(
    tmp_path: Path, new_world: Callable[[str], Any]
) -> None:
    """Row 9: with "reject", a dead letter, and the number of samples of a release, told which
    values were outside."""
    (tmp_path / "x.csv").write_bytes(csv_file(b"agent 0,123456,59,x\n"))
    clipped = new_world("clip")
    stats = clipped.run(open_source(str(tmp_path / "x.csv"), MAPPING, sort=False))
    assert (stats.clipped, stats.accepted, stats.rejected) == (1, GOOD_ROWS + 1, Counter())


def test_sizes_of_unreadable_records_are_rounded(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(csv_file(b"a,7.0314159\n" + b"b" * 2_000_000 + b"\n"))
    with closing(CsvSource(tmp_path / "x.csv", MAPPING)) as source:
        rejects = source.next_batch(1000).rejects
    assert dict(zip(rejects.reason, rejects.size, strict=True)) == {
        "malformed": 16,
        "oversized": 1 << 21,
    }


@pytest.mark.parametrize("source", [CsvSource, JsonlSource])
def test_a_file_of_garbage_ends_without_a_sample(source: Any, tmp_path: Path) -> None:
    import numpy as np

    noise = np.random.default_rng(3).integers(0, 256, 200_000, dtype=np.uint8).tobytes()
    header = b"agent,value,time,id\n" if source is CsvSource else b""
    path = tmp_path / ("x.csv.gz")
    path.write_bytes(gzip.compress(header + noise))
    opened = source(path, MAPPING)
    samples = rejects = 0
    while not (batch := opened.next_batch(1000)).exhausted:
        samples += len(batch.samples)
        rejects += len(batch.rejects)
    opened.close()
    assert samples == 0
    assert rejects == len([line for line in noise.split(b"\n") if line.rstrip(b"\r")])


def test_many_bad_lines_are_isolated_one_by_one(tmp_path: Path) -> None:
    rows = [(f'"a{i},1,50,x' if i % 3 == 0 else f'a{i},1,50,"x{i}"') for i in range(900)]
    (tmp_path / "x.csv").write_text("agent,value,time,id\n" + "\n".join(rows) + "\n")
    with closing(CsvSource(tmp_path / "x.csv", MAPPING)) as source:
        batch = source.next_batch(10_000)
    assert batch.rejects.position == [i + 2 for i in range(0, 900, 3)]
    assert batch.samples.position.tolist() == [i + 2 for i in range(900) if i % 3]
