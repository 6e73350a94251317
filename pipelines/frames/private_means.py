"""`private_means`: one private mean per group of a data frame, made better by what all groups release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from meanstream.operators.collaboration.anytime_intervals import Coverage
from meanstream.operators.collaboration.registry import Collaboration
from meanstream.pipelines.frames.arguments import check_arguments, named_arguments
from meanstream.pipelines.frames.frame_result import PrivateMeans
from meanstream.pipelines.frames.rows_at_hand import Target
from meanstream.pipelines.frames.secret_groups.secret_means import secret_means
from meanstream.pipelines.frames.values.columns_of_budget import columns_of_budget
from meanstream.pipelines.frames.values.groups_of_a_person import best_max_groups
from meanstream.pipelines.frames.values.learned_bound_means import (
    learned_bound_means,
    needs_bounds,
    with_learned_bounds,
)
from meanstream.pipelines.frames.values.means_of_column import means_of_column
from meanstream.pipelines.frames.values.question import MeansQuestion
from meanstream.pipelines.frames.values.several_means import SeveralMeans
from meanstream.pipelines.frames.values.value_columns import Bounds

SETTINGS = ("counter", "noise", "calibration", "levels", "mode", "spread_share", "histogram_share")
"""Further settings of `AgentsSettings` that a frame may have."""
HINTS = {
    "horizon": "releases= is the number of releases of a group",
    "memory": "a mean is of the whole frame; `meanstream run agents --memory` weighs newer samples more",
    "window": "private_windows answers by windows of time",
}
"""Arguments of other functions, and what to use here."""


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
    arguments = locals()
    check_arguments(private_means, SETTINGS, settings, HINTS)
    return _answered(MeansQuestion(**arguments))


def _answered(question: MeansQuestion) -> PrivateMeans | SeveralMeans:
    """Answer a question by what is secret of it: names of groups, bounds, or values alone."""
    # How many groups of a person count may follow from who is in which.
    if question.max_groups == "auto":
        question = replace(question, max_groups=best_max_groups(question))

    # Groups that are secret have a release of their own, of all arguments.
    if question.private_counts or question.groups is not None:
        return secret_means(question)

    # Bounds that nobody knows are a release before the means.
    if needs_bounds(question):
        bounded = with_learned_bounds(question)
        return learned_bound_means(_answered_within_bounds(bounded), question)

    return _answered_within_bounds(question)


def _answered_within_bounds(question: MeansQuestion) -> PrivateMeans | SeveralMeans:
    question.check()
    if question.is_of_several_columns:
        return columns_of_budget(question)

    return means_of_column(question)
