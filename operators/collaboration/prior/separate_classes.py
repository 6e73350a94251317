"""How well mixtures fit releases by the exact law of their noise, and the classes among them.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are
public.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from meanstream.operators.collaboration.prior.mixture_prior import Models, normalized_prior
from meanstream.operators.collaboration.prior.normal_prior import ReleaseCells
from meanstream.operators.collaboration.prior.prior_fit import NormalMixture
from meanstream.operators.collaboration.release_law import is_shaped, release_law
from meanstream.operators.records import Floats

COMPARED = 24
"""Mixtures that are weighed by the exact law: the likeliest by the normal one. The others have no
weight."""
CARRIED = 0.02
"""A class that fewer of the agents carry shrinks no one."""
APART = 10.0
"""Components are classes if neighboring centers are so many spreads apart: nobody lies in between.
With 6, clusters of those with many samples drew those with few, whose noise hides that they are in
none."""
HOPELESS = 1e-6


def weighed_exactly(models: Models, cells: ReleaseCells, sample_variance: float) -> Models:
    """Weigh mixtures anew by the exact law of the releases.

    Mixtures are fitted as if noise were normal. The long tails of few Laplace draws look like
    components of their own then: the exact law says that they are none.
    """
    if not is_shaped(cells.noise_variance, cells.terms).any():
        return models
    sizes = np.array([mixture.size for mixture in models.mixtures])
    compared = np.zeros(len(sizes), np.bool_)

    for alike in (np.flatnonzero(sizes == 1), np.flatnonzero(sizes > 1)):
        likeliest = np.argsort(-models.log_weight[alike], kind="stable")[:COMPARED]
        compared[alike[likeliest]] = True

    gain = np.full(len(sizes), -np.inf)
    for place in np.flatnonzero(compared).tolist():
        mixture = models.mixtures[place]
        exact = _log_likelihood(mixture, cells, sample_variance)
        gain[place] = exact - mixture.log_likelihood

    return replace(
        models, log_weight=models.log_weight + gain, log_cautious=models.log_cautious + gain
    )


def _log_likelihood(mixture: NormalMixture, cells: ReleaseCells, sample_variance: float) -> float:
    variance = mixture.spread**2 + sample_variance / cells.count + cells.rounding
    total = np.full(len(cells.mean), -np.inf)
    for share, center in zip(mixture.weight.tolist(), mixture.center.tolist(), strict=True):
        law = release_law(cells.mean - center, variance, cells.noise_variance, cells.terms)
        total = np.logaddexp(total, np.log(share) + law.log_density)

    return float((cells.weight * total).sum())


class Classes(NamedTuple):
    """Public: classes of like means, one entry each.

    Weight, center, variance of the means about it, and the same where it is not believed that means
    are exactly equal.
    """

    weight: Floats
    center: Floats
    variance: Floats
    cautious_variance: Floats


def separate_classes(models: Models) -> Classes:
    """Find classes whose members are alike, with nobody in between.

    Weights add up to the posterior probability that there are such classes, less what few agents
    carry. Releases cannot exclude a spread that is small against their noise, so that an interval
    must not, either: it has that of the models in which means are not exactly equal.
    """
    apart = np.array([_is_apart(mixture) for mixture in models.mixtures])
    probability = normalized_prior(models.log_weight) * apart
    spread = np.array([mixture.spread for mixture in models.mixtures])
    typical = _squared_spread(models.log_cautious[apart], spread[apart])

    rows = [
        (share * weight, center, variance, variance + max(typical - mixture.spread**2, 0.0))
        for share, mixture in zip(probability.tolist(), models.mixtures, strict=True)
        if share > HOPELESS
        for weight, center, variance in zip(
            mixture.weight.tolist(),
            mixture.center.tolist(),
            mixture.variance.tolist(),
            strict=True,
        )
        if weight >= CARRIED
    ]

    return Classes(*np.array(rows).reshape(-1, 4).T)


def _squared_spread(log_weight: Floats, spread: Floats) -> float:
    """Average over models; 0 where none has any weight."""
    if not np.isfinite(log_weight).any():
        return 0.0
    return float(normalized_prior(log_weight) @ spread**2)


def _is_apart(mixture: NormalMixture) -> bool:
    gaps = np.diff(np.sort(mixture.center))
    return bool(len(gaps) > 0 and (gaps >= APART * mixture.spread).all())
