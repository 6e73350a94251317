"""`plan_means`: the half-widths of `private_means` for a frame's groups, by epsilon.

Nothing is spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import AT_THE_END
from meanstream.operators.agents.noise_choice import mechanism_name
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

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
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

    Returns
    -------
    ForecastTable
        For each epsilon the mechanism of least noise (counter and distribution), how often someone
        who knows all else guesses a protected value right, and the half-widths of a small, a median
        and a large group (a tenth, half and nine tenths of the groups are smaller).

    Raises
    ------
    ValueError
        Naming the parameter and the rule.

    Notes
    -----
    **Privacy.** No values are read, and nothing is spent. Numbers of rows are public.

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
    varies = (upper - lower) / 4 if stddev is None else stddev
    require_positive(stddev=varies)
    wanted = [
        valid_float("epsilon", one)
        for one in ([epsilon] if isinstance(epsilon, int | float) else epsilon)
    ]
    require(bool(wanted), "epsilon", "be at least one number", epsilon)

    require(person is None or per_person is not None, "person", "be given with per_person", person)
    require(person is None or rows is None, "person", "be left out with rows", person)
    sizes = (
        group_sizes(frame, by, rows)
        if person is None or per_person is None
        else counted_sizes(frame, by, person, per_person)
    )
    require(len(sizes) > 0, "frame", "have at least one group", 0)

    order = np.sort(sizes)
    shown = {name: int(order[int(share * (len(order) - 1))]) for name, share in SHOWN.items()}
    calls = valid_int("releases", releases)
    lines = []

    for one in wanted:
        # Each epsilon has a mechanism of its own.
        share = spread_share_of_rows(sizes, one, per_person or 1) if calls == 1 else None
        settings = AgentsSettings(
            lower=lower, upper=upper, epsilon=one, delta=delta, horizon=calls,
            schedule=AT_THE_END, per_person=per_person, spread_share=cast("float", share),
        )  # fmt: skip
        widths = _half_widths(
            settings, sizes, np.array([*shown.values()]), spread=spread, stddev=varies, level=level
        )
        lines.append(
            {
                "epsilon": one,
                "mechanism": mechanism_name(settings),
                "guessed_right": settings.guessed_right,
            }
            | dict(zip(shown, widths.tolist(), strict=True))
        )

    unit = (
        "one row's value"
        if per_person is None
        else f"one person's rows in a group ({per_person} of which count)"
    )
    named = ", ".join(f"{name}: {count:,}" for name, count in shown.items())

    return ForecastTable(
        table=pa.Table.from_pylist(lines),
        notes=(
            f"Half-widths of {level:.0%} intervals for groups of this many rows ({named}), for {len(sizes):,} groups",
            f"Epsilon is of {unit}, over {releases} {'call' if releases == 1 else 'calls'}; guessed_right is how often "
            "someone who knows all else guesses right between two possibilities (a coin: 0.5)",
        ),
    )


def _half_widths(
    settings: AgentsSettings,
    sizes: Ints,
    shown: Ints,
    *,
    spread: float,
    stddev: float,
    level: float,
) -> Floats:
    """Predict half-widths for groups of some sizes, among groups of all sizes."""

    def variance(count: Ints) -> Floats:
        index = np.arange(1, settings.horizon + 1)
        noisiest = index[int(np.argmax(settings.sum_variance(index)))]
        return np.asarray(
            stddev**2 / count + settings.mean_variance(np.full(len(count), noisiest), count)
        )

    center = 1 / np.sum(1 / (spread**2 + variance(sizes)))
    v = variance(shown)
    weight = v / (v + spread**2)
    width = (settings.upper - settings.lower) / 2

    return np.minimum(
        float(ndtri(0.5 + level / 2)) * np.sqrt(spread**2 * weight + weight**2 * center), width
    )
