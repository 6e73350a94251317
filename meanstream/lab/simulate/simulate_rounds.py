"""`meanstream simulate rounds`.

What an estimator of a population's mean achieves, over many simulated windows.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from meanstream.lab.simulate.simulated_sets import print_simulated
from meanstream.operators.estimators.registry import estimator_class
from meanstream.pipelines.options.option_errors import refusing_options

if TYPE_CHECKING:
    from meanstream.lab.simulate.simulated_rounds_options import SimulatedRoundsOptions
    from meanstream.lab.simulation.simulated_rounds import RoundsResult


def simulate_rounds_command(options: SimulatedRoundsOptions) -> None:
    """Simulate windows of a population's mean; print error, bias and coverage over the runs.

    Answers are on [-1, 1]. `mse` and `bias` are of the estimate before it is clipped to [-1, 1]. The noise is
    seeded, for simulation only. Vectors, densities and mixtures (kent.*) take data from other laws: rademacher
    (--theta), corner:p, sphere, sparse:s,p, trigonometric (--theta), mixture:w=mean;..., shifted_uniform,
    shifted_rademacher. Categories (category_shares) have weights, and answers on [0, 1]: shares:w,w,...
    Quantiles (quantile_tree, --theta .5,.9) take users' means from beta:a,b.

    \b
    Examples:
      meanstream simulate rounds --estimator dame --users 10000 --epsilon 0.62857 --sizes two:100000,1000000,0.5 \\
        --data rademacher:0 --runs 400 --mode paper --json
      meanstream simulate rounds --estimator kent --option threshold=median --sizes uniform:1,199 --users 20000
      meanstream simulate rounds --estimator plan --sizes poisson:5 --between-users-law normal:0.05
      meanstream simulate rounds --estimator kent.l2 --dimension 32 --data sphere --users 4000 --sizes point:400
      meanstream simulate rounds --estimator kent.mixture --components 2 --data "mixture:0.3=-0.5;0.7=0.5" \\
        --users 3000 --sizes point:1000 --epsilon 4
      meanstream simulate rounds --estimator category_shares --data shares:5,3,1,1 --users 5000 --epsilon 1
    """  # noqa: D301 - click reads the escape
    from meanstream.lab.simulate import simulate_vectors

    if simulate_vectors.simulates_vectors(options):
        simulate_vectors.simulate_vectors_of_family(options, options.estimator_options())
        return

    with refusing_options():
        config = options.configuration()
        estimator = config.build()

    from meanstream.lab.simulation.simulated_rounds import simulate_rounds
    from meanstream.streaming.long_work import tracked_work

    started = perf_counter()
    result = simulate_rounds(config, estimator, lambda runs: tracked_work(runs, "simulating"))
    rate = config.runs / (perf_counter() - started)
    print_simulated(result, _as_text(result), rate, as_json=options.json)


def _as_text(result: RoundsResult) -> str:
    """Lay out one measure per line, and what was simulated."""
    config = result.config
    lines = [
        f"mse            {_pair(result.mse, result.stderr)}   (answer cut to [-1, 1]: {result.mse_cut:.3g})",
        f"predicted mse  {'-' if result.predicted_mse is None else format(result.predicted_mse, '.3g')}",
        f"bias           {_pair(result.bias, result.bias_stderr)}   (theta {result.theta:g})",
        f"coverage       {result.coverage:.3f}",
    ]

    if result.effective_size is not None:
        lines.append(
            f"effective size {result.effective_size}"
            + (f", {result.bins} bins" if result.bins else "")
        )

    unit = estimator_class(config["estimator"]).privacy_unit
    lines.append(
        f"{config['estimator']}, mode {config['mode']}; epsilon {config['epsilon']:g} per {unit}; "
        f"{config['users']} users, sizes {config['sizes']}, data {config['data']}; {config['runs']} runs"
    )

    return "\n".join(lines) + "\n"


def _pair(value: float, stderr: float | None) -> str:
    if stderr is None:
        return f"{value:.3g}"
    return f"{value:.3g} +- {stderr:.2g}"
