"""Bytes of a batch of samples: its columns, and of its directory only the names that occur."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from apache_beam import coders
from apache_beam.coders import typecoders

from meanstream.pipelines.beam.element_types.packed import (
    estimated_bytes,
    names_of_packed,
    packed,
    unpacked,
)
from meanstream.streaming.events.event_columns import SampleColumns

_KIND = "batch"
_OPTIONAL = ("key", "person")


class SampleColumnsCoder(coders.Coder):  # type: ignore[misc]
    """Private: samples as arrays.

    A runner measures elements by their bytes, even where they never travel.

    Columns that do not belong together come out as they went in: whoever reads the batch rejects
    and counts it.
    """

    def encode(self, value: SampleColumns) -> bytes:
        """Write columns and names."""
        used, agent = np.unique(value.agent, return_inverse=True)
        if len(used) and not (used[0] >= 0 and used[-1] < len(value.names)):
            used = np.arange(len(value.names))
            agent = value.agent

        columns = {"agent": agent.astype(np.int64), "value": value.value, "time": value.time}
        columns["position"] = np.asarray(value.position, np.int64)

        for name in _OPTIONAL:
            column = getattr(value, name)
            if column is not None:
                columns[name] = column

        return packed(
            _KIND,
            {},
            columns,
            pa.array([value.names[place] for place in used.tolist()], pa.large_string()),
        )

    def decode(self, encoded: bytes) -> SampleColumns:
        """Read them."""
        _, columns = unpacked(encoded, _KIND)
        names = names_of_packed(columns).to_pylist()
        optional = {name: columns.get(name) for name in _OPTIONAL}
        return SampleColumns(
            names,
            columns["agent"],
            columns["value"],
            columns["time"],
            position=columns["position"],
            **optional,
        )

    def estimate_size(self, value: SampleColumns) -> int:
        """Runners ask often; names are not counted, as batches share them."""
        return estimated_bytes(
            [value.agent, value.value, value.time, value.position, value.key, value.person]
        )

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


typecoders.registry.register_coder(SampleColumns, SampleColumnsCoder)
