"""The part of a budget that each of several releases gets, so that all together have the budget."""

from __future__ import annotations

from collections.abc import Callable

from meanstream.operators.agents.agents_settings import AgentsSettings

_STEPS = 50
_SLACK = 1e-9
"""Part of epsilon that stays unused: more than the tails of the noise of several releases cost."""


def epsilon_of_each(
    settings: Callable[[float], AgentsSettings], count: int, epsilon: float
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

    Notes
    -----
    **Privacy.** One changed row changes every release, as one unit does that is in several agents: Laplace noise adds
    up epsilons, of Gaussian noise the squares of mu add up, which is what `epsilon_over` says.

    Examples
    --------
    >>> same = {"lower": 0, "upper": 1, "delta": 1e-6}
    >>> laplace = lambda part: AgentsSettings(epsilon=part, noise="laplace", counter="pm1", **same)
    >>> round(epsilon_of_each(laplace, 4, 1.0), 6)
    0.25
    >>> gauss = lambda part: AgentsSettings(epsilon=part, noise="gaussian", **same)
    >>> round(epsilon_of_each(gauss, 4, 1.0), 3)
    0.475
    """
    if count == 1:
        return epsilon
    low = epsilon * (1 - _SLACK) / count  # as basic composition has it
    high = epsilon

    while settings(low).epsilon_over(count) > epsilon:
        low /= 2

    for _ in range(_STEPS):
        middle = (low + high) / 2
        if settings(middle).epsilon_over(count) <= epsilon * (1 - _SLACK):
            low = middle
        else:
            high = middle

    return low
