"""What is known of each agent's shares.

By its own samples, or by its release alone, under the learned prior.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from meanstream.operators.agents.own_histogram import histogram_bin_of_cells
from meanstream.operators.collaboration.shares.shares_prior import (
    NoisedShares,
    SharesPrior,
    shares_stratum,
)
from meanstream.operators.records import Floats, Ints

ESCAPE = 0.05
ESCAPE_WORTH = 1.0
"""Probability that an agent is like no other, and what the prior is worth to it then: public
constants."""

RELEASED_WIDER = 1.25
"""Of the variance where only a release is known: agents are not normal
(`benchmarks/speed/speed_of_quantiles.py`)."""


@dataclass(frozen=True, slots=True)
class SharesPosterior:
    """Shares of some agents, and how well they are known.

    Attributes
    ----------
    shares : float array (n, bins or cells)
        Posterior mean; nonnegative, adding up to 1.
    variance : float array (n, bins - 1 or cells - 1)
        Posterior variance of the share of samples that lie below each inner edge.
    blur : float array (n,)
        Part of the shares of cells that is of the prior, which knows bins only; 0 for bins.
    """

    shares: Floats
    variance: Floats
    blur: Floats


def own_shares(prior: SharesPrior, counts: Ints) -> SharesPosterior:
    """Private: combine each agent's own samples, by bins, with the prior; for that agent only.

    Parameters
    ----------
    prior : SharesPrior
        Public.
    counts : int array (n, cells)
        Exact.

    Notes
    -----
    For each concentration the posterior is a Dirichlet law, its variance wider by that of the prior's mean; an agent's
    own samples also say which of them it has, and whether it is like no other (`ESCAPE`).
    """
    of_cell = histogram_bin_of_cells(prior.mean.shape[1])
    shares = np.zeros(counts.shape)
    blur = np.zeros(len(counts))
    variance = np.zeros((len(counts), counts.shape[1] - 1))
    of = shares_stratum(counts.sum(axis=1))

    for stratum in np.unique(of).tolist():
        rows = np.flatnonzero(of == stratum)
        own = counts[rows]
        in_cells = prior.mean[stratum][of_cell] / np.bincount(of_cell)[of_cell]
        unknown = np.maximum(
            np.append(prior.below[stratum], 0.0), np.append(0.0, prior.below[stratum])
        )[of_cell[:-1]]
        of_prior, of_own, *squares = _mixed(prior, stratum, own, of_cell)
        prior_below = np.cumsum(in_cells)[:-1]
        own_below = np.cumsum(own, axis=1)[:, :-1]

        shares[rows] = of_prior * in_cells + of_own * own
        blur[rows] = of_prior[:, 0]
        below = of_prior * prior_below + of_own * own_below
        terms = (
            prior_below**2,
            prior_below * own_below,
            own_below**2,
            prior_below + np.sqrt(unknown),
            own_below,
        )
        square = squares[-2] + squares[-1] * unknown

        for square_of, term in zip(squares, terms, strict=False):
            square += square_of * term

        variance[rows] = square - below**2

    return SharesPosterior(shares, np.maximum(variance, 1e-12), blur)


def _mixed(prior: SharesPrior, stratum: int, counts: Ints, of_cell: Ints) -> tuple[Floats, ...]:
    """Average what makes mean and square of the share below an edge over what the prior may be worth, by agent.

    That share is `a P + b C` of the prior's `P` and the own count `C`, where the prior is worth so
    much. Shares that are taken for rare may be less so, and then they vary by more: by what the
    prior's mean may be off, and by one sample. So these are the averages of a and b, and the
    factors of `P^2`, `P C`, `C^2`, `P` with what the prior may be off, `C`, 1 and the square of
    what it may be off.
    """
    n = counts.sum(axis=1).astype(np.float64)
    terms_of_worth = np.zeros((9, len(n)))

    for worth, chance in _chances(prior, stratum, counts, of_cell):
        a = worth / (worth + n)
        b = 1 / (worth + n)
        left = 1 / (worth + n + 1)
        rest = 1 - left

        terms = (
            a,
            b,
            rest * a**2,
            2 * rest * a * b,
            rest * b**2,
            left * a,
            left * b,
            left**2,
            a**2,
        )
        terms_of_worth += chance * np.stack(terms)

    return tuple(terms_of_worth[:, :, None])


def _chances(
    prior: SharesPrior, stratum: int, cells: Ints, of_cell: Ints
) -> Iterator[tuple[float, Floats]]:
    """Give what the prior may be worth, and the probability of that for each agent."""
    counts = np.add.reduceat(cells, np.flatnonzero(np.diff(of_cell, prepend=-1)), axis=1)
    worth = np.append(prior.worth(stratum), ESCAPE_WORTH)
    weight = np.append(prior.weight * (1 - ESCAPE), ESCAPE)
    n = counts.sum(axis=1)
    log = np.empty((len(worth), len(n)))

    for i, samples in enumerate(worth):
        alpha = samples * prior.mean[stratum]
        log[i] = np.log(weight[i]) + gammaln(samples) - gammaln(samples + n)
        log[i] += np.cumsum(gammaln(alpha + counts) - gammaln(alpha), axis=1)[
            :, -1
        ]  # whatever the number of rows

    chances = np.exp(log - log.max(axis=0))
    yield from zip(worth.tolist(), chances / np.cumsum(chances, axis=0)[-1], strict=True)


def released_shares(prior: SharesPrior, found: NoisedShares) -> SharesPosterior:
    """Public: combine each agent's noised histogram with the prior.

    Notes
    -----
    The linear estimate of least squares, by the prior's eigenvectors (`fit_shares_prior`), brought to the simplex.
    """
    shares = np.zeros(found.counts.shape)
    variance = np.zeros((len(found.samples), found.counts.shape[1] - 1))
    of = shares_stratum(found.samples)
    for stratum in np.unique(of).tolist():
        rows = np.flatnonzero(of == stratum)
        shares[rows], variance[rows] = _linear(prior, stratum, found.take(rows))

    return SharesPosterior(shares, np.maximum(variance, 1e-12), np.zeros(len(of)))


def _linear(prior: SharesPrior, stratum: int, found: NoisedShares) -> tuple[Floats, Floats]:
    """Give shares, and variances of the shares below each edge, of agents of one stratum."""
    middle = prior.mean[stratum]
    roots, basis = np.linalg.eigh(np.diag(middle) - np.outer(middle, middle))
    roots = np.maximum(roots, 0.0)
    n = np.maximum(found.samples, 1).astype(np.float64)[:, None]
    off = ((found.counts / n) - middle) @ basis
    below = np.cumsum(basis, axis=0)[:-1]
    moved = np.zeros_like(off)
    spread = np.zeros_like(off)

    for worth, weight in zip(prior.worth(stratum), prior.weight, strict=True):
        between = roots / (worth + 1.0)
        gain = between / (between + (roots - between) / n + found.variance[:, None] / n**2 + 1e-15)
        moved += weight * gain * off
        spread += weight * between * (1 - gain)

    shares = np.maximum(middle + moved @ basis.T, 0.0)
    unknown = prior.below[stratum]
    rarer = np.sqrt(unknown) * float(
        prior.weight @ (1 / (prior.worth(stratum) + 1))
    )  # as in `own_shares`
    variance = RELEASED_WIDER * (spread @ (below**2).T + unknown + rarer)

    return shares / shares.sum(axis=1, keepdims=True), variance
