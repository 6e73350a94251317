"""The guarantee as odds, and how the error goes with epsilon.

What `explain` says for people who choose.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meanstream.operators.noise.group_privacy import MOST_CASES, odds_of_a_belief, odds_of_a_guess

if TYPE_CHECKING:
    from collections.abc import Callable

    from meanstream.operators.agents.agents_settings import AgentsSettings
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings

PRIOR = 0.01
GROUP = 10
"""Samples or windows of one person."""
Guarantee = tuple[float, float, float | None]
"""Epsilon, delta and, where the mechanism is Gaussian, mu."""
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Shown with their errors, next to the configured one."""


def explain_odds_of_agents(settings: AgentsSettings) -> dict[str, Any]:
    """Give the odds of an adversary who knows everything else; as plain data."""
    delta = 0.0 if settings.mu is None else settings.delta
    one = (settings.epsilon, delta, settings.mu)
    if settings.per_person is None:
        many = (GROUP * settings.epsilon, 0.0, None if settings.mu is None else GROUP * settings.mu)
        found = _odds("a sample", one, f"{GROUP} samples of one person", many)
        return found | {"guessed_right": settings.guessed_right}

    many = (
        GROUP * settings.epsilon,
        0.0,
        None if settings.mu is None else math.sqrt(GROUP) * settings.mu,
    )

    found = _odds(
        "a person's samples in an agent", one, f"a person's samples in {GROUP} agents", many
    )
    return found | {"guessed_right": settings.guessed_right}


def explain_odds_of_rounds(*, samples: bool, epsilon: float, delta: float) -> dict[str, Any]:
    """Say the same of rounds, where a sample is protected or all that a user sends within a window."""
    of, several = ("a sample", "samples") if samples else ("a user's window", "windows")
    many = (GROUP * epsilon, min(GROUP * delta, 0.5), None)
    return _odds(of, (epsilon, delta, None), f"{GROUP} {several} of one user", many)


def _odds(of: str, one: Guarantee, several: str, many: Guarantee) -> dict[str, Any]:
    epsilon, delta, mu = one
    belief = (
        None if mu is None and delta else odds_of_a_belief(PRIOR, epsilon, mu)
    )  # no bound for each output then

    return {
        "of": of,
        "guessed_right": odds_of_a_guess(epsilon, delta, mu),
        "several": several,
        "guessed_right_several": odds_of_a_guess(*many),
        "belief": PRIOR,
        "belief_after": belief,
        "cases": 1.0 if mu is None else MOST_CASES,
    }


def explain_odds_lines(odds: dict[str, Any]) -> list[str]:
    """Write how far a belief can move; nothing where no bound holds for each output."""
    if odds["belief_after"] is None:
        return []
    cases = "always" if odds["cases"] == 1 else f"in {odds['cases']:.0%} of cases"
    return [
        f"odds            a belief of {odds['belief']:.0%} in the true value of {odds['of']} grows to at most"
        f" {100 * odds['belief_after']:.3g}%, {cases}"
    ]


def explain_errors_of_agents(
    settings: AgentsSettings, releases_of: Callable[[AgentsSettings], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Give the noise of the releases for several values of epsilon; a counter may adapt to each."""
    found = []
    for epsilon in sorted({*EPSILONS, settings.epsilon}):
        try:
            releases = releases_of(replace(settings, epsilon=epsilon))
        except ValueError:  # what float64 adds to so small an epsilon is too much of it
            continue

        of = "noise_stddev_of_the_mean" if "count" in releases else "noise_stddev_of_the_sum"
        found.append({"epsilon": epsilon, of: releases[of]})

    return found


def explain_errors_of_agents_lines(
    errors: list[dict[str, Any]], releases: dict[str, Any]
) -> list[str]:
    """Write the same facts as a table."""
    counts = releases.get("count")
    of = "noise_stddev_of_the_sum" if counts is None else "noise_stddev_of_the_mean"
    head = (
        [f"release {i}" for i in releases["index"]]
        if counts is None
        else [f"{n} samples" for n in counts]
    )

    what = (
        "noise sd of the sum, by release"
        if counts is None
        else "noise sd of the mean, by samples so far"
    )
    lines = [
        f"error, epsilon  {what}; `meanstream plan agents` adds sampling, and finds epsilon for an error"
    ]
    lines.append("                " + f"{'epsilon':>8}" + "".join(f"{name:>18}" for name in head))

    return lines + [
        "                "
        + f"{row['epsilon']:>8g}"
        + "".join(f"{noise:>18.4g}" for noise in row[of])
        for row in errors
    ]


def explain_errors_of_rounds(
    settings: RoundsSettings, users: int, scale: float
) -> list[dict[str, float]]:
    """Give the predicted standard error of a window for several values of epsilon."""
    found = []
    for epsilon in sorted({*EPSILONS, settings.epsilon}):
        try:
            one = replace(settings, epsilon=epsilon, user_budget=None).estimator_for(users)
        except ValueError:  # an estimator may need more than so small an epsilon, or other users
            continue

        found.append(
            {
                "epsilon": epsilon,
                "predicted_stderr": float(one.describe()["predicted_stderr"]) * scale,
            }
        )

    return found


def explain_errors_of_rounds_lines(errors: list[dict[str, float]], *, planned: bool) -> list[str]:
    """Write the same facts in two lines of a table; what is `planned` has a command of its own."""
    plan = "; `meanstream plan rounds` finds epsilon for an error" if planned else ""
    return [
        f"error, epsilon  predicted standard error{plan}",
        f"                {'epsilon':<16}" + "".join(f"{row['epsilon']:>10g}" for row in errors),
        f"                {'standard error':<16}"
        + "".join(f"{row['predicted_stderr']:>10.4g}" for row in errors),
    ]
