"""Changes of agents' means that their releases show, as events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from meanstream.operators.agents.agents import ReleaseBatch
from meanstream.operators.agents.released_change_tests import MOVED, NOTHING
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.streaming.events.encode import EventLines, encode_columns_as_lines
from meanstream.streaming.events.times import iso_times
from meanstream.streaming.events.wire import DriftEvent


@dataclass(frozen=True, slots=True)
class DriftsOfReleases:
    """Public: whose releases show that their mean has changed, or may have.

    **Privacy.** It follows from charged releases; what a refused one shows is left out, since no one sees that release.

    Attributes
    ----------
    agent, index : int array
        Who, and the number of the release.
    time : float array
        Its event time.
    moved : bool array
        Whether it is a change; a warning otherwise.
    since : int array
        Number of the release after which the agent's sums begin.
    """

    agent: Ints
    index: Ints
    time: Floats
    moved: Bools
    since: Ints

    @classmethod
    def of(cls, batches: Sequence[ReleaseBatch], refused: Sequence[int]) -> Self:
        """Find them."""
        some = [
            batch for batch in batches if len(batch.drift)
        ]  # all that have releases, where there is a memory
        none = np.zeros(0, np.int64)
        drift = np.concatenate([none, *(batch.drift for batch in some)])
        told = drift != NOTHING

        if some:
            told[list(refused)] = False

        return cls(
            agent=np.concatenate([none, *(batch.releases.agent for batch in some)])[told],
            index=np.concatenate([none, *(batch.releases.index for batch in some)])[told],
            time=np.concatenate([np.zeros(0), *(batch.time for batch in some)])[told],
            moved=drift[told] == MOVED,
            since=np.concatenate([none, *(batch.since for batch in some)])[told],
        )

    @property
    def drifts(self) -> int:
        """Number of changes."""
        return int(np.count_nonzero(self.moved))

    @property
    def warnings(self) -> int:
        """Number of warnings."""
        return len(self.moved) - self.drifts

    def lines(self, names: Sequence[str]) -> EventLines:
        """Write them as events."""
        columns = {
            "agent": [names[a] for a in self.agent.tolist()],
            "time": iso_times(self.time),
            "index": self.index.tolist(),
            "found": ["drift" if moved else "warning" for moved in self.moved.tolist()],
            "since": self.since.tolist(),
        }

        return encode_columns_as_lines(DriftEvent, columns, {})
