"""Doubles for tests of pipelines.

A source that follows a script, a clock that is set, sinks in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.event_columns import (
    Batch,
    Position,
    Rejects,
    SampleColumns,
    no_sample_columns,
)
from meanstream.streaming.sinks.sink_protocol import SinkPosition, Trust, check_sink_trust


class Script(Enum):
    """What a scripted source can do besides giving samples."""

    PAUSE = "pause"  # nothing is there for one call
    ABORT = "abort"  # the call dies, once


class Abort(Exception):  # noqa: N818 - it stands for a death, not for an error
    """The scripted source came to an ABORT."""


ScriptedSample = tuple[str, float, float]
"""Agent, value, event time in seconds."""


class ScriptedSource:
    """Gives samples one after the other, interrupted where the script says so.

    Parameters
    ----------
    script : sequence
        Samples, `Script.PAUSE` and `Script.ABORT`.
    ids : sequence of int, optional
        Keys of the samples, in their order, for duplicates.
    persons : sequence of int, optional
        Hashes of whose samples they are.
    bounded : bool
        Whether the source ends after the script, or waits for more. What is there at a moment
        (`hold`) ends at the next PAUSE.
    in_order : bool
        Whether the samples are in the order of event time.

    Examples
    --------
    >>> source = ScriptedSource([("ann", 1.0, 0.0), Script.PAUSE, ("bob", 2.0, 1.0)])
    >>> [len(source.next_batch(10).samples) for _ in range(3)]
    [1, 0, 1]
    """

    def __init__(
        self,
        script: Sequence[ScriptedSample | Script],
        *,
        ids: Sequence[int] | None = None,
        persons: Sequence[int] | None = None,
        bounded: bool = True,
        in_order: bool = False,
        name: str = "script",
    ) -> None:
        self.name = name
        self.bounded = bounded
        self.in_order = in_order
        self.script = list(script)
        self._ids = ids
        self._persons = persons
        self._at = self._end = 0
        self._names: list[str] = []

    def hold(self) -> bool:
        """Read on to the next interruption."""
        rest = range(self._at, len(self.script))
        self._end = next(
            (at for at in rest if isinstance(self.script[at], Script)), len(self.script)
        )

        return True

    def reached_hold(self) -> bool:
        """Say whether it was come to."""
        return self._at >= self._end

    def go_on(self) -> None:
        """Nothing was held back."""

    def next_batch(self, max_samples: int) -> Batch:
        """Give samples up to the next interruption."""
        if self._at < len(self.script) and isinstance(self.script[self._at], Script):
            if self.script[self._at] is Script.ABORT:
                self.script[self._at] = Script.PAUSE
                raise Abort

            self._at += 1
            return Batch(no_sample_columns(), Rejects(), {"at": self._at})

        taken: list[ScriptedSample] = []
        first = self._at

        while self._at < len(self.script) and len(taken) < max_samples:
            item = self.script[self._at]
            if isinstance(item, Script):
                break
            taken.append(item)
            self._at += 1

        return Batch(
            self._columns(taken, first),
            Rejects(),
            {"at": self._at},
            exhausted=self.bounded and not taken,
        )

    def restore(self, position: Position) -> None:
        """Continue in the script."""
        self._at = int(position["at"])

    def close(self) -> None:
        """Nothing is open."""

    def _columns(self, taken: list[ScriptedSample], first: int) -> SampleColumns:
        known = {name: code for code, name in enumerate(self._names)}
        for name, _, _ in taken:
            if name not in known:
                known[name] = len(self._names)
                self._names.append(name)

        before = sum(not isinstance(item, Script) for item in self.script[:first])
        ids, persons = (
            None if some is None else np.array(some[before : before + len(taken)], np.uint64)
            for some in (self._ids, self._persons)
        )

        return SampleColumns(
            self._names,
            np.array([known[name] for name, _, _ in taken], np.int64),
            np.array([value for _, value, _ in taken], np.float64),
            np.array([time for _, _, time in taken], np.float64),
            ids,
            np.arange(first + 1, first + 1 + len(taken)),
            persons,
        )


class SettableClock:
    """A clock that stands still until it is told to move; waiting moves it.

    Examples
    --------
    >>> clock = SettableClock(100.0)
    >>> clock.sleep(5)
    >>> clock.now()
    105.0
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def set(self, now: float) -> None:
        """Move to a time."""
        self._now = now

    def sleep(self, seconds: float) -> None:
        """Move on."""
        self._now += seconds


class MemorySink:
    """Keeps lines in a list; what was not flushed is lost when it is restored."""

    def __init__(self, *, trust: Trust) -> None:
        self.trust = trust
        self.lines: list[bytes] = []

    def write(self, events: EventLines) -> None:
        """Append lines."""
        check_sink_trust(self.trust, events.kind)
        self.lines += events.lines

    def flush(self) -> None:
        """Memory is as durable as it gets."""

    def position(self) -> SinkPosition:
        """Tell the number of lines."""
        return {"lines": len(self.lines)}

    def restore(self, position: SinkPosition) -> None:
        """Drop later lines."""
        del self.lines[position["lines"] :]

    def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class SettableConnection:
    """A connection for `EngineHealth.watch` whose problem is set.

    Attributes
    ----------
    client : str
        The option that named it.
    problem : str or None
        Why no one answers.
    watched : bool
        Whether everyone may know.
    """

    client: str
    problem: str | None = None
    watched: bool = True

    def connection_problem(self) -> str | None:
        """Give the problem."""
        return self.problem
