"""`meanstream explain together`: the privacy of one person in several deployments."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meanstream.pipelines.commands.explain.explain_diff import read_run_file
from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meanstream.operators.noise.loss_distributions import LossDistribution
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions

HOW = (
    "Privacy losses are added up as distributions, Gaussian ones by the squares of mu. "
    "Each deployment has its own noise."
)
TOLD_DELTA = 1e-6
"""Delta of the sum, where no deployment has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one deployment guarantees to one unit.

    `mu` where that is all of it (Gaussian DP), next to cut tails; `losses` where they are known
    otherwise. Of others nothing is known but (epsilon, delta).
    """

    config: str
    name: str | None
    unit: str
    epsilon: float
    delta: float
    mu: float | None
    slack: float
    tails: float = 0.0
    losses: LossDistribution | None = None


def explain_together(
    configs: Annotated[
        list[Path],
        typer.Argument(help="Configuration files of `run agents` and `run rounds`, two or more."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Add up the privacy losses of a person in several deployments, with one unit in each.

    \b
    Example:
      meanstream explain together delays.yaml fuel.yaml weekly.yaml
    """  # noqa: D301 - click reads the escape
    if len(configs) < 2:
        raise BadOption(f"configs must be two files or more, got {str(configs[0])!r}")
    parts = [_part(path) for path in configs]
    names = [deployment.name for deployment in parts if deployment.name is not None]
    twice = next((name for name in names if names.count(name) > 1), None)

    if twice is not None:
        raise BadOption(
            f"name must differ in each configuration, since it identifies the deployment, got {twice!r} twice"
        )

    facts = _sum_of(parts)
    if as_json:
        print_options_json(facts)
    else:
        sys.stdout.writelines(_lines(facts))


def _sum_of(parts: Sequence[Part]) -> dict[str, Any]:
    """Compose the guarantees of deployments with noise of their own; as plain data.

    Examples
    --------
    >>> half = Part(config="a", name="a", unit="a sample", epsilon=1.0, delta=1e-6, mu=0.2366, slack=0.0)
    >>> pure = Part(config="b", name="b", unit="a window", epsilon=0.5, delta=0.0, mu=None, slack=0.0)
    >>> total = _sum_of([half, half, pure])["together"]
    >>> round(total["epsilon"], 2), total["delta"]
    (1.87, 2e-06)
    >>> total = _sum_of([pure] * 30)["together"]
    >>> round(total["epsilon"], 1), total["delta"], total["pure_epsilon"]
    (14.0, 1e-06, 15.0)
    """
    tails = math.fsum(deployment.tails for deployment in parts)
    slack = math.fsum(deployment.slack for deployment in parts)
    delta = math.fsum(deployment.delta for deployment in parts)
    pure = not delta
    # What is known by (epsilon, delta) alone fails with its delta; the rest pays for the sum.
    unknown = math.fsum(p.delta for p in parts if p.mu is None and p.losses is None)
    total_delta = TOLD_DELTA if pure else delta
    composed = _composed(parts).epsilon(max(total_delta - unknown - tails, 0.0))
    epsilon = min(composed, math.fsum(deployment.epsilon for deployment in parts)) + slack

    return {
        "deployments": [
            {
                "config": p.config,
                "name": p.name,
                "unit": p.unit,
                "epsilon": p.epsilon,
                "delta": p.delta,
                "mu": p.mu,
            }
            for p in parts
        ],
        "together": {
            "epsilon": epsilon,
            "delta": total_delta,
            **(
                {"pure_epsilon": math.fsum(deployment.epsilon for deployment in parts) + slack}
                if pure
                else {}
            ),
            "how": HOW,
        },
    }


def _composed(parts: Sequence[Part]) -> LossDistribution:
    """Add up the losses of all deployments, on one grid."""
    from meanstream.operators.noise.group_privacy import group_mu
    from meanstream.operators.noise.loss_distributions import (
        common_step,
        composed_losses,
        gaussian_losses,
        regridded_losses,
        three_point_losses,
    )

    gaussian = [deployment.mu for deployment in parts if deployment.mu is not None]
    losses = [
        three_point_losses(deployment.epsilon) if deployment.losses is None else deployment.losses
        for deployment in parts
        if deployment.mu is None
    ]

    if gaussian:
        losses.append(gaussian_losses(group_mu(gaussian)))

    step = common_step([max(abs(float(loss.losses[0])), float(loss.losses[-1])) for loss in losses])
    return composed_losses([regridded_losses(loss, step) for loss in losses])


def _part(path: Path) -> Part:
    from meanstream.pipelines.options.agents_options import AgentsOptions

    with refusing_options():
        options = read_run_file(path)

        if isinstance(options, AgentsOptions):
            return _of_agents(path, options)
        return _of_rounds(path, options)


def _of_agents(path: Path, options: AgentsOptions) -> Part:
    settings = options.settings()
    return Part(
        config=str(path),
        name=options.name,
        unit="one sample"
        if settings.per_person is None
        else "all samples of a person in one agent",
        epsilon=settings.epsilon,
        delta=settings.delta,
        mu=settings.mu,
        slack=settings.numeric_slack,
        tails=settings.delta - settings.delta_of_noise,
        losses=None if settings.mu is not None else settings.losses,
    )


def _of_rounds(path: Path, options: RoundsOptions) -> Part:
    """One window; all of them, where users have a budget."""
    from meanstream.pipelines.commands.explain.explain_rounds import USERS

    settings = options.settings()
    shared = settings.window_budget
    if shared is not None:
        stddev = shared.gaussian_stddev
        return Part(
            config=str(path),
            name=options.name,
            unit=f"{shared.windows} windows of a user together",
            epsilon=settings.epsilon,
            delta=settings.user_delta,
            mu=math.sqrt(shared.windows) / stddev if settings.gaussian and stddev else None,
            slack=0.0,
        )

    delta = float(getattr(settings.estimator_for(settings.users or USERS), "delta", 0.0))
    budget = options.user_budget

    return Part(
        config=str(path),
        name=options.name,
        unit="one window of a user"
        if budget is None
        else "all windows of a user, within the budget",
        epsilon=settings.epsilon if budget is None else budget,
        delta=delta if budget is None else delta * (budget // settings.epsilon),
        mu=None,
        slack=0.0,
    )


def _lines(facts: dict[str, Any]) -> list[str]:
    total = facts["together"]
    lines = [
        f"{p['config']}: {p['name'] or 'a name kept in its store'}; {p['unit']}: ({p['epsilon']:g}, {p['delta']:g})"
        + (f", mu {p['mu']:.4g}" if p["mu"] is not None else "")
        + "\n"
        for p in facts["deployments"]
    ]
    who = f"together, for a person with one of these in each: ({total['epsilon']:.4g}, {total['delta']:g})\n"

    if "pure_epsilon" in total:
        who += f"without a delta: ({total['pure_epsilon']:.4g}, 0)\n"

    return [*lines, who, f"{total['how']}\n"]
