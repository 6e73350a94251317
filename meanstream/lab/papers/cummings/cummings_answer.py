"""What the central estimators answer with, and what they have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from meanstream.lab.papers.cummings.grid import SIZES
from meanstream.operators.limits import LEAST_EPSILON
from meanstream.operators.rounds.central_rounds import central_spend
from meanstream.operators.rounds.estimator_traits import LARGER_MORE, EstimatorTraits
from meanstream.operators.rounds.round_records import Estimate, Public
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require, require_between, require_epsilon, require_least

SHARES = (0.1, 0.1, 0.8)
"""Users of the initial mean, of the initial deviation and of the weighted mean, where sizes are
private: drawn by a keyed hash, because ranking by private sizes would move other users between
cohorts (erratum C5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAnswer:
    """How an estimator signs its answers."""

    method: str
    mode: str
    epsilon: float
    delta: float
    level: float

    def estimate(
        self, value: float, sampling: float, noise: float, public: Public, found: dict[str, Any]
    ) -> Estimate:
        """Turn an answer on [0, 1] into an `Estimate` on [-1, 1].

        Parameters
        ----------
        value : float
            The weighted mean, before it is cut to [0, 1].
        sampling : float
            Standard error from the users' own samples.
        noise : float
            Scale of the Laplace noise in it.
        public : dict
            What the releases before found.
        found : dict
            What the last one found, for `stages`.
        """
        margin = _half_width(sampling, noise, self.level)
        ends = np.clip([value, value - margin, value + margin], 0.0, 1.0) * 2.0 - 1.0
        mean, lower, upper = (np.asarray(x) for x in ends)
        users = {**public.get("users", {}), **found.get("users", {})}
        shown = {name: entry for name, entry in public.items() if name not in ("sizes", "users")}

        return Estimate(
            value=mean,
            lower=lower,
            upper=upper,
            level=self.level,
            stderr=np.asarray(2.0 * math.hypot(sampling, math.sqrt(2.0) * noise)),
            epsilon=self.epsilon,
            delta=self.delta,
            trust="central",
            n_users=users.get("sizes", sum(users.values())),
            method=self.method,
            mode=self.mode,
            unclipped=np.asarray(2.0 * value - 1.0),
            stages=(shown, found),
        )

    def initial(self, public: Public, found: dict[str, Any]) -> Estimate:
        """Answer with the initial mean, where the weighted one cannot be trusted."""
        mean = public["mean"]
        if not public["users"].get("mean"):
            # Nothing is known: the interval is everything, with room for rounding.
            return self.estimate(
                0.5, 0.51 / float(-ndtri(0.5 * (1.0 - self.level))), 0.0, public, found
            )

        return self.estimate(mean["raw"], mean["sampling"], mean["noise"], public, found)

    def better(self, estimate: Estimate, public: Public, found: dict[str, Any]) -> Estimate:
        """Answer with the initial mean instead where its standard error is smaller.

        Post-processing, as both are.
        """
        initial = self.initial(public, found | {"fallback": "precision"})

        if initial.stderr < estimate.stderr:
            return initial
        return estimate


def _half_width(stderr: float, laplace: float, level: float) -> float:
    """Half-width of an interval around a sum of normal errors and one Laplace error.

    Exact where either is absent.
    """
    return math.hypot(float(-ndtri(0.5 * (1.0 - level))) * stderr, math.log(1.0 - level) * laplace)


class CuratorEstimator(EstimatorTraits):
    """What the estimators of the paper share: who may learn what, and how answers are signed."""

    name: str
    estimand = LARGER_MORE
    assumes = "that a user's number of samples says nothing about its mean: larger users weigh more"
    of_a_paper = False
    trust = "central"
    protects_sizes = False
    shares: tuple[float, ...] = (1.0,)
    rounds: tuple[Any, ...]

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None,
        mode: str,
        level: float,
        delta: float = 0.0,
    ) -> None:
        require_epsilon(epsilon, least=LEAST_EPSILON)
        require_least(1, users=users)
        require(mode in ("tuned", "paper"), "mode", "be tuned or paper", mode)
        require_between(0.0, 1.0, level=level)
        self.epsilon = epsilon
        self.delta = delta
        self.users = users
        self.mode = mode
        self.literal = mode == "paper"
        self.sizes = sizes
        self.answer = SignedAnswer(
            method=self.name, mode=mode, epsilon=epsilon, delta=delta, level=level
        )

    def predicted_stderr(self) -> float:
        """Predict the standard error on [-1, 1], for values 0 and 1."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Public: what each release costs whom, what of a user may be replaced, and the predicted error."""
        values = "its values, not their number"
        return {
            "replaced": "all of its samples, their number included"
            if self.protects_sizes
            else values,
            "releases": [
                {
                    "release": step.name,
                    "payers": step.payers,
                    "epsilon": step.epsilon,
                    "delta": step.delta,
                }
                for step in self.rounds
            ],
            "spend": {who: list(cost) for who, cost in central_spend(self.rounds).items()},
            "predicted_stderr": self.predicted_stderr(),
        }


def cummings_answer_sizes(sizes: SizeDistribution | None, users: float) -> list[float]:
    """Predict how many users have each size.

    Everyone has one sample if nothing is known of sizes.
    """
    bins = np.zeros(len(SIZES))
    if sizes is None:
        bins[0] = users
    else:
        np.add.at(
            bins, np.searchsorted(SIZES, sizes.support, side="right") - 1, users * sizes.probability
        )

    return [float(number) for number in bins]


def answer_where_alike(users: float, epsilon: float) -> Public:
    """Return initial results to predict with: the widest values there are, users alike."""
    at_least_one = max(users, 1.0)
    error = 1.0 / math.sqrt(at_least_one) + 3.0 / (epsilon * at_least_one)
    return {
        "mean": {"value": 0.5, "error": min(error, 1.0)},
        "deviation": {"weights": 0.0, "windows": 0.0},
    }
