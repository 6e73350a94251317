"""Samples of an agent that depend on each other.

Kinds of streams, with their long-run variances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from meanstream.operators.records import Floats
from meanstream.operators.validation import require

KINDS = ("none", "ar", "half-ar", "heavy-ar", "bursts", "ma", "markov", "cycle", "shocks")
_WHOLE = ("bursts", "ma", "cycle")
MOST_LAG = 10_000
SHOCKS_CORRELATION = 0.95
"""Of shocks that all agents share, from one sample to the next."""
CYCLE_SHARE = 0.5
"""Part of the variance of a sample that a cycle makes."""
_FORMS = (
    "be ar:RHO, half-ar:RHO, heavy-ar:RHO, markov:RHO, bursts:N, ma:N, cycle:N, shocks:SHARE or none, "
    "such as ar:0.9 or cycle:144"
)


@dataclass(frozen=True, slots=True)
class DependentSamples:
    """Deviations of samples from their agent's long-run mean, of variance 1.

    Parameters
    ----------
    kind : str
        `ar` (each agent an AR(1) process), `half-ar` (half of the agents, the rest independent),
        `heavy-ar` (AR(1) of Student t3 innovations), `markov` (yes or no), `bursts` (each value N
        times in a row), `ma` (a moving sum of N + 1), `cycle` (a sine of period N, of a phase for
        each agent, and independent noise), `shocks` (a share of the variance is an AR(1) process
        that all agents have in common) or `none`.
    number : float
        Correlation of neighbors, length or share.

    Examples
    --------
    >>> round(DependentSamples.parse("ar:.9").ratio, 6)
    19.0
    """

    kind: str
    number: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the option `dependence`."""
        kind, _, rest = text.partition(":")
        require(kind in KINDS and (kind == "none") == (rest == ""), "dependence", _FORMS, text)

        try:
            number = float(rest or 0)
        except ValueError:
            number = math.nan

        if kind in _WHOLE:
            fine = 1 <= number <= MOST_LAG and number == int(number)
            require(fine, "dependence", f"have a whole number of 1 to {MOST_LAG} with {kind}", text)
        elif kind != "none":
            require(
                -1 < number < 1, "dependence", f"have a number between -1 and 1 with {kind}", text
            )
            require(
                kind != "shocks" or number > 0,
                "dependence",
                "have a positive share with shocks",
                text,
            )

        return cls(kind, number)

    def __str__(self) -> str:
        if self.kind == "none":
            return self.kind
        return f"{self.kind}:{self.number:g}"

    @property
    def ratio(self) -> float:
        """Long-run variance over the variance of a sample, of an agent that depends."""
        correlated = (1 + self.number) / (1 - self.number)
        shocks = 1 + self.number * ((1 + SHOCKS_CORRELATION) / (1 - SHOCKS_CORRELATION) - 1)
        found = {
            "none": 1.0, "bursts": self.number, "ma": self.number + 1, "cycle": 1 - CYCLE_SHARE, "shocks": shocks,
        }  # fmt: skip

        return found.get(self.kind, correlated)

    def draw(
        self, rng: np.random.Generator, steps: int, agents: int, share: Floats | None = None
    ) -> Floats:
        """Draw deviations, shape (steps, agents).

        Parameters
        ----------
        rng : numpy.random.Generator
        steps, agents : int
        share : float array, shape (agents,)
            Of yes, with `markov` only.
        """
        number = self.number
        shape = (steps, agents)
        if self.kind == "markov":
            return _markov(rng, shape, number, np.full(agents, 0.5) if share is None else share)
        if self.kind == "heavy-ar":
            return _correlated(rng.standard_t(3, (steps, agents)) / math.sqrt(3), number)

        noise = rng.standard_normal(shape)
        if self.kind in {"ar", "half-ar"}:
            every = slice(None, None, 2 if self.kind == "half-ar" else 1)
            noise[:, every] = _correlated(noise[:, every], number)
        elif self.kind == "bursts":
            noise = np.repeat(noise[: -(-steps // int(number))], int(number), axis=0)[:steps]
        elif self.kind == "ma":
            before = rng.standard_normal((int(number), agents))
            sums = np.cumsum(np.concatenate([np.zeros((1, agents)), before, noise]), axis=0)
            noise = np.asarray(
                (sums[int(number) + 1 :] - sums[: -int(number) - 1]) / math.sqrt(number + 1)
            )
        elif self.kind == "cycle":
            turn = 2 * math.pi * (np.arange(steps)[:, np.newaxis] / number + rng.random(agents))
            noise = math.sqrt(2 * CYCLE_SHARE) * np.sin(turn) + math.sqrt(1 - CYCLE_SHARE) * noise
        elif self.kind == "shocks":
            common = _correlated(rng.standard_normal((steps, 1)), SHOCKS_CORRELATION)
            noise = math.sqrt(number) * common + math.sqrt(1 - number) * noise

        return noise


def _correlated(noise: Floats, rho: float) -> Floats:
    """Make a stationary AR(1) process of independent innovations of variance 1."""
    found = np.empty_like(noise)
    found[0] = noise[0]

    for step in range(1, len(noise)):
        found[step] = rho * found[step - 1] + math.sqrt(1 - rho * rho) * noise[step]

    return found


def _markov(rng: np.random.Generator, shape: tuple[int, int], rho: float, share: Floats) -> Floats:
    """Make yes/no samples, 1 and 0, that stay as they are with probability rho, and are drawn otherwise."""
    drawn = (rng.random(shape) < share).astype(np.float64)
    stays = rng.random(shape) < rho
    for step in range(1, shape[0]):
        drawn[step] = np.where(stays[step], drawn[step - 1], drawn[step])

    return drawn
