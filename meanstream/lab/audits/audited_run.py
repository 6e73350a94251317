"""Lives of a whole engine on canaries.

Killed anywhere, begun again, and replayed into a store that is lost.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from meanstream.lab.evidence.agents_audit import canary_names
from meanstream.lab.evidence.canaries import Canaries, CanaryOutputs, put_calibration
from meanstream.operators.limits import MAX_AGENTS, MAX_FUTURE, QUORUM
from meanstream.operators.records import VOTE_BINS, Ints
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.crash import CrashHook, CrashPoint, Moment
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.event_columns import Batch, Position, Rejects, SampleColumns
from meanstream.streaming.sinks.sink_protocol import SinkPosition, Sinks, Trust, check_sink_trust
from meanstream.streaming.store.deployment_store import open_deployment

if TYPE_CHECKING:
    from meanstream.streaming.engine.engine_options import EngineOptions

STEPS_OF_A_TURN = 16
"""About that many places where an engine can die, in each turn."""


class _CanarySource:
    """Gives all canaries' samples of one second at a time."""

    name = "canaries"
    bounded = True

    def __init__(self, canaries: Canaries, coins: Ints) -> None:
        self._canaries = canaries
        self._coins = coins
        self._names = canary_names(0, len(coins))
        self._at = 0

    def next_batch(self, max_samples: int) -> Batch:  # noqa: ARG002 - a second at a time
        """Give the next second."""
        last = self._at >= self._canaries.seconds
        n = 0 if last else len(self._coins) * self._canaries.per_second
        values = np.zeros(0) if last else self._canaries.values(self._at, self._coins).ravel()

        persons = None if last else self._canaries.persons(self._at)
        samples = SampleColumns(
            self._names,
            np.repeat(np.arange(len(self._coins)), self._canaries.per_second)[:n],
            values,
            np.full(n, float(self._at)),
            None,
            np.arange(n) + self._at * n + 1,
            None if persons is None else np.tile(persons, len(self._coins)),
        )
        self._at += not last

        return Batch(samples, Rejects(), {"at": self._at}, exhausted=last)

    def restore(self, position: Position) -> None:
        """Go on from a second."""
        self._at = int(position["at"])

    def close(self) -> None:
        """Nothing is open."""


class Observer:
    """A sink of public events that keeps whatever was ever written, also what the engine takes back."""

    trust = Trust.PUBLIC

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self._number = 0

    def write(self, events: EventLines) -> None:
        """Keep lines."""
        check_sink_trust(self.trust, events.kind)
        self.seen += events.lines
        self._number += len(events.lines)

    def flush(self) -> None:
        """Memory is as durable as it gets."""

    def position(self) -> SinkPosition:
        """Tell the number of lines that the engine has not taken back."""
        return {"lines": self._number}

    def restore(self, position: SinkPosition) -> None:
        """Take later lines back."""
        self._number = position["lines"]

    def close(self) -> None:
        """Nothing is open."""


class _StillClock:
    """A clock that moves only while the engine sleeps."""

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Move on."""
        self._now += seconds


class _KilledError(Exception):
    """The engine died where it was told to."""


def deaths(rng: np.random.Generator, kills: int, turns: int) -> CrashHook:
    """Make a hook that dies at that many steps, anywhere.

    It goes on counting from one life to the next.
    """
    chosen = set(rng.choice(2 * STEPS_OF_A_TURN * turns, size=kills, replace=False).tolist())
    steps = count(1)

    def hook(point: CrashPoint, moment: Moment) -> None:  # noqa: ARG001 - a `CrashHook`
        if next(steps) in chosen:
            raise _KilledError

    return hook


def run_canary_engine(
    folder: Path,
    canaries: Canaries,
    coins: Ints,
    *,
    secret: str,
    options: EngineOptions,
    crash: CrashHook,
    observer: Observer | None = None,
) -> tuple[Observer, int]:
    """Run an engine on a store of its own until its source ends, however often it dies.

    Tell how often it did.
    """
    observer, died = observer or Observer(), 0
    # What was requested of answers and of hostile sources plays no part; every canary has to get
    # in.
    how = replace(
        options, allowed_lateness=0.0, refresh=None, final_release=True, collaboration="none"
    )
    how = replace(how, max_agents=MAX_AGENTS, max_future=MAX_FUTURE, quorum=QUORUM)
    folder.mkdir(exist_ok=True)

    while True:
        deployment = open_deployment(
            folder / "audit.db", canaries.settings, environment={"MEANSTREAM_SECRET": secret}
        )
        settings = deployment.settings
        put_calibration(settings, canaries.settings)

        try:
            Engine(
                source=_CanarySource(canaries, coins),
                settings=settings,
                noise=deployment.noise,
                store=deployment.store,
                sinks=Sinks(releases=observer),
                options=how,
                clock=_StillClock(1e9),
                crash=crash,
            ).run()
        except _KilledError:
            died += 1
            continue
        finally:
            deployment.store.close()

        return observer, died


class _Votes(msgspec.Struct):
    number: int
    pairs: int
    counts: list[int]


class _Counts(msgspec.Struct):
    number: int
    samples: int
    counts: list[int]


class _Release(msgspec.Struct):
    agent: str
    index: int
    total: int
    votes: _Votes | None = None
    histogram: _Counts | None = None


def read_outputs(canaries: Canaries, observer: Observer, agents: int) -> CanaryOutputs:
    """Read what everyone can read."""
    decoder = msgspec.json.Decoder(_Release)
    events = [decoder.decode(line) for line in observer.seen]
    number = {name: place for place, name in enumerate(canary_names(0, agents))}
    agent = np.array([number[event.agent] for event in events], np.int64)
    index = np.array([event.index for event in events], np.int64)
    total = np.array([event.total for event in events], np.int64)
    votes = np.zeros((len(events), 2 + VOTE_BINS), np.int64)
    counted = canaries.settings.histogram
    histogram = np.zeros((len(events), 0 if counted is None else 2 + counted.bins), np.int64)

    for row, event in enumerate(events):
        if event.votes is not None:
            votes[row] = (event.votes.number, event.votes.pairs, *event.votes.counts)

        if event.histogram is not None:
            histogram[row] = (
                event.histogram.number,
                event.histogram.samples,
                *event.histogram.counts,
            )

    outputs = CanaryOutputs.none(agents, canaries.settings)
    for rows in _each_once(agent, index):
        outputs.take(agent[rows], index[rows], total[rows], votes[rows], histogram[rows])

    return outputs


def _each_once(agent: Ints, index: Ints) -> list[Ints]:
    """Split deliveries so that each part has a release at most once."""
    order = np.lexsort((np.arange(len(agent)), index, agent))
    again = (np.diff(agent[order], prepend=-1) == 0) & (np.diff(index[order], prepend=-1) == 0)
    starts = np.maximum.accumulate(np.where(again, 0, np.arange(len(order))))
    rank = np.arange(len(order)) - starts

    return [order[rank == r] for r in range(int(rank.max(initial=-1)) + 1)]


def other_input(canaries: Canaries) -> Canaries:
    """Give the same canaries in the same deployment, with other inputs."""
    return replace(canaries, known=0.5)
