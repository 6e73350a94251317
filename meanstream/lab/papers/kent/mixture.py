"""Kent, Berrett and Yu's mixture.

Means and weights of components, where every user belongs to one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from meanstream.lab.papers.kent.kent_vectors import vector_estimate
from meanstream.lab.papers.kent.mixture_stages import (
    ComponentMeanRound,
    ComponentVoteRound,
    ModeVoteRound,
    WeightsFound,
)
from meanstream.lab.papers.kent.univariate import (
    CONSTANTS,
    FACTORS,
    kent_univariate_constant,
    kent_univariate_threshold_size,
)
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings, round_wrong_bin_chance
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import best_channel, make_channel
from meanstream.operators.rounds.estimator_traits import EstimatorTraits, FamilyQuestion
from meanstream.operators.rounds.localization import FINEST, Bins
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries, Tally
from meanstream.operators.rounds.votes.registry import Votes, make_votes
from meanstream.operators.validation import require, require_positive

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution


class Mixture(EstimatorTraits):
    """Means and weights of the components of a mixture.

    Every user draws all of its samples from one of them.

    Released to the statistician: from a third of the users a vote for the bin of the own mean; from
    a third a vote for the closest of the bins found; from a third one number, in which the distance
    to the closest bin is hashed. Answers the mean of each component, in order, and its weight among
    the users (`Estimate.components`).

    Parameters
    ----------
    epsilon, users, sizes, mode, level, threshold, seed
        As in `meanstream.lab.papers.kent.kent_vectors.Linf`.
    components : int
        Number m of components.
    separation : float, optional
        Declared least distance of two components' means: bins of mode "tuned" are at most a sixth
        of it wide. Default: an equal share of [-1, 1] for each component.
    constant : float, optional
        C of the bins' half-width `C sqrt(log(users T epsilon**2) / T)`: 2 in mode "paper", else
        `kent_univariate_constant` or larger, where votes could not tell that many bins apart, with
        the least predicted error.
    half_width : float, optional
        Half the width of a bin, instead.
    least_weight : float, optional
        A component whose weight is found below half of this is answered by the middle of its bin; 1
        / (50 m) by default, as in Section A.3.

    Notes
    -----
    **Privacy.** User-level, local, epsilon; a user takes part in one stage. Both votes are one-hot: the second one is
    for the closest middle. (Votes for the bin that holds the mean lose those of users at its edge, and widened bins can
    overlap: a user would vote twice.) Which component a user is closest to is hashed into the sign of one number of a
    fixed range, so it is protected with the number.

    **Intervals are honest only if the stages before went right**: that a bin of no one is elected in place of a
    component's is not in them, and happens where users are few for epsilon (`predicted_stderr` tells).

    Raises
    ------
    ValueError
        If an option is out of range, or there are fewer bins than the components use up, three for
        each (five in mode "tuned"): a smaller constant or more samples are needed.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("point:2000")
    >>> mixture = Mixture(epsilon=4.0, users=1000, sizes=sizes, components=4)
    >>> mixture.bins.count, [stage.name for stage in mixture.rounds]
    (44, ['modes', 'weights', 'means'])

    References
    ----------
    A. Kent, T. Berrett, Y. Yu: Rate optimality and phase transition for user-level local differential privacy,
    Algorithm 9.
    """

    name = "kent.mixture"
    answers = "mixture"
    assumes = "every user draws all samples from one component, and each component has one law"
    estimand = (
        "mean of each component, and its weight among users; each user draws all samples from one component."
        " The predicted error is in half widths, for all means together"
    )
    trust = "local"
    options = COMMON_OPTIONS | {
        "components",
        "separation",
        "constant",
        "half_width",
        "least_weight",
        "threshold",
        "seed",
    }

    part = "component's mean"

    @classmethod
    def family_options(cls, ask: FamilyQuestion) -> dict[str, Any] | None:
        """Every mixture."""
        if ask.wanted == cls.answers:
            return {"components": ask.components}
        return None

    @classmethod
    def family_assumes(
        cls,
        ask: FamilyQuestion,  # noqa: ARG003 - the same of every mixture
        options: Mapping[str, Any],  # noqa: ARG003
        described: Mapping[str, Any],  # noqa: ARG003
    ) -> str:
        """Every user has one component."""
        return "every user draws all samples from one component, and each component has one law"

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        components: int,
        separation: float | None = None,
        constant: float | None = None,
        half_width: float | None = None,
        least_weight: float | None = None,
        threshold: str | int = "min",
        seed: str = "",
    ) -> None:
        self._settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        self.mode = mode
        self.epsilon = epsilon

        require(
            components >= 1 and components == int(components),
            "components",
            "be an integer, at least 1",
            components,
        )
        self.components = components
        self.threshold = kent_univariate_threshold_size(threshold, self._settings.known_sizes)
        self.least_weight = 1.0 / (50.0 * components) if least_weight is None else least_weight
        require(0.0 < self.least_weight <= 1.0, "least_weight", "lie in (0, 1]", self.least_weight)

        self.gain = self._settings.known_sizes.tail(self.threshold)
        self._choose(constant, half_width, separation)
        # Each chosen bin, or pair of bins, excludes those next to it: that many are enough wherever
        # they are.
        needed = 5 * components - 3 if self._settings.tuned else 3 * components - 2
        rule = f"leave {needed} bins or more for {components} components (a smaller constant, more samples)"
        require(self.bins.count >= needed, "half_width", rule, round(self.bins.half_width, 4))

        noise = make_votes("sue", epsilon, self.bins.count)
        vote = ModeVoteRound(
            self.bins, noise, self.ballot, components, in_pairs=self._settings.tuned
        )
        weights = ComponentVoteRound(self._component_votes(), self.closest)
        means = ComponentMeanRound(
            self._channel(), self.offset, components, self._answer, seed=seed
        )
        self.rounds: tuple[Round, ...] = (vote, weights, means)
        self.shares = (1 / 3, 1 / 3, 1 / 3)

    def _choose(
        self, constant: float | None, half_width: float | None, separation: float | None
    ) -> None:
        """Choose the bins: the paper's, or those with the least predicted error."""
        separation = 2.0 / self.components if separation is None else separation
        require_positive(separation=separation, constant=1.0 if constant is None else constant)
        tuned = self._settings.tuned
        constants = [CONSTANTS["three_hot"]] if constant is None else [constant]

        if tuned and constant is None and half_width is None:
            constants = [kent_univariate_constant(self.epsilon) * factor for factor in FACTORS]

        best = math.inf
        for self.constant in constants:
            width = (
                self._half_width(separation / 12.0 if tuned else 1.0)
                if half_width is None
                else half_width
            )
            self.bins = Bins(max(width, FINEST))

            if (predicted := self._predicted_stderr()) < best:
                best = predicted
                chosen = (self.constant, self.bins)

        self.constant, self.bins = chosen

    def _half_width(self, widest: float) -> float:
        log = max(math.log(self._settings.users * self.threshold * self.epsilon**2), 1.0)
        return min(self.constant * math.sqrt(log / self.threshold), widest)

    def _component_votes(self) -> Votes:
        """Symmetric votes in mode "paper".

        Those with the least variance for components of equal weight otherwise.
        """
        names = ("sue", "oue", "krr", "subset") if self._settings.tuned else ("sue",)
        tried = [make_votes(name, self.epsilon, self.components) for name in names]
        return min(tried, key=lambda votes: float(votes.share_variance(1.0 / self.components, 1)))

    def _channel(self) -> Mechanism:
        if self._settings.tuned:
            moment = 1.0 / self.threshold / (3.0 * self.bins.half_width) ** 2
            return best_channel(self.epsilon, min(moment + 1.0 / 27.0, 1.0))

        return make_channel("laplace", self.epsilon)

    def ballot(self, summaries: Summaries) -> Ints:
        """Private: the bin of each user's mean; -1, the zero row, below the threshold."""
        return np.where(summaries.count >= self.threshold, self.bins.which(summaries.mean), -1)

    def closest(self, summaries: Summaries, middles: Floats) -> Ints:
        """Private: the component whose bin's middle is closest to each user's mean; -1 below the threshold."""
        nearest = np.abs(summaries.mean[:, np.newaxis] - middles).argmin(axis=1)
        return np.where(summaries.count >= self.threshold, nearest, -1)

    def offset(self, summaries: Summaries, middles: Floats) -> tuple[Ints, Floats]:
        """Private: the closest component, and the distance to its middle in clipping widths.

        0 below the threshold.
        """
        component = self.closest(summaries, middles)
        distance = (summaries.mean - middles[component]) / (3.0 * self.bins.half_width)
        return component, np.where(component >= 0, np.clip(distance, -1.0, 1.0), 0.0)

    def _answer(self, tally: Tally, public: Public, offsets: Floats, noise: Floats) -> Estimate:
        """Public: middles plus offsets divided by weights, and errors of both.

        `offsets` are means over all users of the stage, in clipping widths, with standard errors
        `noise`.
        """
        found = WeightsFound.of(public)
        middles = np.array(found.middles)
        share = np.array(found.shares)
        share_error = np.array(found.share_stderr)
        wide = 3.0 * self.bins.half_width
        is_known = share >= 0.5 * self.least_weight
        weight = np.where(is_known, share, 1.0)
        move = np.where(is_known, wide * offsets / weight, 0.0)
        # Of a ratio: the errors of both parts, to first order.
        stderr = np.sqrt((wide * noise / weight) ** 2 + (move * share_error / weight) ** 2)
        stderr = np.where(is_known & np.isfinite(stderr), stderr, 1.0)
        margin = np.where(is_known, float(ndtri(0.5 * (1.0 + self._settings.level))) * stderr, 2.0)

        users = found.users + tally.n
        estimate = vector_estimate(
            self._settings,
            unclipped=middles + move,
            stderr=stderr,
            users=users,
            lower=np.clip(middles + move - margin, -1.0, 1.0),
            upper=np.clip(middles + move + margin, -1.0, 1.0),
            stages=[*found.stages, {"stage": "means", "users": tally.n}],
        )

        cut = np.clip(share, 0.0, None)
        total = float(cut.sum()) or 1.0
        errors = np.minimum(share_error / total, 1.0)
        parts = tuple(
            {"weight": w, "weight_stderr": e}
            for w, e in zip((cut / total).tolist(), errors.tolist(), strict=True)
        )

        return replace(estimate, components=parts)

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen.

        `predicted_stderr` is for equal weights, and means in the middle of bins.
        """
        return self._settings.describe() | {
            "effective_size": self.threshold,
            "components": self.components,
            "constant": self.constant,
            "bins": self.bins.count,
            "half_width": self.bins.half_width,
            "gain": self.gain,
            "shares": list(self.shares),
            "predicted_stderr": self._predicted_stderr(),
        }

    def _predicted_stderr(self) -> float:
        third = max(self._settings.users / 3.0, 1.0)
        m = self.components
        c0, c1 = self._channel().moments
        wide = 3.0 * self.bins.half_width
        inside = (
            self.bins.half_width**2 / 3.0
        )  # squared distance of a mean from the middle, anywhere within a half-width
        reports = (wide**2 * c0 + c1 * (inside + 1.0 / self.threshold)) / third
        weights = inside * float(self._component_votes().share_variance(self.gain / m, third))
        risk = (reports + weights) * (m / self.gain) ** 2

        # A component is lost to a bin of no one; means spread around it, some of them to other
        # bins.
        votes = make_votes("sue", self.epsilon, self.bins.count)
        reach = self.bins.half_width * math.sqrt(self.threshold)
        agree = 2.0 * float(ndtr(reach)) - 1.0
        alone = 1.0

        if self._settings.tuned:
            agree = float(ndtr(reach) + ndtr(3.0 * reach)) - 1.0
            alone = 0.5

        lead = agree * self.gain / m / math.sqrt(float(votes.share_variance(0.0, third)) / alone)
        fails = round_wrong_bin_chance(lead, right=1, wrong=self.bins.count - 3 * m)
        return math.sqrt(m * ((1.0 - fails) * risk + fails / 3.0))
