"""`meanstream theory agents` and `theory rounds`: expected errors and bounds without a simulation."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meanstream.lab.simulate.simulate_options import TheoryOptions
from meanstream.pipelines.options.base import (
    ConfigOption,
    JsonOption,
    given_option,
    print_options_json,
)
from meanstream.pipelines.options.declaration import INPUT, cli_option
from meanstream.pipelines.options.option_errors import refusing_options
from meanstream.pipelines.options.typer_commands import takes_options

if TYPE_CHECKING:
    from meanstream.lab.papers.bounds.bound import Bound
    from meanstream.lab.simulation.config import SimulationConfig


def _option(help_text: str, **declared: Any) -> Any:
    return cli_option(help_text, INPUT, **declared)


BOUNDS_TYPED = ("config", "users", "samples", "sizes", "epsilon", "dimension", "sparsity", "json")
"""Options that are typed; the others come from a file."""


@dataclass(frozen=True, kw_only=True)
class BoundsOptions:
    """What a user says about the users whose bounds are computed."""

    config: ConfigOption = None
    users: Annotated[int, _option("Number of users.", first=True)] = 10_000
    samples: Annotated[int, _option("Samples of each user.", first=True)] = 100
    sizes: Annotated[
        str | None,
        _option(
            "Law of the samples per user, instead of --samples; Kent's bounds take its least size as T."
        ),
    ] = None
    epsilon: Annotated[float, _option("Privacy budget of one user's samples.", first=True)] = 1.0
    delta: Annotated[float, _option("Delta of Theorem D.1 (Cummings).")] = 1e-6
    dimension: Annotated[int, _option("Number of coordinates (Kent).")] = 1
    sparsity: Annotated[int, _option("Number of coordinates that may differ from 0 (Kent).")] = 1
    smoothness: Annotated[int, _option("Number of derivatives of a density (Kent).")] = 1
    components: Annotated[int, _option("Number of components of a mixture (Kent).")] = 2
    mean: Annotated[float, _option("Mean of the population on [0, 1] (Cummings).")] = 0.5
    between_users: Annotated[
        float, _option("Standard deviation of users' means on [0, 1] (Cummings).")
    ] = 0.0
    json: JsonOption = False

    def bounds(self) -> list[Bound]:
        """Check everything, and evaluate every bound."""
        from meanstream.lab.papers.bounds.cummings_theorems import (
            CummingsProblem,
            cummings_theorems,
        )
        from meanstream.lab.papers.bounds.dame_theorems import dame_theorems
        from meanstream.lab.papers.bounds.kent_theorems import (
            KentProblem,
            kent_explicit_bounds,
            kent_rates,
        )
        from meanstream.operators.rounds.user_sizes import SizeDistribution

        self._check()
        sizes = SizeDistribution.parse(
            f"point:{self.samples}" if self.sizes is None else self.sizes
        )
        ask = {"users": self.users, "epsilon": self.epsilon}
        vectors = {"dimension": self.dimension, "sparsity": self.sparsity}
        others = {"smoothness": self.smoothness, "components": self.components}

        return [
            *dame_theorems(sizes, users=self.users, epsilon=self.epsilon),
            *kent_explicit_bounds(samples=sizes.least, **ask, **vectors),  # type: ignore[arg-type]
            *kent_rates(KentProblem(samples=sizes.least, **ask, **vectors, **others)),  # type: ignore[arg-type]
            *cummings_theorems(
                CummingsProblem(
                    sizes=sizes,
                    users=self.users,
                    epsilon=self.epsilon,
                    delta=self.delta,
                    mean=self.mean,
                    between_users=self.between_users,
                )
            ),
        ]

    def _check(self) -> None:
        """Refuse what no bound is defined for."""
        from meanstream.operators.validation import (
            require,
            require_between,
            require_epsilon,
            require_least,
        )

        require(self.users >= 20, "users", "be at least 20 (bounds are for many users)", self.users)
        for name in ("samples", "dimension", "sparsity", "smoothness"):
            require(getattr(self, name) >= 1, name, "be at least 1", getattr(self, name))

        require(
            self.sparsity <= self.dimension,
            "sparsity",
            f"be at most {self.dimension} (dimension)",
            self.sparsity,
        )
        require_least(2, components=self.components)

        require_epsilon(self.epsilon)
        require_between(0, 1, delta=self.delta, mean=self.mean)
        require(
            0 <= self.between_users <= 0.5,
            "between_users",
            "lie between 0 and 0.5",
            self.between_users,
        )


def print_bounds(options: BoundsOptions) -> None:
    """Print the bounds of DAME, Kent et al. and Cummings et al. for these users.

    `explicit` bounds have the constants of their proofs. `rate only`: the paper gives no constants, all are set to 1,
    and only ratios mean something. Errors are squared: on [-1, 1] (DAME, Kent), on [0, 1] (Cummings).

    \b
    Example:
      meanstream theory rounds --users 10000 --samples 100 --epsilon 0.6
    """  # noqa: D301 - click reads the escape
    with refusing_options():
        bounds = options.bounds()

    if options.json:
        print_options_json({"bounds": [bound.as_dict() for bound in bounds]})
    else:
        sys.stdout.write(bounds_text(bounds))


_HOLDS = {True: "yes", False: "no", None: "?"}


def bounds_text(bounds: list[Bound]) -> str:
    """Lay out one bound a line, under its paper."""
    lines: list[str] = []
    paper = ""
    for bound in bounds:
        if bound.paper != paper:
            paper = bound.paper
            lines += ["", f"{paper:<90}constants   assumptions hold"]

        note = f"  ({bound.note})" if bound.note else ""
        holds = _HOLDS[bound.holds]
        lines.append(
            f"  {bound.statement:<24}{bound.quantity:<54}{bound.value:<10.3g}{bound.constants:<12}{holds}{note}"
        )

    return "\n".join([*lines[1:], ""])


app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def theory() -> None:
    """Compute expected errors and bounds without a simulation."""


app.command("rounds")(takes_options(BoundsOptions, typed=BOUNDS_TYPED)(print_bounds))


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
    variance of T of the first queried agent, after `releases` releases. Under broadcast `consensus` is the error on
    a graph of partners, with known classes. Under round robin `tested` is the error with
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
