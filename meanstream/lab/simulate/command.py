"""`meanstream simulate agents`: what a configuration of agents achieves, or a replay of Algorithm 1 on given arrays.

The group `simulate` also has `rounds`; see `meanstream.lab.simulate.simulate_rounds`.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import typer

from meanstream.lab.simulate.simulate_options import SimulationOptions, print_simulated_agents
from meanstream.lab.simulate.simulate_rounds import (
    SimulatedRoundsOptions,
    simulate_rounds_command,
)
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.pipelines.options.typer_commands import takes_options

if TYPE_CHECKING:
    from pathlib import Path

    from meanstream.lab.simulation.simulation_result import SimulationResult
    from meanstream.operators.records import Floats

ROUNDS = (
    *(
        "config",
        "estimator",
        "users",
        "epsilon",
        "sizes",
        "data",
        "between_users_law",
        "order",
        "least_size",
        "mode",
    ),
    *("between_users", "dimension", "components", "theta", "option", "runs", "seed", "json"),
)
"""Options of a simulation of rounds that are typed; of one estimator alone: --option NAME=VALUE."""
app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def simulate_command() -> None:
    """Simulate the errors of a configuration."""


@app.command("agents")
@takes_options(SimulationOptions)
def simulate_agents_command(options: SimulationOptions) -> None:
    """Simulate agents that receive samples, release noisy means and collaborate; print errors at checkpoints.

    The same runs also measure `local`, `ideal` (all raw data of an agent's class) and `oracle` (the same releases,
    true classes). An agent-step is receive, query, decide, estimate. The noise is seeded, for simulation only. With
    --change means move, and errors are by samples since then. With --dependence samples depend on each other, and
    coverage is printed.

    \b
    Examples:
      meanstream simulate agents --agents 200 --steps 30000 --means classes:0.2,0.4,0.8 --mode paper --runs 20
      meanstream simulate agents --means normal:0.5,0.1 --steps 2000 --checkpoints 500,2000 --json
      meanstream simulate agents --trace arrays.npz --counter pm2 --weights windowed --noise-variance 84.2 --json
      meanstream simulate agents --change step:0.2,0.5@5000 --memory half-life:2000 --runs 5
      meanstream simulate agents --dependence ar:0.9 --runs 5
    """  # noqa: D301 - click reads the escape
    if options.change is not None:
        from meanstream.lab.simulate.simulate_drift import simulate_drift_command

        simulate_drift_command(options, options.change)
        return

    if options.dependence is not None:
        from meanstream.lab.simulate.simulate_drift import simulate_dependence_command

        simulate_dependence_command(options, options.dependence)
        return

    if options.memory is not None:
        raise BadOption(f"memory must be left out without --change, got {options.memory!r}")

    if options.trace is not None:
        print_options_json(_replay(options, options.trace))
        return

    with refusing_options():
        config = options.configuration()
        if options.noise_variance is not None:
            raise BadOption(
                f"noise_variance must be left out without --trace, got {options.noise_variance!r}"
            )

    from meanstream.lab.simulation.simulate_agents import simulate as run
    from meanstream.streaming.long_work import tracked_work

    started = perf_counter()
    result = run(config, lambda chunks: tracked_work(chunks, "simulating"))
    rate = config.agents * config.steps * config.runs / (perf_counter() - started)
    print_simulated_agents(options, result.as_dict(), rate, lambda: _as_table(result))


app.command("rounds")(takes_options(SimulatedRoundsOptions, typed=ROUNDS)(simulate_rounds_command))


def _as_table(result: SimulationResult) -> str:
    """Lay out one line per checkpoint, and what was simulated."""
    names = ("mse", "stderr", "local", "ideal", "oracle", "coverage", "type1", "type2")
    lines = [f"{'step':>8}" + "".join(f"{name:>11}" for name in names)]
    for i, checkpoint in enumerate(result.checkpoints):
        values = [getattr(result, name) for name in names]
        cells = [f"{'-':>11}" if series is None else f"{series[i]:>11.3g}" for series in values]
        lines.append(f"{checkpoint:>8}" + "".join(cells))

    config = result.config
    said = ", ".join(
        str(config[name])
        for name in ("counter", "weights", "schedule", "collaboration", "calibration")
    )
    lines.append(
        f"mode {config['mode']} ({said}); epsilon {config['epsilon']:g}, delta {config['delta']:g} per sample"
    )

    return "\n".join(lines) + "\n"


def _replay(options: SimulationOptions, arrays_file: Path) -> dict[str, Any]:
    arrays = _load(arrays_file)
    with refusing_options():
        from meanstream.lab.simulation.simulated_pairwise import TraceInputs, trace

        steps, n_agents = arrays["data"].shape
        config = options.configuration_of_trace(steps, n_agents)
        inputs = TraceInputs(noise_variance=options.noise_variance, **arrays)
        inputs.check(config)
        replayed = trace(config, inputs)

    return {
        "estimates": replayed.estimates,
        "classes": replayed.classes,
        "config": config.as_dict(),
    }


def _load(path: Path) -> dict[str, Floats]:
    """Read the arrays of a trace; no pickled objects."""
    import numpy as np

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {
                name: archive[name]
                for name in ("data", "noise", "variance_noise")
                if name in archive
            }
    except Exception:  # whatever NumPy, zipfile, zlib and tokenize say of damage
        raise BadOption(
            f"trace must be a readable .npz file of numbers, got {str(path)!r}"
        ) from None

    for name in ("data", "noise"):
        if name not in arrays:
            raise BadOption(
                f"trace must hold the array {name!r}, got {sorted(arrays)} in {str(path)!r}"
            )

    for name, array in arrays.items():
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise BadOption(
                f"trace must hold {name!r} as numbers of shape (steps, agents), got shape {array.shape}"
            )

    return {name: array.astype(np.float64) for name, array in arrays.items()}
