"""Users with Bernoulli samples, their own success rates and unequal sizes: the population of
Cummings et al."""

from typing import Any

import numpy as np

from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.rounds.central_rounds import is_central, run_central
from meanstream.operators.rounds.round_protocol import protocol_stages_of_positions
from meanstream.operators.rounds.round_records import Estimate, Summaries

SPAN = 2**20


def sizes(law: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """`zipf`: 1 to 100, probability proportional to 1/k; `uniform`: 1 to 100; a number:
    everybody's."""
    if law == "uniform":
        return rng.integers(1, 101, n)
    if law == "zipf":
        weight = 1.0 / np.arange(1, 101)
        return rng.choice(np.arange(1, 101), n, p=weight / weight.sum())
    return np.full(n, int(law))


def summaries(
    n: int,
    rng: np.random.Generator,
    *,
    law: str = "zipf",
    rate: float = 0.3,
    deviation: float = 0.05,
) -> Summaries:
    """n users whose rates are Beta with this mean and standard deviation."""
    count = sizes(law, n, rng)
    mass = rate * (1.0 - rate) / deviation**2 - 1.0 if deviation else 0.0
    rates = rng.beta(rate * mass, (1.0 - rate) * mass, n) if deviation else np.full(n, rate)
    total = rng.binomial(count, rates)
    first = (rng.random(n) < total / count).astype(np.int64)
    user = rng.integers(0, 2**64, (n, 2), dtype=np.uint64)
    return Summaries(
        user=user,
        count=count.astype(np.int64),
        total=total.astype(np.int64) * SPAN,
        first=first * SPAN,
        span=SPAN,
    )


def answer(
    name: str, epsilon: float, given: Summaries, rng: np.random.Generator, **options: Any
) -> Estimate:
    """One round of an estimator of the registry, with seeded noise."""
    estimator = build_estimator(name, epsilon=epsilon, users=max(len(given), 1), **options)
    assert is_central(estimator)
    cohort = protocol_stages_of_positions(estimator.shares, rng.random(len(given)))
    return run_central(estimator, given, cohort, [SeededWords(rng, 1) for _ in estimator.rounds])
