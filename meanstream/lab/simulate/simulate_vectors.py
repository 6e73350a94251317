"""The part of `meanstream simulate rounds` for vectors, densities, mixtures and shares."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from meanstream.lab.simulate.simulated_sets import print_simulated
from meanstream.lab.simulation.simulated_rounds import SEVERAL
from meanstream.lab.simulation.vector_rounds import VectorConfig, VectorResult, simulate_vectors
from meanstream.operators.estimators.registry import ESTIMATORS, estimator_class
from meanstream.operators.validation import require
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.lab.simulate.simulated_rounds_options import SimulatedRoundsOptions

SHIFTED = ("shifted_uniform", "shifted_rademacher")
"""Laws of samples whose mean is another one in each run; also for estimators of one mean."""

USUAL_DATA = {"terms": "trigonometric", "categories": "shares:4,3,2,1", "quantiles": "beta:2,5"}
"""Law of the samples by an option of the estimator, if not that of one mean."""

OWN_OPTIONS = ("sparsity", "components", "smoothness", "radius")
"""Options of estimators that answer several numbers; handed on if given."""

ONE_MEAN = ("between_users_law", "reading", "summary", "second_moment", "literal", "effective_size")
"""Options of simulations of one mean, by their default values refused here."""


def simulates_vectors(options: SimulatedRoundsOptions) -> bool:
    """Tell whether a simulation is one of vectors, by its estimator or its data."""
    if options.estimator not in ESTIMATORS:
        return False  # refused where estimators are built
    return bool(SEVERAL & estimator_class(options.estimator).options) or options.data in SHIFTED


def _configuration(options: SimulatedRoundsOptions, given: dict[str, Any]) -> VectorConfig:
    """Check everything but the estimator's own options."""
    for name in ONE_MEAN:
        require(
            getattr(options, name) is None,
            name,
            f"be left out for {options.estimator}",
            getattr(options, name),
        )

    require(
        options.least_size == 1,
        "least_size",
        f"be left out for {options.estimator}",
        options.least_size,
    )

    require(
        options.order == "shuffled", "order", f"be left out for {options.estimator}", options.order
    )
    known = estimator_class(options.estimator).options
    own = {name: getattr(options, name) for name in OWN_OPTIONS}
    named = {name: value for name, value in own.items() if value is not None} | given

    if "dimension" in known:
        named |= {"dimension": options.dimension or 1}

    data = options.data
    if data == "rademacher:0":
        data = next((law for option, law in USUAL_DATA.items() if option in known), data)

    if "categories" in known:
        require(
            data.startswith("shares:"), "data", f"be shares:w,w,... for {options.estimator}", data
        )
        named |= {"categories": data.count(",") + 1}

    if "quantiles" in known:
        require(data.startswith("beta:"), "data", f"be beta:a,b for {options.estimator}", data)
        named |= {"quantiles": _typed_numbers("theta", options.theta) or (0.5,)}

    return VectorConfig(
        estimator=options.estimator,
        users=options.users,
        epsilon=options.epsilon,
        sizes=options.sizes_of_users(),
        data=data,
        dimension=options.dimension or 1,
        theta=_typed_numbers("theta", options.theta),
        mode=options.mode,
        options=named,
        runs=options.runs,
        seed=options.seed,
    )


def _typed_numbers(name: str, text: str | None) -> tuple[float, ...]:
    """Read numbers separated by commas.

    Examples
    --------
    >>> _typed_numbers("theta", "0.5,0,-0.2"), _typed_numbers("theta", None)
    ((0.5, 0.0, -0.2), ())
    """
    try:
        return tuple(float(part) for part in (text or "").split(",") if part.strip())
    except ValueError:
        raise BadOption(f"{name} must be numbers separated by commas, got {text!r}") from None


def simulate_vectors_of_family(options: SimulatedRoundsOptions, given: dict[str, Any]) -> None:
    """Simulate, and print what was found."""
    with refusing_options():
        config = _configuration(options, given)
        estimator = config.build()

    started = perf_counter()
    with refusing_options():  # some laws are drawn for many samples per user only
        result = simulate_vectors(config, estimator)

    rate = config.runs / (perf_counter() - started)
    print_simulated(result, _as_text(result), rate, as_json=options.json)


def _as_text(result: VectorResult) -> str:
    """Lay out one measure per line, and what was simulated."""
    config = result.config
    error = (
        f"{result.mse:.3g}" if result.stderr is None else f"{result.mse:.3g} +- {result.stderr:.2g}"
    )
    lines = [
        f"mse            {error}   (summed over coordinates; answer cut to the bounds: {result.mse_cut:.3g})",
        f"predicted mse  {'-' if result.predicted_mse is None else format(result.predicted_mse, '.3g')}",
        f"theta          {_row(result.theta)}",
        f"mean           {_row(result.mean)}",
        f"deviation      {_row(result.deviation)}",
        f"coverage       {result.coverage:.3f}",
        f"{config['estimator']}, mode {config['mode']}; epsilon {config['epsilon']:g} per user; "
        f"{config['users']} users, sizes {config['sizes']}, data {config['data']}; {config['runs']} runs",
    ]

    return "\n".join(lines) + "\n"


def _row(values: list[float], most: int = 8) -> str:
    shown = "  ".join(f"{value:.3g}" for value in values[:most])
    return shown + (f"  ... ({len(values)} in all)" if len(values) > most else "")
