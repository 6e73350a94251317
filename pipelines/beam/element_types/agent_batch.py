"""Samples of agents as an element of a pipeline, and their bytes.

What sources give and agents take.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from apache_beam import coders
from apache_beam.coders import typecoders

from meanstream.operators.records import Bools, Ints
from meanstream.pipelines.beam.element_types.packed import (
    estimated_bytes,
    names_of_packed,
    pack_narrow,
    packed,
    unpacked,
)
from meanstream.streaming.events.event_columns import SampleColumns


class AgentBatch(SampleColumns):
    """Private: samples as a pipeline's element, with their ids.

    Made by `agent_transforms.agent_batch`.
    """

    __slots__ = ()

    def take(self, which: Ints | Bools | slice) -> AgentBatch:
        """Select entries; the list of names stays."""
        some = SampleColumns.take(self, which)
        return AgentBatch(
            some.names, some.agent, some.value, some.time, some.key, some.position, some.person
        )


class AgentBatchCoder(coders.Coder):  # type: ignore[misc]
    """Private: samples with their ids."""

    def encode(self, value: AgentBatch) -> bytes:
        """Columns one after the other, with the names that occur."""
        used, agent = np.unique(value.agent, return_inverse=True)
        columns = {
            "agent": pack_narrow(agent),
            "value": value.value,
            "time": value.time,
            "position": pack_narrow(value.position),
        }

        hashes = {
            name: hashed
            for name in ("key", "person")
            if (hashed := getattr(value, name)) is not None
        }
        names = pa.array([value.names[place] for place in used.tolist()], pa.large_string())

        return packed("batch", {}, {**columns, **hashes}, names)

    def decode(self, encoded: bytes) -> AgentBatch:
        """Read columns."""
        _, columns = unpacked(encoded, "batch")
        names = names_of_packed(columns).to_pylist()
        agent = columns["agent"].astype(np.int64)
        position = columns["position"].astype(np.int64)
        hashes = (columns.get("key"), position, columns.get("person"))

        return AgentBatch(names, agent, columns["value"], columns["time"], *hashes)

    def estimate_size(self, value: AgentBatch) -> int:
        """Runners ask often; names are not counted, as batches share them."""
        return estimated_bytes(
            [value.agent, value.value, value.time, value.position, value.key, value.person]
        )

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


typecoders.registry.register_coder(AgentBatch, AgentBatchCoder)
