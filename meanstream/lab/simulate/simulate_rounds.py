"""`meanstream simulate rounds`: what an estimator achieves, of one mean or of several numbers, over many windows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from meanstream.operators.estimators.registry import (
    DEFAULT_ESTIMATOR,
    ESTIMATORS,
    estimator_class,
)
from meanstream.operators.validation import require
from meanstream.pipelines.options.base import ConfigOption, JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.lab.simulation.simulated_rounds import (
        RoundsConfig,
        RoundsResult,
        VectorConfig,
        VectorResult,
    )

SHIFTED = ("shifted_uniform", "shifted_rademacher")
"""Laws of samples whose mean is another one in each run; also for estimators of one mean."""
USUAL_DATA = {"terms": "trigonometric", "categories": "shares:4,3,2,1", "quantiles": "beta:2,5"}
"""Law of the samples by an option of the estimator, if not that of one mean."""
OWN_OPTIONS = (
    *("between_users", "literal", "effective_size", "threshold", "constant"),
    *("reading", "summary", "second_moment", "votes"),
)
"""Options that only some estimators take; they are handed on if given."""
OF_SEVERAL = ("sparsity", "components", "smoothness", "radius")
"""The same, of estimators that answer several numbers."""
NOT_OF_ONE = ("dimension", *OF_SEVERAL, "theta")
NOT_OF_SEVERAL = (
    *("between_users_law", "reading", "summary", "second_moment", "literal", "effective_size"),
    *("least_size", "order"),
)
"""Options that are refused, for estimators of one mean and for those of several numbers."""


def _option(help_text: str, **declared: Any) -> Any:
    return cli_option(help_text, INPUT, **declared)


@dataclass(frozen=True, kw_only=True)
class SimulatedRoundsOptions:
    """What a user says about a simulation of rounds, before anything is checked."""

    config: ConfigOption = None
    estimator: Annotated[str, _option(f"Estimator: {' | '.join(ESTIMATORS)}.", first=True)] = (
        DEFAULT_ESTIMATOR
    )
    users: Annotated[int, _option("Number of users.", first=True)] = 10_000
    epsilon: Annotated[
        float, _option("Privacy budget of one user's samples (item: of one sample).", first=True)
    ] = 1.0
    sizes: Annotated[
        str,
        _option(
            "Samples per user: point:k | two:a,b,p (p: probability of b) | uniform:a,b | poisson:l | binomial:n,p | "
            "lognormal:mean,s[,max] | zipf:s,max.",
            first=True,
        ),
    ] = "poisson:5"
    data: Annotated[
        str,
        _option(
            "Samples: rademacher:mean | three:q | beta:a,b | bernoulli:p on [-1, 1], or "
            "normal:MEAN,SD.",
            first=True,
        ),
    ] = "rademacher:0"
    between_users_law: Annotated[
        str | None, _option("Users' own means: normal:SD | skewed:SD (default: all alike).")
    ] = None
    order: Annotated[str, _option("Order of users by size: shuffled | sorted.")] = "shuffled"
    least_size: Annotated[
        int,
        _option(
            "Least number of samples of a participating user; participation then makes it public."
        ),
    ] = 1
    mode: Annotated[str, _option("Form of the estimator: tuned | paper.", first=True)] = "tuned"
    between_users: Annotated[
        float | None,
        _option("Declared standard deviation of users' means (plan, adaptive).", first=True),
    ] = None
    literal: Annotated[bool | None, _option("dame, mode paper: noise as printed.")] = None
    effective_size: Annotated[
        int | None, _option("dame: m~ (default: the search of Theorem 2).")
    ] = None
    threshold: Annotated[
        str | None, _option("kent, split: min | median | a number of samples.")
    ] = None
    constant: Annotated[
        float | None, _option("kent: C of the bins (default: sqrt(2) in mode paper, else 0.5).")
    ] = None
    reading: Annotated[str | None, _option("duchi: one_bit | laplace.")] = None
    summary: Annotated[str | None, _option("duchi: sample | mean.")] = None
    second_moment: Annotated[
        float | None, _option("one_shot: expected mean square of users' means.")
    ] = None
    votes: Annotated[
        str | None, _option("kent: one_hot | three_hot; for categories: oue | sue | subset | krr.")
    ] = None
    samples_per_user: Annotated[
        int | None, _option("Number of samples of every user, instead of --sizes.")
    ] = None
    dimension: Annotated[
        int | None, _option("kent.linf, .l2, .sparse_*, .cover: number of coordinates.")
    ] = None
    sparsity: Annotated[
        int | None, _option("kent.sparse_*: number of coordinates that may differ from 0.")
    ] = None
    components: Annotated[int | None, _option("kent.mixture: number of components.")] = None
    smoothness: Annotated[
        int | None, _option("kent.density: number of derivatives of the density.")
    ] = None
    radius: Annotated[
        float | None,
        _option(
            "Radius of the ball that holds the samples (kent.l2), or of kent.density and kent.cover."
        ),
    ] = None
    theta: Annotated[
        str | None,
        _option(
            "Means of rademacher coordinates, coefficients of a density, or quantiles; separated by commas."
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        _option("Own option of the estimator, NAME=VALUE; may be repeated.", first=True),
    ] = None
    runs: Annotated[int, _option("Independent repetitions.", first=True)] = 100
    seed: Annotated[int, _option("Seed; run r depends on it and on r only.", first=True)] = 1
    json: JsonOption = False

    def simulates_vectors(self) -> bool:
        """Tell whether this is a simulation of vectors, by its estimator or its data."""
        from meanstream.lab.simulation.simulated_rounds import SEVERAL

        if self.estimator not in ESTIMATORS:
            return False  # refused where estimators are built
        several = SEVERAL & estimator_class(self.estimator).options
        return bool(several) or self.data in SHIFTED

    def configuration(self) -> RoundsConfig:
        """Check everything but the own options of an estimator of one mean."""
        from meanstream.lab.simulation.simulated_rounds import RoundsConfig

        self._require_left_out(NOT_OF_ONE)
        return RoundsConfig(
            **self._common(),
            data=self.data,
            between_users_law=self.between_users_law,
            order=self.order,
            least_size=self.least_size,
            options=self._estimator_options(OWN_OPTIONS),
        )

    def vectors_configuration(self) -> VectorConfig:
        """Check everything but the own options of an estimator of several numbers."""
        from meanstream.lab.simulation.simulated_rounds import VectorConfig

        self._require_left_out(NOT_OF_SEVERAL)
        known = estimator_class(self.estimator).options
        theta = _typed_numbers("theta", self.theta)
        options = self._estimator_options((*OF_SEVERAL, *OWN_OPTIONS))
        if "dimension" in known:
            options |= {"dimension": self.dimension or 1}

        data = self.data
        if data == "rademacher:0":
            data = next((law for option, law in USUAL_DATA.items() if option in known), data)

        if "categories" in known:
            rule = f"be shares:w,w,... for {self.estimator}"
            require(data.startswith("shares:"), "data", rule, data)
            options |= {"categories": data.count(",") + 1}

        if "quantiles" in known:
            rule = f"be beta:a,b for {self.estimator}"
            require(data.startswith("beta:"), "data", rule, data)
            options |= {"quantiles": theta or (0.5,)}

        return VectorConfig(
            **self._common(),
            data=data,
            dimension=self.dimension or 1,
            theta=theta,
            options=options,
        )

    def _require_left_out(self, names: Iterable[str]) -> None:
        for name in names:
            value = getattr(self, name)
            rule = f"be left out for {self.estimator}"
            require(value == getattr(type(self), name), name, rule, value)

    def _common(self) -> dict[str, Any]:
        """Give what simulations of one mean and of several numbers share."""
        each = self.samples_per_user
        require(each is None or each >= 1, "samples_per_user", "be at least 1", each)
        names = ("estimator", "users", "epsilon", "mode", "runs", "seed")
        sizes = self.sizes if each is None else f"point:{each}"
        return {name: getattr(self, name) for name in names} | {"sizes": sizes}

    def _estimator_options(self, names: Iterable[str]) -> dict[str, Any]:
        """Give the estimator's own options that were given."""
        own = {name: getattr(self, name) for name in names}
        typed = {name: value for name, value in own.items() if value is not None}
        return typed | dict(_named_value(text) for text in self.option or ())


def _named_value(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE, a number or a truth value where it looks like one.

    Examples
    --------
    >>> _named_value("level=0.9"), _named_value("effective-size=10"), _named_value("reading=laplace")
    (('level', 0.9), ('effective_size', 10), ('reading', 'laplace'))
    """
    import yaml

    from meanstream.streaming.strict_yaml import read_strict_yaml

    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadOption(f"option must be written NAME=VALUE, got {text!r}")

    try:
        return name.replace("-", "_"), read_strict_yaml(value)
    except yaml.YAMLError:
        raise BadOption(f"option must be written NAME=VALUE, got {text!r}") from None


def _typed_numbers(name: str, text: str | None) -> tuple[float, ...]:
    """Read numbers separated by commas.

    Examples
    --------
    >>> _typed_numbers("theta", "0.5,0,-0.2"), _typed_numbers("theta", None)
    ((0.5, 0.0, -0.2), ())
    """
    try:
        return tuple(float(number) for number in (text or "").split(",") if number.strip())
    except ValueError:
        raise BadOption(f"{name} must be numbers separated by commas, got {text!r}") from None


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
    from meanstream.lab.simulation.simulated_rounds import simulate_rounds, simulate_vectors
    from meanstream.streaming.long_work import tracked_work

    if options.simulates_vectors():
        with refusing_options():
            vectors = options.vectors_configuration()
            estimator = vectors.build()

        started = perf_counter()
        with refusing_options():  # some laws are drawn for many samples per user only
            of_vectors = simulate_vectors(vectors, estimator)

        _print(options, of_vectors, _vectors_lines(of_vectors), perf_counter() - started)
        return

    with refusing_options():
        config = options.configuration()
        estimator = config.build()

    started = perf_counter()
    result = simulate_rounds(config, estimator, lambda runs: tracked_work(runs, "simulating"))
    _print(options, result, _lines(result), perf_counter() - started)


def _print(
    options: SimulatedRoundsOptions,
    result: RoundsResult | VectorResult,
    lines: Iterable[str],
    seconds: float,
) -> None:
    """Print as JSON, or as text for people, with the speed."""
    rate = options.runs / seconds
    if options.json:
        measured = result.as_dict()
        config = measured.pop("config")
        print_options_json(measured | {"runs_per_second": rate, "config": config})
    else:
        sys.stdout.write("\n".join([*lines, f"{rate:.3g} runs per second\n"]))


def _lines(result: RoundsResult) -> Iterator[str]:
    """Lay out one measure per line, and what was simulated."""
    yield f"{_errors(result)}   (answer cut to [-1, 1]: {result.mse_cut:.3g})"
    yield _predicted(result)
    yield f"bias           {_pair(result.bias, result.bias_stderr)}   (theta {result.theta:g})"
    yield f"coverage       {result.coverage:.3f}"
    if result.effective_size is not None:
        bins = f", {result.bins} bins" if result.bins else ""
        yield f"effective size {result.effective_size}{bins}"

    yield _simulated(result, estimator_class(result.config["estimator"]).privacy_unit)


def _vectors_lines(result: VectorResult) -> Iterator[str]:
    """Lay out one measure per line, and what was simulated."""
    cut = f"answer cut to the bounds: {result.mse_cut:.3g}"
    yield f"{_errors(result)}   (summed over coordinates; {cut})"
    yield _predicted(result)
    yield f"theta          {_row(result.theta)}"
    yield f"mean           {_row(result.mean)}"
    yield f"deviation      {_row(result.deviation)}"
    yield f"coverage       {result.coverage:.3f}"
    yield _simulated(result, "user")


def _errors(result: RoundsResult | VectorResult) -> str:
    return f"mse            {_pair(result.mse, result.stderr)}"


def _predicted(result: RoundsResult | VectorResult) -> str:
    predicted = result.predicted_mse
    return f"predicted mse  {'-' if predicted is None else format(predicted, '.3g')}"


def _simulated(result: RoundsResult | VectorResult, unit: str) -> str:
    config = result.config
    return (
        f"{config['estimator']}, mode {config['mode']}; epsilon {config['epsilon']:g} per {unit}; "
        f"{config['users']} users, sizes {config['sizes']}, data {config['data']}; {config['runs']} runs"
    )


def _row(values: list[float], most: int = 8) -> str:
    shown = "  ".join(f"{value:.3g}" for value in values[:most])
    return shown + (f"  ... ({len(values)} in all)" if len(values) > most else "")


def _pair(value: float, stderr: float | None) -> str:
    if stderr is None:
        return f"{value:.3g}"
    return f"{value:.3g} +- {stderr:.2g}"
