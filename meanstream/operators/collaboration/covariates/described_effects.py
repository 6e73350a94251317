"""What was learned of public attributes, as plain data: probability and size of each effect, what it explains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from meanstream.operators.collaboration.covariates.covariate_design import MOST_NAME, Attribute, Category
from meanstream.operators.collaboration.covariates.covariate_sums import CovariateSums
from meanstream.operators.collaboration.covariates.effect_models import EffectModels
from meanstream.operators.records import Floats, Ints

SHOWN_LEVELS = 12
"""Levels of a category whose effects are described: those of most agents."""


def describe_effects(  # noqa: PLR0917 - what the regression has found
    attributes: Sequence[Attribute],
    sums: CovariateSums,
    models: EffectModels,
    level: list[Floats],
    effects: Floats,
    covariance: Floats,
    places: list[Ints],
    width: float,
) -> tuple[list[dict[str, Any]], float]:
    """Describe each attribute; give the share of the spread of the means that all explain together.

    The size of an effect is the standard deviation of what an attribute adds to the means: of a number with its sign,
    so that it is the slope per standard deviation. Shares are of agents, each counted once.
    """
    left = width**2 * float(models.probability @ models.spread_variance)
    number = [n.sum(axis=0) for n in sums.numbers]
    total = max(int(sums.number.sum()), 1)
    centered = [own - n @ own / total for n, own in zip(number, level, strict=True)]
    explained = _variance_of_all(sums, centered, total)
    whole = explained + left
    found = []
    for g, (one, place) in enumerate(zip(attributes, places, strict=True)):
        variance = float(number[g] @ centered[g] ** 2) / total
        chosen = np.array([g in groups for groups in models.groups])
        of_one = {
            "name": one.name[:MOST_NAME],
            "kind": one.kind,
            "probability": min(float(models.probability[chosen].sum()), 1.0),
            "explained": variance / whole if whole > 0 else 0.0,
        }
        own = covariance[place[:, None], place]
        if isinstance(one, Category):  # an effect is the difference from the average agent
            common = own @ (number[g] / total)
            own_variance = np.diagonal(own) - 2 * common + number[g] @ common / total
        else:
            own_variance = np.diagonal(own)
        stddev = width * np.sqrt(np.maximum(own_variance, 0.0))
        if isinstance(one, Category):
            of_one |= {
                "size": float(np.sqrt(variance)),
                "standard_error": float(np.sqrt(number[g] @ stddev**2 / total)),
                "levels": list(_levels(one, number[g], centered[g], stddev)),
            }
        else:
            of_one |= {"size": float(width * effects[place[0]]), "standard_error": float(stddev[0])}
        found.append(of_one)
    return found, explained / whole if whole > 0 else 0.0


def _levels(one: Category, number: Ints, effect: Floats, stddev: Floats) -> Iterator[dict[str, Any]]:
    names = [*one.levels, "(other)", "(missing)"]
    for i in np.argsort(-number, kind="stable")[:SHOWN_LEVELS].tolist():
        if number[i]:
            yield {
                "level": names[i][:MOST_NAME],
                "agents": int(number[i]),
                "effect": float(effect[i]),
                "standard_error": float(stddev[i]),
            }


def _variance_of_all(sums: CovariateSums, level: list[Floats], total: int) -> float:
    """Variance among agents of what all attributes add together."""
    found = sum(float(n.sum(axis=0) @ own**2) for n, own in zip(sums.numbers, level, strict=True))
    for (g, h), pairs in sums.pairs.items():
        found += 2 * float(level[g] @ pairs.sum(axis=0) @ level[h])
    return max(found / total, 0.0)
