"""Regressions of releases on public attributes, weighed against each other by the evidence of the releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meanstream.operators.collaboration.covariates.covariate_design import Attribute
from meanstream.operators.collaboration.covariates.covariate_sums import CovariateSums
from meanstream.operators.records import Floats, Ints

NONE = 0.3
ALL = 0.4
"""Prior probabilities that no attribute has an effect, and all have; the rest: each alone, and all
but each."""
EFFECTS: Floats = np.array([2e-5, 1e-4, 6e-4, 2.5e-3, 1e-2])
"""Variances of an effect that are tried, in squared widths of the bounds."""
SPREADS: Floats = np.geomspace(1e-7, 0.04, 11)
"""Variances of what attributes do not explain that are tried."""
NEGLIGIBLE = 1e-3
"""Models less likely than this, relative to the likeliest, have no part in the effects."""

Groups = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Normals:
    """Normal equations by class of noise.

    Those of the largest category are diagonal and stand apart.

    Attributes
    ----------
    inner : float array, shape (n_classes, n_inner, n_inner)
        Of the intercept, which is first, and of all columns but those of the largest category.
    across : float array, shape (n_classes, n_large, n_inner)
    large : float array, shape (n_classes, n_large)
    inner_total, large_total : float array
        Sums of releases by column, about their middle.
    columns : list of int array
        Columns of each attribute; those of the largest category in `large`.
    largest : int
        Which attribute that is.
    """

    inner: Floats
    across: Floats
    large: Floats
    inner_total: Floats
    large_total: Floats
    columns: list[Ints]
    largest: int

    @classmethod
    def of(
        cls,
        attributes: Sequence[Attribute],
        sums: CovariateSums,
        by_column: list[Floats],
        total: Floats,
    ) -> Normals:
        """Bring sums over columns to their scales."""
        # The attribute with most levels stays apart: its block is diagonal, and cheap to invert.
        scales = sums.scales()
        sizes = [
            attribute.n_columns if attribute.kind == "category" else 0 for attribute in attributes
        ]
        largest = int(np.argmax(sizes))
        columns = []
        n_inner = 1

        # Columns of all others stand after the intercept.
        for g, attribute in enumerate(attributes):
            columns.append(np.arange(attribute.n_columns) + (0 if g == largest else n_inner))
            n_inner += 0 if g == largest else attribute.n_columns

        # Sums by class of precision: products of columns, and of columns with the means.
        n_classes = len(sums.number)
        inner = np.zeros((n_classes, n_inner, n_inner))
        across = np.zeros((n_classes, attributes[largest].n_columns, n_inner))
        inner_total = np.zeros((n_classes, n_inner))
        inner[:, 0, 0] = sums.number
        inner_total[:, 0] = total

        for g, (scale, place) in enumerate(zip(scales, columns, strict=True)):
            number = sums.numbers[g] * scale
            if g == largest:
                across[:, :, 0] = number
                continue

            inner[:, 0, place] = inner[:, place, 0] = number
            inner[:, place, place] = sums.own_squares[g] * scale**2
            inner_total[:, place] = by_column[g] * scale

        # Products of two attributes fill the blocks between them.
        for (g, h), pairs in sums.pairs.items():
            cross = pairs * scales[g][:, None] * scales[h]
            if g == largest:
                across[:, :, columns[h]] = cross
            elif h == largest:
                across[:, :, columns[g]] = cross.transpose(0, 2, 1)
            else:
                inner[:, columns[g][:, None], columns[h]] = cross
                inner[:, columns[h][:, None], columns[g]] = cross.transpose(0, 2, 1)

        return cls(
            inner=inner, across=across, large=sums.own_squares[largest] * scales[largest] ** 2, inner_total=inner_total,
            large_total=by_column[largest] * scales[largest], columns=columns, largest=largest,
        )  # fmt: skip

    @property
    def n_columns(self) -> int:
        """Without the intercept."""
        return int(self.inner.shape[1]) - 1 + int(self.large.shape[1])

    def places(self, group: int) -> Ints:
        """Where the columns of an attribute are among those of all: the inner ones first."""
        inner = self.inner.shape[1] - 1
        return self.columns[group] + (inner if group == self.largest else -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectModels:
    """Public: regressions with their posterior probabilities.

    Attributes
    ----------
    groups : list of tuple of int
        Attributes that have effects, of each model.
    effect_variance, spread_variance : float array, shape (n_models,)
        Variances of an effect, and of what is not explained, in squared widths.
    probability : float array, shape (n_models,)
    """

    groups: list[Groups]
    effect_variance: Floats
    spread_variance: Floats
    probability: Floats


def weigh_effect_models(
    normals: Normals, variance: Floats, total_squares: Floats, number: Floats
) -> EffectModels:
    """Give every model its posterior probability.

    Parameters
    ----------
    normals : Normals
    variance : float array, shape (n_classes,)
        Of a release.
    total_squares, number : array, shape (n_classes,)
        Sum of squares of releases about their middle, and their number.
    """
    # Weights of the classes for every spread that is tried.
    before = _prior(len(normals.columns))
    weight = 1 / (variance[:, None] + SPREADS)  # (n_classes, n_spreads)
    common = -0.5 * (number @ -np.log(weight) + total_squares @ weight)
    weighed = _Weighed.of(normals, weight.T)
    groups = []
    log_weight = []
    effect = []
    spread = []

    # Without an attribute there is no size of effects to try.
    for chosen, share in before.items():
        effects = EFFECTS if chosen else EFFECTS[:1]
        evidence = common[:, None] + weighed.log_evidence(chosen, effects)
        groups += [chosen] * evidence.size
        log_weight.append((evidence + np.log(share / (len(effects) * len(SPREADS)))).ravel())
        effect.append(np.broadcast_to(effects if chosen else [0.0], evidence.shape).ravel())
        spread.append(np.broadcast_to(SPREADS[:, None], evidence.shape).ravel())

    # Probabilities over all models: groups, sizes of effects, spreads.
    joined = np.concatenate(log_weight)
    probability = np.exp(joined - joined.max())
    return EffectModels(
        groups=groups, effect_variance=np.concatenate(effect), spread_variance=np.concatenate(spread),
        probability=probability / probability.sum(),
    )  # fmt: skip


def averaged_effects(
    normals: Normals, variance: Floats, models: EffectModels
) -> tuple[Floats, Floats]:
    """Give the mean of the effects over all models, and their covariance.

    Within models and between them.
    """
    n_columns = normals.n_columns
    likely = np.flatnonzero(models.probability > NEGLIGIBLE * models.probability.max())
    share = models.probability[likely] / models.probability[likely].sum()
    effects = np.zeros((len(likely), n_columns))
    within = np.zeros((n_columns, n_columns))

    for row, (model, p) in enumerate(zip(likely.tolist(), share.tolist(), strict=True)):
        chosen = models.groups[model]
        if not chosen:
            continue
        weighed = _Weighed.of(normals, 1 / (variance + models.spread_variance[model])[None])
        places, mean, covariance = weighed.solution(chosen, float(models.effect_variance[model]))
        effects[row, places] = mean
        within[places[:, None], places] += p * covariance

    mean = share @ effects
    away = effects - mean
    return mean, within + (away.T * share) @ away


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighed:
    """Normal equations under some weights of the classes, one set for each spread."""

    normals: Normals
    inner: Floats
    across: Floats
    large: Floats
    inner_total: Floats
    large_total: Floats

    @classmethod
    def of(cls, normals: Normals, weight: Floats) -> _Weighed:
        def weighed(classes: Floats) -> Floats:
            flat = classes.reshape(len(classes), -1)
            return (weight @ flat).reshape(len(weight), *classes.shape[1:])

        return cls(
            normals=normals, inner=weighed(normals.inner), across=weighed(normals.across),
            large=weighed(normals.large), inner_total=weighed(normals.inner_total),
            large_total=weighed(normals.large_total),
        )  # fmt: skip

    def log_evidence(self, chosen: Groups, effects: Floats) -> Floats:
        """Give the logarithm of the evidence without what all models share, shape (n_spreads, n_effects)."""
        columns = self._inner_columns(chosen)
        inner = self.inner[:, columns[:, None], columns]
        total = self.inner_total[:, columns]
        large = self._large_columns(chosen)
        across = self.across[:, large][:, :, columns]
        large_total = self.large_total[:, large]
        evidence = np.empty((len(inner), len(effects)))

        for k, effect in enumerate(effects.tolist()):
            # The block of the largest attribute is diagonal: it is taken out first.
            diagonal = self.large[:, large] + 1 / effect
            scaled = across / diagonal[:, :, None]
            system = inner.copy()
            system[:, range(1, len(columns)), range(1, len(columns))] += 1 / effect
            system -= np.matmul(across.transpose(0, 2, 1), scaled)
            right = total - np.einsum("tlr,tl->tr", scaled, large_total)

            root = np.linalg.cholesky(system)
            half = np.linalg.solve(root, right[:, :, None])[:, :, 0]
            of_root = 2 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
            log_determinant = np.log(diagonal).sum(axis=1) + of_root
            quadratic = (large_total**2 / diagonal).sum(axis=1) + (half**2).sum(axis=1)
            penalty = len(columns) - 1.0 + diagonal.shape[1]
            evidence[:, k] = 0.5 * (quadratic - log_determinant - penalty * np.log(effect))

        return evidence

    def solution(self, chosen: Groups, effect: float) -> tuple[Ints, Floats, Floats]:
        """Give columns, their effects and the covariance of these, under the first weights."""
        columns = self._inner_columns(chosen)
        large = self._large_columns(chosen)
        system = self.inner[0][columns[:, None], columns]
        system[range(1, len(columns)), range(1, len(columns))] += 1 / effect

        across = self.across[0][large][:, columns]
        diagonal = self.large[0][large] + 1 / effect
        scaled = across / diagonal[:, None]
        inverse = np.linalg.inv(system - across.T @ scaled)
        mean = inverse @ (self.inner_total[0, columns] - scaled.T @ self.large_total[0][large])
        of_large = (self.large_total[0][large] - across @ mean) / diagonal

        mixed = -scaled @ inverse
        corner = np.diag(1 / diagonal) - mixed @ scaled.T
        covariance = np.block([[inverse[1:, 1:], mixed[:, 1:].T], [mixed[:, 1:], corner]])
        places = np.concatenate([columns[1:] - 1, self.normals.places(self.normals.largest)[large]])

        return places, np.concatenate([mean[1:], of_large]), covariance

    def _large_columns(self, chosen: Groups) -> slice:
        """Columns of the largest attribute: all of them, or none where it is not chosen."""
        return slice(None) if self.normals.largest in chosen else slice(0)

    def _inner_columns(self, chosen: Groups) -> Ints:
        parts = [self.normals.columns[g] for g in chosen if g != self.normals.largest]
        return np.concatenate([np.zeros(1, np.int64), *parts])


def _prior(n_groups: int) -> dict[Groups, float]:
    """Give the prior probability of each set of attributes.

    Examples
    --------
    >>> {groups: round(share, 3) for groups, share in _prior(2).items()}
    {(): 0.3, (0, 1): 0.4, (0,): 0.15, (1,): 0.15}
    """
    everything = tuple(range(n_groups))
    sets = dict.fromkeys(
        [(g,) for g in everything] + [tuple(h for h in everything if h != g) for g in everything]
    )
    partial = [groups for groups in sets if groups not in ((), everything)]
    total = 1.0 if partial else NONE + ALL
    prior = {(): NONE / total, everything: ALL / total}

    return prior | {groups: (1 - NONE - ALL) / len(partial) for groups in partial}
