"""The part of a budget that each of several releases gets, so that all together have the budget."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meanstream.operators.agents.agents_settings import MAX_PER_PERSON, AgentsSettings
from meanstream.operators.agents.defaults import SPREAD_SHARE
from meanstream.operators.records import Ints
from meanstream.operators.validation import require, require_epsilon, valid_float, valid_int

_STEPS = 50
_SLACK = 1e-9
"""Part of epsilon that stays unused: more than the tails of the noise of several releases cost."""

VOTES = 1000
"""Epsilon of the vote on the spread times the number of pairs of rows.

Its noise in each bin is then .3 % of the pairs."""
LEAST_SHARE = 0.01

Together = Callable[[AgentsSettings, int], float]
"""Epsilon of several releases together: `AgentsSettings.epsilon_over` or `epsilon_of_releases`."""


def spread_share_of_rows(rows: Ints, epsilon: float, units: int = 1) -> float:
    """Give the share for votes that fits a frame: the more pairs vote, the less they need.

    Parameters
    ----------
    rows : int array
        Rows of each group.
    epsilon : float
        Of one release.
    units : int
        Rows that are protected together.

    Notes
    -----
    **Privacy.** Numbers of rows are public, and all shares together are the budget.

    Examples
    --------
    >>> [spread_share_of_rows(np.array([n]), 1.0) for n in (100, 50_000, 1_000_000)]
    [0.1, 0.04, 0.01]
    """
    epsilon = valid_float("epsilon", epsilon)
    require_epsilon(epsilon)

    units = valid_int("per_person", units)
    require(units <= MAX_PER_PERSON, "per_person", f"be at most {MAX_PER_PERSON:,}", units)
    pairs = max(int((np.asarray(rows) // 2).sum()), 1)
    needed = round(VOTES * units / (epsilon * pairs), 3)
    return min(SPREAD_SHARE, max(needed, LEAST_SHARE))


def epsilon_of_releases(settings: AgentsSettings, count: int) -> float:
    """Give the epsilon of several releases with a vote on the spread each.

    Notes
    -----
    **Privacy.** Votes of their own cost no more than one in which rows add up. Of pure ones that is nearly as much, and
    told sooner.
    """
    return settings.epsilon_over(count) if settings.pure else settings.epsilon_of_calls(count)


def epsilon_of_each(
    settings: Callable[[float], AgentsSettings],
    count: int,
    epsilon: float,
    together: Together = AgentsSettings.epsilon_over,
) -> float:
    """Give the epsilon of each of several releases about the same rows that together have `epsilon`.

    Parameters
    ----------
    settings : callable
        How one release with a given epsilon is made.
    count : int
        Number of the releases.
    epsilon : float
        Of all together, at the delta of the settings.
    together : callable
        What all cost: groups of one call have one vote on the spread, in which the rows of a person
        add up (`AgentsSettings.epsilon_over`, the default); columns have a vote each
        (`epsilon_of_releases`).

    Notes
    -----
    **Privacy.** One changed row changes every release: Laplace noise adds up epsilons, of Gaussian noise the squares of
    mu add up, and within one vote mu itself.

    Examples
    --------
    >>> same = {"lower": 0, "upper": 1, "delta": 1e-6}
    >>> laplace = lambda part: AgentsSettings(epsilon=part, noise="laplace", counter="pm1", **same)
    >>> round(epsilon_of_each(laplace, 4, 1.0), 4)
    0.25
    >>> gauss = lambda part: AgentsSettings(epsilon=part, noise="gaussian", **same)
    >>> of_groups = epsilon_of_each(gauss, 4, 1.0)
    >>> of_columns = epsilon_of_each(gauss, 4, 1.0, epsilon_of_releases)
    >>> round(of_groups, 3), round(of_columns, 3)
    (0.413, 0.475)
    """
    if count == 1:
        return epsilon
    low = epsilon * (1 - _SLACK) / count  # as basic composition has it
    high = epsilon

    while together(settings(low), count) > epsilon:
        low /= 2

    for _ in range(_STEPS):
        middle = (low + high) / 2
        if together(settings(middle), count) <= epsilon * (1 - _SLACK):
            low = middle
        else:
            high = middle

    return low
