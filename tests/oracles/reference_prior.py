"""The reference core, third part: the default prior by brute force.

The model of the page *The learned prior*, integrated over its three unknowns on a grid: no Newton's
method, no approximation by Laplace, no table. Nothing here is shared with the product.

| letter | meaning |
|---|---|
| `T`, `n` | a released mean, and the samples in it |
| `v` | variance of one sample |
| `c`, `d`, `tau` | center, trend per decade of the count, and spread of the means, in widths of the bounds |
| `l` | log10 of a count, less the middle of all |
| `m`, `w` | an agent's own mean, and its variance |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_ndtr, logsumexp, ndtr

Array = np.ndarray

MOST_SPREAD = 0.4
TAUS = 40
PER_AXIS = 11
REACH = 5.0
"""Points of the grid of `c` and of `d`, and standard deviations to either side."""
FALLS = (0.0, 0.2, 0.4)
STRONG = 20.0
LEFT_OUT = 0.025


@dataclass(frozen=True, kw_only=True)
class ReferencePrior:
    """Points of the posterior of `c`, `d` and `tau`, each with its probability."""

    c: Array
    d: Array
    tau: Array
    probability: Array
    falls: float
    middle: float
    ends: tuple[float, float]
    lower: float
    width: float

    def answer(self, m: float, w: float, n: int) -> tuple[float, float]:
        """Give an agent's posterior mean and the variance of its error, from its own mean."""
        own = (m - self.lower) / self.width
        variance = w / self.width**2
        away = np.log10(n) - self.middle
        inside = float(np.clip(away, *self.ends))
        spread = self.tau * 10.0 ** (-self.falls * inside)

        # Beyond the counts that releases tell of, the trend goes on or the center stays, as likely.
        goes_on = self.c + self.d * away, spread**2
        stays = self.c + self.d * inside, spread**2 + (self.tau * (away - inside)) ** 2
        center = np.concatenate([goes_on[0], stays[0]])
        around = np.concatenate([goes_on[1], stays[1]])
        before = np.log(np.tile(self.probability / 2, 2))

        # Each point is weighed by how likely it makes the own mean, and answers for itself.
        total = variance + around
        log_weight = before - 0.5 * ((own - center) ** 2 / total + np.log(total))
        weight = np.exp(log_weight - logsumexp(log_weight))
        k = around / total
        answers = center + k * (own - center)
        value = float(weight @ answers)
        error = float(weight @ (k * variance + (answers - value) ** 2))

        return self.lower + value * self.width, error * self.width**2


def fit_reference_prior(
    T: Array,
    n: Array,
    noise_variance: Array,
    v: float,
    *,
    epsilon: float,
    bounds: tuple[float, float],
) -> ReferencePrior:
    """Integrate the posterior.

    Parameters
    ----------
    T, n, noise_variance : array, shape (b,)
        Releases.
    v : float
        Variance of one sample.
    epsilon : float
        Of the one staircase draw in each release; 0 where the noise is normal, infinite where it is
        one Laplace draw.
    bounds : (float, float)
        Declared bounds of a sample.
    """
    lower, upper = bounds
    width = upper - lower
    says = 1 / (v / n + noise_variance + 0.0025 * width**2)
    middle = float(says @ np.log10(n) / says.sum())
    releases = _Releases(
        mean=(T - lower) / width,
        away=np.log10(n) - middle,
        sampling=v / n / width**2,
        noise=noise_variance / width**2,
        epsilon=epsilon,
    )

    # One spread for all counts, unless releases say plainly that it falls with them.
    best = releases.posterior(FALLS[0])
    chosen = FALLS[0]
    for falls in FALLS[1:]:
        other = releases.posterior(falls)
        if other.evidence > best.evidence + (np.log(STRONG) if chosen == 0 else 0.0):
            best, chosen = other, falls

    average = float(best.probability @ best.tau)
    return ReferencePrior(
        c=best.c,
        d=best.d,
        tau=best.tau,
        probability=best.probability,
        falls=chosen,
        middle=middle,
        ends=releases.ends(average),
        lower=lower,
        width=width,
    )


def staircase_log_density(x: Array, stddev: Array, noise_variance: Array, epsilon: float) -> Array:
    """Log density of a staircase draw and a normal error: a mixture of uniform laws on `[-r, r]`."""
    density = np.zeros_like(x)
    r, share, variance = uniform_parts(epsilon)
    away = np.abs(x)

    for end, weight in zip(r, share, strict=True):
        radius = end * np.sqrt(noise_variance / variance)
        inside = ndtr((radius - away) / stddev) - ndtr((-radius - away) / stddev)
        density += weight / (2 * radius) * inside

    return np.log(np.maximum(density, 1e-280))


@cache
def uniform_parts(epsilon: float) -> tuple[Array, Array, float]:
    """Ends and shares of the uniform laws of a staircase of sensitivity 1, and its variance: the least one."""
    j = np.arange(int(25 / epsilon) + 2)
    r = np.arange(1, 1025)[:, np.newaxis] / 1024 + j
    share = r * np.exp(-epsilon * j)
    share /= share.sum(axis=1, keepdims=True)

    variance = (share * r**2).sum(axis=1) / 3
    best = int(np.argmin(variance))
    return r[best], share[best], float(variance[best])


def laplace_log_density(x: Array, stddev: Array, noise_variance: Array) -> Array:
    """Log density of a Laplace draw of scale b and a normal error."""
    b = np.sqrt(noise_variance / 2)

    def g(y: Array) -> Array:
        return y / b + 0.5 * (stddev / b) ** 2 + log_ndtr(-(y / stddev + stddev / b))

    return np.logaddexp(g(x), g(-x)) - np.log(2 * b)


@dataclass(frozen=True)
class _Posterior:
    c: Array
    d: Array
    tau: Array
    probability: Array
    evidence: float


@dataclass(frozen=True, kw_only=True)
class _Releases:
    """In widths from the lower bound."""

    mean: Array
    away: Array
    sampling: Array
    noise: Array
    epsilon: float

    def posterior(self, falls: float) -> _Posterior:
        """Weigh a grid of `c` and `d` for each of many spreads; `tau ** 3` is flat before."""
        least = 0.1 * min(0.002, float(np.sqrt(self.sampling + self.noise).min()))
        taus = np.geomspace(least, MOST_SPREAD, TAUS)
        rows: list[Array] = []
        start = np.array([0.5, 0.0])

        for tau in taus[::-1]:
            start, covariance = self._peak(float(tau), falls, start)
            # A square grid in the coordinates in which the posterior is about round.
            unit = np.linspace(-REACH, REACH, PER_AXIS)
            u = np.stack(np.meshgrid(unit, unit), axis=-1).reshape(-1, 2)
            root = np.linalg.cholesky(covariance)
            points = start + u @ root.T

            log_cell = np.log(np.linalg.det(root)) + 2 * np.log(unit[1] - unit[0])
            log_weight = self.log_posterior(points, float(tau), falls) + log_cell + 3 * np.log(tau)
            rows.append(np.column_stack([points, np.full(len(points), tau), log_weight]))

        c, d, tau_of_point, log_weight = np.concatenate(rows).T
        evidence = float(logsumexp(log_weight)) + np.log(np.log(taus[1] / taus[0]))
        return _Posterior(c, d, tau_of_point, np.exp(log_weight - logsumexp(log_weight)), evidence)

    def ends(self, tau: float) -> tuple[float, float]:
        """Counts between which nearly all that releases tell of the center lies."""
        order = np.argsort(self.away, kind="stable")
        says = 1 / (self.sampling + self.noise + tau**2)
        below = np.cumsum(says[order]) / says.sum()
        low, high = np.searchsorted(below, [LEFT_OUT, 1 - LEFT_OUT])
        return float(self.away[order[low]]), float(self.away[order[min(high, len(order) - 1)]])

    def log_posterior(self, points: Array, tau: float, falls: float) -> Array:
        """Log of prior and likelihood at points `(c, d)`, shape (k,)."""
        x = self.mean - points[:, :1] - points[:, 1:] * self.away
        own = (tau * 10.0 ** (-falls * self.away)) ** 2 + self.sampling
        total = own + self.noise
        log_density = -0.5 * (x**2 / total + np.log(2 * np.pi * total))

        # The exact law, where the noise is one draw that shows: a fiftieth of the whole or more.
        if self.epsilon:
            shows = self.noise > 0.02 * total
            s = np.sqrt(own)[shows]
            noise = self.noise[shows]
            if np.isinf(self.epsilon):
                log_density[:, shows] = laplace_log_density(x[:, shows], s, noise)
            else:
                exact = staircase_log_density(x[:, shows], s, noise, self.epsilon)
                log_density[:, shows] = exact

        # Half a width about the middle for c, a spread per decade for d.
        before = -0.5 * ((points[:, 0] - 0.5) / 0.5) ** 2 - 0.5 * (points[:, 1] / tau) ** 2
        before -= np.log(2 * np.pi * 0.5 * tau)
        return np.asarray(log_density.sum(axis=1) + before)

    def _peak(self, tau: float, falls: float, start: Array) -> tuple[Array, Array]:
        """Find the likeliest `(c, d)` and the covariance there, by differences."""

        def loss(point: Array) -> float:
            return -float(self.log_posterior(point[np.newaxis], tau, falls)[0])

        scale = np.array([1e-4, 1e-4])
        peak = np.asarray(minimize(loss, start, method="BFGS").x)
        hessian = np.empty((2, 2))

        for i in range(2):
            for k in range(2):
                signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
                values = [
                    loss(peak + a * scale * np.eye(2)[i] + b * scale * np.eye(2)[k])
                    for a, b in signs
                ]
                hessian[i, k] = (values[0] - values[1] - values[2] + values[3]) / (
                    4 * scale[i] * scale[k]
                )

        return peak, np.linalg.inv(hessian)
