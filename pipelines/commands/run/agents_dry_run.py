"""`--dry-run`: everything a run needs is looked at, nothing is read or written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meanstream.operators.collaboration.shares.asked_shares import query_labels
from meanstream.pipelines.commands.run.checks import check_agents, refusing_to_open
from meanstream.pipelines.commands.run.opening import check_opened_source
from meanstream.pipelines.options.agent_side import AgentSideOptions
from meanstream.pipelines.options.base import OPTION_OF, option_environment, print_options_json
from meanstream.streaming.agents.agents_budget import agents_budgets
from meanstream.streaming.store.deployment_store import check_deployment

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings


def dry_run_agents(options: AgentSideOptions) -> None:
    """Refuse what a run would refuse.

    Otherwise say what it would run on, and what is left of the budget.
    """
    settings = check_agents(options)
    facts: dict[str, Any] = {"source": options.source, "store": _store(options, settings)}
    lateness = options.lateness_in_force()
    facts["lateness"] = f"{lateness.text}: {lateness.why}"

    if (refresh := options.refresh_in_force()) is not None:
        first = refresh.first_due(lateness.text)
        facts["refresh"] = f"{refresh.text}: {refresh.why}; first estimates {first}"

    facts.update({OPTION_OF.get(role, role): place for role, place in options.sinks.items()})
    facts["privacy"] = {
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "horizon": settings.most_releases,
    } | ({} if settings.per_person is None else {"per_person": settings.per_person})
    facts["memory"] = settings.memory

    if settings.histogram_share:
        asked = query_labels(options.asked_quantiles, settings.exceeds)
        facts["shares"] = (
            f"{', '.join(asked) or 'nothing'}, of {settings.histogram_share:g} of the budget"
        )

    dry_run_facts(facts, dry_run_fact_text, as_json=options.json)


def dry_run_facts(facts: dict[str, Any], told: Callable[[Any], str], *, as_json: bool) -> None:
    """Print what was found, a line each."""
    if as_json:
        print_options_json(facts)
        return

    width = max(map(len, facts))
    for name, fact in facts.items():
        sys.stdout.write(f"{name:<{width}}  {told(fact)}\n")

    sys.stdout.write("Everything is there; nothing was read or written.\n")


def dry_run_name(fact: dict[str, Any]) -> str:
    """Say which deployment it is: the name that is given or kept, or that a store will make."""
    if fact["name"] is not None:
        return f"deployment {fact['name']!r}"
    return "deployment of a new name of its own"


def _store(options: AgentSideOptions, settings: AgentsSettings) -> dict[str, Any]:
    """Tell what a store would go on with."""
    place = {"path": str(options.store), "name": settings.name}
    with refusing_to_open():
        if not check_deployment(
            options.store, settings, environment=option_environment(options.secret_file)
        ):
            return {**place, "agents": 0}

        place["name"] = check_opened_source(options)
        return {**place, **asdict(agents_budgets(options.store).summary)}


def dry_run_fact_text(fact: Any) -> str:
    """Say a fact in words."""
    if not isinstance(fact, dict):
        return str(fact)

    if "epsilon" in fact:
        whom = (
            f"all samples of a person, at most {fact['per_person']},"
            if "per_person" in fact
            else "each sample's value,"
        )
        many = "the releases" if fact["horizon"] is None else f"at most {fact['horizon']} releases"
        end = ", which have no end" if fact["horizon"] is None else ""

        return f"({fact['epsilon']:g}, {fact['delta']:g}) for {whom} over {many} of its agent{end}"

    if not fact["agents"]:
        return f"{fact['path']}, which will begin; {dry_run_name(fact)}"
    goes_on = (
        f"{fact['path']}, {dry_run_name(fact)}, which continues with {fact['agents']:,} agents"
    )

    if fact["horizon"] is None:
        return f"{goes_on}: at most {fact['spent_max']} releases each so far, without end"
    return (
        f"{goes_on}: at most {fact['spent_max']} of {fact['horizon']} releases spent, "
        f"{fact['at_horizon']:,} at their horizon"
    )
