"""`meanstream simulate agents --dependence`: JSON, table and refusals."""

from __future__ import annotations

import pytest

from meanstream.lab.simulation.drift.dependence_laws import DependenceConfig, simulate_dependence
from tests.pipelines.command_line import asks

SMALL = "--agents 20 --checkpoints 20,60 --runs 2 --dependence ar:0.5"


def simulate(arguments: str):
    return asks("simulate", "agents", *arguments.split())


def test_json_is_what_the_simulator_finds() -> None:
    result = simulate(f"{SMALL} --json").json
    found = simulate_dependence(
        DependenceConfig(dependence="ar:0.5", agents=20, checkpoints=(20, 60), runs=2)
    )
    assert result.pop("agent_steps_per_second") > 0
    expected = found.as_dict()
    assert list(result) == list(expected)
    assert result["checkpoints"] == [20, 60]
    for name in ("coverage", "ratio", "independent_width", "ideal_width", "coverage_stderr"):
        assert result[name] == expected[name]


def test_the_table_has_a_line_for_each_number_of_samples() -> None:
    lines = simulate(SMALL).out.decode().splitlines()
    assert lines[0].split() == [
        "samples",
        "coverage",
        "stderr",
        "error/alone",
        "length/independent",
        "length/known",
    ]
    assert [line.split()[0] for line in lines[1:3]] == ["20", "60"]
    assert lines[3].startswith("dependence ar:0.5, 20 agents, learned_prior; epsilon 1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--dependence ar:2", "dependence must have a number between -1 and 1 with ar"),
        (
            "--dependence ar:0.5 --memory auto",
            "memory must be left out with --dependence, got 'auto'",
        ),
        ("--dependence ar:0.5 --steps 10", "steps must be left out with --dependence, got 10"),
        ("--dependence ar:0.5 --stddev 2", "stddev must be more than 0 and at most 0.15"),
        ("--dependence ar:0.5 --agents 1", "agents must be at least 2"),
    ],
)
def test_what_is_refused(arguments: str, message: str) -> None:
    assert message in simulate(arguments).message
