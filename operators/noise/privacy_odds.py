"""What a guarantee means as odds.

How often someone who knows everything else guesses one datum right.
"""

from __future__ import annotations

import math

from scipy.special import ndtr, ndtri

from meanstream.operators.validation import require_between, require_positive

MOST_CASES = 0.95
"""Share of the cases for which a changed belief is stated."""


def odds_of_a_guess(epsilon: float, delta: float = 0.0, mu: float | None = None) -> float:
    """Return how often the best guess between two inputs is right, each being as likely.

    0.5 is a coin.

    Parameters
    ----------
    epsilon, delta : float
        Of the guarantee.
    mu : float, optional
        Where the mechanism is Gaussian: its own trade-off, which is far better than (epsilon,
        delta) says.

    Notes
    -----
    **Privacy.** An upper bound over all neighboring inputs, all outputs and all attackers, whatever else they know: at
    most `(e^epsilon + delta) / (1 + e^epsilon)`; of a mu-GDP mechanism exactly the normal distribution at mu / 2.

    References
    ----------
    P. Kairouz, S. Oh, P. Viswanath, The Composition Theorem for Differential Privacy, 2015, Theorem 2.1; J. Dong, A.
    Roth, W. Su, Gaussian Differential Privacy, JRSS-B 2022, Section 2.2.

    Examples
    --------
    >>> from meanstream.operators.noise.calibration import calibrated_analytic_stddev
    >>> mu = 1 / calibrated_analytic_stddev(1.0, 1e-6)
    >>> round(odds_of_a_guess(1.0), 3), round(odds_of_a_guess(1.0, 1e-6, mu), 3)
    (0.731, 0.547)
    """
    require_positive(epsilon=epsilon)
    if mu is not None:
        require_positive(mu=mu)
        return float(ndtr(0.5 * mu))

    if delta:
        require_between(0, 1, delta=delta)

    unlikely = math.exp(-epsilon)
    return (1.0 + delta * unlikely) / (1.0 + unlikely)


def odds_of_a_belief(prior: float, epsilon: float, mu: float | None = None) -> float:
    """Return what a belief of `prior` in something true about one datum becomes at most.

    Always, where the guarantee is pure epsilon; in 95 of 100 cases, where it is Gaussian, whose
    loss has no bound.

    Examples
    --------
    >>> round(odds_of_a_belief(0.01, 1.0), 4), round(odds_of_a_belief(0.01, 1.0, mu=0.2366), 4)
    (0.0267, 0.0151)
    """
    require_between(0, 1, prior=prior)
    require_positive(epsilon=epsilon)
    loss = epsilon

    if mu is not None:
        require_positive(mu=mu)
        loss = 0.5 * mu * mu + float(ndtri(MOST_CASES)) * mu  # the loss is N(mu^2 / 2, mu^2)

    return prior / (prior + (1.0 - prior) * math.exp(-loss))
