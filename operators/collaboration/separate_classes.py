"""How well mixtures fit releases by the exact law of their noise, and the classes among them.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are
public.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meanstream.operators.collaboration.mixture_prior import Models, normalized_prior
from meanstream.operators.collaboration.normal_prior import ReleaseCells
from meanstream.operators.collaboration.prior_fit import NormalMixture
from meanstream.operators.collaboration.release_law import is_shaped, release_law
from meanstream.operators.records import Floats

COMPARED = 24
"""Mixtures that are weighed by the exact law: the likeliest by the normal one. The others have no weight."""
CARRIED = 0.02
"""A class that fewer of the agents carry shrinks no one."""
APART = 6.0
"""Components are classes if neighboring centers are so many spreads apart: nobody lies in between."""
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


def separate_classes(models: Models) -> tuple[Floats, Floats, Floats]:
    """Give weights, centers and variances of classes, of two or more, whose members are alike and nobody in between.

    Weights add up to the posterior probability that there are such classes, less what few agents
    carry.
    """
    probability = normalized_prior(models.log_weight)
    rows = [
        (share * weight, center, variance)
        for share, mixture in zip(probability.tolist(), models.mixtures, strict=True)
        if share > HOPELESS and _is_apart(mixture)
        for weight, center, variance in zip(
            mixture.weight.tolist(),
            mixture.center.tolist(),
            mixture.variance.tolist(),
            strict=True,
        )
        if weight >= CARRIED
    ]
    weight, center, variance = np.array(rows).reshape(-1, 3).T

    return weight, center, variance


def _is_apart(mixture: NormalMixture) -> bool:
    gaps = np.diff(np.sort(mixture.center))
    return bool(len(gaps) > 0 and (gaps >= APART * mixture.spread).all())
