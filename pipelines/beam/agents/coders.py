"""Bytes of what agents' steps pass on, and of the state of their shards: versioned, with a checksum, never pickle."""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam import coders
from apache_beam.coders import typecoders

from operators.collaboration import SUMMARIES, FittedPopulation
from operators.fitted_prior import FittedPrior
from operators.learning_alone import FittedAlone
from operators.pooled_variance import PooledVariance
from operators.records import OwnSamples, ReleaseColumns
from operators.sorted_tests import FittedTests
from pipelines.beam.agents.bytes import grown, names_of, narrow, numbers_of, opened, packed, shrunk, stepped
from pipelines.beam.agents.records import (
    AgentBatch,
    AgentReleases,
    AgentSamples,
    EstimateBatch,
    FittedReleases,
    ForShard,
    OwnBatch,
    Packed,
    PartialReleases,
    Tick,
)
from pipelines.beam.events import DamagedBytesError, EventCoder
from streaming.events import BudgetEvent, PersonalEstimate, Population, Refusal, Release
from streaming.store.snapshot import Columns

_TICK = struct.Struct("<qd")
POPULATIONS: dict[str, type[Any]] = {"prior": FittedPrior, "tests": FittedTests, "none": FittedAlone}
_PUBLIC = tuple(field.name for field in fields(ReleaseColumns))
_OWN = tuple(field.name for field in fields(OwnSamples))


def pack_samples(samples: AgentSamples) -> Packed:
    """Private: write samples for their shard, in as few bytes as they need: a runner copies them often."""
    numbers = {"time": samples.time.view(np.int64), "position": samples.position}  # of times, the bits
    first = {name: int(column[0]) if len(column) else 0 for name, column in numbers.items()}
    columns = shrunk("agent", samples.agent) | shrunk("point", samples.point)
    for name, column in numbers.items():
        columns |= stepped(name, column)
    if samples.key.any():
        columns["key"] = samples.key
    return Packed(packed("samples", first, columns, samples.names))


def open_samples(encoded: bytes) -> AgentSamples:
    """Private: read what `pack_samples` wrote."""
    _, first, columns = opened(encoded, "samples")
    time, position = (numbers_of(name, columns, first[name]) for name in ("time", "position"))
    return AgentSamples(
        names=names_of(columns),
        agent=grown("agent", columns),
        point=grown("point", columns),
        time=time.view(np.float64),
        key=columns.get("key", np.zeros(0, np.uint64)),
        position=position,
    )


class AgentReleasesCoder(coders.Coder):  # type: ignore[misc]
    """Public: releases."""

    def encode(self, value: AgentReleases) -> bytes:
        """Columns one after the other."""
        columns = {name: getattr(value.releases, name) for name in _PUBLIC}
        return packed(
            "releases", {"number": value.number, "alike": value.alike}, {**columns, "time": value.time}, value.names
        )

    def decode(self, encoded: bytes) -> AgentReleases:
        """Read columns."""
        _, head, columns = opened(encoded, "releases")
        names, time = names_of(columns), columns.pop("time")
        return AgentReleases(
            names=names, number=head["number"], releases=ReleaseColumns(**columns), time=time,
            alike=head.get("alike", True),  # it was not written at first
        )  # fmt: skip

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class ForShardCoder(coders.Coder):  # type: ignore[misc]
    """What a shard receives: bytes that it keeps as they are, or that it is time."""

    def encode(self, value: ForShard) -> bytes:
        """Say what it is, then give it."""
        if isinstance(value, Tick):
            return b"t" + _TICK.pack(value.number, value.newest)
        if isinstance(value, Packed):
            return b"p" + value.encoded
        raise TypeError(f"shard takes packed batches and ticks, got {type(value).__name__}")

    def decode(self, encoded: bytes) -> ForShard:
        """Read it."""
        if encoded[:1] == b"t" and len(encoded) == 1 + _TICK.size:
            return Tick(*_TICK.unpack_from(encoded, 1))
        if encoded[:1] == b"p":
            return Packed(encoded[1:])
        raise DamagedBytesError("data for a shard must be packed batches or ticks, got others")

    def estimate_size(self, value: ForShard) -> int:
        """Runners ask often, and would write all of it to learn its length."""
        return 1 + (len(value.encoded) if isinstance(value, Packed) else _TICK.size)

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class AgentBatchCoder(coders.Coder):  # type: ignore[misc]
    """Private: samples with their ids."""

    def encode(self, value: AgentBatch) -> bytes:
        """Columns one after the other, with the names that occur."""
        used, agent = np.unique(value.agent, return_inverse=True)
        columns = {"agent": narrow(agent), "value": value.value, "time": value.time, "position": narrow(value.position)}
        key = {} if value.key is None else {"key": value.key}
        names = pa.array([value.names[place] for place in used.tolist()], pa.large_string())
        return packed("batch", {}, {**columns, **key}, names)

    def decode(self, encoded: bytes) -> AgentBatch:
        """Read columns."""
        _, _, columns = opened(encoded, "batch")
        names = names_of(columns).to_pylist()
        agent, position = columns["agent"].astype(np.int64), columns["position"].astype(np.int64)
        return AgentBatch(names, agent, columns["value"], columns["time"], columns.get("key"), position)

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class OwnBatchCoder(coders.Coder):  # type: ignore[misc]
    """Private: agents' own sums."""

    def encode(self, value: OwnBatch) -> bytes:
        """Columns one after the other."""
        columns = {name: getattr(value.own, name) for name in _OWN}
        return packed("own", {"number": value.number}, {**columns, "words": value.words}, value.names)

    def decode(self, encoded: bytes) -> OwnBatch:
        """Read columns."""
        _, head, columns = opened(encoded, "own")
        names, words = names_of(columns), columns.pop("words")
        return OwnBatch(names=names, words=words, number=head["number"], own=OwnSamples(**columns))

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class PartialReleasesCoder(coders.Coder):  # type: ignore[misc]
    """Public: summaries of releases, and pools of shards."""

    def encode(self, value: PartialReleases) -> bytes:
        """Arrays as columns, the rest as plain data."""
        kind = next((name for name, known in SUMMARIES.items() if isinstance(value.summary, known)), None)
        if kind is None:
            raise TypeError(f"summary must be one of {', '.join(SUMMARIES)}, got {type(value.summary).__name__}")
        plain = value.summary.snapshot()
        columns = {name: array for name, array in plain.items() if isinstance(array, np.ndarray)}
        shape = {name: array.shape for name, array in columns.items() if array.ndim > 1}
        pools = {shard: value.pools[shard].snapshot() for shard in sorted(value.pools)}
        sums = np.array([pool.pop("sums") for pool in pools.values()], np.float64).ravel()
        rest = {name: one for name, one in plain.items() if name not in columns}
        head = {"newest": value.newest, "kind": kind, "summary": rest, "shape": shape, "pools": list(pools.items())}
        return packed("partial", head, {**{name: one.ravel() for name, one in columns.items()}, "pool sums": sums})

    def decode(self, encoded: bytes) -> PartialReleases:
        """Read them."""
        _, head, columns = opened(encoded, "partial")
        sums = columns.pop("pool sums").reshape(len(head["pools"]), 3, -1)
        pools = {
            shard: PooledVariance.restore({**pool, "sums": part})
            for (shard, pool), part in zip(head["pools"], sums, strict=True)
        }
        columns |= {name: columns[name].reshape(shape) for name, shape in head["shape"].items()}
        summary = SUMMARIES[head["kind"]].restore({**head["summary"], **columns})
        return PartialReleases(newest=head["newest"], summary=summary, pools=pools)

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class FittedReleasesCoder(coders.Coder):  # type: ignore[misc]
    """Public: a fitted population; a float keeps every bit."""

    def encode(self, value: FittedReleases) -> bytes:
        """Arrays as columns, the rest as plain data."""
        head, columns = _plain(value.fitted)
        known = {"newest": value.newest, "agents": value.agents, "variance": value.variance}
        return packed("fitted", {**known, "fitted": head}, columns)

    def decode(self, encoded: bytes) -> FittedReleases:
        """Read it."""
        _, head, columns = opened(encoded, "fitted")
        kind, plain = head.pop("fitted")
        for name in ("spread_probability", "size_probability"):
            if name in plain:
                plain[name] = dict(plain[name])
        return FittedReleases(fitted=POPULATIONS[kind](**plain, **columns), **head)

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class EstimateBatchCoder(coders.Coder):  # type: ignore[misc]
    """Private: lines of JSON; an event carries its own version."""

    def encode(self, value: EstimateBatch) -> bytes:
        """JSON escapes line ends, so these are ours."""
        return b"\n".join(value.lines)

    def decode(self, encoded: bytes) -> EstimateBatch:
        """Split lines."""
        return EstimateBatch(encoded.split(b"\n") if encoded else [])

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class ReleaseCoder(EventCoder):
    """Public: one release."""

    kind = Release


class PopulationCoder(EventCoder):
    """Public: the fitted population."""

    kind = Population


class BudgetEventCoder(EventCoder):
    """Public: an agent at its horizon."""

    kind = BudgetEvent


class RefusalCoder(EventCoder):
    """Public: a release that was refused."""

    kind = Refusal


class PersonalEstimateCoder(EventCoder):
    """Private: one estimate, for its agent."""

    kind = PersonalEstimate


CODERS: dict[type, type[coders.Coder]] = {
    AgentBatch: AgentBatchCoder,
    ForShard: ForShardCoder,
    AgentReleases: AgentReleasesCoder,
    OwnBatch: OwnBatchCoder,
    PartialReleases: PartialReleasesCoder,
    FittedReleases: FittedReleasesCoder,
    EstimateBatch: EstimateBatchCoder,
    Release: ReleaseCoder,
    Population: PopulationCoder,
    BudgetEvent: BudgetEventCoder,
    Refusal: RefusalCoder,
    PersonalEstimate: PersonalEstimateCoder,
}
"""The coder of each type that agents put into a PCollection."""

for _kind, _coder in CODERS.items():
    typecoders.registry.register_coder(_kind, _coder)


def _plain(fitted: FittedPopulation) -> tuple[list[Any], Columns]:
    kind = next((name for name, known in POPULATIONS.items() if isinstance(fitted, known)), None)
    if kind is None:
        raise TypeError(f"population must be one of {', '.join(POPULATIONS)}, got {type(fitted).__name__}")
    values = {field.name: getattr(fitted, field.name) for field in fields(POPULATIONS[kind])}
    columns = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in values.items() if name not in columns}
    return [kind, {name: list(v.items()) if isinstance(v, dict) else v for name, v in plain.items()}], columns
