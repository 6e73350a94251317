"""A delivery that a cluster has already and that is written a second time, because the store does not know."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from meanstream.streaming.events.base import Event
from meanstream.streaming.events.wire import EVENTS, PersonalEstimate, Population
from meanstream.streaming.kafka.writing.marker import Place, Written, WrittenTally

COMPUTED: frozenset[type[Event]] = frozenset({PersonalEstimate, Population})
"""Computed from the committed state when they are written; everything else is stored and comes
again byte for byte."""

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Events of one type for one topic; `values`, `keys` and `headers` have one entry per record.

    What stands before each value is no part of the event: a registry that was made again may give
    its schema another id.
    """

    topic: str
    kind: type[Event]
    values: Sequence[bytes]
    keys: Sequence[str | None]
    headers: Sequence[Headers]
    head: bytes = b""

    def rows(self) -> Iterator[tuple[bytes, str | None, Headers]]:
        """Give value, key and headers of each record as they are sent."""
        for value, key, headers in zip(self.values, self.keys, self.headers, strict=True):
            yield self.head + value, key, headers


class Mismatch(Exception):  # noqa: N818 - says what is wrong, the caller raises the error
    """What is written again is not what was written before."""


class Repeat:
    """Takes the records of a delivery that was committed before, and tells which of them are new after all.

    New are records for a topic that was not written to before, and estimates that other options
    made different.

    Parameters
    ----------
    before : mapping
        What the delivery had written, from its marker.
    """

    def __init__(self, before: Mapping[Place, Written]) -> None:
        self.before = before
        self._taken: list[Records] = []
        self._tally = WrittenTally()

    def take(self, records: Records) -> None:
        """Keep records until all are there."""
        self._taken.append(records)
        self._tally.add(records.topic, records.kind, records.values)

    def rest(self, topics: Collection[str]) -> list[Records]:
        """Give the records that are new."""
        now = self._tally.written()
        for place, what in self.before.items():
            stored = EVENTS.get(place[1]) not in COMPUTED
            if place[0] in topics and stored and now.get(place) != what:
                raise Mismatch(place[0])

        return [r for r in self._taken if self.before.get(p := (r.topic, r.kind.topic)) != now[p]]
