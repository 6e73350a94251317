"""What a fit reads of one engine's releases, as plain arrays for the deployment's other engines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings, settings_identity
from meanstream.operators.agents.own_histogram import NO_HISTOGRAMS, HistogramColumns
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import SUMMARIES, ReleaseSummary
from meanstream.operators.collaboration.variance.pooled_variance import PooledVariance
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.validation import require
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.store.state_snapshot import Columns
from meanstream.streaming.store.state_store import Store

VERSION = 1
OTHERS = "others"
"""Kind of the chunks of a store that hold the summaries of others, as its last commit took them."""
_HEAD = "head"
_OF_SUMMARY = "summary."
_OF_SHARES = "shares."
_TOGETHER = (
    ("group", "cell", "number"),
    ("group_of_sums", "sums"),
    ("agent", "count", "mean", "noise_variance", "noise_terms"),
)
"""Columns of a summary that have one length."""
_AT_LEAST_ZERO = ("number", "sums", "noise_variance", "noise_terms")


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """What a file says besides its arrays."""

    version: int
    engine: str
    deployment: str
    run: str | None
    agents: int
    kind: str
    numbers: dict[str, float | int]
    pool: dict[str, Any]


_HEADS = msgspec.json.Decoder(_Head)


@dataclass(frozen=True, slots=True, eq=False)
class EngineSummary:
    """Public: what a fit reads of the releases of one engine's agents.

    Attributes
    ----------
    engine : str
        Public id of its store.
    deployment : str
        Digest of all that engines have to agree on.
    agents : int
        How many of its agents have released.
    summary : ReleaseSummary
        Of the newest release of each.
    pool : PooledVariance
        Of one sample.
    histograms : HistogramColumns
        As far as a prior of shares is learned of them; an agent's number is the hash of its name.
    run : str or None
        The run of all shards at whose end it was written; None before the end.
    """

    engine: str
    deployment: str
    agents: int
    summary: ReleaseSummary
    pool: PooledVariance
    histograms: HistogramColumns = NO_HISTOGRAMS
    run: str | None = None

    def columns(self) -> Columns:
        """Give it as plain arrays."""
        arrays: Columns = {}
        numbers: dict[str, float | int] = {}
        for name, value in self.summary.snapshot().items():
            if isinstance(value, np.ndarray):
                whole = value.dtype.kind in "iu"
                arrays[_OF_SUMMARY + name] = value.astype(np.int64) if whole else value
            else:
                numbers[name] = value

        for name, column in zip(HistogramColumns._fields, self.histograms, strict=True):
            arrays[_OF_SHARES + name] = column

        (kind,) = (name for name, made in SUMMARIES.items() if isinstance(self.summary, made))
        head = _Head(
            version=VERSION,
            engine=self.engine,
            deployment=self.deployment,
            run=self.run,
            agents=self.agents,
            kind=kind,
            numbers=numbers,
            pool=self.pool.snapshot(),
        )

        return {_HEAD: np.frombuffer(msgspec.json.encode(head), np.uint8), **arrays}


def read_summary(columns: Columns) -> EngineSummary:
    """Make a summary of its arrays; `ValueError` and its like if they are none."""
    head = _HEADS.decode(columns[_HEAD].tobytes())
    require(head.version == VERSION, "summary", f"have version {VERSION}", head.version)
    arrays = {
        name.removeprefix(_OF_SUMMARY): column
        for name, column in columns.items()
        if name.startswith(_OF_SUMMARY)
    }

    _require_numbers(arrays.values())
    _require_whole(arrays)
    summary: ReleaseSummary = SUMMARIES[head.kind].restore({**head.numbers, **arrays})
    require(head.agents == summary.n, "summary", f"be of {head.agents} agents", summary.n)
    shares = HistogramColumns(*(columns[_OF_SHARES + name] for name in HistogramColumns._fields))
    _require_numbers(shares)
    pool = PooledVariance.restore(head.pool)
    _require_numbers([np.asarray(head.pool["sums"])])

    return EngineSummary(
        engine=head.engine,
        deployment=head.deployment,
        agents=head.agents,
        summary=summary,
        pool=pool,
        histograms=shares,
        run=head.run,
    )


def _require_numbers(arrays: Iterable[np.ndarray[Any, Any]]) -> None:
    """Refuse what is no number: one would make each answer none."""
    for array in arrays:
        require(bool(np.isfinite(array).all()), "summary", "have numbers only", "others")


def _require_whole(arrays: Columns) -> None:
    """Refuse columns of several lengths, and counts and variances below zero."""
    for together in _TOGETHER:
        lengths = {arrays[name].shape[-1] for name in together if name in arrays}
        require(len(lengths) < 2, "summary", "have columns of one length", "others")

    # Of a release that is kept by itself: mean, count, and the variance and the terms of its noise.
    rows = arrays.get("rows", np.zeros((4, 0)))
    require(rows.shape[0] == 4, "summary", "have four rows", rows.shape[0])
    counts = [rows[1], arrays.get("count", rows[1])]
    require(all(bool((count > 0).all()) for count in counts), "summary", "count samples", "none")

    for column in (rows[2:], *(arrays.get(name, rows[2:]) for name in _AT_LEAST_ZERO)):
        require(bool((column >= 0).all()), "summary", "be of at least 0", "others")


def deployment_digest(settings: AgentsSettings, options: EngineOptions) -> str:
    """Public: give a digest of all that engines that learn together agree on.

    The name and the settings of the deployment, how agents learn, and which attributes they have.
    """
    design = None if options.covariates is None else repr(options.covariates.design)
    agreed = [VERSION, settings_identity(settings), options.collaboration, design]
    return hashlib.sha256(msgspec.json.encode(agreed)).hexdigest()


class OtherReleases:
    """Public: what other engines of the deployment have published, as one commit took it.

    **Privacy.** It holds summaries of charged releases: what is computed from it is
    post-processing.
    """

    def __init__(self, parts: Iterable[EngineSummary] = ()) -> None:
        self.parts: Sequence[EngineSummary] = sorted(parts, key=lambda part: part.engine)

    @property
    def agents(self) -> int:
        """How many agents of others have released."""
        return sum(part.agents for part in self.parts)

    @property
    def histograms(self) -> Sequence[HistogramColumns]:
        """Their histograms; an agent's number is the hash of its name."""
        return [part.histograms for part in self.parts if len(part.histograms.agent)]

    def joined(self, own: ReleaseSummary) -> ReleaseSummary:
        """Add the releases of others to those of the own agents."""
        for part in self.parts:
            own.merge(part.summary)

        return own

    def posterior(self, followed: FollowedReleases) -> VariancePosterior:
        """Give what everyone's releases say of the variance of one sample."""
        if not self.parts:
            return followed.posterior
        pool = PooledVariance.restore(followed.pool().snapshot())
        for part in self.parts:
            pool.merge(part.pool)

        return pool.posterior()


NO_OTHERS = OtherReleases()
"""Of an engine that is alone."""


def others_of_store(store: Store, deployment: str | None = None) -> OtherReleases:
    """Read what the last commit of a store took from other engines.

    Of engines that agree on everything, where it is given what that is.
    """
    parts = [read_summary(columns) for _, columns in store.chunks(OTHERS)]
    return OtherReleases(part for part in parts if deployment in (None, part.deployment))


def empty_like(summary: ReleaseSummary) -> ReleaseSummary:
    """Make a summary of the same kind that a good one can be added to."""
    arrays = {
        name: value[..., :0] if name in ("rows", "sums") else value[:0]
        for name, value in summary.snapshot().items()
        if isinstance(value, np.ndarray)
    }
    kind: Any = type(summary)
    made: ReleaseSummary = kind.restore({**summary.snapshot(), **arrays})
    return made
