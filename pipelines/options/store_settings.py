"""The settings that a store was begun with, for commands that ask about its run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from meanstream.pipelines.options.option_errors import BadOption
from meanstream.pipelines.options.shared_options import BUDGET

if TYPE_CHECKING:
    from pathlib import Path

    from meanstream.operators.agents.agents_settings import AgentsSettings
    from meanstream.pipelines.options.agent_side import AgentSideOptions as _OfRun
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings
else:
    _OfRun = object


def settings_of_agents_store(path: Path) -> AgentsSettings:
    """Read the settings of a store of agents.

    Raises
    ------
    BadOption
        If there is no store, or none of agents.
    """
    from meanstream.streaming.agents.saved_agents import own_settings

    with _refusing_store():
        return own_settings(path)


def pairs_of_store(path: Path) -> tuple[Any, int] | None:
    """Read the settings of a store of agents that query each other, and how many agents it has.

    None if the store is of another kind.

    Raises
    ------
    BadOption
        If there is no store.
    """
    from meanstream.streaming.agents.pairwise.pairwise_deployment import pairs_settings_of_store

    with _refusing_store():
        return pairs_settings_of_store(path)


def settings_of_rounds_store(path: Path) -> RoundsSettings:
    """Read the settings of a store of rounds.

    Raises
    ------
    BadOption
        If there is no store, or none of rounds.
    """
    from meanstream.streaming.rounds.rounds_deployment import own_rounds_settings

    with _refusing_store():
        return own_rounds_settings(path)


@contextmanager
def _refusing_store() -> Iterator[None]:
    from meanstream.streaming.store.state_store import StoreError

    try:
        yield
    except StoreError as error:
        raise BadOption(str(error)) from None


class OfStore(_OfRun):
    """Options of a run that is asked about: its settings may be those of a store."""

    @property
    def of_store(self) -> bool:
        """Whether a store is named, and neither bounds nor a budget are given."""
        return "store" in self.said and self.said.isdisjoint(BUDGET)

    def settings(self) -> AgentsSettings:
        """Check the privacy part; or read it from the store."""
        if self.of_store:
            return settings_of_agents_store(self.store)
        return super().settings()
