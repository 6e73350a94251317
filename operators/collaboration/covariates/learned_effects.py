"""What releases say of the effects of public attributes.

Offsets of the agents, and how well these are known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from meanstream.operators.collaboration.prior.prior_by_count import TRIMMED
from meanstream.operators.records import AnyInts, Floats, Ints

LIKELY = 0.8
"""Probability from which on an attribute is said to have an effect. The prior alone gives about a
half: of 40 columns without an effect nine had .5 or more, and one had .8."""
MOST_OFFSET = 0.5
"""An offset moves a mean by at most this part of the width: residuals stay within bounds that are
twice as wide."""

_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedEffects:
    """Public: effects of attributes, averaged over models by the evidence of the releases.

    Attributes
    ----------
    attributes : tuple of attributes
        Those that are declared, and the number of samples.
    offset : list of float array, shape (n_codes,)
        By attribute: what a code adds, in the value's unit. Those of all attributes add up.
    doubt : list of float array, shape (n_codes,)
        By attribute: what a code adds to the variance of an agent's offset,
    pair_doubt : dict of (int, int) to float array, shape (n_columns, n_columns)
        and what a pair of columns adds to it.
    centers, scales : list
        By attribute: the code of a number that its column is counted from, and factors of the
        columns.
    base : float
        Variance of the offset of the average agent, which is taken out.
    described : list of dict
        What was learned of each attribute.
    explained : float
        Share of the spread of the means that attributes explain.
    most : float
        Greatest offset to either side.
    most_count : int
        Larger numbers of samples are taken for this one: strangers may claim any.
    """

    attributes: tuple[Attribute, ...]
    offset: list[Floats]
    doubt: list[Floats]
    pair_doubt: dict[_Pair, Floats]
    centers: list[int]
    scales: list[Floats]
    base: float
    described: list[dict[str, Any]]
    explained: float
    most: float
    most_count: int

    def offsets(self, codes: AnyInts, count: Ints) -> Floats:
        """Give what the attributes add to the mean of each agent.

        The same bits among whatever others.
        """
        # Beyond what can be believed no attribute moves a mean.
        offsets = _added(_codes(codes, np.minimum(count, self.most_count)), self.offset)
        return np.clip(offsets, -self.most, self.most)

    def doubts(self, codes: AnyInts, count: Ints) -> Floats:
        """Give the variance of each offset."""
        # The variance is a quadratic form of the columns; pairs of attributes have parts of their
        # own.
        parts = _codes(codes, np.minimum(count, self.most_count))
        columns = [
            code if isinstance(attribute, Category) else attribute.columns(code, center) * scale
            for attribute, code, center, scale in zip(
                self.attributes, parts, self.centers, self.scales, strict=True
            )
        ]
        variance = _added(parts, self.doubt) + self.base

        for (g, h), values in self.pair_doubt.items():
            variance += _of_pair(values, columns[g], columns[h])

        return np.maximum(variance, 0.0)


def _of_pair(values: Floats, one: AnyInts | Floats, other: AnyInts | Floats) -> Floats:
    """Evaluate a bilinear form, for columns of a number (two axes) or the only column of a level (one axis)."""
    if one.ndim == 1 and other.ndim == 1:
        # A level has one column: it picks a row.
        return np.asarray(values[one, other], np.float64)
    if one.ndim == 1:
        return _of_pair(values.T, other, one)

    form = np.zeros(len(one))
    for k, row in enumerate(values):
        if other.ndim == 1:
            form += one[:, k] * row[other]
            continue

        for j, value in enumerate(row.tolist()):
            form += one[:, k] * other[:, j] * value

    return form


def believed_count(count: Ints) -> int:
    """Give what all but an eighth of the numbers of samples are at most."""
    if not len(count):
        return 1
    rank = min(int((1 - TRIMMED) * len(count)), len(count) - 1)
    return int(np.partition(count, rank)[rank])


def _added(codes: list[AnyInts], values: list[Floats]) -> Floats:
    total = np.zeros(len(codes[0]))
    for code, value in zip(codes, values, strict=True):
        total += value[code]

    return total


def learn_effects(
    design: CovariateDesign,
    codes: AnyInts,
    *,
    count: Ints,
    mean: Floats,
    variance: Floats,
    lower: float,
    upper: float,
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
    attributes: tuple[Attribute, ...] = (*design.attributes, SampleCount())

    # Everything in widths of the bounds, from the lower one.
    width = upper - lower
    most_count = believed_count(count)
    sums = CovariateSums.of(
        attributes,
        _codes(codes, np.minimum(count, most_count)),
        (mean - lower) / width,
        variance / width**2,
    )

    # Without releases no attribute says anything.
    if int(sums.number.sum()) == 0:
        return LearnedEffects(
            attributes=attributes,
            offset=[np.zeros(attribute.size) for attribute in attributes],
            doubt=[np.zeros(attribute.size) for attribute in attributes],
            pair_doubt={},
            centers=sums.centers,
            scales=[np.ones(attribute.n_columns) for attribute in attributes],
            base=0.0,
            described=[],
            explained=0.0,
            most=MOST_OFFSET * width,
            most_count=most_count,
        )

    # Around the middle, so that squares lose no digits.
    of_class = sums.variances()
    number = sums.number.astype(np.float64)
    weight = 1 / (of_class + 1e-3)
    middle = float((weight * sums.total).sum() / (weight * number).sum()) * 2.0**-20
    total, squares, by_column = sums.moments(middle)
    normals = Normals.of(attributes, sums, by_column, total)

    # All models together: which attributes, how large effects, how large a spread.
    models = weigh_effect_models(normals, of_class, squares, number)
    effects, covariance = averaged_effects(normals, of_class, models)

    return _learned(attributes, sums, normals, models, effects, covariance, width, most_count)


def _codes(codes: AnyInts, count: Ints) -> list[AnyInts]:
    return [*(np.ascontiguousarray(code) for code in codes.T), SampleCount.codes(count)]


def _learned(  # noqa: PLR0917 - what the regression has found
    attributes: tuple[Attribute, ...],
    sums: CovariateSums,
    normals: Normals,
    models: EffectModels,
    effects: Floats,
    covariance: Floats,
    width: float,
    most_count: int,
) -> LearnedEffects:
    """Bring effects of columns to codes; take out what the average agent has."""
    # An effect is the difference from the average agent, whose columns these are.
    places = [normals.places(g) for g in range(len(attributes))]
    weight = 1 / (sums.variances() + float(models.probability @ models.spread_variance))
    scales = sums.scales()
    mean = np.zeros(normals.n_columns)

    for number, scale, columns_of in zip(sums.numbers, scales, places, strict=True):
        mean[columns_of] = (weight @ number) / (weight @ sums.number) * scale

    to_mean = covariance @ mean
    offset = []
    doubt = []
    pair_doubt = {}

    # By attribute: what each code adds, and how certain that is.
    for g, (attribute, columns_of) in enumerate(zip(attributes, places, strict=True)):
        own = effects[columns_of]
        middle = mean[columns_of] @ effects[columns_of]
        within = covariance[columns_of[:, None], columns_of]
        if isinstance(attribute, Category):
            offset.append(width * (own - middle))
            doubt.append(width**2 * (np.diagonal(within) - 2 * to_mean[columns_of]))
        else:
            columns = attribute.columns(np.arange(attribute.size), sums.centers[g]) * scales[g]
            offset.append(width * (columns @ own - middle))
            doubt.append(
                width**2
                * (((columns @ within) * columns).sum(axis=1) - 2 * columns @ to_mean[columns_of])
            )

        # What two attributes have in common in their errors.
        for h in range(g + 1, len(attributes)):
            block = covariance[columns_of[:, None], places[h]]
            if np.abs(block).max(initial=0.0) > 0:
                pair_doubt[g, h] = 2 * width**2 * block

    described, explained = describe_effects(
        attributes, sums, models, effects, covariance, places, width
    )
    return LearnedEffects(
        attributes=attributes, offset=offset, doubt=doubt, pair_doubt=pair_doubt, centers=sums.centers, scales=scales,
        base=width**2 * float(mean @ to_mean), described=described, explained=explained, most=MOST_OFFSET * width,
        most_count=most_count,
    )  # fmt: skip


SHOWN_LEVELS = 12
"""Levels of a category whose effects are described: those of most agents."""


def describe_effects(  # noqa: PLR0917 - what the regression has found
    attributes: Sequence[Attribute],
    sums: CovariateSums,
    models: EffectModels,
    effects: Floats,
    covariance: Floats,
    places: list[Ints],
    width: float,
) -> tuple[list[dict[str, Any]], float]:
    """Describe each attribute; give the share of the spread of the means that all explain together.

    The size of an effect is the standard deviation of what an attribute adds to the means: of a
    number with its sign, so that it is the slope per standard deviation. Shares are of agents, each
    counted once.
    """
    # What is left of the spread once the attributes have explained theirs.
    left = width**2 * float(models.probability @ models.spread_variance)
    total = max(int(sums.number.sum()), 1)
    number = [n.sum(axis=0) for n in sums.numbers]

    adds = [
        width * scale * effects[place] for scale, place in zip(sums.scales(), places, strict=True)
    ]
    middle = [float(n @ effect) / total for n, effect in zip(number, adds, strict=True)]
    own_variance = [
        max(float(q.sum(axis=0) @ effect**2) / total - m**2, 0.0)
        for q, effect, m in zip(sums.own_squares, adds, middle, strict=True)
    ]
    explained = sum(own_variance)

    # Attributes that go together explain some of the spread together.
    for (g, h), pairs in sums.pairs.items():
        explained += 2 * (
            float(adds[g] @ pairs.sum(axis=0) @ adds[h]) / total - middle[g] * middle[h]
        )

    explained = max(explained, 0.0)
    whole = explained + left
    described = []
    for g, (attribute, place) in enumerate(zip(attributes, places, strict=True)):
        chosen = np.array([g in groups for groups in models.groups])
        of_one = {
            "name": attribute.name[:MOST_NAME],
            "kind": attribute.kind,
            "probability": min(float(models.probability[chosen].sum()), 1.0),
            "explained": own_variance[g] / whole if whole > 0 else 0.0,
        }
        effect = covariance[place[:, None], place]

        # The error of a difference from the average agent.
        if isinstance(attribute, Category):  # an effect is the difference from the average agent
            common = effect @ (number[g] / total)
            variance = np.maximum(
                np.diagonal(effect) - 2 * common + number[g] @ common / total, 0.0
            )
            stddev = width * np.sqrt(variance)
            of_one |= {
                "size": math.sqrt(own_variance[g]),
                "standard_error": float(np.sqrt(number[g] @ stddev**2 / total)),
                "levels": list(_levels(attribute, number[g], adds[g] - middle[g], stddev)),
            }
        else:
            of_one |= {
                "size": float(width * effects[place[0]]),
                "standard_error": width * math.sqrt(max(float(effect[0, 0]), 0.0)),
            }

        described.append(of_one)

    return described, explained / whole if whole > 0 else 0.0


def _levels(
    one: Category, number: Ints, effect: Floats, stddev: Floats
) -> Iterator[dict[str, Any]]:
    names = [*one.levels, "(other)", "(missing)"]
    for i in np.argsort(-number, kind="stable")[:SHOWN_LEVELS].tolist():
        if number[i]:
            yield {
                "level": names[i][:MOST_NAME],
                "agents": int(number[i]),
                "effect": float(effect[i]),
                "standard_error": float(stddev[i]),
            }
