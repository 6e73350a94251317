"""One budget for several windows of a user: what each window may spend of it.

A user's data enters at most W windows. Their answers together are (epsilon, delta)-private; which
noise does that with the least variance follows from these three public numbers alone.

| symbol | name here | meaning |
|---|---|---|
| W | windows | most windows that a user's data enters |
| e | each | epsilon of one window, by a mechanism that promises epsilon alone |
| s | stddev | standard deviation of Gaussian noise, for a sensitivity of 1 in each window |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from meanstream.operators.noise.calibration import calibrated_analytic_stddev, root_by_brent
from meanstream.operators.validation import require, require_epsilon

MOST_WINDOWS = 100_000
"""Of a user; more would leave each window nothing."""

USUAL_DELTA = 1e-6
"""Of which the gain is said where no delta is declared."""

_DIGITS = 6
"""Leading digits of an epsilon of one window, so that all machines use the same one."""

_SAFETY = 1e-9
"""Relative error that the sum of binomial terms may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowBudget:
    """Public: a budget for all windows of a user, and what one window gets of it.

    Parameters
    ----------
    epsilon, delta : float
        Of all windows of a user together; delta may be 0.
    windows : int
        Most windows that a user's data enters.

    Attributes
    ----------
    each : float
        Largest epsilon of one window, by a mechanism that promises epsilon alone.
    gaussian_stddev : float or None
        Standard deviation of Gaussian noise in each window, for sensitivity 1; None without delta.

    Notes
    -----
    **Privacy.** The noise of one window is independent of that of the others, and replacing all
    that a user holds changes at most W of them. W mechanisms that promise e compose to (epsilon,
    delta) if `composed_window_delta` says so; no such mechanisms compose to more. W Gaussian sums
    that move by 1 each are one Gaussian mechanism of sensitivity sqrt(W). Both hold where later
    windows are chosen by what earlier ones have shown.

    References
    ----------
    P. Kairouz, S. Oh, P. Viswanath, The Composition Theorem for Differential Privacy, ICML 2015,
    Theorem 3.3; B. Balle and Y.-X. Wang, ICML 2018, Theorem 8; J. Dong, A. Roth, W. Su, Gaussian
    Differential Privacy, 2022, Corollary 3.3.

    Examples
    --------
    >>> budget = WindowBudget(epsilon=1.0, delta=1e-6, windows=52)
    >>> round(budget.each * 52, 2), round(budget.gaussian_stddev, 1)
    (1.75, 30.5)
    >>> budget.noise, [round(budget.gain_over_shares(gaussian=kind), 1) for kind in (True, False)]
    ('gaussian', [5.8, 3.1])
    """

    epsilon: float
    delta: float
    windows: int

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        require(0.0 <= self.delta < 1.0, "delta", "be at least 0 and below 1", self.delta)
        require(
            2 <= self.windows <= MOST_WINDOWS,
            "user_windows",
            f"lie in 2..{MOST_WINDOWS:,}",
            self.windows,
        )

    @property
    def share(self) -> float:
        """Epsilon of one window if each has an equal part of epsilon."""
        return self.epsilon / self.windows

    @property
    def each(self) -> float:
        """Largest epsilon of one window, by a mechanism that promises epsilon alone."""
        if self.delta:
            return _largest_each(self.epsilon, self.delta, self.windows)
        return self.share

    @property
    def gaussian_stddev(self) -> float | None:
        """Standard deviation of Gaussian noise in each window, for sensitivity 1."""
        if not self.delta:
            return None
        return calibrated_analytic_stddev(self.epsilon, self.delta) * math.sqrt(self.windows)

    @property
    def pure_variance(self) -> float:
        """Variance of Laplace noise of epsilon `each` in one window, for sensitivity 1."""
        return 2.0 / self.each**2

    @property
    def noise(self) -> str:
        """The noise of a curator's sum that has less variance: gaussian or laplace."""
        stddev = self.gaussian_stddev
        if stddev is not None and stddev**2 < self.pure_variance:
            return "gaussian"
        return "laplace"

    def said(self, *, gaussian: bool) -> str:
        """Say in words which noise keeps the budget, and how much less variance it has.

        Examples
        --------
        >>> print(WindowBudget(epsilon=1.0, delta=0.0, windows=12).said(gaussian=True))
        epsilon 1 for 12 windows of a user together: epsilon 0.08333 in each window, an equal part\
; a delta of 1e-06 would allow 1.3 times less variance
        """
        delta = f", delta {self.delta:g}" if self.delta else ""
        whole = f"epsilon {self.epsilon:g}{delta} for {self.windows:,} windows of a user together"
        gain = self.gain_over_shares(gaussian=gaussian)
        stddev = self.gaussian_stddev

        if gaussian and stddev is not None and self.noise == "gaussian":
            composed = self.pure_variance / stddev**2
            return (
                f"{whole}: Gaussian noise, of {gain:.1f} times less variance than Laplace noise of "
                f"epsilon {self.share:.4g} in each window, and {composed:.1f} times less than of "
                f"epsilon {self.each:.4g}, which exact composition allows"
            )

        if round(gain, 1) > 1.0:
            return (
                f"{whole}: epsilon {self.each:.4g} in each window by exact composition, of about "
                f"{gain:.1f} times less variance than an equal part ({self.share:.4g})"
            )

        return (
            f"{whole}: epsilon {self.each:.4g} in each window, an equal part"
            f"{self._best_other(gaussian=gaussian)}"
        )

    def _best_other(self, *, gaussian: bool) -> str:
        """Say what other noise, or a delta, would bring where each window has an equal part."""
        stddev = self.gaussian_stddev
        if stddev is not None:
            more = stddev**2 / self.pure_variance
            return f"; Gaussian noise would have {more:.1f} times the variance" if gaussian else ""

        allowed = replace(self, delta=USUAL_DELTA).gain_over_shares(gaussian=gaussian)
        if round(allowed, 1) > 1.0:
            return f"; a delta of {USUAL_DELTA:g} would allow {allowed:.1f} times less variance"
        return ""

    def gain_over_shares(self, *, gaussian: bool) -> float:
        """By which factor noise has less variance than with epsilon / W in each window.

        Without `gaussian` it is that of a report or sum of epsilon `each`, whose variance falls
        with the square of a small epsilon.
        """
        stddev = self.gaussian_stddev
        if gaussian and stddev is not None and self.noise == "gaussian":
            return 2.0 / self.share**2 / stddev**2
        return (self.each / self.share) ** 2


@lru_cache(maxsize=64)
def _largest_each(epsilon: float, delta: float, windows: int) -> float:
    """Find the largest epsilon of one window with which all of them keep (epsilon, delta)."""
    share = epsilon / windows

    def excess(each: float) -> float:
        composed = composed_window_delta(each, windows, epsilon)
        return math.log(composed or math.ulp(0.0)) - math.log(delta)

    # An equal part always keeps the budget; epsilon in each window does so at a large delta only.
    if excess(epsilon) <= 0.0:
        return epsilon
    largest = root_by_brent(excess, share, epsilon, xtol=1e-13 * share, rtol=1e-12)

    # Fewer digits, rounded down: the budget is kept, and no machine has another noise.
    unit = 10.0 ** (math.floor(math.log10(largest)) + 1 - _DIGITS)
    rounded = float(f"{math.floor(largest / unit) * unit:.{_DIGITS}g}")
    return max(rounded, share)


def composed_window_delta(each: float, windows: int, epsilon: float) -> float:
    """Smallest delta at epsilon of that many mechanisms, each the worst that promises `each`.

    Notes
    -----
    **Privacy.** The worst mechanism answers a yes/no question truthfully with odds of `exp(each)`.
    Of W answers with l lies the privacy loss is `(W - 2 l) each`; delta is the mean of
    `max(0, 1 - exp(epsilon - loss))`.

    Examples
    --------
    >>> composed_window_delta(0.1, 10, 1.0)
    0.0
    >>> f"{composed_window_delta(1.0, 1, 0.0):.4f}"
    '0.4621'
    """
    lies = np.arange(windows + 1)
    loss = (windows - 2 * lies) * each
    costs = loss > epsilon * (1.0 + 1e-12)
    if not costs.any():
        return 0.0

    # Binomial terms by logarithms: none overflows, and each is right to a relative 1e-12 or so.
    lies = lies[costs]
    log_choices = gammaln(windows + 1) - gammaln(lies + 1) - gammaln(windows - lies + 1)
    log_truth = -math.log1p(math.exp(-each))
    log_mass = log_choices + windows * log_truth - lies * each

    terms = np.exp(log_mass) * -np.expm1(epsilon - loss[costs])
    return float(terms.sum()) * (1.0 + _SAFETY)
