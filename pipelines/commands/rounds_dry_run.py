"""`run rounds --dry-run`: everything a run needs is looked at, nothing is read or written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.commands.dry_run import tell
from pipelines.commands.hosting import OPTION_OF, opening
from pipelines.commands.options import environment_of
from pipelines.commands.rounds_options import RoundsOptions
from pipelines.commands.run_rounds import check_options

if TYPE_CHECKING:
    from streaming.rounds.settings import RoundsSettings


def dry_run(options: RoundsOptions) -> None:
    """Refuse what a run would refuse; otherwise say what it would run on, and what is left of the budgets."""
    settings = check_options(options)
    facts: dict[str, Any] = {"source": options.source, "store": _store(options, settings)}
    facts.update({OPTION_OF.get(role, role): place for role, place in options.sinks.items()})
    facts["privacy"] = {"epsilon": settings.epsilon, "window": settings.window, "user_budget": settings.user_budget}
    tell(facts, _told, as_json=options.json)


def _store(options: RoundsOptions, settings: RoundsSettings) -> dict[str, Any]:
    """Tell what a store would go on with."""
    from dataclasses import asdict

    from streaming.rounds.budget import rounds_budgets
    from streaming.rounds.deployment import check_rounds_store

    place = {"place": str(options.store)}
    with opening():
        if not check_rounds_store(options.store, settings, environment=environment_of(options.secret_file)):
            return {**place, "users": 0}
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
        return f"{fact['place']}, which will begin"
    return (
        f"{fact['place']}, which goes on with {fact['users']:,} users: at most epsilon {fact['spent_max']:g} spent, "
        f"{fact['at_budget']:,} cannot pay for another report"
    )
