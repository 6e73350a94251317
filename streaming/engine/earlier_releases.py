"""What left before an older copy of the store was put back: what is made again must be the same.

**Privacy.** Another value under the same id would be a second look at the same samples under the
same noise: their difference would show the difference of the raw sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from meanstream.operators.validation import printable
from meanstream.streaming.engine.own_events import Key, OwnEvents
from meanstream.streaming.sinks.sink_protocol import Remembers, Sinks
from meanstream.streaming.store.source_identity import OLDER_COPY
from meanstream.streaming.store.state_store import Store, StoreError

_STATE = "earlier_releases"
_DIGEST = 16  # bytes, of ids and of lines


def note_earlier_releases(store: Store, sinks: Sinks, charged: OwnEvents) -> None:
    """Note what the sink of charged events holds that an older copy has not charged.

    Nothing is noted for another store.

    Files are cut back afterwards, and a process may die: so it is kept in the store.
    """
    sink = getattr(sinks, charged.role)
    if not store.state(OLDER_COPY) or not isinstance(sink, Remembers):
        return

    note = store.state("delivered")
    position = None if note is None else note["sinks"].get(charged.role)
    left = dict(store.state(_STATE) or {})

    for line in sink.later(position):
        key = charged.key(line)
        if key is not None:
            left[_digest(repr(key).encode())] = _digest(line)

    with store.transaction():
        store.put_state(_STATE, left)


class EarlierReleases:
    """Charged events that left before an older copy was put back, until all were made again."""

    def __init__(self, store: Store, charged: OwnEvents) -> None:
        self._charged = charged
        self._left: dict[str, str] = dict(store.state(_STATE) or {})
        if not self._left:
            return

        made = {_digest(repr(key).encode()) for key in self._keys(store.ledger.after(0))}
        if made.issuperset(self._left):
            with store.transaction():
                store.put_state(_STATE, {})
            self._left = {}

    def require_same(self, lines: Iterable[bytes]) -> None:
        """Refuse a charged event that left before with another value; call before it is charged."""
        if not self._left:
            return

        for line in lines:
            key = self._charged.key(line)
            if key is None:
                continue

            left = self._left.get(_digest(repr(key).encode()))
            if left is not None and left != _digest(line):
                raise StoreError(
                    f"{self._charged.option} must be made again as they left, got another value of "
                    f"{printable(key[0] or key[1])}: the older copy must read the same input; "
                    "stop using it and begin a new deployment"
                )

    def _keys(self, lines: Iterable[bytes]) -> Iterable[Key]:
        return (key for line in lines if (key := self._charged.key(line)) is not None)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST).hexdigest()
