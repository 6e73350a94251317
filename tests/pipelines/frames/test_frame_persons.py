"""`private_means(person=...)`: at most K rows of a person count in a group, and all of them are
protected together."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import meanstream
from tests.pipelines.command_line import meanstream as command
from tests.pipelines.frames.test_private_means import BOUNDS, SAME, SECRET

RNG = np.random.default_rng(8)
STAYS = pa.table(
    {
        "ward": [f"W{g}" for g in RNG.integers(0, 5, 600)],
        "patient": RNG.integers(0, 90, 600),
        "days": RNG.gamma(2.0, 3.0, 600).round(2),
        "when": 1_700_000_000 + RNG.permutation(600),
    }
)


def of_patients(frame: Any = STAYS, **changes: Any) -> Any:
    question = {"by": "ward", "value": "days", "time": "when", "person": "patient", "per_person": 2}
    return meanstream.private_means(
        frame, **{**question, **BOUNDS, **SAME, "collaboration": "none", **changes}
    )


def over_limit(per_person: int) -> np.ndarray:
    """Say which rows are beyond the first ones of their patient in their ward."""
    frame = STAYS.to_pandas().sort_values("when", kind="stable")
    return np.asarray((frame.groupby(["ward", "patient"]).cumcount() >= per_person).sort_index())


def test_the_releases_are_the_engines_own(tmp_path: Path) -> None:
    with (tmp_path / "f.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(STAYS.column_names)
        rows.writerows(row.values() for row in STAYS.sort_by("when").to_pylist())
    ran = command(
        "run", "agents", "--source", f"{tmp_path}/f.csv", "--agent", "ward", "--value", "days", "--time", "when",
        "--lower", "-30", "--upper", "120", "--epsilon", "1", "--delta", "1e-6", "--name", "flights", "--store",
        f"{tmp_path}/s.db", "--releases", f"{tmp_path}/r.jsonl", "--horizon", "1", "--schedule",
        "geometric:1000000000000,2", "--person", "patient", "--per-person", "2", "--quiet",
        environment={"MEANSTREAM_SECRET": SECRET},
    )  # fmt: skip
    assert ran.code == 0, ran.err
    events = [json.loads(line) for line in (tmp_path / "r.jsonl").read_bytes().splitlines()]
    fields = ("agent", "index", "n", "total", "mean", "noise_variance")
    found = sorted(
        tuple(row[name] for name in fields) for row in of_patients().releases.to_pylist()
    )
    assert found == sorted(tuple(event[name] for name in fields) for event in events)


def test_rows_over_the_limit_change_no_byte_and_are_counted() -> None:
    over = over_limit(2)
    other = STAYS.set_column(2, "days", pa.array(np.where(over, 99.0, np.asarray(STAYS["days"]))))
    first, second = of_patients(), of_patients(other)
    assert first.to_arrow().equals(second.to_arrow())
    assert (first.releases.equals(second.releases), first.notes) == (True, second.notes)
    assert first.notes[-2] == f"{over.sum():,} rows do not count: beyond 2 of one person in a group"
    assert sum(first.to_arrow()["rows"].to_pylist()) == len(over) - over.sum()


def test_noise_is_k_times_that_of_a_row() -> None:
    rows = of_patients(person=None, per_person=None).settings.fresh
    assert of_patients(per_person=3).settings.fresh.stddev == pytest.approx(3 * rows.stddev)


def test_what_is_protected_is_said_with_the_price_of_several_groups() -> None:
    found = of_patients()
    groups = STAYS.to_pandas().groupby("patient")["ward"].nunique().max()
    assert found.guarantee == (
        "(1, 1e-06)-differentially private towards all rows of one person (column 'patient') in a group, of which at "
        "most 2 count; public: which groups there are, how many rows they have and whose these are. A person in "
        f"{groups} groups, the most here, has epsilon {found.settings.epsilon_over(groups):.3g}"
    )
    alone = STAYS.set_column(0, "ward", pa.array(["W"] * 600))
    assert of_patients(alone).guarantee.endswith("and whose these are")


def test_intervals_that_fill_the_bounds_are_said_to_say_little() -> None:
    said = "as wide as the bounds, and say little"
    assert said in of_patients(epsilon=0.05).notes[-1]
    assert not any(said in note for note in of_patients(epsilon=20.0).notes)


@pytest.mark.parametrize("kind", [str, "category"])
def test_persons_may_be_texts_and_categories(kind: Any) -> None:
    frame = STAYS.to_pandas()
    frame["patient"] = frame["patient"].astype(str).astype(kind)
    assert of_patients(frame).releases.equals(of_patients().releases)


def test_a_store_counts_persons_over_all_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the rows, then all: at most two of a person in a ward, and which ones does not depend
    on later rows."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    stored = {"secret": None, "store": tmp_path / "s.db"}
    ordered = STAYS.sort_by("when")
    of_patients(ordered.slice(0, 300), **stored)
    found = of_patients(ordered, **stored)
    assert sum(found.to_arrow()["rows"].to_pylist()) == 600 - over_limit(2).sum()
    assert set(found.to_arrow()["releases_left"].to_pylist()) == {10}
    swapped = ordered.set_column(1, "patient", pa.array([95, *ordered["patient"].to_pylist()[1:]]))
    with pytest.raises(ValueError, match="got 1 of 600 changed or missing"):
        of_patients(swapped, **stored)


def test_rows_without_a_value_may_be_left_out() -> None:
    days = [None if i % 5 == 0 else day for i, day in enumerate(STAYS["days"].to_pylist())]
    holes = STAYS.set_column(2, "days", pa.array(days))
    found = of_patients(holes, nulls="drop")
    assert found.releases.equals(
        of_patients(holes.filter(pa.compute.is_valid(holes["days"]))).releases
    )
    text = [None if i == 7 else name for i, name in enumerate(holes["ward"].to_pylist())]
    framed = pl.from_arrow(holes.set_column(0, "ward", pa.array(text)))
    assert of_patients(framed, nulls="drop").releases.num_rows == found.releases.num_rows
    assert (
        "120 rows with a missing value were left out; which rows have one is public" in found.notes
    )


@pytest.mark.parametrize(("given", "said"), [
    ({"quantile": [0.5]}, "private_means() got an unexpected argument 'quantile'; did you mean 'quantiles'?"),
    ({"horizon": 12}, "private_means() got an unexpected argument 'horizon': releases= is the number of releases of a"),
    ({"memory": "auto"}, "private_means() got an unexpected argument 'memory': a mean is of the whole frame; `mean"),
    ({"persons": "patient"}, "private_means() got an unexpected argument 'persons'; did you mean 'person'?"),
])  # fmt: skip
def test_an_argument_that_does_not_exist_gets_a_suggestion(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError) as refusal:
        of_patients(**given)
    assert said in str(refusal.value)


def test_where_nothing_is_close_all_that_is_accepted_is_listed() -> None:
    with pytest.raises(TypeError) as refusal:
        of_patients(xyzzy=1)
    listed = str(refusal.value).partition("it accepts ")[2].split(", ")
    assert {"person", "per_person", "store", "releases", "quantiles", "spread_share"} <= {*listed}
    assert not {"horizon", "memory", "settings"} & {*listed}
    for name in set(listed) - {"frame", "by", "value", "lower", "upper", "epsilon", "delta"}:
        with pytest.raises((TypeError, ValueError)) as refused:
            of_patients(**{name: object()})
        assert "unexpected argument" not in str(refused.value)


def test_windows_say_that_their_users_are_the_persons() -> None:
    with pytest.raises(
        TypeError, match="'person': by= is the person here: all rows of one user in a window are"
    ):
        meanstream.private_windows(
            STAYS,
            by="patient",
            value="days",
            time="when",
            lower=0,
            upper=60,
            epsilon=1.0,
            window="7d",
            person="patient",
        )


def test_the_type_of_the_groups_comes_back_and_joins() -> None:
    """Categories of Polars and pandas: the answers join the frame that they are of."""
    enum = pl.Enum([f"W{g}" for g in range(9)])
    for kind in (pl.Categorical, enum):
        frame = pl.from_arrow(STAYS).with_columns(pl.col("ward").cast(kind))
        own = of_patients(frame).to_frame()
        assert own.schema["ward"] == frame.schema["ward"]
        assert len(own.join(frame, on="ward")) == 600
    pandas = STAYS.to_pandas().astype({"ward": pd.CategoricalDtype([f"W{g}" for g in range(9)])})
    assert of_patients(pandas).to_frame()["ward"].dtype == pandas["ward"].dtype
    numbered = STAYS.set_column(
        0, "ward", pa.array([int(ward[1:]) for ward in STAYS["ward"].to_pylist()], pa.int16())
    )
    assert of_patients(numbered).to_frame().schema.field("ward").type == pa.int16()
