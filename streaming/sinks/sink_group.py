"""The sinks of a run, one for each role."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import PersonalEstimate
from meanstream.streaming.sinks.sink_protocol import (
    Hears,
    Sink,
    SinkPosition,
    Waits,
    check_sink_trust,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """Where the events of each role go.

    A role without a sink is not written (its events are counted all the same).

    Attributes
    ----------
    releases : Sink, optional
        Public: releases.
    estimates : Sink, optional
        Private: personal estimates.
    population : Sink, optional
        Public: the fitted population.
    dead_letters : Sink, optional
        Records that were not used: public for agents, private for rounds.
    notices : Sink, optional
        Public: agents at their horizon, refused releases; users whose budget does not pay for a
        round.
    reports : Sink, optional
        Public: users' reports in rounds; or whom a trusted curator charged.
    stages : Sink, optional
        Public: what the stages of rounds found.
    means : Sink, optional
        Public: the estimate of each window.
    """

    releases: Sink | None = None
    estimates: Sink | None = None
    population: Sink | None = None
    dead_letters: Sink | None = None
    notices: Sink | None = None
    reports: Sink | None = None
    stages: Sink | None = None
    means: Sink | None = None

    def __post_init__(self) -> None:
        if self.estimates is not None:
            check_sink_trust(self.estimates.trust, PersonalEstimate)  # before anything is read

    def write(self, role: str, events: EventLines) -> None:
        """Give events to the sink of a role."""
        sink: Sink | None = getattr(self, role)
        if sink is not None and len(events):
            sink.write(events)

    def while_waiting(self, call: Callable[[], None]) -> None:
        """Have something done about once a second while a sink waits until it can be written to."""
        for _, sink in self._open():
            if isinstance(sink, Waits):
                sink.while_waiting(call)

    def hear(self) -> None:
        """Let the sinks take what their clients have to say."""
        for _, sink in self._open():
            if isinstance(sink, Hears):
                sink.hear()

    def opened(self) -> tuple[Sink, ...]:
        """Give the sinks that there are."""
        return tuple(sink for _, sink in self._open())

    def flush(self) -> None:
        """Make everything durable."""
        for sink in {id(sink): sink for _, sink in self._open()}.values():
            sink.flush()

    def positions(self) -> dict[str, SinkPosition]:
        """Tell how far each sink is flushed."""
        return {role: sink.position() for role, sink in self._open()}

    def restore(self, positions: Mapping[str, SinkPosition]) -> None:
        """Take back what was written after the positions."""
        for role, sink in self._open():
            if role in positions:
                sink.restore(positions[role])

    def close(self) -> None:
        """Close all."""
        for sink in {id(sink): sink for _, sink in self._open()}.values():
            sink.close()

    def _open(self) -> Iterator[tuple[str, Sink]]:
        for field in fields(self):
            sink = getattr(self, field.name)
            if sink is not None:
                yield field.name, sink
