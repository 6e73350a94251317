"""A Dirichlet prior of agents' shares by bins, learned from everyone's noised histograms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from meanstream.operators.records import Floats, Ints

SPARSE = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
TYPICAL = np.geomspace(1e-3, 0.5, 8)
"""Of the mean's shares: which part is 0, and what the others are like."""
_HALF_LOG = 0.5 * np.log(2 * np.pi)


def simplex_projection(shares: Floats) -> Floats:
    """Give the nearest shares that are positive, if barely, and add up to 1.

    Examples
    --------
    >>> simplex_projection(np.array([0.6, 0.5, -0.1])).round(3).tolist()
    [0.55, 0.45, 0.0]
    """
    falling = np.sort(shares)[::-1]
    over = (np.cumsum(falling) - 1) / np.arange(1, len(shares) + 1)
    last = np.flatnonzero(falling > over)[-1]
    projected = np.maximum(shares - over[last], 1e-4 / len(shares))

    return np.asarray(projected / projected.sum())


def positive_shares(mean: Floats, stddev: Floats) -> Floats:
    """Give the posterior means, adding up to 1, of shares that were estimated with normal errors.

    A share is 0, or of an exponential law; how often and of which is integrated over, given all the
    estimates.

    Examples
    --------
    >>> positive_shares(np.array([0.62, 0.41, -0.02, 0.01, -0.02]), np.full(5, 0.02)).round(2).tolist()
    [0.6, 0.4, 0.0, 0.0, 0.0]
    """
    stddev = np.maximum(stddev, 1e-7)
    flat = -0.5 * (mean / stddev) ** 2 - np.log(stddev)
    log = []
    means = []

    for none in SPARSE:
        for typical in TYPICAL:
            at = mean / stddev - stddev / typical
            positive = (
                flat
                + 0.5 * at * at
                + log_ndtr(at)
                + np.log(stddev * (1 - none) / typical)
                + _HALF_LOG
            )
            both = np.logaddexp(flat + np.log(none), positive)

            hazard = np.exp(-0.5 * at * at - _HALF_LOG - log_ndtr(at))
            log.append(float(both.sum()))
            means.append(np.exp(positive - both) * stddev * (at + hazard))

    chances = np.exp(np.array(log) - max(log))
    chances /= chances.sum()
    posterior_mean = np.tensordot(chances, np.array(means), 1)
    posterior_mean = np.maximum(posterior_mean, 1e-5)

    return np.asarray(posterior_mean / posterior_mean.sum())


CONCENTRATIONS = np.geomspace(0.5, 5000.0, 33)
"""The mean is worth that many samples: flat on this grid before anything is released."""
COUNTS = (10, 30, 100, 300, 1000)
"""Where strata of the number of samples begin: who has few may be another kind than who has
many."""
BETWEEN = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 17)])
"""How far strata are apart, as a part of what one sample varies by: 0 or flat on this grid."""
ALONE = 1.0
"""Samples that a prior without any release is worth."""
LEAST_AGENTS = 3
TURNS = 5
MOST_LOOKED_AT = 20_000
"""Agents that are looked at, of however many."""
LEAST_WEIGHT = 1e-3
SUMS = 3.0
"""So many independent ones the shares below all edges are worth."""
MEAN_WIDER = 2.0
"""Of the variance of a sum of estimated shares: posterior means of shares that are positive add up
to more than they should (`benchmarks/speed/speed_of_quantiles.py`)."""
_NOTHING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisedShares:
    """Public: histograms with their noise.

    Attributes
    ----------
    counts : float array (n, bins)
        Noised counts.
    samples : int array (n,)
        How many samples they are of.
    variance : float array (n,)
        Variance of the noise in each count.
    """

    counts: Floats
    samples: Ints
    variance: Floats

    @classmethod
    def of(cls, counts: Ints, samples: Ints, number: Ints, noise_variance: float) -> NoisedShares:
        """Take histograms as they are released.

        The sums of that many noised counts, each rounded.
        """
        variance = number.astype(np.float64) * (noise_variance + 1 / 12)
        return cls(counts=counts.astype(np.float64), samples=samples, variance=variance)

    def take(self, which: Ints | slice) -> NoisedShares:
        """Select agents."""
        return NoisedShares(
            counts=self.counts[which], samples=self.samples[which], variance=self.variance[which]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesPrior:
    """Public: what the shares of an agent are like of whom nothing but the number of its samples is known.

    Attributes
    ----------
    mean : float array (strata, bins)
        Mean shares of the agents in each stratum of the number of samples; positive, adding up to
        1.
    below : float array (strata, bins - 1)
        Variance of the share below each inner edge, as wide as intervals need.
    concentration, weight : float array (k,)
        How alike agents are, in samples that the mean is worth, and the probability of each.
    agents : int
        How many it was learned from.
    """

    mean: Floats
    below: Floats
    concentration: Floats
    weight: Floats
    agents: int

    @classmethod
    def alone(cls, widths: Floats) -> SharesPrior:
        """Give the prior of an agent without others: all of the bounds alike, worth one sample."""
        mean = widths / widths.sum() + 1e-3
        mean = np.tile(mean / mean.sum(), (len(COUNTS) + 1, 1))
        return cls(
            mean=mean,
            below=np.zeros((len(mean), len(widths) - 1)),
            concentration=np.array([ALONE]),
            weight=np.ones(1),
            agents=0,
        )

    def worth(self, stratum: int) -> Floats:
        """Tell what the mean is worth in samples, for each concentration.

        No more than it is known by itself.

        What is requested of shares are sums of them, so these are what it has to know.
        """
        under = np.cumsum(self.mean[stratum])[:-1]
        unknown = float(self.below[stratum].sum()) / max(
            float((under * (1 - under)).sum()), _NOTHING
        )

        return np.maximum(1.0 / (1.0 / (self.concentration + 1.0) + unknown) - 1.0, ALONE / 4)


def shares_stratum(samples: Ints) -> Ints:
    """Give the stratum of each number of samples.

    Examples
    --------
    >>> shares_stratum(np.array([1, 9, 10, 5000])).tolist()
    [0, 0, 1, 5]
    """
    return np.searchsorted(np.array(COUNTS), samples, side="right").astype(np.int64)


def sampled_histograms(key: Ints) -> Ints:
    """Choose of whose histograms a prior is learned, and in which order: the same on every host.

    Parameters
    ----------
    key : int array (n,)
        Hash of each agent's name; no two alike.

    Returns
    -------
    int array
        Places of the `MOST_LOOKED_AT` least hashes, the least first. Anyone who is among those of
        all agents is among those of every part of them that it is in.

    Examples
    --------
    >>> sampled_histograms(np.array([7, 2, 5])).tolist()
    [1, 2, 0]
    """
    return np.argsort(key, kind="stable")[:MOST_LOOKED_AT]


def fit_shares_prior(found: NoisedShares, widths: Floats) -> SharesPrior:
    """Learn means and concentration from what everyone has released.

    Parameters
    ----------
    found : NoisedShares
        The newest histogram of every agent.
    widths : float array (bins,)
        Width of each bin in the value's unit, for where no one has released.

    Notes
    -----
    A noised histogram of n samples is about normal: its mean is n m, its covariance
    `n (n + a) / (1 + a) (diag(m) - m m') + V I` for the concentration a. In the eigenvectors of the matrix in brackets
    all agents' covariances are diagonal: m is their generalized least squares there, brought to the simplex. Each a has
    its likelihood (`_concentration`). The direction in which all counts move alike is known, since the number of
    samples is public. A stratum's mean is moved from that of everyone as far as its own agents say, given how far
    strata are apart. At last the estimated shares, of which noise makes some negative, are replaced by their posterior
    means (`positive_shares`).

    **Privacy.** It reads public releases only.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> shares = rng.dirichlet(50 * np.array([0.1, 0.3, 0.6]), 2000)
    >>> counts = rng.multinomial(20, shares) + rng.normal(0, 3, shares.shape)
    >>> noised = NoisedShares(counts=counts, samples=np.full(2000, 20), variance=np.full(2000, 9.0))
    >>> prior = fit_shares_prior(noised, np.ones(3))
    >>> prior.mean[1].round(2).tolist(), 25 < float(prior.concentration @ prior.weight) < 100
    ([0.1, 0.29, 0.6], True)
    """
    used = np.flatnonzero(found.samples > 0)
    if len(used) < LEAST_AGENTS:
        return SharesPrior.alone(widths)
    found = found.take(used)
    n = found.samples.astype(np.float64)
    looked_at = np.unique(np.linspace(0, len(n) - 1, min(len(n), MOST_LOOKED_AT)).astype(np.int64))
    weight = n * n / (n + found.variance)
    mean = simplex_projection((found.counts * (weight / n)[:, None]).sum(0) / weight.sum())
    concentration = 20.0

    for _ in range(TURNS):
        roots, basis = _spread(mean)
        off, variance = _least_squares(found, mean, roots, basis, concentration)
        estimate = mean + basis @ off
        mean = simplex_projection(estimate)
        roots, basis = _spread(mean)
        chances = _concentration(found.take(looked_at), mean, roots, basis)
        concentration = float(np.exp(chances @ np.log(CONCENTRATIONS)))

    moved, unknown, apart = _strata(found, mean, roots, basis, concentration)
    middle = mean + moved @ basis.T
    stratum = shares_stratum(found.samples[looked_at])
    chances = _concentration(found.take(looked_at), middle[stratum], roots, basis)
    errors = np.sqrt((unknown + variance) @ (basis**2).T)
    means = [*map(positive_shares, estimate + moved @ basis.T, errors)]
    keep = chances >= LEAST_WEIGHT

    return SharesPrior(
        mean=np.array(means),
        below=MEAN_WIDER * (unknown + variance + apart) @ (np.cumsum(basis, axis=0)[:-1] ** 2).T,
        concentration=CONCENTRATIONS[keep],
        weight=chances[keep] / chances[keep].sum(),
        agents=len(used),
    )


def _spread(mean: Floats) -> tuple[Floats, Floats]:
    """Give eigenvalues and eigenvectors of what a sample's bin varies by.

    The first is that of all counts alike.
    """
    roots, basis = np.linalg.eigh(np.diag(mean) - np.outer(mean, mean))
    return np.maximum(roots, 0.0), basis


def _factor(samples: Floats, concentration: float) -> Floats:
    return samples * (samples + concentration) / (1.0 + concentration)


def _least_squares(
    found: NoisedShares, mean: Floats, roots: Floats, basis: Floats, concentration: float
) -> tuple[Floats, Floats]:
    """Give how far the agents' mean shares are from `mean`, and the variance of that, by eigenvector."""
    n = found.samples.astype(np.float64)
    weight = (n * n)[:, None] / (
        _factor(n, concentration)[:, None] * roots + found.variance[:, None] + _NOTHING
    )
    total = weight.sum(axis=0)
    off = (weight * ((found.counts / n[:, None] - mean) @ basis)).sum(axis=0) / total
    known = np.arange(len(mean)) == 0

    return np.where(known, 0.0, off), np.where(known, 0.0, 1.0 / total)


def _concentration(found: NoisedShares, mean: Floats, roots: Floats, basis: Floats) -> Floats:
    """Give the probability of each concentration.

    By single bins or by their sums, whichever has agents less alike.

    Agents whose values are larger have more in all the upper bins, which sums show and single bins
    hardly do; agents that differ in two bins differ in few sums. What is requested may be either,
    and taking agents for more alike than they are is the error that costs most.
    """
    found_by = [_by_bins(found, mean, roots, basis), _by_sums(found, mean)]
    return min(found_by, key=lambda chances: float(chances @ np.log(CONCENTRATIONS)))


def _by_bins(found: NoisedShares, mean: Floats, roots: Floats, basis: Floats) -> Floats:
    n = found.samples.astype(np.float64)
    squares = ((found.counts - n[:, None] * mean) @ basis)[:, 1:] ** 2
    return _chances(n, squares, roots[1:], found.variance[:, None])


def _by_sums(found: NoisedShares, mean: Floats) -> Floats:
    n = found.samples.astype(np.float64)
    bins = found.counts.shape[1]
    off = found.counts - n[:, None] * mean
    squares = np.cumsum(off - off.mean(axis=1, keepdims=True), axis=1)[:, :-1] ** 2
    under = np.cumsum(mean, axis=-1)[..., :-1]
    edge = np.arange(1, bins)
    noise = found.variance[:, None] * (edge * (bins - edge) / bins)

    return _chances(n, squares, under * (1 - under), noise, say=SUMS / (bins - 1))


def _chances(n: Floats, squares: Floats, spread: Floats, noise: Floats, say: float = 1.0) -> Floats:
    """Give the probability of each concentration, from squares of normal variables that count as `say` of them."""
    log = np.zeros(len(CONCENTRATIONS))
    for i, concentration in enumerate(CONCENTRATIONS):
        variance = _factor(n, concentration)[:, None] * spread + noise + _NOTHING
        log[i] = -0.5 * say * float((np.log(variance) + squares / variance).sum())

    chances = np.exp(log - log.max())
    return np.asarray(chances / chances.sum())


def _strata(
    found: NoisedShares, mean: Floats, roots: Floats, basis: Floats, concentration: float
) -> tuple[Floats, Floats, Floats]:
    """Give how far the mean of each stratum is from everyone's, and the variance of that, by eigenvector.

    A stratum where no one is has the mean of the nearest one, and how far strata are apart as a
    third variance.
    """
    of = shares_stratum(found.samples)
    met = np.flatnonzero(np.bincount(of, minlength=len(COUNTS) + 1) >= LEAST_AGENTS)
    moved, unknown, apart = (np.zeros((len(COUNTS) + 1, len(mean))) for _ in range(3))
    if len(met) < 2:
        return moved, unknown, apart

    each = [
        _least_squares(found.take(np.flatnonzero(of == s)), mean, roots, basis, concentration)
        for s in met
    ]
    off, variance = (np.array(one)[:, 1:] for one in zip(*each, strict=True))
    total = BETWEEN[:, None, None] * roots[1:] + variance + _NOTHING**2
    log = -0.5 * (np.log(total) + off**2 / total).sum(axis=(1, 2))
    chances = np.exp(log - log.max())
    chances[1:] /= len(BETWEEN) - 1

    chances /= chances.sum()
    share = BETWEEN[:, None, None] * roots[1:] / total
    moved[met, 1:] = np.einsum("k,ksb->sb", chances, share) * off
    unknown[met, 1:] = np.einsum("k,ksb->sb", chances, share) * variance
    unknown[met, 1:] += np.einsum("k,ksb->sb", chances, share**2) * off**2 - moved[met, 1:] ** 2

    for stratum in np.setdiff1d(np.arange(len(COUNTS) + 1), met):
        nearest = met[np.argmin(np.abs(met - stratum))]
        moved[stratum] = moved[nearest]
        unknown[stratum] = unknown[nearest]
        apart[stratum] = float(chances @ BETWEEN) * roots

    return moved, unknown, apart
