"""The options of a pairwise schedule: which have a meaning, and the settings that they make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.operators.agents.agents_settings import MAX_HORIZON
from meanstream.operators.limits import MAX_AGENTS
from meanstream.operators.rings import ring_module
from meanstream.operators.validation import require
from meanstream.streaming.agents.pairwise.pairwise_deployment import read_partners_file

if TYPE_CHECKING:
    from meanstream.pipelines.options.agents_options import AgentsOptions

WITHOUT = (
    "collaboration", "covariates", "quantiles", "exceeds", "histogram_share", "spread_share", "memory", "person",
    "per_person", "final_release", "releases", "population", "notices",
)  # fmt: skip
"""Options that say something of releases which everyone reads."""


@dataclass(frozen=True)
class Pairs:
    """A run of agents that query each other.

    Its settings, its options but for the schedule, its capacity, and the file of its partners.
    """

    settings: Any
    options: AgentsOptions
    capacity: int
    partners_file: Path | None


def pairwise_options(options: AgentsOptions) -> Pairs:
    """Check the options of a pairwise schedule.

    Raises
    ------
    ValueError
        Naming the option, the rule and the value.
    """
    # Options that have no meaning among pairs are refused, not ignored.
    for name in WITHOUT:
        value = getattr(options, name)
        require(value is None, name, f"be left out with --schedule {options.schedule}", str(value))

    # A counter of independent increments has room for any number of releases.
    counter = options.counter or "pm1"
    horizon = options.horizon or (
        MAX_HORIZON if counter == "pm1" else None
    )  # of pm1 it costs nothing
    plain = replace(
        options, schedule="preferred:10", weights=None, variance=None, partners=None, collaboration="tests",
        counter=counter, horizon=horizon, spread_share=0.0,
    )  # fmt: skip

    settings = ring_module("lab.papers.colme.pairwise_stream_settings").PairwiseStreamSettings(
        release=plain.settings(),
        schedule=options.schedule,
        weights=options.weights or "last",
        variance=options.variance or "",
        stddev=options.stddev,
        partners=None if options.partners is None else read_partners_file(options.partners),
    )

    # The state grows with pairs of agents: their number is bounded.
    most_agents = settings.most_agents

    max_agents = options.max_agents
    rule = f"be at most {most_agents} with --schedule {options.schedule}, or come with --partners"
    require(
        most_agents is None or max_agents <= most_agents or max_agents == MAX_AGENTS,
        "max_agents",
        rule,
        max_agents,
    )
    capacity = max_agents if most_agents is None else min(max_agents, most_agents)

    return Pairs(settings, replace(plain, max_agents=capacity), capacity, options.partners)
