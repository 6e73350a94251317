"""What to expect before any user is asked: error of each estimator, users needed, and which one to take."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from operators.cummings_answer import SHARES
from operators.plan import Plan
from operators.plan_design import PlanDesign
from operators.plan_risk import clip_moments, skewed_law
from operators.planner_records import (
    NOT_WORTH,
    Candidate,
    Forecast,
    curator_sentence_of,
    sentence_of,
    warning_of,
)
from operators.rounds import build_estimator
from operators.sizes import SizeDistribution
from operators.users_needed import users_needed
from operators.validation import require, require_between, require_positive

ASSUMPTIONS = {
    "one_shot": "none",
    "adaptive": "none to start with; windows where users turn out to be close together",
    "dame": "all users draw from one law",
    "kent": "all users draw from one law",
    "plan": "all users draw from one law",
}
"""Every candidate, and what its interval assumes of the users."""

CURATOR = "cummings.ratio"
"""What to take if everybody trusts one party with every sample."""

_DECLARED = "users' own means spread by at most the declared between_users"


def forecast(
    *,
    users: int,
    epsilon: float,
    sizes: SizeDistribution,
    lower: float = -1.0,
    upper: float = 1.0,
    level: float = 0.95,
    between_users: float | None = None,
    target_half_width: float | None = None,
) -> Forecast:
    """Predict what every candidate does with these users, and recommend one.

    Parameters
    ----------
    users : int
        How many take part.
    epsilon : float
        Privacy of one user's whole window of samples.
    sizes : SizeDistribution
        Of users' numbers of samples (public).
    lower, upper : float
        Declared bounds of a value; everything else is in its unit.
    level : float
        Of the interval.
    between_users : float, optional
        Declared bound on the standard deviation of users' own means. Left out, only estimators that need no such bound
        are recommended.
    target_half_width : float, optional
        Half-width of the interval that is wanted: adds the number of users that each candidate needs for it.

    Notes
    -----
    **Privacy.** Nothing is released: everything is computed from public numbers. Sizes counted on private data are
    themselves private; a forecast from them is for the eyes of who may see these data.

    Predictions are for samples with the largest variance that the bounds allow.

    Raises
    ------
    ValueError
        If a number is out of range.

    Examples
    --------
    >>> found = forecast(users=10_000, epsilon=1.0, sizes=SizeDistribution.parse("point:1"), between_users=0.0)
    >>> found.recommended, found.sentence
    ('one_shot', 'Do not localise: one unbiased report of each user gives 0.0424 either way, and no search for a \
narrower window would beat it.')
    """
    require(lower < upper, "lower", f"be below upper ({upper!r})", lower)
    require_between(0.0, 1.0, level=level)
    half = 0.5 * (upper - lower)
    z = float(ndtri(0.5 * (1.0 + level))) * half
    target = None
    if target_half_width is not None:
        require_positive(target_half_width=target_half_width)
        target = target_half_width / z
    declared = None if between_users is None else between_users / half
    ask = _Ask(epsilon, sizes, level, declared)
    candidates = sorted((_candidate(ask, name, users, z, target) for name in ASSUMPTIONS), key=lambda one: one.mse)
    by_name = {one.name: one for one in candidates}
    curator = _curator(ask, users, z, target)
    breaking = _breaking_point(ask, users)
    best = _recommend(by_name, declared)
    return Forecast(
        users=users,
        epsilon=epsilon,
        level=level,
        between_users=between_users,
        target_half_width=target_half_width,
        candidates=tuple(candidates),
        recommended=best,
        sentence=sentence_of(by_name, best, declared, z, target_half_width),
        warning=warning_of(breaking, half, declared, level),
        breaking_point=None if breaking is None else half * breaking,
        curator=curator,
        curator_sentence=curator_sentence_of(curator, by_name[best]),
    )


@dataclass(frozen=True, slots=True)
class _Ask:
    """What the estimators are asked, but for the number of users."""

    epsilon: float
    sizes: SizeDistribution
    level: float
    declared: float | None
    known: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def described(self, name: str, users: int) -> dict[str, Any]:
        """Build an estimator and let it describe itself, once."""
        if (name, users) not in self.known:
            own = {"between_users": self.declared or 0.0} if name == "plan" else {}
            common: dict[str, Any] = {"epsilon": self.epsilon, "sizes": self.sizes, "level": self.level}
            self.known[name, users] = build_estimator(name, users=users, **common, **own).describe()
        return self.known[name, users]


def _candidate(ask: _Ask, name: str, users: int, z: float, target: float | None) -> Candidate:
    found = ask.described(name, users)
    stderr = _alike(found)
    needed = None
    if target is not None:
        needed = users_needed(lambda n: _alike(ask.described(name, n)), target, users)
    return Candidate(
        name=name,
        kind=found["kind"] if name == "plan" else "",
        mse=stderr**2,
        worst_mse=max(found["predicted_stderr"], stderr) ** 2,
        half_width=z * stderr,
        users_needed=needed,
        assumes=_DECLARED if name == "plan" and ask.declared else ASSUMPTIONS[name],
    )


def _curator(ask: _Ask, users: int, z: float, target: float | None) -> Candidate:
    """Predict the same of a trusted curator, who is no candidate: whether to trust one is not a question of error."""
    stderr = float(ask.described(CURATOR, users)["predicted_stderr"])
    needed = None
    if target is not None:
        needed = users_needed(lambda n: float(ask.described(CURATOR, n)["predicted_stderr"]), target, users)
    # Where users differ as much as they can, no weight and no window helps: noise for all of [-1, 1].
    weighted = max(SHARES[2] * users, 1.0)
    worst = 1.0 / weighted + 2.0 * (2.0 / (0.75 * ask.epsilon * weighted)) ** 2
    return Candidate(
        name=CURATOR,
        kind="",
        mse=stderr**2,
        worst_mse=max(worst, stderr**2),
        half_width=z * stderr,
        users_needed=needed,
        assumes="a trusted curator, who sees every sample; a user's size says nothing about its mean",
    )


def _alike(described: dict[str, Any]) -> float:
    """Predicted standard error for users who are alike, where that is told apart."""
    return float(described.get("predicted_stderr_if_alike") or described["predicted_stderr"])


def _recommend(by_name: dict[str, Candidate], declared: float | None) -> str:
    one_shot, best = by_name["one_shot"], by_name["adaptive" if declared is None else "plan"]
    if best.mse > NOT_WORTH * one_shot.mse or best.kind == "R":
        return "one_shot"
    return best.name


def _breaking_point(ask: _Ask, users: int) -> float | None:
    """Smallest spread of users' means (exponential tail) that biases the plan by a half-width of its interval."""
    declared = ask.declared or 0.0
    plan = Plan(epsilon=ask.epsilon, users=users, sizes=ask.sizes, between_users=declared, level=ask.level)
    assert plan.design is not None  # noqa: S101 - between_users is given
    margin = float(ndtri(0.5 * (1.0 + ask.level))) * math.sqrt(plan.design.risk)
    for spread in np.geomspace(1e-5, 0.5, 48).tolist():
        if spread > declared and abs(_bias(plan.design, ask.sizes, spread)) > margin:
            return float(spread)
    return None


def _bias(design: PlanDesign, sizes: SizeDistribution, spread: float) -> float:
    """Where the last stage ends up, center after center, if users' means are skewed; 0 for reports on [-1, 1]."""
    law = skewed_law(sizes, spread)
    error = 0.0
    for stage in design.stages:
        if stage.kind == "clip":
            mean, _ = clip_moments(law, stage.cap, np.array([stage.window]), np.array([error]))
            error += float(mean[0, 0]) / (stage.shrunk * stage.gain)
    return error
