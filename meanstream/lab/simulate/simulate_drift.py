"""The part of `meanstream simulate agents` for means that move: `--change`."""

from __future__ import annotations

from time import perf_counter

from meanstream.lab.simulate.simulate_options import (
    SimulationOptions,
    integers_option,
    print_simulated_agents,
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


def _configuration(options: SimulationOptions, change: str) -> DriftConfig:
    """Check everything, by the rules of the simulator."""
    for name in LEFT_OUT:
        given = getattr(options, name)
        if given is not None:
            shown = repr(given) if isinstance(given, int | float) else repr(str(given))
            raise BadOption(f"{name} must be left out with --change, got {shown}")

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
        config = _configuration(options, change)

    started = perf_counter()
    with refusing_options():  # where drawn means go is known then
        result = simulate_drift(config, lambda runs: tracked_work(runs, "simulating"))

    steps = config.change_of_means()[1] + max(result.ages)
    rate = config.agents * steps * config.runs / (perf_counter() - started)
    print_simulated_agents(options, result.as_dict(), rate, lambda: _as_table(result))


def _as_table(result: DriftResult) -> str:
    """Lay out one line per age for agents that changed, and one for those that did not."""
    names = ("mse", "stderr", "coverage")
    lines = [f"{'age':>8}{'agents':>12}" + "".join(f"{name:>11}" for name in names)]

    for title, part in (("changed", result.changed), ("unchanged", result.unchanged)):
        if part is not None:
            lines += [
                f"{age:>8}{title:>12}{_cells(part, place)}" for place, age in enumerate(result.ages)
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
