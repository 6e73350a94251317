"""Bytes of what agents' steps pass on, and of the state of their shards.

Versioned, with a checksum, never pickle.
"""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import Any

import numpy as np
from apache_beam import coders
from apache_beam.coders import typecoders

from meanstream.lab.papers.colme.same_mean_tests import FittedTests
from meanstream.operators.agents.own_histogram import HistogramColumns
from meanstream.operators.collaboration.alone import FittedAlone
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
    ForgetAgent,
    ForShard,
    OwnBatch,
    Packed,
    Tick,
    Ticks,
)
from meanstream.pipelines.beam.agents.population_event import FittedReleases, PartialReleases
from meanstream.pipelines.beam.element_types.events import DamagedBytesError, EventCoder
from meanstream.pipelines.beam.element_types.line_text import LineText, text_of_lines
from meanstream.pipelines.beam.element_types.packed import (
    estimated_bytes,
    names_of_packed,
    numbers_of_packed,
    packed,
    packed_columns_of,
    packed_grown,
    packed_head,
    packed_narrow,
    packed_shrunk,
    packed_steps,
    packed_wide,
    unpacked,
)
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import (
    BudgetEvent,
    DriftEvent,
    PersonalEstimate,
    Population,
    Refusal,
    Release,
)
from meanstream.streaming.store.state_snapshot import Columns

_TICK = struct.Struct("<qd")
POPULATIONS: dict[str, type[Any]] = {
    "by count": FittedByCount,
    "prior": FittedPrior,
    "james_stein": FittedJamesStein,
    "tests": FittedTests,
    "covariates": FittedWithCovariates,
    "none": FittedAlone,
}
_POOL = ("variance", "weight", "degrees", "ties")
_SHARES = ("mean", "below", "concentration", "weight")
_OWN = tuple(field.name for field in fields(OwnSamples))


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


def packed_sample_times(encoded: bytes) -> list[float]:
    """Private: the first and the last event time of packed samples."""
    times: list[float] = packed_head(encoded, "samples")["times"]
    return times


def unpack_for_coder(encoded: bytes) -> AgentSamples:
    """Private: read what `pack_for_coder` wrote."""
    first, columns = unpacked(encoded, "samples")
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


class AgentReleasesCoder(coders.Coder):  # type: ignore[misc]
    """Public: releases."""

    def encode(self, value: AgentReleases) -> bytes:
        """Columns one after the other."""
        columns = {**packed_narrow(packed_columns_of(value.releases)), "time": value.time}
        if len(value.words):
            columns["words"] = value.words

        return packed(
            "releases", {"number": value.number, "alike": value.alike}, columns, value.names
        )

    def decode(self, encoded: bytes) -> AgentReleases:
        """Read columns."""
        head, columns = unpacked(encoded, "releases")
        names = names_of_packed(columns)
        time = columns.pop("time")
        words = columns.pop("words", np.zeros((0, 2), np.uint64))
        releases = ReleaseColumns(**packed_wide(columns))

        return AgentReleases(
            names=names, number=head["number"], releases=releases, time=time,
            alike=head["alike"],
            words=words,
        )  # fmt: skip

    def estimate_size(self, value: AgentReleases) -> int:
        """Runners ask often."""
        return estimated_bytes(
            [*packed_columns_of(value.releases).values(), value.time, value.words], value.names
        )

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


def packed_releases_number(encoded: bytes) -> int:
    """Public: the window of packed releases."""
    return int(packed_head(encoded, "releases")["number"])


class ForShardCoder(coders.Coder):  # type: ignore[misc]
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

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class OwnBatchCoder(coders.Coder):  # type: ignore[misc]
    """Private: agents' own sums."""

    def encode(self, value: OwnBatch) -> bytes:
        """Columns one after the other."""
        columns = {name: getattr(value.own, name) for name in _OWN} | {
            "part": value.part,
            "newest": value.newest,
        }

        # Without histograms there are no cells to write.
        if not value.own.cells.shape[1]:
            del columns["cells"]

        return packed(
            "own",
            {"number": value.number},
            {**packed_narrow(columns), "words": value.words},
            value.names,
        )

    def decode(self, encoded: bytes) -> OwnBatch:
        """Read columns."""
        head, columns = unpacked(encoded, "own")
        names = names_of_packed(columns)
        words = columns.pop("words")
        number = head["number"]
        columns = packed_wide(columns)
        part = columns.pop("part")
        newest = columns.pop("newest")

        return OwnBatch(
            names=names,
            words=words,
            number=number,
            own=OwnSamples(**columns),
            part=part,
            newest=newest,
        )

    def estimate_size(self, value: OwnBatch) -> int:
        """Runners ask often."""
        own = [getattr(value.own, name) for name in _OWN]
        return estimated_bytes([*own, value.part, value.newest, value.words], value.names)

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class PartialReleasesCoder(coders.Coder):  # type: ignore[misc]
    """Public: summaries of releases, and pools of shards."""

    def encode(self, value: PartialReleases) -> bytes:
        """Arrays as columns, the rest as plain data."""
        columns: Columns = {}
        head: dict[str, Any] = {"turns": sorted(value.turns.items()), "number": value.number}
        for role, summary in (("summary", value.summary), ("before", value.before)):
            if summary is None:
                continue

            # Only known kinds of summaries are written: what reads them must know them, too.
            kind = next(
                (name for name, known in SUMMARIES.items() if isinstance(summary, known)), None
            )

            if kind is None:
                raise TypeError(
                    f"summary must be one of {', '.join(SUMMARIES)}, got {type(summary).__name__}"
                )

            # Arrays become columns, with their shapes in the head; the rest is plain.
            plain = summary.snapshot()
            arrays = {name: array for name, array in plain.items() if isinstance(array, np.ndarray)}
            shape = {name: array.shape for name, array in arrays.items() if array.ndim > 1}
            rest = {name: one for name, one in plain.items() if name not in arrays}
            head[role] = {"kind": kind, "plain": rest, "shape": shape}
            columns |= {f"{role} {name}": array.ravel() for name, array in arrays.items()}

        # Pools of the shards in their order, so that equal data are equal bytes.
        pools = {shard: value.pools[shard].snapshot() for shard in sorted(value.pools)}
        sums = np.array([pool.pop("sums") for pool in pools.values()], np.float64).ravel()

        if value.histograms is not None:
            told = {
                f"histogram {name}": column for name, column in value.histograms._asdict().items()
            }
            columns |= packed_narrow(told)

        return packed(
            "partial", {**head, "pools": list(pools.items())}, {**columns, "pool sums": sums}
        )

    def decode(self, encoded: bytes) -> PartialReleases:
        """Read them."""
        head, columns = unpacked(encoded, "partial")
        sums = columns.pop("pool sums").reshape(len(head["pools"]), 3, -1 if head["pools"] else 0)
        pools = {
            shard: PooledVariance.restore({**pool, "sums": part})
            for (shard, pool), part in zip(head["pools"], sums, strict=True)
        }
        found: dict[str, Any] = {}

        for role in ("summary", "before"):
            if role in head:
                of = head[role]
                arrays = {
                    k.removeprefix(f"{role} "): v
                    for k, v in columns.items()
                    if k.startswith(f"{role} ")
                }
                arrays |= {name: arrays[name].reshape(shape) for name, shape in of["shape"].items()}
                found[role] = SUMMARIES[of["kind"]].restore({**of["plain"], **arrays})

        if "histogram agent" in columns:
            told = (
                columns[f"histogram {name}"].astype(np.int64) for name in HistogramColumns._fields
            )
            found["histograms"] = HistogramColumns(*told)

        return PartialReleases(
            pools=pools, turns=dict(head["turns"]), number=head["number"], **found
        )

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class FittedReleasesCoder(coders.Coder):  # type: ignore[misc]
    """Public: a fitted population; a float keeps every bit."""

    def encode(self, value: FittedReleases) -> bytes:
        """Arrays as columns, the rest as plain data."""
        head, columns = _plain(value.fitted)

        # What every shard needs to answer: the population, what is known of variances, and how new
        # it is.
        known = {
            "number": value.number, "newest": value.newest, "agents": value.agents, "overtaken": value.overtaken,
            "bounds": [value.pool.lower, value.pool.upper], "shards": value.shards.hex(),
        }  # fmt: skip
        pool = {f"pool {name}": getattr(value.pool, name) for name in _POOL}
        known["independent"] = value.pool.independent
        known["yes_no"] = value.pool.yes_no

        # The long run has points of its own where samples depend.
        if value.pool.long_run is not None:
            pool |= {f"long {name}": getattr(value.pool.long_run, name) for name in _POOL}

        if value.shares is not None:
            known["shares agents"] = value.shares.agents
            columns |= {f"shares {name}": getattr(value.shares, name) for name in _SHARES}

        return packed("fitted", {**known, "fitted": head}, {**columns, **pool})

    def decode(self, encoded: bytes) -> FittedReleases:
        """Read it."""
        head, columns = unpacked(encoded, "fitted")
        lower, upper = head.pop("bounds")
        known: dict[str, Any] = {name: columns.pop(f"pool {name}") for name in _POOL}
        known |= {"lower": lower, "upper": upper}
        known |= {name: head.pop(name) for name in ("independent", "yes_no")}

        if "long variance" in columns:
            long_run: dict[str, Any] = {name: columns.pop(f"long {name}") for name in _POOL}
            known["long_run"] = VariancePosterior(**long_run)

        pool = VariancePosterior(**known)
        shares = None
        agents = head.pop("shares agents", None)
        if agents is not None:
            shares = SharesPrior(
                agents=agents, **{name: columns.pop(f"shares {name}") for name in _SHARES}
            )

        fitted = _population(head.pop("fitted"), columns)
        shards = bytes.fromhex(head.pop("shards"))
        return FittedReleases(fitted=fitted, pool=pool, shares=shares, shards=shards, **head)

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class EstimateBatchCoder(coders.Coder):  # type: ignore[misc]
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


class DriftEventCoder(EventCoder):
    """Public: an agent whose mean has changed, or may have."""

    kind = DriftEvent


class PersonalEstimateCoder(EventCoder):
    """Private: one estimate, for its agent."""

    kind = PersonalEstimate


CODERS: dict[type, type[coders.Coder]] = {
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
    DriftEvent: DriftEventCoder,
    PersonalEstimate: PersonalEstimateCoder,
}
"""The coder of each type that agents put into a PCollection."""

for _kind, _coder in CODERS.items():
    typecoders.registry.register_coder(_kind, _coder)


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
        rule = f"use one of Meanstream's {what} on Beam ({', '.join(one.__name__ for one in known.values())})"
        require(type(made) in known.values(), "collaboration", rule, type(made).__name__)


def _plain(fitted: Any) -> tuple[list[Any], Columns]:
    """Arrays as columns; a population within one as its plain values, and its arrays under its name and a dot."""
    kind = next((name for name, known in POPULATIONS.items() if type(fitted) is known), None)
    if kind is None:
        raise TypeError(
            f"population must be one of {', '.join(POPULATIONS)}, got {type(fitted).__name__}"
        )

    plain: dict[str, Any] = {}

    # A population may hold another one: its arrays have its name before theirs.
    columns: Columns = {}
    for name in (field.name for field in fields(POPULATIONS[kind])):
        value = getattr(fitted, name)
        if isinstance(value, np.ndarray):
            columns[name] = value
        elif type(value) in (*POPULATIONS.values(), LearnedEffects):
            plain[name], inner = (
                value.snapshot() if isinstance(value, LearnedEffects) else _plain(value)
            )
            columns |= {f"{name}.{column}": array for column, array in inner.items()}
        else:
            plain[name] = list(value.items()) if isinstance(value, dict) else value

    return [kind, plain], columns


def _population(head: list[Any], columns: Columns) -> Any:
    """Read what `_plain` wrote."""
    # Named tuples and dictionaries are lists on the wire.
    kind, plain = head
    for name, value in plain.items():
        inner = {
            at.removeprefix(f"{name}."): array
            for at, array in columns.items()
            if at.startswith(f"{name}.")
        }

        if name in ("spread_probability", "size_probability", "probability"):
            plain[name] = dict(value)
        elif name == "noise":  # as a named tuple is read again
            plain[name] = FittedNoise(*value)
        elif name == "effects":
            plain[name] = LearnedEffects.restore(value, inner)
        elif inner:
            plain[name] = _population(value, inner)

    return POPULATIONS[kind](
        **plain, **{name: array for name, array in columns.items() if "." not in name}
    )
