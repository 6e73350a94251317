"""The parts of `meanstream simulate agents` for means that move, and for samples that depend on each other.

`--change` and `--dependence`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from time import perf_counter

from meanstream.lab.simulate.simulate_options import (
    SimulationOptions,
    integers_option,
    print_simulated_agents,
)
from meanstream.lab.simulation.drift.dependence_laws import (
    CHECKPOINTS,
    DependenceConfig,
    DependenceResult,
    simulate_dependence,
)
from meanstream.lab.simulation.drift.simulated_drift import (
    STEPS,
    DriftConfig,
    DriftPart,
    DriftResult,
    simulate_drift,
)
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.streaming.long_work import tracked_work

LEFT_OUT = (
    "half_width",
    "counter",
    "weights",
    "schedule",
    "test",
    "variance",
    "noise",
    "calibration",
    "levels",
    "spread_share",
    "checkpoints",
    "mode",
    "trace",
    "noise_variance",
    "dependence",
)
"""Options of other simulations: with `--change` agents are those that are hosted, measured at fixed
ages."""


USED = frozenset({
    "config", "agents", "stddev", "epsilon", "delta", "collaboration", "runs", "seed", "checkpoints", "dependence",
    "json",
})  # fmt: skip
"""Options of this simulation: agents are those that are hosted, and their means are normal about
0.5."""


def _refuse(options: SimulationOptions, names: Iterable[str], other: str) -> None:
    """Refuse options of other simulations."""
    for name in names:
        value = getattr(options, name)
        if value != getattr(SimulationOptions, name):
            shown = repr(value) if isinstance(value, int | float) else repr(str(value))
            raise BadOption(f"{name} must be left out with --{other}, got {shown}")


def _drift_configuration(options: SimulationOptions, change: str) -> DriftConfig:
    """Check everything, by the rules of the simulator."""
    _refuse(options, LEFT_OUT, "change")
    if options.data != "uniform":
        raise BadOption(
            f"data must be uniform with --change (means may go anywhere), got {options.data!r}"
        )

    return DriftConfig(
        change=change,
        agents=200 if options.agents is None else options.agents,
        steps=STEPS if options.steps is None else options.steps,
        means=options.means,
        spread=options.spread,
        class_sizes=integers_option("class_sizes", options.class_sizes),
        stddev=0.5 if options.stddev is None else options.stddev,
        epsilon=options.epsilon,
        delta=options.delta,
        memory=options.memory or "forever",
        collaboration=options.collaboration or "learned_prior",
        runs=options.runs,
        seed=options.seed,
    )


def simulate_drift_command(options: SimulationOptions, change: str) -> None:
    """Simulate means that move, and print errors by the age of the change."""
    with refusing_options():
        config = _drift_configuration(options, change)

    started = perf_counter()
    with refusing_options():  # where drawn means go is known then
        result = simulate_drift(config, lambda runs: tracked_work(runs, "simulating"))

    steps = config.change_of_means()[1] + max(result.ages)
    rate = config.agents * steps * config.runs / (perf_counter() - started)
    print_simulated_agents(options, result.as_dict(), rate, lambda: _drift_table(result))


def _drift_table(result: DriftResult) -> str:
    """Lay out one line per age for agents that changed, and one for those that did not."""
    names = ("mse", "stderr", "coverage")
    lines = [f"{'age':>8}{'agents':>12}" + "".join(f"{name:>11}" for name in names)]

    for title, measured in (("changed", result.changed), ("unchanged", result.unchanged)):
        if measured is not None:
            lines += [
                f"{age:>8}{title:>12}{_cells(measured, row)}" for row, age in enumerate(result.ages)
            ]

    config = result.config
    lines.append(
        f"change {config['change']}, memory {config['memory']}, collaboration {config['collaboration']}; "
        f"epsilon {config['epsilon']:g}, delta {config['delta']:g} per sample"
    )

    return "\n".join(lines) + "\n"


def _cells(part: DriftPart, place: int) -> str:
    error = f"{'-':>11}" if part.stderr is None else f"{part.stderr[place]:>11.3g}"
    return f"{part.mse[place]:>11.3g}{error}{part.coverage[place]:>11.3f}"


def _dependence_configuration(options: SimulationOptions, dependence: str) -> DependenceConfig:
    """Check everything, by the rules of the simulator."""
    others = [option.name for option in fields(options) if option.name not in USED]
    _refuse(options, others, "dependence")

    return DependenceConfig(
        dependence=dependence,
        agents=400 if options.agents is None else options.agents,
        checkpoints=integers_option("checkpoints", options.checkpoints) or CHECKPOINTS,
        stddev=0.1 if options.stddev is None else options.stddev,
        epsilon=options.epsilon,
        delta=options.delta,
        collaboration=options.collaboration or "learned_prior",
        runs=options.runs,
        seed=options.seed,
    )


def simulate_dependence_command(options: SimulationOptions, dependence: str) -> None:
    """Simulate samples that depend, and print coverage by number of samples."""
    with refusing_options():
        config = _dependence_configuration(options, dependence)

    started = perf_counter()
    result = simulate_dependence(config, lambda runs: tracked_work(runs, "simulating"))
    rate = config.agents * config.checkpoints[-1] * config.runs / (perf_counter() - started)
    print_simulated_agents(options, result.as_dict(), rate, lambda: _dependence_table(result))


def _dependence_table(result: DependenceResult) -> str:
    """Lay out one line per number of samples."""
    columns = {
        "coverage": result.coverage,
        "stderr": result.coverage_stderr,
        "error/alone": result.ratio,
        "length/independent": result.independent_width,
        "length/known": result.ideal_width,
    }
    lines = [f"{'samples':>8}" + "".join(f"{name:>{len(name) + 3}}" for name in columns)]

    for row, count in enumerate(result.checkpoints):
        cells = (f"{values[row]:>{len(name) + 3}.3f}" for name, values in columns.items())
        lines.append(f"{count:>8}" + "".join(cells))

    config = result.config
    lines.append(
        f"dependence {config['dependence']}, {config['agents']} agents, {config['collaboration']}; "
        f"epsilon {config['epsilon']:g}, delta {config['delta']:g} per sample"
    )

    return "\n".join(lines) + "\n"
