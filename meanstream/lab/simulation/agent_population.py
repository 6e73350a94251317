"""The simulated agents of several runs at once.

Their true means and classes, and their samples block by block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from meanstream.lab.simulation.config import SimulationConfig
from meanstream.lab.simulation.data import DataModel, OwnDataModel, data_model, means_model
from meanstream.operators.records import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class SimulatedUsers:
    """The truth of a simulation; nothing here is seen by an estimator.

    Attributes
    ----------
    mean, variance : float arrays, shape (runs, agents)
        True mean of every agent; variance of one of its samples.
    label : int array, shape (runs, agents)
        Class of every agent; its own index where there are no classes.
    exact_classes : bool
        Whether agents with one label have exactly the same mean; False with a spread and without
        classes, and then no one is in anyone's class.
    """

    mean: Floats
    variance: Floats
    label: Ints
    exact_classes: bool

    def ideal(self, own_mean: Floats) -> Floats:
        """Prop. 2: the mean of all raw data of the agents with the same mean, shape (runs, agents)."""
        if not self.exact_classes:
            return own_mean
        n_classes = int(self.label.max()) + 1
        rows = np.arange(len(self.label))[:, None] * n_classes + self.label
        size = np.bincount(rows.ravel(), minlength=n_classes * len(rows))
        total = np.bincount(rows.ravel(), own_mean.ravel(), minlength=len(size))
        pooled: Floats = (total / np.maximum(size, 1))[rows]

        return pooled


@dataclass(frozen=True, slots=True)
class Simulated:
    """A population and the seeded generators of its runs; run r depends on the seed and on r only.

    Examples
    --------
    >>> config = SimulationConfig.from_options(mode="paper", agents=4, steps=6, seed=7)
    >>> some, same = Simulated.draw(config, range(2)), Simulated.draw(config, range(1, 2))
    >>> some.samples(3).shape
    (3, 2, 4)
    >>> bool((some.samples(3)[:, 1] == (same.samples(3), same.samples(3))[1][:, 0]).all())
    True
    """

    population: SimulatedUsers
    model: DataModel | OwnDataModel
    data_generators: tuple[np.random.Generator, ...]
    noise_generators: tuple[np.random.Generator, ...]
    loss_generators: tuple[np.random.Generator, ...]

    @classmethod
    def draw(cls, config: SimulationConfig, runs: range) -> Self:
        """Draw the means of the given runs and set up their generators."""
        seeds = [
            np.random.SeedSequence(entropy=config.seed, spawn_key=(run,)).spawn(4) for run in runs
        ]
        means = means_model(config.means, config.data, config.spread, config.class_sizes)
        drawn = [means.draw(_generator(of_means), config.agents) for of_means, *_ in seeds]
        mean = np.stack([m for m, _ in drawn])
        model = data_model(config.data, config.stddev, config.half_width)
        population = SimulatedUsers(
            mean, model.variance(mean), np.stack([c for _, c in drawn]), means.has_classes
        )
        data, noise, loss = (tuple(_generator(seed[k]) for seed in seeds) for k in (1, 2, 3))

        return cls(population, model, data, noise, loss)

    def samples(self, steps: int, out: Floats | None = None) -> Floats:
        """Draw the next samples of all agents, shape (steps, runs, agents), into `out` if given."""
        drawn = self._room(steps, out)
        for run, (generator, mean) in enumerate(
            zip(self.data_generators, self.population.mean, strict=True)
        ):
            drawn[:, run] = self.model.sample(generator, mean, steps)

        return drawn

    def unit_noise(self, steps: int, noise: str, out: Floats | None = None) -> Floats:
        """Draw fresh noise of unit variance, gaussian or laplace, shape (steps, runs, agents), into `out` if given."""
        drawn = self._room(steps, out)
        shape = (steps, drawn.shape[2])
        for run, generator in enumerate(self.noise_generators):
            gaussian = noise == "gaussian"
            drawn[:, run] = (
                generator.standard_normal(shape)
                if gaussian
                else generator.laplace(0.0, 0.5**0.5, shape)
            )

        return drawn

    def lost(self, steps: int, share: float) -> Bools | None:
        """Draw which queries get no answer, shape (steps, runs, agents); None if none does."""
        if not share:
            return None
        agents = self.population.mean.shape[1]
        drawn = [generator.random((steps, agents)) < share for generator in self.loss_generators]
        return np.stack(drawn, axis=1)

    def _room(self, steps: int, out: Floats | None) -> Floats:
        # Large blocks that come and go cost a page fault per 4 kB: callers that draw often pass
        # their own.
        if out is None:
            return np.empty((steps, *self.population.mean.shape))
        return out[:steps]


def _generator(seed: np.random.SeedSequence) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))
