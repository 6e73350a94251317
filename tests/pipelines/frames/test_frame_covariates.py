"""Public covariates of the groups of a frame: two ways to declare them, what is learned, what is
refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import meanstream
from tests.pipelines.command_line import SECRET

GROUPS = 60


def samples() -> pa.Table:
    rng = np.random.default_rng(4)
    group = rng.integers(0, GROUPS, 6000)
    region = np.array(["north", "south", "west"])[group % 3]
    return pa.table(
        {
            "school": [f"S{g}" for g in group],
            "points": 40
            + 10.0 * (group % 3)
            + rng.normal(0, 2, GROUPS)[group]
            + rng.normal(0, 8, 6000),
            "region": region,
            "pupil": [f"P{i}" for i in range(6000)],
            "nested": pa.array([{"x": 1}] * 6000),
        }
    )


TABLE = samples()
REGIONS: dict[str, Any] = {
    "school": [f"S{g}" for g in range(GROUPS)],
    "region": [("north", "south", "west")[g % 3] for g in range(GROUPS)],
}


def asked(frame: Any = TABLE, **changes: Any) -> Any:
    given: dict[str, Any] = {
        "by": "school", "value": "points", "lower": 0.0, "upper": 100.0, "epsilon": 1.0, "delta": 1e-6,
        "noise": "gaussian", "secret": SECRET, "name": "schools", "collaboration": "pooled_prior",
    }  # fmt: skip
    return meanstream.private_means(frame, **{**given, **changes})


def test_columns_and_frames_of_any_kind_give_the_same_answers() -> None:
    expected = asked(covariates=["region"])
    for covariates in ("region", pa.table(REGIONS), pd.DataFrame(REGIONS), pl.DataFrame(REGIONS)):
        assert asked(covariates=covariates).table.equals(expected.table)
    several = asked(by=["school", "region"], covariates=pa.table(REGIONS | {"size": range(GROUPS)}))
    assert len(several) == GROUPS


def test_covariates_move_means_towards_their_region_and_change_no_release() -> None:
    plain, found = asked(), asked(covariates=["region"])
    assert found.releases.equals(plain.releases)
    assert found.table.column("released").equals(plain.table.column("released"))
    raw = {
        row["school"]: row["points_mean"]
        for row in TABLE.group_by("school").aggregate([("points", "mean")]).to_pylist()
    }
    errors = [
        float(np.mean([(row["mean"] - raw[row["school"]]) ** 2 for row in one.table.to_pylist()]))
        for one in (plain, found)
    ]
    assert errors[1] < 0.5 * errors[0]
    moved = np.asarray(found.table.column("moved_by_covariates"))
    before, after = (
        dict(zip(*(one.table.column(c).to_pylist() for c in ("school", "mean")), strict=True))
        for one in (plain, found)
    )
    assert moved == pytest.approx(
        [after[s] - before[s] for s in found.table.column("school").to_pylist()], abs=1e-9
    )


def test_what_was_learned_is_in_the_result() -> None:
    found = asked(covariates=["region"])
    region, count = found.covariates["attributes"]
    assert (region["name"], count["name"]) == ("region", "number of samples")
    assert region["probability"] > 0.99
    assert region["size"] == pytest.approx(8.2, abs=3 * region["standard_error"])
    assert region["standard_error"] < 4
    assert found.covariates["explained"] > 0.5
    assert found.notes[-1].startswith("Declared public covariates explain ")
    assert "region (100 %)" in found.notes[-1]
    assert asked().covariates is None


def test_a_column_without_effect_is_not_named_as_a_likely_one() -> None:
    """At most a twentieth of such columns may be: more than three of ten by chance once in 1,000."""
    named = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        means = rng.normal(50, 8, 40)
        of = np.repeat(np.arange(40), 60)
        columns = {"noise": rng.normal(size=40), "tells": means + rng.normal(0, 4, 40)}
        frame = pa.table(
            {
                "school": [f"S{i:02d}" for i in of.tolist()],
                "points": (means[of] + rng.normal(0, 10, len(of))).clip(0, 100),
                **{name: column[of] for name, column in columns.items()},
            }
        )
        note = asked(frame, covariates=["noise", "tells"]).notes[-1]
        named += "noise (" in note
        assert "tells (" in note, note
    assert named <= 3


@pytest.mark.parametrize(
    ("covariates", "message"),
    [
        (["pupil"], "covariates must be constant within a group, got 60 groups in which column 'pupil' varies"),
        (["regoin"], "covariates must be a column of the frame, got 'regoin'; did you mean 'region'?"),
        (["nested"], "dates, or true and false, got struct<x: int64> in column 'nested'"),
        (["school"], "covariates must be other columns than by, got 'school'"),
        ([], "covariates must have a column other than that of the agents, got none"),
        (pa.table({"school": ["x"], "a": [1]}), "covariates must name groups of the frame in 'school', got none"),
        (pa.table({"scool": ["S1"], "a": [1]}), "covariates must have the columns of by, got none named 'school'"),
        (pa.table({"school": ["S1", "S1"], "a": [1, 2]}), "covariates must have one row per group, got 1 rows more"),
        (
            pa.table({"school": [f"S{i}" for i in range(60)], "seats": [f"{i}" for i in range(60)]}),
            "covariates must hold numbers or categories in column 'seats', got text with 60 different numbers",
        ),
    ],
)  # fmt: skip
def test_what_is_no_covariate_is_refused_in_one_line(covariates: Any, message: str) -> None:
    with pytest.raises(ValueError, match="covariates") as refused:
        asked(covariates=covariates)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_covariates_need_a_learned_prior_and_a_frame() -> None:
    with pytest.raises(ValueError, match="collaboration must be learned_prior or pooled_prior"):
        asked(covariates=["region"], collaboration="none")
    with pytest.raises(TypeError, match="covariates must be a frame"):
        asked(covariates=3)


def test_groups_without_a_row_have_no_covariates() -> None:
    some = pa.table({name: column[:30] for name, column in REGIONS.items()})
    found = asked(covariates=some)
    assert len(found) == GROUPS
    levels = {one["level"]: one["agents"] for one in found.covariates["attributes"][0]["levels"]}
    assert levels["(missing)"] == 30
