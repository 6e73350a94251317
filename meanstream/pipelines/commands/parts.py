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
    """Below this folder."""
    line: str
    """What its own help begins with."""
    name: str = _GROUP

    @property
    def is_group(self) -> bool:
        """Whether it has commands below it."""
        return self.name == _GROUP

    def loaded(self) -> Any:
        """Import it."""
        return getattr(import_module(f"{__package__}.{self.module}"), self.name)


PARTS = {
    "budget": _Part(
        "state.budget",
        "Show every agent's releases made and left: "
        "the horizon is the budget, and all of it costs (epsilon, delta) once.",
        "budget",
    ),
    "get": _Part(
        "state.get",
        "Show an agent's newest estimate with its interval, its age and its budget, "
        "as the last commit of a store has it.",
        "get",
    ),
    "init": _Part(
        "init",
        "Write every option of a run as commented YAML: the required ones open, the others at their defaults.",
        "init",
    ),
    "report": _Part(
        "report.command",
        "Write pictures, what is protected and how, reliability and the commands "
        "into one file that refers to no other.",
        "report",
    ),
    "schema": _Part("schema", "Print the JSON Schema of an event type.", "schema"),
    "run": _Part("run.command", "Estimate from a stream of events."),
    "simulate": _Part("simulate.command", "Estimate by simulation what a configuration achieves."),
    "theory": _Part("simulate.theory", "Compute expected errors without a simulation."),
    "reproduce": _Part("reproduce.command", "Reproduce the figures of a paper, or our own picture of means that move."),
    "explain": _Part("explain.command", "Say what a configuration protects, before anything runs."),
    "plan": _Part("explain.plan", "Predict errors before anything runs; without a name, of rounds."),
    "audit": _Part(
        "audit.command",
        "Prove from below how private the code is that runs: claimed, proved, "
        "and the most that could have been proved.",
    ),
    "dlq": _Part("state.dlq", "Look at records that were not used (dead letters), and replay them."),
    "ledger": _Part("state.ledger", "Audit the ledger of releases, sign where it ends, and keep copies of it."),
    "secret": _Part("state.secret", "Make keys: of the noise, or to sign heads of a ledger with."),
    "store": _Part(
        "state.store",
        "Inspect, rename and split stores, and erase an agent from one.",
    ),
    "demo": _Part(
        "demo.agents",
        "Replay the flights that left New York in 2013; give every aircraft its own private mean departure delay.",
    ),
}
"""In the order of the list that `meanstream --help` shows."""
