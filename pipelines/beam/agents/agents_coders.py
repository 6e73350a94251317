"""Bytes of what agents' steps pass on, and of the state of their shards.

Versioned, with a checksum, never pickle.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from apache_beam.coders import typecoders

from meanstream.lab.papers.colme.consensus import FittedConsensus
from meanstream.lab.papers.colme.same_mean_tests import FittedTests
from meanstream.operators.agents.own_histogram import HistogramColumns
from meanstream.operators.collaboration.alone import FittedAlone
from meanstream.operators.collaboration.covariates.covariate_design import (
    Category,
    Number,
    SampleCount,
)
from meanstream.operators.collaboration.covariates.learned_effects import LearnedEffects
from meanstream.operators.collaboration.covariates.prior_with_covariates import (
    FittedWithCovariates,
)
from meanstream.operators.collaboration.james_stein import FittedJamesStein
from meanstream.operators.collaboration.noise_share import FittedNoise
from meanstream.operators.collaboration.prior.prior_by_count import FittedByCount
from meanstream.operators.collaboration.prior.prior_fitted import FittedPrior
from meanstream.operators.collaboration.registry import SUMMARIES, Collaboration
from meanstream.operators.collaboration.shares.shares_prior import SharesPrior
from meanstream.operators.collaboration.variance.pooled_variance import PooledVariance
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import OwnSamples, ReleaseColumns
from meanstream.operators.validation import require
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentReleases,
    AgentSamples,
    EstimateBatch,
    FittedReleases,
    ForgetAgent,
    ForShard,
    OwnBatch,
    Packed,
    PartialReleases,
    Tick,
    Ticks,
)
from meanstream.pipelines.beam.element_types.columns_coder import (
    register_elements,
    register_records,
)
from meanstream.pipelines.beam.element_types.events import (
    DamagedBytesError,
    LineText,
    OwnCoder,
    text_of_lines,
)
from meanstream.pipelines.beam.element_types.packed import (
    names_of_packed,
    numbers_of_packed,
    packed,
    packed_grown,
    packed_head,
    packed_shrunk,
    packed_steps,
    unpacked,
)
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import PersonalEstimate
from meanstream.streaming.store.state_snapshot import Columns

_TICK = struct.Struct("<qd")
POPULATIONS: dict[str, type[Any]] = {
    "by_count": FittedByCount,
    "prior": FittedPrior,
    "james_stein": FittedJamesStein,
    "tests": FittedTests,
    "consensus": FittedConsensus,
    "covariates": FittedWithCovariates,
    "none": FittedAlone,
}


def pack_for_coder(samples: AgentSamples) -> Packed:
    """Private: write samples for their shard, in as few bytes as they need.

    A runner copies them often.
    """
    numbers = {
        "time": samples.time.view(np.int64),
        "position": samples.position,
    }  # of times, the bits

    # Ids are left out where there are none.
    if samples.key.any():
        numbers["key"] = samples.key.view(np.int64)

    first: dict[str, Any] = {
        name: int(column[0]) if len(column) else 0 for name, column in numbers.items()
    }

    # First and last time are in the head: a turn looks at them without reading the rest.
    if len(samples):
        first["times"] = [float(samples.time.min()), float(samples.time.max())]

    columns = packed_shrunk("agent", samples.agent) | packed_shrunk("point", samples.point)
    for name, column in numbers.items():
        columns |= packed_steps(name, column)

    if len(samples.person):
        columns["person"] = samples.person

    return Packed(packed("samples", first, columns, samples.names))


def view_packed(encoded: bytes) -> tuple[Any, Columns]:
    """Private: the head of packed samples and their columns, as they are.

    The head has their first and last `times`.
    """
    return unpacked(encoded, "samples")


def unpack_for_coder(encoded: bytes) -> AgentSamples:
    """Private: read what `pack_for_coder` wrote."""
    return samples_of_view(*view_packed(encoded))


def samples_of_view(first: Any, columns: Columns) -> AgentSamples:
    """Private: give packed samples that were looked at."""
    time, position = (
        numbers_of_packed(name, columns, first[name]) for name in ("time", "position")
    )
    key = columns.get("key", np.zeros(0, np.uint64))

    # Keys in the order of places are written as steps.
    if key.itemsize < 8:  # steps: keys stand in the order of places
        key = numbers_of_packed("key", columns, first["key"])

    return AgentSamples(
        names=names_of_packed(columns),
        agent=packed_grown("agent", columns),
        point=packed_grown("point", columns),
        time=time.view(np.float64),
        key=key.view(np.uint64),
        position=position,
        person=columns.get("person", np.zeros(0, np.uint64)),
    )


def packed_number(encoded: bytes, kind: str) -> int:
    """Public: the window of packed `releases`, or of a packed change, `partial`."""
    return int(packed_head(encoded, kind)[kind]["number"])


class ForShardCoder(OwnCoder):
    """What a shard receives: bytes that it keeps as they are, or that it is time."""

    def encode(self, value: ForShard) -> bytes:
        """Say what it is, then give it."""
        # One letter says what follows.
        if isinstance(value, Tick):
            return b"t" + _TICK.pack(value.number, value.newest) + value.shards
        if isinstance(value, Ticks):
            return b"m" + b"".join(_TICK.pack(tick.number, tick.newest) for tick in value.ticks)
        if isinstance(value, Packed):
            return b"p" + value.encoded

        if isinstance(value, ForgetAgent):
            return b"f" + value.agent.encode()
        raise TypeError(f"shard takes packed batches and ticks, got {type(value).__name__}")

    def decode(self, encoded: bytes) -> ForShard:
        """Read it."""
        # A tick without shards has the length of a number and a time.
        if encoded[:1] == b"t" and len(encoded) > _TICK.size:
            number, newest = _TICK.unpack_from(encoded, 1)
            return Tick(number, newest, encoded[1 + _TICK.size :])

        if encoded[:1] == b"m" and len(encoded) % _TICK.size == 1:
            return Ticks(tuple(Tick(*one) for one in _TICK.iter_unpack(encoded[1:])))
        if encoded[:1] == b"p":
            return Packed(encoded[1:])
        if encoded[:1] == b"f":
            return ForgetAgent(encoded[1:].decode())

        raise DamagedBytesError("data for a shard must be packed batches or ticks, got others")

    def estimate_size(self, value: ForShard) -> int:
        """Runners ask often, and would write all of it to learn its length."""
        if isinstance(value, Ticks):
            return 1 + _TICK.size * len(value.ticks)
        return 1 + (len(value.encoded) if isinstance(value, Packed) else _TICK.size + 32)


class EstimateBatchCoder(OwnCoder):
    """Private: lines of JSON; an event carries its own version."""

    def encode(self, value: EstimateBatch) -> bytes:
        """JSON escapes line ends, so these are ours."""
        return text_of_lines(EventLines(PersonalEstimate, value.lines))

    def decode(self, encoded: bytes) -> EstimateBatch:
        """Lines are split where one of them is requested."""
        return EstimateBatch(LineText(encoded))

    def estimate_size(self, value: EstimateBatch) -> int:
        """Runners ask often."""
        if isinstance(value.lines, LineText):
            return len(value.lines.text)
        return sum(map(len, value.lines))


register_records(
    release_columns=ReleaseColumns,
    own_samples=OwnSamples,
    histogram_columns=HistogramColumns,
    pool=PooledVariance,
    variance=VariancePosterior,
    shares=SharesPrior,
    noise=FittedNoise,
    effects=LearnedEffects,
    category=Category,
    number=Number,
    sample_count=SampleCount,
    **{f"summary_{name}": kind for name, kind in SUMMARIES.items()},
    **{f"fitted_{name}": kind for name, kind in POPULATIONS.items()},
)
register_elements(
    releases=AgentReleases, own=OwnBatch, partial=PartialReleases, fitted=FittedReleases
)
typecoders.registry.register_coder(ForShard, ForShardCoder)
typecoders.registry.register_coder(EstimateBatch, EstimateBatchCoder)


def require_coded(collaboration: Collaboration) -> None:
    """Refuse a collaboration whose summary or population has no coder, before the pipeline runs."""
    empty = np.zeros(0, np.int64)
    none = ReleaseColumns(
        agent=empty,
        index=empty,
        count=empty,
        total=empty,
        mean=np.zeros(0),
        noise_variance=np.zeros(0),
    )
    summary = collaboration.summarize(none)

    # A class of somebody else would fail in a worker only.
    for what, made, known in (
        ("summaries", summary, SUMMARIES),
        ("populations", collaboration.fit_summary(summary, 1.0), POPULATIONS),
    ):
        names = ", ".join(one.__name__ for one in known.values())
        rule = f"use one of Meanstream's {what} on Beam ({names})"
        require(type(made) in known.values(), "collaboration", rule, type(made).__name__)
