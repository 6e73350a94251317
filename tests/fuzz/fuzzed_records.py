"""Records as nobody should write them: what becomes of each alone, and among others."""

# ruff: noqa: E501, RUF005 - pools of texts  # noqa: RUF100
from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from meanstream.operators.records import Ints
from meanstream.streaming.events.event_columns import Rejects, SampleColumns
from meanstream.streaming.kafka.connection.values import PartitionRecords
from meanstream.streaming.sources.formats.csv_file import CsvFormat, CsvSource
from meanstream.streaming.sources.formats.json_records import JsonFormat
from meanstream.streaming.sources.formats.jsonl_file import JsonlSource
from meanstream.streaming.sources.formats.parquet_file import ParquetSource
from meanstream.streaming.sources.lines import MAX_LINE_BYTES
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_records import RecordParser
from tests.fuzz.fuzzed_messages import MessageGenerator, fuzz_topic
from tests.streaming.support.parsed_values import parse_values

MAPPING = ColumnMapping(id="id")
HEADER = ["agent", "value", "time", "id", "schema_version"]
SIZES = (1 << 20, 977, 37)
"""Records of a batch: all at once, some, few."""

Fate = tuple[Any, ...]
"""Why a record was not used and its rounded size, or the sample that it is."""

AGENTS = (
    b"a1 N14228 1 1.0 -0 007 \xc3\xa9 \xff \xe2\x80\xa8 a\x00b a\x7fb a\x1bb NA null None nan true \xef\xbb\xbfa \xed\xa0\x80"
    b' a"b "a "a" "a""b" a" "" """" "a"b "a,b" "a\rb" a\rb "a\tb" \r "'
).split(b" ") + [
    b"",
    b" ",
    b"  a  ",
    b" a",
    b"x" * 256,
    b"x" * 257,
    b"a\rx,1,50,k,\ry",
    b'"a b"',
    b'q"',
    b"\xc2\x85",
]
VALUES = (
    b"1 -3 1.5 .5 5. +1 -0 1e5 1E+5 1e999 -1e999 1e-999 4.9e-324 1e nan NaN -nan nan(abc) inf -Infinity INF infinit 0x10"
    b' 1_000 1,5 "1,5" "1" "1"" true False NA N/A null None - . 1\x00 \xff 1\r \xd9\xa1 "\r1" 1d5 1f 0b1 9007199254740993'
).split(b" ") + [
    b"",
    b" ",
    b" 1",
    b"1 ",
    b"\t1",
    b"7" * 400,
    b"0." + b"3" * 400,
    b"\xc2\xa01",
    b"1\x0b",
]
TIMES = [
    *(
        b"2013-01-01T00:00:00Z 2013-01-01T00:00:00+01:00 2013-01-01T00:00:00-0130 2013-01-01T00:00:00+01"
        b" 2013-01-01T00:00:00 2013-01-01 20130101 20130101T000000Z 2013-W01-1 2013-001 2013-1-1 2013-01-01T00 2013-01-01T00:00"
        b" 2013-01-01T00:00Z 2013-01-01T00:00:00.1Z 2013-01-01T00:00:00.123456Z 2013-01-01T00:00:00.1234567Z"
        b" 2013-01-01T00:00:00.123456789 2013-01-01T00:00:00,5Z 2013-01-01T24:00:00Z 2013-01-01T00:00:60Z 2013-02-29"
        b" 2012-02-29 2013-13-01 9999-12-31 0001-01-01 0000-01-01 1899-12-31T23:59:59Z 1900-01-01 2099-12-31T23:59:59.999999Z"
        b" 1356998400 1356998400.5 1356998400000 1356998400000000 1.3569984e9 -1 0 1e18 1e999 nan inf NA null soon"
        b" 2013-01-01T00:00:00z 2013-01-01t00:00:00Z 2013-01-01T00:00:00+25:00 2013-01-01T00:00:00+00:60 \xff \x00 12:00"
        b' "2013-01-01" "2013-01-01 50\r +50 0x32 1_0 2013-01-01T00:00:00+00:00:30 +2013-01-01 12013-01-01'
    ).split(b" "),
    *(
        b"2013-01-01 00:00:00",
        b" 2013-01-01",
        b"2013-01-01 ",
        b"2013-01-01 00:00:00 Z",
        b"",
        b" ",
        b"2013-01-01 00:00",
    ),
    *("\uff12\uff10\uff11\uff13-01-01".encode(), "2013-01-01T00:00:00\u221201:00".encode()),
]
IDS = [
    b"",
    b" ",
    b"k",
    b"NA",
    b"\xff",
    b"x" * 256,
    b"x" * 257,
    b"k\x01",
    b'"k"',
    b'k"',
    b"\xc3\xa9",
    b"\r",
    b"k\x7f",
    b"0",
    b"x" * 140_000,  # more than a field may have by Python's own reader
]
VERSIONS = [b"", b"1", b"2", b"1.0", b" 1", b"x", b"01", b"NA", b"9" * 30, b'"1"', b"true"]
ODD = (AGENTS, VALUES, TIMES, IDS, VERSIONS)
BYTES = (b'"', b",", b"\r", b"{", b"}", b"[", b"]", b":", b"\\", b" ", b"\x00", b"\n", b'""', b"}{")
GOOD_TIMES = (
    b"2013-01-01T10:%02d:00Z",
    b"2013-01-01 10:%02d:00",
    b"13569984%02d",
    b"13569984%02d000",
    b"2013-01-01T10:%02d",
)


class Generator:
    """Seeded records of each format; most are good, so that they go the way of the many."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - test data

    def _one_of(self, items: Sequence[Any]) -> Any:
        return items[int(self._rng.random() * len(items))]

    def _integers(self, first: int, stop: int, count: int) -> list[int]:
        return [self._rng.randrange(first, stop) for _ in range(count)]

    def _fields(self, time: bytes, odd: float) -> list[bytes]:
        number = self._rng.randrange(60)
        good = [
            b"agent %d" % (number % 7),
            b"%d.%d" % (number, number % 10),
            time % number,
            b"k%d" % number,
            b"1",
        ]
        return [
            self._one_of(pool) if self._rng.random() < odd else text
            for pool, text in zip(ODD, good, strict=True)
        ]

    def _mutated(self, record: bytes, line: bool) -> bytes:
        """Change some bytes; a line keeps being one line."""
        changed = bytearray(record)
        for _ in range(self._rng.randrange(1, 4)):
            at = self._rng.randrange(len(changed) + 1)
            fresh = (
                bytes([self._rng.randrange(256)])
                if self._rng.random() < 0.5
                else self._one_of(BYTES)
            )
            changed[at : at + self._rng.randrange(2)] = fresh
        return bytes(changed).replace(b"\n", b"" if line else b"\n")

    def csv(self, count: int) -> list[bytes]:
        """Lines of a CSV file without their ends; never blank."""
        time, odd, quoted = (
            self._one_of(GOOD_TIMES),
            self._one_of((0.0, 0.002, 0.03, 0.3)),
            self._rng.random() < 0.3,
        )
        ends = b"\r" if self._rng.random() < 0.2 else b""
        lines = []
        for _ in range(count):
            fields = self._fields(time, odd)
            if quoted:
                fields = [
                    b'"' + text + b'"' if self._rng.random() < 0.7 else text for text in fields
                ]
            line = b",".join(fields) + ends
            if self._rng.random() < odd / 2:
                line = self._mutated(line, line=True)
            lines.append(line if line.strip(b"\r") else b"x")
        return lines

    def json(self, count: int, *, line: bool) -> list[bytes]:
        """JSON records: lines of a file, or values of messages, which may have line ends in
        them."""
        time, odd = self._one_of(GOOD_TIMES), self._one_of((0.0, 0.002, 0.03, 0.3))
        as_number = time.startswith(b"1") and self._rng.random() < 0.5
        records = [self._json_record(time, odd, as_number, line) for _ in range(count)]
        return [record if record.strip(b"\r") else b"x" for record in records]

    def _json_record(self, time: bytes, odd: float, as_number: bool, line: bool) -> bytes:
        texts = [field.decode("latin-1") for field in self._fields(time, odd)]
        found: dict[str, Any] = dict(zip(HEADER, texts, strict=True))
        for name in ("value", "schema_version", *(("time",) if as_number else ())):
            found[name] = _raw_number(found[name])
        if self._rng.random() < odd:
            found[self._one_of(HEADER)] = self._one_of(JSON_VALUES)
        if self._rng.random() < odd:
            del found[self._one_of(HEADER)]
        if self._rng.random() < odd:
            found["more"] = self._one_of(JSON_VALUES)
        record = json.dumps(
            found, ensure_ascii=self._rng.random() < 0.5, indent=None if line or odd < 0.03 else 1
        )
        written = record.encode("utf-8", "surrogatepass")
        if self._rng.random() < odd / 2:
            written = written.replace(b"}", b',"value":2}', 1)
        return self._mutated(written, line) if self._rng.random() < odd / 2 else written

    def table(self, count: int) -> pa.Table:
        """Rows of a Parquet file, of column types that such files have."""
        time, odd = self._one_of(GOOD_TIMES), self._one_of((0.0, 0.002, 0.03, 0.3))
        rows = [self._fields(time, odd) for _ in range(count)]
        columns = [
            pa.array([row[i] or None for row in rows], pa.binary()) for i in range(len(HEADER))
        ]
        if self._rng.random() < 0.5:
            columns[1] = pa.array([_float(row[1]) for row in rows], pa.float64())
        if self._rng.random() < 0.3:
            unit, largest = self._one_of(
                (("s", 2**52), ("ms", 2**52), ("us", 2**62), ("ns", 2**62))
            )
            columns[2] = pa.array(self._integers(-largest, largest, count), pa.timestamp(unit))
        if self._rng.random() < 0.5:
            columns[0] = columns[0].dictionary_encode()
        if self._rng.random() < 0.3:
            columns[4] = pa.array(self._integers(0, 3, count), pa.int64())
        if self._rng.random() < 0.3:
            columns[3] = pa.array(self._integers(-5, 50, count), pa.int64())
        return pa.table(dict(zip(HEADER, columns, strict=True)))


JSON_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        1.5,
        1e300,
        10**40,
        2**63,
        2**64,
        float("nan"),
        float("-inf"),
        "",
        "x",
        "1",
        "\ud800",
    ),
    *(
        "a\n",
        "}",
        "{",
        [],
        [1],
        {},
        {"agent": "b"},
        {"a": {"b": [{}]}},
        "\u2028",
        "é",
        "2013-01-01",
        1356998400,
        1356998400.25,
    ),
)


def _raw_number(text: str) -> Any:
    try:
        return (
            int(text)
            if text.isascii() and text.strip("-").isdigit() and len(text) < 400
            else float(text)
        )
    except ValueError:
        return text


def _float(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass
class Findings:
    """What the runs found.

    Attributes
    ----------
    records, faults : Counter of str
        Records and faults by area: csv, jsonl, kafka, parquet, nested, cloudevents, avro.
    examples : list of str
        The first faults in words.
    """

    records: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def compare(
        self, area: str, records: Sequence[Any], alone: list[Fate], among: list[Fate], size: int
    ) -> None:
        """Note every record whose fate the others have changed."""
        for record, expected, got in zip(records, alone, among, strict=True):
            if expected != got:
                self.faults[area] += 1
                if len(self.examples) < 20:
                    self.examples.append(f"{area}: {record!r} alone {expected}, among {size} {got}")


def fates(samples: SampleColumns, rejects: Rejects, number: dict[int, Fate]) -> None:
    """Note what became of each record, by its position."""
    for reason, position, size in zip(rejects.reason, rejects.position, rejects.size, strict=True):
        number[position] = (reason, size) if position not in number else ("twice", number[position])
    keys = [None] * len(samples) if samples.key is None else samples.key.tolist()
    columns = (
        samples.position.tolist(),
        samples.agent.tolist(),
        samples.value.tolist(),
        samples.time.tolist(),
        keys,
    )
    for position, agent, *rest in zip(*columns, strict=True):
        fate = (samples.names[agent], *rest)
        number[position] = fate if position not in number else ("twice", fate)


def read(source: Any, first: int, count: int, size: int) -> list[Fate]:
    """Read a source in batches of a size."""
    found: dict[int, Fate] = {}
    while not (batch := source.next_batch(size)).exhausted:
        fates(batch.samples, batch.rejects, found)
    source.close()
    return [found.pop(first + i, ("lost",)) for i in range(count)] + [("extra", k) for k in found]


class Alone:
    """What becomes of a record where no other is: by a parser of its own."""

    def __init__(self, make_form: Callable[[], Any]) -> None:
        self._make_form = make_form
        self._known: dict[bytes, Fate] = {}

    def forget(self) -> None:
        """Bound the memory of fates."""
        self._known.clear()

    def fate(self, record: bytes) -> Fate:
        if record not in self._known:
            parser = RecordParser(self._make_form(), MAPPING, id_key=b"k")
            found: dict[int, Fate] = {}
            rejects = Rejects()
            samples = parse_values(parser, _messages([record]), rejects, MAX_LINE_BYTES)
            fates(samples, rejects, found)
            self._known[record] = found.pop(0, ("lost",)) if len(found) == 1 else ("several", found)
        return self._known[record]


def _messages(values: list[bytes]) -> PartitionRecords:
    return PartitionRecords(np.zeros(len(values), np.int64), np.arange(len(values)), list(values))


def fuzz_text(
    *, generator: Generator, found: Findings, alone: Alone, folder: Path, area: str, count: int
) -> None:
    """Compare the lines of a file, each alone and among the others."""
    csv = area == "csv"
    lines = generator.csv(count) if csv else generator.json(count, line=True)
    path = folder / f"x.{area}"
    path.write_bytes(
        (",".join(HEADER).encode() + b"\n" if csv else b"") + b"\n".join(lines) + b"\n"
    )
    expected = [alone.fate(line) for line in lines]
    for size in SIZES:
        source = (CsvSource if csv else JsonlSource)(path, MAPPING, id_key=b"k")
        found.compare(area, lines, expected, read(source, 2 if csv else 1, count, size), size)
    found.records[area] += count
    found.used[area] += sum(len(fate) > 2 for fate in expected)


def fuzz_messages(generator: Generator, found: Findings, alone: Alone, count: int) -> None:
    """Compare the values of messages, each alone and among the others."""
    values = generator.json(count, line=False)
    expected = [alone.fate(value) for value in values]
    for size in SIZES:
        parser = RecordParser(JsonFormat(MAPPING), MAPPING, id_key=b"k")
        among: dict[int, Fate] = {}
        for start in range(0, count, size):
            rejects = Rejects()
            part = _messages(values[start : start + size])
            samples = parse_values(
                parser, part._replace(offset=part.offset + start), rejects, MAX_LINE_BYTES
            )
            fates(samples, rejects, among)
        found.compare(
            "kafka", values, expected, [among.pop(i, ("lost",)) for i in range(count)], size
        )
    found.records["kafka"] += count
    found.used["kafka"] += sum(len(fate) > 2 for fate in expected)


@dataclass(frozen=True)
class _Row:
    """A row, in words only where somebody asks."""

    table: pa.Table
    row: int

    def __repr__(self) -> str:
        return str({name: repr(self.table.column(name)[self.row]) for name in HEADER})


def fuzz_table(generator: Generator, found: Findings, folder: Path, count: int) -> None:
    """Compare the rows of a Parquet file, each alone and among the others."""
    from meanstream.streaming.sources.decode import Decoder

    table = generator.table(count)
    path = folder / "x.parquet"
    parquet.write_table(table, path, row_group_size=count // 3 + 1)
    columns = {name: table.column(name).combine_chunks() for name in HEADER}
    rows = [_Row(table, row) for row in range(count)]
    expected: list[Fate] = []
    for row in range(count):
        one: dict[int, Fate] = {}
        raw = {name: column.slice(row, 1) for name, column in columns.items()}
        position: Ints = np.array([row])
        fates(*Decoder(MAPPING, id_key=b"k").decode(raw, position), one)
        expected.append(one.pop(row, ("lost",)))
    for size in SIZES:
        among = read(ParquetSource(path, MAPPING, id_key=b"k"), 1, count, size)
        found.compare("parquet", rows, expected, among, size)
    found.records["parquet"] += count
    found.used["parquet"] += sum(len(fate) > 2 for fate in expected)


def fuzz_records(seed: int, records: int, block: int = 1500) -> Iterator[Findings]:
    """Generate so many records of all formats; give what was found so far after each round of seven
    blocks."""
    generator, messages, found = Generator(seed), MessageGenerator(seed), Findings()
    with TemporaryDirectory() as name:
        folder = Path(name)
        csv, lines = (
            Alone(lambda: CsvFormat(HEADER, ",", MAPPING)),
            Alone(lambda: JsonFormat(MAPPING)),
        )
        while sum(found.records.values()) < records:
            fuzz_text(
                generator=generator, found=found, alone=csv, folder=folder, area="csv", count=block
            )
            fuzz_text(
                generator=generator,
                found=found,
                alone=lines,
                folder=folder,
                area="jsonl",
                count=block,
            )
            fuzz_messages(generator, found, lines, block)
            fuzz_table(generator, found, folder, block)
            for area in ("nested", "cloudevents", "avro"):
                fuzz_topic(messages, found, area, block, fates=fates, sizes=SIZES)
            csv.forget()
            lines.forget()
            yield found
