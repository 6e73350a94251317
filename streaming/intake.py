"""What happens to samples before they count: bounds, plausibility, lateness, duplicates, waiting for their turn."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from operators.records import Bools, Ints, Words
from streaming.buffer import Due, EventBuffer, Piece
from streaming.columns import Rejects, SampleColumns, partition_of
from streaming.options import EngineOptions
from streaming.seen_ids import SeenIds
from streaming.stats import EngineStats
from streaming.store.snapshot import Columns
from streaming.store.store import Store
from streaming.watermark import Watermark


class Bounded(Protocol):
    """Settings that declare the bounds of a value."""

    @property
    def lower(self) -> float | tuple[float, ...]:
        """Lower bound, or one for each coordinate."""

    @property
    def upper(self) -> float | tuple[float, ...]:
        """Upper bound, or one for each coordinate."""


class Intake:
    """Admits samples of one source into the event-time buffer, and gives them out when their time has come.

    What is late is decided in the order of arrival within a partition, so that the size of batches and the way in
    which partitions are interleaved change nothing.

    **Privacy.** Which samples count depends on times and ids, which are public, and on nothing else; except with
    `out_of_bounds="reject"`, where it also shows that a value was out of bounds, which is then public.
    """

    def __init__(self, settings: Bounded, options: EngineOptions, source: str, stats: EngineStats) -> None:
        self.names: list[str] = []  # of agents, by number
        self._watermark = Watermark(options.allowed_lateness)
        self._lower, self._upper = np.asarray(settings.lower), np.asarray(settings.upper)
        self._options = options
        self._stats = stats
        self._numbers: dict[str, int] = {}
        self._of_code: Ints = np.zeros(0, np.int64)  # source's code of an agent to its number, -1 if new
        self._buffer = EventBuffer()
        self._seen = SeenIds()
        digest = hashlib.blake2b(source.encode(), digest_size=8).digest()
        self._salt = np.frombuffer(digest, np.uint64)[0]  # ids of two sources are never duplicates

    def admit(self, samples: SampleColumns, rejects: Rejects, now: float) -> None:
        """Take the good samples of a batch; note why others are not used."""
        self._stats.events += len(samples) + len(rejects)
        samples = self._reject(samples, samples.time > now + self._options.max_future, "in_future", rejects)
        samples = self._within_bounds(samples, rejects)
        if not len(samples):
            return
        key = np.zeros(len(samples), np.uint64) if samples.key is None else samples.key ^ self._salt
        late = self._watermark.late(partition_of(samples.position), samples.time)
        if self._options.late == "accept":
            samples, late = self._as_of_now(samples, late), np.zeros_like(late)
        again = self._duplicates(key, late) if samples.key is not None else np.zeros(len(samples), np.bool_)
        rejects.add_many("duplicate", samples.position[again])
        rejects.add_many("late", samples.position[late & ~again])
        dropped = late | again
        if dropped.any():
            samples, key = samples.take(~dropped), key[~dropped]
        self._enter(samples, key)

    def due(self, active: Sequence[int], *, ended: bool = False) -> Due:
        """Take out the samples before the watermark, or all of them if the source has ended; in a fixed order."""
        reached = self._watermark.finish() if ended else self._watermark.advance(active)
        self._seen.forget(reached - self._options.allowed_lateness)
        return self._buffer.drain(reached)

    def save(self, store: Store, saved_agents: int) -> dict[str, Any]:
        """Write what changed within the transaction of a store; return the rest as plain values."""
        store.add_agents(saved_agents, self.names[saved_agents:])
        for kind, (new, dropped) in (("pending", self._buffer.changes()), ("ids", self._seen.changes())):
            for number, columns in new.items():
                store.put_chunk(kind, number, columns)
            store.drop_chunks(kind, dropped)
        return self._watermark.snapshot()

    def restore(self, store: Store, state: dict[str, Any]) -> None:
        """Continue from what was saved."""
        self.names = store.agents()
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._watermark.restore(state)
        columns: Columns
        for number, columns in store.chunks("pending"):
            self._buffer.restore(number, columns, self.watermark)
        for number, columns in store.chunks("ids"):
            self._seen.restore(number, columns)

    @property
    def watermark(self) -> float:
        """Event time that the samples given out are before."""
        return self._watermark.reached

    @property
    def waiting(self) -> int:
        """Number of samples in the buffer."""
        return len(self._buffer)

    def _reject(self, samples: SampleColumns, which: np.ndarray, reason: str, rejects: Rejects) -> SampleColumns:
        if not which.any():
            return samples
        rejects.add_many(reason, samples.position[which])
        return samples.take(~which)

    def _within_bounds(self, samples: SampleColumns, rejects: Rejects) -> SampleColumns:
        """Count what the agents will clip, or reject it; a vector is clipped if one of its coordinates is."""
        outside: Bools = np.asarray((samples.value < self._lower) | (samples.value > self._upper))
        if outside.ndim == 2:
            outside = np.asarray(outside.any(axis=1))
        if self._options.out_of_bounds == "reject":
            return self._reject(samples, outside, "out_of_bounds", rejects)
        self._stats.clipped += int(np.count_nonzero(outside))
        return samples

    def _as_of_now(self, samples: SampleColumns, late: Bools) -> SampleColumns:
        """Let late samples count from now on: just before the watermark."""
        if not late.any():
            return samples
        just_before = np.nextafter(self.watermark, -math.inf)
        return replace(samples, time=np.where(late, np.maximum(samples.time, just_before), samples.time))

    def _duplicates(self, key: Words, late: np.ndarray) -> np.ndarray:
        """Find repeated ids; a late sample repeats an accepted one or is just late."""
        again = np.zeros(len(key), np.bool_)
        again[~late] = self._seen.duplicates(key[~late])
        if late.any():
            again[late] = self._seen.known(key[late]) | np.isin(key[late], key[~late])
        return again

    def _enter(self, samples: SampleColumns, key: Words) -> None:
        if not len(samples):
            return
        agent = self._number(samples)
        if samples.key is not None:
            self._seen.add(key, samples.time)
        self._stats.accepted += len(samples)
        self._stats.agents = len(self.names)
        piece = Piece.sorted_by_time(agent, samples.value, samples.time, key, samples.position)
        self._buffer.add(piece)

    def _number(self, samples: SampleColumns) -> Ints:
        """Translate the source's codes to numbers of agents; an agent is entered with its first good sample."""
        missing = len(samples.names) - len(self._of_code)
        if missing:
            self._of_code = np.r_[self._of_code, np.full(missing, -1, np.int64)]
        number = self._of_code[samples.agent]
        if (number < 0).any():
            for code in np.unique(samples.agent[number < 0]).tolist():
                name = samples.names[code]
                if name not in self._numbers:
                    self._numbers[name] = len(self.names)
                    self.names.append(name)
                self._of_code[code] = self._numbers[name]
            number = self._of_code[samples.agent]
        return number
