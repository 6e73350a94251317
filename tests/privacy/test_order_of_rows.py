"""The order of a frame's rows is private: it may come sorted by its values. The neighbor is one value
replaced, then sorted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import meanstream
from meanstream.integrations.public_answers import PublicAnswers
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.pipelines.frames import stored
from tests.pipelines.frames.test_private_means import SECRET
from tests.privacy.test_frames_privacy import everything

BOUNDS: dict[str, Any] = {"lower": 0, "upper": 100, "delta": 1e-6, "by": "g", "value": "v"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)


def frame(n: int = 400, groups: int = 40) -> pa.Table:
    rng = np.random.default_rng(n)
    return pa.table(
        {
            "g": [f"w{i % groups:02}" for i in range(n)],
            "v": rng.uniform(10, 90, n).round(rng.integers(0, 3)),
            "who": rng.integers(0, 60, n),
            "when": rng.integers(0, 9, n) * 86400 + 1_700_000_000,
        }
    )


def replaced(rows: pa.Table, place: int, value: float) -> pa.Table:
    """One value is another, then all is sorted by it."""
    values = rows.column("v").to_pylist()
    values[place] = value
    return rows.set_column(rows.column_names.index("v"), "v", pa.array(values)).sort_by("v")


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"person": "who", "per_person": 2},
        {"time": "when"},
        {"time": "when", "person": "who", "per_person": 2, "quantiles": [0.5]},
    ],
)
@pytest.mark.parametrize("kept", [False, True])
def test_any_order_of_the_rows_gives_the_same_bytes(
    more: dict[str, Any], kept: bool, tmp_path: Path
) -> None:
    rows, shown = frame(), []
    rng = np.random.default_rng(3)
    orders = [np.arange(400), rng.permutation(400), rng.permutation(400)]
    orders.append(np.argsort(np.asarray(rows.column("v"))))
    for number, order in enumerate(orders):
        place: dict[str, Any] = {"secret": SECRET}
        if kept:
            (tmp_path / str(number)).mkdir()
            place = {"store": tmp_path / str(number) / "s.db"}
        found = meanstream.private_means(
            rows.take(pa.array(order)), **BOUNDS, epsilon=1, name="d", **place, **more
        )
        told = PublicAnswers(place["store"]).answer("releases", {}) if kept else None
        if told is not None:  # when it was charged
            told["releases"] = [
                {k: v for k, v in one.items() if k != "at"} for one in told["releases"]
            ]
        shown.append([*everything(found), found.releases, told])
    for other in shown[1:]:
        assert other == shown[0]
    keys = shown[0][1].column("g").to_pylist()
    assert keys == sorted(keys)


@pytest.mark.parametrize("place", range(0, 400, 67))
def test_the_order_of_the_result_says_nothing_of_a_value(place: int) -> None:
    rows = frame()
    keys = [
        meanstream.private_means(replaced(rows, place, x), **BOUNDS, epsilon=0.5)
        .to_arrow()
        .column("g")
        for x in (1.0, 99.0)
    ]
    assert keys[0].equals(keys[1])


def test_values_in_no_release_reach_nobody_though_all_is_sorted_by_them(tmp_path: Path) -> None:
    """The budget is spent; no byte depends on what is read then, nor on where it stands."""
    first = frame(400)
    second = frame(800)
    shown = []
    for x in (0.0, 100.0):
        store = tmp_path / f"{x}.db"
        meanstream.private_means(first, **BOUNDS, epsilon=1, name="d", store=store, releases=1)
        both = pa.concat_tables([first, replaced(second, 5, x)]).sort_by("v")
        found = meanstream.private_means(
            both, **BOUNDS, epsilon=1, name="d", store=store, releases=1
        )
        shown.append(everything(found))
    assert shown[0] == shown[1]


def votes_of_sorted(x: float, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, float]:
    """Give the first vote of 4,000 rows that come sorted by value, one of which is x."""
    values = np.sort(np.append(np.repeat(np.linspace(2, 98, 1999), 2), [98.5, x]))
    rows = pa.table({"g": ["w"] * len(values), "v": values})
    made = meanstream.private_means(
        rows, **BOUNDS, epsilon=0.5, name="d", store=folder / f"{x}.db", releases=1
    )
    said = PublicAnswers(folder / f"{x}.db").answer("releases", {})["releases"][0]["votes"]
    assert made.settings.pairs == "by_content"
    return np.array(said["counts"]), said["noise_variance"]


def test_one_value_of_a_sorted_frame_does_not_move_its_votes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two counts of 2,000 differed by 55 deviations of the noise. Six of a difference of 11 bins:
    an alarm by chance in fewer than 1 of a million runs."""
    one, variance = votes_of_sorted(1.0, tmp_path, monkeypatch)
    other, _ = votes_of_sorted(99.0, tmp_path, monkeypatch)
    assert np.abs(one - other).max() < 6 * np.sqrt(2 * variance) + 2


def test_pairs_of_neighboring_rows_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known bad: rows are paired as they stand."""
    pairs = stored.frame_pairs

    def as_they_stand(samples: Any, rows: Any, grid: Any, noise: KeyedNoise) -> Any:
        right = pairs(samples, rows, grid, noise)
        point = np.sort(grid.encode(samples.value[rows]))
        away = np.abs(np.diff(point))[::2]
        right.number[:] = len(away)
        return type(right)(np.zeros(len(away), np.int64), away, right.number)

    monkeypatch.setattr(stored, "frame_pairs", as_they_stand)
    one, variance = votes_of_sorted(1.0, tmp_path, monkeypatch)
    other, _ = votes_of_sorted(99.0, tmp_path, monkeypatch)
    assert np.abs(one - other).max() > 6 * np.sqrt(2 * variance) + 2
