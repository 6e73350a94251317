"""What the releases of an agent cost: losses of pure noise, and what float64 adds to epsilon."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from meanstream.operators.noise.distributions import StaircaseNoise
from meanstream.operators.noise.loss_distributions import (
    LossDistribution,
    common_step,
    composed_losses,
    laplace_losses,
    repeated_losses,
    three_point_losses,
)
from meanstream.operators.noise.numerics import refuse_small_epsilon, small_numeric_slack

if TYPE_CHECKING:
    from meanstream.operators.agents.agents_settings import AgentsSettings


def pure_losses(settings: AgentsSettings, agents: int) -> LossDistribution:
    """Losses of one unit in each of several agents, whose means and histograms have noise of their own.

    The votes of agents of one host are one vote, in which the units of a person add up.
    """
    epsilon = settings.epsilon
    draws = settings.mechanism.parts * agents
    each = epsilon * settings.means_share / settings.mechanism.parts
    counted = [settings.histogram_share * epsilon] * agents if settings.histogram_share else []
    if settings.spread_share:
        counted.append(agents * settings.spread_share * epsilon)

    step = common_step([each] * draws + counted)

    # The worst of all that promises a share is an answer of two, and so are several steps of a
    # staircase.
    of_draw = laplace_losses(each, step)
    if isinstance(settings.fresh, StaircaseNoise):
        equal = settings.fresh.equal_mass if settings.per_person in (None, 1) else 0.0
        of_draw = three_point_losses(each, equal, step)

    shares = [three_point_losses(share, step=step) for share in counted]
    return composed_losses([repeated_losses(of_draw, draws), *shares])


def agents_numeric_slack(settings: AgentsSettings) -> float:
    """What float64 adds to epsilon over all releases of an agent: at most a hundredth of it."""
    name = "histogram_share" if settings.histogram_share else "spread_share"
    parts = settings.spread_share or settings.histogram_share
    without = _changed(settings, **{"exceeds": (), name: 0.0})
    try:
        slacks = _slacks(settings)
    except ValueError:
        if not parts:
            raise
        # A share whose noise is out of range is refused below, unless something else is wrong.
        slacks = [*_slacks(without), None]

    if None not in slacks:
        return sum(slack for slack in slacks if slack is not None)

    # Where all of epsilon is too little for the means alone, that is what is refused.
    epsilon = settings.epsilon
    if not parts or None in _slacks(without):
        refuse_small_epsilon(
            epsilon, lambda other: None not in _slacks(_changed(settings, epsilon=other))
        )

    rule = f"be 0, or a part of epsilon ({epsilon!r}) that suffices for votes and leaves enough for means"
    raise ValueError(f"{name} must {rule}, got {getattr(settings, name)!r}")


def _slacks(settings: AgentsSettings) -> list[float | None]:
    """Bound what float64 adds to each part of the budget; None where that is too much."""
    # Each sample of a person may lie in an increment of its own.
    met = settings.mechanism.parts * (settings.per_person or 1)
    draws = min(met, settings.horizon) if settings.pure else settings.mechanism.reach
    shares = [(settings.fresh, settings.means_share, draws)]
    if settings.vote is not None:
        shares.append((settings.vote.noise, settings.spread_share, settings.vote_draws))

    if settings.histogram is not None:
        noise = settings.histogram.noise
        shares.append((noise, settings.histogram_share, settings.histogram_draws))

    delta = settings.delta
    return [
        small_numeric_slack(noise, epsilon=settings.epsilon * share, delta=delta, draws=draws)
        for noise, share, draws in shares
    ]


def _changed(settings: AgentsSettings, **changes: Any) -> AgentsSettings:
    """Give the same settings with some fields changed, which nothing has checked."""
    unchecked = object.__new__(type(settings))
    same = {each.name: getattr(settings, each.name) for each in fields(settings)}
    unchecked.__dict__.update(same | changes)
    return unchecked
