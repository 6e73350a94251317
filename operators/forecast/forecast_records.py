"""What a forecast says: one record per estimator, and the recommendation in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

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
        needed = "more than 10**9" if best.users_needed is None else f"{best.users_needed:,}"
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
