"""The records of a source that were read and not used.

The store remembers them, so that a replay counts each once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from meanstream.operators.agents.admission import UNCOUNTED
from meanstream.operators.records import Ints
from meanstream.streaming.engine.keepers import Commit, Keeper
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.store.state_store import Store

_log = logging.getLogger("meanstream.engine")

MAX_NOTED = 1 << 20
"""So many records of a source at most are noted, 8 MiB; a replay does not find what is rejected
after them."""

PIECE = 1024
"""Positions in a row of the store; the newest row is written again until it is full."""

COUNTED = "duplicate"
"""A record that was rejected for this reason repeats one that was counted: nothing is left to be
used."""

FINAL = frozenset({COUNTED, "forgotten", "other_store", *UNCOUNTED.values()})
"""Reasons for which a record is never used here; those of a person's limit are found when its turn
comes, for good."""


class UnusedRecords(Keeper[Any]):
    """Notes in each commit of an engine which records of its source were not used, and may be used one day.

    A place of dead letters may be another store's, and anyone may have written to it. This store's
    own note decides: what it did not note as unused it has counted, or has yet to read, and a
    replay must not count it.

    **Privacy.** Positions of records that were not used are public facts. That a replay counts nothing twice is part
    of the guarantee: a sample that counts twice moves a sum by twice the sensitivity.

    Parameters
    ----------
    store : Store
        Opened for writing; for reading, if only `positions` is called.
    source : str
        Name of the source.
    """

    def __init__(self, store: Store, source: str) -> None:
        self._store = store
        self._kind = f"unused {source}"
        self._piece: int | None = None
        self._newest: list[int] = []
        self._told = False

    def positions(self) -> Ints:
        """Give the positions of all records that are unused so far, in order."""
        pieces = [columns["position"] for _, columns in self._store.chunks(self._kind)]
        return np.sort(np.concatenate([np.zeros(0, np.int64), *pieces]))

    def post(self, commit: Commit[Any]) -> Iterable[EventLines]:
        """Note them after their letters, which are events of others."""
        self.put(commit.rejects)
        return ()

    def put(self, rejects: Rejects) -> None:
        """Note the rejected records of a batch, within the transaction of its commit."""
        fresh = _unused(rejects)
        for first in range(0, len(fresh), PIECE):
            self._add(fresh[first : first + PIECE])

    def _add(self, positions: list[int]) -> None:
        if self._piece is None:
            self._piece = (
                self._store.state(self._kind) or 0
            )  # rows of an earlier run are full enough

        if len(self._newest) + len(positions) > PIECE:
            self._piece, self._newest = self._piece + 1, []

        if self._piece >= MAX_NOTED // PIECE:
            if not self._told:
                _log.warning(
                    "rejected records are no longer noted for a replay", extra={"noted": MAX_NOTED}
                )

            self._told = True
            return

        self._newest = self._newest + positions
        self._store.put_chunk(
            self._kind, self._piece, {"position": np.array(self._newest, np.int64)}
        )
        self._store.put_state(self._kind, self._piece + 1)


class ReplayedRecords(UnusedRecords):
    """Removes from the note, in each commit of a replay, the records that were given to the engine and are used now."""

    def __init__(self, store: Store, source: str) -> None:
        super().__init__(store, source)
        self._left = {number: columns["position"] for number, columns in store.chunks(self._kind)}
        self._given: Ints = np.zeros(0, np.int64)

    def give(self, positions: Ints) -> None:
        """Tell which records the next commit is about."""
        self._given = positions

    def put(self, rejects: Rejects) -> None:
        """Remove what was given and not rejected again, within the transaction of the commit."""
        used = np.setdiff1d(self._given, np.array(_unused(rejects), np.int64))
        for number, positions in list(self._left.items()):
            left = positions[~np.isin(positions, used)]
            if not len(left):
                self._store.drop_chunks(self._kind, [number])
                del self._left[number]
            elif len(left) < len(positions):
                self._store.put_chunk(self._kind, number, {"position": left})
                self._left[number] = left


def _unused(rejects: Rejects) -> list[int]:
    """List the positions of records that are still to be used."""
    return [
        at for at, why in zip(rejects.position, rejects.reason, strict=True) if why not in FINAL
    ]
