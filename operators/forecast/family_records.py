"""What a forecast of vectors, densities and mixtures says, in records and in words."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from meanstream.operators.estimators.registry import estimator_class


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyCandidate:
    """Public: what one estimator is predicted to do.

    Attributes
    ----------
    name : str
        Key of `meanstream.operators.estimators.registry.ESTIMATORS`.
    options : dict
        What it is built with, on [-1, 1].
    mse : float
        Predicted mean squared error on [-1, 1], summed over coordinates or components; integrated
        over the bounds relative to the flat density, for a density.
    half_width : float or None
        Of the interval of one coordinate or component, their root mean square, in the value's unit;
        None for a density.
    users_needed : int or None
        For the target; None without one, or beyond 10**9 users.
    threshold : int or None
        Users with fewer samples than this count as lying in the middle: None where there is no such
        number.
    terms, left_out : int and float, or None
        Of a density: number of functions, and the part of `mse` that is due to the functions left
        out.
    assumes : str
        Of the users.
    """

    name: str
    options: dict[str, Any]
    mse: float
    half_width: float | None
    users_needed: int | None
    threshold: int | None
    terms: int | None
    left_out: float | None
    assumes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyForecast:
    """Public: what `meanstream.operators.forecast.family_forecast.forecast_family` found.

    Attributes
    ----------
    wanted : str
        "vector", "density" or "mixture".
    candidates : tuple of FamilyCandidate
        Least error first.
    refused : dict
        Name of each estimator that does not take these numbers, and why.
    guess_mse : float
        Error of no answer at all, which a recommended estimator stays below.
    recommended : str or None
        Name of one of the candidates; None where they do no better than guessing.
    paper_recommends : str or None
        Between the two of sparse vectors, by the paper's rule, whose constant is left open there.
    sentence, warning : str
        The recommendation, and what it stands on, in words.
    """

    users: int
    epsilon: float
    level: float
    wanted: str
    dimension: int | None
    sparsity: int | None
    radius: float | None
    smoothness: int | None
    components: int | None
    between_users: float | None
    target_half_width: float | None
    candidates: tuple[FamilyCandidate, ...]
    refused: dict[str, str]
    guess_mse: float
    recommended: str | None
    paper_recommends: str | None
    sentence: str
    warning: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def family_sentence(
    candidates: Sequence[FamilyCandidate],
    chosen: str | None,
    guess: float,
    target: float | None,
    radius: float | None,
) -> str:
    """Say the recommendation in one sentence, and why."""
    best = candidates[0]
    if chosen is None:
        wide = (
            "" if best.half_width is None else f" and intervals of half-width {best.half_width:.3g}"
        )
        text = (
            f"Use none: too few users; even {best.name} has a mean squared error of {best.mse:.3g}{wide},"
            f" no better than a guess ({guess:.3g})"
        )
    elif best.half_width is None:
        left = 0.0 if best.left_out is None else best.left_out
        text = (
            f"Use {best.name} with {best.terms} functions: error {math.sqrt(best.mse):.3g} of the flat density's"
            f" height, root mean square over the bounds ({math.sqrt(left):.3g} for the functions left out)"
        )
    else:
        text = f"Use {best.name}: half-width {best.half_width:.3g} for each {estimator_class(best.name).part}"
        if why := _why(best, candidates, radius):
            text += f", because {why}"

    if target is not None:
        needed = "more than 10**9" if best.users_needed is None else f"{best.users_needed:,}"
        text += f". A half-width of {target:g} needs {needed} users"

    return f"{text}."


def _why(best: FamilyCandidate, candidates: Sequence[FamilyCandidate], radius: float | None) -> str:
    others = [one for one in candidates[1:] if one.half_width is not None]
    against = f" (next: {others[0].name}, {others[0].half_width:.3g})" if others else ""
    why: str = estimator_class(best.name).why(best.options, radius)
    return why + against


def family_warning(best: FamilyCandidate, others: Collection[str]) -> str:
    """Say what the recommendation stands on; the others' names tell what could be taken instead."""
    text = f"It assumes: {best.assumes}. Where that is not so, intervals miss, by an error that more users do not mend"
    text += estimator_class(best.name).caution(others)

    if best.threshold is not None:
        text += (
            f". The law of sizes is taken as true: if more users than it says have less than {best.threshold} samples,"
            " answers are biased to the middle of their windows by that share"
        )

    return f"{text}."
