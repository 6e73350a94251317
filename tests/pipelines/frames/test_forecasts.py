"""What will be is told as what is: a table that shows itself, in text, in a notebook, as a
picture."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import meanstream
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.lab.simulation.simulate_agents import simulate
from meanstream.operators.forecast.simulated_noise import SimulationNoise
from tests.pipelines.command_line import meanstream as command

PLANNED: dict[str, Any] = {
    "agents": 300,
    "sizes": "uniform:20,400",
    "lower": 0,
    "upper": 100,
    "spread": 8,
}
SIMULATED: dict[str, Any] = {
    "agents": 40,
    "steps": 400,
    "runs": 2,
    "means": "classes:0.2,0.8",
    "checkpoints": (100, 400),
}


def test_a_forecast_is_the_commands() -> None:
    found = meanstream.forecast_agents(**PLANNED, epsilon=1.0, stddev=20)
    line = "plan agents --agents 300 --sizes uniform:20,400 --lower 0 --upper 100 --spread 8 --stddev 20 --epsilon 1"
    assert found.notes[0] in command(*line.split(), environment={"COLUMNS": "200"}).out.decode()
    assert found.to_frame()["samples"].to_pylist() == [58, 210, 362]
    assert found.plot().get_xscale() == "log"
    with pytest.raises(ValueError, match="agents must be given unless sizes are counted"):
        meanstream.forecast_agents(**(PLANNED | {"agents": None}), epsilon=1.0)
    with pytest.raises(ValueError, match="spread"):
        meanstream.forecast_agents(**(PLANNED | {"spread": -1}), epsilon=1.0)


def test_quantiles_are_forecast_as_the_command_does() -> None:
    found = meanstream.forecast_agents(
        **PLANNED, epsilon=1.0, stddev=20, quantiles=[0.5, "0.9"], exceeds=[60], mean=40
    )
    line = "plan agents --agents 300 --sizes uniform:20,400 --lower 0 --upper 100 --spread 8 --stddev 20 --epsilon 1"
    printed = command(
        *line.split(), *["--quantiles", ".5,.9", "--exceeds", "60", "--mean", "40", "--json"]
    ).json
    assert found.shares is not None
    assert found.shares.to_pylist() == printed["shares"]
    assert [line.split(" of ")[0] for line in found.notes[1:]] == [
        "The quantile 0.5", "The quantile 0.9", "The share above 60"
    ]  # fmt: skip
    assert meanstream.forecast_agents(**PLANNED, epsilon=1.0).shares is None
    with pytest.raises(
        ValueError, match="mean must be left out without quantiles or exceeds, got 40"
    ):
        meanstream.forecast_agents(**PLANNED, epsilon=1.0, mean=40)


def test_a_simulation_is_the_commands() -> None:
    found = meanstream.simulate_agents(**SIMULATED)
    expected = simulate(SimulationConfig.from_options(**SIMULATED))
    frame = pl.DataFrame(found)  # by Arrow
    assert frame["step"].to_list() == [100, 400]
    assert frame["mse"].to_list() == expected.mse
    assert ">mse</th>" in found._repr_html_()
    assert "for each" not in repr(found)
    assert "2 runs" in repr(found)
    assert [line.get_label() for line in found.plot().lines] == ["local", "mse", "ideal"]


def test_a_running_mean_shows_itself_in_a_notebook_without_raw_values() -> None:
    mean = meanstream.PrivateMean(0.0, 10.0, epsilon=1.0, delta=1e-6, noise=SimulationNoise(seed=1))
    assert "nan" in mean._repr_html_()  # nothing is released yet
    for _ in range(1000):
        mean.update(7.125)
    shown = mean._repr_html_()
    assert f"{mean.get():.6g}" in shown
    assert "7.125" not in shown
    assert "(1, 1e-06)" in shown
