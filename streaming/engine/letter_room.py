"""Room for dead letters: rejected records without end fill no disk."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.engine.keepers import Commit, Keeper
from meanstream.streaming.events.encode import EventLines, encode_columns_as_lines
from meanstream.streaming.events.event_columns import (
    Rejects,
    column_partitions,
    column_positions,
    topic_partition,
)
from meanstream.streaming.events.wire import DeadLetter, PrivateDeadLetter
from meanstream.streaming.store.state_store import Store

_log = logging.getLogger("meanstream.engine")

_KIND = "dead letters"
LetterKind = type[DeadLetter] | type[PrivateDeadLetter]


class LetterRoom(Keeper[Any]):
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
    source : str
        Name of the source.
    asked : bool
        Whether anyone is told: otherwise no letter is made, and none takes room.
    kind : type of event
        A public kind of letters is full in a line of the log; a private one in none, as the number
        of rejected records is private.

    Notes
    -----
    **Privacy.** That the room is full tells how many records were rejected, which is public for agents and private for
    rounds.
    """

    def __init__(
        self,
        store: Store,
        most: int,
        stats: EngineStats,
        source: str,
        *,
        asked: bool,
        kind: LetterKind = DeadLetter,
    ) -> None:
        self._store = store
        self._most = most
        self._stats = stats
        self._source = source
        self._asked = asked
        self._kind = kind
        self._warns = kind is DeadLetter
        self._used: int | None = None

    def post(self, commit: Commit[Any]) -> Iterable[EventLines]:
        """Give the letters that there is room for."""
        return [dead_letter_lines(self._admit(commit.rejects), self._source, self._kind)]

    def count(self, commit: Commit[Any]) -> None:
        """Count what was rejected, by reason."""
        self._stats.rejected.update(commit.rejects.reason)

    def _admit(self, rejects: Rejects) -> Rejects:
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


def dead_letter_lines(rejects: Rejects, source: str, kind: LetterKind = DeadLetter) -> EventLines:
    """Tell which records were not used and why."""
    position = np.array(rejects.position, np.int64)
    places = [topic_partition(source, number) for number in column_partitions(position).tolist()]
    columns: dict[str, Any] = {
        "reason": rejects.reason,
        "partition": [partition for _, partition in places],
        "position": column_positions(position).tolist(),
        "size": rejects.size,
    }

    if any(name != source for name, _ in places):  # several topics
        columns["source"] = [name for name, _ in places]

    return encode_columns_as_lines(kind, columns, {"source": source})
