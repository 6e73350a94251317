"""`plan_means`: the half-widths of `private_means` for a frame's groups, by epsilon.

Nothing is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import AT_THE_END, mechanism_name
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import (
    require,
    require_between,
    require_positive,
    valid_float,
    valid_int,
)
from meanstream.pipelines.frames.arguments import named_arguments, require_numbers
from meanstream.pipelines.frames.budget_shares import spread_share_of_rows
from meanstream.pipelines.frames.forecasts import ForecastTable
from meanstream.pipelines.frames.frame_columns import counted_sizes, group_sizes
from meanstream.pipelines.frames.secret_groups.secret_plan import SecretPlan, secret_facts

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
NoiseVariance = Callable[[Ints], Floats]
SHOWN = {"small": 0.1, "median": 0.5, "large": 0.9}
"""Groups whose half-widths are shown, by the share of groups that are smaller."""


NEEDS = {"spread": "your guess at the standard deviation of the means of groups"}
UNREAD = "a plan reads numbers of rows and no values: leave it out"
HINTS = dict.fromkeys(("value", "time", "nulls", "missing", "target"), UNREAD)
"""Arguments of `private_means` that a plan has no use for."""
HINTS["store"] = "releases= is the number of calls that share the budget of a store"


@named_arguments(NEEDS, HINTS)
def plan_means(
    frame: Any,
    *,
    by: str | Sequence[str],
    lower: float,
    upper: float,
    spread: float,
    stddev: float | None = None,
    epsilon: float | Sequence[float] = EPSILONS,
    delta: float = 0.0,
    rows: str | None = None,
    person: str | None = None,
    per_person: int | None = None,
    releases: int = 1,
    level: float = 0.95,
    private_counts: bool = False,
) -> ForecastTable:
    """Predict the half-widths of `private_means` for the groups of a frame, by epsilon.

    Only numbers of rows are read.

    Parameters
    ----------
    frame : data frame
        The data, or one row per group with its number of rows in the column `rows`.
    by : str or sequence of str
        Columns that say which group a row is of.
    lower, upper : float
        Bounds of a value.
    spread : float
        Your guess at the standard deviation of the groups' means, in the value's unit.
    stddev : float, optional
        Your guess at the standard deviation of one value within its group; default: a quarter of
        the width.
    epsilon : float or sequence of float
        Those to compare.
    delta : float
        As of `private_means`.
    rows : str, optional
        Column of numbers of rows; left out, the rows are counted.
    person : str, optional
        Column of persons: rows beyond `per_person` of one person in a group do not count. Left out,
        all rows count.
    per_person : int, optional
        Rows of one person that count in a group, all of which are protected together.
    releases : int
        Calls that share the budget, as of `private_means` with a store. The noise shown is that of
        the noisiest.
    level : float
        Nominal coverage of the intervals.
    private_counts : bool
        As of `private_means`, for one row of one group. Numbers of rows are secret then: `rows`
        must be a column of your guesses.

    Returns
    -------
    ForecastTable
        For each epsilon the mechanism of least noise (counter and distribution), how often someone
        who knows all else guesses a protected value right, and the half-widths of a small, a median
        and a large group (a tenth, half and nine tenths of the groups are smaller). With
        `private_counts` also `names`, the share of the names that come out.

    Raises
    ------
    ValueError
        Naming the parameter and the rule.

    Notes
    -----
    **Privacy.** No values are read, and nothing is spent. Numbers of rows are public, or your
    guesses.

    A group's release varies by `v = stddev^2 / rows + noise^2` around its mean, and means by
    `spread^2` around a center that all releases show up to `1 / sum 1/(spread^2 + v)`. The
    half-width is that of the posterior of a normal mean, for a spread and a variance that are
    known; where there are few groups, theirs are wider.

    Examples
    --------
    >>> sizes = pa.table({"ward": ["a", "b", "c", "d"], "stays": [40, 200, 400, 900]})
    >>> found = plan_means(sizes, by="ward", rows="stays", lower=0, upper=30, spread=1, stddev=4, epsilon=[0.5, 2])
    >>> found.to_frame().column_names
    ['epsilon', 'mechanism', 'guessed_right', 'small', 'median', 'large']
    >>> [round(width, 1) for width in found.to_frame()["large"].to_pylist()]
    [0.6, 0.4]
    """
    require_numbers(lower=lower, upper=upper, spread=spread, epsilon=epsilon, delta=delta)
    require_between(0, 1, level=level)
    require_positive(spread=spread)
    stddev = (upper - lower) / 4 if stddev is None else stddev
    require_positive(stddev=stddev)
    epsilons = [epsilon] if isinstance(epsilon, int | float) else epsilon
    epsilons = [valid_float("epsilon", budget) for budget in epsilons]
    require(bool(epsilons), "epsilon", "be at least one number", epsilon)
    if private_counts:
        _check_secret(rows=rows, person=person, per_person=per_person, releases=releases)

    # The rows of each group that count, and the groups that are shown.
    require(person is None or per_person is not None, "person", "be given with per_person", person)
    require(person is None or rows is None, "person", "be left out with rows", person)
    if person is None or per_person is None:
        sizes = group_sizes(frame, by, rows)
    else:
        sizes = counted_sizes(frame, by, person, per_person)

    require(len(sizes) > 0, "frame", "have at least one group", 0)
    ordered = np.sort(sizes)
    shown = {name: int(ordered[int(share * (len(sizes) - 1))]) for name, share in SHOWN.items()}
    counts = np.array([*shown.values()])
    calls = valid_int("releases", releases)
    lines = []

    mechanisms = _mechanisms(
        (lower, upper),
        epsilons,
        delta,
        sizes,
        calls=calls,
        per_person=per_person,
        private_counts=private_counts,
    )
    for budget, facts, noise in mechanisms:
        variances = (stddev**2 / count + noise(count) for count in (sizes, counts))
        widths = _half_widths(*variances, spread=spread, level=level)
        widths = np.minimum(widths, (upper - lower) / 2)
        lines.append({"epsilon": budget} | facts | dict(zip(shown, widths.tolist(), strict=True)))

    unit = "one row's value"
    if per_person is not None:
        unit = f"one person's rows in a group ({per_person} of which count)"
    if private_counts:
        unit = "one row, there or not"

    return ForecastTable(
        table=pa.Table.from_pylist(lines),
        notes=(*_notes(shown, len(sizes), level=level, unit=unit, calls=releases),),
    )


def _notes(
    shown: Mapping[str, int], n_groups: int, *, level: float, unit: str, calls: int
) -> Iterator[str]:
    named = ", ".join(f"{name}: {count:,}" for name, count in shown.items())
    yield (
        f"Half-widths of {level:.0%} intervals for groups of this many rows ({named}), for {n_groups:,} groups"
    )
    yield (
        f"Epsilon is of {unit}, over {calls} {'call' if calls == 1 else 'calls'}; guessed_right is how often "
        "someone who knows all else guesses right between two possibilities (a coin: 0.5)"
    )


def _mechanisms(
    bounds: tuple[float, float],
    epsilons: Sequence[float],
    delta: float,
    sizes: Ints,
    *,
    calls: int,
    per_person: int | None,
    private_counts: bool,
) -> Iterator[tuple[float, dict[str, Any], NoiseVariance]]:
    """Each epsilon with its own mechanism: what is shown of it, and the variance of its noise."""
    lower, upper = bounds
    for epsilon in epsilons:
        if private_counts:
            yield epsilon, *_secret_mechanism(lower, upper, epsilon, delta, sizes)
            continue

        settings = AgentsSettings(
            lower=lower,
            upper=upper,
            epsilon=epsilon,
            delta=delta,
            horizon=calls,
            schedule=AT_THE_END,
            per_person=per_person,
            spread_share=_spread_share(sizes, epsilon, per_person, calls),
        )
        yield epsilon, *_mechanism(settings)


def _spread_share(sizes: Ints, epsilon: float, per_person: int | None, calls: int) -> float:
    """Share of the vote on the spread; several calls have that of the settings."""
    share = spread_share_of_rows(sizes, epsilon, per_person or 1) if calls == 1 else None
    return cast("float", share)


def _mechanism(settings: AgentsSettings) -> tuple[dict[str, Any], NoiseVariance]:
    """What is shown of a mechanism, and the variance of its noise by numbers of rows."""
    facts = {"mechanism": mechanism_name(settings), "guessed_right": settings.guessed_right}
    return facts, _noisiest_release(settings)


def _secret_mechanism(
    lower: float, upper: float, epsilon: float, delta: float, sizes: Ints
) -> tuple[dict[str, Any], NoiseVariance]:
    """The same where names and numbers of rows are secret."""
    plan = SecretPlan(lower=lower, upper=upper, epsilon=epsilon, delta=delta)
    return secret_facts(plan, sizes), plan.mean_variance


def _check_secret(*, rows: str | None, releases: int, **others: object) -> None:
    """Refuse what would read secret numbers of rows, or is not planned."""
    only = "be left out with private_counts: the plan is for one row and one call"
    for name, value in others.items():
        require(value is None, name, only, value)

    require(releases == 1, "releases", only, releases)
    rule = "name a column of your guesses with private_counts: numbers of rows are secret"
    require(rows is not None, "rows", rule, None)


def _noisiest_release(settings: AgentsSettings) -> NoiseVariance:
    """Give the variance of the noise of means, by numbers of rows."""
    index = np.arange(1, settings.horizon + 1)
    noisiest = index[int(np.argmax(settings.sum_variance(index)))]

    def variance(count: Ints) -> Floats:
        return np.asarray(settings.mean_variance(np.full(len(count), noisiest), count))

    return variance


def _half_widths(of_all: Floats, of_shown: Floats, *, spread: float, level: float) -> Floats:
    """Predict half-widths for groups, by the variances of their releases and of all releases."""
    center = 1 / np.sum(1 / (spread**2 + of_all))
    weight = of_shown / (of_shown + spread**2)
    deviation = np.sqrt(spread**2 * weight + weight**2 * center)
    return np.asarray(float(ndtri(0.5 + level / 2)) * deviation)
