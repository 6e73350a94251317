"""The settings that a store was begun with, for commands that ask about its run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from meanstream.pipelines.options.option_errors import BadOption

if TYPE_CHECKING:
    from pathlib import Path

    from meanstream.operators.agents.agents_settings import AgentsSettings
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings


def settings_of_agents_store(path: Path) -> AgentsSettings:
    """Read the settings of a store of agents.

    Raises
    ------
    BadOption
        If there is no store, or none of agents.
    """
    from meanstream.streaming.agents.own_state import own_settings

    with _refusing_store():
        return own_settings(path)


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
