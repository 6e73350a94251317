"""How likely a learned prior makes an agent's own mean."""

from __future__ import annotations

import numpy as np

from meanstream.operators.collaboration.mixture_posterior import bounded_means, mixture_distances
from meanstream.operators.collaboration.prior_by_count_fitted import FittedByCount
from meanstream.operators.collaboration.prior_families import prior_family_class
from meanstream.operators.collaboration.prior_fitted import FittedPrior
from meanstream.operators.records import Floats, Ints

_ELEMENTS = 1 << 16


def log_predictive_density(fitted: FittedByCount | FittedPrior, mean: Floats, variance: Floats, count: Ints) -> Floats:
    """Give the logarithm of the density of each agent's own mean, relative to the bounds' width, given its count.

    Parameters
    ----------
    fitted : FittedByCount or FittedPrior
    mean, variance : float array, shape (n,)
        Own means, and their variances.
    count : int array, shape (n,)
    """
    if isinstance(fitted, FittedPrior):
        start, of, plain = np.array([0, len(fitted.weight)]), np.zeros(len(mean), np.int16), fitted
    else:
        start, plain = fitted.start, fitted.plain
        of = np.minimum(prior_family_class(count), len(start) - 2).astype(np.int16)
    mean, variance = bounded_means(mean, variance, lower=plain.lower, upper=plain.upper)
    order = np.argsort(of, kind="stable")
    ends = np.cumsum(np.bincount(of, minlength=len(start) - 1))
    found = np.empty(len(mean))
    for c in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
        who, part = order[0 if c == 0 else ends[c - 1] : ends[c]], slice(start[c], start[c + 1])
        components = fitted.weight[part], fitted.center[part], fitted.variance[part]
        block = max(2, _ELEMENTS // len(components[0]))
        for at in range(0, len(who), block):
            some = who[at : at + block]
            found[some] = _log_density(components, mean[some], variance[some], plain.upper - plain.lower)
    return found


def _log_density(components: tuple[Floats, Floats, Floats], mean: Floats, variance: Floats, width: float) -> Floats:
    weight, center, around = components
    n = len(mean)
    if n == 1:  # sums over components run along columns: the same order for any number of agents
        mean, variance = np.repeat(mean, 2), np.repeat(variance, 2)
    away = mixture_distances(mean, center, width)
    total = (variance / width**2).astype(np.float32) + (around / width**2).astype(np.float32)[:, None]
    log_density = away * away
    log_density /= total
    log_density += np.log(total, out=total)
    log_density *= np.float32(-0.5)
    log_density += np.log(np.maximum(weight / weight.sum(), 1e-30)).astype(np.float32)[:, None]
    top = log_density.max(axis=0)
    log_density -= top
    found = top + np.log(np.exp(log_density, out=log_density).sum(axis=0))
    return np.asarray(found[:n], np.float64)
