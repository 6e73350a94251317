"""`meanstream plan agents`: the tables, JSON, a file of options, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from meanstream.operators.forecast import shares_forecast as shares
from tests.pipelines.command_line import asks, changed

BASE = ("plan", "agents", "--agents", "4000", "--epsilon", "1", "--lower", "-30", "--upper", "120")
WHOLE = (*BASE, "--delta", "1e-6", "--sizes", "lognormal:80,1", "--spread", "6")


def test_json_and_the_tables_say_the_same() -> None:
    found = asks(*WHOLE, "--target-half-width", "12", "--json").json
    assert [row["quantile"] for row in found["rows"]] == [0.1, 0.5, 0.9]
    assert found["by_epsilon"]["1.0"] == pytest.approx(found["rows"][1]["together"])
    text = asks(*WHOLE, "--target-half-width", "12").out.decode()
    for part in (
        "4,000 agents, epsilon 1",
        "of it privacy",
        "Error together by epsilon",
        *found["sentences"][:1],
    ):
        assert " ".join(part.split()) in " ".join(text.split())
    assert f"{found['rows'][1]['alone']:.3g}" in text


def test_quantiles_are_planned_as_private_means_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "RUNS", 12)
    asked = ("--quantiles", ".9,.5", "--exceeds", "30", "--mean", "10", "--stddev", "30")
    found = asks(*WHOLE, *asked, "--json").json
    names = ["quantile 0.5", "quantile 0.9", "share above 30"]
    assert [row["question"] for row in found["shares"][1::3]] == names
    assert [row["samples"] for row in found["shares"][:3]] == [
        row["samples"] for row in found["rows"]
    ]
    plain = asks(*WHOLE, "--stddev", "30", "--json").json
    assert "shares" not in plain
    assert (
        found["rows"][1]["privacy"] > plain["rows"][1]["privacy"]
    )  # a tenth of the budget is for the histograms
    text = asks(*WHOLE, *asked).out.decode()
    for row in found["shares"]:
        assert f"{row['question']}" in text
        assert f"± {row['half_width_released']:.3g}" in text
    scheduled = asks(*WHOLE, *asked, "--horizon", "40", "--json").json
    assert scheduled["shares"][5]["half_width_released"] > found["shares"][5]["half_width_released"]


def test_options_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "agents: 200\nepsilon: 2\nsizes: point:500\nlower: 0\nupper: 1\nspread: 0.05\nstddev: 0.3\n"
    )
    found = asks("plan", "agents", "--config", str(path), "--json").json
    assert found["agents"] == 200
    assert found["rows"][0]["alone"] == pytest.approx(0.3 / 500**0.5)


def test_agents_are_counted_where_sizes_are(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("shop,amount\n" + "".join(f"s{i % 30},{i}\n" for i in range(2000)))
    counted = ("plan", "agents", *BASE[4:], "--sizes", f"{path}:shop", "--spread", "6", "--json")
    found = asks(*counted).json
    assert found["agents"] == 30
    assert found == asks(*counted, "--agents", "30").json
    assert asks(*counted, "--agents", "31").json["agents"] == 31
    path.write_text("shop,amount\nnorth,1\n")
    assert asks(*counted).message == "agents must be at least 2, got 1"


@pytest.mark.parametrize("per_person", [None, 7])
def test_it_says_of_a_persons_samples_what_explain_says(per_person: int | None) -> None:
    more = () if per_person is None else ("--per-person", str(per_person))
    agreed = (
        "--lower",
        "-30",
        "--upper",
        "120",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--horizon",
        "40",
    )
    explained = ("explain", "agents", *agreed, "--schedule", "preferred:10")
    if per_person is not None:
        explained += ("--person", "who", "--per-person", "7")
    unit = asks(*WHOLE, *more, "--json").json["unit"]
    assert unit == asks(*explained, "--json").json["unit"]
    if per_person is None:
        assert (
            unit["many_samples"][0]
            == "K samples of one person multiply epsilon by K and rho by K^2;"
        )
        two = asks(*WHOLE, "--per-person", "2", "--json").json["unit"]
        assert two["rho"] == unit["rho"]  # its noise is calibrated to both
        assert unit["groups"][0]["epsilon"] == 2.0
    else:
        assert unit["many_samples"] == [
            "the variance of the noise is 7^2 = 49 times that of protecting one sample"
        ]
    lines = asks(*WHOLE, *more).out.decode().splitlines()
    said = asks(*explained).out.decode().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("unit "))
    assert "\n".join(lines[begin:]) in "\n".join(said)
    assert all(line.strip() in " ".join(lines) for line in unit["many_samples"])


def test_without_a_name_rounds_are_planned() -> None:
    arguments = ("--users", "4000", "--epsilon", "1", "--sizes", "point:2", "--json")
    assert asks("plan", *arguments).json == asks("plan", "rounds", *arguments).json


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (BASE, "sizes must be given"),
        (
            ("plan", "agents", *WHOLE[4:]),
            "agents must be given unless sizes are counted in FILE.csv:COLUMN",
        ),
        ((*BASE, "--sizes", "point:9"), "spread must be given"),
        (
            (*WHOLE, "--spread", "100"),
            "spread must be at most half the width from lower (-30) to upper (120), got 100",
        ),
        ((*WHOLE, "--stddev", "0"), "stddev must be positive and finite, got 0"),
        ((*WHOLE, "--schedule", "every:1d"), "schedule must count samples here"),
        ((*WHOLE, "--epsilon", "0"), "epsilon must be positive"),
        ((*WHOLE, "--level", "1"), "level must lie strictly between 0 and 1, got 1"),
        ((*WHOLE, "--sizes", "point:0"), "sizes must"),
        ((*WHOLE, "--quantiles", ".5,1"), "quantiles must lie in (0, 1), got 1.0"),
        ((*WHOLE, "--quantiles", ""), "quantiles must be numbers separated by commas, got ''"),
        ((*WHOLE, "--exceeds", "30,x"), "exceeds must be numbers separated by commas, got '30,x'"),
        ((*WHOLE, "--exceeds", "120"), "exceeds must lie in [-30.0, 120.0), got 120"),
        (
            (*WHOLE, "--histogram-share", "0.2"),
            "histogram_share must be left out without quantiles or exceeds, got 0.2",
        ),
        ((*WHOLE, "--mean", "10"), "mean must be left out without quantiles or exceeds, got 10"),
        (
            (*WHOLE, "--quantiles", ".5", "--mean", "120"),
            "mean must lie strictly between -30.0 and 120.0, got 120",
        ),
        (
            (*WHOLE, "--quantiles", ".5", "--memory", "half-life:500"),
            "histogram_share must be 0, without quantiles and exceeds, in paper mode and with a "
            "memory that forgets, got 0.1",
        ),
    ],
)
def test_refusals(arguments: tuple[str, ...], message: str) -> None:
    found = asks(*changed(*arguments))
    assert found.code == 2
    assert message in found.err.decode()
    assert len(found.err.decode().splitlines()) == 1
