"""Root of a function of one number, by Brent's method as SciPy has it, bit for bit.

`scipy.optimize` takes longer to import than an engine takes to read its store, and a run that
starts again needs one root of it. The widths of stored streams hang on the last bit of that root,
so this is the same sequence of operations.
"""

from __future__ import annotations

from collections.abc import Callable

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
    now = far
    other = 0.0
    f_before = f(before)
    f_now = f(now)
    f_other = 0.0
    step = last = 0.0

    if f_before == 0.0 or f_now == 0.0:
        if f_before == 0.0:
            return before
        return now

    if (f_before < 0.0) == (f_now < 0.0):
        raise ValueError("f must have different signs at both ends")

    for _ in range(_MOST_STEPS):
        if f_before != 0.0 and f_now != 0.0 and (f_before < 0.0) != (f_now < 0.0):
            other = before
            f_other = f_before
            step = last = now - before

        if abs(f_other) < abs(f_now):
            before, now, other = now, other, now
            f_before, f_now, f_other = f_now, f_other, f_now

        least = (xtol + rtol * abs(now)) / 2.0
        half = (other - now) / 2.0
        if f_now == 0.0 or abs(half) < least:
            return now

        tried = (
            _interpolated((before, f_before), (now, f_now), (other, f_other))
            if abs(last) > least
            else None
        )

        if (
            tried is not None
            and abs(f_now) < abs(f_before)
            and 2.0 * abs(tried) < min(abs(last), 3.0 * abs(half) - least)
        ):
            last, step = step, tried
        else:
            last = step = half

        before = now
        f_before = f_now
        now += step if abs(step) > least else (least if half > 0.0 else -least)
        f_now = f(now)

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
