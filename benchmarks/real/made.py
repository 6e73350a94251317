"""Made owners: each has a law of its own, of a kind that no test and no tuning of quantiles has seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.real.sets import RealSet
from meanstream.operators.records import Floats

OWNERS = 800
VALUES = 400
"""Values of an owner are its law: quantiles and shares of them are the truth."""


def made_sets(names: list[str]) -> Iterator[RealSet]:
    """Draw the sets of these names, in the order of `MADE`; the seed of a set is its place."""
    for place, (name, (lower, upper, draw)) in enumerate(MADE.items()):
        if name in names:
            rng = np.random.default_rng([2611, place])
            value = np.concatenate([draw(rng) for _ in range(OWNERS)])
            owner = np.repeat(np.arange(OWNERS), VALUES)
            order = rng.permutation(len(owner))
            day = np.zeros(len(owner), np.int64)
            yield RealSet(
                name=name, owner=owner[order], value=value[order], day=day, lower=lower, upper=upper
            )


def _humps(rng: np.random.Generator) -> Floats:
    """Two normal humps 4 apart; each owner has another share of the upper one."""
    return np.asarray(rng.normal(np.where(rng.random(VALUES) < rng.beta(1, 3), 7.0, 3.0), 0.6))


def _waits(rng: np.random.Generator) -> Floats:
    """Gamma waits of shape 1.5, with means that differ by a factor of e."""
    return np.asarray(rng.gamma(1.5, np.exp(rng.normal(0, 0.5)) * 8.0, VALUES))


def _gaps(rng: np.random.Generator) -> Floats:
    """Nothing in seven of ten cases, otherwise a lognormal amount."""
    return np.asarray(
        np.where(
            rng.random(VALUES) < rng.beta(14, 6), 0.0, rng.lognormal(rng.normal(2.5, 0.4), 0.7)
        )
    )


def _marks(rng: np.random.Generator) -> Floats:
    """Draw marks from 1 to 5, whose probabilities are each owner's own."""
    return np.asarray(rng.choice(5, VALUES, p=rng.dirichlet([1, 1, 2, 4, 6])) + 1.0)


def _skewed(rng: np.random.Generator) -> Floats:
    """Beta laws from nearly even to leaning on a bound."""
    return np.asarray(rng.beta(rng.uniform(0.5, 4), rng.uniform(0.5, 4), VALUES))


MADE: dict[str, tuple[float, float, Callable[[np.random.Generator], Floats]]] = {
    "made: two humps": (0.0, 10.0, _humps),
    "made: gamma waits": (0.0, 100.0, _waits),
    "made: zeros and amounts": (0.0, 120.0, _gaps),
    "made: marks 1 to 5": (1.0, 5.0, _marks),
    "made: beta": (0.0, 1.0, _skewed),
}
