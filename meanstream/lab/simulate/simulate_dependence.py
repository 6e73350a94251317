"""The part of `meanstream simulate agents` for samples that depend on each other.

`--dependence`.
"""

from __future__ import annotations

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
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.streaming.long_work import tracked_work

USED = frozenset({
    "config", "agents", "stddev", "epsilon", "delta", "collaboration", "runs", "seed", "checkpoints", "dependence",
    "json",
})  # fmt: skip
"""Options of this simulation: agents are those that are hosted, and their means are normal about
0.5."""


def _configuration(options: SimulationOptions, dependence: str) -> DependenceConfig:
    """Check everything, by the rules of the simulator."""
    for option in fields(options):
        given = getattr(options, option.name)
        if option.name not in USED and given != option.default:
            shown = repr(given) if isinstance(given, int | float) else repr(str(given))
            raise BadOption(f"{option.name} must be left out with --dependence, got {shown}")

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
        config = _configuration(options, dependence)

    started = perf_counter()
    result = simulate_dependence(config, lambda runs: tracked_work(runs, "simulating"))
    rate = config.agents * config.checkpoints[-1] * config.runs / (perf_counter() - started)
    print_simulated_agents(options, result.as_dict(), rate, lambda: _as_table(result))


def _as_table(result: DependenceResult) -> str:
    """Lay out one line per number of samples."""
    columns = {
        "coverage": result.coverage,
        "stderr": result.coverage_stderr,
        "error/alone": result.ratio,
        "length/independent": result.independent_width,
        "length/known": result.ideal_width,
    }
    lines = [f"{'samples':>8}" + "".join(f"{name:>{len(name) + 3}}" for name in columns)]

    for place, count in enumerate(result.checkpoints):
        cells = (f"{values[place]:>{len(name) + 3}.3f}" for name, values in columns.items())
        lines.append(f"{count:>8}" + "".join(cells))

    config = result.config
    lines.append(
        f"dependence {config['dependence']}, {config['agents']} agents, {config['collaboration']}; "
        f"epsilon {config['epsilon']:g}, delta {config['delta']:g} per sample"
    )

    return "\n".join(lines) + "\n"
