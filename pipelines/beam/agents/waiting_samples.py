"""What waits in the state of a key until its window has ended.

A window is overtaken where a later one has ended, too, before its turn has come: by a backlog, or
in a bounded input. Then both have one turn. A key puts off its turn once, up to the newest window
that is known to have ended by then, and never again before it has had it: so nothing waits for ever
behind windows that keep coming.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np
from apache_beam.utils.timestamp import Timestamp

from meanstream.pipelines.beam.agents.agents_coders import (
    ForShardCoder,
    pack_for_coder,
    packed_number,
    samples_of_view,
    unpack_for_coder,
    view_packed,
)
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentSamples,
    ForShard,
    Packed,
    Tick,
    Ticks,
    ticks_joined,
    without_agent,
)
from meanstream.pipelines.beam.agents.agents_windows import MILLI, AgentWindows
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.keyed_state.keyed_steps import Cells, KeyedStep

_CODER = ForShardCoder()
_TARGET = struct.Struct("<q?")
"""The window that the timer is set to, and whether a turn was put off to it."""

_Shard = TypeVar("_Shard")


class ShardTurns(KeyedStep):
    """A shard's elements wait for the end of their window, and then the shard has one turn.

    Parameters
    ----------
    owner : StateOwner
    windows : AgentWindows

    Attributes
    ----------
    TICKS : str
        Kind of the packed elements that are ticks of their own window; empty where none are.
    """

    TICKS: ClassVar[str] = ""
    VALUES: ClassVar[tuple[str, ...]] = ("target",)
    BAGS: ClassVar[tuple[str, ...]] = ("waiting", "ticks")

    def __init__(self, owner: StateOwner, windows: AgentWindows) -> None:
        super().__init__(owner)
        self._windows = windows

    def setup(self) -> None:
        """Begin without shards."""
        super().setup()
        self._known: dict[int, tuple[bytes, Any]] = {}

    def take(self, element: ForShard, cells: Cells) -> None:
        """Keep what came until its window has ended."""
        if isinstance(element, Packed):
            cells.waiting.add(element.encoded)
            if self.TICKS:
                number = packed_number(element.encoded, self.TICKS)
                self.turns(cells).keep(Tick(number, -np.inf))
        elif isinstance(element, Tick | Ticks):
            self.turns(cells).keep(element)

    def fire(self, cells: Cells) -> Iterator[Any] | None:
        """Let all windows that have ended have one turn."""
        due = self.turns(cells).take(cells.time)
        return self.turn(due, cells) if due else None

    def when(self, number: int) -> Timestamp:
        """Give the time of a window's turn."""
        raise NotImplementedError

    def turn(self, due: list[Tick], cells: Cells) -> Iterator[Any]:
        """Do what is due at the end of these windows, the last of which is the newest."""
        raise NotImplementedError

    def turns(self, cells: Cells) -> WaitingTurns:
        """Give the ticks of a key."""
        return WaitingTurns(cells.ticks, cells.target, cells.timer, self.when)

    def _remembered(self, key: int, mark: bytes, make: Callable[[], _Shard]) -> _Shard:
        """Give the shard as it was, if its state is still what it wrote; else make it."""
        known = self._known.pop(key, None)  # until it is written again it is not to be found
        if known is not None and known[0] == mark:
            shard: _Shard = known[1]
            return shard

        return make()

    def _remember(self, key: int, mark: bytes, shard: Any) -> None:
        """Keep a shard for its next turn; where there is one window, there is none."""
        if self._windows.refresh is not None:
            self._known[key] = mark, shard


class WaitingTurns:
    """The ticks of a key, and the one timer that is set for them.

    Parameters
    ----------
    ticks : bag state
        Of encoded ticks.
    target : cell
        What the timer is set to.
    timer : timer
        Of event time.
    when : callable
        The time of a window's turn.
    """

    def __init__(
        self,
        ticks: Any,
        target: Any,
        timer: Any,
        when: Callable[[int], Timestamp],
    ) -> None:
        self._ticks = ticks
        self._target = target
        self._timer = timer
        self._when = when

    def keep(self, element: Tick | Ticks) -> None:
        """Wait for the end of a window, or of several."""
        self._ticks.add(_CODER.encode(element))
        first = (
            element.number
            if isinstance(element, Tick)
            else min(tick.number for tick in element.ticks)
        )
        known = self._target.read()
        number, put_off = _TARGET.unpack(known) if known else (first, False)

        if not known or first < number:
            self._set(first, put_off=put_off)

    def take(self, time: Timestamp) -> list[Tick]:
        """Take out the ticks whose turn has come, the earliest first, each window once.

        None where it is put off.
        """
        known = self._target.read()
        put_off = bool(known) and _TARGET.unpack(known)[1]
        waiting = ticks_joined(
            tick for one in map(_CODER.decode, self._ticks.read()) for tick in _each(one)
        )
        numbers = sorted(waiting)
        # Runners cut times to the millisecond.
        n_due = bisect_right(
            numbers, time.micros + MILLI, key=lambda number: self._when(number).micros
        )
        due = numbers[:n_due]
        rest = numbers[n_due:]

        if not due or (rest and not put_off and overtakes()):
            if rest:
                self._set(max(rest) if due else min(rest), put_off=bool(due) or put_off)

            return []

        self._ticks.clear()
        for number in rest:
            self._ticks.add(_CODER.encode(waiting[number]))

        if rest:
            self._set(max(rest) if overtakes() else min(rest), put_off=True)
        else:
            self._target.write(b"")

        return [waiting[number] for number in due]

    def _set(self, number: int, *, put_off: bool) -> None:
        self._target.write(_TARGET.pack(number, put_off))
        self._timer.set(self._when(number))


def _each(element: ForShard) -> tuple[Tick, ...]:
    if isinstance(element, Tick):
        return (element,)

    if isinstance(element, Ticks):
        return element.ticks
    return ()


def overtakes() -> bool:
    """Say that windows whose turn comes late have it together.

    Tests let each have its own, as in a stream on time.
    """
    return True


def take_waiting_elements(waiting: Any, coder: ColumnsCoder, number: int) -> list[Any]:
    """Take the elements of windows up to a number out of a bag."""
    taken = []
    encoded = list(waiting.read())
    waiting.clear()

    for one in encoded:
        element = coder.decode(one)
        if element.number <= number:
            taken.append(element)
        else:
            waiting.add(one)

    return taken


def take_waiting_samples(waiting: Any, number: int, windows: AgentWindows) -> list[AgentSamples]:
    """Take the samples of windows up to a number out of a bag.

    What is of later ones stays in its bytes.
    """
    taken: list[AgentSamples] = []
    rest: list[bytes] = []
    for encoded in waiting.read():
        head, columns = view_packed(encoded)
        first, last = windows.number(np.array(head["times"])).tolist()
        if first > number:
            rest.append(encoded)
            continue

        # Whole batches are most often of windows that have ended.
        samples = samples_of_view(head, columns)
        if last <= number:
            taken.append(samples)
            continue

        now, later = waiting_up_to([samples], number, windows)
        taken += now
        rest += [pack_for_coder(part).encoded for part in later]

    waiting.clear()
    for encoded in rest:
        waiting.add(encoded)

    return taken


def forget_waiting_samples(waiting: Any, agent: str) -> None:
    """Take the samples of an agent out of a bag, and its name."""
    kept = [without_agent(unpack_for_coder(encoded), agent) for encoded in waiting.read()]
    waiting.clear()

    for part in kept:
        if len(part):
            waiting.add(pack_for_coder(part).encoded)


def waiting_up_to(
    samples: Iterable[AgentSamples], number: int, windows: AgentWindows
) -> tuple[list[AgentSamples], list[AgentSamples]]:
    """Split samples: of windows up to a number, and of later ones."""
    taken: list[AgentSamples] = []
    rest: list[AgentSamples] = []
    for part in samples:
        if windows.number(part.time.max(keepdims=True))[0] <= number:
            taken.append(part)
            continue

        now = windows.number(part.time) <= number
        if now.any():
            taken.append(part.take(now))

        rest.append(part.take(~now))

    return taken, rest
