"""Records that were not used, given to the engine again: what is good now is counted, once."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np

from meanstream.operators.records import Bools, Ints, Words
from meanstream.operators.validation import closest_valid, require
from meanstream.streaming.engine.name_tables import name_table_owner_hashes
from meanstream.streaming.engine.unused_records import COUNTED, ReplayedRecords
from meanstream.streaming.events.event_columns import (
    Batch,
    Position,
    Rejects,
    SampleColumns,
    concatenate_columns,
)
from meanstream.streaming.replay.dead_letters import DeadLetters
from meanstream.streaming.replay.reopen import Opened, Reopen
from meanstream.streaming.store.state_store import Store

READ_ROWS = 1 << 18
MAX_RECORDS = 20_000_000
"""So many chosen samples are held in memory: 40 bytes each, twice while they are sorted."""


class SelectedSource:
    """Reads a bounded source whole and gives the chosen records, in the order of event time unless told not to.

    Its batches carry the position that the store has for the source, unchanged: what was read of
    the source stays where it was. It cannot be resumed; what is left is chosen again.

    Parameters
    ----------
    name : str
        Name of the source, for ids, dead letters and position.
    reopen : callable
        Opens the source so that it has the records at some positions, or from its beginning (None);
        in the order in which it stands. It is read whole only if its samples have ids.
    chosen : int array
        Positions of the records to give.
    unused : int array
        Positions of all records that were not used so far. A chosen sample with the id of another
        one of its agent that is *not* among them repeats a sample that was counted, however long
        ago, and is rejected as a duplicate.
    late_before : float
        Event time before which the engine may have forgotten ids. If the source is not complete any
        more, samples before it are set aside: they could repeat one that is gone.
    sort : bool
        Give samples in the order of event time; otherwise as they stand in the source.
    active : tuple of int
        Partitions that event time waits for.
    give : callable
        Called with the positions of each batch, samples and rejects, before it is given.
    ends : bool
        Whether the end of the chosen records is the end of the stream; otherwise `done` tells it.
    """

    bounded = True

    def __init__(
        self,
        name: str,
        reopen: Callable[[Ints | None], Opened],
        chosen: Ints,
        *,
        unused: Ints,
        late_before: float = -math.inf,
        sort: bool = True,
        active: tuple[int, ...] = (0,),
        give: Callable[[Ints], None],
        ends: bool = True,
    ) -> None:
        self.name = name
        self.done = not len(chosen)
        self.missing = 0  # chosen records that the source has not
        self.repeated = 0  # with the id of another one: one of them is given, the rest stay unused
        self.uncertain = (
            0  # that could repeat a sample which is not in the source any more; they stay unused
        )

        require(
            len(chosen) <= MAX_RECORDS,
            "records",
            f"be at most {MAX_RECORDS} in one replay",
            len(chosen),
        )

        self._reopen = reopen
        self._chosen = np.unique(chosen)
        self._unused = unused
        self._late_before = late_before
        self._sort = sort
        self._active = active

        self._give = give
        self._ends = ends
        self._position: Position = {}
        self._samples: SampleColumns | None = None
        self._rejects = Rejects()
        self._row = 0

    def next_batch(self, max_samples: int) -> Batch:
        """Give the next records; the first batch brings all that are rejected again."""
        if self._samples is None:
            self._samples = self._load()

        samples = self._samples.take(slice(self._row, self._row + max_samples))
        rejects, self._rejects = self._rejects, Rejects()
        self._row += len(samples)
        self.done = not len(samples) and not len(rejects)
        self._give(np.concatenate([samples.position, np.array(rejects.position, np.int64)]))

        return Batch(
            samples,
            rejects,
            self._position,
            exhausted=self.done and self._ends,
            active=self._active,
        )

    def restore(self, position: Position) -> None:
        """Keep the position of the source."""
        self._position = position

    def close(self) -> None:
        """Nothing is open between two batches."""

    def _load(self) -> SampleColumns:
        """Read the chosen records, and leave out those that repeat a sample."""
        parts: list[SampleColumns] = []
        left = len(self._chosen)
        with closing(self._reopen(self._chosen).source) as source:
            while left and not (batch := source.next_batch(READ_ROWS)).exhausted:
                parts.append(batch.samples.take(_among(batch.samples.position, self._chosen)))
                rejects = _rejects_among(batch.rejects, self._chosen)
                self._rejects.extend(rejects)
                left -= len(parts[-1]) + len(rejects)

        self.missing = left
        samples = concatenate_columns(parts)
        if self._sort:
            samples = samples.take(np.argsort(samples.time, kind="stable"))

        if samples.key is None or not len(samples):
            return samples
        return self._once(samples, _own_ids(samples))

    def _once(self, samples: SampleColumns, key: Words) -> SampleColumns:
        """Reject samples whose id was counted, and set aside those of which that is not known."""
        ids, complete = self._counted(np.unique(key))
        counted = _among(key, ids)
        self._rejects.add_many(COUNTED, samples.position[counted])
        unknown = ~counted & (samples.time < self._late_before) & (not complete)
        self.uncertain = int(np.count_nonzero(unknown))
        rest = np.flatnonzero(~counted & ~unknown)
        _, first = np.unique(key[rest], return_index=True)
        self.repeated = len(rest) - len(first)

        return samples.take(rest[np.sort(first)])

    def _counted(self, keys: Words) -> tuple[Words, bool]:
        """Find the ids, among some, of samples of the source that were used.

        Say whether it still has all of them.
        """
        counted_ids: list[Words] = [np.zeros(0, np.uint64)]
        opened = self._reopen(None)
        with closing(opened.source) as source:
            while not (batch := source.next_batch(READ_ROWS)).exhausted:
                samples = batch.samples.take(~_among(batch.samples.position, self._unused))
                if samples.key is not None and len(samples):
                    ids = _own_ids(samples)
                    counted_ids.append(ids[_among(ids, keys)])

        return np.unique(np.concatenate(counted_ids)), opened.complete


def _own_ids(samples: SampleColumns) -> Words:
    """Give hashes of the samples' ids, each agent's its own."""
    if samples.key is None:
        raise TypeError("samples must have ids, got none")
    used, name_index = np.unique(samples.agent, return_inverse=True)
    return (
        samples.key
        ^ name_table_owner_hashes([samples.names[code] for code in used.tolist()])[name_index]
    )


def _among(items: Ints | Words, these: Ints | Words) -> Bools:
    """Say which items are among these, which are in order."""
    if not len(these):
        return np.zeros(len(items), np.bool_)
    index = np.minimum(np.searchsorted(these, items), len(these) - 1)
    return np.asarray(these[index] == items)


def _rejects_among(rejects: Rejects, chosen: Ints) -> Rejects:
    which = np.flatnonzero(_among(np.array(rejects.position, np.int64), chosen)).tolist()
    return Rejects(
        [rejects.reason[i] for i in which],
        [rejects.position[i] for i in which],
        [rejects.size[i] for i in which],
    )


_STATE = "replay"


@dataclass(frozen=True, slots=True)
class Replay:
    """What an engine needs for a replay, besides the options that it had; with `late="accept"`.

    Attributes
    ----------
    source : SelectedSource
        The chosen records.
    records : ReplayedRecords
        The store's note of unused records, as the engine's `unused`.
    letters : int
        Records that dead letters were given of.
    chosen : int
        Those of them that this store has read and not used so far.
    ends : bool
        Whether the stream had ended: then the engine ends by itself.
    """

    source: SelectedSource
    records: ReplayedRecords
    letters: int
    chosen: int
    ends: bool

    def done(self) -> bool:
        """Say when to stop the engine of a stream that goes on."""
        return self.source.done and not self.ends


def prepare_replay(
    store: Store, name: str, reopen: Reopen, letters: DeadLetters, *, sort: bool = True
) -> Replay:
    """Choose the records of a source that dead letters name and that this store has not used.

    A record that was used by an earlier replay, also by one that was killed, is not chosen again:
    each commit takes the records that it counts off the store's note of unused ones.

    If the stream had ended (a file was read to its end), the replay ends it again, with estimates
    and final releases; also if an earlier replay was killed before it did. Otherwise what is
    replayed waits for event time like any sample.

    **Privacy.** A replay adds samples to the sums, each once. Noise, ledger and horizon are those
    of the store: no release is made again, and no index has a second noise.
    """
    state = store.state("engine")
    positions = {} if state is None else state["positions"]
    if name not in positions:
        hint = closest_valid(name, sorted(positions), listed="the store has read")
        raise ValueError(f"source must be one that the store has read, got {name!r}{hint}")

    mark = store.state(_STATE)
    ends = state["ended"] or (mark is not None and mark["ended_at"] == positions)
    with store.transaction():
        store.put_state(_STATE, {"ended_at": positions if ends else None})

    records = ReplayedRecords(store, name)
    unused = records.positions()
    asked = letters.positions_in(name)
    chosen: Ints = np.intersect1d(asked, unused)
    opened_again = partial(reopen, positions[name])

    if len(chosen):
        opened_again(chosen).source.close()  # another source of the same name is refused here

    selected = SelectedSource(
        name,
        opened_again,
        chosen,
        unused=unused,
        late_before=_number(state["intake"]["watermark"]),
        sort=sort,
        active=_partitions(state["intake"]["newest"]),
        give=records.give,
        ends=ends,
    )

    return Replay(selected, records, len(asked), len(chosen), ends)


def _number(watermark: float | None) -> float:
    if watermark is None:
        return -math.inf
    return watermark


def _partitions(newest: object) -> tuple[int, ...]:
    """List the partitions that have samples: a replay must not move event time past any of them."""
    if isinstance(newest, dict) and newest:
        return tuple(sorted(int(number) for number in newest))
    return (0,)
