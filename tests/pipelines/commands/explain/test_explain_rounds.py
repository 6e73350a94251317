"""`meanstream explain rounds` says what the engine does, and warns where an interval would not be
honest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.rounds.channels.registry import make_channel
from tests.pipelines.command_line import arguments, asks, files
from tests.pipelines.commands.run.test_run_rounds import options, run, write_flights


def explain(**changes: object) -> dict[str, Any]:
    named = {"lower": -30, "upper": 120, "epsilon": 1, "window": "7d", "users": 400, **changes}
    facts: dict[str, Any] = asks("explain", "rounds", "--json", *arguments(named)).json
    return facts


def test_what_is_protected_and_at_what_total() -> None:
    facts = explain(estimator="one_shot")
    assert facts["privacy_unit"] == "user"
    assert "number of samples" in facts["neighboring"]
    assert (facts["total"]["epsilon"], facts["total"]["delta"], facts["total"]["user_budget"]) == (
        1.0,
        0.0,
        None,
    )
    assert "no --user-budget" in facts["total"]["over_time"]
    assert (facts["bounds"]["lower"], facts["bounds"]["upper"]) == (-30.0, 120.0)
    assert "every user counts once" in facts["estimator"]["estimand"]
    assert set(facts["who_sees_what"]) == {
        "a user",
        "the users' side and its store",
        "the statistician",
        "everyone",
    }
    assert "at most 3 windows" in explain(estimator="one_shot", user_budget=3)["total"]["over_time"]


def test_each_mechanism_has_epsilon_and_scale() -> None:
    facts = explain(estimator="kent", sizes="point:1000", epsilon=2)
    stages = facts["mechanisms"]
    assert [stage["name"] for stage in stages] == ["vote", "clip"]
    assert sum(stage["share_of_users"] for stage in stages) == pytest.approx(1)
    assert {stage["epsilon"] for stage in stages} == {2.0}
    (channel,) = stages[1]["channels"]
    expected = make_channel(channel["channel"], 2.0)
    assert channel["epsilon"] == 2.0
    assert channel["noise_stddev_in_half_widths"] == pytest.approx(
        float(expected.variance(0.0)) ** 0.5
    )
    assert channel["noise_stddev_on_the_bounds"] == pytest.approx(
        75 * channel["noise_stddev_in_half_widths"]
    )


def test_predicted_stderr_is_about_that_of_a_run(tmp_path: Path) -> None:
    """In the value's unit; the run estimates it from 40 reports of about the same size."""
    write_flights(tmp_path / "flights.csv")
    assert run(tmp_path, estimator="one_shot").code == 0
    predicted = explain(estimator="one_shot", users=39)["estimator"]["predicted_stderr"]
    for line in (tmp_path / "means.jsonl").read_text().splitlines():
        assert json.loads(line)["stderr"] == pytest.approx(predicted, rel=0.15)


def test_what_sessions_and_overlaps_cost_is_said() -> None:
    assert (
        "first and last sample are NOT protected"
        in explain(window="session:30m", estimator="one_shot")["public"]
    )
    assert "times of samples" not in explain(estimator="one_shot")["public"]
    sliding = explain(window="7d,1d", user_budget=14, estimator="one_shot")
    assert (sliding["total"]["windows_per_sample"], sliding["window"]["overlap"]) == (7, 7)


def test_the_warning_is_of_these_parameters() -> None:
    """Declared alike, users who differ are missed; the unbiased report is honest whatever users
    do."""
    alike = explain(sizes="point:1000", between_users=0, users=4000)["users_who_differ"]
    assert alike["simulated_with"]["users"] == 4000
    assert {"normal:15", "skewed:15"} <= set(alike["dishonest_where"])
    assert "none" not in alike["dishonest_where"]
    plain = explain(estimator="one_shot", sizes="point:1000", users=4000)["users_who_differ"]
    assert plain["dishonest_where"] == []
    assert {row["of_one_shot"] for row in plain["simulated"]} == {1.0}


def test_as_text_and_from_a_config_file_without_touching_anything(tmp_path: Path) -> None:
    given = {
        k: str(v) if isinstance(v, Path) else v for k, v in options(tmp_path, users=400).items()
    }
    (tmp_path / "rounds.yaml").write_text(json.dumps(given))
    before = files(tmp_path)
    ran = asks("explain", "rounds", "--config", str(tmp_path / "rounds.yaml"))
    text = ran.out.decode()
    assert ran.code == 0
    for part in (
        "epsilon 1, delta 0",
        "[-30, 120]",
        "who sees what",
        "users who differ",
        "user budget none",
    ):
        assert part in text
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("asked", "estimand", "question"),
    [
        (
            {"estimator": "kent.density"},
            "density of samples",
            "functions, which a public hash chooses",
        ),
        (
            {"estimator": "kent.mixture", "option": "components=2"},
            "mean of each component, and its weight",
            "votes",
        ),
        (
            {"estimator": "kent.l2", "values": "x,y,z"},
            "of each coordinate",
            "About 1 of 4 rotated coordinates",
        ),
        ({"estimator": "kent.linf", "values": "x,y,z"}, "of each coordinate", "of 3 coordinates"),
        (
            {"estimator": "cummings.ratio"},
            "larger users weigh more",
            "order statistics of private sizes",
        ),
    ],
)
def test_every_family_says_what_it_protects_and_answers(
    asked: dict[str, str], estimand: str, question: str
) -> None:
    facts = explain(**asked, sizes="point:50", epsilon=2)
    assert facts["protects"] == "all that one user sends within a window"
    assert "its number of samples included" in facts["neighboring"]
    assert facts["total"]["epsilon"] == 2.0
    assert estimand in facts["estimator"]["estimand"]
    assert question in facts["mechanisms"][0]["asks"]
    named = {
        "lower": -30,
        "upper": 120,
        "epsilon": 2,
        "window": "7d",
        "users": 400,
        "sizes": "point:50",
        **asked,
    }
    text = asks("explain", "rounds", *arguments(named)).out.decode()
    assert estimand in text
    assert question in text


def test_coordinates_share_epsilon() -> None:
    """Whoever reports about several coordinates does so with a part of epsilon each."""
    facts = explain(
        estimator="kent.linf", values="x,y,z", sizes="point:50", epsilon=2, option="participation=2"
    )
    assert {stage["epsilon"] for stage in facts["mechanisms"]} == {2.0}
    for stage in facts["mechanisms"]:
        assert (
            "About 2 of 3 coordinates, which a public hash chooses, at epsilon 1" in stage["asks"]
        )


def test_a_ball_that_samples_are_cut_back_to_is_said() -> None:
    facts = explain(estimator="kent.l2", values="x,y,z", sizes="point:50", option="radius=1.5")
    assert (
        "vectors outside a ball of radius 1.5 half widths cut back to it"
        in facts["bounds"]["values_outside"]
    )
    cube = explain(estimator="kent.linf", values="x,y,z", sizes="point:50")
    assert cube["bounds"]["values_outside"] == "are clipped"


def test_single_samples_are_not_called_users() -> None:
    """The comparison with noise for each sample protects no user, and says so."""
    facts = explain(estimator="item", sizes="point:10")
    assert facts["privacy_unit"] == "sample"
    assert facts["protects"].startswith("each single sample, NOT all that one user sends")
    assert facts["neighboring"] == "two windows that differ in the value of one sample"
    assert "the number of samples of each user" in facts["public"]
    assert facts["total"]["over"] == "one sample (local)"
    assert facts["answer"]["protected"].startswith(
        "The value of each single sample, against everyone else together"
    )
    assert facts["estimator"]["estimand"] == "mean over samples: larger users weigh more"
    for other in ("semi", "split"):
        assert explain(estimator=other, sizes="point:10")["privacy_unit"] == "user"


def test_a_mixture_assumes_components_and_not_one_law() -> None:
    differ = explain(estimator="kent.mixture", sizes="point:50", option="components=2")[
        "users_who_differ"
    ]
    assert "from one component" in differ["assumed"]


def test_a_bad_option_is_one_line() -> None:
    ran = asks(
        "explain", "rounds", "--lower", "0", "--upper", "1", "--epsilon", "1", "--window", "soon"
    )
    assert ran.message.startswith("window must be SIZE")


def test_odds_and_errors_by_epsilon_are_those_of_the_estimator() -> None:
    typed = [
        "explain",
        "rounds",
        "--lower",
        "0",
        "--upper",
        "8",
        "--window",
        "1d",
        "--users",
        "500",
    ]
    facts = {
        epsilon: asks(*typed, "--epsilon", f"{epsilon:g}", "--json").json for epsilon in (0.3, 1.0)
    }
    assert facts[1.0]["odds"]["guessed_right"] == pytest.approx(0.7311, abs=1e-4)
    assert facts[1.0]["odds"]["belief_after"] == pytest.approx(0.0267, abs=1e-4)
    rows = {row["epsilon"]: row["predicted_stderr"] for row in facts[1.0]["by_epsilon"]}
    for epsilon, found in facts.items():
        assert rows[epsilon] == pytest.approx(found["estimator"]["predicted_stderr"])
    assert rows[3.0] < rows[1.0] < rows[0.3]


def test_the_first_three_lines_answer() -> None:
    """Against whom, how much, and what a user with ten samples has: ten of one window are protected
    together."""
    named = {"lower": 0, "upper": 8, "epsilon": 1, "window": "1d", "users": 500}
    assert asks("explain", "rounds", *arguments(named)).out.decode().splitlines()[:3] == [
        "protected       Everything that one user sends within a window, against everyone else together, the "
        "statistician "
        "included, even if they know all other samples.",
        "how much        epsilon 1: from all that is published of a window they guess which of two equally likely "
        "contents "
        "it has at most 73.1 % of the time.",
        "ten samples     In one window the same. If one user is in ten windows: nearly always.",
    ]


def test_one_budget_for_all_windows_is_said_with_its_noise() -> None:
    shared = {"user_windows": 52, "delta": 1e-6, "estimator": "central.mean"}
    facts = explain(**shared)
    total = facts["total"]
    assert (total["epsilon"], total["delta"], total["user_windows"]) == (1.0, 1e-6, 52)
    assert "Gaussian noise, of 5.8 times less variance than Laplace" in total["shared"]
    assert facts["mechanisms"][0]["noise"].startswith("Gaussian")
    assert "within 52 windows" in facts["protects"]
    assert {row["epsilon"] for row in facts["unit"]["windows"]} == {1.0}
    assert total["with_numerics"]["epsilon"] < 1.001

    # All windows are guessed as one Gaussian is, and one of them hardly at all.
    odds = facts["odds"]
    assert odds["guessed_right"] == pytest.approx(0.5471, abs=1e-4)
    assert 0.5 < odds["guessed_right_several"] < 0.51

    local = explain(**{**shared, "estimator": "one_shot"})
    assert "epsilon 0.03374 in each window by exact composition" in local["total"]["shared"]
    assert local["mechanisms"][0]["epsilon"] == 0.0337416


def test_one_budget_is_one_line_for_reading() -> None:
    named = {"lower": 0, "upper": 1, "epsilon": 1, "window": "7d", "users": 400, "user_windows": 12}
    text = asks("explain", "rounds", "--estimator", "central.mean", *arguments(named)).out.decode()
    assert "one budget      epsilon 1 for 12 windows of a user together" in text
    assert "user budget 1: all of it for at most 12 windows; later windows leave out" in text
