"""`meanstream simulate rounds` of vectors, densities and mixtures, and `reproduce kent`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from meanstream.lab.reproduce import reproduce_kent
from meanstream.lab.reproduce.kent_curves import kent_curves_ball_error, kent_curves_item_error
from meanstream.lab.reproduce.kent_figures import FIGURES
from tests.pipelines.command_line import asks, changed

FIELDS = (
    "mse stderr mse_cut bias mean deviation coverage predicted_mse theta runs_per_second config"
)
SMALL = "--users 600 --epsilon 4 --samples-per-user 200 --runs 3"


def simulate(arguments):
    return asks("simulate", "rounds", *changed(*arguments.split()))


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ("--estimator kent.linf --dimension 3 --theta 0.5,0,-0.5", 3),
        ("--estimator kent.linf --dimension 3 --mode paper --votes three_hot", 3),
        ("--estimator kent.l2 --dimension 5 --data sphere --constant 0.5", 5),
        ("--estimator kent.l2 --dimension 4 --data corner:0.9 --radius 1.5", 4),
        ("--estimator kent.sparse_select --dimension 20 --sparsity 2 --data sparse:2,0.9", 20),
        ("--estimator kent.sparse_threshold --dimension 6 --sparsity 2 --data sparse:2,0.9", 6),
        ("--estimator kent.density --smoothness 3 --theta 0.3 --option terms=4", 3),
        ("--estimator kent.mixture --components 2 --data mixture:0.5=-0.5;0.5=0.5", 2),
        ("--estimator kent.cover --dimension 2 --radius 0.4 --theta 0.3,0.3", 2),
        ("--estimator kent.univariate --data shifted_uniform", 1),
        ("--estimator duchi --data shifted_rademacher", 1),
    ],
)
def test_json_has_the_promised_fields_with_vectors_as_lists(arguments, numbers):
    ran = simulate(f"{SMALL} {arguments} --json")
    assert ran.code == 0, ran.err
    result = ran.json
    assert " ".join(result) == FIELDS
    assert [len(result[name]) for name in ("bias", "mean", "deviation", "theta")] == [numbers] * 4
    assert result["mse"] > 0
    assert 0 <= result["coverage"] <= 1
    assert result["config"]["sizes"] == "point:200"


def test_options_reach_the_estimator():
    base = f"{SMALL} --estimator kent.linf --dimension 3 --mode paper --votes one_hot --json"
    first = simulate(base).json["mse"]
    changes = ("--constant 0.3", "--votes three_hot", "--mode tuned", "--theta 0.9,0,0", "--samples-per-user 50",
               "--option participation=2", "--option seed=x", "--seed 2")  # fmt: skip
    for change in changes:
        assert simulate(f"{base} {change}").json["mse"] != first, change
    base = f"{SMALL} --estimator kent.density --theta 0.3 --json"
    assert len(simulate(f"{base} --smoothness 1").json["mean"]) > len(
        simulate(f"{base} --smoothness 4").json["mean"]
    )
    base = f"{SMALL} --estimator kent.l2 --dimension 3 --json"
    cube, ball = (
        simulate(f"{base} --theta 0.6,0,0 --radius {radius}").json for radius in (1.7, 0.85)
    )
    # Samples on the corners of the cube are cut back to the ball.
    assert cube["theta"][0] == pytest.approx(2 * ball["theta"][0])
    assert cube["mse"] != ball["mse"]


def test_samples_per_user_is_the_size_of_everybody():
    arguments = "--estimator kent --users 300 --runs 2 --json"
    one, other = (
        simulate(f"{arguments} {sizes}").json
        for sizes in ("--samples-per-user 50", "--sizes point:50")
    )
    assert one.pop("runs_per_second") > 0
    assert other.pop("runs_per_second") > 0
    assert one == other


def test_the_text_says_what_was_measured():
    text = simulate(f"{SMALL} --estimator kent.linf --dimension 12").out.decode()
    for part in (
        "summed over coordinates",
        "predicted mse",
        "(12 in all)",
        "coverage",
        "sizes point:200",
        "3 runs",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--estimator kent.mixture", "components must be given for kent.mixture, got None"),
        (
            "--estimator kent.sparse_select --dimension 9",
            "sparsity must be given for kent.sparse_select, got None",
        ),
        (
            "--estimator kent.linf --dimension 3 --theta 1,2",
            "theta must have 3 numbers, as dimension says, got [1.0, 2.0]",
        ),
        (
            "--estimator kent.linf --dimension 1 --theta a",
            "theta must be numbers separated by commas, got 'a'",
        ),
        (
            "--estimator kent.linf --dimension 3 --data cauchy",
            "data must be one of rademacher, corner:p, sphere",
        ),
        (
            "--estimator kent.linf --dimension 3 --sparsity 2",
            "kent.linf takes no option 'sparsity'",
        ),
        (
            "--estimator kent.linf --order sorted",
            "order must be left out for kent.linf, got 'sorted'",
        ),
        (
            "--estimator kent.linf --reading laplace",
            "reading must be left out for kent.linf, got 'laplace'",
        ),
        ("--estimator kent --dimension 3", "dimension must be left out for kent, got 3"),
        (
            "--estimator kent.l2 --dimension 4 --data sphere --samples-per-user 5",
            "samples_per_user must be at least 100",
        ),
        (
            "--estimator kent.density --data rademacher:0.1 --dimension 2",
            "data must be trigonometric for a density",
        ),
        (
            "--estimator kent.density --theta 0.9",
            "theta must be coefficients of a density, never negative",
        ),
    ],
)
def test_refusals_are_one_line(arguments, line):
    assert simulate(arguments).message.startswith(line)


# reproduce kent


@pytest.fixture
def small(monkeypatch):
    """Every figure with its first and last point."""

    def shortened(figure):
        def ends(values):
            return (values[0], values[-1]) if values else values

        panels = []
        for panel in figure()[:1]:
            curves = tuple(
                dataclasses.replace(
                    curve,
                    x=ends(curve.x),
                    points=ends(curve.points),
                    y=ends(curve.y),
                    divide=ends(curve.divide),
                )
                for curve in panel.curves
            )
            panels.append(dataclasses.replace(panel, curves=curves, names=ends(panel.names)))
        return panels

    for name, figure in list(FIGURES.items()):
        monkeypatch.setitem(FIGURES, name, lambda figure=figure: shortened(figure))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("figure", ["2", "3", "5", "7", "8", "9", "10", "11", "12"])
def test_every_figure_is_measured_and_drawn(figure, tmp_path: Path):
    ran = asks(
        "reproduce", "kent", "--figure", figure, "--runs", "2", "--out", str(tmp_path), "--json"
    )
    assert ran.code == 0, ran.err
    result = ran.json
    assert Path(result["png"]).read_bytes().startswith(b"\x89PNG")
    for panel in result["panels"]:
        for curve in panel["curves"]:
            assert len(curve["x"]) == len(curve["y"]) == len(curve["bar"]) == 2
    assert any(curve["bar"][0] is not None for curve in result["panels"][0]["curves"])


@pytest.mark.usefixtures("small")
def test_text_shows_the_reference_beside_ours(tmp_path: Path):
    out = asks(
        "reproduce", "kent", "--figure", "2", "--runs", "2", "--out", str(tmp_path)
    ).out.decode()
    assert "(reference 52)" in out
    assert "semi user level, epsilon 1 (exact)" in out
    assert out.startswith("figure 2, 2 runs; +- and bars: two standard errors\n")


def test_a_figure_of_formulas_has_no_runs(tmp_path: Path):
    words = ("reproduce", "kent", "--figure", "1", "--out", str(tmp_path))
    assert asks(*words).out.decode().startswith("figure 1, of formulas: no runs\n")
    result = json.loads(asks(*words, "--json").out)
    assert result["runs"] is None
    assert {bar for p in result["panels"] for c in p["curves"] for bar in c["bar"]} == {None}


def test_a_figure_s_point_is_a_simulation_of_its_own():
    curve = FIGURES["7"]()[1].curves[1]
    config = reproduce_kent.kent_configuration(curve.points[0], 3, 1)
    from meanstream.lab.simulation.simulated_rounds import simulate_vectors

    result = simulate_vectors(config)
    assert reproduce_kent.shown_point(curve, [result]) == (
        result.mse,
        2 * result.stderr,
    )
    assert reproduce_kent.Measured(3, 1)(curve.points[0]).mse == result.mse


def test_exact_errors_of_the_item_level():
    # The reference values .0133 and 3.3e-5 of d = 32 at epsilon 4; a bit on one coordinate,
    # coth(epsilon / 2).
    assert kent_curves_ball_error(32, 4.0, 4000, 0.0) == pytest.approx(0.0133, rel=0.01)
    assert kent_curves_ball_error(1, 1.0, 1, 0.0) == pytest.approx(2.1640**2, rel=1e-3)
    assert kent_curves_item_error(1.0, 500, 100) == pytest.approx((1 / 12 + 8) / 50_000)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--figure 13", "figure must be one of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, got '13'"),
        ("--runs 0", "runs must be at least 1, got 0"),
        (
            "--out /dev/null/x",
            "out must be a folder, or a new one, got '/dev/null/x' (Not a directory)",
        ),
    ],
)
def test_bad_options_of_reproduce(arguments, line):
    assert asks("reproduce", "kent", *arguments.split()).message == line
