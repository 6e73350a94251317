"""Propose-test-release for the weighted mean of private sizes.

A valid bound on the distance to high sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from meanstream.lab.papers.cummings.cummings_windows import FAILURE, window_size_bound
from meanstream.lab.papers.cummings.grid import GRID
from meanstream.lab.papers.cummings.user_weights import Weighting
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.round_records import Public


@dataclass(frozen=True, slots=True, eq=False)
class SensitivityBound:
    """Upper bounds on the local sensitivity of the weighted mean near one set of users.

    Parameters
    ----------
    weight : float array (bins,)
        Of a user of each size, positive.
    radius : float array (bins,)
        Largest distance of such a user's mean from the center.
    counts : int array (bins,)
        Private: how many users have each size; at least one user in all.
    offset : float
        Private: the weighted sum of users' distances from the center.

    Notes
    -----
    With weights v, `S_k` the least sum of weights that is left where k + 1 users may be any others, and
    `rho_k = min(max(r), (abs(offset) + (2 k + 1) max(v r)) / S_k)`, replacing a user of any set at distance k moves the
    mean by at most `U_k = 2 max(v (r + rho_k) / (S_k + v))`: what stays has a mean within rho_k of the center and a
    weight of at least S_k, and the mean moves by `v (x - mean) / (S + v)` where a user with weight v joins it.

    Replacing one user turns S_k into at least S_(k+1) and adds at most 2 max(v r) to the offset, so
    that `U_k` of the neighbor is at most `U_(k+1)` here: `distance` changes by at most 1. The paper
    defines the distance by a maximum over all sets of users and gives no way to compute it (erratum
    C8).
    """

    weight: Floats
    radius: Floats
    counts: Ints
    offset: float

    def remaining(self, k: int) -> float:
        """Least sum of weights of the users that stay, S_k."""
        n = int(self.counts.sum())
        order = np.argsort(self.weight, kind="stable")
        kept = max(n - 1 - k, 0)
        before = np.cumsum(self.counts[order]) - self.counts[order]
        taken = np.clip(kept - before, 0, self.counts[order])

        return float(taken @ self.weight[order] + min(k, n - 1) * self.weight.min())

    def at(self, k: int) -> float:
        """Bound on the local sensitivity of every set of users at distance k or less, U_k."""
        remaining = self.remaining(k)
        largest = float((self.weight * self.radius).max())
        stray = float(self.radius.max())
        if remaining > 0.0:
            stray = min(stray, (abs(self.offset) + (2 * k + 1) * largest) / remaining)

        return 2.0 * float((self.weight * (self.radius + stray) / (remaining + self.weight)).max())

    def distance(self, proposal: float) -> int:
        """Private, of sensitivity 1.

        Users, at least, to a sensitivity above the proposal; -1 if none.

        Counted up to the number of users less one: no set of users is farther away.
        """
        low = -1
        high = int(self.counts.sum()) - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.at(middle) <= proposal else (low, middle - 1)

        return low


def proposed_radius(weighting: Weighting) -> Floats:
    """Radius that holds the offsets as they are added up, rounded to steps, too."""
    return np.asarray(weighting.radius + 0.5 * weighting.unit / GRID / weighting.weight)


def propose_as_printed(
    public: Public, weight: float, *, users: int, n: int, epsilon: float, delta: float
) -> float:
    """Sensitivity that Algorithm 3 line 13 proposes.

    Parameters
    ----------
    public : dict
        With `mean`, `deviation` and `cap`.
    weight : float
        Sum of weights, of which the largest is 1, noised and lowered: line 11 raises it, which
        would propose too little (erratum C6).
    users, n : int
        Number of all users and of those of the weighted mean.
    epsilon, delta : float
        Of the test. The gamma of line 12 is undefined: it is the probability of failure here.
    """
    away = math.log(1.0 / delta) * (1.0 + math.log(1.0 / FAILURE)) / epsilon
    root = math.sqrt(away + 1.0)
    center = public["mean"]["value"]
    deviation = public["deviation"]["windows"]
    bound = float(window_size_bound([public["cap"]], users, center, deviation)[0])

    return 8.0 * (root * math.log(max(n, 2)) + math.log(1.0 / FAILURE) / root) * bound / weight


def propose_tightly(
    weighting: Weighting, public: Public, weight: float, *, epsilon: float, delta: float
) -> float:
    """Sensitivity that passes the test with probability of about 1 - FAILURE, from public numbers only.

    Parameters
    ----------
    weighting : Weighting
        Weights and windows.
    public, weight
        As in `propose_as_printed`.
    epsilon, delta : float
        Of the test.

    Returns
    -------
    float
        Infinite where no sensitivity would pass.
    """
    away = math.ceil((math.log(1.0 / delta) + math.log(1.0 / FAILURE)) / epsilon) + 1
    left = weight - (away + 1) * (1.0 - float(weighting.weight.min()))
    if left <= 0.0:
        return math.inf

    offset = weight * public["mean"]["error"] + 4.0 * math.sqrt(
        weight * float(weighting.variance.min())
    )
    stray = min(float(weighting.radius.max()), (offset + (2 * away + 1) * weighting.unit) / left)

    return 2.0 * float(
        (weighting.weight * (weighting.radius + stray) / (left + weighting.weight)).max()
    )
