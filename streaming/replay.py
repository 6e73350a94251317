"""Records that were not used, given to the engine again: what is good now is counted, once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from operators.records import Ints
from operators.validation import closest
from streaming.columns import Position
from streaming.dead_letters import DeadLetters
from streaming.sources.selected import SelectedSource
from streaming.sources.source import Source
from streaming.store import Store
from streaming.unused import ReplayedRecords

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


def prepare_replay(store: Store, reopen: Callable[[], Source], letters: DeadLetters, *, sort: bool = True) -> Replay:
    """Choose the records of a source that dead letters name and that this store has not used.

    A record that was used by an earlier replay, also by one that was killed, is not chosen again: each commit takes the
    records that it counts off the store's note of unused ones.

    If the stream had ended (a file was read to its end), the replay ends it again, with estimates and final releases;
    also if an earlier replay was killed before it did. Otherwise what is replayed waits for event time like any sample.

    **Privacy.** A replay adds samples to the sums, each once. Noise, ledger and horizon are those of the store: no
    release is made again, and no index has a second noise.

    Parameters
    ----------
    store : Store
        Opened for writing.
    reopen : callable
        Opens the source from its beginning, in the order in which it stands.
    letters : DeadLetters
        Of any source; those of others are left out.
    sort : bool
        Replay in event-time order.

    Raises
    ------
    ValueError
        If the store has not read the source, or it is not the same any more.
    """
    state = store.state("engine")
    positions = {} if state is None else state["positions"]
    with closing(reopen()) as source:
        name = source.name
        if name not in positions:
            hint = closest(name, sorted(positions), listed="the store has read")
            raise ValueError(f"source must be one that the store has read, got {name!r}{hint}")
        _recognize(source, positions[name])
    mark = store.state(_STATE)
    ends = state["ended"] or (mark is not None and mark["ended_at"] == positions)
    with store.transaction():
        store.put_state(_STATE, {"ended_at": positions if ends else None})
    records = ReplayedRecords(store, name)
    unused = records.positions()
    asked = letters.of(source=name).position
    chosen: Ints = np.intersect1d(asked, unused)
    selected = SelectedSource(
        name,
        reopen,
        chosen,
        unused=unused,
        sort=sort,
        active=_partitions(state["intake"]["newest"]),
        give=records.give,
        ends=ends,
    )
    return Replay(selected, records, len(asked), len(chosen), ends)


def _recognize(source: Source, position: Position) -> None:
    """Refuse another source of the same name, whose records are not those of the dead letters."""
    whole = position.get("source") if "sorted_row" in position else position
    if whole is not None:  # a store of an earlier version does not tell it of a sorted file
        source.restore(whole)


def _partitions(newest: object) -> tuple[int, ...]:
    """List the partitions that have samples: a replay must not move event time past any of them."""
    return tuple(sorted(int(number) for number in newest)) if isinstance(newest, dict) and newest else (0,)
