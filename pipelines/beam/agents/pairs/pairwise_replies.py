"""What agents that ask each other tell: releases, each for its reader and for no one else."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from apache_beam.coders import Coder, typecoders

from meanstream.operators.agents.agents import ReleaseBatch
from meanstream.operators.records import Floats, Ints, ReleaseColumns
from meanstream.pipelines.beam.element_types.packed import names_of_packed, packed, unpacked
from meanstream.streaming.events.wire import release_ids

_PUBLISHED = ("index", "count", "total", "mean", "noise_variance")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairBatch:
    """Each release for its reader and for no one else: what agents told those who asked them.

    Attributes
    ----------
    agent, reader : pyarrow array of strings (n,)
        Who was queried, and who asked.
    number : int
        Of the window at whose end they were made.
    releases : ReleaseColumns
        `index` counts those of one agent to one reader.
    time : float array (n,)
        Event time at which each became due, seconds since the epoch.
    """

    agent: pa.Array
    reader: pa.Array
    number: int
    releases: ReleaseColumns
    time: Floats

    def __len__(self) -> int:
        return len(self.time)


class PairBatchCoder(Coder):  # type: ignore[misc]
    """Each for its reader: releases with the names of both."""

    def encode(self, value: PairBatch) -> bytes:
        """Columns one after the other."""
        columns = {name: getattr(value.releases, name) for name in _PUBLISHED}
        both = pa.concat_arrays([value.agent, value.reader])
        return packed("pairs", {"number": value.number}, {**columns, "time": value.time}, both)

    def decode(self, encoded: bytes) -> PairBatch:
        """Read columns."""
        head, columns = unpacked(encoded, "pairs")
        names = names_of_packed(columns)
        time = columns.pop("time")
        n = len(time)
        releases = ReleaseColumns(agent=np.arange(n), **columns)

        return PairBatch(
            agent=names[:n], reader=names[n:], number=head["number"], releases=releases, time=time
        )

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


typecoders.registry.register_coder(PairBatch, PairBatchCoder)


def pairwise_release_columns(batch: ReleaseBatch, which: Ints) -> ReleaseColumns:
    """Select releases; their agents are named next to them, in the same order."""
    return replace(batch.releases.take(which), agent=np.arange(len(which)))


def pairwise_release_ids(
    agent: list[str], reader: list[str], index: list[int], *, deployment: str | None
) -> list[str]:
    """Give the ids of pairwise releases.

    Deployment, who was queried, who asked, which of the one to the other it is.

    Examples
    --------
    >>> pairwise_release_ids(["tail 7"], ["N14228"], [3], deployment="pairs")
    ['pairs/tail%207:N14228:3']
    """
    places = list(range(len(agent)))
    asked = [
        one.removesuffix(":0")
        for one in release_ids(agent, places, [0] * len(agent), deployment=deployment)
    ]

    return [
        f"{one}:{told}" for one, told in zip(asked, release_ids(reader, places, index), strict=True)
    ]
