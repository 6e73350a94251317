"""Algorithms 3 and 4 of Cummings et al.: private sizes by propose-test-release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from meanstream.lab.papers.cummings.cummings_answer import (
    SHARES,
    CuratorEstimator,
)
from meanstream.lab.papers.cummings.grid import FAILURE, GRID, window_size_bound
from meanstream.lab.papers.cummings.ratio import (
    WeightedRelease,
    check_ratio_largest,
    predict_ratio,
    ratio_initial_rounds,
)
from meanstream.lab.papers.cummings.user_weights import (
    Weighting,
    cummings_weights_of_private_sizes,
    split_cummings_weights_tally,
)
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.central_rounds import central_noised
from meanstream.operators.rounds.round_records import Estimate, Public, Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require_between


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
    distance = math.log(1.0 / delta) * (1.0 + math.log(1.0 / FAILURE)) / epsilon
    root = math.sqrt(distance + 1.0)
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
    distance = math.ceil((math.log(1.0 / delta) + math.log(1.0 / FAILURE)) / epsilon) + 1
    left = weight - (distance + 1) * (1.0 - float(weighting.weight.min()))
    if left <= 0.0:
        return math.inf

    offset = weight * public["mean"]["error"] + 4.0 * math.sqrt(
        weight * float(weighting.variance.min())
    )
    stray = min(
        float(weighting.radius.max()), (offset + (2 * distance + 1) * weighting.unit) / left
    )

    return 2.0 * float(
        (weighting.weight * (weighting.radius + stray) / (left + weighting.weight)).max()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckedMean(WeightedRelease):
    """The weighted mean with noise for a proposed sensitivity, released if a private test finds it large enough.

    Parameters
    ----------
    epsilon, delta : float
        Privacy of everything here.
    parts : (float, float, float)
        Epsilon of the sum of weights, of the test, and of the mean.
    literal : bool
        Propose what Algorithm 3 prints.

    Notes
    -----
    **Privacy.** Everything a user holds, its size included, may be replaced. The sum of weights, from which the
    proposal is made, and the distance, which one user changes by at most 1, get discrete Laplace noise. Where the
    proposal is too small for the users at hand the distance is -1, and the test passes with probability delta at most.
    The mean is rounded to a millionth of the proposal, which adds one step to its sensitivity.
    """

    literal: bool
    name: str = "tested mean"

    def release(self, tally: Tally, public: Public, words: RandomWords) -> Estimate:
        """Answer with the weighted mean if the test passes, else with the initial mean."""
        weighting = cummings_weights_of_private_sizes(public, self.users)
        steps, _, counts = split_cummings_weights_tally(tally)
        of_weights, of_test, of_mean = self.parts
        weights = weighting.weight_steps()
        scale = max(int(weights.max() - weights.min()), 1)
        noisy = central_noised(int(counts @ weights), scale, of_weights, words, 0) / GRID
        weight = noisy - math.log(max(0.5 / self.delta, 1.0)) * scale / GRID / of_weights
        facts = {"round": self.name, "users": {self.payers: tally.n}, "weight": weight}

        if weight <= 0.0 or tally.n == 0:
            return self.answer.initial(public, facts | {"fallback": "weights"})
        proposal = (
            propose_as_printed(
                public, weight, users=self.users, n=tally.n, epsilon=of_test, delta=self.delta
            )
            if self.literal
            else propose_tightly(weighting, public, weight, epsilon=of_test, delta=self.delta)
        )

        if not math.isfinite(proposal):
            return self.answer.initial(public, facts | {"fallback": "proposal"})
        offset = steps / GRID * weighting.unit
        bound = SensitivityBound(weighting.weight, proposed_radius(weighting), counts, offset)
        distance = central_noised(bound.distance(proposal), 1, of_test, words, 1)
        facts |= {"sensitivity": proposal, "distance": distance}

        if distance < math.log(1.0 / self.delta) / of_test:
            return self.answer.initial(public, facts | {"fallback": "test"})
        exact = round(offset / float(counts @ weighting.weight) / proposal * GRID)
        shift = central_noised(exact, GRID + 1, of_mean, words, 2) / GRID * proposal
        # Weights are inverse variances in units of the least one, and the sum of weights is a lower
        # bound.
        sampling = math.sqrt(float(weighting.variance.min()) / weight)
        estimate = self.answer.estimate(
            weighting.center + shift, sampling, proposal / of_mean, public, facts
        )

        if self.literal:
            return estimate
        return self.answer.better(estimate, public, facts)


class PrivateSizes(CuratorEstimator):
    """`cummings.private_sizes`.

    The mean of users whose sizes are private too, by propose-test-release.

    Parameters
    ----------
    epsilon, delta : float
        Privacy of everything that one user holds, its number of samples included. The paper's
        epsilon is that of each release: a quarter of this (it counts three of the four, erratum
        C5).
    users : int
        How many users take part (public).
    sizes : SizeDistribution, optional
        For `predicted_stderr` only.
    mode : {"tuned", "paper"}, default "tuned"
        Paper: the printed sensitivity, whose noise drowns the mean of ten thousand users (erratum
        C9). Tuned: the least sensitivity that is expected to pass the test.
    level : float, default 0.95
        Nominal coverage.
    largest_size : int, default 2**20
        Public bound on sizes; larger ones count as this.

    Notes
    -----
    **Privacy.** (epsilon, delta), replacing all of one user's data. Three disjoint cohorts, drawn by a keyed hash.

    `cummings.ratio` answers the same question, without delta and with less noise.

    References
    ----------
    Cummings, Feldman, McMillan, Talwar, Mean Estimation with User-level Privacy under Data Heterogeneity, 2022,
    Algorithms 3 and 4.
    """

    options: ClassVar[frozenset[str]] = frozenset(
        {"delta", "sizes", "mode", "level", "largest_size"}
    )
    name = "cummings.private_sizes"
    protects_sizes = True

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        delta: float = 1e-6,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        largest_size: int = 2**20,
    ) -> None:
        super().__init__(
            epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level, delta=delta
        )
        require_between(0.0, 1.0, delta=delta)
        check_ratio_largest(largest_size)
        self.shares = SHARES

        quarter = epsilon / 4.0
        parts = (quarter,) * 3 if self.literal else (0.15 * epsilon, 0.25 * epsilon, 0.6 * epsilon)

        final = _CheckedMean(
            cohort=2,
            payers="weighted",
            epsilon=sum(parts),
            delta=delta,
            parts=(parts[0], parts[1], parts[2]),
            users=users,
            literal=self.literal,
            answer=self.answer,
        )

        self.rounds = (
            *ratio_initial_rounds(
                epsilon, users, literal=self.literal, each=quarter, largest=largest_size
            ),
            final,
        )

    def predicted_stderr(self) -> float:
        """Predict the standard error for users alike, if the test passes."""
        return predict_ratio(self.rounds[-1].parts[2], self.epsilon, self.users, self.sizes)
