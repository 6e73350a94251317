"""`--dry-run`: everything a run needs is looked at, nothing is read or written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipelines.commands.agents_options import AgentSideOptions
from pipelines.commands.hosting import OPTION_OF, check_options, opening
from pipelines.commands.options import environment_of, print_json

if TYPE_CHECKING:
    from operators.agents import AgentsSettings


def dry_run(options: AgentSideOptions) -> None:
    """Refuse what a run would refuse; otherwise say what it would run on, and what is left of the budget."""
    settings = check_options(options)
    facts: dict[str, Any] = {"source": options.source, "store": _store(options, settings)}
    facts.update({OPTION_OF.get(role, role): place for role, place in options.sinks.items()})
    facts["privacy"] = {"epsilon": settings.epsilon, "delta": settings.delta, "horizon": settings.horizon}
    tell(facts, _told, as_json=options.json)


def tell(facts: dict[str, Any], told: Callable[[Any], str], *, as_json: bool) -> None:
    """Print what was found, a line each."""
    if as_json:
        print_json(facts)
        return
    width = max(map(len, facts))
    for name, fact in facts.items():
        sys.stdout.write(f"{name:<{width}}  {told(fact)}\n")
    sys.stdout.write("Everything is there; nothing was read or written.\n")


def _store(options: AgentSideOptions, settings: AgentsSettings) -> dict[str, Any]:
    """Tell what a store would go on with."""
    from dataclasses import asdict

    from streaming.budget import budgets
    from streaming.deployment import check_deployment

    place = {"place": str(options.store)}
    with opening():
        if not check_deployment(options.store, settings, environment=environment_of(options.secret_file)):
            return {**place, "agents": 0}
        return {**place, **asdict(budgets(options.store).summary)}


def _told(fact: Any) -> str:
    if not isinstance(fact, dict):
        return str(fact)
    if "epsilon" in fact:
        return (
            f"({fact['epsilon']:g}, {fact['delta']:g}) for each sample's value, over at most {fact['horizon']} releases"
            " of its agent"
        )
    if not fact["agents"]:
        return f"{fact['place']}, which will begin"
    return (
        f"{fact['place']}, which goes on with {fact['agents']:,} agents: at most {fact['spent_max']} of "
        f"{fact['horizon']} releases spent, {fact['at_horizon']:,} at their horizon"
    )
