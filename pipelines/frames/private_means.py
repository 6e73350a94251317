"""`private_means`: one private mean per group of a data frame, made better by what all groups release."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import AT_THE_END, usual_histogram
from meanstream.operators.collaboration.anytime_intervals import Coverage
from meanstream.operators.collaboration.followed_releases import FollowedReleases, NewestReleases
from meanstream.operators.collaboration.registry import Collaboration, collaboration_name
from meanstream.operators.collaboration.shares.shares_quantiles import valid_quantiles
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.validation import require
from meanstream.pipelines.frames.arguments import check_arguments
from meanstream.pipelines.frames.frame_columns import FrameSamples, frame_samples
from meanstream.pipelines.frames.frame_covariates import covariates_said, frame_covariates
from meanstream.pipelines.frames.frame_releases import FrameReleases
from meanstream.pipelines.frames.frame_result import PrivateMeans
from meanstream.pipelines.frames.frame_shares import shares_answers, shares_columns
from meanstream.pipelines.frames.keys import frame_key
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


def private_means(
    frame: Any,
    *,
    by: str | Sequence[str],
    value: str,
    lower: float,
    upper: float,
    epsilon: float | None = None,
    delta: float = 0.0,
    odds: float | str | None = None,
    time: str | None = None,
    person: str | None = None,
    per_person: int | None = None,
    releases: int | None = None,
    schedule: str | None = None,
    collaboration: str | Collaboration = "learned_prior",
    level: float = 0.95,
    coverage: Coverage = "pointwise",
    quantiles: Sequence[float] = (),
    exceeds: Sequence[float] = (),
    covariates: Any = None,
    nulls: str = "refuse",
    secret: str | bytes | None = None,
    name: str | None = None,
    store: str | Path | None = None,
    **settings: Any,
) -> PrivateMeans:
    """Release one private mean per group, with an interval that knows of the noise, of sampling and of other groups.

    Released to anyone who gets the result: everything in it is computed from noised releases.

    Parameters
    ----------
    frame : data frame
        pandas, polars, a DuckDB relation, a pyarrow table, or whatever has `__arrow_c_stream__`.
    by : str or sequence of str
        Columns that say whose sample a row is.
    value : str
        Column of numbers; those outside the bounds count as the nearest bound.
    lower, upper : float
        Bounds of a value, chosen without a look at the data.
    epsilon, delta : float
        Privacy budget of one row's value, or of one `person`, for everything that is released of
        this frame: with a store for all calls together. Delta is 0 by default; Gaussian noise needs
        more, such as 1e-6. The noise is the least that keeps the promise.
    odds : float or str, optional
        Another promise instead of epsilon: how often someone who knows all else guesses one of
        two values right, at most, as "55%".
    time : str, optional
        Column of event times (timestamps, dates or seconds); left out, the order of the rows.
    person, per_person : str and int, optional
        Column that says which person a row is about, and how many rows of one person count in a
        group: the first ones. Epsilon then protects all rows of a person in a group; the noise is
        `per_person` times as large.
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
    nulls : str
        "refuse", or "drop" to leave out rows in which one of the columns has no value.
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
        `histogram_share`.

    Returns
    -------
    PrivateMeans
        `to_frame()` gives a frame of the kind that was given.

    Raises
    ------
    ValueError
        Naming the column or parameter and the rule.

    Notes
    -----
    **Privacy.** One row's value is protected by (epsilon, delta), against everyone who sees the result; which groups
    there are and how many rows each has is public. With `person` all rows of one person in a group are protected
    together, and whose rows they are is public; a person in several groups has less protection. A group's own raw mean
    is not in the result. Noise is that of the engine: with equal settings, secret and name the releases are the same
    bytes.

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
    check_arguments(private_means, SETTINGS, settings, HINTS)
    most = _releases(releases, schedule, stored=store is not None)
    require(
        (person is None) == (per_person is None),
        "person",
        "be given together with per_person",
        person,
    )

    asked = valid_quantiles(quantiles)
    given = settings | usual_histogram(asked, exceeds, settings)
    private = AgentsSettings(
        lower=lower,
        upper=upper,
        epsilon=cast("float", epsilon),  # it checks, as it does odds
        delta=delta,
        odds=odds,
        horizon=most,
        schedule=schedule or AT_THE_END,
        per_person=per_person,
        name=name,
        **given,
    )

    samples = frame_samples(frame, by=by, value=value, time=time, person=person, nulls=nulls)
    _check_names(samples, [*ANSWERS, MOVED, LEFT, *shares_columns(asked, private.exceeds)])
    declared = None if covariates is None else frame_covariates(frame, covariates, samples, by=by)
    options = EngineOptions(
        collaboration=collaboration_name(collaboration),
        level=level,
        coverage=coverage,
        quantiles=asked,
        covariates=declared,
        refresh=None,
    )

    if store is not None:
        from meanstream.pipelines.frames.stored import releases_by_store

        require(secret is None, "secret", "be left out with a store, which has its own", "another")
        released = releases_by_store(Path(store), samples, private, options)
    else:
        key, called = frame_key(secret, name)
        private = replace(private, name=called)
        released = _released(samples, private, noise_from_secret(key, called))

    table, learned = _answered(released, options)
    keys = samples.keys.column_names
    result = PrivateMeans.of(
        frame, table, released, options.level, keys=keys, value=value, person=person
    )

    if coverage == "anytime":
        result = replace(result, notes=(*result.notes, TOGETHER))

    if learned is None:
        return result
    return replace(result, covariates=learned, notes=(*result.notes, covariates_said(learned)))


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
    found = []
    for start in tracked_work(range(0, len(samples.group), CHUNK), "private means"):
        part = slice(start, start + CHUNK)
        person = samples.person_hashes(part)
        group = samples.group[part].astype(np.int64)
        value = samples.value[part]
        found.append(agents.update(group, value, samples.times(part), person).releases)

    if len(samples.group):
        found.append(agents.release_now(float(samples.times(slice(-1, None))[0])).releases)

    every = [one for one in found if len(one)]
    return FrameReleases(samples=samples, settings=settings, every=every, counted=agents.counts())


def _answered(
    released: FrameReleases, options: EngineOptions
) -> tuple[pa.Table, dict[str, Any] | None]:
    """Answer for every group from releases alone; say what was learned of covariates."""
    settings = released.settings
    samples = released.samples
    pool = FollowedReleases(settings)
    before = NewestReleases()

    for part in released.every:
        pool.observe(part, before.replaced(part))

    newest = released.newest()
    shares = shares_answers(settings, options, samples.names, newest)
    columns: dict[str, Any] = dict(
        zip(samples.keys.column_names, samples.keys.columns, strict=True)
    )
    left = {} if released.charge is None else {LEFT: pa.array(settings.horizon - newest.index)}

    if not len(newest):
        none = {name: pa.array([], pa.float64()) for name in (*ANSWERS, *shares)} | {
            "rows": pa.array([], pa.int64())
        }
        return pa.table(
            {name: column.slice(0, 0) for name, column in columns.items()} | none | left
        ), None

    host = PersonalEstimates(settings, options)
    people = host.public_population(pool.combined(newest), pool.posterior, samples.names)
    answer = people.answers(all_rows=True)
    table = {name: column.take(pa.array(newest.agent)) for name, column in columns.items()}

    ends = np.clip([answer.lower, answer.upper], settings.lower, settings.upper)
    table |= {
        "rows": pa.array(newest.count),
        "mean": pa.array(np.clip(answer.value, settings.lower, settings.upper)),
        "lower": pa.array(ends[0]),
        "upper": pa.array(ends[1]),
        "released": pa.array(newest.mean),
        "noise_stddev": pa.array(np.sqrt(newest.noise_variance)),
    }

    if answer.moved is not None:
        table[MOVED] = pa.array(answer.moved)

    more = {name: pa.array(values) for name, values in shares.items()}
    answered = pa.table(table | more | left)
    if released.forgotten:
        answered = answered.filter(pa.array(released.is_answered(newest.agent)))

    return answered, people.description.get("covariates")
