"""Every source gives the same samples, stops anywhere and resumes there; mistakes are named before
data is read."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.operators.records import Floats
from meanstream.streaming.events.event_columns import Batch, concatenate_columns
from meanstream.streaming.events.times import TimeParser, iso_times
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources import lines
from meanstream.streaming.sources.formats.csv_file import CsvSource
from meanstream.streaming.sources.lines import LineReader
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.ordered_source import OrderedSource
from meanstream.streaming.sources.read_ahead import ReadAhead
from meanstream.streaming.sources.source_protocol import Source
from meanstream.streaming.sources.synthetic_source import SyntheticPopulation, SyntheticSource

N = 200
MAPPING = ColumnMapping(agent="who", value="x", time="t", id="key")
TIMES: Floats = 1.6e9 + np.random.default_rng(2).permutation(N).astype(np.float64) * 60.0
VALUES = np.random.default_rng(3).normal(size=N)


def rows() -> list[tuple[str, float, str, str]]:
    return [
        (f"ag,ent {i % 5}", v, t, f"k{i}")
        for i, (v, t) in enumerate(zip(VALUES.tolist(), iso_times(TIMES), strict=True))
    ]


def csv_text() -> bytes:
    return (
        "who,x,other,t,key\r\n"
        + "".join(f'"{a}",{v!r},"q""q",{t},{k}\r\n' for a, v, t, k in rows())
    ).encode()


def jsonl_text() -> bytes:
    lines = [f'{{"who":"{a}","x":{v!r},"t":"{t}","key":"{k}","z":[1]}}' for a, v, t, k in rows()]
    return "\n".join(lines).encode()  # the last line has no end


def write(folder: Path, name: str) -> Path:
    path = folder / name
    text = csv_text() if ".csv" in name else jsonl_text()
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text))
    elif name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("inside", text)
    elif name.endswith(".parquet"):
        a, v, _, k = zip(*rows(), strict=True)
        stamps = pa.array((TIMES * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"who": pa.array(a).dictionary_encode(), "x": v, "t": stamps, "key": k})
        pq.write_table(table, path, row_group_size=70)
    else:
        path.write_bytes(text)
    return path


def read(source: Source, size: int) -> list[Batch]:
    batches = []
    with closing(source):
        while not (batch := source.next_batch(size)).exhausted:
            batches.append(batch)
    return batches


NAMES = ["x.csv", "x.csv.gz", "x.csv.zip", "x.jsonl", "x.jsonl.gz", "x.jsonl.zip", "x.parquet"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sort", [False, True])
def test_every_format_gives_the_same_samples(name: str, sort: bool, tmp_path: Path) -> None:
    batches = read(open_source(str(write(tmp_path, name)), MAPPING, sort=sort), 33)
    assert not any(len(batch.rejects) for batch in batches)
    found = concatenate_columns([batch.samples for batch in batches])
    order = np.argsort(TIMES, kind="stable") if sort else np.arange(N)
    np.testing.assert_array_equal(found.value, VALUES[order])
    np.testing.assert_array_equal(found.time, TIMES[order])
    assert [found.names[a] for a in found.agent] == [f"ag,ent {i % 5}" for i in order]
    first = 2 if ".csv" in name else 1
    np.testing.assert_array_equal(found.position, order + first)
    assert found.key is not None
    assert len(np.unique(found.key)) == N


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sort", [False, True])
def test_resumed_anywhere_it_goes_on(name: str, sort: bool, tmp_path: Path) -> None:
    path = str(write(tmp_path, name))
    whole = read(open_source(path, MAPPING, sort=sort), 47)
    for cut in range(len(whole)):
        source = open_source(path, MAPPING, sort=sort)
        source.restore(whole[cut].position)
        rest = concatenate_columns([batch.samples for batch in read(source, 20)])
        expected = np.concatenate(
            [batch.samples.value for batch in whole[cut + 1 :]] or [np.zeros(0)]
        )
        np.testing.assert_array_equal(rest.value, expected)


def test_the_synthetic_source_resumes_and_repeats() -> None:
    population = SyntheticPopulation(samples=1000, agents=7, seed=4)
    whole = concatenate_columns([batch.samples for batch in read(SyntheticSource(population), 300)])
    source = SyntheticSource(population)
    source.restore({"row": 600})
    np.testing.assert_array_equal(source.next_batch(1000).samples.value, whole.value[600:])
    # Means .2, .4, .8 by class, standard deviation .1, more than 280 samples each: 5 standard
    # errors, false alarm 2e-6.
    for cls, mean in enumerate((0.2, 0.4, 0.8)):
        mine = whole.value[whole.agent % 3 == cls]
        assert abs(mine.mean() - mean) < 5 * 0.1 / np.sqrt(len(mine))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 7), st.integers(5, 30))
def test_lines_are_those_of_the_file_whatever_they_hold(
    lines: list[bytes], size: int, longest: int
) -> None:
    import tempfile

    text = b"\n".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(text)
        reader = LineReader(path, max_line_bytes=longest)
        found: dict[int, bytes] = {}
        oversized: list[int] = []
        while (taken := reader.next_block(size)) is not None:
            block, rejects = taken
            found.update(zip(block.number.tolist(), bytes(block.data).split(b"\n"), strict=False))
            oversized += rejects.position
        reader.close()
    expected = {i: line for i, line in enumerate(text.split(b"\n"), 1) if line not in (b"", b"\r")}
    assert oversized == [i for i, line in expected.items() if len(line) + 1 > longest]
    assert found == {i: line for i, line in expected.items() if len(line) + 1 <= longest}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"agent": "whom"},
            r"agent column must be in the source, got 'whom'; did you mean 'who'\?",
        ),
        (
            {"value": "amount"},
            r"value column must be in the source, got 'amount'; the source has who, x, other, t, key",
        ),
        ({"time": "x"}, r"columns must be distinct"),
        ({"id": "keys"}, r"id column .* did you mean 'key'\?"),
    ],
)
def test_a_wrong_mapping_is_refused_before_reading(
    change: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        open_source(str(write(tmp_path, "x.csv")), MAPPING.model_copy(update=change))


def test_a_header_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("who,x,t,key,x\n")
    with pytest.raises(
        ValueError, match=r"value column must appear once in the header, got 'x' twice"
    ):
        open_source(str(tmp_path / "x.csv"), MAPPING)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"", "header line"),
        ("x.csv", b"agent," + b"x" * (1 << 21) + b"\n", "header line, got one too long"),
        ("x.csv", b"\xff\xfew\x00h\x00o\x00", "UTF-8 header line"),
        ("x.parquet", b"PAR0", "must be a Parquet file"),
        ("x.xlsx", b"", "must be a file of type .csv"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        open_source(str(tmp_path / name), MAPPING)


def test_a_missing_file_and_a_crowded_zip_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="readable file"):
        open_source(str(tmp_path / "none.csv"), MAPPING)
    with zipfile.ZipFile(tmp_path / "x.csv.zip", "w") as archive:
        archive.writestr("a.csv", "")
        archive.writestr("b.csv", "")
    with pytest.raises(ValueError, match="one member, got 2"):
        open_source(str(tmp_path / "x.csv.zip"), MAPPING)


def test_a_torn_archive_is_named(tmp_path: Path) -> None:
    packed = gzip.compress(csv_text() * 50, 1)
    (tmp_path / "x.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ValueError, match="undamaged file"):
        read(CsvSource(tmp_path / "x.csv.gz", MAPPING), 50)


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl.gz", "x.parquet"])
def test_another_file_of_the_same_name_is_refused(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name)
    position = read(open_source(str(path), MAPPING, sort=False), 50)[0].position
    if name == "x.parquet":
        pq.write_table(pq.read_table(path).slice(1), path)
    else:
        text = (csv_text() if name == "x.csv" else jsonl_text()).replace(b"k1", b"k0")
        path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with (
        closing(open_source(str(path), MAPPING, sort=False)) as source,
        pytest.raises(ValueError, match="file that"),
    ):
        source.restore(position)


def test_a_file_that_grew_is_continued(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv")
    position = read(open_source(str(path), MAPPING, sort=False), 1000)[-1].position
    with path.open("ab") as file:
        file.write(b"new,1,,2021-01-01T00:00:00Z,k\r\n")
    source = open_source(str(path), MAPPING, sort=False)
    source.restore(position)
    batches = read(source, 1000)
    assert [batch.samples.value.tolist() for batch in batches] == [[1.0]]


def test_another_file_is_not_taken_for_the_sorted_one(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv")
    position = read(open_source(str(path), MAPPING), 50)[0].position
    path.write_bytes(csv_text() + b'"a",1,,2020-09-13T12:00:00Z,k\r\n')
    with (
        closing(open_source(str(path), MAPPING)) as source,
        pytest.raises(ValueError, match="file that this store"),
    ):
        source.restore(position)


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet"])
@pytest.mark.parametrize("sort", [False, True])
def test_a_position_of_the_other_way_of_reading_is_refused(
    name: str, sort: bool, tmp_path: Path
) -> None:
    path = str(write(tmp_path, name))
    position = read(open_source(path, MAPPING, sort=sort), 50)[0].position
    with (
        closing(open_source(path, MAPPING, sort=not sort)) as source,
        pytest.raises(ValueError, match="sort must be"),
    ):
        source.restore(position)


def test_a_file_too_large_to_sort_is_refused(tmp_path: Path) -> None:
    inner = CsvSource(write(tmp_path, "x.csv"), MAPPING)
    with (
        closing(OrderedSource(inner, max_rows=100)) as source,
        pytest.raises(ValueError, match="at most 100 records"),
    ):
        source.next_batch(10)


UNITS = {"s": 1, "ms": 1e3, "us": 1e6}


@pytest.mark.parametrize(
    ("column", "seconds"),
    [
        (
            pa.array(["2013-01-01T10:00:00Z", "2013-01-01T10:00:00.25Z"]),
            [1357034400.0, 1357034400.25],
        ),
        (pa.array([b"2013-01-01T05:00:00-05:00"]), [1357034400.0]),
        (pa.array(["2013-01-01 10:00:00", "2013-01-01"]), [1357034400.0, 1356998400.0]),
        (
            pa.array(["2013-01-01 10:00:00", "2013-01-01T10:00:00Z", None, "x"]),
            [1357034400.0] * 2 + [np.nan] * 2,
        ),
        (pa.array(["1357034400", "1357034400.5"]), [1357034400.0, 1357034400.5]),
        (pa.array([1357034400000, 1357034400]), [1357034400.0] * 2),
        (pa.array([1357034400000000]), [1357034400.0]),
        (pa.array([1e300, -1e300, float("nan"), float("inf")]), [np.nan] * 4),
        (
            pa.array(["20240101", "20991231", "2024-01-01", "20240101T00"]),
            [np.nan] * 2 + [1704067200.0] * 2,
        ),
        (
            pa.array([20240101, 20241301, 20240100, 19000101, 2013, 21000101]),
            [np.nan, 20241301.0, 20240100.0, np.nan, 2013.0, 21000101.0],
        ),
        (pa.array([20240101.0, 20240101.5]), [np.nan, 20240101.5]),
        (pa.array([1357034400], pa.timestamp("s")), [1357034400.0]),
        (pa.array([15706, 2**31 - 1, None, -(2**31)], pa.date32()), [1356998400.0] + [np.nan] * 3),
        (pa.array([1356998400007, 2**63 - 1, None], pa.date64()), [1356998400.007, np.nan, np.nan]),
        *(
            (pa.array([5, 2**63 - 1], pa.timestamp(unit)), [5 / per, np.nan])
            for unit, per in UNITS.items()
        ),
    ],
)
def test_times_in_every_notation(column: pa.Array, seconds: list[float]) -> None:
    np.testing.assert_array_equal(TimeParser().parse(column), seconds)


def test_the_unit_of_times_can_be_fixed() -> None:
    assert TimeParser("ms").parse(pa.array([5000])).tolist() == [5.0]
    assert TimeParser("s").parse(pa.array([20240101])).tolist() == [20240101.0]


@given(st.floats(-2e9, 4e9))
def test_times_survive_writing_and_reading(seconds: float) -> None:
    assert TimeParser().parse(pa.array(iso_times(np.array([seconds]))))[0] == pytest.approx(
        seconds, abs=1e-6
    )


def test_a_parquet_column_without_times_is_refused(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"who": ["a"], "x": [1.0], "t": [[1.0]], "key": ["k"]}), tmp_path / "x.parquet"
    )
    with pytest.raises(ValueError, match="time"):  # before a row is read
        open_source(str(tmp_path / "x.parquet"), MAPPING)


@pytest.mark.parametrize("make", [lambda: pa.array([True]), lambda: pa.array([[1.0]])])
def test_a_parquet_column_of_another_type_is_refused(
    make: Callable[[], pa.Array], tmp_path: Path
) -> None:
    pq.write_table(
        pa.table({"who": ["a"], "x": make(), "t": [1.0], "key": ["k"]}), tmp_path / "x.parquet"
    )
    with pytest.raises(ValueError, match="value"):  # before a row is read
        open_source(str(tmp_path / "x.parquet"), MAPPING)


def test_reading_ahead_brings_an_error_in_its_turn_and_resumes_where_it_was_asked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.csv.gz"
    whole = gzip.compress(write(tmp_path, "x.csv").read_bytes())
    path.write_bytes(whole)
    plain = read(CsvSource(path, MAPPING), 30)
    with closing(ReadAhead(CsvSource(path, MAPPING))) as source:
        source.next_batch(30)
        second = source.next_batch(30)  # the third is being read
        np.testing.assert_array_equal(second.samples.value, plain[1].samples.value)
        source.restore(plain[0].position)
        again = source.next_batch(30)
        assert again.position == second.position == plain[1].position
        np.testing.assert_array_equal(again.samples.value, second.samples.value)
        with pytest.raises(ValueError, match="max_samples must stay 30, got 20"):
            source.next_batch(20)
    with closing(ReadAhead(Broken())) as source:
        assert len(source.next_batch(5).samples) == 5
        with pytest.raises(ValueError, match="it broke"):
            source.next_batch(5)


class Broken(SyntheticSource):
    """Fails on its second batch."""

    def __init__(self) -> None:
        super().__init__(SyntheticPopulation(samples=10))

    def next_batch(self, max_samples: int) -> Batch:
        batch = super().next_batch(max_samples)
        if batch.position["row"] > 5:
            raise ValueError("it broke")
        return batch


def lines_of_blocks(path: Path, most: int) -> list[int]:
    reader, found = LineReader(path), []
    while (taken := reader.next_block(most)) is not None:
        found.append(len(taken[0]))
    reader.close()
    return found


def test_how_long_values_are_does_not_decide_where_batches_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch ends with a commit, of which the times of estimates and the figures of metrics
    tell."""
    monkeypatch.setattr(lines, "READ_BYTES", 1 << 12)
    (tmp_path / "short.csv").write_text("a,1\n" * 5000)
    (tmp_path / "long.csv").write_text(f"a,{'1' * 150}\n" * 5000)
    (tmp_path / "mixed.csv").write_text(("a,1\n" * 30 + f"a,{'1' * 900}\n") * 161 + "a,1\n" * 9)
    for name in ("short", "long", "mixed"):
        assert lines_of_blocks(tmp_path / f"{name}.csv", 700) == [700] * 7 + [100]


def test_lines_that_memory_does_not_hold_come_in_smaller_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "READ_BYTES", 1 << 12)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(lines, "MOST_BYTES", 1 << 14)
    (tmp_path / "long.csv").write_text(f"a,{'1' * 1500}\n" * 100)
    blocks = lines_of_blocks(tmp_path / "long.csv", 100)
    assert sum(blocks) == 100
    assert max(blocks) < 20
