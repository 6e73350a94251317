"""Frames with a ledger: the engine itself reads the frame, on a store that charges each release before it is given."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from meanstream.frames.columns import FrameSamples
from meanstream.operators.agents.settings import AgentsSettings
from meanstream.operators.records import ReleaseColumns
from meanstream.operators.validation import require
from meanstream.streaming.agents.engine import Engine
from meanstream.streaming.agents.releases import releases_of_ledger
from meanstream.streaming.engine.options import EngineOptions
from meanstream.streaming.events.columns import Batch, Position, Rejects, SampleColumns
from meanstream.streaming.sinks.group import Sinks
from meanstream.streaming.store.deployment import open_deployment

FOREVER = 1e300
"""Seconds that event time may run ahead of the clock: a frame's times are whatever its column says."""


class _FrameSource:
    """Gives the samples of a frame, and knows a frame again whose first rows a store has read."""

    name = "frame"
    bounded = True

    def __init__(self, samples: FrameSamples) -> None:
        self._samples = samples
        self._at = 0
        self._read = hashlib.sha256()

    def next_batch(self, max_samples: int) -> Batch:
        """Give the next rows, in event-time order."""
        part = slice(self._at, min(self._at + max_samples, len(self._samples.group)))
        self._digest(part)
        place = np.arange(part.start, part.stop)
        s = self._samples
        columns = SampleColumns(s.names, s.group[part], s.value[part], s.time[part], None, place + 1)
        self._at = part.stop
        position = {"rows": self._at, "digest": self._read.hexdigest(), "names": self._names_of(self._at)}
        return Batch(columns, Rejects(), position, exhausted=not len(columns))

    def restore(self, position: Position) -> None:
        """Go on after the rows that were read.

        Raises
        ------
        ValueError
            If these are not the first rows of this frame.
        """
        rows = int(position["rows"])
        rule = "begin with the rows that its store has read"
        require(rows <= len(self._samples.group), "frame", f"{rule} ({rows:,})", len(self._samples.group))
        self._at, self._read = 0, hashlib.sha256()
        self._digest(slice(0, rows))
        same = (self._read.hexdigest(), self._names_of(rows)) == (position["digest"], position["names"])
        require(same, "frame", rule, "other rows")
        self._at = rows

    def close(self) -> None:
        """Nothing is open."""

    def _names_of(self, rows: int) -> str:
        """Reduce the names of the groups that the first rows are of; groups are numbered as they are met."""
        met = int(self._samples.group[:rows].max(initial=-1)) + 1
        return hashlib.sha256("\0".join(self._samples.names[:met]).encode()).hexdigest()

    def _digest(self, part: slice) -> None:
        """Follow what is read, by row, whatever the batches."""
        s = self._samples
        rows = np.empty(part.stop - part.start, np.dtype([("group", "<i8"), ("value", "<f8"), ("time", "<f8")]))
        rows["group"], rows["value"], rows["time"] = s.group[part], s.value[part], s.time[part]
        self._read.update(rows.tobytes())


def releases_by_store(
    path: Path, samples: FrameSamples, settings: AgentsSettings, options: EngineOptions
) -> tuple[AgentsSettings, list[ReleaseColumns]]:
    """Run an engine on the rows that its store has not read; give all releases that the ledger holds.

    Raises
    ------
    ValueError
        If the frame does not begin with the rows that were read, or the store was made with other settings.
    StoreError
        If the store is in use, damaged or of another kind.
    """
    deployment = open_deployment(path, settings, environment=os.environ)
    most = max(len(samples.names), options.max_agents)
    chosen = replace(options, max_future=FOREVER, quorum=1, allowed_lateness=0.0, max_agents=most)
    try:
        source = _FrameSource(samples)
        Engine(
            source=source,
            settings=deployment.settings,
            noise=deployment.noise,
            store=deployment.store,
            sinks=Sinks(),
            options=chosen,
        ).run()
        read = deployment.store.agents()
        require(read == samples.names, "frame", "have the groups of the store, in their order", "others")
        return deployment.settings, list(releases_of_ledger(deployment.store.ledger))
    finally:
        deployment.store.close()
