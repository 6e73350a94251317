"""Which estimates and stage results a store of rounds has written.

Those of rounds that it has charged.
"""

from __future__ import annotations

import msgspec

from meanstream.streaming.engine.own_events import Key, OwnEvents, own_event_keys
from meanstream.streaming.events.unreadable import UNREADABLE
from meanstream.streaming.store.state_store import Store


class _OfRound(msgspec.Struct):
    round_id: str


_OF_ROUND = msgspec.json.Decoder(_OfRound)


def _round_key(line: bytes) -> Key | None:
    """Tell the round of an event; None if the line is none of a round.

    Examples
    --------
    >>> _round_key(b'{"round_id":"delays/2013","value":6.5}'), _round_key(b'a note of somebody else')
    (('delays/2013',), None)
    """
    try:
        return (_OF_ROUND.decode(line).round_id,)
    except UNREADABLE:
        return None


def _knows_rounds(store: Store, since: int, keys: set[Key]) -> bool:
    keys = keys - own_event_keys((line for _, _, line in store.outbox()), _round_key)
    return any(keys <= own_event_keys(store.ledger.after(seq), _round_key) for seq in (since, 0))


OWN_ANSWERS = (
    OwnEvents(role="means", option="sink", key=_round_key, knows=_knows_rounds),
    OwnEvents(role="stages", option="stages", key=_round_key, knows=_knows_rounds),
)
"""Of the sinks of rounds, besides reports."""
