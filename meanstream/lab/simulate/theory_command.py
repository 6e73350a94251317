"""`meanstream theory agents` and `theory rounds`: expected errors and bounds without a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from meanstream.lab.simulate import simulate_options as given
from meanstream.lab.simulate.simulate_options import integers_option
from meanstream.lab.simulate.theory_rounds import BOUNDS_TYPED, BoundsOptions, print_bounds
from meanstream.pipelines.options.base import (
    ConfigOption,
    JsonOption,
    given_option,
    print_options_json,
)
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.pipelines.options.typer_commands import takes_options

if TYPE_CHECKING:
    from meanstream.lab.simulation.config import SimulationConfig

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def theory() -> None:
    """Compute expected errors and bounds without a simulation."""


app.command("rounds")(takes_options(BoundsOptions, typed=BOUNDS_TYPED)(print_bounds))


@dataclass(frozen=True, kw_only=True)
class TheoryOptions:
    """What a user says about the agents whose errors are computed."""

    config: ConfigOption = None
    agents: given.Agents = None
    steps: given.Steps = None
    means: given.Means = "classes:0.2,0.4,0.8"
    stddev: given.Stddev = None
    half_width: given.HalfWidth = None
    epsilon: given.Epsilon = 1.0
    delta: given.Delta = 1e-6
    counter: given.Counter = None
    weights: given.Weights = None
    schedule: given.Schedule = None
    noise: given.Noise = None
    calibration: given.Calibration = None
    levels: given.Levels = None
    checkpoints: given.Checkpoints = None
    mode: given.Mode = None
    json: JsonOption = False

    def configuration(self) -> SimulationConfig:
        """Check everything by the rules of the simulator."""
        from meanstream.lab.simulation.config import SimulationConfig

        if not self.means.startswith("classes:"):
            raise BadOption(
                f"means must be classes:LIST for theory (agents placed uniformly), got {self.means!r}"
            )

        choices = ("counter", "weights", "schedule", "noise", "calibration")
        return SimulationConfig.from_options(
            mode=self.mode or "tuned",
            agents=200 if self.agents is None else self.agents,
            steps=30_000 if self.steps is None else self.steps,
            means=self.means,
            stddev=self.stddev,
            half_width=self.half_width,
            epsilon=self.epsilon,
            delta=self.delta,
            levels=self.levels,
            checkpoints=integers_option("checkpoints", self.checkpoints),
            collaboration="tests",
            **{name: getattr(self, name) for name in choices},
        )


@app.command("agents")
@takes_options(
    TheoryOptions,
    typed=(
        *("config", "agents", "steps", "means", "levels", "epsilon", "delta"),
        *("counter", "weights", "schedule", "checkpoints", "mode", "json"),
    ),
)
def theory_of_agents(options: TheoryOptions) -> None:
    """Print Theorem 1, Propositions 1 to 3 (alone, all data public, known classes) and the variance of T, as JSON.

    Assumes equally likely classes for every agent, and a known variance of a sample. `statistic_variance` is the
    variance of T of the first queried agent, after `releases` releases. Under round robin `tested` is the error with
    the paper's tests, and `better_together_from` the time from which it stays below `local` (Theorem 1).

    \b
    Example:
      meanstream theory agents --mode paper --counter pm2 --weights windowed --checkpoints 1000,30000
    """  # noqa: D301 - click reads the escape
    with refusing_options():
        config = options.configuration()
        table = theory_facts(config, tested=True)

    print_options_json(table | {"config": config.as_dict()})


def theory_facts(config: SimulationConfig, *, tested: bool = False) -> dict[str, Any]:
    """Propositions 1 to 3 for a configuration with classes, and Theorem 1 if the tests are to be looked at."""
    from meanstream.lab.papers.bounds.agents_forecast import forecast_agents_table

    classes = [float(mean) for mean in str(config.means).removeprefix("classes:").split(",")]
    return forecast_agents_table(
        agents=config.agents,
        checkpoints=config.checkpoints,
        classes=len(classes),
        means=classes if tested else None,
        stddev=given_option("stddev", config.stddev),
        half_width=config.half_width,
        epsilon=config.epsilon,
        delta=config.delta,
        counter=config.counter,
        weights=config.weights,
        schedule=f"broadcast:{config.release_times}" if config.is_broadcast else config.schedule,
        noise=config.noise,
        calibration=config.calibration,
        composition="basic" if config.mode == "paper" else "concentrated",
        levels=config.levels,
        horizon=None if config.is_broadcast else config.most_releases,
    )
