"""The learned population.

A mixture over models, its description, and every agent's posterior under it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.collaboration.noise_share import FittedNoise, NoiseShare
from meanstream.operators.collaboration.prior.mixture_posterior import (
    blocks_of_agents,
    bounded_means,
    mixture_densities,
    mixture_distances,
    mixture_sum,
)
from meanstream.operators.collaboration.prior.prior_fit import NormalMixture
from meanstream.operators.records import AgentEstimates, Floats, OwnMeans

NEGLIGIBLE_MODEL = 0.02
"""Models this far below the best are left out. An agent's raw mean holds the samples of its own
release again: it would vote twice for an unlikely model that its own outlying release suggested."""
LEAST_SHOWN = 1e-3
NEGLIGIBLE_COMPONENT = 1e-6
DENSITY_POINTS = 201
LANES = 8
"""Agents are evaluated in whole groups of so many, each of which is rounded alike."""
_ELEMENTS = 1 << 20
"""Agents times components at a time."""
UNSEEN = 0.001
"""Agents expected to belong to no component: their releases may be too noisy to show it, their own
samples are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPrior:
    """Public: the fitted population; made by `LearnedPrior.fit`.

    Attributes
    ----------
    weight, cautious : float array, shape (n,)
        Probability of each component of the averaged prior: for the estimate, and for the interval.
    center, variance : float array, shape (n,)
        Center of each component; its squared spread plus the variance with which the center is
        known.
    best_weight, best_center, best_variance : float array, shape (n_components,)
        The most probable single model, by increasing center: what `component` in an answer counts.
    spread : float
        Spread of that model; 0 means exact classes.
    spread_probability, size_probability : dict
        Posterior probability of each spread and of each number of components.
    n_agents : int
        How many agents' releases it was fitted to.
    lower, upper : float
        Declared bounds of a sample.
    noise : FittedNoise
        Variance of the privacy noise in a center and in the squared spread, averaged over models
        and components.
    """

    weight: Floats
    cautious: Floats
    center: Floats
    variance: Floats
    best_weight: Floats
    best_center: Floats
    best_variance: Floats
    spread: float
    spread_probability: dict[float, float]
    size_probability: dict[int, float]
    n_agents: int
    lower: float
    upper: float
    noise: FittedNoise

    @classmethod
    def build(
        cls,
        mixtures: list[NormalMixture],
        *,
        probability: Floats,
        cautious: Floats,
        n_agents: int,
        noise: NoiseShare,
        lower: float,
        upper: float,
    ) -> Self:
        """Average the models by their probabilities.

        What is negligible in both averages is left out.
        """
        # All models together; the likeliest gives the picture.
        best = mixtures[int(probability.argmax())]
        sizes = [mixture.size for mixture in mixtures]
        share = np.concatenate([mixture.weight for mixture in mixtures])
        weight, careful = (
            np.repeat(_without_negligible(model), sizes) * share
            for model in (probability, cautious)
        )

        # Components that no model needs leave; anywhere within the bounds stays possible.
        keep = np.maximum(weight, careful) > NEGLIGIBLE_COMPONENT
        variance = np.concatenate([mixture.variance for mixture in mixtures])
        anywhere = UNSEEN / n_agents

        return cls(
            weight=np.append(weight[keep], anywhere),
            cautious=np.append(careful[keep], anywhere),
            center=np.append(
                np.concatenate([mixture.center for mixture in mixtures])[keep], (lower + upper) / 2
            ),
            variance=np.append(variance[keep], (upper - lower) ** 2 / 12),
            best_weight=best.weight,
            best_center=best.center,
            best_variance=best.variance,
            spread=best.spread,
            spread_probability=_marginal([mixture.spread for mixture in mixtures], probability),
            size_probability=_marginal(sizes, probability),
            n_agents=n_agents,
            lower=lower,
            upper=upper,
            noise=fitted_prior_noise(mixtures, probability, noise),
        )

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each agent's posterior mean and interval given its own raw mean, addressed to that agent only.

        Parameters
        ----------
        own : OwnMeans
            At least one sample each. A variance that is not known (infinite) gives the prior's
            answer.
        level : float
            Nominal coverage of the interval.
        """
        mean, variance = bounded_means(own.mean, own.variance, lower=self.lower, upper=self.upper)
        posterior_mean, posterior_variance = self.posterior(mean, variance)
        component, membership, class_size = self.membership(mean, variance)
        value = np.clip(posterior_mean, self.lower, self.upper)
        half_width = half_width_alone(posterior_variance, level)

        return AgentEstimates(
            value=value,
            lower=value - half_width,
            upper=value + half_width,
            level=level,
            effective_class_size=variance / posterior_variance,
            class_size=class_size,
            component=component,
            membership=membership,
            noise_half_width=self.noise.half_width(half_width, posterior_variance, variance),
        )

    def posterior(self, mean: Floats, variance: Floats) -> Floats:
        """Posterior means and variances given own means with their variances, shape (2, n).

        **Privacy.** The bits of an agent's entry are the same among whatever others.
        """
        n = len(mean)
        padding = (0, -n % LANES)
        mean, variance = (np.pad(column, padding, mode="edge") for column in (mean, variance))
        moments = np.empty((2, len(mean)))
        block = max(LANES, _ELEMENTS // len(self.weight) // LANES * LANES)

        for start in range(0, n, block):
            rows = slice(start, start + block)
            moments[:, rows] = self._moments(mean[rows], variance[rows])

        return moments[:, :n]

    def _moments(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        # In logarithms, relative to the likeliest component.
        likelier = np.maximum(self.weight, self.cautious)[:, None]
        total = variance + self.variance[:, None]
        keep = self.variance[:, None] / total
        away = mean - self.center[:, None]
        log_density = -0.5 * away**2 / total - 0.5 * np.log(total)
        log_density += np.log(likelier)
        log_density -= log_density.max(axis=0)
        density = np.exp(log_density) / likelier

        # Values by the plain models, errors by the cautious ones, and what both differ by.
        shift = (keep - 1) * away
        moved = _mixed(self.weight, density * shift) / (_mixed(self.weight, density) + 1e-300)
        normal = _mixed(self.cautious, density) + 1e-300
        cautious = _mixed(self.cautious, density * shift) / normal
        square = _mixed(self.cautious, density * (variance * keep + shift**2)) / normal
        least = variance * keep.min(axis=0)

        return mean + moved, np.maximum(square - cautious**2, least) + (moved - cautious) ** 2

    def membership(self, mean: Floats, variance: Floats) -> tuple[np.ndarray, Floats, Floats]:
        """Most likely component of the best model, its probability, and the expected size of the own component."""
        component = np.empty(len(mean), np.int64)
        likely = np.empty(len(mean))
        size = np.empty(len(mean))

        for rows in blocks_of_agents(len(mean), len(self.best_weight)):
            component[rows], likely[rows], size[rows] = self._members(mean[rows], variance[rows])

        return component, likely, size

    def _members(self, mean: Floats, variance: Floats) -> tuple[np.ndarray, Floats, Floats]:
        # A single component has everybody.
        if len(self.best_weight) == 1:
            return (
                np.zeros(len(mean), np.int64),
                np.ones(len(mean)),
                np.full(len(mean), float(self.n_agents)),
            )

        n = len(mean)
        if (
            n == 1
        ):  # sums over components run along columns: the same order for any number of agents
            mean, variance = np.repeat(mean, 2), np.repeat(variance, 2)

        # In 32 bits, which suffices for who belongs where.
        width = self.upper - self.lower
        away = mixture_distances(mean, self.best_center, width)
        total = (variance / width**2).astype(np.float32) + (self.best_variance / width**2).astype(
            np.float32
        )[:, None]
        density, _ = mixture_densities(away, total, np.log(self.best_weight))
        component = np.zeros(len(mean), np.min_scalar_type(len(density)))

        for k in range(1, len(density)):  # `argmax` along columns takes longer than all the rest
            np.maximum(component, (density[k] == 1) * component.dtype.type(k), out=component)

        likely = 1 / density.sum(axis=0)
        size = self.n_agents * (
            mixture_sum(self.best_weight.astype(np.float32), density) * likely
        ).astype(np.float64)

        return component[:n], likely[:n].astype(np.float64), size[:n]

    def density(self, grid: Floats) -> Floats:
        """Fitted density of the agents' true means, per value unit.

        Exact classes show as narrow peaks.
        """
        # Exact, well-known classes are lines; they are drawn no narrower than the grid can show.
        variance = np.maximum(
            self.variance, ((self.upper - self.lower) / (2 * DENSITY_POINTS)) ** 2
        )
        exponent = -0.5 * (grid - self.center[:, None]) ** 2 / variance[:, None]
        heights = np.exp(exponent) / np.sqrt(2 * np.pi * variance)[:, None]

        return np.asarray(self.weight @ heights / self.weight.sum(), dtype=np.float64)

    def describe(self) -> dict[str, Any]:
        """Public: the fitted population as plain data, for an event or a dashboard."""
        grid = np.linspace(self.lower, self.upper, DENSITY_POINTS)
        stddev = np.sqrt(self.best_variance - self.spread**2)
        columns = (self.best_weight, self.best_center, stddev)
        components = [
            {"weight": weight, "center": center, "spread": self.spread, "center_stddev": known_to}
            for weight, center, known_to in zip(*(c.tolist() for c in columns), strict=True)
        ]

        return {
            "method": "pooled_prior",
            "n_agents": self.n_agents,
            "n_components": len(components),
            "spread": self.spread,
            "components": components,
            "spread_probability": [
                {"spread": s, "probability": p} for s, p in self.spread_probability.items()
            ],
            "size_probability": [
                {"n_components": k, "probability": p} for k, p in self.size_probability.items()
            ],
            "density": {"value": grid.tolist(), "density": self.density(grid).tolist()},
        }


def fitted_prior_noise(
    mixtures: list[NormalMixture], probability: Floats, noise: NoiseShare
) -> FittedNoise:
    """Average the variance of the privacy noise in centers and spreads over models and their components."""
    # Noise of centers and spreads, over all models.
    spread = np.array([mixture.spread for mixture in mixtures])
    center = np.array([float(mixture.weight @ mixture.center_variance) for mixture in mixtures])
    squared = noise.of_squared_spread(spread)
    return FittedNoise(
        float(probability @ (noise.of_center(spread) * center)), float(probability @ squared)
    )


def _mixed(weight: Floats, columns: Floats) -> Floats:
    """Weighted sum over components, shape (n,).

    A BLAS product rounds a column by where it stands among the others.
    """
    return np.asarray(np.einsum("k,kn->n", weight, columns), dtype=np.float64)


def _without_negligible(model: Floats) -> Floats:
    kept = np.where(model > NEGLIGIBLE_MODEL * model.max(), model, 0.0)
    return np.asarray(kept / kept.sum(), dtype=np.float64)


def _marginal(keys: list[Any], probability: Floats) -> dict[Any, float]:
    totals: dict[Any, float] = {}
    for key, p in zip(keys, probability.tolist(), strict=True):
        totals[key] = totals.get(key, 0.0) + p

    return {key: p for key, p in sorted(totals.items()) if p > LEAST_SHOWN}
