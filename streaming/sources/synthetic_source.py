"""A stream made of nothing but a seed, to try things on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import ndtri

from meanstream.operators.records import Floats, Words
from meanstream.operators.validation import require
from meanstream.streaming.events.event_columns import Batch, Position, Rejects, SampleColumns
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import Opening

KIND = "synthetic"

_STEP = np.uint64(0x9E3779B97F4A7C15)


def _uniform(counter: Words) -> Floats:
    """Mix 64-bit counters to uniform numbers in (0, 1): the finalizer of splitmix64."""
    with np.errstate(over="ignore"):
        z = counter * _STEP
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)

    uniform: Floats = ((z >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
    return uniform


@dataclass(frozen=True, kw_only=True)
class SyntheticPopulation:
    """Agents whose means form classes, and their normal samples.

    Parameters
    ----------
    samples, agents : int
        Numbers of samples in all and of agents.
    means : tuple of float
        The classes' means; agent i belongs to class i modulo their number.
    stddev : float
        Of one sample.
    start, interval : float
        Event time of the first sample and between samples, in seconds.
    seed : int
        Two streams of different seeds are unrelated.
    """

    samples: int = 100_000
    agents: int = 100
    means: tuple[float, ...] = (0.2, 0.4, 0.8)
    stddev: float = 0.1
    start: float = 1_704_067_200.0
    interval: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.agents >= 1, "agents", "be at least 1", self.agents)
        require(self.samples >= 0, "samples", "be at least 0", self.samples)
        require(0 <= self.seed < 1 << 20, "seed", "lie in 0..1048575", self.seed)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `synthetic:AGENTS,SAMPLES[,SEED]`.

        Examples
        --------
        >>> SyntheticPopulation.parse("synthetic:100,5000").samples
        5000
        """
        try:
            agents, samples, *seed = [
                int(part) for part in text.removeprefix(f"{KIND}:").split(",")
            ]
            (chosen,) = seed or [0]
        except ValueError:
            raise ValueError(
                f"source must be a file or {KIND}:AGENTS,SAMPLES[,SEED], got {text!r}"
            ) from None

        return cls(agents=agents, samples=samples, seed=chosen)


class SyntheticSource:
    """Samples computed from their position: bounded, resumable at any row, the same in every run.

    Not private and not for noise: the numbers are those of a simulation.

    Examples
    --------
    >>> source = SyntheticSource(SyntheticPopulation(samples=5, agents=2))
    >>> len(source.next_batch(3).samples), len(source.next_batch(3).samples), source.next_batch(3).exhausted
    (3, 2, True)
    """

    bounded = True
    in_order = True

    @classmethod
    def open(cls, location: str, mapping: ColumnMapping, opening: Opening) -> Self:  # noqa: ARG003 - it needs nothing
        """Make the stream that `synthetic:AGENTS,SAMPLES[,SEED]` names."""
        mapping.resolve(("agent", "value", "time"))
        mapping.require_table(location)
        return cls(SyntheticPopulation.parse(location))

    def __init__(self, population: SyntheticPopulation) -> None:
        self.name = f"{KIND}:{population.agents},{population.samples},{population.seed}"
        self._population = population
        self._names = [f"agent-{i:06d}" for i in range(population.agents)]
        self._row = 0

    def next_batch(self, max_samples: int) -> Batch:
        """Compute the next samples."""
        p = self._population
        row = np.arange(self._row, min(self._row + max_samples, p.samples))
        self._row += len(row)
        counter = (row + (p.seed << 40)).astype(np.uint64) * np.uint64(2) + np.uint64(1)
        agent = np.minimum((_uniform(counter) * p.agents).astype(np.int64), p.agents - 1)
        value: Floats = np.array(p.means)[agent % len(p.means)] + p.stddev * ndtri(
            _uniform(counter + np.uint64(1))
        )
        time: Floats = p.start + row.astype(np.float64) * p.interval
        samples = SampleColumns(self._names, agent, value, time, None, row + 1)

        return Batch(samples, Rejects(), {"row": self._row}, exhausted=not len(row))

    def restore(self, position: Position) -> None:
        """Continue at a row."""
        self._row = int(position["row"])

    def close(self) -> None:
        """Nothing is open."""
