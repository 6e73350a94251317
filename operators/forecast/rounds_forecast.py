"""What to expect before any user is queried.

Error of each estimator, users needed, and which one to take.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from meanstream.operators.estimators.registry import (
    ESTIMATORS,
    build_estimator,
    build_estimator_of_budget,
    distinct_estimators,
    estimator_class,
    estimator_taken_for,
)
from meanstream.operators.forecast.users_needed import number_or, users_needed
from meanstream.operators.noise.window_budget import WindowBudget
from meanstream.operators.rounds.estimator_traits import DECLARED, TAILS
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require, require_between, require_positive

NOT_WORTH = 0.9
"""Mean squared error relative to one report each, from which on a search for a narrower window does
not pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Public: what one estimator is predicted to do.

    Attributes
    ----------
    name : str
        Key of `meanstream.operators.estimators.registry.ESTIMATORS`.
    kind : str
        Stages of the plan, "" for others.
    mse : float
        Predicted mean squared error on [-1, 1]: of users who are alike, or differ as declared.
    worst_mse : float
        The same where users differ so much that no window helps.
    half_width : float
        Of the interval, from `mse`, in the value's unit.
    privacy_half_width : float
        The part of it that is privacy: it is the root of the sum of the squares of this and of the
        sampling's.
    users_needed : int or None
        For the target; None without a target, or beyond 10**9 users.
    assumes : str
        Of the users.
    trust : {"local", "central"}
        Whether users protect themselves, or a curator sees every sample.
    """

    name: str
    kind: str
    mse: float
    worst_mse: float
    half_width: float
    privacy_half_width: float
    users_needed: int | None
    assumes: str
    trust: str = "local"


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
        How much users may differ before narrow windows give wrong intervals; "" where nothing is
        localized.
    breaking_point : float or None
        The standard deviation of users' means in that warning, in the value's unit.
    curator : Candidate
        What a trusted curator is predicted to do: never recommended over the others, because it is
        another trust, not another error.
    curators : tuple of Candidate
        All that a curator may do, least error first.
    sampling_half_width : float
        What the interval would be without any privacy: users are drawn, and their samples.
    epsilon_needed : dict of str to float or None
        Smallest epsilon with which the recommended ones reach the target; None without one, or
        beyond 20.
    by_epsilon : dict of str to dict of float to float
        Half-width of the interval by epsilon, of the recommended ones.
    curator_sentence : str
        The curator in words.
    carried : dict of str to (float, float)
        Per estimator that learns from window to window: how far users' own means spread, and its
        standard error after ten windows then, both in the value's unit; the narrowest spread first.
    carried_sentence : str
        The same in words.
    user_windows, delta : int or None, float
        Windows of a user that epsilon and delta pay for together.
    budget_sentence : str
        Which noise the curator would take for these windows, and which users by themselves; ""
        where each window costs epsilon.
    """

    users: int
    epsilon: float
    level: float
    between_users: float | None
    tails: str | None
    target_half_width: float | None
    candidates: tuple[Candidate, ...]
    recommended: str
    sentence: str
    warning: str
    breaking_point: float | None
    curator: Candidate
    curators: tuple[Candidate, ...]
    sampling_half_width: float
    epsilon_needed: dict[str, float | None]
    by_epsilon: dict[str, dict[float, float]]
    curator_sentence: str
    carried: dict[str, list[tuple[float, float]]]
    carried_sentence: str
    user_windows: int | None = None
    delta: float = 0.0
    budget_sentence: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def recommended_forecast_record(
    cases: Mapping[str, Candidate], declared: float | None, tails: str | None
) -> Candidate:
    """Take the one for what is declared, unless no search for a narrower window pays.

    Nothing that clips by itself.
    """
    plain = cases["no search"]
    if declared is None and tails is None:
        return plain
    best = cases["tails" if declared is None else "declared"]

    if best.mse > NOT_WORTH * plain.mse:
        return plain
    return best


def forecast_record_sentence(
    cases: Mapping[str, Candidate],
    best: Candidate,
    declared: float | None,
    z: float,
    target: float | None,
) -> str:
    """Say the recommendation in one sentence.

    `z` turns a standard error on [-1, 1] into a half-width.
    """
    plain = cases["no search"]
    planned = cases["declared"]

    # What is recommended, and what a declaration would change.
    if best is plain:
        text = (
            f"Use one unbiased report of each user: half-width {plain.half_width:.3g}. No search for a narrower window "
            "would beat it"
        )
        would = []

        if declared is None and planned.mse < NOT_WORTH * plain.mse:
            would.append(f"between_users (0: {planned.half_width:.3g})")

        if (
            declared is None
            and cases["tails"].mse < NOT_WORTH * plain.mse
            and best is not cases["tails"]
        ):
            would.append(f"tails (exponential: {cases['tails'].half_width:.3g} if users are alike)")

        if would:
            text = (
                f"Use one unbiased report of each user: half-width {plain.half_width:.3g}. Only a declared "
                f"{' or '.join(would)} would improve on it, if it is true"
            )
    # With a declaration: what it gives, and what one report each would.
    elif best is planned:
        text = (
            f"Use {best.name} ({best.kind}) while between_users is true: half-width {best.half_width:.3g}, or "
            f"{plain.half_width:.3g} with one report each"
        )
    else:
        worst = z * math.sqrt(best.worst_mse)
        text = (
            f"Use {planned.name} with the declared tails ({best.name}): half-width {best.half_width:.3g} if users are "
            f"alike, {worst:.3g} if they differ much, or {plain.half_width:.3g} with one report each"
        )

    if target is not None:
        needed = number_or("more than 10**9", best.users_needed)
        text += f". A half-width of {target:g} needs {needed} users"

    return text + "."


def forecast_record_warning(
    name: str, breaking: float | None, half: float, declared: float | None, level: float
) -> str:
    """Say what users who differ more than is declared do to the interval.

    `half` is half the range of a value.
    """
    if breaking is None:
        return ""
    assumed = (
        "that users are alike (between_users 0)"
        if not declared
        else f"between_users {declared * half:.3g}"
    )

    return (
        f"With {name} and {assumed}, the {level:.0%} interval misses half of the time if users' own means have a "
        f"skewed spread of {breaking * half:.3g}. Declare a true bound, or none."
    )


def forecast_record_curator_sentence(curator: Candidate, best: Candidate) -> str:
    """Say what trusting a curator would be worth."""
    needs = (
        ""
        if curator.users_needed is None
        else f", with {curator.users_needed:,} users for the target"
    )

    return (
        f"If a curator may see every sample, use {curator.name}: half-width {curator.half_width:.3g}{needs}, or "
        f"{best.half_width:.3g} if users protect themselves ({best.name})."
    )


def forecast_record_carried_sentence(
    carried: Mapping[str, list[tuple[float, float]]], plain: float
) -> str:
    """Say what windows that follow one another gain by what the ones before have shown.

    Examples
    --------
    >>> forecast_record_carried_sentence({"repeating": [(0.2, 0.05), (3.0, 0.6)]}, 0.5)
    "After ten windows in a row (repeating) the standard error is 0.05 if users' own means spread by 0.2, and \
0.6 by 3. For a single window it is 0.5. Intervals are about as wide as those of one report of each user."
    """
    parts = []
    for name, errors in carried.items():
        (spread, least), *more = errors
        others = "".join(f", {error:.2g} by {wider:.2g}" for wider, error in more[:-1])
        last = "".join(f", and {error:.2g} by {wider:.2g}" for wider, error in more[-1:])
        parts.append(
            f"After ten windows in a row ({name}) the standard error is {least:.2g} if users' own means spread by "
            f"{spread:.2g}{others}{last}. For a single window it is {plain:.2g}. Intervals are about as wide as "
            "those of "
            "one report of each user."
        )

    return " ".join(parts)


SHOWN_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""For which the error is shown, next to the one that is requested."""

CARRIED_SPREADS = (0.02, 0.05, 0.1, 0.2)
"""Of users' own means, in half ranges: for what windows that repeat are said to gain."""


def forecast_rounds_candidates(trust: str = "local") -> list[str]:
    """Names of the estimators of this trust that are compared: each class once."""
    classes = {name: estimator_class(name) for name in distinct_estimators()}
    return sorted(
        name
        for name, estimator in classes.items()
        if estimator.candidate and estimator.trust == trust
    )


def forecast_rounds(
    *,
    users: int,
    epsilon: float,
    sizes: SizeDistribution,
    lower: float = -1.0,
    upper: float = 1.0,
    level: float = 0.95,
    between_users: float | None = None,
    tails: str | None = None,
    target_half_width: float | None = None,
    user_windows: int | None = None,
    delta: float = 0.0,
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
        Declared bound on the standard deviation of users' own means. Left out, only estimators that
        need no such bound are recommended.
    tails : {"exponential"}, optional
        Declared tails of users' means. Left out, only estimators that assume none are recommended.
    target_half_width : float, optional
        Half-width of the interval that is wanted: adds the number of users that each candidate
        needs for it.
    user_windows : int, optional
        Windows of a user that epsilon and delta pay for together. Left out, each window costs
        epsilon.
    delta : float
        Of these windows together.

    Notes
    -----
    **Privacy.** Nothing is released: everything is computed from public numbers. Sizes counted on private data are
    themselves private; a forecast from them is for the eyes of who may see these data.

    Predictions are for samples with the largest variance that the bounds allow.

    Examples
    --------
    >>> found = forecast_rounds(users=10_000, epsilon=1.0, sizes=SizeDistribution.parse("point:1"), between_users=0.0)
    >>> found.recommended, found.sentence
    ('one_shot', 'Use one unbiased report of each user: half-width 0.0424. No search for a narrower window would beat \
it.')
    """
    require(lower < upper, "lower", f"be below upper ({upper!r})", lower)
    require_between(0.0, 1.0, level=level)
    half = 0.5 * (upper - lower)
    z = float(ndtri(0.5 * (1.0 + level))) * half
    target = None

    if target_half_width is not None:
        require_positive(target_half_width=target_half_width)
        target = target_half_width / z

    fits = between_users is None or 0 <= between_users <= half
    require(fits, "between_users", f"lie in [0, {half:g}], half the range", between_users)
    declared = None if between_users is None else between_users / half
    require(tails in (None, *TAILS), "tails", f"be {' or '.join(TAILS)}, or be left out", tails)

    rule = "be left out without user_windows"
    require(not delta or user_windows is not None, "delta", rule, delta)
    ask = _Ask(epsilon, sizes, level, declared, tails, user_windows, delta)
    budget = ask.budget
    candidates = sorted(
        (_candidate(ask, name, users, z, target) for name in forecast_rounds_candidates()),
        key=lambda one: one.mse,
    )
    curators = [
        _candidate(ask, name, users, z, target) for name in forecast_rounds_candidates("central")
    ]
    (curator,) = (one for one in curators if one.name == estimator_taken_for("curator"))

    breaking = _breaking_point(ask, users)
    cases = {estimator_class(one.name).taken_for: one for one in candidates}
    best = recommended_forecast_record(cases, declared, tails)

    carried = {
        name: _carried(ask, name, users, half)
        for name in ESTIMATORS
        if estimator_class(name).carries
    }

    # Everything in the value's unit.
    return Forecast(
        users=users,
        epsilon=epsilon,
        level=level,
        between_users=between_users,
        tails=tails,
        target_half_width=target_half_width,
        candidates=tuple(candidates),
        recommended=best.name,
        sentence=forecast_record_sentence(cases, best, declared, z, target_half_width),
        # What it stands on, and what trusting a curator would bring.
        warning=forecast_record_warning(cases["declared"].name, breaking, half, declared, level),
        breaking_point=None if breaking is None else half * breaking,
        curator=curator,
        curators=tuple(sorted(curators, key=lambda one: one.mse)),
        sampling_half_width=z * math.sqrt(ask.sampling / users),
        epsilon_needed={
            one.name: ask.epsilon_for(one.name, users, target) for one in (best, curator)
        },
        by_epsilon={one.name: ask.half_widths(one.name, users, z) for one in (best, curator)},
        curator_sentence=forecast_record_curator_sentence(curator, best),
        carried=carried,
        carried_sentence=forecast_record_carried_sentence(
            carried, half * cases["no search"].mse ** 0.5
        ),
        user_windows=user_windows,
        delta=delta,
        budget_sentence="" if budget is None else _budget_sentence(budget, curator.name, best.name),
    )


def _budget_sentence(budget: WindowBudget, curator: str, local: str) -> str:
    """Say which noise keeps a budget that windows share, with a curator and without."""
    said = budget.said(gaussian=estimator_class(curator).takes_gaussian_noise)
    alone = budget.said(gaussian=False)
    return f"{curator}: {said}." + ("" if alone == said else f" {local}: {alone}.")


@dataclass(frozen=True, slots=True)
class _Ask:
    """The task of the estimators, except for the number of users."""

    epsilon: float
    sizes: SizeDistribution
    level: float
    declared: float | None
    tails: str | None
    user_windows: int | None = None
    delta: float = 0.0
    known: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    @property
    def sampling(self) -> float:
        """Variance of one user's mean around the population's.

        What no privacy would leave, of samples at the ends.
        """
        # Of a user's own mean: averaging over its samples, and how users differ.
        averaging = float((self.sizes.probability / self.sizes.support).sum())
        return min(averaging + (self.declared or 0.0) ** 2, 1.0)

    def epsilon_for(self, name: str, users: int, target: float | None) -> float | None:
        """Find the epsilon that this estimator needs for a standard error."""
        if target is None:
            return None

        asks = {epsilon: replace(self, epsilon=epsilon, known={}) for epsilon in EPSILONS}

        def stderr(epsilon: float) -> float:
            # An epsilon that many windows share may be too small for any design.
            try:
                return _alike(asks[epsilon].described(name, users))
            except ValueError:
                return math.inf

        return epsilon_needed(stderr, target)

    def half_widths(self, name: str, users: int, z: float) -> dict[float, float]:
        """Give the half-width that this estimator is predicted to have, by epsilon.

        Those it can be designed for.
        """
        half_widths = {}

        # Other epsilons may have no design for so few users.
        for epsilon in sorted({*SHOWN_EPSILONS, self.epsilon}):
            ask = self if epsilon == self.epsilon else replace(self, epsilon=epsilon, known={})
            try:
                half_widths[epsilon] = z * _alike(ask.described(name, users))
            except ValueError:
                continue

        return half_widths

    def described(self, name: str, users: int) -> dict[str, Any]:
        """Build an estimator and let it describe itself, once."""
        if (name, users) not in self.known:
            # A design is built once for each estimator and number of users.
            options = estimator_class(name).candidate_options(self.declared, self.tails)
            self.known[name, users] = self.built(name, users, **options).describe()

        return self.known[name, users]

    @property
    def budget(self) -> WindowBudget | None:
        """The budget that windows share, if they do."""
        if self.user_windows is None:
            return None
        return WindowBudget(epsilon=self.epsilon, delta=self.delta, windows=self.user_windows)

    def built(self, name: str, users: int, **options: Any) -> Any:
        """Build an estimator for one window."""
        common: dict[str, Any] = {"sizes": self.sizes, "level": self.level, **options}
        budget = self.budget
        if budget is not None:
            return build_estimator_of_budget(name, budget, users=users, **common)
        return build_estimator(name, epsilon=self.epsilon, users=users, **common)


def _candidate(ask: _Ask, name: str, users: int, z: float, target: float | None) -> Candidate:
    traits = estimator_class(name)
    described = ask.described(name, users)
    stderr = _alike(described)
    needed = None
    worst = described["predicted_stderr"] ** 2
    assumes = traits.assumes

    if target is not None:
        needed = users_needed(lambda n: _alike(ask.described(name, n)), target)

    # A trusted curator, who is no candidate, has its worst case in closed form.
    if traits.trust == "central":
        worst = ask.built(name, users).worst_mse()
    elif ask.declared and "between_users" in traits.options:
        assumes = DECLARED

    return Candidate(
        name=name,
        kind=described.get("kind", ""),
        mse=stderr**2,
        worst_mse=max(worst, stderr**2),
        half_width=z * stderr,
        privacy_half_width=z * math.sqrt(max(stderr**2 - ask.sampling / users, 0.0)),
        users_needed=needed,
        assumes=assumes,
        trust=traits.trust,
    )


def _carried(ask: _Ask, name: str, users: int, half: float) -> list[tuple[float, float]]:
    """Predict the standard error after ten windows, by the spread of users' own means.

    Of the declared one, if any.
    """
    spreads = CARRIED_SPREADS if not ask.declared else (ask.declared,)
    made = ask.built(name, users)
    return [(half * spread, half * made.predicted_mse(spread, 10) ** 0.5) for spread in spreads]


def _alike(described: dict[str, Any]) -> float:
    """Predicted standard error for users who are alike, where that is distinguished."""
    return float(described.get("predicted_stderr_if_alike") or described["predicted_stderr"])


def _breaking_point(ask: _Ask, users: int) -> float | None:
    """Spread of users' means at which the one that takes a declared spread goes wrong."""
    name = estimator_taken_for("declared")
    options = estimator_class(name).candidate_options(ask.declared, ask.tails)
    breaking: float | None = ask.built(name, users, **options).breaking_point()
    return breaking


EPSILONS = tuple(sorted({float(f"{epsilon:.2g}") for epsilon in np.geomspace(0.01, 20.0, 120)}))
"""What is tried, to two digits."""


def epsilon_needed(stderr: Callable[[float], float], target: float) -> float | None:
    """Find the smallest epsilon that makes a predicted standard error small enough, to two digits.

    None if 20 does not.

    Parameters
    ----------
    stderr : callable
        Predicted standard error for an epsilon; it falls with epsilon.
    target : float
        To be reached.

    Examples
    --------
    >>> epsilon_needed(lambda epsilon: 0.1 / epsilon, 0.05), epsilon_needed(lambda epsilon: 1.0, 0.5)
    (2.0, None)
    """
    if stderr(EPSILONS[-1]) > target:
        return None

    return EPSILONS[bisect_left(EPSILONS[:-1], True, key=lambda epsilon: stderr(epsilon) <= target)]
