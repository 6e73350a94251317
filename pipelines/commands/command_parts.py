"""The parts of the command `meanstream`: where each is, and the line that lists it, without importing any."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

_GROUP = "app"


@dataclass(frozen=True, slots=True)
class _Part:
    """A command or a group of commands."""

    module: str
    """Below this folder, or `lab:` and the module below `meanstream.lab`."""
    line: str
    """What its own help begins with."""
    name: str = _GROUP

    @property
    def is_group(self) -> bool:
        """Whether it has commands below it."""
        return self.name == _GROUP

    def loaded(self) -> Any:
        """Import it."""
        home, _, module = self.module.rpartition(":")
        package = f"meanstream.{home}" if home else __package__
        return getattr(import_module(f"{package}.{module}"), self.name)


PARTS = {
    "budget": _Part(
        "state.budget_command",
        "Show the budget of each agent: spent, left, when it ends.",
        "budget",
    ),
    "get": _Part(
        "state.get_command",
        "Show the newest estimate of an agent, the difference of two, or the agents with the highest means.",
        "get",
    ),
    "init": _Part(
        "init_command",
        "Write a configuration file with all options of a run.",
        "init",
    ),
    "report": _Part(
        "report.command",
        "Write charts and the privacy promise into one HTML file.",
        "report",
    ),
    "schema": _Part(
        "schema_command", "Print the JSON Schema of an event type or of an options file.", "schema"
    ),
    "mcp": _Part(
        "mcp_command",
        "Serve the public side of a store to an assistant (Model Context Protocol).",
        "mcp",
    ),
    "run": _Part("run.command", "Estimate from a stream of events."),
    "simulate": _Part("lab:simulate.command", "Simulate the errors of a configuration."),
    "theory": _Part(
        "lab:simulate.theory_command", "Compute expected errors and bounds without a simulation."
    ),
    "reproduce": _Part(
        "lab:reproduce.command", "Reproduce the figures of a paper, or of moving means."
    ),
    "explain": _Part(
        "explain.command",
        "Show what a configuration protects, before anything runs; or compare two.",
    ),
    "plan": _Part(
        "explain.plan_command", "Predict errors of agents or rounds before anything runs."
    ),
    "audit": _Part(
        "lab:audits.command",
        "Attack the running code for a lower bound on its privacy loss.",
    ),
    "dlq": _Part("state.dlq_command", "List, show and replay dead letters (rejected records)."),
    "ledger": _Part(
        "state.ledger_command", "Verify, sign, export and back up the ledger of releases."
    ),
    "secret": _Part(
        "state.secret_command", "Make keys for the noise and for signatures of a ledger."
    ),
    "store": _Part(
        "state.store_command",
        "Inspect, rename, merge and split stores, or erase an agent.",
    ),
    "demo": _Part(
        "lab:demo.command",
        "Replay flights of 2013: a private mean delay per aircraft.",
    ),
}
"""In the order of the list that `meanstream --help` shows."""
