"""Records that were not used, given to the engine again: what is good now is counted, once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from meanstream.operators.records import Ints
from meanstream.operators.validation import closest_valid
from meanstream.streaming.engine.unused_records import ReplayedRecords
from meanstream.streaming.replay.dead_letters import DeadLetters
from meanstream.streaming.replay.reopen import Reopen
from meanstream.streaming.replay.selected import SelectedSource
from meanstream.streaming.store.state_store import Store

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

    **Privacy.** A replay adds samples to the sums, each once. Noise, ledger and horizon are those of the store: no
    release is made again, and no index has a second noise.
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
