"""In how many groups a person's rows should count, by public facts: `max_groups="auto"`."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanstream.operators.noise.calibration import calibrated_analytic_stddev
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require, require_epsilon, valid_float, valid_int
from meanstream.pipelines.frames.frame_reader import frame_columns
from meanstream.pipelines.frames.values.question import MeansQuestion
from meanstream.pipelines.frames.values.whole_persons import MOST_GROUPS

STDDEV = 1 / 6
"""Standard deviation of a value within its group that is supposed, in widths of the bounds."""
SPREAD = 1 / 10
"""The same of the groups' means."""
TRIED = 40


def best_max_groups(question: MeansQuestion) -> int:
    """Number of groups in the place of "auto".

    Notes
    -----
    **Privacy.** Which rows are whose, and in which groups, is public there; values are not read.
    """
    person = question.person
    is_secret = question.private_counts or question.groups is not None
    rule = "be a number with private_counts: who is in which group is secret"
    require(not is_secret, "max_groups", rule, "auto")
    if person is None:
        raise ValueError("person must be given with max_groups, got None")
    rows = valid_int("max_rows", question.max_rows)
    require(rows >= 1, "max_rows", "be at least 1", rows)
    epsilon = valid_float("epsilon", question.epsilon)
    require_epsilon(epsilon)

    columns = [name for name in question.other_columns if name != question.time]
    keys = [name for name in columns if name != person]
    table = frame_columns(question.frame, columns, option="by", needed=[]).drop_null()
    counted = table.group_by([*keys, person]).aggregate([([], "count_all")])
    group, owner = (_codes(counted, names) for names in (keys, [person]))
    count = np.minimum(np.asarray(counted["count_all"]), rows)

    return _best(group, owner, count, epsilon=epsilon / rows, delta=question.delta)


def _codes(table: Any, names: list[str]) -> Ints:
    """Numbers of the combinations of some columns."""
    codes: Ints = np.zeros(table.num_rows, np.int64)
    for name in names:
        column = table.column(name).combine_chunks().dictionary_encode()
        number = np.asarray(column.indices).astype(np.int64)
        codes = np.unique(codes * (number.max(initial=0) + 1) + number, return_inverse=True)[1]

    return codes


def _best(group: Ints, owner: Ints, count: Floats, *, epsilon: float, delta: float) -> int:
    """The number whose mean error over groups is least, if a learned prior shrinks their means.

    Examples
    --------
    >>> all_alone = np.arange(4)
    >>> _best(all_alone, all_alone, np.full(4, 50.0), epsilon=1.0, delta=0.0)
    1
    """
    groups_of = np.bincount(owner)[owner]
    most_groups = int(min(groups_of.max(initial=1), MOST_GROUPS))
    tried = np.unique(np.geomspace(1, most_groups, TRIED).round().astype(np.int64))
    errors = []

    for number in tried.tolist():
        rows_kept = np.bincount(group, count * np.minimum(1.0, number / groups_of))

        # Laplace noise for all groups of a person adds up, Gaussian noise by its squares.
        noise = 2 * (number / epsilon) ** 2
        if delta:
            gaussian = calibrated_analytic_stddev(epsilon, delta)
            noise = min(noise, number * gaussian**2)

        variance = noise / rows_kept**2 + STDDEV**2 / rows_kept
        errors.append(np.mean(variance * SPREAD**2 / (variance + SPREAD**2)))

    return int(tried[int(np.argmin(errors))])
