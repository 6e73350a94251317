"""The options of `simulate agents` and `theory agents`, declared once.

An option that was not given is None.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from meanstream.pipelines.options.base import ConfigOption, JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption

if TYPE_CHECKING:
    from meanstream.lab.simulation.config import SimulationConfig


def _option(help_text: str, **declared: Any) -> Any:
    return cli_option(help_text, INPUT, **declared)


@dataclass(frozen=True, kw_only=True)
class TheoryOptions:
    """What a user says about agents whose errors are computed, before anything is checked."""

    config: ConfigOption = None
    agents: Annotated[int | None, _option("Number of agents (default 200).", first=True)] = None
    steps: Annotated[
        int | None, _option("Samples of each agent, one per step (default 30000).", first=True)
    ] = None
    means: Annotated[
        str,
        _option(
            "Agents' means: classes:LIST | normal:MEAN,SD | uniform:A,B | t:DF,MEAN,SCALE.",
            first=True,
        ),
    ] = "classes:0.2,0.4,0.8"
    stddev: Annotated[
        float | None, _option("Standard deviation of uniform and normal data (default 0.5).")
    ] = None
    half_width: Annotated[
        float | None,
        _option(
            "Half-width of the declared bounds, which scales the noise (default: that of the data)."
        ),
    ] = None
    epsilon: Annotated[
        float, _option("Privacy budget of one sample over all releases.", first=True)
    ] = 1.0
    delta: Annotated[
        float, _option("Probability that the promise of epsilon fails.", first=True)
    ] = 1e-6
    counter: Annotated[
        str | None, _option("Counting mechanism: pm1 | pm2 | toeplitz | optimal.")
    ] = None
    weights: Annotated[
        str | None, _option("Weights of releases: last | mean_of_means | windowed | gls.")
    ] = None
    schedule: Annotated[
        str | None,
        _option(
            "Times of releases: round_robin | restricted_round_robin | broadcast[:preferred:FIRST | "
            ":geometric:FIRST,FACTOR]."
        ),
    ] = None
    noise: Annotated[str | None, _option("Distribution of the noise: gaussian | laplace.")] = None
    calibration: Annotated[
        str | None, _option("Calibration of Gaussian noise: classical (epsilon <= 1) | analytic.")
    ] = None
    levels: Annotated[
        int | None,
        _option("Levels of the tree of pm2 (default in mode paper: floor(log2 steps) + 1)."),
    ] = None
    checkpoints: Annotated[
        str | None, _option("Steps to measure, such as 1000,5000,30000 (default: the last).")
    ] = None
    mode: Annotated[
        str | None, _option("Defaults of the other choices: tuned (default) | paper.", first=True)
    ] = None
    json: JsonOption = False

    def configuration(self) -> SimulationConfig:
        """Check everything by the rules of the simulator."""
        from meanstream.lab.simulation.config import SimulationConfig

        if not self.means.startswith("classes:"):
            raise BadOption(
                f"means must be classes:LIST for theory (agents placed uniformly), got {self.means!r}"
            )

        return SimulationConfig.from_options(**self._shared(), collaboration="tests")

    def _shared(self) -> dict[str, Any]:
        """Give the options of a configuration that theory and simulation share."""
        names = (
            *("means", "stddev", "half_width", "epsilon", "delta", "levels"),
            *("counter", "weights", "schedule", "noise", "calibration"),
        )
        return {name: getattr(self, name) for name in names} | {
            "mode": self.mode or "tuned",
            "agents": 200 if self.agents is None else self.agents,
            "steps": 30_000 if self.steps is None else self.steps,
            "checkpoints": integers_option("checkpoints", self.checkpoints),
        }


@dataclass(frozen=True, kw_only=True)
class SimulationOptions(TheoryOptions):
    """What a user says about a simulation, before anything is checked."""

    spread: Annotated[float, _option("Standard deviation of the means within a class.")] = 0.0
    class_sizes: Annotated[
        str | None,
        _option("Sizes of the classes, such as 70,70,60 (default: agents are placed at random)."),
    ] = None
    data: Annotated[
        str,
        _option(
            "Distribution of samples: uniform | beta:CONCENTRATION | bernoulli | rademacher | normal.",
            first=True,
        ),
    ] = "uniform"
    collaboration: Annotated[
        str | None,
        _option(
            "How agents learn from each other: tests | consensus | learned_prior | pooled_prior | james_stein | none.",
            first=True,
        ),
    ] = None
    test: Annotated[str | None, _option("Test for equal means: lazy | eager | oracle.")] = None
    variance: Annotated[
        str | None,
        _option(
            "Variance of a sample: known | released | from_releases | bayesian | jeffreys | "
            "uniform."
        ),
    ] = None
    spread_share: Annotated[
        float | None,
        _option(
            "Share of the budget for votes on the spread (with --variance from_releases; default 0.1)."
        ),
    ] = None
    runs: Annotated[int, _option("Independent repetitions.", first=True)] = 20
    seed: Annotated[int, _option("Seed; run r depends on it and on r only.", first=True)] = 1
    trace: Annotated[
        Path | None,
        _option(
            ".npz file for one run of Algorithm 1: arrays data and noise (steps x agents; noise of unit variance), and "
            "variance_noise with --variance released. The default of --mode is then paper."
        ),
    ] = None
    noise_variance: Annotated[
        float | None,
        _option("Variance of the noise of one p-sum, with --trace (default: as calibrated)."),
    ] = None
    change: Annotated[
        str | None,
        _option(
            "Change of means after SAMPLES samples of each agent (default: half of --steps, which is then 10000): "
            "step:SIZE,SHARE | walk:SD/EVERY | new-class:MEAN[,SHARE] | all:SIZE, each with [@SAMPLES]. Errors are by "
            "samples since then, for agents of an engine."
        ),
    ] = None
    memory: Annotated[
        str | None,
        _option(
            "Weight of old samples, with --change: forever (default) | auto | half-life:SAMPLES | window:SAMPLES."
        ),
    ] = None
    dependence: Annotated[
        str | None,
        _option(
            "Samples of an agent depend on each other: ar:RHO | half-ar:RHO | heavy-ar:RHO | markov:RHO | bursts:N | "
            "ma:N | cycle:N | shocks:SHARE | none; prints coverage by number of samples, of agents as they are hosted."
        ),
    ] = None

    def configuration(self) -> SimulationConfig:
        """Check everything by the rules of the simulator."""
        return self._configuration({})

    def configuration_of_trace(self, steps: int, agents: int) -> SimulationConfig:
        """Check everything, for a trace: given numbers of agents and steps must be its own."""
        from meanstream.operators.validation import require

        of_trace = {"agents": agents, "steps": steps}
        for name, number in of_trace.items():
            typed = getattr(self, name)
            require(typed in (None, number), name, f"be {number} as in the trace", typed)

        return self._configuration(of_trace | {"mode": self.mode or "paper"})

    def _configuration(self, own: dict[str, Any]) -> SimulationConfig:
        from meanstream.lab.simulation.config import SimulationConfig

        names = (
            *("spread", "data", "runs", "seed", "spread_share"),
            *("collaboration", "test", "variance"),
        )
        simulated = {name: getattr(self, name) for name in names}
        sizes = integers_option("class_sizes", self.class_sizes)
        return SimulationConfig.from_options(
            **(self._shared() | simulated | own), class_sizes=sizes
        )


def print_simulated_agents(
    options: SimulationOptions, measured: dict[str, Any], rate: float, table: Callable[[], str]
) -> None:
    """Print what was measured, and how many agent-steps a second took: as JSON, or as a table."""
    if options.json:
        said = measured.pop("config")
        print_options_json(measured | {"agent_steps_per_second": rate, "config": said})
    else:
        sys.stdout.write(table() + f"{rate:.3g} agent-steps per second\n")


def integers_option(name: str, text: str | None) -> tuple[int, ...] | None:
    """Read a list of integers written with commas.

    Examples
    --------
    >>> integers_option("checkpoints", "1000,5000")
    (1000, 5000)
    """
    if text is None:
        return None

    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise BadOption(f"{name} must be integers separated by commas, got {text!r}") from None
