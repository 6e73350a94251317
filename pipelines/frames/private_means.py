"""`private_means`: one private mean per group of a data frame, made better by what all groups release."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.admission import COUNTS
from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import AT_THE_END, usual_histogram
from meanstream.operators.agents.vote_of_spread import BY_CONTENT, BY_TIME
from meanstream.operators.collaboration.anytime_intervals import Coverage
from meanstream.operators.collaboration.followed_releases import FollowedReleases, NewestReleases
from meanstream.operators.collaboration.registry import Collaboration, collaboration_name
from meanstream.operators.collaboration.shares.shares_quantiles import valid_quantiles
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.validation import require
from meanstream.pipelines.frames.arguments import (
    check_arguments,
    named_arguments,
    require_columns,
    require_numbers,
)
from meanstream.pipelines.frames.budget_shares import spread_share_of_rows
from meanstream.pipelines.frames.decisions.joint_columns import joint_columns
from meanstream.pipelines.frames.frame_columns import FrameSamples, frame_samples
from meanstream.pipelines.frames.frame_covariates import covariates_said, frame_covariates
from meanstream.pipelines.frames.frame_pairs import content_order, frame_pairs, row_digests
from meanstream.pipelines.frames.frame_releases import FrameReleases
from meanstream.pipelines.frames.frame_result import PrivateMeans
from meanstream.pipelines.frames.frame_shares import shares_answers, shares_columns
from meanstream.pipelines.frames.groups import key_order
from meanstream.pipelines.frames.keys import frame_key
from meanstream.pipelines.frames.levels.frame_levels import (
    FrameLevels,
    check_nested,
    level_columns,
)
from meanstream.pipelines.frames.levels.level_means import LevelTables
from meanstream.pipelines.frames.rows_at_hand import (
    Target,
    answers_of_rows,
    means_meaning,
    require_target,
)
from meanstream.pipelines.frames.secret_groups.secret_means import secret_means
from meanstream.pipelines.frames.values.columns_of_budget import columns_of_budget
from meanstream.pipelines.frames.values.further_statistics import valid_statistics, with_sums
from meanstream.pipelines.frames.values.groups_of_a_person import with_max_groups
from meanstream.pipelines.frames.values.learned_bound_means import (
    means_with_learned_bounds,
    needs_bounds,
)
from meanstream.pipelines.frames.values.missing_values import further_columns, missing_as_nulls
from meanstream.pipelines.frames.values.value_bounds import Bounds, frame_bounds
from meanstream.pipelines.frames.values.whole_persons import (
    samples_within_limits,
    valid_person_limits,
)
from meanstream.streaming.agents.estimates import PersonalEstimates
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
CALLS = 12
"""Calls that the budget of a store is for, where the caller does not say: a year of months."""
SETTINGS = ("counter", "noise", "calibration", "levels", "mode", "spread_share", "histogram_share")
"""Further settings of `AgentsSettings` that a frame may have."""
HINTS = {
    "horizon": "releases= is the number of releases of a group",
    "memory": "a mean is of the whole frame; `meanstream run agents --memory` weighs newer samples more",
    "window": "private_windows answers by windows of time",
}
"""Arguments of other functions, and what to use here."""
_MINUTES = re.compile(r"every:\s*[\d.]+\s*m")
CHUNK = 1 << 20
"""Samples that are taken at a time: what they touch fits into the processor's caches."""


@named_arguments({})
def private_means(
    frame: Any,
    *,
    by: str | Sequence[str],
    value: str | Sequence[str] | None = None,
    lower: Bounds = None,
    upper: Bounds = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    odds: float | str | None = None,
    ratio: Sequence[str] | None = None,
    statistics: Sequence[str] = ("mean",),
    time: str | None = None,
    person: str | None = None,
    per_person: int | None = None,
    max_groups: int | str | None = None,
    max_rows: int | None = None,
    releases: int | None = None,
    schedule: str | None = None,
    collaboration: str | Collaboration = "learned_prior",
    target: Target = "population",
    level: float = 0.95,
    coverage: Coverage = "pointwise",
    quantiles: Sequence[float] = (),
    exceeds: Sequence[float] = (),
    covariates: Any = None,
    nested: bool = False,
    nulls: str | None = None,
    missing: Sequence[float] = (),
    private_counts: bool = False,
    groups: Sequence[Any] | None = None,
    secret: str | bytes | None = None,
    name: str | None = None,
    store: str | Path | None = None,
    **settings: Any,
) -> Any:
    """Release one private mean per group, with an interval that knows of the noise, of sampling and of other groups.

    Released to anyone who gets the result: everything in it is computed from noised releases.

    Parameters
    ----------
    frame : data frame
        pandas, polars, a DuckDB relation, a pyarrow table, or whatever has `__arrow_c_stream__`.
    by : str or sequence of str
        Columns that say whose sample a row is.
    value : str or sequence of str
        Column of numbers; those outside the bounds count as the nearest bound. A column of true and
        false is answered by the share that is true. Several columns share the budget.
    lower, upper : float, sequence or dict
        Bounds of a value, chosen without a look at the data; for several columns one for all, one
        for each in their order, or by name. True and false need none. Without both, one column of
        numbers gets bounds by a noisy histogram, which takes a part of epsilon.
    epsilon, delta : float
        Privacy budget of one row's value, or of one `person`, for everything that is released of
        this frame: with a store for all calls together. Delta is 0 by default; Gaussian noise needs
        more, such as 1e-6. The noise is the least that keeps the promise.
    odds : float or str, optional
        Another promise instead of epsilon: how often someone who knows all else guesses one of
        two values right, at most, as "55%".
    ratio : pair of str, optional
        Two columns: the ratio of their means (and so of their sums) with an interval, in columns
        `ratio`, `ratio_lower` and `ratio_upper`. Both count among the value columns.
    statistics : sequence of str
        "mean"; "sum" for columns `sum`, `sum_lower` and `sum_upper`: the mean times the public number
        of rows; "variance" for columns `variance`, `variance_lower` and `variance_upper` of clipped
        values, whose squares share the budget.
    time : str, optional
        Column of event times (timestamps, dates, ISO 8601 text or seconds). The order of the rows
        is private and decides nothing, with it or without it; a `schedule` needs it.
    person, per_person : str and int, optional
        Column that says which person a row is about, and how many rows of one person count in a
        group: the first ones in time, and of those at one time a keyed choice. Epsilon then
        protects all rows of a person in a group; the noise is `per_person` times as large.
    max_groups, max_rows : int (or "auto"), optional
        With `person` instead of `per_person`: in how many groups a person's rows count, and how
        many in each; a keyed hash draws which. Epsilon then protects all rows of a person in all
        groups together. With max_groups="auto" the number follows from who is in which group.
    releases : int, optional
        Releases of a group that share the budget. With a store 12, one for each call that finds new
        rows of the group: a year of months. Without a store 1, as one call releases once.
    schedule : str, optional
        For more releases within one call: after which numbers of samples a group releases
        (`preferred:10`), or every how much event time (`every:30d`). By default once at the end of
        each call.
    collaboration : str or Collaboration
        How groups learn of each other, as for `meanstream run agents`, or an object of your own;
        "none": each by itself.
    target : {"population", "rows"}
        What an answer is about: the long-run mean that a group's rows are samples of, or the mean
        of the rows at hand, whose interval has the noise alone.
    level : float
        Nominal coverage of the intervals.
    coverage : {"pointwise", "anytime"}
        Promise of the intervals of means. With "anytime" a group's intervals of all calls with a
        store hold together, so that looking after each call misleads no one. Quantiles stay
        pointwise.
    quantiles, exceeds : sequence of float
        Quantiles of each group's values, as 0.9, and thresholds: which share of them is above 30. A
        part of the budget (`histogram_share`, 0.1) goes into a noised histogram then. Columns
        `q0.9`, `q0.9_lower`, `q0.9_upper`, and `exceeds30` likewise. Quantiles of values that are
        few different ones, as yes and no, are best asked as shares.
    covariates : data frame or sequence of str, optional
        Public attributes of the groups: a frame with one row per group and the columns of `by`, or
        names of columns of `frame` that are constant within a group. Text, true and false are
        categories, numbers and dates are numbers. Whatever is declared here is public: nothing
        protects it. Their effects are learned from the releases at no cost; a column
        `moved_by_covariates` says what they have changed, `covariates` what was learned.
    nested : bool
        Groups within groups: `by=["state", "county"]` names the highest level first, and each level
        has a prior of its own, at no privacy cost. Counties are near their state, as near as the
        releases say. `means_of("state")` gives the means of states, `consistent()` all levels.
    nulls : str, optional
        "refuse", the default, or "drop" to leave out rows in which one of the columns has no value.
        With `private_counts` they are always left out, as a refusal would tell of a row.
    missing : sequence of float
        Numbers that stand for a missing value, as [-999]: they are treated as nulls are. Which rows
        have one is public.
    private_counts : bool
        True if names of groups and their numbers of rows are secret, too. One row more or less, or
        all rows of a `person`, is protected then: a name comes out only if its noisy number of rows
        passes a threshold that delta sets, and `rows` is noisy. For one release, without a store.
    groups : sequence, optional
        With `private_counts`, the public names of all groups that are answered (tuples where `by`
        has several columns). No delta is needed then, and a group without rows is answered from the
        others. Rows of other groups do not count.
    secret, name : optional
        Key of the noise (128 random bits or more) and name of the deployment: the same frame gives
        the same releases then. A frame that differs in one row is another release, with other
        noise: a key is not a budget. Another value column needs another name. Without them every
        call has new noise.
    store : path, optional
        File with a ledger, for a frame that grows: a call answers with all rows so far, charges one
        release for each group with new rows, and repeats the old releases for the others. Rows may
        come late and in any order. A frame in which a row that was read is changed or missing is
        refused.
    **settings
        Of `AgentsSettings`: `counter`, `noise`, `calibration`, `levels`, `mode`, `spread_share`,
        `histogram_share`. Without a store the vote on the spread has 1 to 10 % of the budget: as
        little as these rows need.

    Returns
    -------
    PrivateMeans or SeveralMeans
        `to_frame()` gives a frame of the kind that was given, in the order of the groups' keys.
        With several columns the answers are named like them, and `found["delay"]` is the result of
        one column alone.

    Raises
    ------
    ValueError
        Naming the column or parameter and the rule.

    Notes
    -----
    **Privacy.** One row's value is protected by (epsilon, delta), against everyone who sees the result; which groups
    there are and how many rows each has is public, unless `private_counts` protects that, too. With `person` all rows
    of one person in a group are protected together, and whose rows they are is public; a person in several groups has
    less protection. A group's own raw mean is not in the result. Noise is that of the engine: with equal settings,
    secret and name the releases are the same bytes.

    With `store` all calls together are (epsilon, delta). The ledger charges each release before
    this function returns it, and a group that has made all its releases makes no further one. Every
    call without `store` is a release of its own; only the same frame under the same secret and name
    gives the same one again. No ledger counts these calls, and they add up: at epsilon 1 two are 2
    for a row that is in both, 30 of a frame that grows daily are 30. The result says so.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> rng = np.random.default_rng(1)
    >>> table = pa.table({"plane": [f"N{i}" for i in range(40)] * 50, "delay": rng.normal(10, 5, 2000)})
    >>> found = private_means(table, by="plane", value="delay", lower=0, upper=30, epsilon=1.0, delta=1e-6,
    ...                       secret="9b1f6c04d2a85e73bb40c9f1e6a7250d", name="doc")
    >>> found.to_frame().column_names
    ['plane', 'rows', 'mean', 'lower', 'upper', 'released', 'noise_stddev']
    >>> found.to_frame().slice(0, 1).to_pylist()[0]["rows"], len(found)
    (50, 40)
    >>> found = private_means(table, by="plane", value="delay", lower=0, upper=30, epsilon=1.0, delta=1e-6,
    ...                       quantiles=[0.5], exceeds=[20], secret="9b1f6c04d2a85e73bb40c9f1e6a7250d", name="doc")
    >>> found.to_frame().column_names[7:]
    ['q0.5', 'q0.5_lower', 'q0.5_upper', 'exceeds20', 'exceeds20_lower', 'exceeds20_upper']
    """
    question = dict(locals())
    check_arguments(private_means, SETTINGS, settings, HINTS)
    require_numbers(lower=lower, upper=upper, epsilon=epsilon, delta=delta)

    # How many groups of a person count may follow from who is in which.
    if max_groups == "auto":
        return private_means(frame, **with_max_groups(frame, question))

    # Groups that are secret have a release of their own, of all arguments.
    if private_counts or groups is not None:
        return secret_means(frame, question)

    # Bounds that nobody knows are a release before the means.
    if lower is None and upper is None and needs_bounds(frame, value):
        return means_with_learned_bounds(private_means, frame, question)

    limits = valid_person_limits(
        max_groups, max_rows, person=person, per_person=per_person, odds=odds, store=store
    )
    _check_columns(
        by,
        time,
        person,
        schedule=schedule,
        limited=per_person is not None or limits is not None,
    )
    kinds = valid_statistics(statistics)
    check_nested(nested, by, collaboration, coverage=coverage, covariates=covariates)

    # Several columns are as many calls that share the budget.
    if ratio is not None or not isinstance(value, str) or "variance" in statistics:
        return columns_of_budget(private_means, frame, question)

    # The rows, and how much of the budget their vote on the spread needs.
    lower, upper = frame_bounds(frame, value, lower, upper)
    asked = valid_quantiles(quantiles)
    needed = {"by": by, "time": time, "person": person, "covariates": covariates}
    source = missing_as_nulls(frame, [value], missing, further_columns(needed))
    samples = frame_samples(
        source,
        by=by,
        value=value,
        time=time,
        person=person,
        nulls="refuse" if nulls is None else nulls,
    )
    given = settings | usual_histogram(asked, exceeds, settings)
    if store is None and limits is None and epsilon is not None and "mode" not in settings:
        sizes = np.bincount(samples.group)
        given = {"spread_share": spread_share_of_rows(sizes, epsilon, per_person or 1)} | given

    # What is released, with which noise.
    private = AgentsSettings(
        lower=lower,
        upper=upper,
        epsilon=cast("float", epsilon),  # it checks, as it does odds
        delta=delta,
        odds=odds,
        horizon=_releases(releases, schedule, stored=store is not None),
        schedule=schedule or AT_THE_END,
        per_person=per_person if limits is None else limits.max_rows,
        name=name,
        pairs=BY_CONTENT if time is None else BY_TIME,
        **given,
    )
    if limits is not None:
        private = limits.settings(
            lambda each: replace(private, epsilon=each, counter=private.counter),
            cast("float", epsilon),
        )
    shares = [*asked, *private.exceeds]
    require_target(target, store=store, schedule=schedule, nested=nested, shares=shares)
    more = [*level_columns(nested), *shares_columns(asked, private.exceeds)]
    _check_names(samples, [*ANSWERS, *kinds, MOVED, LEFT, *more])
    declared = None if covariates is None else frame_covariates(frame, covariates, samples, by=by)

    options = EngineOptions(
        collaboration=collaboration_name(collaboration),
        level=level,
        coverage=coverage,
        quantiles=asked,
        covariates=declared,
        refresh=None,
    )

    # The releases: charged in a store, or of this call alone.
    if store is not None:
        from meanstream.pipelines.frames.stored import releases_by_store

        require(secret is None, "secret", "be left out with a store, which has its own", "another")
        columns = {"by": _names(by), "value": value, "time": time, "person": person}
        released = releases_by_store(Path(store), samples, private, options, columns=columns)
    else:
        key, called = frame_key(secret, name)
        private = replace(private, name=called)
        noise = noise_from_secret(key, called)
        counted = samples if limits is None else samples_within_limits(samples, limits, noise)
        released = _released(counted, private, noise)

    # The answers, from releases alone.
    answers = _answered(released, options, target, nested=nested).with_sums(kinds)
    result = PrivateMeans.of(
        frame,
        answers.table,
        released,
        level,
        keys=samples.keys.column_names,
        value=value,
        person=person,
        meaning=means_meaning(private, level, target),
    )

    notes = result.notes
    if limits is not None:
        left_out = len(samples.group) - len(released.samples.group)
        promise = cast("float", epsilon), delta
        notes = (limits.sentence(*promise, str(person), left_out), *notes[1:])

    return replace(
        result,
        covariates=answers.covariates,
        levels=answers.levels,
        notes=(*notes, *answers.sentences(coverage, released.pointwise_calls)),
    )


def _names(by: str | Sequence[str]) -> str:
    if isinstance(by, str):
        return by
    return ", ".join(by)


def _together(pointwise_calls: int) -> str:
    """Say for which calls intervals hold together."""
    if not pointwise_calls:
        return TOGETHER
    before = "1 call before" if pointwise_calls == 1 else f"{pointwise_calls:,} calls before"
    return f"{TOGETHER}, except for {before}, whose intervals are pointwise: each holds by itself"


def _releases(releases: int | None, schedule: str | None, *, stored: bool) -> int:
    """Give the number of releases of a group, and refuse a schedule that is not what it seems."""
    most = (CALLS if stored else 1) if releases is None else releases
    require(
        isinstance(most, int) and most >= 1, "releases", "be a whole number of at least 1", most
    )
    several = "be 1 without a store or a schedule: one call releases once, and the rest of the budget is lost"
    require(stored or schedule is not None or most == 1, "releases", several, most)
    minutes = schedule is not None and _MINUTES.fullmatch(schedule) is not None
    rule = "name minutes as min (every:1min), since m reads like month; for months call once a month with a store"
    require(not minutes, "schedule", rule, schedule)

    return most


def _check_columns(
    by: object, time: str | None, person: str | None, *, schedule: object, limited: bool
) -> None:
    require_columns("by", by)
    untimed = "be given with schedule, which releases on the way: the order of the rows is private"
    require(schedule is None or isinstance(schedule, str), "schedule", "be text", schedule)
    require(schedule is None or time is not None, "time", untimed, time)
    rule = "be given together with per_person, or max_groups and max_rows"
    require((person is not None) == limited, "person", rule, person)


def _check_names(samples: FrameSamples, columns: list[str]) -> None:
    taken = next((name for name in samples.keys.column_names if name in columns), None)
    require(
        taken is None,
        "by",
        f"not be named like a column of the result ({', '.join(columns)})",
        taken,
    )


def _released(samples: FrameSamples, settings: AgentsSettings, noise: KeyedNoise) -> FrameReleases:
    """Have all groups release as an engine would, at the end once more."""
    agents = Agents(settings, noise)
    agents.add_agents(samples.names)

    if samples.person is not None or settings.schedule != AT_THE_END:  # else it shows nowhere
        digests = row_digests(noise, settings.grid, samples)
        samples = samples.in_order(content_order(samples, digests))

    found = []
    counts = []
    for part in tracked_work(_chunks(samples), "private means"):
        person = samples.person_hashes(part)
        group = samples.group[part].astype(np.int64)
        value = samples.value[part]
        made = agents.update(group, value, samples.times(part), person)
        found.append(made.releases)

        if made.fates is not None:
            counts.append(part.start + np.flatnonzero(made.fates == COUNTS))

    if settings.vote is not None and settings.pairs == BY_CONTENT:
        rows = np.concatenate(counts) if counts else slice(None)
        agents.count_pairs(frame_pairs(samples, rows, settings.grid, noise))

    if len(samples.group):
        found.append(agents.release_now(float(samples.times(slice(-1, None))[0])).releases)

    every = [one for one in found if len(one)]
    return FrameReleases(samples=samples, settings=settings, every=every, counted=agents.counts())


def _chunks(samples: FrameSamples) -> list[slice]:
    """Cut rows where they may be taken in one after the other: those of one event time together."""
    ends = np.arange(CHUNK, len(samples.group), CHUNK)
    if samples.time is not None:
        ends = np.unique(np.searchsorted(samples.time, samples.time[ends - 1], side="right"))

    edges = [0, *ends[ends < len(samples.group)].tolist(), len(samples.group)]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges) if stop > start]


class _Answers(NamedTuple):
    """Public: a row for each group, what was learned of covariates, and the higher levels."""

    table: pa.Table
    covariates: dict[str, Any] | None
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
        if self.covariates is not None:
            yield covariates_said(self.covariates)
        if self.levels is not None:
            yield from self.levels.sentences()


def _answered(
    released: FrameReleases, options: EngineOptions, target: Target, *, nested: bool
) -> _Answers:
    """Answer for every group from releases alone."""
    settings = released.settings
    samples = released.samples
    pool = FollowedReleases(settings)
    before = NewestReleases()

    for part in released.every:
        pool.observe(part, before.replaced(part))

    newest = released.newest()
    shares = shares_answers(settings, options, samples.names, newest)
    answered = released.is_answered(newest.agent)
    if not answered.any():
        none = LevelTables.without_groups(samples.keys) if nested else None
        return _Answers(_no_answers(released, shares), None, none)

    host = PersonalEstimates(settings, options)
    posterior = pool.posterior
    people = host.public_population(pool.combined(newest), posterior, samples.names)

    # Groups that a store has forgotten are in the fit of all, and have no answer.
    people = people.of(answered)
    newest = newest.take(answered)
    keys = samples.keys.take(pa.array(newest.agent))

    levels = FrameLevels.of(keys) if nested else None
    if levels is not None:
        people = levels.fitted(people, posterior)

    answer = people.answers(all_rows=True)
    joint = people.joint()
    if target == "rows":
        answer, joint = answers_of_rows(people, answer, settings)

    ends = np.clip([answer.lower, answer.upper], settings.lower, settings.upper)
    columns: dict[str, Any] = {
        "rows": newest.count,
        "mean": np.clip(answer.value, settings.lower, settings.upper),
        "lower": ends[0],
        "upper": ends[1],
        "released": newest.mean,
        "noise_stddev": np.sqrt(newest.noise_variance),
    }
    more: dict[str, Any] = {} if answer.moved is None else {MOVED: answer.moved}
    more |= {name: values[answered] for name, values in shares.items()}
    if released.charge is not None:
        more[LEFT] = settings.horizon - newest.index

    table = dict(zip(keys.column_names, keys.columns, strict=True))
    table |= {name: pa.array(column) for name, column in columns.items()}
    table |= joint_columns(joint)
    table |= {name: pa.array(column) for name, column in more.items()}

    return _Answers(
        pa.table(table).take(pa.array(key_order(keys))),
        people.description.get("covariates"),
        None if levels is None else levels.tables_of(people, columns),
    )


def _no_answers(released: FrameReleases, shares: Iterable[str]) -> pa.Table:
    """Give the columns of a result without any group."""
    keys = released.samples.keys
    columns = {name: keys.column(name).slice(0, 0) for name in keys.column_names}
    columns |= {name: pa.array([], pa.float64()) for name in (*ANSWERS, *shares)}
    columns["rows"] = pa.array([], pa.int64())
    if released.charge is not None:
        columns[LEFT] = pa.array([], pa.int64())

    return pa.table(columns)
