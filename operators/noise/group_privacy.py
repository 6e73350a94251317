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

from meanstream.operators.noise.calibration import calibration_delta
from meanstream.operators.noise.noise_root import root_by_brent
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
