"""`meanstream explain agents` of agents that query each other: what one reader learns, and several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meanstream.pipelines.commands.explain.promise_facts import (
    CONTENTS,
    agents_bounds,
    agents_bounds_lines,
    agents_mechanism,
    agents_mechanism_lines,
    explain_odds_lines,
    explain_odds_of_agents,
    explain_unit_facts,
    explain_unit_lines,
    explain_unit_name,
)
from meanstream.pipelines.options.agents_options import PAIRWISE
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.pipelines.options.store_agents_options import ExplainAgentsOptions

READERS = (1, 5, 50)
"""Readers who pool what they received of one agent."""
SCHEDULES = {
    "round_robin": "at each of its samples an agent queries its next partner",
    "restricted_round_robin": "at each of its samples an agent queries the next of its class",
}


def explained_pairs(options: ExplainAgentsOptions, *, registry: bool) -> dict[str, Any] | None:
    """Give the facts of agents that query each other; None if options or store are of others."""
    from meanstream.pipelines.options.store_settings import pairs_of_store

    # A store knows how many agents could pool; options do not.
    pairs = pairs_of_store(options.store) if options.of_store else None
    if pairs is None and (options.of_store or options.schedule not in PAIRWISE):
        return None

    if registry:
        raise BadOption(
            "registry must be left out where agents query each other: each release is for one "
            "reader; add --json for all facts"
        )

    if pairs is not None:
        return explain_pairs_facts(*pairs)

    from meanstream.pipelines.options.pairwise_options import pairwise_options

    with refusing_options():
        return explain_pairs_facts(pairwise_options(options).settings)


def explain_pairs_facts(settings: Any, agents: int | None = None) -> dict[str, Any]:
    """Say what is protected towards one reader, what several readers learn, and who sees what.

    **Privacy.** A function of the settings and of the number of agents.
    """
    from meanstream.streaming.agents.pairwise.pairwise_deployment import pooled_epsilon

    release = settings.release
    odds = explain_odds_of_agents(release)
    everyone = [] if agents is None or agents < 2 else [agents - 1]
    readers = sorted({*READERS, *everyone})

    return {
        "answer": _answer(release, odds),
        "name": release.name,
        "mode": release.mode,
        "privacy_unit": release.privacy_unit,
        "neighboring": "two streams that differ in the value of one sample of one agent "
        "(replace-one)",
        # How much, for whom.
        "unit": _unit(release),
        "odds": odds,
        "public": "names of agents, numbers and times of their samples, validity of records",
        # By which mechanism, and when.
        "bounds": agents_bounds(release),
        "mechanism": agents_mechanism(settings.means),
        "releases": {
            "schedule": settings.schedule,
            "when": SCHEDULES[settings.schedule],
            "weights": settings.weights,
            "variance": settings.variance,
        },
        "total": {
            "epsilon": release.epsilon,
            "delta": release.delta,
            "epsilon_with_numerics": release.epsilon + release.numeric_slack,
            "over": "all releases of one agent to one reader, over the life of its stream",
        },
        "readers_who_pool": [
            {"readers": number, "epsilon": pooled_epsilon(settings, number)} for number in readers
        ],
        "who_sees_what": _who_sees_what(settings.schedule),
    }


def explain_pairs_text(facts: dict[str, Any]) -> str:
    """Write the same facts for reading."""
    total = facts["total"]
    releases = facts["releases"]
    pooled = ", ".join(
        f"{row['readers']}: {row['epsilon']:.4g}" for row in facts["readers_who_pool"]
    )
    lines = [
        *(f"{name.replace('_', ' '):<16}{said}" for name, said in facts["answer"].items()),
        explain_unit_name(facts["name"]),
        f"mode            {facts['mode']}",
        f"neighboring     {facts['neighboring']}",
        f"public          {facts['public']}",
        # Of one reader, and of several.
        f"total           ({total['epsilon']:g}, {total['delta']:g})-differential privacy: "
        f"{total['over']}",
        "                with rounding errors of float64, epsilon is at most "
        f"{total['epsilon_with_numerics']:.9g}",
        f"readers         epsilon by number of readers who pool what they received of one agent, "
        f"at delta {total['delta']:g}:",
        f"                {pooled}",
        # By which mechanism, and what becomes of it.
        *explain_unit_lines(facts["unit"], total["delta"]),
        *explain_odds_lines(facts["odds"]),
        *agents_bounds_lines(facts["bounds"]),
        *agents_mechanism_lines(facts["mechanism"], reader="its reader"),
        f"releases        {releases['schedule']}: {releases['when']}",
        f"collaboration   weighted mean of its class; weights {releases['weights']}, "
        f"variance {releases['variance']}",
        "who sees what",
        *(f"  {who:<26}{what}" for who, what in facts["who_sees_what"].items()),
    ]

    return "\n".join(lines) + "\n"


def _answer(release: Any, odds: dict[str, Any]) -> dict[str, str]:
    """Answer the three questions, towards one reader."""
    what, guess = CONTENTS["sample"]
    once, ten = (
        f"at most {100 * odds[name]:.1f} % of the time"
        for name in ("guessed_right", "guessed_right_several")
    )

    return {
        "protected": f"{what}, against each agent that queries its agent, even if it knows all "
        "other samples.",
        "how_much": f"({release.epsilon:g}, {release.delta:g}): from all that it received it "
        f"guesses {guess} {once}.",
        "ten_samples": f"If one person contributed ten samples: {ten}.",
    }


def _unit(release: Any) -> dict[str, Any]:
    """Say what several samples of one person cost; a pairwise schedule has no --per-person."""
    unit = explain_unit_facts(release)
    multiplied, *_ = unit["many_samples"]
    return unit | {"many_samples": [multiplied.rstrip(";")]}


def _who_sees_what(schedule: str) -> dict[str, str]:
    """Say who sees what; who was queried how often depends on values under one of the schedules."""
    counts = "and how many releases there were" if schedule == "round_robin" else "no more"
    return {
        "the engine and its store": "raw samples while they are processed, sums, all releases",
        "an agent": "its own estimate and its class, made of its samples and of what it received",
        "a partner": "nothing of a query: it does not see who queries it",
        "everyone": f"numbers of samples, redacted dead letters, {counts}; no release",
    }
