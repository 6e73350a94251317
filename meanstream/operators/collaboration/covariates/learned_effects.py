"""What releases say of the effects of public attributes: offsets of the agents, and how well these are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanstream.operators.collaboration.covariates.covariate_design import (
    MOST_NAME,
    Attribute,
    Category,
    CovariateDesign,
    SampleCount,
)
from meanstream.operators.collaboration.covariates.covariate_sums import CovariateSums
from meanstream.operators.collaboration.covariates.effect_models import (
    EffectModels,
    Normals,
    averaged_effects,
    weigh_effect_models,
)
from meanstream.operators.records import AnyInts, Floats, Ints

SHOWN_LEVELS = 12
"""Levels of a category whose effects are described: those of most agents."""
MOST_OFFSET = 0.5
"""An offset moves a mean by at most this part of the width: residuals stay within bounds that are twice as wide."""

_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedEffects:
    """Public: effects of attributes, averaged over models by the evidence of the releases.

    Attributes
    ----------
    offset : list of float array, shape (n_levels,)
        By attribute: what a level adds, in the value's unit. Those of all attributes add up.
    doubt : list of float array, shape (n_levels,)
        By attribute: what it adds to the variance of an agent's offset,
    pair_doubt : dict of (int, int) to float array, shape (n_levels, n_levels)
        and what a pair of levels adds to it.
    base : float
        Variance of the offset of the average agent, which is taken out.
    described : list of dict
        What was learned of each attribute.
    explained : float
        Share of the spread of the means that attributes explain.
    most : float
        Greatest offset to either side.
    """

    offset: list[Floats]
    doubt: list[Floats]
    pair_doubt: dict[_Pair, Floats]
    base: float
    described: list[dict[str, Any]]
    explained: float
    most: float

    def offsets(self, codes: AnyInts, count: Ints) -> Floats:
        """Give what the attributes add to the mean of each agent: the same bits among whatever others."""
        return np.asarray(np.clip(self._added(codes, count, self.offset), -self.most, self.most), np.float64)

    def doubts(self, codes: AnyInts, count: Ints) -> Floats:
        """Give the variance of each offset."""
        parts = _codes(codes, count)
        found = self._added(codes, count, self.doubt) + self.base
        for (g, h), values in self.pair_doubt.items():
            found += values[parts[g], parts[h]]
        return np.maximum(found, 0.0)

    @staticmethod
    def _added(codes: AnyInts, count: Ints, values: list[Floats]) -> Floats:
        found = np.zeros(len(count))
        for part, value in zip(_codes(codes, count), values, strict=True):
            found += value[part]
        return found


def learn_effects(
    design: CovariateDesign, codes: AnyInts, *, count: Ints, mean: Floats, variance: Floats, lower: float, upper: float
) -> LearnedEffects:
    """Learn from releases what attributes say of the means.

    Parameters
    ----------
    design : CovariateDesign
    codes : int array, shape (n, n_attributes)
    count : int array, shape (n,)
    mean, variance : float array, shape (n,)
        Released means, and their variances with those of the noise.
    lower, upper : float
        Declared bounds of a sample.
    """
    attributes: list[Attribute] = [*design.attributes, SampleCount()]
    width = upper - lower
    sums = CovariateSums.of(attributes, _codes(codes, count), (mean - lower) / width, variance / width**2)
    if int(sums.number.sum()) == 0:
        zero = [np.zeros(one.size) for one in attributes]
        return LearnedEffects(
            offset=zero, doubt=zero, pair_doubt={}, base=0.0, described=[], explained=0.0, most=MOST_OFFSET * width
        )
    of_class, number = sums.variances(), sums.number.astype(np.float64)
    weight = 1 / (of_class + 1e-3)
    middle = float((weight * sums.total).sum() / (weight * number).sum()) * 2.0**-20
    total, squares, by_level = sums.moments(middle)
    normals = Normals.of(attributes, sums, by_level, total)
    models = weigh_effect_models(normals, of_class, squares, number)
    effects, covariance = averaged_effects(normals, of_class, models)
    return _learned(attributes, sums, normals, models, effects, covariance, width)


def _codes(codes: AnyInts, count: Ints) -> list[AnyInts]:
    return [*codes.T, SampleCount.codes(count)]


def _learned(  # noqa: PLR0917 - what the regression has found
    attributes: Sequence[Attribute],
    sums: CovariateSums,
    normals: Normals,
    models: EffectModels,
    effects: Floats,
    covariance: Floats,
    width: float,
) -> LearnedEffects:
    """Bring effects of columns to levels; take out what the average agent has."""
    maps = [one.columns(n.sum(axis=0).astype(np.float64)) for one, n in zip(attributes, sums.numbers, strict=True)]
    places = [normals.places(g) for g in range(len(attributes))]
    spread = float(models.probability @ models.spread_variance)
    weight = 1 / (sums.variances() + spread)
    share = [(weight @ n) / (weight @ sums.number) for n in sums.numbers]  # of the levels, among all
    mean = np.zeros(normals.n_columns)
    for m, place, part in zip(maps, places, share, strict=True):
        mean[place] = part @ m
    to_mean = covariance @ mean
    offset, doubt, pair_doubt = [], [], {}
    for m, place, part in zip(maps, places, share, strict=True):
        level = m @ effects[place]
        offset.append(width * (level - part @ level))
        own = np.einsum("lc,cd,ld->l", m, covariance[place[:, None], place], m)
        doubt.append(width**2 * (own - 2 * m @ to_mean[place]))
    for g in range(len(maps)):
        for h in range(g + 1, len(maps)):
            block = covariance[places[g][:, None], places[h]]
            if np.abs(block).max(initial=0.0) > 0:
                pair_doubt[g, h] = 2 * width**2 * maps[g] @ block @ maps[h].T
    each = [float(part @ level**2) for part, level in zip(share, offset, strict=True)]
    explained = _variance_of_all(sums, offset, weight)
    total = explained + width**2 * spread
    return LearnedEffects(
        offset=offset, doubt=doubt, pair_doubt=pair_doubt, base=width**2 * float(mean @ to_mean),
        described=[
            _described(one, g, models, sums, width, offset[g], covariance[places[g][:, None], places[g]], maps[g], each[g], total)
            for g, one in enumerate(attributes)
        ],
        explained=explained / total if total > 0 else 0.0, most=MOST_OFFSET * width,
    )  # fmt: skip


def _variance_of_all(sums: CovariateSums, offset: list[Floats], weight: Floats) -> float:
    """Variance of the offsets among the releases, of all attributes together."""
    total = weight @ sums.number
    found = sum(float((weight @ n) @ level**2) for n, level in zip(sums.numbers, offset, strict=True))
    for (g, h), pairs in sums.pairs.items():
        found += 2 * float(offset[g] @ np.tensordot(weight, pairs, axes=1) @ offset[h])
    return max(found / float(total), 0.0)


def _described(  # noqa: PLR0917 - what is known of one attribute
    one: Attribute,
    group: int,
    models: EffectModels,
    sums: CovariateSums,
    width: float,
    offset: Floats,
    covariance: Floats,
    columns: Floats,
    variance: float,
    total: float,
) -> dict[str, Any]:
    """Describe what was learned of one attribute, as plain data."""
    chosen = np.array([group in groups for groups in models.groups])
    number = sums.numbers[group].sum(axis=0)
    found: dict[str, Any] = {
        "name": one.name[:MOST_NAME],
        "kind": one.kind,
        "probability": float(models.probability[chosen].sum()),
        "explained": variance / total if total > 0 else 0.0,
    }
    stddev = width * np.sqrt(np.maximum(np.einsum("lc,cd,ld->l", columns, covariance, columns), 0.0))
    if isinstance(one, Category):
        order = np.argsort(-number, kind="stable")[:SHOWN_LEVELS]
        names = [*one.levels, "(other)", "(missing)"]
        share = number / max(int(number.sum()), 1)
        return found | {
            "size": float(np.sqrt(variance)),
            "standard_error": float(np.sqrt(share @ stddev**2)),
            "levels": [
                {"level": names[i][:MOST_NAME], "agents": int(number[i]), "effect": float(offset[i]),
                 "standard_error": float(stddev[i])}
                for i in order.tolist() if number[i]
            ],
        }  # fmt: skip
    slope = np.polyfit(columns[: _n_bins(one), 0], offset[: _n_bins(one)], 1)[0] if np.ptp(columns[:, 0]) > 0 else 0.0
    return found | {"size": float(slope), "standard_error": float(width * np.sqrt(max(covariance[0, 0], 0.0)))}


def _n_bins(one: Attribute) -> int:
    return one.size if isinstance(one, SampleCount) else one.size - 1
