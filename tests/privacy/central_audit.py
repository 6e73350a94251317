"""The exact privacy loss of a central release: every noised number of two neighboring inputs, side by side.

A release draws discrete Laplace noise on integers, one after the other, and may choose what to noise next by what came
out. `loss` runs it on one input and then on a neighbor with the *same outputs*, and adds up by how much each noised
number moved, in units of its scale: the largest log-likelihood ratio of these outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from meanstream.operators.estimators import central_mean
from meanstream.operators.estimators.cummings import deviation as cummings_deviation
from meanstream.operators.estimators.cummings import initial_mean as cummings_mean
from meanstream.operators.estimators.cummings import known_sizes as cummings_known_sizes
from meanstream.operators.estimators.cummings import private_sizes as cummings_private_sizes
from meanstream.operators.estimators.cummings import ratio as cummings_ratio
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Ints
from meanstream.operators.rounds.central import central_noised, central_noisy_argmax
from meanstream.operators.rounds.records import Public, Summaries

MODULES = (
    central_mean,
    cummings_deviation,
    cummings_known_sizes,
    cummings_mean,
    cummings_private_sizes,
    cummings_ratio,
)


class Recorder:
    """Stands for `central_noised` and `central_noisy_argmax`: remembers what they are given, or repeats answers."""

    def __init__(self, repeat: Recorder | None = None) -> None:
        self.given: list[tuple[Ints, int, float]] = []
        self.gave: list[int] = []
        self._repeat = repeat

    def noised(self, total: int, sensitivity: int, epsilon: float, words: RandomWords, draw: int) -> int:
        return self._record(
            np.array([total]), sensitivity, epsilon, lambda: central_noised(total, sensitivity, epsilon, words, draw)
        )

    def noisy_argmax(
        self, scores: Ints, sensitivity: int, epsilon: float, words: RandomWords, first_draw: int = 0
    ) -> int:
        return self._record(
            scores, sensitivity, epsilon, lambda: central_noisy_argmax(scores, sensitivity, epsilon, words, first_draw)
        )

    def _record(self, given: Ints, sensitivity: int, epsilon: float, draw: Any) -> int:
        self.given.append((given, sensitivity, epsilon))
        self.gave.append(draw() if self._repeat is None else self._repeat.gave[len(self.given) - 1])
        return self.gave[-1]

    @contextmanager
    def listening(self) -> Iterator[Recorder]:
        with pytest.MonkeyPatch.context() as patch:
            for module in MODULES:
                for name in ("central_noised", "central_noisy_argmax"):
                    if hasattr(module, name):
                        patch.setattr(module, name, getattr(self, name.removeprefix("central_")))
            yield self


def loss(step: Any, one: Summaries, other: Summaries, public: Public, words: RandomWords) -> float:
    """Log-likelihood ratio, at most, of what `step` released about `one` if it had been about `other`."""
    return sum(losses(step, one, other, public, words))


def losses(step: Any, one: Summaries, other: Summaries, public: Public, words: RandomWords) -> list[float]:
    """Add up to `loss`: one for each noised number."""
    first = Recorder()
    with first.listening():
        found = step.release(step.tally(step.encode(one, public), public), public, words)
    second = Recorder(repeat=first)
    with second.listening():
        again = step.release(step.tally(step.encode(other, public), public), public, words)
    assert shown(found) == shown(again), "what is released depends on more than the noised numbers"
    lost = []
    for (a, scale_a, epsilon_a), (b, scale_b, epsilon_b) in zip(first.given, second.given, strict=True):
        assert (scale_a, epsilon_a) == (scale_b, epsilon_b), "the scale of the noise depends on private data"
        lost.append(float(np.abs(a - b).max()) * epsilon_a / scale_a)
    return lost


def shown(found: Any) -> Any:
    """Everything public of a result."""
    if isinstance(found, dict):
        return found
    return [float(x) for x in (found.value, found.lower, found.upper, found.stderr, found.unclipped)], found.stages
