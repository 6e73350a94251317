"""Room for dead letters: rejected records without end fill no disk."""

from __future__ import annotations

import logging

from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.store.state_store import Store

_log = logging.getLogger("meanstream.engine")

_KIND = "dead letters"


class LetterRoom:
    """Lets that many rejected records of a store, the first ones, be told one by one.

    The rest are counted only.

    The number is that of all letters that the store has ever posted, replays included; it is kept
    in the store. With a greater limit a later run goes on to tell.

    Parameters
    ----------
    store : Store
        Opened for writing.
    most : int
        The greatest number.
    stats : EngineStats
        Counts those that are not told (`letters_unwritten`).
    asked : bool
        Whether anyone is told: otherwise no letter is made, and none takes room.
    warns : bool
        Whether one line of the log says that the room is full; where the number of rejected records
        is private, none.

    Notes
    -----
    **Privacy.** That the room is full tells how many records were rejected, which is public for agents and private for
    rounds.
    """

    def __init__(
        self, store: Store, most: int, stats: EngineStats, *, asked: bool, warns: bool
    ) -> None:
        self._store = store
        self._most = most
        self._stats = stats
        self._asked = asked
        self._warns = warns
        self._used: int | None = None

    def admit(self, rejects: Rejects) -> Rejects:
        """Give those that are told, within the transaction of the commit that posts them."""
        if not self._asked or not len(rejects):
            return Rejects()

        if self._used is None:
            self._used = int(self._store.state(_KIND) or 0)

        told = rejects.part(0, max(self._most - self._used, 0))
        if len(told):
            self._used += len(told)
            self._store.put_state(_KIND, self._used)

        left = len(rejects) - len(told)
        self._stats.letters_unwritten += left

        if left and self._warns:
            _log.warning(
                "dead letters are full: records are counted only",
                extra={"max_dead_letters": self._most},
            )
            self._warns = False

        return told
