"""`meanstream simulate rounds` and `reproduce dame`: JSON, tables, pictures and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from meanstream.lab.reproduce import dame_figures
from meanstream.lab.reproduce.dame_figures import SHARES, dame_paper
from meanstream.operators.estimators.registry import ESTIMATORS
from tests.pipelines.command_line import asks, changed

FIELDS = "mse stderr bias bias_stderr coverage predicted_mse theta effective_size bins mse_cut runs_per_second config"
SMALL = "--users 400 --epsilon 2 --sizes two:100,1000,0.5 --runs 4"


def simulate(arguments):
    return asks("simulate", "rounds", *changed(*arguments.split()))


@pytest.mark.parametrize(
    ("arguments", "effective_size"),
    [
        ("--estimator dame --mode paper --effective-size 1000", 1000),
        ("--estimator dame --mode paper --effective-size 1000 --literal", 1000),
        ("--estimator kent --threshold median --constant 0.7", 100),
        ("--estimator kent --threshold 200 --data beta:2,3 --order sorted", 200),
        ("--estimator kent --least-size 1000", 1000),
        ("--estimator duchi --reading laplace --summary mean --data three:0.1", None),
        ("--estimator one_shot --second-moment 0.1 --between-users-law skewed:0.1", None),
        ("--estimator split --threshold 5 --data bernoulli:0.2", 5),
        ("--estimator item --option level=0.5", None),
    ],
)
def test_json_has_the_promised_fields(arguments, effective_size):
    ran = simulate(f"{SMALL} {arguments} --json")
    assert ran.code == 0, ran.err
    result = ran.json
    assert " ".join(result) == FIELDS
    assert result["mse"] > 0
    assert result["predicted_mse"] > 0
    assert result["effective_size"] == effective_size
    assert 0 <= result["coverage"] <= 1
    assert result["config"]["runs"] == 4


def test_options_reach_the_estimator():
    """What is accepted changes the numbers."""
    base = simulate(f"{SMALL} --estimator dame --mode paper --effective-size 1000 --json").json
    for change in (
        "--literal",
        "--mode tuned",
        "--effective-size 100",
        "--order sorted",
        "--seed 2",
        "--epsilon 1",
    ):
        other = simulate(
            f"{SMALL} --estimator dame --mode paper --effective-size 1000 {change} --json"
        ).json
        assert other["mse"] != base["mse"], change
    narrow, wide = (
        simulate(f"{SMALL} --runs 40 --estimator duchi --option level={level} --json").json[
            "coverage"
        ]
        for level in (0.3, 0.99)
    )
    assert narrow < wide


def test_users_who_differ_move_theta():
    result = simulate(
        f"{SMALL} --estimator one_shot --data rademacher:0.8 --between-users-law normal:0.3 --json"
    ).json
    assert result["theta"] < 0.8
    assert result["config"]["between_users_law"] == "normal:0.3"


def test_a_config_file_and_flags_agree(tmp_path):
    flags = "--estimator kent --users 400 --epsilon 2 --sizes two:100,1000,0.5 --runs 3 --threshold median --json"
    config = tmp_path / "rounds.yaml"
    config.write_text(
        "estimator: kent\nusers: 400\nepsilon: 2\nsizes: two:100,1000,0.5\nruns: 3\nthreshold: median\njson: true\n"
    )
    first, second = simulate(flags).json, simulate(f"--config {config}").json
    assert first.pop("runs_per_second") > 0
    assert second.pop("runs_per_second") > 0
    assert first == second


def test_the_text_says_what_was_measured():
    text = simulate(f"{SMALL} --estimator item --data rademacher:0.25").out.decode()
    for part in (
        "mse ",
        "predicted mse",
        "theta 0.25",
        "coverage",
        "epsilon 2 per sample",
        "4 runs",
    ):
        assert part in text
    assert "epsilon 2 per user" in simulate(f"{SMALL} --estimator duchi").out.decode()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            "--estimator mean",
            f"estimator must be one of {', '.join(ESTIMATORS)}",
        ),  # and those of this process
        (
            "--estimator kent --literal",
            "kent takes no option 'literal'; known: ",
        ),
        (
            "--estimator dame --option litera=1 --mode paper",
            "dame takes no option 'litera'; did you mean 'literal'?",
        ),
        ("--estimator dame --option literal", "option must be written NAME=VALUE, got 'literal'"),
        ("--estimator dame --literal", "literal must be left out in mode tuned, got True"),
        (
            "--estimator duchi --reading two_bit",
            "reading must be one of one_bit, laplace, got 'two_bit'",
        ),
        (
            "--estimator duchi --between-users 0.1",
            "duchi takes no option 'between_users'; known: level, mode, reading",
        ),
        (
            "--data cauchy:0,1",
            "data must be rademacher:mean, three:q, beta:a,b, bernoulli:p or normal:mean,sd, got 'cauchy:0,1'",
        ),
        ("--sizes gamma:3", "sizes must be one of point:k"),
        ("--sizes missing.csv:user", "sizes must be one of point:k"),
        ("--epsilon 1e-9 --estimator dame", "epsilon must be from 0.0001 to 1e100, got 1e-9"),
        ("--epsilon 1e-9 --estimator kent", "epsilon must be from 0.0001 to 1e100, got 1e-9"),
        ("--epsilon 0 --estimator duchi", "epsilon must be positive and finite, got 0"),
        ("--runs 0", "runs must be at least 1, got 0"),
    ],
)
def test_refusals_are_one_line(arguments, line):
    assert simulate(arguments).message.startswith(line)


# reproduce dame


def reproduce(*arguments):
    return asks("reproduce", "dame", *arguments)


def test_figure_1a_shows_both_bounds_beside_the_reference(monkeypatch, tmp_path):
    monkeypatch.setattr(dame_figures, "GRID", 3)
    ran = reproduce("--figure", "1a", "--out", str(tmp_path), "--json")
    result = ran.json
    assert Path(result["png"]).read_bytes().startswith(b"\x89PNG")
    assert [panel["title"] for panel in result["panels"]] == [
        bounds.title for bounds in dame_paper().bounds
    ]
    for panel in result["panels"]:
        for curve in panel["curves"]:
            ours = dict(zip(curve["x"], curve["y"], strict=True))
            for entry in curve["reference"]:
                assert ours[entry["x"]] == pytest.approx(entry["y"], rel=0.02)
    # The corrected constant, the printed one, the shape, the lower bound: in this order, from above
    # to below.
    for values in zip(*(curve["y"] for curve in result["panels"][-1]["curves"]), strict=True):
        assert list(values) == sorted(values, reverse=True)


def test_figure_1b_simulates_every_curve(tmp_path, monkeypatch):
    monkeypatch.setattr(dame_figures, "USERS", 1000)
    ran = reproduce("--runs", "2", "--out", str(tmp_path), "--json")
    result = ran.json
    assert ran.err == b""
    assert Path(result["png"]).read_bytes().startswith(b"\x89PNG")
    curves = result["panels"][0]["curves"]
    assert [curve["label"] for curve in curves] == [
        estimated.label for estimated in dame_paper().errors
    ]
    for curve, estimated in zip(curves, dame_paper().errors, strict=True):
        forced = "effective_size" in estimated.options
        assert curve["x"] == list(SHARES[1:] if forced else SHARES)
        assert min(curve["y"]) > 0
        assert [entry["y"] for entry in curve["reference"]] == list(estimated.reference.values())
    text = "\n".join(dame_figures.dame_lines(result))
    assert "Kent et al., T = median, C = 0.5" in text
    assert "(reference 4.5e-05)" in text


def test_dropped_users_are_not_asked_only_where_the_median_is_large():
    dropping = next(estimated for estimated in dame_paper().errors if estimated.only_large)
    assert [dropping.configuration(share)["least_size"] for share in (SHARES[4], SHARES[5])] == [
        1,
        1_000_000,
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--figure", "2"), "figure must be one of 1a, 1b, got '2'"),
        (("--runs", "0"), "runs must be at least 1, got 0"),
        (
            ("--out", "/dev/null/x"),
            "out must be a folder, or a new one, got '/dev/null/x' (Not a directory)",
        ),
    ],
)
def test_refusals_of_reproduce_are_one_line(arguments, line):
    assert reproduce(*arguments).message == line
