"""What releases say of the effects of public attributes: offsets of the agents, and how well these are known."""

from __future__ import annotations

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
from meanstream.operators.collaboration.prior_by_count import TRIMMED
from meanstream.operators.records import AnyInts, Floats, Ints

MOST_OFFSET = 0.5
"""An offset moves a mean by at most this part of the width: residuals stay within bounds that are twice as wide."""

_Pair = tuple[int, int]
_PLAIN = ("base", "described", "explained", "most", "most_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedEffects:
    """Public: effects of attributes, averaged over models by the evidence of the releases.

    Attributes
    ----------
    attributes : tuple of attributes
        Those that are declared, and the number of samples.
    offset : list of float array, shape (n_codes,)
        By attribute: what a code adds, in the value's unit. Those of all attributes add up.
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
    most_count : int
        Larger numbers of samples are taken for this one: strangers may claim any.
    """

    attributes: tuple[Attribute, ...]
    offset: list[Floats]
    doubt: list[Floats]
    pair_doubt: dict[_Pair, Floats]
    base: float
    described: list[dict[str, Any]]
    explained: float
    most: float
    most_count: int

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """Plain data, and arrays by name."""
        plain = {
            "attributes": CovariateDesign(self.attributes[:-1]).snapshot(),  # type: ignore[arg-type]  # the last is known
            "pairs": list(self.pair_doubt),
            **{name: getattr(self, name) for name in _PLAIN},
        }
        arrays = {f"{name} {g}": one for name in ("offset", "doubt") for g, one in enumerate(getattr(self, name))}
        return plain, arrays | {f"pair {g} {h}": values.ravel() for (g, h), values in self.pair_doubt.items()}

    @classmethod
    def restore(cls, plain: dict[str, Any], arrays: dict[str, Floats]) -> LearnedEffects:
        """Make the same of its snapshot."""
        attributes: tuple[Attribute, ...] = (*CovariateDesign.restore(plain["attributes"]).attributes, SampleCount())
        parts: dict[str, Any] = {
            name: [arrays[f"{name} {g}"] for g in range(len(attributes))] for name in ("offset", "doubt")
        }
        pairs = {(g, h): arrays[f"pair {g} {h}"].reshape(attributes[g].coarse, -1) for g, h in plain["pairs"]}
        return cls(attributes=attributes, pair_doubt=pairs, **parts, **{name: plain[name] for name in _PLAIN})

    def offsets(self, codes: AnyInts, count: Ints) -> Floats:
        """Give what the attributes add to the mean of each agent: the same bits among whatever others."""
        found = _added(_codes(codes, np.minimum(count, self.most_count)), self.offset)
        return np.asarray(np.clip(found, -self.most, self.most), np.float64)

    def doubts(self, codes: AnyInts, count: Ints) -> Floats:
        """Give the variance of each offset."""
        parts = _codes(codes, np.minimum(count, self.most_count))
        level = [one.level(code) for one, code in zip(self.attributes, parts, strict=True)]
        found = _added(level, self.doubt) + self.base
        for (g, h), values in self.pair_doubt.items():
            found += values[level[g], level[h]]
        return np.maximum(found, 0.0)


def believed_count(count: Ints) -> int:
    """Give what all but an eighth of the numbers of samples are at most."""
    if not len(count):
        return 1
    place = min(int((1 - TRIMMED) * len(count)), len(count) - 1)
    return int(np.partition(count, place)[place])


def _added(codes: list[AnyInts], values: list[Floats]) -> Floats:
    found = np.zeros(len(codes[0]))
    for code, value in zip(codes, values, strict=True):
        found += value[code]
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
    attributes: tuple[Attribute, ...] = (*design.attributes, SampleCount())
    width, most_count = upper - lower, believed_count(count)
    sums = CovariateSums.of(
        attributes, _codes(codes, np.minimum(count, most_count)), (mean - lower) / width, variance / width**2
    )
    if int(sums.number.sum()) == 0:
        return LearnedEffects(
            attributes=attributes,
            offset=[np.zeros(one.size) for one in attributes],
            doubt=[np.zeros(one.coarse) for one in attributes],
            pair_doubt={},
            base=0.0,
            described=[],
            explained=0.0,
            most=MOST_OFFSET * width,
            most_count=most_count,
        )
    of_class, number = sums.variances(), sums.number.astype(np.float64)
    weight = 1 / (of_class + 1e-3)
    middle = float((weight * sums.total).sum() / (weight * number).sum()) * 2.0**-20
    total, squares, by_level = sums.moments(middle)
    normals = Normals.of(attributes, sums, by_level, total)
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
    """Bring effects of columns to levels; take out what the average agent has."""
    number = [n.sum(axis=0).astype(np.float64) for n in sums.numbers]
    maps, fine = zip(*(one.columns(n) for one, n in zip(attributes, number, strict=True)), strict=True)
    places = [normals.places(g) for g in range(len(attributes))]
    weight = 1 / (sums.variances() + float(models.probability @ models.spread_variance))
    share = [(weight @ n) / (weight @ sums.number) for n in sums.numbers]  # of the levels, among all
    mean = np.zeros(normals.n_columns)
    for m, place, part in zip(maps, places, share, strict=True):
        mean[place] = part @ m
    to_mean = covariance @ mean
    doubt, pair_doubt = [], {}
    for g, (m, place) in enumerate(zip(maps, places, strict=True)):
        own = np.einsum("lc,cd,ld->l", m, covariance[place[:, None], place], m)
        doubt.append(width**2 * (own - 2 * m @ to_mean[place]))
        for h in range(g + 1, len(maps)):
            block = covariance[place[:, None], places[h]]
            if np.abs(block).max(initial=0.0) > 0:
                pair_doubt[g, h] = 2 * width**2 * m @ block @ maps[h].T
    level = [width * (m - part @ m) @ effects[at] for m, part, at in zip(maps, share, places, strict=True)]
    code = [width * (f - p @ m) @ effects[at] for f, m, p, at in zip(fine, maps, share, places, strict=True)]
    described, explained = describe_effects(attributes, sums, models, level, effects, covariance, places, width)
    return LearnedEffects(
        attributes=attributes, offset=code, doubt=doubt, pair_doubt=pair_doubt,
        base=width**2 * float(mean @ to_mean), described=described, explained=explained, most=MOST_OFFSET * width,
        most_count=most_count,
    )  # fmt: skip


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
