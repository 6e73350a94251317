"""`run rounds --dry-run`: everything a run needs is looked at, nothing is read or written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meanstream.pipelines.commands.run.agents_dry_run import dry_run_facts, dry_run_name
from meanstream.pipelines.commands.run.checks import check_rounds, refusing_to_open
from meanstream.pipelines.commands.run.opening import check_opened_source
from meanstream.pipelines.options.base import OPTION_OF, option_environment
from meanstream.pipelines.options.rounds_options import RoundsOptions

if TYPE_CHECKING:
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings


def dry_run_rounds(options: RoundsOptions) -> None:
    """Refuse what a run would refuse; otherwise say what it would run on, and what is left of the budgets."""
    settings = check_rounds(options)
    facts: dict[str, Any] = {"source": options.source, "store": _store(options, settings)}
    lateness = options.lateness_in_force()
    facts["allowed_lateness"] = f"{lateness.text}: {lateness.why}"
    facts.update({OPTION_OF.get(role, role): place for role, place in options.sinks.items()})
    facts["privacy"] = {"epsilon": settings.epsilon, "window": settings.window, "user_budget": settings.user_budget}
    dry_run_facts(facts, _told, as_json=options.json)


def _store(options: RoundsOptions, settings: RoundsSettings) -> dict[str, Any]:
    """Tell what a store would go on with."""
    from dataclasses import asdict

    from meanstream.streaming.rounds.rounds_budget import rounds_budgets
    from meanstream.streaming.rounds.rounds_deployment import check_rounds_deployment

    place = {"place": str(options.store), "name": settings.name}
    with refusing_to_open():
        if not check_rounds_deployment(options.store, settings, environment=option_environment(options.secret_file)):
            return {**place, "users": 0}
        place["name"] = check_opened_source(options)
        return {**place, **asdict(rounds_budgets(options.store).summary)}


def _told(fact: Any) -> str:
    if not isinstance(fact, dict):
        return str(fact)
    if "window" in fact:
        limit = (
            "no limit over all windows" if fact["user_budget"] is None else f"at most {fact['user_budget']:g} in all"
        )
        return f"epsilon {fact['epsilon']:g} for all that a user sends in a window of {fact['window']}, {limit}"
    if not fact["users"]:
        return f"{fact['place']}, which will begin; {dry_run_name(fact, begun=0)}"
    return (
        f"{fact['place']}, {dry_run_name(fact, begun=fact['users'])}, "
        f"which continues with {fact['users']:,} users: at most epsilon {fact['spent_max']:g} spent, "
        f"{fact['at_budget']:,} cannot pay for another report"
    )
