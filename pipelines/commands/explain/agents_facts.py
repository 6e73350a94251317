"""`meanstream explain agents`: what agents protect, by which mechanisms, and who sees what."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meanstream.operators.agents.release_times import Counts
from meanstream.operators.agents.vote_of_spread import (
    BY_CONTENT,
    FACTOR,
    PAIR_SENSITIVITY,
    PAIRS_OF_CONTENT,
)
from meanstream.operators.collaboration.anytime_intervals import valid_coverage
from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.records import VOTE_BINS, Ints
from meanstream.pipelines.commands.explain.explain_pairs import explain_pairs_text, explained_pairs
from meanstream.pipelines.commands.explain.explain_registry import (
    print_registry_record,
    registry_record_of_agents,
)
from meanstream.pipelines.commands.explain.promise_facts import (
    COLLABORATION_METHODS,
    agents_bounds,
    agents_bounds_lines,
    agents_mechanism,
    agents_mechanism_lines,
    explain_answer,
    explain_answer_lines,
    explain_covariates,
    explain_covariates_lines,
    explain_errors_of_agents,
    explain_errors_of_agents_lines,
    explain_histogram,
    explain_histogram_lines,
    explain_odds_lines,
    explain_odds_of_agents,
    explain_unit_facts,
    explain_unit_lines,
    explain_unit_name,
)
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import refusing_options

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.operators.agents.half_life_memory import KeptSums
    from meanstream.operators.agents.window_memory import KeptWindow
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.store_agents_options import ExplainAgentsOptions

ENDLESS_SHOWN = 100
"""Release by which noise that has a limit is near it."""


def explain_agents(options: ExplainAgentsOptions, *, registry: bool) -> None:
    """Print the facts, as a record of the registry of deployments if that is requested."""
    if (pairs := explained_pairs(options, registry=registry)) is not None:
        if options.json:
            print_options_json(pairs)
        else:
            sys.stdout.write(explain_pairs_text(pairs))
        return

    with refusing_options():
        settings = options.settings()
        collaboration = explain_command_collaboration(
            replace(options, mode=settings.mode), settings
        )

    facts = {
        **explain_command_privacy(settings, options.asked_quantiles),
        "collaboration": collaboration,
    }

    if registry:
        print_registry_record(registry_record_of_agents(facts), as_json=options.json)
    elif options.json:
        print_options_json(facts)
    else:
        sys.stdout.write(explain_command_text(facts))


def explain_command_privacy(
    settings: AgentsSettings, quantiles: tuple[float, ...] | None = None
) -> dict[str, Any]:
    """Say what is protected, by which mechanism, at which total, and who sees what.

    As plain data.
    """
    # Each part of the facts is made where its mechanism is known.
    odds = explain_odds_of_agents(settings)
    strength = f"({settings.epsilon:g}, {settings.delta:g})"
    answer = explain_answer(
        settings.privacy_unit,
        "everyone else together",
        strength,
        odds,
        per_person=settings.per_person,
    )

    return {
        "answer": answer,
        "name": settings.name,
        "mode": settings.mode,
        "privacy_unit": settings.privacy_unit,
        "neighboring": _neighboring(settings),
        "estimand": _estimand(settings),
        "unit": explain_unit_facts(settings),
        "odds": odds,
        "public": _public(settings),
        "bounds": agents_bounds(settings),
        "mechanism": agents_mechanism(settings),
        "releases": _releases(settings),
        "by_epsilon": explain_errors_of_agents(settings, _releases),
        "votes": _votes(settings),
        "histogram": explain_histogram(settings, quantiles),
        "total": _total(settings),
        "who_sees_what": {
            "the engine and its store": "raw samples while they are processed, exact sums (hosted deployment)",
            "an agent": "its own estimate, which contains its raw mean, and everything public",
            "everyone": "releases, the fitted population, budget events, redacted dead letters",
        },
    }


def _neighboring(settings: AgentsSettings) -> str:
    if settings.per_person is None:
        return "two streams that differ in the value of one sample of one agent (replace-one)"
    return "two streams that differ in the values of all samples of one person within one agent (replace-all)"


def _estimand(settings: AgentsSettings) -> str:
    if settings.memory == "forever":
        return "each agent's long-run mean: what its own mean approaches as samples go on"
    return "each agent's level at present, as its memory weighs samples"


def _public(settings: AgentsSettings) -> str:
    public = "names of agents, numbers and times of their samples, validity of records"
    if settings.per_person is None:
        return public
    return f"{public}; which samples were beyond a person's limit"


def _total(settings: AgentsSettings) -> dict[str, Any]:
    """Say what epsilon is of, and when it is spent."""
    after = f"release {settings.horizon} an agent stops with a budget event"
    if settings.most_releases is None:
        after = "no end: the total influence of a sample on all future releases is bounded, and paid for once"

    return {
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "epsilon_with_numerics": settings.epsilon + settings.numeric_slack,
        "over": "all releases of an agent together, over the life of its stream",
        "after": after,
    }


def _votes(settings: AgentsSettings) -> dict[str, Any] | None:
    """Describe the part of the budget that shows how much samples vary."""
    if settings.vote is None:
        return None

    # Pure noise counts changes in the l1 norm, Gaussian noise in the l2 norm.
    norm = 1 if settings.pure else 2
    pairs = PAIRS_OF_CONTENT if settings.pairs == BY_CONTENT else 1

    return {
        "share": settings.spread_share,
        "of": "epsilon" if settings.pure else "rho",
        "what": f"distances |x - x'| of pairs of an agent's samples, of all agents here, counted in {VOTE_BINS} bins",
        "when": f"with the first release by which the pairs are {FACTOR} times those of the last vote",
        "sensitivity": pairs * PAIR_SENSITIVITY[norm] * (settings.per_person or 1),
        "noise_stddev_of_a_bin": math.sqrt(settings.vote.noise.variance),
        "total": "means, votes and histograms together are the total above"
        if settings.histogram_share
        else "means and votes together are the total above",
    }


def _releases(settings: AgentsSettings) -> dict[str, Any]:
    """Noise of the first releases; of a mean, so it can be held against the spread of the data."""
    import numpy as np

    times = settings.times
    counter = settings.mechanism
    last = settings.most_releases or ENDLESS_SHOWN

    # The first releases, some later ones, and the last.
    shown = np.unique(np.minimum([1, 2, 5, 10, 20, last], last))
    facts: dict[str, Any] = {"schedule": settings.schedule, "index": shown}

    if settings.kept is not None:
        return facts | _forgetting(settings, settings.kept, shown)
    stddev = (
        np.sqrt(counter.noise_variance(shown) * settings.fresh.variance) * settings.grid.resolution
    )
    facts["noise_stddev_of_the_sum"] = stddev

    # Of a mean the noise falls with the number of samples.
    if isinstance(times, Counts):
        facts["count"] = times.at(shown)
        facts["noise_stddev_of_the_mean"] = stddev / facts["count"]

    return facts


def _forgetting(
    settings: AgentsSettings, kept: KeptSums | KeptWindow, shown: Ints
) -> dict[str, Any]:
    """Noise of the first releases of an agent that is there at each turn, and of a late one."""
    import numpy as np

    noise: dict[str, Any] = {"memory": settings.memory}
    times = settings.times

    # An agent that is there at each turn: what it has kept by each release.
    index = np.arange(1, int(shown[-1]) + 1)
    count = times.at(index) if isinstance(times, Counts) else index
    weight, _, variance = kept.outlook(count)
    stddev = np.sqrt(variance[shown - 1]) * settings.grid.resolution
    noise["noise_stddev_of_the_sum"] = stddev

    if isinstance(times, Counts):
        noise["count"] = count[shown - 1]
        noise["noise_stddev_of_the_mean"] = stddev / weight[shown - 1]

    return noise


def _promise(options: AgentsOptions) -> str:
    """Say what intervals promise."""
    if options.coverage == "pointwise":
        return (
            f"{100 * options.level:g} % of them hold at each moment, but not all together: "
            "coverage anytime is for repeated looks"
        )

    return (
        f"for {100 * options.level:g} % of agents all intervals of the mean hold together, however often one looks;"
        " quantiles stay pointwise"
    )


def explain_command_collaboration(
    options: AgentsOptions, settings: AgentsSettings
) -> dict[str, Any]:
    """Say how agents learn of one another, and what it costs."""
    # What a run would refuse is refused here, too.
    options.engine_options()
    valid_coverage(options.coverage, settings.memory)
    name = options.collaboration_name
    declared = options.declared_covariates
    make_collaboration(
        name,
        lower=settings.lower,
        upper=settings.upper,
        covariates=None if declared is None else declared.design,
    )
    covariates = explain_covariates(declared)

    return {
        "method": name,
        "estimate": COLLABORATION_METHODS[name],
        "cost": "none: it reads public releases, and the raw mean of an agent only enters its own estimate",
        "level": options.level,
        "coverage": options.coverage,
        "intervals": _promise(options),
        **({} if covariates is None else {"covariates": covariates}),
        "sample_stddev": options.stddev
        if options.stddev is not None
        else "learned from releases and own samples",
    }


def explain_command_text(facts: dict[str, Any]) -> str:
    """Write the same facts for reading."""
    # In the order of the questions: what, from whom, how much, by which mechanism.
    bounds, mechanism, releases, total, unit = (
        facts[k] for k in ("bounds", "mechanism", "releases", "total", "unit")
    )
    lines = [
        *explain_answer_lines(facts["answer"]),
        explain_unit_name(facts["name"]),
        f"mode            {facts['mode']}",
        f"estimated       {facts['estimand']}",
        f"neighboring     {facts['neighboring']}",
        f"public          {facts['public']}",
        f"total           ({total['epsilon']:g}, {total['delta']:g})-differential privacy: {total['over']}",
        f"                with rounding errors of float64, epsilon is at most {total['epsilon_with_numerics']:.9g};"
        " delta covers cut tails",
        f"                after {total['after']}",
        *explain_unit_lines(unit, total["delta"]),
        *explain_odds_lines(facts["odds"]),
        *agents_bounds_lines(bounds),
        *agents_mechanism_lines(mechanism),
        f"releases        {releases['schedule']}"
        + (
            f"; memory {releases['memory']}: older samples {_weigh(releases['memory'])}"
            if "memory" in releases
            else ""
        ),
        *_release_lines(releases),
        *explain_errors_of_agents_lines(facts["by_epsilon"], releases),
        *_vote_lines(facts["votes"]),
        *explain_histogram_lines(facts["histogram"]),
        f"collaboration   {facts['collaboration']['method']}: {facts['collaboration']['estimate']}",
        f"                privacy cost: {facts['collaboration']['cost']}",
        f"intervals       {facts['collaboration']['intervals']}",
        *explain_covariates_lines(facts["collaboration"].get("covariates")),
        "who sees what",
        *(f"  {who:<26}{what}" for who, what in facts["who_sees_what"].items()),
    ]

    return "\n".join(lines) + "\n"


def _weigh(memory: str) -> str:
    if memory.startswith("window"):
        return "are left out"
    return "weigh less"


def _vote_lines(votes: dict[str, Any] | None) -> list[str]:
    if votes is None:
        return ["votes           none: no part of the budget shows how much samples vary"]
    return [
        f"votes           {votes['share']:g} of the budget (of {votes['of']}): {votes['what']}, {votes['when']}",
        f"                sensitivity {votes['sensitivity']:.4g}, "
        f"noise sd {votes['noise_stddev_of_a_bin']:.4g} per bin; {votes['total']}",
    ]


def _release_lines(releases: dict[str, Any]) -> list[str]:
    lines = []
    for i, index in enumerate(releases["index"]):
        line = f"                release {index}: noise sd of the sum {releases['noise_stddev_of_the_sum'][i]:.6g}"
        if "count" in releases:
            mean = releases["noise_stddev_of_the_mean"][i]
            line = (
                f"                release {index} after {releases['count'][i]} samples: noise sd of "
                f"the mean {mean:.4g}"
            )

        lines.append(line)

    return lines
