"""What a sink holds that a store has not written.

Then the store is new, or an older copy, and does not go on.

**Privacy.** Going on would release the same data a second time, uncharged; an answer made of a second set of releases
or reports is such a release too, whether or not these go anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from meanstream.streaming.events.encode import UNREADABLE
from meanstream.streaming.sinks.sink_protocol import Remembers, SinkOnDisk, Sinks
from meanstream.streaming.store.source_identity import OLDER_COPY
from meanstream.streaming.store.state_store import Store

Key = tuple[Any, ...]
"""What an event is known by."""

Elsewhere = Callable[[Collection[str]], set[str]]
"""Says which of some agents live in another store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEvents:
    """How a store tells its own events in the sink of a role.

    Attributes
    ----------
    role : str
        Of the sink.
    option : str
        What names the sink, for messages.
    key : callable
        What a line is known by; None if it is no event of the role: someone else's text is left
        alone.
    knows : callable
        `knows(store, since, keys)` says whether the store has written all of them; those that it
        has not noted as delivered come of rows of its ledger after `since`, or of its outbox.
    named : bool
        Whether the events name their deployment: in a topic, which others write to, those of others
        are not distinguished otherwise, and only files and folders are looked at.
    """

    role: str
    option: str
    key: Callable[[bytes], Key | None]
    knows: Callable[[Store, int, set[Key]], bool]
    named: bool = True

    def require(self, store: Store, sinks: Sinks, elsewhere: Elsewhere | None = None) -> None:
        """Refuse a sink that holds events of its role that are neither of the store nor of agents of other stores."""
        sink = getattr(sinks, self.role)
        if not isinstance(sink, Remembers) or not (self.named or isinstance(sink, SinkOnDisk)):
            return
        note = store.state("delivered")
        position = None if note is None else note["sinks"].get(self.role)
        later = sink.later(position)
        keys = own_event_keys(
            later if elsewhere is None else _of_others_left_out(list(later), elsewhere), self.key
        )
        since = 0 if note is None or position is None else note["ledger"]

        if keys and not self.knows(store, since, keys):
            raise ValueError(
                f"{self.option} must hold nothing that this store has not charged, got other events in "
                f"{sink.place!r}: the store is new or an older copy; put its newest copy back, begin "
                "where nothing was released, or, for an older copy, see `meanstream store adopt --older-copy`"
            )


def require_own_events(
    store: Store, sinks: Sinks, own: Collection[OwnEvents], elsewhere: Elsewhere | None = None
) -> None:
    """Refuse sinks next to which a store must not begin or go on; call before anything is begun.

    Stores that read parts of one source may have one name and write to one topic: `elsewhere` says
    whose agents live in another of them.

    Someone may have said on record that the store is an older copy, and its input the same: then
    nothing is refused.
    """
    if not store.state(OLDER_COPY):
        for one in own:
            one.require(store, sinks, elsewhere)


def _of_others_left_out(lines: list[bytes], elsewhere: Elsewhere) -> list[bytes]:
    """Leave out what is of agents that live elsewhere."""
    agents = [_agent(line) for line in lines]
    others = elsewhere({agent for agent in agents if agent})
    return [line for line, agent in zip(lines, agents, strict=True) if agent not in others]


def own_event_keys(lines: Iterable[bytes], key: Callable[[bytes], Key | None]) -> set[Key]:
    """Give the keys of those lines that have one."""
    return {found for line in lines if (found := key(line)) is not None}


def own_charged_events(role: str) -> OwnEvents:
    """Tell events that are outputs of the ledger."""
    return OwnEvents(role=role, option=role, key=_charged_key, knows=_has_charged)


def _has_charged(store: Store, since: int, keys: set[Key]) -> bool:
    return any(keys <= own_event_keys(store.ledger.after(seq), _charged_key) for seq in (since, 0))


class _Charged(msgspec.Struct):
    release_id: str = ""
    round_id: str = ""
    user: str = ""
    stage: int = 0


class _Named(msgspec.Struct):
    agent: str = ""


_CHARGED = msgspec.json.Decoder(_Charged)
_NAMED = msgspec.json.Decoder(_Named)


def _agent(line: bytes) -> str:
    """Tell whose an event is; empty if it is no one's."""
    try:
        return _NAMED.decode(line).agent
    except UNREADABLE:
        return ""


def _charged_key(line: bytes) -> Key | None:
    """Tell what a line was charged under; None if it is no event that is charged.

    Examples
    --------
    >>> _charged_key(b'{"release_id":"lab/ann:2","n":20}'), _charged_key(b'{"round_id":"r","stage":0,"reports":9}')
    (('lab/ann:2', '', '', 0), None)
    """
    try:
        found = _CHARGED.decode(line)
    except UNREADABLE:
        return None

    key = (found.release_id, found.round_id, found.user, found.stage)

    if found.release_id or found.user:
        return key
    return None
