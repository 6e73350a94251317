"""Noise widths for a target (epsilon, delta), all for sensitivity 1.

Multiply by the sensitivity in grid units.

The classical formula is the one of the papers; the analytic one is exact, works for every epsilon, and is the smaller:
4.22 instead of 5.30 at (1, 1e-6).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

from scipy.special import erfcx

from meanstream.operators.validation import require, require_between, require_positive

_MOST_STEPS = 100


def root_by_brent(
    f: Callable[[float], float], near: float, far: float, *, xtol: float, rtol: float
) -> float:
    """Find where a function changes its sign between two numbers.

    References
    ----------
    R. P. Brent, Algorithms for Minimization Without Derivatives, 1973, chapters 3 and 4; `scipy.optimize.brentq`.

    Examples
    --------
    >>> round(root_by_brent(lambda x: x * x - 2.0, 1.0, 2.0, xtol=1e-13, rtol=1e-13), 12)
    1.414213562373
    """
    before = near
    current = far
    bracket = 0.0
    f_before = f(before)
    f_now = f(current)
    f_other = 0.0
    step = step_before = 0.0

    if f_before == 0.0 or f_now == 0.0:
        if f_before == 0.0:
            return before
        return current

    if (f_before < 0.0) == (f_now < 0.0):
        raise ValueError("f must have different signs at both ends")

    for _ in range(_MOST_STEPS):
        if f_before != 0.0 and f_now != 0.0 and (f_before < 0.0) != (f_now < 0.0):
            bracket = before
            f_other = f_before
            step = step_before = current - before

        if abs(f_other) < abs(f_now):
            before, current, bracket = current, bracket, current
            f_before, f_now, f_other = f_now, f_other, f_now

        least = (xtol + rtol * abs(current)) / 2.0
        half = (bracket - current) / 2.0
        if f_now == 0.0 or abs(half) < least:
            return current

        tried = (
            _interpolated((before, f_before), (current, f_now), (bracket, f_other))
            if abs(step_before) > least
            else None
        )

        if (
            tried is not None
            and abs(f_now) < abs(f_before)
            and 2.0 * abs(tried) < min(abs(step_before), 3.0 * abs(half) - least)
        ):
            step_before, step = step, tried
        else:
            step_before = step = half

        before = current
        f_before = f_now
        current += step if abs(step) > least else (least if half > 0.0 else -least)
        f_now = f(current)

    raise ValueError(f"f must have a root that is found in {_MOST_STEPS} steps")


def _interpolated(
    a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]
) -> float | None:
    """Give the step of the secant, or of the inverse parabola through three points."""
    (before, f_before) = a
    (now, f_now) = b
    (other, f_other) = c
    if before == other:
        return -f_now * (now - before) / (f_now - f_before)

    d_before = (f_before - f_now) / (before - now)
    d_other = (f_other - f_now) / (other - now)
    below = d_other * d_before * (f_other - f_before)

    if below:
        return -f_now * (f_other * d_other - f_before * d_before) / below
    return None


Calibration = Literal["classical", "analytic"]

# The root is found to 1e-13 and delta evaluated to about 1e-11; the result is moved to the safe
# side by more than both.
_SAFETY = 1.0 + 1e-10


def calibrated_laplace_scale(epsilon: float) -> float:
    """Scale of the Laplace mechanism with sensitivity 1: `1 / epsilon`.

    Notes
    -----
    **Privacy.** A sum of sensitivity 1 (in L1) with noise of this scale is epsilon-DP. On integers the discrete Laplace
    distribution of the same scale is exactly epsilon-DP too.

    Examples
    --------
    >>> calibrated_laplace_scale(0.5)
    2.0
    """
    require_positive(epsilon=epsilon)
    return 1.0 / epsilon


def calibrated_classical_stddev(epsilon: float, delta: float) -> float:
    """Return the standard deviation of the classical Gaussian mechanism with sensitivity 1.

    Notes
    -----
    **Privacy.** A sum of sensitivity 1 (in L2) with Gaussian noise of width `sqrt(2 ln(1.25/delta)) / epsilon` is
    (epsilon, delta)-DP for epsilon <= 1 (Dwork and Roth, Theorem A.1). `calibrated_analytic_stddev` is
    tight.

    Examples
    --------
    >>> round(calibrated_classical_stddev(1.0, 1e-6), 3)
    5.299
    """
    require_positive(epsilon=epsilon)
    require_between(0, 1, delta=delta)
    require(epsilon <= 1, "epsilon", "be at most 1 with the classical calibration", epsilon)
    return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def calibrated_analytic_stddev(epsilon: float, delta: float) -> float:
    """Return the smallest standard deviation at which the Gaussian mechanism with sensitivity 1 is (epsilon, delta)-DP.

    Notes
    -----
    **Privacy.** Exact for every epsilon, up to a factor 1 + 1e-10 to the safe side: `calibration_delta` of the result
    does not exceed delta (tested for epsilon from 1e-3 to 50 and delta from 1e-15 to 1/2). The published integer
    `total + rint(noise)` is the rounding of `total + noise`, so the guarantee of the continuous mechanism carries over
    without loss.

    References
    ----------
    B. Balle and Y.-X. Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML 2018, Theorem 8.

    Examples
    --------
    >>> round(calibrated_analytic_stddev(1.0, 1e-6), 3)
    4.225
    """
    require_positive(epsilon=epsilon)
    require_between(0, 1, delta=delta)

    def excess(log_stddev: float) -> float:
        return math.log(
            calibration_delta(math.exp(log_stddev), epsilon) or math.ulp(0.0)
        ) - math.log(delta)

    # delta falls from 1 to 0 as the noise widens. Walk from stddev 1 towards the target and stop at
    # the first change of sign, so that neither end is evaluated where delta underflows further than
    # it must.
    step = math.log(2.0) if excess(0.0) > 0 else -math.log(2.0)
    near = 0.0
    far = step
    while excess(far) * step > 0:
        near, far = far, far + step

    return math.exp(root_by_brent(excess, near, far, xtol=1e-13, rtol=1e-13)) * _SAFETY


def calibration_delta(stddev: float, epsilon: float) -> float:
    """Smallest delta at which Gaussian noise of this standard deviation gives epsilon at sensitivity 1.

    References
    ----------
    B. Balle and Y.-X. Wang, ICML 2018, equation 6: `Phi(a) - exp(epsilon) Phi(b)` with `a, b = +-1/(2 s) - epsilon s`.

    Examples
    --------
    >>> f"{calibration_delta(4.2247, 1.0):.2e}"
    '1.00e-06'
    """
    require_positive(stddev=stddev, epsilon=epsilon)
    half = 0.5 / stddev
    shift = epsilon * stddev
    a = half - shift
    b = -half - shift
    # phi(a) = exp(epsilon) phi(b), so both terms share the factor phi(a) and the difference is one
    # of Mills ratios: no exp(epsilon) that overflows, no tails that cancel.
    density = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)

    if a < 0:
        return max(0.0, density * (_mills(-a) - _mills(-b)))
    return max(0.0, 0.5 * math.erfc(-a / math.sqrt(2.0)) - density * _mills(-b))


def calibrated_gaussian_stddev(epsilon: float, delta: float, *, calibration: Calibration) -> float:
    """Return the standard deviation of the Gaussian mechanism with sensitivity 1 under the named calibration.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee of one release of a sum with sensitivity 1.
    calibration : {"classical", "analytic"}
        Formula of the papers, or the exact one.

    Examples
    --------
    >>> calibrated_gaussian_stddev(2.0, 1e-6, calibration="classical")
    Traceback (most recent call last):
    ValueError: epsilon must be at most 1 with the classical calibration, got 2.0
    """
    require(
        calibration in get_args(Calibration), "calibration", "be classical or analytic", calibration
    )
    compute = (
        calibrated_classical_stddev if calibration == "classical" else calibrated_analytic_stddev
    )

    return compute(epsilon, delta)


def _mills(x: float) -> float:
    """Upper tail of the standard normal distribution divided by its density, at x >= 0."""
    return math.sqrt(math.pi / 2.0) * float(erfcx(x / math.sqrt(2.0)))
