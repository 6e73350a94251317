"""`meanstream explain together`: several deployments of one person add up, and each says its
name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from meanstream.operators.noise.group_privacy import group_epsilon
from tests.pipelines.command_line import Ran, meanstream

AGENTS = {
    "lower": -30,
    "upper": 120,
    "epsilon": 1,
    "delta": 1e-6,
    "noise": "gaussian",
    "name": "delays",
}
ROUNDS = {"lower": 0, "upper": 1, "epsilon": 0.5, "window": "7d", "name": "weekly", "users": 500}


def together(folder: Path, *configs: dict[str, Any], json: bool = True) -> Ran:
    places = []
    for number, config in enumerate(configs):
        places.append(str(folder / f"{number}.yaml"))
        Path(places[-1]).write_text(yaml.safe_dump(config))
    return meanstream("explain", "together", *places, *(["--json"] if json else []))


def test_gaussian_deployments_are_composed_exactly_and_rounds_added(tmp_path: Path) -> None:
    found = together(tmp_path, AGENTS, {**AGENTS, "name": "fuel", "epsilon": 0.5}, ROUNDS).json
    first, second, third = found["deployments"]
    assert [one["name"] for one in (first, second, third)] == ["delays", "fuel", "weekly"]
    assert (third["epsilon"], third["delta"], third["mu"]) == (0.5, 0.0, None)
    composed = group_epsilon(math.hypot(first["mu"], second["mu"]), 2e-6) + 0.5
    # Losses as distributions: less than the sum, and no less than the Gaussian ones alone.
    assert composed - 0.5 < found["together"]["epsilon"] < composed
    assert found["together"]["epsilon"] < 1 + 0.5 + 0.5
    assert found["together"]["delta"] == pytest.approx(2e-6, rel=1e-12)


def test_pure_deployments_are_added_and_a_budget_is_for_all_windows(tmp_path: Path) -> None:
    laplace = {**AGENTS, "noise": "laplace", "counter": "pm1"}
    found = together(tmp_path, laplace, {**ROUNDS, "user_budget": 2}).json
    assert 2.99 <= found["together"]["epsilon"] < 3.0
    text = together(tmp_path, laplace, ROUNDS, json=False).out.decode()
    assert "0.yaml: delays; one sample: (1, 1e-06)" in text
    assert "together, for a person with one of these in each: (1." in text


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ([AGENTS], "configs must be two files or more"),
        ([AGENTS, AGENTS], "name must differ in each configuration"),
        ([AGENTS, {**ROUNDS, "epsilon": -1}], "epsilon must be positive"),
        ([AGENTS, {**AGENTS, "name": "x", "epsilom": 1}], "config has no option 'epsilom'"),
        ([AGENTS, ["a"]], "config must map option names to values"),
    ],
)
def test_what_cannot_be_added_up_is_one_line(configs: list[Any], said: str, tmp_path: Path) -> None:
    assert said in together(tmp_path, *configs).message


def test_explain_says_which_deployment_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ["--lower", "0", "--upper", "1", "--epsilon", "1"]
    for command in (
        ["agents", *typed, "--delta", "1e-6"],
        ["rounds", *typed, "--window", "7d", "--users", "500"],
    ):
        assert "name            the store makes one" in meanstream("explain", *command).out.decode()
        with monkeypatch.context() as patch:
            patch.setenv("MEANSTREAM_NAME", "fuel")
            assert "name            fuel\n" in meanstream("explain", *command).out.decode()
            assert meanstream("explain", *command, "--json").json["name"] == "fuel"
