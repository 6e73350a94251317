"""What waits in a shard's state until its window has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apache_beam.utils.timestamp import Timestamp

from meanstream.pipelines.beam.agents.coders import ForShardCoder, pack_for_coder, unpack_for_coder
from meanstream.pipelines.beam.agents.records import AgentSamples, Packed, Tick
from meanstream.pipelines.beam.agents.windows import MILLI, AgentWindows


def keep_waiting(  # noqa: PLR0917 - the cells of the state, and when
    element: Packed | Tick, waiting: Any, ticks: Any, timer: Any, coder: ForShardCoder, when: Callable[[int], Timestamp]
) -> None:
    """Put what came into its bag; a tick sets the timer of its window."""
    if isinstance(element, Tick):
        ticks.add(coder.encode(element))
        timer.set(when(element.number), dynamic_timer_tag=str(element.number))
    else:
        waiting.add(element.encoded)


def take_waiting_due(ticks: Any, coder: ForShardCoder, time: Timestamp, when: Callable[[int], Timestamp]) -> list[Tick]:
    """Take the ticks whose time has come out of a bag, the earliest first, each once."""
    waiting = {tick.number: tick for tick in map(coder.decode, ticks.read()) if isinstance(tick, Tick)}
    # Runners cut times to the millisecond.
    due = [number for number in sorted(waiting) if when(number).micros - time.micros <= MILLI]
    if due:
        ticks.clear()
        for number in waiting.keys() - set(due):
            ticks.add(coder.encode(waiting[number]))
    return [waiting[number] for number in due]


def take_waiting_samples(waiting: Any) -> list[AgentSamples]:
    """Take all samples out of a bag."""
    samples: list[AgentSamples] = [unpack_for_coder(encoded) for encoded in waiting.read()]
    waiting.clear()
    return samples


def put_back_waiting(waiting: Any, samples: list[AgentSamples]) -> None:
    """Put samples of later windows back into their bag."""
    for rest in samples:
        waiting.add(pack_for_coder(rest).encoded)


def waiting_up_to(
    samples: list[AgentSamples], number: int, windows: AgentWindows
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
