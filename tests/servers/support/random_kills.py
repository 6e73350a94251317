"""SIGKILL at random times, drawn from a seed, until the input is done; and where in its work each
met the engine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from meanstream.streaming.crash import CrashPoint, Moment
from tests.servers.support.broker import Broker
from tests.servers.support.engine_process import END_SECONDS, KILLED, EngineProcess, EngineWorld
from tests.servers.support.engine_worlds import EngineWorlds
from tests.servers.support.outcomes import Fault

SPAN_SECONDS = 0.4
"""A kill comes at most so long after the engine has begun to read: long enough for several
turns."""
START_SPAN_SECONDS = 0.5
AT_START = 0.1
"""Share of the kills that come so long after the process was started, whatever it does then."""
LOOK_SECONDS = 0.002
OUTAGE_SPAN_SECONDS = 30.0
FAILED = (1, 2)
"""Codes with which the command ends where a broker does not answer."""
NO_BROKER = "must be on brokers that can be reached"
"""What it says if that is so for long when it starts: then it is started again."""


class Phase(StrEnum):
    """What the engine was at."""

    START = "start"
    READING = "reading and updating"
    COMMITTING = "in the commit of the store"
    DELIVERING = "in the delivery"
    DELIVERED = "delivered, not noted"
    ENDING = "ending"


_LAST_OF_DELIVERY = (CrashPoint.COMMIT_TRANSACTION, CrashPoint.FLUSH_SINKS)
_READING = (CrashPoint.READ_BATCH, CrashPoint.UPDATE_AGENTS)
_COMMITTING = (
    *(CrashPoint.COMMIT, CrashPoint.SAVE_POSITION, CrashPoint.SAVE_SNAPSHOT),
    *(CrashPoint.CHARGE_LEDGER, CrashPoint.FILL_OUTBOX),
)


def phase(life: EngineProcess) -> Phase:
    """Tell where a process was killed, from the last step that it came to."""
    step = life.trace.last()
    if step is None or not life.trace.visits(CrashPoint.READ_BATCH, Moment.BEFORE):
        return Phase.START
    point, moment = step
    if point is CrashPoint.MARK_DELIVERY:
        return Phase.ENDING
    if point in _READING:
        return Phase.READING
    if point in _COMMITTING and step != (CrashPoint.COMMIT, Moment.AFTER):
        return Phase.COMMITTING
    return (
        Phase.DELIVERED
        if point in _LAST_OF_DELIVERY and moment is Moment.AFTER
        else Phase.DELIVERING
    )


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill that came so many seconds after the process was started, or after it had begun to
    read."""

    seconds: float
    at_start: bool
    phase: Phase


@dataclass
class RandomKills:
    """Kills engines of one deployment after the other, several at the same time.

    Parameters
    ----------
    worlds : EngineWorlds
        Makes the deployments.
    seed : int
        The same seed gives the same times.
    count : int
        Number of kills.
    lanes : int
        So many engines at the same time.
    broker, outages : Broker or None, int
        A broker that is killed and started again so often meanwhile, at random times too. Engines
        may then end by themselves, with an error, and are started again.
    """

    worlds: EngineWorlds
    seed: int
    count: int
    lanes: int = 1
    broker: Broker | None = None
    outages: int = 0
    outages_met: int = 0
    other_ends: Counter[int] = field(default_factory=Counter)
    kills: list[Kill] = field(default_factory=list)
    deployments: int = 0
    faults: list[Fault] = field(default_factory=list)

    def run(self) -> None:
        """Kill so often; every deployment is run to its end and compared."""
        self.worlds.expected  # noqa: B018 - while nothing else runs

        async def all_lanes() -> None:
            shares = [len(range(lane, self.count, self.lanes)) for lane in range(self.lanes)]
            lanes = asyncio.gather(*(self._lane(lane, share) for lane, share in enumerate(shares)))
            await asyncio.gather(lanes, self._outages(lanes))

        asyncio.run(all_lanes())

    async def _outages(self, lanes: asyncio.Future[Any]) -> None:
        """Kill the broker and start it again while there are engines."""
        rng = np.random.default_rng([self.seed, self.lanes])
        while self.broker is not None and self.outages_met < self.outages and not lanes.done():
            await asyncio.sleep(rng.uniform(0, OUTAGE_SPAN_SECONDS))
            self.broker.kill()
            await asyncio.to_thread(self.broker.start)
            self.outages_met += 1

    async def _lane(self, lane: int, count: int) -> None:
        times = _times(np.random.default_rng([self.seed, lane]))
        left = count
        while left:
            world = self.worlds.new()[0]
            while left:
                at_start, seconds = next(times)
                code = await self._kill(world, seconds, at_start=at_start)
                left -= code == KILLED
                if code == 0:
                    break
            else:
                while await self._end_of(world.start()):
                    pass
            self.deployments += 1
            self.faults += self.worlds.faults(world)

    async def _kill(self, world: EngineWorld, seconds: float, *, at_start: bool) -> int:
        """Let an engine live for so long; give its exit code, which is that of the kill unless it
        ended before."""
        life = world.start()
        while (
            not at_start
            and life.runs
            and not life.trace.visits(CrashPoint.READ_BATCH, Moment.BEFORE)
        ):
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(seconds)
        life.kill()
        if life.wait() != KILLED:
            return await self._end_of(life)
        self.kills.append(Kill(seconds, at_start, phase(life)))
        if world.store.exists():
            self.faults += self.worlds.uncharged(world)
        return KILLED

    async def _end_of(self, life: EngineProcess) -> int:
        """Wait until it ends by itself; give its exit code."""
        for _ in range(int(END_SECONDS / LOOK_SECONDS)):
            if not life.runs:
                break
            await asyncio.sleep(LOOK_SECONDS)
        code = life.wait(0.0)
        if code:
            self.other_ends[code] += 1
            expected = (
                code in FAILED
                and (self.outages or NO_BROKER in life.log)
                and self.other_ends.total() <= self.count
            )
            assert expected, f"the engine ended with {code}; its log:\n{life.log}"
        return code


def _times(rng: np.random.Generator) -> Iterator[tuple[bool, float]]:
    """Whether the seconds count from the start of the process, and how many they are."""
    while True:
        at_start = bool(rng.random() < AT_START)
        yield at_start, float(rng.uniform(0, START_SPAN_SECONDS if at_start else SPAN_SECONDS))
