"""The means of one column: how its groups release, and what is answered from the releases alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.admission import COUNTS
from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import AT_THE_END, usual_histogram
from meanstream.operators.agents.own_histogram import histograms_of_releases
from meanstream.operators.agents.vote_of_spread import BY_CONTENT, BY_TIME
from meanstream.operators.collaboration.anytime_intervals import Coverage
from meanstream.operators.collaboration.followed_releases import FollowedReleases, NewestReleases
from meanstream.operators.collaboration.registry import collaboration_name
from meanstream.operators.collaboration.shares.shares_quantiles import valid_quantiles
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats, ReleaseColumns
from meanstream.operators.validation import require
from meanstream.pipelines.frames.arguments import frame_key
from meanstream.pipelines.frames.budget_shares import spread_share_of_rows
from meanstream.pipelines.frames.decisions.named_means import joint_columns
from meanstream.pipelines.frames.frame_columns import FrameSamples
from meanstream.pipelines.frames.frame_covariates import covariates_said, frame_covariates
from meanstream.pipelines.frames.frame_levels import FrameLevels, LevelTables, level_columns
from meanstream.pipelines.frames.frame_pairs import content_order, frame_pairs, row_digests
from meanstream.pipelines.frames.frame_releases import FrameReleases
from meanstream.pipelines.frames.frame_result import LearnedPopulation, PrivateMeans
from meanstream.pipelines.frames.groups import key_order
from meanstream.pipelines.frames.rows_at_hand import (
    Target,
    answers_of_rows,
    means_meaning,
)
from meanstream.pipelines.frames.values.question import MeansQuestion
from meanstream.pipelines.frames.values.value_columns import (
    frame_bounds,
    valid_statistics,
    with_sums,
)
from meanstream.pipelines.frames.values.whole_persons import samples_within_limits
from meanstream.streaming.agents.estimates import PersonalEstimates, ShareEstimates
from meanstream.streaming.agents.public_population import PublicPopulation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.long_work import tracked_work
from meanstream.streaming.store.secret_source import noise_from_secret

ANSWERS = ("rows", "mean", "lower", "upper", "released", "noise_stddev")
"""Columns of the result, next to those of the groups."""
MOVED = "moved_by_covariates"
"""Column that says by how much public covariates have moved a mean."""
LEFT = "releases_left"
"""Column of the result with a store."""
TOGETHER = (
    "A group's intervals hold at all calls together, however often one looks (coverage anytime)"
)
CHUNK = 1 << 20
"""Samples that are taken at a time: what they touch fits into the processor's caches."""


def means_of_column(question: MeansQuestion) -> PrivateMeans:
    """Release the means of one column's groups, and answer from the releases alone.

    Notes
    -----
    **Privacy.** With a store the ledger charges each release before it is here. After the releases nothing looks at
    the rows but for their public numbers and owners.
    """
    bounds = frame_bounds(question.frame, question.column, question.lower, question.upper)
    quantiles = valid_quantiles(question.quantiles)
    samples = question.samples()
    settings = _settings(question, bounds, samples, quantiles)

    # What cannot be answered is refused before anything is released.
    sums = valid_statistics(question.statistics)
    shares = shares_columns(quantiles, settings.exceeds)
    question.check_target(shares)
    further = [*sums, MOVED, LEFT, *level_columns(question.nested), *shares]
    _require_free_names(samples.keys.column_names, [*ANSWERS, *further])
    options = _engine_options(question, samples, quantiles)

    released = _released(question, samples, settings, options)
    answers = _answered(released, options, question.target, nested=question.nested)
    return _result(question, released, answers.with_sums(sums), len(samples.group))


def _settings(
    question: MeansQuestion,
    bounds: tuple[float, float],
    samples: FrameSamples,
    quantiles: tuple[float, ...],
) -> AgentsSettings:
    """What is released, with which noise, by public facts."""
    limits = question.limits
    chosen = question.settings | usual_histogram(quantiles, question.exceeds, question.settings)

    # A vote on the spread has as little of the budget as these rows need.
    one_call = question.store is None and limits is None and "mode" not in chosen
    if one_call and question.epsilon is not None:
        sizes = np.bincount(samples.group)
        share = spread_share_of_rows(sizes, question.budget, question.per_person or 1)
        chosen = {"spread_share": share} | chosen

    question.check_releases()

    # Of a person in several groups the limits decide how much counts in one.
    settings = AgentsSettings(
        lower=bounds[0],
        upper=bounds[1],
        epsilon=question.budget,
        delta=question.delta,
        odds=question.odds,
        horizon=question.horizon,
        schedule=question.schedule or AT_THE_END,
        per_person=question.per_person if limits is None else limits.max_rows,
        name=question.name,
        pairs=BY_CONTENT if question.time is None else BY_TIME,
        **chosen,
    )
    if limits is None:
        return settings

    counter = settings.counter
    return limits.settings(
        lambda each: replace(settings, epsilon=each, counter=counter), question.budget
    )


def _require_free_names(keys: Sequence[str], columns: Sequence[str]) -> None:
    clash = next((name for name in keys if name in columns), None)
    rule = f"not be named like a column of the result ({', '.join(columns)})"
    require(clash is None, "by", rule, clash)


def _engine_options(
    question: MeansQuestion, samples: FrameSamples, quantiles: tuple[float, ...]
) -> EngineOptions:
    """How answers are made of the releases."""
    covariates = question.covariates
    if covariates is not None:
        covariates = frame_covariates(question.frame, covariates, samples, by=question.by)

    return EngineOptions(
        collaboration=collaboration_name(question.collaboration),
        level=question.level,
        coverage=question.coverage,
        quantiles=quantiles,
        covariates=covariates,
        refresh=None,
    )


def _released(
    question: MeansQuestion,
    samples: FrameSamples,
    settings: AgentsSettings,
    options: EngineOptions,
) -> FrameReleases:
    """Releases of all groups: charged in a store, or of this call alone."""
    if question.store is not None:
        from meanstream.pipelines.frames.stored import releases_by_store

        rule = "be left out with a store, which has its own"
        require(question.secret is None, "secret", rule, "another")
        columns = {
            "by": ", ".join(question.keys),
            "value": question.column,
            "time": question.time,
            "person": question.person,
        }
        path = Path(question.store)
        return releases_by_store(path, samples, settings, options, columns=columns)

    key, deployment = frame_key(question.secret, question.name)
    noise = noise_from_secret(key, deployment)
    limits = question.limits
    if limits is not None:
        samples = samples_within_limits(samples, limits, noise)

    return _releases_of_call(samples, replace(settings, name=deployment), noise)


def _releases_of_call(
    samples: FrameSamples, settings: AgentsSettings, noise: KeyedNoise
) -> FrameReleases:
    """Have all groups release as an engine would, at the end once more."""
    agents = Agents(settings, noise)
    agents.add_agents(samples.names)

    if samples.person is not None or settings.schedule != AT_THE_END:  # else it shows nowhere
        digests = row_digests(noise, settings.grid, samples)
        samples = samples.in_order(content_order(samples, digests))

    every: list[ReleaseColumns] = []
    counted = []
    for chunk in tracked_work(_chunks(samples), "private means"):
        person = samples.person_hashes(chunk)
        group = samples.group[chunk].astype(np.int64)
        batch = agents.update(group, samples.value[chunk], samples.times(chunk), person)
        every.append(batch.releases)

        if batch.fates is not None:
            counted.append(chunk.start + np.flatnonzero(batch.fates == COUNTS))

    if settings.vote is not None and settings.pairs == BY_CONTENT:
        rows = np.concatenate(counted) if counted else slice(None)
        agents.count_pairs(frame_pairs(samples, rows, settings.grid, noise))

    if len(samples.group):
        end = float(samples.times(slice(-1, None))[0])
        every.append(agents.release_now(end).releases)

    return FrameReleases(
        samples=samples,
        settings=settings,
        every=[releases for releases in every if len(releases)],
        counted=agents.counts(),
    )


def _chunks(samples: FrameSamples) -> list[slice]:
    """Cut rows where they may be taken in one after the other: those of one event time together."""
    ends = np.arange(CHUNK, len(samples.group), CHUNK)
    if samples.time is not None:
        ends = np.unique(np.searchsorted(samples.time, samples.time[ends - 1], side="right"))

    edges = [0, *ends[ends < len(samples.group)].tolist(), len(samples.group)]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges) if stop > start]


class _Answers(NamedTuple):
    """Public: a row for each group, what was learned of all of them, and the higher levels."""

    table: pa.Table
    learned: Mapping[str, Any]
    levels: LevelTables | None

    def with_sums(self, columns: Sequence[str]) -> _Answers:
        """Add columns of sums, on all levels."""
        table = with_sums(self.table, columns)
        if self.levels is None:
            return self._replace(table=table)

        levels = self.levels.changed(lambda of_level: with_sums(of_level, columns))
        return self._replace(table=table, levels=levels)

    def sentences(self, coverage: Coverage, pointwise_calls: int) -> Iterator[str]:
        """Say what intervals promise together, and what was learned."""
        if coverage == "anytime":
            yield _together(pointwise_calls)
        if "covariates" in self.learned:
            yield covariates_said(self.learned["covariates"])
        if self.levels is not None:
            yield from self.levels.sentences()


def _together(pointwise_calls: int) -> str:
    """Say for which calls intervals hold together."""
    if not pointwise_calls:
        return TOGETHER
    before = "1 call before" if pointwise_calls == 1 else f"{pointwise_calls:,} calls before"
    return f"{TOGETHER}, except for {before}, whose intervals are pointwise: each holds by itself"


def _answered(
    released: FrameReleases, options: EngineOptions, target: Target, *, nested: bool
) -> _Answers:
    """Answer for every group from releases alone."""
    settings = released.settings
    samples = released.samples
    newest = released.newest()
    shares = shares_answers(settings, options, samples.names, newest)
    answered = released.is_answered(newest.agent)
    if not answered.any():
        no_levels = LevelTables.without_groups(samples.keys) if nested else None
        return _Answers(_no_answers(released, shares), {}, no_levels)

    # Groups that a store has forgotten are in the fit of all, and have no answer.
    people, posterior = _fitted(released, options, newest)
    people = people.of(answered)
    newest = newest.take(answered)
    keys = samples.keys.take(pa.array(newest.agent))
    levels = FrameLevels.of(keys) if nested else None
    if levels is not None:
        people = levels.fitted(people, posterior)

    # Columns of the answers, and further ones behind those of the joint posterior.
    columns, arrays, moved = _columns(people, newest, settings, target)
    further = {} if moved is None else {MOVED: moved}
    further |= {name: values[answered] for name, values in shares.items()}
    if released.charge is not None:
        further[LEFT] = settings.horizon - newest.index

    table = _in_order(keys, arrays | {name: pa.array(column) for name, column in further.items()})
    tables = None if levels is None else levels.tables_of(people, columns)
    return _Answers(table, people.description, tables)


def _in_order(keys: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Keys and columns of groups as one table, in the order of the keys."""
    table = pa.table(dict(zip(keys.column_names, keys.columns, strict=True)) | dict(columns))
    return table.take(pa.array(key_order(keys)))


def _fitted(
    released: FrameReleases, options: EngineOptions, newest: ReleaseColumns
) -> tuple[PublicPopulation, VariancePosterior]:
    """What all releases say of the groups' means, and of the variance of a value."""
    pool = FollowedReleases(released.settings)
    before = NewestReleases()
    for releases in released.every:
        pool.observe(releases, before.replaced(releases))

    posterior = pool.posterior
    host = PersonalEstimates(released.settings, options)
    people = host.public_population(pool.combined(newest), posterior, released.samples.names)

    return people, posterior


def _columns(
    people: PublicPopulation, newest: ReleaseColumns, settings: AgentsSettings, target: Target
) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Columns of the answers, the same with the joint posterior, and what covariates have moved."""
    answer = people.answers(all_rows=True)
    joint = people.joint()
    if target == "rows":
        answer, joint = answers_of_rows(people, answer, settings)

    lower, upper = np.clip([answer.lower, answer.upper], settings.lower, settings.upper)
    columns = {
        "rows": newest.count,
        "mean": np.clip(answer.value, settings.lower, settings.upper),
        "lower": lower,
        "upper": upper,
        "released": newest.mean,
        "noise_stddev": np.sqrt(newest.noise_variance),
    }
    arrays = {name: pa.array(column) for name, column in columns.items()}

    return columns, arrays | joint_columns(joint), answer.moved


def _no_answers(released: FrameReleases, shares: Iterable[str]) -> pa.Table:
    """Columns of a result without any group."""
    keys = released.samples.keys
    columns = {name: keys.column(name).slice(0, 0) for name in keys.column_names}
    columns |= {name: pa.array([], pa.float64()) for name in (*ANSWERS, *shares)}
    columns["rows"] = pa.array([], pa.int64())
    if released.charge is not None:
        columns[LEFT] = pa.array([], pa.int64())

    return pa.table(columns)


def _result(
    question: MeansQuestion, released: FrameReleases, answers: _Answers, rows: int
) -> PrivateMeans:
    """Put answers, guarantee and what was learned together; `rows` are those of the frame."""
    settings = released.settings
    result = PrivateMeans.of(
        question.frame,
        answers.table,
        released,
        question.level,
        keys=released.samples.keys.column_names,
        value=question.column,
        person=question.person,
        meaning=means_meaning(settings, question.level, question.target),
        learned=LearnedPopulation.of(answers.learned, collaboration_name(question.collaboration)),
    )

    # Limits of a person protect more than the settings of one group say.
    guarantee, *notes = result.notes
    limits = question.limits
    if limits is not None:
        left_out = rows - len(released.samples.group)
        promise = question.budget, question.delta
        guarantee = limits.sentence(*promise, str(question.person), left_out)

    notes += answers.sentences(question.coverage, released.pointwise_calls)
    return replace(
        result,
        notes=(guarantee, *notes),
        covariates=answers.learned.get("covariates"),
        levels=answers.levels,
    )


def shares_columns(quantiles: tuple[float, ...], exceeds: tuple[float, ...]) -> list[str]:
    """Name the columns of the result.

    Examples
    --------
    >>> shares_columns((0.9,), (30.0,))
    ['q0.9', 'q0.9_lower', 'q0.9_upper', 'exceeds30', 'exceeds30_lower', 'exceeds30_upper']
    """
    names = [f"q{q!r}" for q in quantiles] + [f"exceeds{t!r}".removesuffix(".0") for t in exceeds]
    return [name + end for name in names for end in ("", "_lower", "_upper")]


def shares_answers(
    settings: AgentsSettings, options: EngineOptions, names: Sequence[str], newest: ReleaseColumns
) -> dict[str, Floats]:
    """Public: answer every group that has released, from the releases alone.

    A column for each name.
    """
    estimates = ShareEstimates(settings, options)
    prior = estimates.fit_newest(names, newest)
    if prior is None:  # nothing is requested
        return {}

    answers = estimates.released(prior, histograms_of_releases(newest))
    columns = [
        a[:, i, j]
        for a in (answers.quantiles, answers.exceeds)
        for i in range(a.shape[1])
        for j in range(3)
    ]

    return dict(zip(shares_columns(options.quantiles, settings.exceeds), columns, strict=True))
