"""`private_means`: one private mean per group of a data frame, made better by what all groups release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.frames.columns import FrameSamples, frame_samples
from meanstream.frames.frame_covariates import covariates_said, frame_covariates
from meanstream.frames.given import check_given
from meanstream.frames.keys import frame_key
from meanstream.frames.result import PrivateMeans
from meanstream.frames.shares import shares_answers, shares_columns
from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.memory import FOREVER
from meanstream.operators.agents.settings import AgentsSettings
from meanstream.operators.agents.usual import AT_THE_END, SPREAD_SHARE, usual_histogram
from meanstream.operators.collaboration.followed_releases import FollowedReleases, NewestReleases
from meanstream.operators.collaboration.registry import answers_from_releases
from meanstream.operators.collaboration.shares.quantiles import valid_quantiles
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import ReleaseColumns
from meanstream.operators.validation import require
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.options import EngineOptions
from meanstream.streaming.long_work import tracked_work
from meanstream.streaming.store.secret import noise_from_secret

ANSWERS = ("rows", "mean", "lower", "upper", "released", "noise_stddev")
"""Columns of the result, beside those of the groups."""
MOVED = "moved_by_covariates"
"""Column that says by how much public covariates have moved a mean."""
CHUNK = 1 << 20
"""Samples that are taken at a time: what they touch fits into the processor's caches."""


def private_means(
    frame: Any,
    *,
    by: str | Sequence[str],
    value: str,
    lower: float,
    upper: float,
    epsilon: float,
    delta: float,
    time: str | None = None,
    horizon: int = 1,
    schedule: str | None = None,
    collaboration: str = "learned_prior",
    level: float = 0.95,
    quantiles: Sequence[float] = (),
    exceeds: Sequence[float] = (),
    covariates: Any = None,
    secret: str | bytes | None = None,
    name: str | None = None,
    store: str | Path | None = None,
    **settings: Any,
) -> PrivateMeans:
    """Release one private mean per group, with an interval that knows of the noise, of sampling and of other groups.

    Released to whoever gets the result: everything in it is computed from noised releases.

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
        Of one row's value, for everything that is released of this frame.
    time : str, optional
        Column of event times (timestamps, dates or seconds); left out, the order of the rows.
    horizon : int
        Releases of a group that share the budget. 1: all of it for the mean of the whole frame.
    schedule : str, optional
        With a horizon of more than 1, after which numbers of samples a group releases; default `preferred:10`.
    collaboration : str
        How groups learn of each other, as for `meanstream run agents`; "none": each by itself.
    level : float
        Nominal coverage of the intervals.
    quantiles, exceeds : sequence of float
        Quantiles of each group's values, as 0.9, and thresholds: which share of them is above 30. A part of the budget
        (`histogram_share`, 0.1) goes into a noised histogram then. Columns `q0.9`, `q0.9_lower`, `q0.9_upper`, and
        `exceeds30` likewise. Quantiles of values that are few different ones, as yes and no, are best asked as shares.
    covariates : data frame or sequence of str, optional
        Public attributes of the groups: a frame with one row per group and the columns of `by`, or names of columns of
        `frame` that are constant within a group. Text, true and false are categories, numbers and dates are numbers.
        Whatever is declared here is public: nothing protects it. Their effects are learned from the releases at no
        cost; a column `moved_by_covariates` says what they have changed, `covariates` what was learned.
    secret, name : optional
        Key of the noise (128 random bits or more) and name of the deployment: the same frame gives the same releases
        then. A frame that differs in one row is another release, with other noise: a key is not a budget. Another value
        column needs another name. Without them every call has new noise.
    store : path, optional
        A store of `meanstream run agents`, with its ledger: what was charged there is not charged again, and another
        frame under the same groups is refused. Take it for a frame that grows.
    **settings
        Others of `AgentsSettings`: `per_person` and `memory` are not among them.

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
    **Privacy.** One row's value is protected by (epsilon, delta), against everybody who sees the result; which groups
    there are and how many rows each has is public. Every call without `store` is a release of its own; only the same
    frame under the same secret and name gives the same one again. No ledger counts these releases, and they add up: at
    (1, 1e-6) two are epsilon 1.45 for a row that is in both, 30 of a frame that grows daily are 6.58. The result says
    so. With `store` a row is charged once. A group's own raw mean is not in the result. Noise is that of the engine:
    with equal settings, secret and name the releases are the same bytes.

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
    require(isinstance(horizon, int) and horizon >= 1, "horizon", "be a whole number of at least 1", horizon)
    chosen = schedule or (AT_THE_END if horizon == 1 else AgentsSettings.schedule)
    asked = valid_quantiles(quantiles)
    check_given("private_means", AgentsSettings, settings)
    given = {"spread_share": SPREAD_SHARE, **usual_histogram(asked, exceeds, settings), **settings}
    require(given.get("per_person") is None, "per_person", "be left out: a frame's unit is a row", "another")
    memory = given.get("memory", FOREVER)
    require(memory == FOREVER, "memory", "be left out: the mean is of the whole frame, not of what is newest", memory)
    private = AgentsSettings(
        lower=lower, upper=upper, epsilon=epsilon, delta=delta, horizon=horizon, schedule=chosen, name=name, **given
    )
    samples = frame_samples(frame, by=by, value=value, time=time)
    _check_names(samples, [*ANSWERS, MOVED, *shares_columns(asked, private.exceeds)])
    declared = None if covariates is None else frame_covariates(frame, covariates, samples, by=by)
    options = EngineOptions(
        collaboration=collaboration, level=level, quantiles=asked, covariates=declared, refresh=None
    )
    if store is not None:
        from meanstream.frames.stored import releases_by_store

        require(secret is None, "secret", "be left out with a store, which has its own", "another")
        private, releases = releases_by_store(Path(store), samples, private, options)
        return _answered(frame, samples, private, options, releases, counted=True)
    key, called = frame_key(secret, name)
    private = replace(private, name=called)
    releases = _released(samples, private, noise_from_secret(key, called))
    return _answered(frame, samples, private, options, releases, counted=False)


def _check_names(samples: FrameSamples, columns: list[str]) -> None:
    taken = next((name for name in samples.keys.column_names if name in columns), None)
    require(taken is None, "by", f"not be named like a column of the result ({', '.join(columns)})", taken)


def _released(samples: FrameSamples, settings: AgentsSettings, noise: KeyedNoise) -> list[ReleaseColumns]:
    """Have everybody release as an engine would, at the end once more."""
    agents = Agents(settings, noise)
    agents.add_agents(samples.names)
    found = []
    for start in tracked_work(range(0, len(samples.group), CHUNK), "private means"):
        part = slice(start, start + CHUNK)
        found.append(agents.update(samples.group[part], samples.value[part], samples.time[part]).releases)
    if len(samples.time):
        found.append(agents.release_now(float(samples.time[-1])).releases)
    return [one for one in found if len(one)]


def _answered(
    frame: Any,
    samples: FrameSamples,
    settings: AgentsSettings,
    options: EngineOptions,
    found: list[ReleaseColumns],
    *,
    counted: bool,
) -> PrivateMeans:
    """Answer for every group from releases alone."""
    pool, before = FollowedReleases(settings), NewestReleases()
    for part in found:
        pool.observe(part, before.replaced(part))
    newest = _newest(found)
    shares = shares_answers(settings, options, samples.names, newest)
    columns: dict[str, Any] = dict(zip(samples.keys.column_names, samples.keys.columns, strict=True))
    if not len(newest):
        nobody = {name: pa.array([], pa.float64()) for name in (*ANSWERS, *shares)} | {"rows": pa.array([], pa.int64())}
        empty = {name: column.slice(0, 0) for name, column in columns.items()}
        return _result(frame, samples, pa.table(empty | nobody), settings, options, found=found, counted=counted)
    host = PersonalEstimates(settings, options)
    people = host.public_population(pool.combined(newest), pool.posterior, samples.names)
    answer = answers_from_releases(people.fitted, people.releases, people.variance, level=options.level)
    who = pa.array(newest.agent)
    table = {name: column.take(who) for name, column in columns.items()}
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
    table |= {name: pa.array(values) for name, values in shares.items()}
    result = _result(frame, samples, pa.table(table), settings, options, found=found, counted=counted)
    learned = people.description.get("covariates")
    return (
        result
        if learned is None
        else replace(result, covariates=learned, said=(*result.said, covariates_said(learned)))
    )


def _result(
    frame: Any,
    samples: FrameSamples,
    table: pa.Table,
    settings: AgentsSettings,
    options: EngineOptions,
    *,
    found: list[ReleaseColumns],
    counted: bool,
) -> PrivateMeans:
    keys = samples.keys.column_names
    return PrivateMeans.of(frame, table, settings, options, found, keys=keys, names=samples.names, counted=counted)


def _newest(found: list[ReleaseColumns]) -> ReleaseColumns:
    """Keep each agent's newest release, by its number."""
    every = ReleaseColumns.joined(found)
    last = np.full(int(every.agent.max(initial=-1)) + 1, -1, np.int64)
    last[every.agent] = np.arange(len(every))
    return every.take(last[last >= 0])
