"""What happens to samples before they count.

Bounds, plausibility, lateness, duplicates, waiting for their turn.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.operators.rounds.round_grids import Grid
from meanstream.streaming.engine.engine_homes import Homes
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.engine.forgotten import forgotten_agents
from meanstream.streaming.engine.name_tables import (
    NameTable,
    name_table_owner_hashes,
    name_table_sender_hashes,
    name_table_without_numbers,
)
from meanstream.streaming.engine.sample_buffer import Due, EventBuffer, Piece
from meanstream.streaming.engine.seen_ids import AgentIds
from meanstream.streaming.engine.watermark import Watermark
from meanstream.streaming.events.event_columns import Rejects, SampleColumns, column_partitions
from meanstream.streaming.store.state_store import Store

_log = logging.getLogger("meanstream.engine")


class Intake:
    """Admits samples of one source into the event-time buffer, and gives them out when their time has come.

    What is late is decided in the order of arrival within a partition, so that the size of batches
    and the way in which partitions are interleaved change nothing.

    **Privacy.** Which samples count depends on times and ids, which are public, and on nothing else.
    """

    def __init__(
        self,
        grid: Grid,
        options: EngineOptions,
        source: str,
        stats: EngineStats,
        *,
        partitioned: bool = False,
    ) -> None:
        self.names: list[str] = []  # of agents, by number
        self._watermark = Watermark(options.allowed_lateness, options.quorum)
        self._senders = NameTable(name_table_sender_hashes)
        self._owners = NameTable(name_table_owner_hashes)
        self._forgotten: frozenset[str] = frozenset()
        self._are_forgotten = NameTable(self._find_forgotten)
        self._grid = grid
        self._options = options
        self._stats = stats

        self._numbered: dict[str, int] = {}  # agents by name, as far as it was needed
        self._directory: list[str] | None = None  # of the source, if all agents are of this one
        self._number_of = NameTable(
            name_table_without_numbers
        )  # source's code of an agent to its number, -1 if new
        self._buffer = EventBuffer()
        self._seen = AgentIds()
        self._homes = Homes() if partitioned else None
        digest = hashlib.blake2b(source.encode(), digest_size=8).digest()
        self._salt = np.frombuffer(digest, np.uint64)[0]  # ids of two sources are never duplicates

    def admit(self, samples: SampleColumns, rejects: Rejects, now: float) -> None:
        """Take the good samples of a batch; note why others are not used."""
        self._stats.events += len(samples) + len(rejects)
        if self._forgotten:
            which = self._are_forgotten.of(samples.names)[samples.agent]
            samples = self._reject(samples, which, "forgotten", rejects)

        # A clock that runs ahead must not move the watermark: all others would be late.
        samples = self._reject(
            samples, samples.time > now + self._options.max_future, "in_future", rejects
        )
        self._count_clipped(samples)

        if not len(samples):
            return
        key = np.zeros(len(samples), np.uint64) if samples.key is None else samples.key ^ self._salt

        # What is late follows from what came before this batch, not from its neighbors in it.
        late = self._watermark.late(
            column_partitions(samples.position), samples.time, self._sender(samples)
        )

        if self._options.late == "accept":
            samples, late = self._as_of_now(samples, late), np.zeros_like(late)

        # A repeated id is a duplicate even if its record is late, so that a replay tells nothing
        # new.
        again = self._duplicates(samples, late)
        rejects.add_many("duplicate", samples.position[again])
        rejects.add_many("late", samples.position[late & ~again])
        dropped = late | again

        if dropped.any():
            samples, key = samples.take(~dropped), key[~dropped]

        # Who came first has room; agents that are known are always taken.
        room = ~self._beyond(samples)
        if not room.all():
            rejects.add_many("too_many_agents", samples.position[~room])
            samples, key = samples.take(room), key[room]

        self._enter(samples, key)

    def due(self, active: Sequence[int], *, ended: bool = False) -> Due:
        """Take out the samples before the watermark, or all of them if the source has ended.

        In a fixed order.
        """
        # Ids before the lateness can be forgotten: their repetitions are late anyway.
        reached = self._watermark.finish() if ended else self._watermark.advance(active)
        self._seen.forget(reached - self._options.allowed_lateness)
        return self._buffer.drain(reached)

    def by_clock(self, seconds: float) -> float:
        """Give how far event time has come by the clock after some seconds without a record."""
        return self._watermark.by_clock(seconds)

    def pass_silence(self, seconds: float) -> bool:
        """Let the samples go that the clock has passed; say whether there are any.

        Event time passes none that has not come yet: what comes later, after all that came before,
        is never late.
        """
        # Event time does not go past the newest sample by the clock alone.
        until = min(self.by_clock(seconds), float(np.nextafter(self._watermark.last, math.inf)))
        if not self._buffer.has_before(until):
            return False
        self._watermark.pass_by(until)

        return True

    def save(self, store: Store, saved_agents: int) -> dict[str, Any]:
        """Write what changed within the transaction of a store; return the rest as plain values."""
        # Names and pieces are written once, when they are new; a commit of few samples stays
        # small.
        store.add_agents(saved_agents, self.names[saved_agents:])
        new, dropped = self._buffer.changes()
        for number, columns in new.items():
            store.put_chunk("pending", number, columns)

        store.drop_chunks("pending", dropped)
        self._seen.save(store)

        if self._homes is not None:
            self._homes.save(store)

        return self._watermark.snapshot()

    def restore(self, store: Store, state: dict[str, Any]) -> None:
        """Continue from what was saved."""
        self.names = store.agents()
        self._forgotten = frozenset(
            self.names[number] for number in forgotten_agents(store).tolist()
        )
        self._warn_full()
        self._watermark.restore(state)

        for number, columns in store.chunks("pending"):
            self._buffer.restore(number, columns, self.watermark)

        self._seen.restore(store)
        if self._homes is not None:
            self._homes.restore(store)

    @property
    def watermark(self) -> float:
        """Event time that the samples given out are before."""
        return self._watermark.reached

    @property
    def waiting(self) -> int:
        """Number of samples in the buffer."""
        return len(self._buffer)

    def waiting_samples(self) -> tuple[Ints, Floats]:
        """Agents and event times of the samples in the buffer."""
        return self._buffer.waiting()

    def _find_forgotten(self, names: list[str]) -> Bools:
        """Say which agents are forgotten: nothing that they send counts any more."""
        return np.fromiter((name in self._forgotten for name in names), np.bool_, len(names))

    def _reject(
        self, samples: SampleColumns, which: np.ndarray, reason: str, rejects: Rejects
    ) -> SampleColumns:
        if not which.any():
            return samples
        rejects.add_many(reason, samples.position[which])
        return samples.take(~which)

    def _count_clipped(self, samples: SampleColumns) -> None:
        """Private: count what the grid of the agents will clip."""
        self._stats.clipped += int(np.count_nonzero(self._grid.clips(samples.value)))

    def _as_of_now(self, samples: SampleColumns, late: Bools) -> SampleColumns:
        """Let late samples count from now on: just before the watermark."""
        if not late.any():
            return samples

        # A late sample that is accepted goes out with the next ones and never before older ones.
        just_before = np.nextafter(self.watermark, -math.inf)
        return replace(
            samples, time=np.where(late, np.maximum(samples.time, just_before), samples.time)
        )

    def _duplicates(self, samples: SampleColumns, late: Bools) -> Bools:
        """Find ids that their agents repeat.

        A late sample repeats an accepted one or is just late.
        """
        again = np.zeros(len(samples), np.bool_)
        if samples.key is None:
            return again
        key = samples.key ^ self._salt

        # Agents have ids of their own: the same id of two agents is no duplicate.
        owner = self._owner(samples)
        again[~late] = self._seen.duplicates(key[~late], owner[~late])

        if late.any():
            # A late record repeats what was taken, or a record of this batch that is in time.
            here = np.isin((key ^ owner)[late], (key ^ owner)[~late])
            again[late] = self._seen.known(key[late], owner[late]) | here

        return again

    def _remember(self, samples: SampleColumns) -> None:
        """Note the ids of samples that are taken."""
        if samples.key is not None:
            self._seen.add(samples.key ^ self._salt, self._owner(samples), samples.time)

    def _enter(self, samples: SampleColumns, key: Words) -> None:
        if not len(samples):
            return
        agent = self._number(samples)
        if self._homes is not None:
            self._homes.note(len(self.names), agent, column_partitions(samples.position))

        self._remember(samples)
        if samples.person is None:  # else it is decided in event time, when their turn comes
            self._stats.accepted += len(samples)

        self._stats.agents = len(self.names)
        piece = Piece(agent, samples.value, samples.time, key, samples.position, samples.person)
        self._buffer.add(piece.sorted_by_time())

    def _sender(self, samples: SampleColumns) -> Words | None:
        """Hashes of the senders, where the watermark asks for them."""
        if self._options.quorum > 1:
            return self._senders.of(samples.names)[samples.agent]
        return None

    def _owner(self, samples: SampleColumns) -> Words:
        """Hashes of the agents whose ids they are."""
        return np.asarray(self._owners.of(samples.names)[samples.agent])

    def _beyond(self, samples: SampleColumns) -> Bools:
        """Say which samples are of new agents for whom there is no room; who came first has it."""
        beyond = np.zeros(len(samples), np.bool_)
        if len(self.names) + len(samples.names) <= self._options.max_agents or not len(samples):
            return beyond

        # Names have room by the order in which they came in the source.
        unknown = samples.agent[
            self._number_of.of(samples.names)[samples.agent] < 0
        ]  # maybe under another code

        if not len(unknown):
            return beyond

        # Only names without a number are compared with the directory.
        codes, first = np.unique(unknown, return_index=True)
        codes = codes[np.argsort(first)]
        new = codes.tolist()
        if not self._is_only_directory(samples.names):
            new = [code for code in new if samples.names[code] not in self._numbers]

        refused = new[self._options.max_agents - len(self.names) :]

        return np.isin(samples.agent, refused)

    def _number(self, samples: SampleColumns) -> Ints:
        """Translate the source's codes to numbers of agents.

        An agent is entered with its first good sample.
        """
        of_code = self._number_of.of(samples.names)
        number: Ints = of_code[samples.agent]

        # New names get numbers in the order of the source's codes; known ones keep theirs.
        if (number < 0).any():
            fresh = np.zeros(len(of_code), np.bool_)
            fresh[samples.agent[number < 0]] = True
            codes = np.flatnonzero(fresh)
            of_code[codes] = self._number_names(samples.names, codes)
            number = of_code[samples.agent]
            self._warn_full()

        return number

    def _number_names(self, directory: list[str], codes: Ints) -> Ints:
        """Give numbers to names of a directory that have none under their codes."""
        is_only = self._is_only_directory(directory)
        names = [directory[code] for code in codes.tolist()]
        before = len(self.names)
        if is_only:
            self.names.extend(names)
            return np.arange(before, len(self.names))

        # A name may have come under another code; a dictionary keeps its order, so that the new
        # names are its last ones.
        known = self._numbers
        numbers = np.array([known.setdefault(name, len(known)) for name in names], np.int64)
        self.names.extend(reversed(list(islice(reversed(known), len(known) - before))))

        return numbers

    def _is_only_directory(self, directory: list[str]) -> bool:
        """Say whether all agents are of this directory: a name without a number is new then."""
        if not self.names:
            self._directory = directory
        elif self._directory is not directory:
            self._directory = None  # from here on a name may have come under another code

        return self._directory is directory

    @property
    def _numbers(self) -> dict[str, int]:
        """Numbers of all agents by name."""
        known = self._numbered
        fresh = self.names[len(known) :]
        known.update(zip(fresh, range(len(known), len(self.names)), strict=True))
        return known

    def _warn_full(self) -> None:
        """Say once in a process that no further agent is taken; how many there are is public."""
        if len(self.names) >= self._options.max_agents and not self._stats.full:
            self._stats.full = True
            self._log_full()

    def _log_full(self) -> None:
        most = {"max_agents": self._options.max_agents}
        _log.warning("--max-agents is reached: samples of further agents are rejected", extra=most)
