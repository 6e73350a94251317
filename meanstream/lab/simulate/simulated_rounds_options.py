"""What a user says about a simulation of rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from meanstream.operators.estimators.registry import DEFAULT_ESTIMATOR, ESTIMATORS
from meanstream.pipelines.options.base import ConfigOption, JsonOption
from meanstream.pipelines.options.declaration import INPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption

if TYPE_CHECKING:
    from meanstream.lab.simulation.simulated_rounds import RoundsConfig


def _option(help_text: str, **declared: Any) -> Any:
    return cli_option(help_text, INPUT, **declared)


OWN_OPTIONS = (
    "between_users",
    "literal",
    "effective_size",
    "threshold",
    "constant",
    "reading",
    "summary",
    "second_moment",
    "votes",
)
"""Options that only some estimators take; they are handed on if given."""

VECTORS = ("dimension", "sparsity", "components", "smoothness", "radius", "theta")
"""Options of estimators that answer several numbers; see `simulate.simulate_vectors`."""


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
            "Samples: rademacher:mean | three:q | beta:a,b | bernoulli:p, all on [-1, 1].",
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

    def sizes_of_users(self) -> str:
        """Give the law of the number of samples of a user: all have as many, or as --sizes says."""
        from meanstream.operators.validation import require

        if self.samples_per_user is None:
            return self.sizes
        require(
            self.samples_per_user >= 1, "samples_per_user", "be at least 1", self.samples_per_user
        )

        return f"point:{self.samples_per_user}"

    def configuration(self) -> RoundsConfig:
        """Check everything but the estimator's own options."""
        from meanstream.lab.simulation.simulated_rounds import RoundsConfig
        from meanstream.operators.validation import require

        for name in VECTORS:
            require(
                getattr(self, name) is None,
                name,
                f"be left out for {self.estimator}",
                getattr(self, name),
            )

        return RoundsConfig(
            estimator=self.estimator,
            users=self.users,
            epsilon=self.epsilon,
            sizes=self.sizes_of_users(),
            data=self.data,
            between_users_law=self.between_users_law,
            order=self.order,
            least_size=self.least_size,
            mode=self.mode,
            options=self.estimator_options(),
            runs=self.runs,
            seed=self.seed,
        )

    def estimator_options(self) -> dict[str, Any]:
        """Give the estimator's own options that were given."""
        named = {name: getattr(self, name) for name in OWN_OPTIONS}
        given = {name: value for name, value in named.items() if value is not None}
        return given | dict(_named_value(text) for text in self.option or ())


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
