"""`meanstream plan`: the table, JSON, sizes counted in a file, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.command_line import asks, changed, write_samples

BASE = ("plan", "--users", "4000", "--epsilon", "1")


def test_json() -> None:
    found = asks(
        *BASE,
        "--sizes",
        "point:1000",
        "--between-users",
        "0",
        "--target-half-width",
        "0.01",
        "--json",
    )
    assert found.code == 0
    table = found.json
    assert table["recommended"] == "plan"
    assert table["users"] == 4000
    assert table["sizes"]["greatest"] == 1000
    by_name = {one["name"]: one for one in table["candidates"]}
    assert set(by_name) == {"one_shot", "adaptive", "dame", "kent", "plan"}
    assert by_name["plan"]["users_needed"] < by_name["one_shot"]["users_needed"]
    assert by_name["plan"]["half_width"] < by_name["one_shot"]["half_width"]


def test_the_table_names_every_candidate_and_the_recommendation() -> None:
    found = asks(*BASE, "--sizes", "point:2", "--lower", "-30", "--upper", "120")
    text = found.out.decode()
    assert found.code == 0
    assert "4,000 users, epsilon 1" in text
    for name in ("one_shot", "adaptive", "dame", "kent", "plan"):
        assert name in text
    assert "Use one unbiased report" in text


def test_sizes_are_counted_in_a_column_of_a_file(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "flights.csv")
    found = asks(*BASE, "--sizes", f"{path}:tailnum", "--json").json
    # 60 rows of 3 aircraft.
    assert found["sizes"] == {
        "least": 20,
        "greatest": 20,
        "mean": 20.0,
        "mean_sqrt": pytest.approx(20**0.5),
    }


def test_options_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("users: 4000\nepsilon: 1\nsizes: point:2\nbetween-users: 0\n")
    assert asks("plan", "--config", str(path), "--json").json["between_users"] == 0


@pytest.mark.parametrize(
    ("arguments", "best", "others"),
    [
        (("--users", "20000", "--dimension", "20", "--radius", "1"), "kent.l2", ["kent.linf"]),
        (
            ("--dimension", "20", "--sparsity", "3"),
            "kent.sparse_select",
            ["kent.sparse_threshold", "kent.l2"],
        ),
        (("--density",), "kent.density", []),
        (("--density", "--smoothness", "1"), "kent.density", []),
        (("--components", "2"), "kent.mixture", []),
    ],
)
def test_vectors_densities_and_mixtures(
    arguments: tuple[str, ...], best: str, others: list[str]
) -> None:
    table = asks(*changed(*BASE, "--sizes", "point:100", *arguments), "--json").json
    assert table["recommended"] == table["candidates"][0]["name"] == best
    text = asks(*changed(*BASE, "--sizes", "point:100", *arguments)).out.decode()
    for part in (best, *others, "mse, ", " users, epsilon 1", f"Use {best}", "It assumes: "):
        assert part in text


def test_users_are_counted_where_sizes_are(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "flights.csv", agents=400, rows=1000)
    counted = ("plan", "--epsilon", "1", "--sizes", f"{path}:tailnum", "--json")
    found = asks(*counted).json
    assert found["users"] == 400
    assert found == asks(*counted, "--users", "400").json
    assert asks(*counted, "--users", "40").json["users"] == 40
    vectors = asks(*counted, "--dimension", "3").json
    assert vectors == asks(*counted, "--dimension", "3", "--users", "400").json
    lacking = asks("plan", "--epsilon", "1", "--sizes", "point:2")
    assert lacking.message == "users must be given unless sizes are counted in FILE.csv:COLUMN"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sizes", "point:0"), "sizes must"),
        (("--sizes", "normal:1,2"), "sizes must be one of"),
        (
            ("--sizes", "nofile.csv:user"),
            "sizes must name a readable file, got 'nofile.csv' (No such",
        ),
        ((), "sizes must be given"),
        (("--sizes", "point:2", "--lower", "1"), "lower must be below upper (1.0), got 1"),
        (("--sizes", "point:2", "--between-users", "3"), "between_users must lie in [0, 1]"),
        (
            ("--sizes", "point:2", "--dimension", "3", "--density"),
            "dimension must be given alone: it, density or",
        ),
        (
            ("--sizes", "point:2", "--smoothness", "2"),
            "smoothness must be left out without density, got 2",
        ),
        (
            ("--sizes", "point:2", "--dimension", "3", "--radius", "5"),
            "radius must lie in (0, 1.732]",
        ),
        (
            ("--sizes", "point:2", "--density", "--target-half-width", "1"),
            "target_half_width must be left out with",
        ),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    assert asks(*BASE, *arguments).message.startswith(message)


def test_what_epsilon_buys_is_what_a_plan_for_that_epsilon_says() -> None:
    asked = ("plan", "--users", "4000", "--sizes", "point:20", "--json", "--epsilon")
    found = {epsilon: asks(*asked, f"{epsilon:g}").json for epsilon in (1.0, 3.0)}
    rows = found[1.0]["by_epsilon"]
    assert rows.keys() == {"one_shot", "central.mean"}
    for epsilon, table in found.items():
        by_name = {
            one["name"]: one["half_width"] for one in table["candidates"] + table["curators"]
        }
        for name, errors in rows.items():
            assert errors[str(epsilon)] == pytest.approx(by_name[name])
    text = asks(*asked[:-2], "--epsilon", "1").out.decode()
    assert "Half-width of the interval by epsilon" in text


def test_one_budget_for_several_windows_is_planned() -> None:
    sizes = ("--sizes", "point:2", "--json")
    shared = asks(*BASE, *sizes, "--user-windows", "52", "--delta", "1e-6").json
    apart = asks("plan", "--users", "4000", "--epsilon", str(1 / 52), *sizes).json
    noise = [plan["curator"]["privacy_half_width"] for plan in (apart, shared)]

    # A tenth of epsilon, or of the squared shift, measures the spread where that pays.
    assert 5.8 * 0.9 < (noise[0] / noise[1]) ** 2 < 5.9 / 0.81
    assert "central.mean: epsilon 1, delta 1e-06 for 52 windows" in shared["budget_sentence"]
    assert "one_shot: " in shared["budget_sentence"]
    assert apart["budget_sentence"] == ""

    refused = asks(*BASE, "--sizes", "point:2", "--delta", "1e-6")
    assert refused.code == 2
    assert b"delta must be left out without user_windows" in refused.err
