"""The unit of privacy in plain words, and the privacy of a person with many samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from meanstream.operators.agents.defaults import MechanismFacts, mechanism_facts
from meanstream.operators.agents.own_histogram import SAMPLE_SENSITIVITY
from meanstream.operators.agents.vote_of_spread import FACTOR
from meanstream.operators.collaboration.shares.asked_shares import query_labels
from meanstream.operators.noise.group_privacy import MOST_CASES, odds_of_a_belief, odds_of_a_guess

if TYPE_CHECKING:
    from collections.abc import Callable

    from meanstream.operators.agents.agents_settings import AgentsSettings
    from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
    from meanstream.operators.noise.window_budget import WindowBudget
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings


COLLABORATION_METHODS = {
    "learned_prior": "posterior mean; the prior depends on the count and is fitted to all releases",
    "pooled_prior": "posterior mean; one prior for all counts, fitted to all releases",
    "james_stein": "own mean, shrunk to the center of all releases (one normal population)",
    "tests": "weighted mean of the agents whose release passes a same-mean test (assumes exact classes)",
    "consensus": "mean of the class that partners of partners reach on a graph (assumes exact classes)",
    "none": "every agent alone",
}
"""How each collaboration estimates a mean."""
CONTENTS = {
    "sample": ("The value of each single sample", "which of two equally likely values it has"),
    "person": (
        "All samples of one person within an agent",
        "which of two equally likely sets of values they have",
    ),
    "window": (
        "Everything that one user sends within a window",
        "which of two equally likely contents it has",
    ),
    "values": (
        "The values that one user sends within a window, but not their number",
        "which of two equally likely sets of values they have",
    ),
}
"""What is protected, and what an adversary would guess of it, by the unit of privacy."""

SURE = 0.9995
"""Share of right guesses from which on a percentage would be rounded to 100."""


def explain_answer(
    unit: str,
    adversary: str,
    total: str,
    odds: dict[str, Any],
    *,
    per_person: int | None = None,
    windows: int | None = None,
) -> dict[str, str]:
    """Answer three questions about a configuration in a sentence or two each.

    Examples
    --------
    >>> odds = {"guessed_right": 0.5471, "guessed_right_several": 0.8817}
    >>> for line in explain_answer("sample", "everyone else together", "(1, 1e-06)", odds).values():
    ...     print(line)
    The value of each single sample, against everyone else together, even if they know all other samples.
    (1, 1e-06): from all releases they guess which of two equally likely values it has at most 54.7 % of the time.
    If one person contributed ten samples: at most 88.2 % of the time.
    """
    what, guess = CONTENTS[unit]
    once, ten = (_how_often(odds[name]) for name in ("guessed_right", "guessed_right_several"))
    sources = (
        "all releases" if unit in ("sample", "person") else "all that is published of a window"
    )

    ten_windows = f"In one window the same. If one user is in ten windows: {ten}."

    # A budget of several windows holds for all that is published of them.
    if windows is not None:
        what = what.replace("within a window", f"within {windows:,} windows")
        sources = f"all that is published of these {windows:,} windows"
        ten_windows = f"Later windows leave out a user's data. In one window alone: {ten}."

    return {
        "protected": f"{what}, against {adversary}, even if they know all other samples.",
        "how_much": f"{total}: from {sources} they guess {guess} {once}.",
        "ten_samples": {
            "sample": f"If one person contributed ten samples: {ten}.",
            "person": f"In one agent the same (at most {per_person} count). If one person is in ten agents: {ten}.",
            "window": ten_windows,
            "values": ten_windows,
        }[unit],
    }


def explain_answer_lines(answer: dict[str, str]) -> list[str]:
    """Write the answers for reading."""
    return [
        f"protected       {answer['protected']}",
        f"how much        {answer['how_much']}",
        f"ten samples     {answer['ten_samples']}",
    ]


def _how_often(share: float) -> str:
    """How often a guess is right; never quite always."""
    if share >= SURE:
        return "nearly always"
    return f"at most {100 * share:.1f} % of the time"


NO_AMPLIFICATION = (
    "Nothing is claimed for sampling or shuffling: the adversary may know who took part."
)
ADDS_UP = "The losses of one person in several agents, stores or jobs add up: `meanstream explain together`."


def explain_unit_name(name: str | None) -> str:
    """Say which deployment it is: its name is in the key of the noise."""
    return f"name            {name or 'the store makes one and keeps it (`meanstream store show`)'}"


def _many_samples(settings: AgentsSettings) -> list[str]:
    """Give the price of K samples of one person.

    In privacy, or in noise where they are protected together.
    """
    k = settings.per_person
    if k is not None:
        return [
            f"the variance of the noise is {k}^2 = {k * k:,} times that of protecting one sample"
        ]

    strength = "epsilon" if settings.mu is None else "mu"
    return [
        f"K samples of one person multiply {strength} by K and rho by K^2;",
        "--per-person K protects them together, at about K^2 times the variance of the noise",
    ]


def explain_unit_facts(settings: AgentsSettings) -> dict[str, Any]:
    """Give epsilon for a person with several samples, or in several agents; as plain data."""
    from meanstream.operators.noise.group_privacy import GROUPS

    k = settings.per_person
    groups: list[dict[str, Any]] = []
    for number in GROUPS:
        if k is None:
            groups.append({"samples": number, "epsilon": settings.epsilon_for(number)})
        else:
            groups.append({"agents": number, "epsilon": settings.epsilon_over(number)})

    return {
        "protects": settings.protected,
        "per_person": k,
        "many_samples": _many_samples(settings),
        "noise_variance_factor": 1 if k is None else k * k,
        "mu": settings.mu,
        "rho": settings.rho,
        "groups": groups,
        "adds_up": ADDS_UP,
        "amplification": NO_AMPLIFICATION,
    }


def explain_unit_lines(unit: dict[str, Any], delta: float) -> list[str]:
    """Write the same facts for reading."""
    k = unit["per_person"]
    mu = unit["mu"]
    lines = [
        f"unit            {unit['protects']}",
        *(f"                {line}" for line in unit["many_samples"]),
    ]
    of = "Gaussian DP" if mu is not None else "pure DP"
    same = f", at delta {delta:g}" if mu is not None else ""
    what = "samples of one person" if k is None else "agents that hold samples of one person"
    lines.append(f"                epsilon by number of {what} ({of}{same}):")

    lines.append(
        "                "
        + ", ".join(
            f"{g.get('samples', g.get('agents'))}: {g['epsilon']:.3g}" for g in unit["groups"]
        )
    )
    strength = f"mu {mu:.4g} (Gaussian DP), " if mu is not None else ""
    lines.append(
        f"                the guarantee in other units: {strength}rho {unit['rho']:.4g} (zero-concentrated DP)"
    )
    lines += [f"                {unit['adds_up']}", f"                {unit['amplification']}"]

    return lines


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
    guarantee = (settings.epsilon, delta, settings.mu)
    if settings.per_person is None:
        several = (
            GROUP * settings.epsilon,
            0.0,
            None if settings.mu is None else GROUP * settings.mu,
        )
        facts = _odds("a sample", guarantee, f"{GROUP} samples of one person", several)
        return facts | {"guessed_right": settings.guessed_right}

    several = (
        GROUP * settings.epsilon,
        0.0,
        None if settings.mu is None else math.sqrt(GROUP) * settings.mu,
    )

    facts = _odds(
        "a person's samples in an agent",
        guarantee,
        f"a person's samples in {GROUP} agents",
        several,
    )

    return facts | {"guessed_right": settings.guessed_right}


def explain_odds_of_rounds(
    *,
    samples: bool,
    epsilon: float,
    delta: float,
    shared: WindowBudget | None = None,
    gaussian: bool = False,
) -> dict[str, Any]:
    """Say the same of rounds, where a sample is protected or all that a user sends within a window.

    Where windows share a budget: of all of them, and of one alone.
    """
    if shared is not None:
        stddev = shared.gaussian_stddev
        mu = math.sqrt(shared.windows) / stddev if gaussian and stddev is not None else None
        one_mu = None if mu is None else mu / math.sqrt(shared.windows)
        alone = (shared.each, 0.0, None) if mu is None else (epsilon, delta, one_mu)
        several = f"{shared.windows} windows of a user"
        return _odds(several, (epsilon, delta, mu), "one of them", alone)

    of, several = ("a sample", "samples") if samples else ("a user's window", "windows")
    guarantee = (GROUP * epsilon, min(GROUP * delta, 0.5), None)
    return _odds(of, (epsilon, delta, None), f"{GROUP} {several} of one user", guarantee)


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
    rows = []
    for epsilon in sorted({*EPSILONS, settings.epsilon}):
        try:
            releases = releases_of(replace(settings, epsilon=epsilon))
        except ValueError:  # what float64 adds to so small an epsilon is too much of it
            continue

        of = "noise_stddev_of_the_mean" if "count" in releases else "noise_stddev_of_the_sum"
        rows.append({"epsilon": epsilon, of: releases[of]})

    return rows


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
    rows = []
    for epsilon in sorted({*EPSILONS, settings.epsilon}):
        try:
            estimator = replace(settings, epsilon=epsilon, user_budget=None).estimator_for(users)
        except ValueError:  # an estimator may need more than so small an epsilon, or other users
            continue

        rows.append(
            {
                "epsilon": epsilon,
                "predicted_stderr": float(estimator.describe()["predicted_stderr"]) * scale,
            }
        )

    return rows


def explain_errors_of_rounds_lines(errors: list[dict[str, float]], *, planned: bool) -> list[str]:
    """Write the same facts in two lines of a table; what is `planned` has a command of its own."""
    plan = "; `meanstream plan rounds` finds epsilon for an error" if planned else ""
    return [
        f"error, epsilon  predicted standard error{plan}",
        f"                {'epsilon':<16}" + "".join(f"{row['epsilon']:>10g}" for row in errors),
        f"                {'standard error':<16}"
        + "".join(f"{row['predicted_stderr']:>10.4g}" for row in errors),
    ]


def agents_bounds(settings: AgentsSettings) -> dict[str, Any]:
    """Say which values count, and how much one of them moves a sum."""
    grid = settings.grid
    return {
        "lower": settings.lower,
        "upper": settings.upper,
        "values_outside": "are clipped",
        "resolution": grid.resolution,
        "sensitivity": (settings.upper - settings.lower) * (settings.per_person or 1),
        "sensitivity_in_grid_units": grid.span * (settings.per_person or 1),
    }


def agents_mechanism(settings: AgentsSettings) -> dict[str, Any]:
    """Say by which counter and noise sums are released."""
    counter = settings.mechanism
    fresh = settings.fresh
    return {
        "counter": counter.name,
        "horizon": settings.most_releases,
        "column_norm": counter.l2_sensitivity,
        "levels": getattr(counter, "levels", None),
        # The noise, and what the best other one would be.
        "noise": settings.noise,
        "least_noise": asdict(mechanism_facts(settings)),
        "calibration": settings.calibration if settings.noise == "gaussian" else None,
        "stddev_of_a_fresh_draw": float(fresh.variance) ** 0.5 * settings.grid.resolution,
        "published": "the noisy integer sum on the grid",
        "tail_delta": fresh.tail_delta,
        "epsilon_slack": fresh.epsilon_slack,
        "noise_source": "keyed: a function of the secret, the agent, the release and its exact "
        "input",
    }


def agents_bounds_lines(bounds: dict[str, Any]) -> list[str]:
    """Write the bounds of values for reading."""
    return [
        f"bounds          [{bounds['lower']:g}, {bounds['upper']:g}], "
        f"values outside {bounds['values_outside']};"
        f" sensitivity of a sum {bounds['sensitivity']:g}"
        f" = {bounds['sensitivity_in_grid_units']} grid units of {bounds['resolution']:g}",
    ]


def agents_mechanism_lines(mechanism: dict[str, Any], *, reader: str | None = None) -> list[str]:
    """Write counter and noise for reading; `reader` is who alone gets what is released."""
    leaves = "is published" if reader is None else f"goes to {reader} alone"

    return [
        f"counter         {mechanism['counter']}, "
        + (
            "no end of releases,"
            if mechanism["horizon"] is None
            else f"at most {mechanism['horizon']} releases,"
        )
        + f" column norm {mechanism['column_norm']:.4g}",
        # What a draw adds, and by what it is chosen.
        f"noise           {mechanism['noise']}"
        + (f" ({mechanism['calibration']} calibration)" if mechanism["calibration"] else "")
        + f", standard deviation {mechanism['stddev_of_a_fresh_draw']:.6g} per fresh draw",
        f"                {MechanismFacts(**mechanism['least_noise']).said}",
        f"                {mechanism['noise_source']}; {mechanism['published']} {leaves}",
        f"                numerical slack per draw: delta {mechanism['tail_delta']:.1e},"
        f" epsilon {mechanism['epsilon_slack']:.1e}",
    ]


def explain_histogram(
    settings: AgentsSettings, quantiles: tuple[float, ...] | None
) -> dict[str, Any] | None:
    """Say what gets noise and what agents receive, as plain data; None where there is no histogram.

    `quantiles` is None where they are not known.
    """
    if settings.histogram is None:
        return None
    return {
        "share": settings.histogram_share,
        "of": "rho" if settings.noise == "gaussian" else "epsilon",
        "what": f"an agent's samples, counted in {settings.histogram.bins} bins between the bounds and at them",
        "when": f"with its first release, and with each of {FACTOR} times the samples of the last histogram",
        "sensitivity": SAMPLE_SENSITIVITY[2 if settings.noise == "gaussian" else 1]
        * (settings.per_person or 1),
        "noise_stddev_of_a_bin": math.sqrt(settings.histogram.noise.variance),
        "total": "means and histograms together are the total above"
        if settings.vote is None
        else "means, votes and histograms together are the total above",
        "quantiles": None if quantiles is None else list(quantiles),
        "exceeds": list(settings.exceeds),
        "answers": "for each agent from its own samples and a prior of all histograms; for that agent only",
    }


def explain_histogram_lines(found: dict[str, Any] | None) -> list[str]:
    """Write the same for reading; nothing where there is none.

    Examples
    --------
    >>> explain_histogram_lines(None)
    []
    """
    if found is None:
        return []
    unknown = ["the requested quantiles"] if found["quantiles"] is None else []
    labels = unknown + query_labels(found["quantiles"] or (), found["exceeds"])

    return [
        f"histogram       {found['share']:g} of the budget (of {found['of']}): {found['what']},",
        f"                {found['when']};",
        f"                sensitivity {found['sensitivity']:.4g}, "
        f"noise sd {found['noise_stddev_of_a_bin']:.4g} per bin; {found['total']}",
        f"answers         {', '.join(labels) or 'the requested figures'}: {found['answers']}",
    ]


SHARES = (0.25, 0.5, 0.75)
"""Shares of the spread that covariates might explain, of which `plan` says what they would
bring."""


def explain_covariates(declared: AgentCovariates | None) -> dict[str, Any] | None:
    """Say what is declared public, and what it costs; None where nothing is."""
    from meanstream.operators.collaboration.covariates.covariate_design import Category

    if declared is None:
        return None
    return {
        "agents": len(declared.names),
        "attributes": [
            {
                "name": attribute.name,
                "kind": attribute.kind,
                **({"levels": len(attribute.levels)} if isinstance(attribute, Category) else {}),
            }
            for attribute in declared.design.attributes
        ],
        "public": "declared public: nothing protects them, and estimates of others may show them",
        "cost": "none: their effects are learned from releases; another file needs no budget and no new store",
    }


def explain_covariates_lines(found: dict[str, Any] | None) -> Iterator[str]:
    """Write the same for reading."""
    if found is None:
        return
    named = ", ".join(
        f"{attribute['name'][:40]} ({attribute['levels']} levels)"
        if "levels" in attribute
        else f"{attribute['name'][:40]} (number)"
        for attribute in found["attributes"]
    )
    yield f"covariates      {found['agents']:,} agents have a row: {named}"
    yield f"                {found['public']}"
    yield f"                privacy cost: {found['cost']}"


def planned_with_covariates(
    declared: AgentCovariates, error: Callable[[float], float]
) -> dict[str, Any]:
    """Say what covariates would bring if they explained some shares of the spread."""
    return {
        "agents": len(declared.names),
        "attributes": [attribute.name for attribute in declared.design.attributes],
        "error_if_they_explain": {share: error((1 - share) ** 0.5) for share in SHARES},
    }


def planned_with_covariates_line(found: dict[str, Any]) -> str:
    """Write the same in a sentence."""
    errors = found["error_if_they_explain"]
    shares = (f"{s * 100:.0f} %" for s in errors)
    values = (f"{e:.3g}" for e in errors.values())

    return (
        f"Public covariates ({len(found['attributes'])} attributes of {found['agents']:,} agents): if they explain "
        f"{' / '.join(shares)} of the variance of the means, the error together at the median count is "
        f"{' / '.join(values)}."
    )
