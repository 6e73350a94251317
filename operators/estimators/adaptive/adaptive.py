"""The honest default for users who differ.

An unbiased start, a vote for how widely users differ, windows to match.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from meanstream.operators.estimators.adaptive.adaptive_design import NARROW_MOMENT, AdaptivePlan
from meanstream.operators.estimators.adaptive.adaptive_risk import (
    PlacedLaw,
    adaptive_one_shot_risk,
    adaptive_risk,
    adaptive_risk_size_factor,
    adaptive_risk_vote_log_stderr,
)
from meanstream.operators.estimators.adaptive.adaptive_stages import (
    LastStage,
    ReportStage,
    VoteStage,
)
from meanstream.operators.estimators.one_shot import NOTHING_ASSUMED, OneShot
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.estimator_traits import EstimatorTraits
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require

VOTE_LOG_STDERR = 0.12
"""Votes are requested until the logarithm of the scale is known to this..."""

VOTE_SHARES = (0.01, 0.05)
"""...by at least and at most these shares of the users: where windows do not pay, voters are what
is lost."""

LEAST_LOG_STDERR = 0.2
"""Adapting is not tried if the most votes leave more error than this: users * epsilon**2 below
about 5000."""

MOST_RISK = 0.85
"""Predicted risk, relative to one report of each user, above which adapting is not worth its
assumption..."""

USUAL_SPREAD = 0.5
USUAL_MEANS = (0.0, 0.5)
"""...for users who are alike, with samples of this standard deviation (1 is the largest) around
these means."""

STARTS = (0.1, 0.2, 0.3)
MIDDLES = (0.15, 0.3)
TRIAL_SPREADS = (0.01, 0.05)
"""Shares that are tried, and standard deviations of users' means that they are tried on."""

APART = 0.3
"""Standard deviation of users' means on [-1, 1] for which no window helps: what is predicted before
any vote."""

ASSUMPTION = (
    "Users' means, with the noise of their samples, have tails that fall off at least exponentially: few users lie far "
    "from all others. If the votes show users too far apart for a window, all users report on the declared bounds, "
    "without an assumption."
)


class Adaptive(EstimatorTraits):
    """A population's mean when users differ by no one knows how much.

    The mean over users, an honest interval.

    A first group reports its means on [-1, 1], unbiased. A second votes for how far from that
    center users lie. If they lie far apart, all others report on [-1, 1], too. Otherwise the others
    report in a window of some scales around the center, in two steps if the center is what limits
    the first, with another vote between them. The answer is the average of all reports, weighted by
    their precision.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    sizes : SizeDistribution, optional
        Law of the numbers of samples. Used to foresee whether adapting can pay, and how far out
        users with few samples lie; not for weights. Left out: only `users` and `epsilon` decide.
    mode : str, default "tuned"
        Nothing else: the papers assume that users do not differ.
    level : float, default 0.95
        Nominal coverage of the interval.

    Notes
    -----
    **Privacy.** Local, pure epsilon, of everything a user contributes to the window, its number of samples included.
    Each user sends one message in one stage; the stages are disjoint. That the user took part is public.

    Estimated is the mean over users: each counts once, however many samples it has. Users are not
    weighted by size, so the answer stays unbiased when sizes and means are related.

    Shares of the users, and whether to adapt at all, minimise `adaptive_risk`. Windows hold
    the clip bias of exponential tails under a fifth of the standard error.

    Raises
    ------
    ValueError
        If an option is out of range.

    Examples
    --------
    >>> [stage.name for stage in Adaptive(epsilon=1.0, users=20_000).rounds]
    ['center', 'scale', 'narrow', 'scale again', 'last']
    >>> Adaptive(epsilon=1.0, users=1000).shares
    (1.0,)
    """

    name = "adaptive"
    candidate = True
    taken_for = "tails"
    assumes = "few users far from all others (exponential tails); uses windows if users are close together"
    trust = "local"
    options = COMMON_OPTIONS
    edition = 2

    rounds: Sequence[Round]
    shares: Sequence[float]

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
    ) -> None:
        self.settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        require(
            self.settings.tuned,
            "mode",
            "be 'tuned': no paper has a method for users who differ",
            mode,
        )

        self.mode = mode
        self.epsilon = epsilon
        self._one_shot = OneShot(epsilon=epsilon, users=users, sizes=sizes, level=level)
        self.plan = self._choose()
        self.shares = self.plan.shares
        self.rounds = self._stages()

    def describe(self) -> dict[str, Any]:
        """Public, plain data.

        What is assumed, the stages, and predicted standard errors on [-1, 1].
        """
        plan = self.plan
        adapts = len(plan.shares) > 1
        one_shot_stderr = self._one_shot.describe()["predicted_stderr"]
        apart = math.sqrt(adaptive_risk(plan, PlacedLaw.normal(APART)))
        moments = (plan.start_moment, NARROW_MOMENT) if adapts else (plan.start_moment,)

        return self.settings.describe() | {
            "estimand": "mean over users: each counts once, whatever its number of samples",
            "adapts": adapts,
            "assumption": ASSUMPTION if adapts else NOTHING_ASSUMED,
            "shares": list(plan.shares),
            "stages": [stage.name for stage in self.rounds],
            "channels": [plan.channel(moment).name for moment in moments],
            "predicted_stderr": apart if adapts else one_shot_stderr,
            "predicted_stderr_holds": "where users lie far apart; it is smaller where they do not"
            if adapts
            else "always",
            "predicted_stderr_if_alike": math.sqrt(adaptive_risk(plan, self._alike()))
            if adapts
            else one_shot_stderr,
            "one_shot_stderr": one_shot_stderr,
        }

    def _alike(self) -> PlacedLaw:
        sizes = self.settings.sizes

        if sizes is None:
            return PlacedLaw.normal(0.001)
        return PlacedLaw.alike(sizes)

    def _choose(self) -> AdaptivePlan:
        settings = self.settings
        sizes = self.settings.sizes
        alone = AdaptivePlan(settings, (1.0,), start_moment=self._one_shot.second_moment)
        if (
            adaptive_risk_vote_log_stderr(settings.epsilon, VOTE_SHARES[1] * settings.users)
            > LEAST_LOG_STDERR
        ):
            return alone

        plan = replace(alone, shares=_shares(settings.epsilon, _round_number(settings.users)))
        if sizes is None:
            return plan
        plan = replace(
            plan,
            size_factor=adaptive_risk_size_factor(
                sizes, plan.noise(0.6 * settings.users, NARROW_MOMENT)
            ),
        )

        if _relative_risk(plan, sizes) <= MOST_RISK:
            return plan
        return alone

    def _stages(self) -> Sequence[Round]:
        plan = self.plan
        if len(plan.shares) == 1:
            return self._one_shot.rounds
        return (
            ReportStage(plan, 0, "center"),
            VoteStage(plan, 1, "scale", first=True),
            ReportStage(plan, 2, "narrow"),
            VoteStage(plan, 3, "scale again", first=False),
            LastStage(plan, 4, "last"),
        )


def _relative_risk(plan: AdaptivePlan, sizes: SizeDistribution) -> float:
    """Risk for users who are alike, relative to one report of each.

    Geometric mean over where they may lie.
    """
    widest = PlacedLaw.alike(sizes)
    laws = [
        replace(widest, deviation=USUAL_SPREAD * widest.deviation, mean=mean)
        for mean in USUAL_MEANS
    ]
    ratios = [adaptive_risk(plan, law) / adaptive_one_shot_risk(plan, law) for law in laws]

    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))


def _round_number(users: int) -> int:
    """Keep two digits: shares hardly depend on the rest, and windows of similar numbers of users need no new search."""
    return int(float(f"{users:.1e}"))


@lru_cache(maxsize=64)
def _shares(epsilon: float, users: int) -> tuple[float, ...]:
    """Shares of the stages.

    Least geometric mean of the risk over users who differ little, some, and much.
    """
    error = adaptive_risk_vote_log_stderr(epsilon, users) / VOTE_LOG_STDERR
    voters = round(min(max(error**2, VOTE_SHARES[0]), VOTE_SHARES[1]), 3)
    settings = Settings(
        method="adaptive", epsilon=epsilon, users=users, sizes=None, mode="tuned", level=0.95
    )
    found = []

    for start in STARTS:
        for middle in MIDDLES:
            shares = (start, voters, middle, voters, round(1.0 - start - middle - 2.0 * voters, 3))
            plan = AdaptivePlan(settings, shares)
            risk = sum(
                math.log(adaptive_risk(plan, PlacedLaw.normal(spread))) for spread in TRIAL_SPREADS
            )
            found.append((risk, shares))

    return min(found)[1]
