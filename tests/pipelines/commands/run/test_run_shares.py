"""`meanstream run rounds --categories` and `--quantiles` as a user runs them: explain, report,
one-line refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pipelines.command_line import asks, files
from tests.pipelines.commands.run.test_run_rounds import lines, run

SHARES: dict[str, Any] = {
    "lower": None,
    "upper": None,
    "value": "device",
    "categories": "phone,desktop,other=*",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    rows = [
        f"N{rng.integers(0, 80)},{device},{rng.normal(7, 20):.1f},2013-01-{1 + i // 30:02}T10:00:00Z"
        for i, device in enumerate(
            rng.choice(["phone", "desktop", "tv"], 600, p=[0.6, 0.3, 0.1]).tolist()
        )
    ]
    (tmp_path / "flights.csv").write_text(
        "\n".join(["tailnum,device,dep_delay,time_hour", *rows]) + "\n"
    )
    return tmp_path


def test_shares_are_answered_explained_and_reported(folder: Path) -> None:
    ran = run(folder, "--json", **SHARES)
    assert ran.code == 0, ran.err
    answers = lines(folder / "means.jsonl")
    assert ran.json["estimates"] == len(answers) > 2
    for answer in answers:
        assert answer["categories"] == ["phone", "desktop", "other"]
        assert sum(answer["value"]) == pytest.approx(1.0)
    store = str(folder / "rounds.db")
    text = asks("explain", "rounds", "--store", store).out.decode()
    assert "categories      phone, desktop, other; other values are other" in text
    assert "vote            krr: a report names a user's own category with probability" in text
    report = folder / "report.html"
    assert asks("report", str(report), "--store", store).code == 0
    page = report.read_text()
    assert (
        "--categories &#x27;phone,desktop,other=*&#x27;" in page
        or "--categories 'phone,desktop,other=*'" in page
    )
    assert "--lower" not in page
    before = files(folder)
    assert run(folder, **SHARES).code == 0  # nothing is new
    assert files(folder)["means.jsonl"] == before["means.jsonl"]


def test_other_categories_are_another_deployment(folder: Path) -> None:
    assert run(folder, **SHARES).code == 0
    message = run(folder, **{**SHARES, "categories": "phone,other=*"}).message
    assert "categories must be ['phone', 'desktop', 'other=*']" in message or message.startswith(
        "categories"
    )


def test_quantiles_are_answered_and_explained(folder: Path) -> None:
    assert run(folder, "--json", quantiles=".1,.5").json["estimates"] > 2
    for answer in lines(folder / "means.jsonl"):
        assert answer["quantiles"] == [0.1, 0.5]
        assert -30 <= answer["value"][0] <= answer["value"][1] <= 120
    assert (
        "quantile_tree"
        in asks("explain", "rounds", "--store", str(folder / "rounds.db")).out.decode()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {**SHARES, "lower": 0},
            "lower must be left out with --categories: shares lie between 0 and 1, got '0'",
        ),
        ({**SHARES, "categories": "phone"}, "categories must be 2 to 256, got 1"),
        ({**SHARES, "estimator": "one_shot"}, "categories must be left out for one_shot"),
        (
            {**SHARES, "value": "devise"},
            "value column must be in the source, got 'devise'; did you mean 'device'?",
        ),
        (
            {**SHARES, "option": "votes=yes"},
            "votes must be one of best, oue, sue, subset, krr, got 'yes'",
        ),
        ({"lower": None}, "lower must be given, got None: add --lower ..."),
        ({"quantiles": "half"}, "quantiles must be numbers separated by commas, got 'half'"),
        ({"quantiles": ".9,.5"}, "quantiles must be different and ascending, got 0.9,0.5"),
        ({**SHARES, "quantiles": ".5"}, "quantiles must be left out for category_shares"),
    ],
)
def test_a_bad_option_is_one_line(folder: Path, changes: dict[str, Any], message: str) -> None:
    before = files(folder)
    assert run(folder, **changes).message.startswith(message)
    assert files(folder) == before
