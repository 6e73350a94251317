"""`private_means(private_counts=True)`: names and sizes of groups are secret, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import AT_THE_END
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import collaboration_name
from meanstream.operators.validation import require
from meanstream.pipelines.frames.arguments import frame_key
from meanstream.pipelines.frames.decisions.named_means import joint_columns, take_joint
from meanstream.pipelines.frames.frame_columns import FrameSamples, key_columns
from meanstream.pipelines.frames.frame_result import LearnedPopulation, wide_answers
from meanstream.pipelines.frames.private_frame import frame_like
from meanstream.pipelines.frames.rows_at_hand import means_meaning
from meanstream.pipelines.frames.secret_groups.counted_rows import counted_rows
from meanstream.pipelines.frames.secret_groups.noisy_sums import SecretReleases, released_sums
from meanstream.pipelines.frames.secret_groups.secret_plan import ONE_ROW, SecretPlan
from meanstream.pipelines.frames.secret_groups.secret_result import SecretMeans, secret_notes
from meanstream.pipelines.frames.values.question import MeansQuestion
from meanstream.pipelines.frames.values.value_columns import frame_bounds
from meanstream.pipelines.frames.values.whole_persons import samples_within_limits
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.store.secret_source import noise_from_secret

ANSWERS = ("rows", "mean", "lower", "upper")
WAYS_OUT = {
    "odds": "epsilon is the promise",
    "ratio": "call once per column, each with a part of epsilon",
    "statistics": "multiply `rows` and `mean` for a sum",
    "time": "one release weighs all rows alike",
    "per_person": "max_groups= and max_rows= say how much of a person counts",
    "releases": "one call is one release",
    "schedule": "one call is one release",
    "coverage": "its intervals are pointwise, and one call is one release",
    "quantiles": "thresholds of names and histograms do not share a budget; ask for means alone",
    "exceeds": "ask for the mean of a column of true and false",
    "covariates": "whose groups would have to be public; join them to the result",
    "target": "which rows there are is secret",
    "nested": "levels need public keys",
    "store": "no ledger counts secret groups; call once, and keep the result",
}
"""Arguments of `private_means` that are for public groups alone, and what to do without."""
USUAL: dict[str, tuple[Any, ...]] = {
    "statistics": ("mean", ("mean",), ["mean"]),
    "releases": (1,),
    "coverage": ("pointwise",),
    "quantiles": ((), []),
    "exceeds": ((), []),
    "target": ("population",),
    "nested": (False,),
}
"""What these arguments may be, besides None."""
OTHERS = "its noise is Laplace noise on two sums"


def secret_means(question: MeansQuestion) -> SecretMeans:
    """Release what a frame says of its groups, and hide which names and how many rows there are.

    Notes
    -----
    **Privacy.** Adding or removing one row, or all rows of one person, is protected by (epsilon,
    delta). The result is a function of the noisy sums alone, and of what is public: arguments, kind
    of the frame, types of its columns.
    """
    _check(question)
    by = _key_columns(question.by)
    plan = _plan(question)
    samples = counted_rows(
        question.frame,
        by=by,
        value=question.column,
        person=question.person,
        missing=question.missing,
        declared=question.groups,
    )

    # The releases, after which nothing looks at the rows.
    key, deployment = frame_key(question.secret, question.name)
    noise = noise_from_secret(key, deployment)
    if plan.limits is not ONE_ROW:
        chosen = samples_within_limits(samples, plan.limits, noise)
        samples = _with_all_groups(chosen, samples) if plan.declared else chosen

    return _answered(released_sums(samples, plan, noise), question, deployment)


def _with_all_groups(chosen: FrameSamples, declared: FrameSamples) -> FrameSamples:
    """Bring back declared groups of which no row counts."""
    return replace(chosen.with_groups_in_order(declared.names), keys=declared.keys)


def _check(question: MeansQuestion) -> None:
    """Refuse what needs public groups, in one line that names the way out."""
    switch = question.private_counts
    require(isinstance(switch, bool), "private_counts", "be True or False", switch)
    rule = "be given with private_counts=True: elsewhere all groups with rows are answered"
    require(switch, "groups", rule, question.groups)

    for name, way in WAYS_OUT.items():
        value = getattr(question, name)
        plain = isinstance(value, str | int | float | tuple | list | Path)
        shown = value if plain else type(value).__name__
        require(_is_usual(name, value), name, f"be left out with private_counts: {way}", shown)

    for name, value in question.settings.items():
        require(False, name, f"be left out with private_counts: {OTHERS}", value)

    # One column, all of whose odd rows are left out.
    rule = "name one column with private_counts: call once per column, each with a part of epsilon"
    require(isinstance(question.value, str), "value", rule, question.value)
    rule = "be 'drop' with private_counts: a refusal would tell of a row"
    require(question.nulls in (None, "drop"), "nulls", rule, question.nulls)
    require(question.epsilon is not None, "epsilon", "be given", None)


def _is_usual(name: str, value: Any) -> bool:
    """Say whether an argument is what it is when it is left out."""
    others = USUAL.get(name, ())
    return value is None or any(type(value) is type(usual) and value == usual for usual in others)


def _key_columns(by: str | Sequence[str]) -> list[str]:
    columns = key_columns(by)

    rule = "name one column or several different ones"
    require(bool(columns) and len({*columns}) == len(columns), "by", rule, by)

    clash = next((name for name in columns if name in ANSWERS), None)
    require(
        clash is None,
        "by",
        f"not be named like a column of the result ({', '.join(ANSWERS)})",
        clash,
    )

    return columns


def _plan(question: MeansQuestion) -> SecretPlan:
    """Say how it is released, by public facts."""
    person = question.person
    limits = question.limits
    rule = "be given together with max_groups and max_rows"
    require(person is None or limits is not None, "person", rule, person)
    lower, upper = frame_bounds(question.frame, question.column, question.lower, question.upper)

    return SecretPlan(
        lower=lower,
        upper=upper,
        epsilon=question.budget,
        delta=question.delta,
        limits=limits or ONE_ROW,
        declared=question.groups is not None,
    )


def _answered(releases: SecretReleases, question: MeansQuestion, deployment: str) -> SecretMeans:
    """Answer for every group that came out, from releases alone; the kind of a frame is public."""
    plan = releases.plan

    level = question.level
    settings = AgentsSettings(
        lower=plan.lower,
        upper=plan.upper,
        epsilon=plan.epsilon,
        delta=plan.delta,
        horizon=1,
        schedule=AT_THE_END,
        noise="laplace",
        counter="pm1",
        spread_share=0.0,
        name=deployment,
    )

    answers, learned = _table(releases, settings, question)
    table, joint = take_joint(answers, level)
    return SecretMeans(
        table=table,
        joint=joint,
        notes=(*secret_notes(plan, question.person), *wide_answers(table, settings)),
        meaning=means_meaning(settings, level),
        level=level,
        keys=tuple(releases.keys.column_names),
        original=frame_like(pa.table({"rows": pa.array([], pa.int64())}), question.frame),
        value=question.column,
        settings=settings,
        releases=releases.table(),
        charge=None,
        person=question.person,
        learned=learned,
        plan=plan,
    )


def _table(
    releases: SecretReleases, settings: AgentsSettings, question: MeansQuestion
) -> tuple[pa.Table, LearnedPopulation]:
    """Public: the answers as columns with the joint posterior, and what was learned of all groups."""
    method = collaboration_name(question.collaboration)
    keys = dict(zip(releases.keys.column_names, releases.keys.columns, strict=True))
    if not len(releases.names):
        nothing = {name: pa.array([], pa.float64()) for name in ANSWERS}
        table = pa.table(keys | nothing | {"rows": pa.array([], pa.int64())})
        return table, LearnedPopulation.of({}, method)

    # What a value varies by within its group is known from the releases, too.
    half = (settings.upper - settings.lower) / 2
    options = EngineOptions(
        collaboration=method,
        level=question.level,
        stddev=half * releases.stddev,
        refresh=None,
    )

    # Answers as of public groups, with noise whose variance is of both sums.
    host = PersonalEstimates(settings, options)
    pool = FollowedReleases(settings).posterior
    people = host.public_population(releases.columns(), pool, releases.names)
    answer = people.answers(all_rows=True)

    ends = np.clip([answer.lower, answer.upper], settings.lower, settings.upper)
    columns = {
        "rows": pa.array(np.maximum(np.rint(releases.rows), 0).astype(np.int64)),
        "mean": pa.array(np.clip(answer.value, settings.lower, settings.upper)),
        "lower": pa.array(ends[0]),
        "upper": pa.array(ends[1]),
    }

    table = pa.table(keys | columns | joint_columns(people.joint()))
    return table, LearnedPopulation.of(people.description, method)
