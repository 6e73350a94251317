"""Whether a sample is taken follows from how its value is written, never from how large it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from meanstream.streaming.events.event_columns import Batch
from meanstream.streaming.events.times import LARGEST, NUMBER
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.decode import Decoder
from meanstream.streaming.sources.mapping import ColumnMapping

MAPPING = ColumnMapping(id="id")
NUMBERS = {
    "1e308": 1e308,
    "1e309": LARGEST,
    "-1e400": -LARGEST,
    "1e99999999999999999999": LARGEST,
    "1" + "0" * 400: LARGEST,
    "-" + "7" * 5000: -LARGEST,
    "9" * 309 + ".5": LARGEST,
    "1e-999": 0.0,
}
NO_NUMBERS = ["NaN", "Infinity", "-Infinity"]
TIMES = 100
SPOILED_AT = 60


def csv(path: Path, values: list[str]) -> None:
    path.write_text(
        "agent,value,time,id\n"
        + "".join(f"a,{value},{at},{at}\n" for at, value in enumerate(values))
    )


def jsonl(path: Path, values: list[str]) -> None:
    path.write_text(
        "".join(
            f'{{"agent":"a","value":{value},"time":{at},"id":"{at}"}}\n'
            for at, value in enumerate(values)
        )
    )


def text_parquet(path: Path, values: list[str]) -> None:
    ids = [str(at) for at in range(len(values))]
    columns = {
        "agent": ["a"] * len(ids),
        "value": values,
        "time": [float(at) for at in ids],
        "id": ids,
    }
    parquet.write_table(pa.table(columns), path)


WRITERS: dict[str, Callable[[Path, list[str]], None]] = {
    "csv": csv,
    "jsonl": jsonl,
    "parquet": text_parquet,
}


def read(path: Path) -> Batch:
    source = open_source(str(path), MAPPING, sort=False)
    try:
        return source.next_batch(10_000)
    finally:
        source.close()


@pytest.mark.parametrize("company", [0, TIMES], ids=["alone", "in company"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_number_beyond_all_floats_is_the_largest_of_its_sign(
    kind: str, company: int, tmp_path: Path
) -> None:
    path = tmp_path / f"x.{kind}"
    for text, expected in NUMBERS.items():
        WRITERS[kind](path, ["2.5"] * company + [text])
        batch = read(path)
        assert batch.samples.value.tolist() == [2.5] * company + [expected], text[:20]
        assert not len(batch.rejects)


@pytest.mark.parametrize("company", [0, TIMES], ids=["alone", "in company"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_word_for_no_number_is_not_finite_beside_any_number(
    kind: str, company: int, tmp_path: Path
) -> None:
    path = tmp_path / f"x.{kind}"
    WRITERS[kind](path, [*NUMBERS] * (1 + company) + NO_NUMBERS)
    batch = read(path)
    assert batch.samples.value.tolist() == [*NUMBERS.values()] * (1 + company)
    assert batch.rejects.reason == ["not_finite"] * len(NO_NUMBERS)


def test_an_infinite_float_of_a_column_of_floats_is_none() -> None:
    raw = {"agent": pa.array([b"a"] * 3), "time": pa.array([1.0] * 3)}
    samples, rejects = Decoder(ColumnMapping()).decode(
        {**raw, "value": pa.array([1.0, float("inf"), LARGEST])}, pa.array(range(3)).to_numpy()
    )
    assert samples.value.tolist() == [1.0, LARGEST]
    assert rejects.reason == ["not_finite"]


@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_released_is_the_same_for_each_value_outside(
    kind: str, tmp_path: Path, new_world: Callable[[str], Any]
) -> None:
    """Several of one agent in one window: neither does their sum overflow."""
    found = []
    for name, text in {
        "far": "123456",
        "farther": "1e308",
        "huge": "1e309",
        "digits": "9" * 5000,
    }.items():
        path = tmp_path / f"x.{kind}"
        WRITERS[kind](
            path,
            [text if at in range(SPOILED_AT, SPOILED_AT + 5) else "2.5" for at in range(TIMES)],
        )
        world = new_world(name)
        stats = world.run(open_source(str(path), MAPPING, sort=False))
        assert (stats.accepted, stats.clipped) == (TIMES, 5)
        assert world.lines("dead_letters") == []
        found.append((world.lines("releases"), world.lines("estimates")))
    assert found[0][0]
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("name", ["id", "agent", "time", "schema_version", "other"])
def test_a_long_whole_number_elsewhere_has_its_own_reason(name: str, tmp_path: Path) -> None:
    sample = {"agent": "a", "value": 1, "time": 5, "id": "x"}
    reasons = {"id": ["bad_id"], "agent": ["bad_agent"], "time": ["bad_time"], "other": []}
    for digits in (400, 5000):
        line = json.dumps({**sample, name: "?"}).replace('"?"', "7" * digits)
        (tmp_path / "x.jsonl").write_text(line + "\n")
        assert read(tmp_path / "x.jsonl").rejects.reason == reasons.get(
            name, ["unknown_schema_version"]
        )


def test_megabytes_of_digits_that_are_no_number_are_found_out_at_once() -> None:
    """A pattern that goes back took 100 s for 32,000 digits and a letter: with it this test does
    not end."""
    for text in (
        "7" * 1_000_000 + "kg",
        "7" * 500_000 + "." + "7" * 500_000 + "e",
        "." + "7" * 1_000_000 + "e+",
    ):
        assert not NUMBER.fullmatch(text)
