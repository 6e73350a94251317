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
    bounded_means,
    mixture_densities,
    mixture_distances,
    mixture_sum,
)
from meanstream.operators.collaboration.prior.posterior_table import Posterior, look_up_posterior
from meanstream.operators.collaboration.prior.prior_fit import NormalMixture
from meanstream.operators.records import AgentEstimates, Floats, OwnMeans

NEGLIGIBLE_MODEL = 0.02
"""Models this far below the best are left out. An agent's raw mean holds the samples of its own
release again: it would vote twice for an unlikely model that its own outlying release suggested."""
LEAST_SHOWN = 1e-3
NEGLIGIBLE_COMPONENT = 1e-6
DENSITY_POINTS = 201
_ELEMENTS = 1 << 16
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
        # Answers are looked up in a table by mean and variance.
        mean, variance = bounded_means(own.mean, own.variance, lower=self.lower, upper=self.upper)
        posterior = look_up_posterior(
            self.posterior, mean, variance, len(self.weight), lower=self.lower, upper=self.upper
        )
        value = np.clip(posterior.value, self.lower, self.upper)
        half_width = half_width_alone(posterior.variance, level)

        return AgentEstimates(
            value=value,
            lower=value - half_width,
            upper=value + half_width,
            level=level,
            effective_class_size=variance / posterior.variance,
            class_size=posterior.class_size,
            component=posterior.component,
            membership=posterior.membership,
            noise_half_width=self.noise.half_width(half_width, posterior.variance, variance),
        )

    def posterior(self, mean: Floats, variance: Floats) -> Posterior:
        """Evaluate the posterior given own means, shape (n,), with their variances, shape (n,) or (1,).

        The bits of an entry are the same among whatever others, for n > 1.
        """
        # In logarithms, relative to the likeliest component.
        total = variance + self.variance[:, None]
        keep = self.variance[:, None] / total
        away = mean - self.center[:, None]
        log_density = -0.5 * away**2 / total - 0.5 * np.log(total)
        log_density += np.log(np.maximum(self.weight, self.cautious))[:, None]
        log_density -= log_density.max(axis=0)
        density = np.exp(log_density) / np.maximum(self.weight, self.cautious)[:, None]

        # Values by the plain models, errors by the cautious ones, and what both differ by.
        shift = (keep - 1) * away
        first = _mixed(self.weight, density * shift) / (_mixed(self.weight, density) + 1e-300)
        normal = _mixed(self.cautious, density) + 1e-300
        cautious = _mixed(self.cautious, density * shift) / normal
        second = _mixed(self.cautious, density * (variance * keep + shift**2)) / normal
        spread = (
            np.maximum(second - cautious**2, variance * keep.min(axis=0)) + (first - cautious) ** 2
        )
        component, membership, class_size = self.membership(mean, variance)

        return Posterior(
            value=mean + first,
            variance=spread,
            component=component,
            membership=membership,
            class_size=class_size,
        )

    def membership(self, mean: Floats, variance: Floats) -> tuple[np.ndarray, Floats, Floats]:
        """Most likely component of the best model, its probability, and the expected size of the own component."""
        n, variance = len(mean), np.broadcast_to(variance, mean.shape)
        component = np.empty(n, np.int64)
        likely = np.empty(n)
        size = np.empty(n)
        block = max(1, _ELEMENTS // len(self.best_weight))

        for start in range(0, n, block):
            part = slice(start, start + block)
            component[part], likely[part], size[part] = self._members(mean[part], variance[part])

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
        columns = (self.best_weight, self.best_center, np.sqrt(self.best_variance - self.spread**2))
        return {
            "method": "pooled_prior",
            "n_agents": self.n_agents,
            "n_components": len(self.best_weight),
            "spread": self.spread,
            "components": [
                {
                    "weight": float(w),
                    "center": float(c),
                    "spread": self.spread,
                    "center_stddev": float(s),
                }
                for w, c, s in zip(*columns, strict=True)
            ],
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
