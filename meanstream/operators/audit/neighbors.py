"""What one sample moves in all that an agent releases: neighboring streams through `Agents`, under the same noise."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from scipy.linalg import solve_triangular

from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.settings import AgentsSettings
from meanstream.operators.audit.counters import counter_response
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds
from meanstream.operators.records import Floats, Ints, Words

STREAMS = 4_000
EACH = 2
"""Samples of an agent in a release: a pair."""
_VALUES = (0.0, 0.3, 1.0)
"""Between the bounds: a vote sees any two of them differ, and a histogram has a bin for each."""


class SameNoise:
    """Stands for `KeyedNoise`: the same bits whatever is released, so that what differs is what the samples move."""

    def bits(self, ids: NoiseIds, draw: int = 0) -> Words:  # noqa: ARG002 - as `KeyedNoise.bits`
        """Give bits of the middle of every law."""
        return np.full((len(ids), 2), 2**62, np.uint64)

    def version_of(self, count: Ints, total: Ints) -> Words:  # noqa: ARG002 - as `KeyedNoise.version_of`
        """Give one version for all inputs."""
        return np.zeros(len(count), np.uint64)

    def derived(self, *_: Any) -> SameNoise:
        """Give the same for all purposes."""
        return self


def largest_move(settings: AgentsSettings, rng: np.random.Generator) -> float:
    """Measure the largest move of everything that is released when one sample is replaced, in deviations of the noise.

    Parameters
    ----------
    settings : AgentsSettings
        With Gaussian noise, and a release each second of event time (`canaries.compressed`).
    rng : Generator
        Of the streams, and of which sample is replaced by what.

    Notes
    -----
    Means, votes and histograms have noise of their own: squares of what each moves, in units of its noise, add up. The
    noise of means is `B` times fresh draws, so `B^-1` of what moves is looked at. Each draw of a vote or a histogram is
    of what is new in it.

    Examples
    --------
    >>> from meanstream.operators.audit.canaries import compressed
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, horizon=4)
    >>> found = largest_move(compressed(settings), np.random.default_rng(1))
    >>> round(found / settings.mu, 5)
    1.0
    """
    values = rng.choice(_VALUES, (STREAMS, settings.horizon * EACH))
    changed, place = values.copy(), rng.integers(0, values.shape[1], STREAMS)
    changed[np.arange(STREAMS), place] = 1.0 - values[np.arange(STREAMS), place]
    one, other = (
        _released(settings, settings.lower + v * (settings.upper - settings.lower)) for v in (values, changed)
    )
    moved = [a.astype(np.float64) - b for a, b in zip(one, other, strict=True)]
    means = solve_triangular(counter_response(settings.mechanism, settings.horizon), moved[0].T, lower=True)
    squared = (means**2).sum(axis=0) / settings.fresh.variance
    for counts, told in zip((settings.vote, settings.histogram), moved[1:], strict=True):
        if counts is not None:
            squared += (np.diff(told, axis=1, prepend=0) ** 2).sum(axis=(1, 2)) / counts.noise.variance
    return float(np.sqrt(squared.max()))


def _released(settings: AgentsSettings, values: Floats) -> tuple[Ints, Ints, Ints]:
    """Totals, votes and histograms of each agent at each release."""
    n = len(values)
    agents = Agents(settings, cast("KeyedNoise", SameNoise()))
    agents.add_agents([f"stream {i}" for i in range(n)])
    found: list[tuple[Ints, Ints, Ints]] = []
    for second in range(settings.horizon):
        given = values[:, second * EACH : (second + 1) * EACH].ravel()
        agents.update(np.repeat(np.arange(n), EACH), given, np.full(n * EACH, float(second)))
        now = agents.advance(second + 1.0).releases
        found.append((now.total, now.votes[:, 2:], agents.histograms().counts))
    totals, votes, counts = (np.stack(columns, axis=1) for columns in zip(*found, strict=True))
    return totals, votes, counts
