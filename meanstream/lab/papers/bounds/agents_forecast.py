"""Expected squared errors without a simulation.

Learning alone, with all data public, with known classes under noise.

Everything here is a function of public parameters. `forecast_agents_table` is what
`meanstream theory agents` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from meanstream.lab.papers.bounds.oracle_forecast import (
    VarianceTable,
    oracle_broadcast,
    oracle_restricted_round_robin,
    oracle_round_robin,
)
from meanstream.lab.papers.bounds.tested_classes import better_together_from, error_with_tests
from meanstream.lab.papers.colme.statistic import statistic_variance_table
from meanstream.operators.agents.release_times import (
    Counts,
    parse_release_times,
    require_samples_counted,
)
from meanstream.operators.counters.optimal import Optimal, optimal_counter_sampling
from meanstream.operators.counters.registry import counter_noise_variance, make_counter
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require, require_between, require_positive

_TIMES = 100
"""At which the errors of working together and alone are compared."""
SCHEDULES = ("round_robin", "restricted_round_robin", "broadcast")


def forecast_agents_alone(t: Ints, sample_variance: Floats | float) -> Floats:
    """Return the mean squared error of agents that learn alone, at each time.

    Parameters
    ----------
    t : int array, shape (k,)
        Numbers of samples per agent.
    sample_variance : float or float array, shape (agents,)
        Variance of one sample.

    Examples
    --------
    >>> import numpy as np
    >>> forecast_agents_alone(np.array([1000, 5000]), 0.25).tolist()
    [0.00025, 5e-05]

    References
    ----------
    Yakimenka et al., Proposition 1.
    """
    return np.asarray(np.mean(sample_variance) / np.asarray(t, dtype=np.float64))


def forecast_agents_ideal(t: Ints, sample_variance: Floats | float, class_size: Ints) -> Floats:
    """Return the mean squared error of averaging all raw samples of one's class.

    A reference, not a bound.

    Parameters
    ----------
    t, sample_variance
        As in `forecast_agents_alone`.
    class_size : int array, shape (agents,)
        Size of each agent's class, itself included.

    Examples
    --------
    >>> import numpy as np
    >>> forecast_agents_ideal(np.array([1000]), 0.25, np.array([2, 2, 1])).round(7).tolist()
    [0.0001667]

    References
    ----------
    Yakimenka et al., Proposition 2.
    """
    share = np.mean(sample_variance / np.asarray(class_size, dtype=np.float64))
    return np.asarray(share / np.asarray(t, dtype=np.float64))


def forecast_agents_random_classes(
    t: Ints, sample_variance: float, *, agents: int, classes: int
) -> Floats:
    """Return `forecast_agents_ideal` averaged over placements of the agents in equally likely classes.

    The size less one is binomial, and `E[1/(1 + K)] = (1 - (1 - p)^M) / (M p)` for K of M - 1
    trials.

    Examples
    --------
    >>> import numpy as np
    >>> forecast_agents_random_classes(np.array([1000]), 0.25, agents=200, classes=3).round(12).tolist()
    [3.75e-06]
    """
    p = 1.0 / classes
    return forecast_agents_alone(t, sample_variance) * (1 - (1 - p) ** agents) / (agents * p)


def forecast_agents_table(
    *,
    agents: int,
    checkpoints: Sequence[int],
    classes: int,
    stddev: float,
    half_width: float,
    epsilon: float,
    delta: float,
    counter: str = "pm1",
    weights: str = "last",
    schedule: str = "round_robin",
    noise: str = "gaussian",
    calibration: str = "classical",
    composition: str = "basic",
    levels: int | None = None,
    horizon: int | None = None,
    means: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Return Propositions 1 to 3 and the variance of the statistic as plain data for JSON.

    Parameters
    ----------
    agents, classes : int
        At least 2 agents, each in one of the classes with equal probability.
    checkpoints : sequence of int
        Times at which the errors are computed; the largest is the length of the run.
    stddev, half_width : float
        Standard deviation of one sample and half the length of the interval that calibrates the
        noise.
    epsilon, delta, noise, calibration, composition
        As in `meanstream.operators.counters.registry.counter_noise_variance`; the defaults are the
        paper's.
    counter, weights : str
        Names of the counter and of the weighting.
    schedule : str
        "round_robin", "restricted_round_robin", or "broadcast:preferred:FIRST" (or
        ...:geometric:FIRST,FACTOR).
    levels, horizon : int, optional
        Divisor of the budget for PM-II; number of releases that the counter is calibrated for, by
        default the largest that the schedule can need.
    means : sequence of float, optional
        Means of the classes; under round robin `tested` and `better_together_from` are then
        computed.

    Returns
    -------
    dict
        `checkpoints, local, ideal, oracle` (lists of the same length), `statistic_variance` and
        `releases` of the agent that is queried first (of any agent under broadcast; null and 0
        before its first release), `counter_noise_variance`, `horizon`; with means, `tested`, the
        error with the tests, and the time from which it is below `local` for good (Theorem 1; null
        if not within the longest time).

    Examples
    --------
    >>> table = forecast_agents_table(
    ...     agents=200, checkpoints=[1000, 30000], classes=3, stddev=0.5, half_width=0.75**0.5, epsilon=1, delta=1e-6)
    >>> [f"{x:.3g}" for x in table["oracle"]]
    ['1.16e-05', '3.3e-07']
    """
    require(agents >= 2, "agents", "be at least 2", agents)
    require(classes >= 1, "classes", "be at least 1", classes)
    require(
        bool(checkpoints) and min(checkpoints) >= 1,
        "checkpoints",
        "be times from 1 on",
        list(checkpoints),
    )
    require_positive(stddev=stddev, half_width=half_width, epsilon=epsilon)
    require_between(0, 1, delta=delta)

    steps = max(checkpoints)
    horizon = horizon or _releases_needed(schedule, agents, steps)
    sampling = (
        optimal_counter_sampling(_broadcast_times(schedule).times(horizon), epsilon)
        if counter == Optimal.name
        else ()
    )
    mechanism = make_counter(counter, horizon=horizon, levels=levels, sampling=sampling)

    draw = counter_noise_variance(
        mechanism,
        epsilon=epsilon,
        delta=delta,
        sensitivity=2 * half_width,
        noise=noise,
        calibration=calibration,
        composition=composition,
    )
    table = partial(
        statistic_variance_table,
        name=weights,
        sample_variance=stddev**2,
        counter=mechanism,
        fresh_variance=draw,
    )

    t = np.asarray(checkpoints, dtype=np.int64)
    errors = _oracle(schedule)(
        t, agents=agents, classes=classes, sample_variance=stddev**2, table=table
    )
    releases, variance = _first_agent(t, schedule, agents, table)
    tested: dict[str, Any] = {}

    if means is not None and schedule == "round_robin":
        tested = _tested(
            t, agents=agents, means=np.array(means), sample_variance=stddev**2, table=table
        )

    return {
        "checkpoints": t.tolist(),
        "local": forecast_agents_alone(t, stddev**2).tolist(),
        "ideal": forecast_agents_random_classes(
            t, stddev**2, agents=agents, classes=classes
        ).tolist(),
        "oracle": errors.tolist(),
        "statistic_variance": variance,
        "releases": releases.tolist(),
        "fresh_variance": draw,
        "horizon": horizon,
        **tested,
    }


def _tested(
    t: Ints, *, agents: int, means: Floats, sample_variance: float, table: VarianceTable
) -> dict[str, Any]:
    """Return the error with the tests, and from which time on it is below that of learning alone."""
    ask = {"agents": agents, "means": means, "sample_variance": sample_variance, "table": table}
    grid = np.unique(np.geomspace(2, int(t.max()), _TIMES).round().astype(np.int64))
    errors = error_with_tests(grid, **ask)  # type: ignore[arg-type]
    return {
        "tested": error_with_tests(t, **ask).tolist(),  # type: ignore[arg-type]
        "better_together_from": better_together_from(
            grid, errors, forecast_agents_alone(grid, sample_variance)
        ),
    }


def _oracle(schedule: str) -> Callable[..., Floats]:
    """Return the oracle's error under the named schedule."""
    if schedule == "round_robin":
        return oracle_round_robin
    if schedule == "restricted_round_robin":
        return oracle_restricted_round_robin

    return partial(oracle_broadcast, schedule=_broadcast_times(schedule))


def _broadcast_times(schedule: str) -> Counts:
    """Return the times of `broadcast:KIND:...`."""
    kind, _, rest = schedule.partition(":")
    require(kind == "broadcast", "schedule", f"be one of {', '.join(SCHEDULES)}", schedule)
    return require_samples_counted(parse_release_times(rest), schedule, "broadcast:preferred:FIRST")


def _releases_needed(schedule: str, agents: int, steps: int) -> int:
    """Return the largest number of releases from one agent to one reader within the steps."""
    if schedule == "round_robin":
        return 1 + (steps - 1) // (agents - 1)
    if schedule == "restricted_round_robin":
        return steps  # a class of two: the other one is queried at every step

    return max(int(_broadcast_times(schedule).releases_up_to(np.array([steps]))[0]), 1)


def _first_agent(
    t: Ints, schedule: str, agents: int, table: VarianceTable
) -> tuple[Ints, list[float | None]]:
    """Return the releases and the variance of the statistic of the agent that is queried first, at each time.

    Under the restricted round robin it is queried at every step: the only other member of a class
    of two.
    """
    if schedule in ("round_robin", "restricted_round_robin"):
        period = agents - 1 if schedule == "round_robin" else 1
        releases = 1 + (t - 1) // period
        times = 1 + period * np.arange(int(releases.max()))
    else:
        releases = _broadcast_times(schedule).releases_up_to(t)
        times = _broadcast_times(schedule).times(max(int(releases.max()), 1))

    variances = table(times)
    return releases, [float(variances[k - 1]) if k > 0 else None for k in releases.tolist()]
