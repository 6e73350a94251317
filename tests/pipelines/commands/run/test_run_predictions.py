"""`--prediction`: a run on a file with a public forecast, what is said of it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.command_line import SECRET, meanstream

USERS = 250
DAYS = 4
OF_A_TEST = {"MEANSTREAM_SECRET": SECRET}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    level = np.random.default_rng(1).normal(5.0, 1.5, USERS).clip(0.0, 10.0)
    rows = [
        f"u{user},{level[user]:.3f},{86_400 * day + 60}"
        for day in range(DAYS)
        for user in range(USERS)
    ]
    (tmp_path / "s.csv").write_text("\n".join(["user,value,time", *rows]) + "\n")
    rows = [f"u{user},{level[user]:.2f}" for user in range(USERS)]
    (tmp_path / "f.csv").write_text("\n".join(["user,level", *rows]) + "\n")
    return tmp_path


def words(**more: object) -> list[str]:
    options = {
        "source": "s.csv", "lower": 0, "upper": 10, "epsilon": 8, "window": "1d", "store": "s.db",
        "sink": "means.jsonl", "prediction": "f.csv:level", **more,
    }  # fmt: skip
    return [
        word
        for name, value in options.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def test_a_forecast_is_learned_explained_and_part_of_the_store(folder: Path) -> None:
    assert meanstream("run", "rounds", *words(), environment=OF_A_TEST).code == 0
    means = [json.loads(line) for line in (folder / "means.jsonl").read_bytes().splitlines()]
    told = [mean["stages"][-2] for mean in means]
    assert len(told) == DAYS
    assert told[0]["slope"] == 0.0
    assert 0.5 < told[-1]["slope"] < 1.5

    said = meanstream("explain", "rounds", "--store", "s.db", "--json").json
    assert "the predictions 'level' of all users who take part" in said["public"]
    assert "announced before each window" in said["estimator"]["prediction"]
    assert b"forecast        users report" in meanstream("explain", "rounds", "--store", "s.db").out
    page = meanstream("report", "r.html", "--store", "s.db")
    assert page.code == 0
    assert "windows with a forecast are not in the store" in (folder / "r.html").read_text()

    # Another column is another deployment.
    lines = (folder / "f.csv").read_text().replace("level", "height")
    (folder / "g.csv").write_text(lines)
    other = meanstream("run", "rounds", *words(prediction="g.csv:height"), environment=OF_A_TEST)
    assert "prediction" in other.message


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"prediction": "value"}, "a column of the records would show which records a user has"),
        ({"prediction": "f.csv:levle"}, "did you mean 'level'?"),
        ({"estimator": "one_shot"}, "estimator must be repeating with a prediction"),
        ({"estimator": "central.mean"}, "estimator must be repeating with a prediction"),
        ({"runner": "FnApiRunner", "name": "x"}, "prediction must be left out with --runner"),
    ],
)
def test_what_has_no_forecast_is_refused_in_one_line(
    more: dict[str, str], rule: str, folder: Path
) -> None:
    assert rule in meanstream("run", "rounds", *words(**more), environment=OF_A_TEST).message
    assert not (folder / "s.db").exists()
