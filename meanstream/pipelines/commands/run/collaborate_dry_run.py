"""`run collaborate --dry-run`: releases, store and sinks are looked at, nothing is received or written."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meanstream.pipelines.commands.run.agents_dry_run import dry_run_facts, dry_run_told
from meanstream.pipelines.commands.run.checks import refusing_to_open
from meanstream.pipelines.options.base import OPTION_OF

if TYPE_CHECKING:
    from meanstream.pipelines.commands.run.run_collaborate import Collaboration
    from meanstream.pipelines.options.collaborate_options import CollaborateOptions


def dry_run_collaboration(options: CollaborateOptions, made: Collaboration) -> None:
    """Refuse what a run would refuse; otherwise say what it would answer, from what."""
    from meanstream.streaming.agents.agents_budget import agents_budgets

    with refusing_to_open():
        made.open_releases().close()
        store = {"place": str(made.store), "name": made.settings.name, **asdict(agents_budgets(made.store).summary)}
    facts: dict[str, Any] = {"releases": made.releases, "store": store}
    facts.update({OPTION_OF.get(role, role): place for role, place in options.sinks.items()})
    facts |= {"refresh": options.refresh, "privacy": "nothing is spent: estimates are made of releases that are there"}
    dry_run_facts(facts, dry_run_told, as_json=options.json)
