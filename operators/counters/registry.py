"""The registry of continual counters, and the noise that makes one of them private."""

from __future__ import annotations

import math
from typing import cast

from meanstream.operators.counters.base import Counter, HorizonReached, State
from meanstream.operators.counters.decayed import Decayed
from meanstream.operators.counters.optimal import Optimal
from meanstream.operators.counters.pm1 import Pm1
from meanstream.operators.counters.pm2 import Pm2
from meanstream.operators.counters.toeplitz import Toeplitz
from meanstream.operators.counters.two_level import TwoLevel
from meanstream.operators.counters.windowed import Sliding, Windowed
from meanstream.operators.noise.calibration import (
    Calibration,
    calibrated_gaussian_stddev,
    calibrated_laplace_scale,
)
from meanstream.operators.noise.distributions import (
    MAX_SCALE,
    GaussianNoise,
    LaplaceNoise,
    StaircaseNoise,
)
from meanstream.operators.validation import require, require_positive

__all__ = [
    "COUNTERS",
    "FORGETTING",
    "Counter",
    "HorizonReached",
    "State",
    "counter_noise",
    "counter_noise_variance",
    "make_counter",
]

PURE = ("laplace", "staircase")
"""Distributions of integers: all releases together are epsilon-DP, without a delta."""
NOISES = (*PURE, "gaussian")
FreshNoise = GaussianNoise | LaplaceNoise | StaircaseNoise
"""The distribution of one fresh draw."""

COUNTERS: dict[str, type[Counter]] = {
    Pm1.name: Pm1,
    Pm2.name: Pm2,
    TwoLevel.name: TwoLevel,
    Toeplitz.name: Toeplitz,
    Optimal.name: Optimal,
}

"""Counters of prefix sums."""

FORGETTING: dict[str, type[Counter]] = {
    Decayed.name: Decayed,
    Windowed.name: Windowed,
    Sliding.name: Sliding,
}
"""Counters of sums that forget: one of them is in use where a memory is not `forever`."""


def make_counter(
    name: str, *, horizon: int, levels: int | None = None, sampling: tuple[float, ...] = ()
) -> Counter:
    """Return a counter of the registry.

    Parameters
    ----------
    name : str
        A key of `COUNTERS`.
    horizon : int
        Largest number of releases of one row.
    levels : int, optional
        The divisor of the budget, for `pm2` only.
    sampling : tuple of float
        What the releases err by without noise (`optimal.sampling_of`): for `optimal`, others do not
        read it.

    Raises
    ------
    ValueError
        If the name is unknown, or `levels` is given to a counter that has none.

    Examples
    --------
    >>> make_counter("pm2", horizon=100)
    Pm2(horizon=100, levels=7)
    """
    require(name in COUNTERS, "counter", f"be one of {', '.join(COUNTERS)}", name)
    if levels is None and name == Optimal.name:
        return Optimal(horizon, sampling=sampling)
    if levels is None:
        return COUNTERS[name](horizon)

    require(name == Pm2.name, "levels", f"be left out for {name}", levels)
    require(levels >= 1, "levels", "be at least 1", levels)
    return Pm2(horizon, levels=levels)


def counter_noise(
    counter: Counter,
    *,
    epsilon: float,
    delta: float,
    sensitivity: float,
    noise: str = "gaussian",
    calibration: str = "analytic",
    composition: str = "concentrated",
) -> FreshNoise:
    """Return the distribution of one fresh draw, such that all releases of a row together are (epsilon, delta)-DP.

    Parameters
    ----------
    counter : Counter
        The counter that the draws feed.
    epsilon, delta : float
        Budget of one row over its whole horizon. Laplace and staircase noise are pure DP: they
        spend no delta.
    sensitivity : float
        Change of one increment when one sample is replaced, in the unit of the sums (grid units for
        published sums); for staircase noise a whole number.
    noise : {"gaussian", "laplace", "staircase"}
        Shape of the draws.
    calibration : {"analytic", "classical"}
        For Gaussian noise: Balle and Wang (any epsilon), or the papers'
        `sqrt(2 ln(1.25/delta))/epsilon` (epsilon at most 1).
    composition : {"basic", "concentrated"}
        For Gaussian noise: "basic" splits (epsilon, delta) evenly over the partial sums that a
        sample meets, as the papers do; "concentrated" treats everything that a sample meets as one
        Gaussian vector, which needs less noise whenever a sample meets more than one sum. For
        Laplace noise both are the same: the l1 norm. Staircase noise splits epsilon over the draws
        that a sample moves.

    Notes
    -----
    **Privacy.** One sample replaced (replace-one), for anyone who reads the releases of this row and no others; two
    rows that release the same samples compose.

    Raises
    ------
    ValueError
        For parameters out of range, and for pure noise in a counter that cannot take it.

    Examples
    --------
    >>> stddev = {n: counter_noise(make_counter(n, horizon=127), epsilon=1, delta=1e-6, sensitivity=1).stddev
    ...           for n in COUNTERS}
    >>> {name: round(value, 2) for name, value in stddev.items()}
    {'pm1': 4.22, 'pm2': 11.18, 'two_level': 5.97, 'toeplitz': 6.86, 'optimal': 7.73}
    """
    require_positive(sensitivity=sensitivity)
    require(noise in NOISES, "noise", f"be one of {', '.join(NOISES)}", noise)

    if noise == "staircase":
        whole = sensitivity == round(sensitivity)
        require(whole, "sensitivity", "be whole for staircase noise", sensitivity)
        return StaircaseNoise(round(sensitivity), epsilon / counter.l1_sensitivity)

    if noise == "laplace":
        scale = calibrated_laplace_scale(epsilon) * counter.l1_sensitivity * sensitivity
    else:
        scale = _stddev(counter, epsilon, delta, calibration, composition) * sensitivity

    rule = f"be so large that noise is at most 2**40 grid units, not {scale:.1e}"
    require(scale <= MAX_SCALE, "epsilon", rule, epsilon)

    if noise == "laplace":
        return LaplaceNoise(scale)
    return GaussianNoise(scale)


def counter_noise_variance(
    counter: Counter,
    *,
    epsilon: float,
    delta: float,
    sensitivity: float,
    noise: str = "gaussian",
    calibration: str = "analytic",
    composition: str = "concentrated",
) -> float:
    """Return the variance of one fresh draw of continuous noise.

    `counter_noise` without the grid, for theory.

    The parameters are those of `counter_noise`; `sensitivity` is in the unit of the values, for
    example 2L for sums of values in an interval of half-width L, and the variance in its square.

    Examples
    --------
    >>> counter = make_counter("pm1", horizon=1)
    >>> paper = {"epsilon": 1.0, "delta": 1e-6, "sensitivity": 3**0.5}
    >>> [round(counter_noise_variance(counter, **paper, calibration=one), 2) for one in ("classical", "analytic")]
    [84.23, 53.54]
    """
    require_positive(sensitivity=sensitivity)
    require(noise in ("gaussian", "laplace"), "noise", "be gaussian or laplace", noise)

    if noise == "laplace":
        return 2.0 * (calibrated_laplace_scale(epsilon) * counter.l1_sensitivity * sensitivity) ** 2
    return (_stddev(counter, epsilon, delta, calibration, composition) * sensitivity) ** 2


def _stddev(
    counter: Counter, epsilon: float, delta: float, calibration: str, composition: str
) -> float:
    """Return the standard deviation of one draw for increments of sensitivity 1."""
    require(
        composition in ("basic", "concentrated"),
        "composition",
        "be basic or concentrated",
        composition,
    )
    rule = cast("Calibration", calibration)  # checked where it is used

    if composition == "concentrated":
        return calibrated_gaussian_stddev(epsilon, delta, calibration=rule) * counter.l2_sensitivity
    # one sample meets `parts` mechanisms; within each of them its l2 sensitivity is the rest of the
    # column norm
    within = counter.l2_sensitivity / math.sqrt(counter.parts)
    return (
        calibrated_gaussian_stddev(epsilon / counter.parts, delta / counter.parts, calibration=rule)
        * within
    )
