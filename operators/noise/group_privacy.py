"""What a guarantee is worth for several samples of one person.

Group privacy and composition of Gaussian mechanisms.

A Gaussian mechanism is mu-GDP: telling two inputs apart is as hard as telling N(0, 1) from N(mu,
1). Inputs that differ in k samples are k steps apart, hence k mu; independent mechanisms, each
mu_i, together are the root of the sum of squares. Both are exact, and both are far less than what
(epsilon, delta) by themselves would say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from scipy.special import ndtr, ndtri

from meanstream.operators.noise.calibration import calibration_delta, root_by_brent
from meanstream.operators.validation import require_between, require_positive

GROUPS = (2, 5, 10, 20, 50)
"""Numbers of samples of one person for which a guarantee is shown."""


def group_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which a mu-GDP mechanism is (epsilon, delta)-differentially private.

    Parameters
    ----------
    mu : float
        Sensitivity over standard deviation.
    delta : float
        In (0, 1).

    Notes
    -----
    **Privacy.** The exact trade-off of the Gaussian mechanism: the inverse of `calibration_delta`, which calibrates it.

    References
    ----------
    J. Dong, A. Roth, W. Su, Gaussian Differential Privacy, JRSS-B 2022, Corollary 2.13.

    Examples
    --------
    >>> from meanstream.operators.noise.calibration import calibrated_analytic_stddev
    >>> mu = 1 / calibrated_analytic_stddev(1.0, 1e-6)
    >>> [round(group_epsilon(k * mu, 1e-6), 1) for k in (1, *GROUPS)]
    [1.0, 2.1, 5.9, 13.5, 33.0, 125.5]
    """
    require_positive(mu=mu)
    require_between(0, 1, delta=delta)
    stddev = 1.0 / mu
    least = delta * 1e-12  # an epsilon that is as good as none

    if calibration_delta(stddev, least) <= delta:
        return 0.0
    most = 0.5 * mu * mu + mu * math.sqrt(
        2.0 * math.log(1.0 / delta)
    )  # the privacy loss is N(mu^2 / 2, mu^2)

    def excess(epsilon: float) -> float:
        return math.log(calibration_delta(stddev, epsilon) or math.ulp(0.0)) - math.log(delta)

    while most < math.inf and excess(most) > 0.0:  # of a mu so large that its square rounds
        most *= 2.0

    if most < math.inf:
        return root_by_brent(excess, least, most, xtol=1e-12, rtol=1e-12)
    return math.inf


def group_mu(parts: Iterable[float]) -> float:
    """Return the mu of independent Gaussian mechanisms together: the root of the sum of squares.

    Notes
    -----
    **Privacy.** For what one person gives to several agents, jobs or stores whose noise is independent; the
    mechanisms may be chosen one after the other, each with a view of what the earlier ones released.

    References
    ----------
    J. Dong, A. Roth, W. Su, Gaussian Differential Privacy, JRSS-B 2022, Corollary 3.3.

    Examples
    --------
    >>> group_mu([0.3, 0.4])
    0.5
    """
    return math.sqrt(math.fsum(mu * mu for mu in parts))


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
