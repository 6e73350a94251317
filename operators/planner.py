"""What to expect before any user is asked: error of each estimator, users needed, and which one to take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from operators.plan import Plan
from operators.plan_design import PlanDesign
from operators.plan_risk import clip_moments, skewed_law
from operators.rounds import build_estimator
from operators.sizes import SizeDistribution
from operators.validation import require, require_between, require_positive

ASSUMPTIONS = {
    "one_shot": "none",
    "adaptive": "none to start with; windows where users turn out to be close together",
    "dame": "all users draw from one law",
    "kent": "all users draw from one law",
    "plan": "all users draw from one law",
}
"""Every candidate, and what its interval assumes of the users."""

_DECLARED = "users' own means spread by at most the declared between_users"

NOT_WORTH = 0.9
"""Mean squared error relative to one report each, from which on a search for a narrower window does not pay."""

MOST_USERS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Public: what one estimator is predicted to do.

    Attributes
    ----------
    name : str
        Key of `operators.rounds.ESTIMATORS`.
    kind : str
        Stages of the plan, "" for others.
    mse : float
        Predicted mean squared error on [-1, 1]: of users who are alike, or differ as declared.
    worst_mse : float
        The same where users differ so much that no window helps.
    half_width : float
        Of the interval, from `mse`, in the value's unit.
    users_needed : int or None
        For the target; None without a target, or beyond 10**9 users.
    assumes : str
        Of the users.
    """

    name: str
    kind: str
    mse: float
    worst_mse: float
    half_width: float
    users_needed: int | None
    assumes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Public: what `forecast` found.

    Attributes
    ----------
    candidates : tuple of Candidate
        Least error first.
    recommended : str
        Name of one of them.
    sentence : str
        The recommendation, in the value's unit.
    warning : str
        How much users may differ before narrow windows give wrong intervals; "" where nothing is localized.
    breaking_point : float or None
        The standard deviation of users' means in that warning, in the value's unit.
    """

    users: int
    epsilon: float
    level: float
    between_users: float | None
    target_half_width: float | None
    candidates: tuple[Candidate, ...]
    recommended: str
    sentence: str
    warning: str
    breaking_point: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


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
    if target_half_width is not None:
        require_positive(target_half_width=target_half_width)
    declared = None if between_users is None else between_users / half

    def described(name: str, n: int) -> dict[str, Any]:
        own = {"between_users": declared or 0.0} if name == "plan" else {}
        return build_estimator(name, epsilon=epsilon, users=n, sizes=sizes, level=level, **own).describe()

    candidates = []
    for name, assumes in ASSUMPTIONS.items():
        found = described(name, users)
        needed = None
        if target_half_width is not None:
            needed = users_needed(_stderr_of(described, name), target_half_width / z, users)
        kind = found["kind"] if name == "plan" else ""
        stderr = _alike(found)
        candidates.append(
            Candidate(
                name=name,
                kind=kind,
                mse=stderr**2,
                worst_mse=max(found["predicted_stderr"], stderr) ** 2,
                half_width=z * stderr,
                users_needed=needed,
                assumes=_DECLARED if name == "plan" and declared else assumes,
            )
        )
    candidates.sort(key=lambda candidate: candidate.mse)
    by_name = {candidate.name: candidate for candidate in candidates}
    breaking = _breaking_point(epsilon, users, sizes, declared or 0.0, level)
    best = _recommend(by_name, declared)
    return Forecast(
        users=users,
        epsilon=epsilon,
        level=level,
        between_users=between_users,
        target_half_width=target_half_width,
        candidates=tuple(candidates),
        recommended=best,
        sentence=_sentence(by_name, best, declared, z, target_half_width),
        warning=_warning(breaking, half, declared, level),
        breaking_point=None if breaking is None else half * breaking,
    )


def users_needed(stderr: Callable[[int], float], target: float, start: int) -> int | None:
    """Find how many users make a predicted standard error small enough, to two digits; None if 10**9 do not.

    Parameters
    ----------
    stderr : callable
        Predicted standard error for a number of users; it falls with the number, roughly.
    target : float
        To be reached.
    start : int
        Where to begin.

    Examples
    --------
    >>> users_needed(lambda n: 2 / n**0.5, 0.02, 50)
    10000
    """
    fails, reaches, n = 0, MOST_USERS + 1, max(start, 1)
    while True:
        error = stderr(n)
        if error <= target:
            reaches = n
        else:
            fails = n
        if fails >= MOST_USERS:
            return None
        if reaches <= 1.05 * fails + 1 or reaches == 1:
            return reaches
        # Errors fall about as the root of the number of users, but for jumps where another design takes over.
        n = _two_digits(min(n * (error / target) ** 2, MOST_USERS))
        if not fails < n < reaches:
            if reaches < MOST_USERS and 0.95 * reaches <= n <= reaches:
                return reaches
            n = _two_digits(math.sqrt(max(fails, 1) * reaches))
            if not fails < n < reaches:
                return reaches


def _two_digits(n: float) -> int:
    """Round up to two significant digits."""
    unit = int(10 ** max(math.floor(math.log10(n)) - 1, 0))
    return math.ceil(n / unit - 1e-9) * unit


def _alike(described: dict[str, Any]) -> float:
    """Predicted standard error for users who are alike, where that is told apart."""
    return float(described.get("predicted_stderr_if_alike") or described["predicted_stderr"])


def _stderr_of(described: Callable[[str, int], dict[str, Any]], name: str) -> Callable[[int], float]:
    known: dict[int, float] = {}

    def stderr(n: int) -> float:
        if n not in known:
            known[n] = _alike(described(name, n))
        return known[n]

    return stderr


def _recommend(by_name: dict[str, Candidate], declared: float | None) -> str:
    one_shot, best = by_name["one_shot"], by_name["adaptive" if declared is None else "plan"]
    if best.mse > NOT_WORTH * one_shot.mse or best.kind == "R":
        return "one_shot"
    return best.name


def _sentence(by_name: dict[str, Candidate], best: str, declared: float | None, z: float, target: float | None) -> str:
    one_shot, found = by_name["one_shot"], by_name[best]
    if best == "one_shot":
        text = (
            f"Do not localise: one unbiased report of each user gives {one_shot.half_width:.3g} either way, and no "
            "search for a narrower window would beat it"
        )
        if declared is None and by_name["plan"].mse < NOT_WORTH * one_shot.mse:
            text = (
                f"Do not localise: one unbiased report of each user gives {one_shot.half_width:.3g} either way; only a "
                f"declared between_users would pay (0: {by_name['plan'].half_width:.3g}), if it is true"
            )
    elif best == "adaptive":
        worst = z * math.sqrt(found.worst_mse)
        text = (
            f"Take adaptive (plan without between_users): {found.half_width:.3g} either way where users are alike, "
            f"{worst:.3g} where they differ much, against {one_shot.half_width:.3g} with one report each"
        )
    else:
        text = (
            f"Take plan ({found.kind}) as long as between_users is true: {found.half_width:.3g} either way, against "
            f"{one_shot.half_width:.3g} with one report each"
        )
    if target is not None:
        needed = "more than 10**9" if found.users_needed is None else f"{found.users_needed:,}"
        text += f"; {target:g} either way needs {needed} users"
    return text + "."


def _warning(breaking: float | None, half: float, declared: float | None, level: float) -> str:
    if breaking is None:
        return ""
    assumed = "that users are alike (between_users 0)" if not declared else f"between_users {declared * half:.3g}"
    return (
        f"With plan and {assumed}, users whose own means have a skewed spread of {breaking * half:.3g} make the "
        f"{level:.0%} interval miss about half of the time: declare a bound that is true, or none."
    )


def _breaking_point(epsilon: float, users: int, sizes: SizeDistribution, declared: float, level: float) -> float | None:
    """Smallest spread of users' means (exponential tail) that biases the plan by a half-width of its interval."""
    design = Plan(epsilon=epsilon, users=users, sizes=sizes, between_users=declared, level=level).design
    assert design is not None  # noqa: S101 - between_users is given
    margin = float(ndtri(0.5 * (1.0 + level))) * math.sqrt(design.risk)
    for spread in np.geomspace(1e-5, 0.5, 48).tolist():
        if spread > declared and abs(_bias(design, sizes, spread)) > margin:
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
