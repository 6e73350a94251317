"""The tuned plan: few stages, each in a narrower window, with the least computed risk."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtri

from meanstream.operators.estimators.adaptive.adaptive import Adaptive
from meanstream.operators.estimators.adaptive.watched_windows import WatchedWindow
from meanstream.operators.estimators.one_shot import OneShot
from meanstream.operators.estimators.plan.plan_design import PlanDesign
from meanstream.operators.estimators.plan.plan_risk import (
    plan_risk_clip_moments,
    plan_risk_skewed_law,
)
from meanstream.operators.estimators.plan.plan_search import search_full_stage, search_plan
from meanstream.operators.estimators.plan.plan_stages import PairVoteStage, WindowStage
from meanstream.operators.estimators.plan.plan_tables import make_plan_tables
from meanstream.operators.estimators.plan.unknown_sizes import unknown_sizes_rounds
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.channels.registry import best_channel
from meanstream.operators.rounds.estimator_traits import TAILS, EstimatorTraits
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require


class Plan(EstimatorTraits):
    """Mean of a population from users with very different numbers of samples, in stages that close in on it.

    Released to the statistician: one report of each user, in one stage. The first stage is a vote
    for a bin (H) or an unbiased report on [-1, 1] (R); one to three stages of clipped reports (C)
    around the latest center follow. Kind, windows, channels and shares minimise the predicted risk;
    where one stage is best, all users are in it.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    sizes : SizeDistribution or "unknown"
        Law of a user's number of samples (public). "unknown": a tenth of the users is requested it
        first, and the windows are chosen then; for `users * epsilon**2` of at least 10**4.
    mode : {"tuned"}
        The papers have no such plan.
    level : float
        Nominal coverage of the interval.
    between_users : float, optional
        Declared bound on the standard deviation of users' own means, on [-1, 1]; 0 if all users
        draw from one law, as the papers assume. Left out, it is not bounded: users tell how much
        they differ where they are many (`adaptive.watched_windows`), or with `tails` (`adaptive`).
        It never costs: where one report of each user on
        [-1, 1] is predicted to be as good, everyone sends that.
    tails : {"exponential"}, optional
        Declares that the tails of users' means fall off at least exponentially: few users lie far
        from all others. Left out, nothing is assumed of them: the interval holds for a group
        anywhere, with a declared spread for one as large as the spread allows.

    Notes
    -----
    **Privacy.** Local, pure epsilon, of everything a user contributes to the window, its number of samples included.
    Which stage asks a user depends on neither. The design is a function of public numbers.

    **The interval is honest only if what is declared is true**: windows are as narrow as `between_users` allows, and
    the clip bias of users who differ more does not average out.

    Where a vote went wrong, the reports of the next stage all lie at one end of its window: then
    everyone left reports on [-1, 1].

    Raises
    ------
    ValueError
        If an option is out of range.

    Examples
    --------
    >>> sizes = SizeDistribution.parse("two:100000,1000000,0.5")
    >>> plan = Plan(epsilon=1.0, users=10_000, sizes=sizes, between_users=0.0)
    >>> plan.describe()["kind"], f"{plan.describe()['predicted_stderr']:.0e}"
    ('HCCC', '6e-05')
    """

    name = "plan"
    candidate = True
    taken_for = "declared"
    sizes_unknown = True
    trust = "local"
    options = COMMON_OPTIONS | {"between_users", "tails"}
    edition = 3

    rounds: tuple[Round, ...]
    shares: tuple[float, ...]

    @classmethod
    def candidate_options(cls, between_users: float | None, tails: str | None) -> dict[str, Any]:
        """Users who are alike, unless their spread is declared.

        Without a bound it is another estimator.
        """
        return {"between_users": between_users or 0.0, "tails": tails}

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | str | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        between_users: float | None = None,
        tails: str | None = None,
    ) -> None:
        require(tails in (None, *TAILS), "tails", f"be {' or '.join(TAILS)}, or be left out", tails)
        free = tails is None
        unknown = isinstance(sizes, str)
        require(
            not unknown or sizes == "unknown", "sizes", "be a SizeDistribution or 'unknown'", sizes
        )

        known = None if isinstance(sizes, str) else sizes
        settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=known, mode=mode, level=level
        )
        require(settings.tuned, "mode", "be 'tuned' for plan (the papers have none)", mode)
        self.epsilon = epsilon

        self.mode = mode
        self.between_users = between_users
        self._settings = settings
        self.design: PlanDesign | None = None
        self._instead: Adaptive | OneShot | WatchedWindow | None = None

        common: dict[str, Any] = {
            "epsilon": epsilon,
            "users": users,
            "sizes": known,
            "mode": mode,
            "level": level,
        }
        one_shot = OneShot(**common)

        if between_users is None:
            self._take(_undeclared(settings, one_shot) if free else Adaptive(**common))
            return

        require(
            0.0 <= between_users <= 1.0,
            "between_users",
            "lie in [0, 1] (half the range)",
            between_users,
        )

        if unknown:
            self.rounds, self.shares = unknown_sizes_rounds(settings, between_users)
            return

        design = plan_for(epsilon, users, settings.known_sizes, between_users, far=free)
        if len(design.stages) == 1 or one_shot.predicted_mse(between_users) <= design.risk:
            self._take(one_shot)
        else:
            self.design = design
            self.rounds = self._stages(design)
            self.shares = tuple(stage.share for stage in design.stages)

    def _take(self, other: Adaptive | OneShot | WatchedWindow) -> None:
        """Let another estimator do it."""
        self._instead = other
        self.rounds = tuple(other.rounds)
        self.shares = tuple(other.shares)

    def _stages(self, design: PlanDesign) -> tuple[Round, ...]:
        restart = search_full_stage(
            make_plan_tables(self.epsilon, 1, self._settings.known_sizes, 0.0), 1.0
        )
        made: list[Round] = []

        for number, stage in enumerate(design.stages):
            if stage.kind == "vote":
                made.append(PairVoteStage(self._settings, stage))
                continue

            last = number == len(design.stages) - 1
            name = f"{stage.kind} {number + 1}"
            made.append(WindowStage(self._settings, stage, restart=restart, name=name, last=last))

        return tuple(made)

    def breaking_point(self) -> float | None:
        """Smallest spread of users' means (exponential tail) that biases it by a half-width of its interval."""
        if self.design is None:
            return None
        sizes = self._settings.known_sizes
        declared = self.between_users or 0.0

        return breaking_point(self.design, sizes, declared=declared, level=self._settings.level)

    def describe(self) -> dict[str, Any]:
        """Public, plain data.

        Kind, stages, and the predicted standard error on [-1, 1] as `predicted_stderr`.
        """
        if self._instead is not None:
            own = {
                "method": self.name,
                "kind": self._instead.name,
                "between_users": self.between_users,
            }

            return self._instead.describe() | own

        if self.design is None:
            return self._settings.describe() | self._before_sizes_are_known()
        return self._settings.describe() | {
            "kind": self.design.kind,
            "between_users": self.between_users,
            "predicted_stderr": math.sqrt(self.design.risk),
            "failure": self.design.failure,
            "stages": [stage.describe() for stage in self.design.stages],
        }

    def _before_sizes_are_known(self) -> dict[str, Any]:
        """Say what is known before the first stage: the error if windows turn out not to pay."""
        channel = best_channel(self.epsilon, 1.0)
        users = self._settings.users * (1.0 - self.shares[0])
        return {
            "kind": "sizes unknown",
            "between_users": self.between_users,
            "predicted_stderr": math.sqrt(sum(channel.moments) / users),
            "predicted_stderr_holds": "at most: windows are chosen after a tenth of the users reported their sizes",
            "stages": [
                {"stage": step.name, "share": share}
                for step, share in zip(self.rounds, self.shares, strict=True)
            ],
        }


def _undeclared(settings: Settings, one_shot: OneShot) -> OneShot | WatchedWindow:
    """What needs no declaration: a watched window where it can pay, else one report each."""
    watched = WatchedWindow(settings, one_shot)
    if watched.worth:
        return watched
    return one_shot


def plan_for(
    epsilon: float, users: int, sizes: SizeDistribution, between_users: float, *, far: bool = False
) -> PlanDesign:
    """Find the design, or return it if it was found before; see `search_plan`."""
    key = (sizes.support.tobytes(), sizes.probability.tobytes())
    return _kept(float(epsilon), int(users), key, float(between_users), far)


@lru_cache(maxsize=128)
def _kept(
    epsilon: float, users: int, sizes: tuple[bytes, bytes], between_users: float, far: bool
) -> PlanDesign:
    support = np.frombuffer(sizes[0], np.int64)
    probability = np.frombuffer(sizes[1], np.float64)
    return search_plan(
        epsilon, users, SizeDistribution(support, probability), between_users, far=far
    )


def breaking_point(
    design: PlanDesign, sizes: SizeDistribution, *, declared: float, level: float
) -> float | None:
    """Smallest spread of users' means (exponential tail) that biases the plan by a half-width of its interval.

    Parameters
    ----------
    design : PlanDesign
        Public.
    sizes : SizeDistribution
        Of users' numbers of samples (public).
    declared : float
        Spread that the design is for, on [-1, 1].
    level : float
        Of the interval.

    Returns
    -------
    float or None
        On [-1, 1]; None if no spread does.

    Notes
    -----
    **Privacy.** A function of public numbers.
    """
    margin = float(ndtri(0.5 * (1.0 + level))) * math.sqrt(design.risk)
    for spread in np.geomspace(1e-5, 0.5, 48).tolist():
        if spread > declared and abs(_bias(design, sizes, spread)) > margin:
            return float(spread)

    return None


def _bias(design: PlanDesign, sizes: SizeDistribution, spread: float) -> float:
    """Where the last stage ends up, center after center, if users' means are skewed.

    0 for reports on [-1, 1].
    """
    law = plan_risk_skewed_law(sizes, spread)
    error = 0.0
    for stage in design.stages:
        if stage.kind == "clip":
            mean, _ = plan_risk_clip_moments(
                law, stage.cap, np.array([stage.window]), np.array([error])
            )
            error += float(mean[0, 0]) / (stage.shrunk * stage.gain)

    return error
