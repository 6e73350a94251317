"""Which users of rounds live in a store, where several stores read parts of a topic.

No one is charged by two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meanstream.operators.records import Bools, Ints
from meanstream.streaming.sources.source_protocol import AgentsOfStore, Claims, Source
from meanstream.streaming.store.state_store import Store

_UNKNOWN, _OWN, _ELSEWHERE = range(3)


def users_of_store(store: Store, most: int) -> AgentsOfStore:
    """Tell a source that is shared which users live in the store: those whom it has charged.

    **Privacy.** Of others no one may know yet that they have sent something.
    """
    names = store.agents()
    spent = store.ledger.spent()
    charged = np.flatnonzero(spent[: len(names)] > 0).tolist()
    return AgentsOfStore(names=tuple(names[number] for number in charged), most=most, at_once=False)


class OwnUsers:
    """Says which users of an ended window take part here, and claims those of them who live nowhere yet.

    Parameters
    ----------
    source : Source
        Knows who lives in another store, if it is shared.

    Notes
    -----
    **Privacy.** Claimed is who takes part, when the window has ended, in the order of the reports: all of it is public
    then. That someone who lives elsewhere has sent something here is told to no one but the operator.
    """

    def __init__(self, source: Source) -> None:
        self._source = source if isinstance(source, Claims) else None
        self._fate = np.zeros(0, np.int8)  # by number

    @property
    def asks(self) -> bool:
        """Whether anyone may live in another store."""
        return self._source is not None

    def own(self, user: Ints, names: Sequence[str], *, patient: bool) -> Bools | None:
        """Say which users take part here; None if no one can say just now."""
        if self._source is None:
            return np.ones(len(user), np.bool_)
        self._fate = np.pad(self._fate, (0, len(names) - len(self._fate)))
        unknown = user[self._fate[user] == _UNKNOWN].tolist()

        if unknown:
            elsewhere = self._source.claim([names[number] for number in unknown], patient=patient)
            if elsewhere is None:
                return None
            self._fate[unknown] = [
                _ELSEWHERE if names[number] in elsewhere else _OWN for number in unknown
            ]

        return np.asarray(self._fate[user] == _OWN)
