"""The exact privacy loss of a central release.

Every noised number of two neighboring inputs, side by side.

A release draws discrete Laplace noise on integers, one after the other, and may choose what to
noise next by what came out. `loss` runs it on one input and then on a neighbor with the *same
outputs*, and adds up by how much each noised number moved, in units of its scale: the largest
log-likelihood ratio of these outputs.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from meanstream.lab.evidence.audit_record import require_as_audited
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Ints
from meanstream.operators.rounds.central_rounds import (
    central_gaussian,
    central_noised,
    central_noisy_argmax,
)
from meanstream.operators.rounds.round_records import Public, Summaries


class Recorder:
    """Stands for `central_noised`, `central_gaussian` and `central_noisy_argmax`.

    Remembers what they are given, or repeats answers.
    """

    def __init__(self, repeat: Recorder | None = None) -> None:
        self.given: list[tuple[Ints, int, float]] = []
        self.gave: list[int] = []
        self._repeat = repeat

    def noised(
        self, total: int, sensitivity: int, epsilon: float, words: RandomWords, draw: int
    ) -> int:
        """Stand for `central_noised`."""
        return self._record(
            np.array([total]),
            sensitivity,
            epsilon,
            lambda: central_noised(total, sensitivity, epsilon, words, draw),
        )

    def noisy_argmax(
        self,
        scores: Ints,
        sensitivity: int,
        epsilon: float,
        words: RandomWords,
        first_draw: int = 0,
    ) -> int:
        """Stand for `central_noisy_argmax`."""
        return self._record(
            scores,
            sensitivity,
            epsilon,
            lambda: central_noisy_argmax(scores, sensitivity, epsilon, words, first_draw),
        )

    def gaussian(
        self, total: int, sensitivity: int, stddev: float, words: RandomWords, draw: int
    ) -> int:
        """Stand for `central_gaussian`; what moves is counted in its standard deviations."""
        return self._record(
            np.array([total]),
            sensitivity,
            1.0 / stddev,
            lambda: central_gaussian(total, sensitivity, stddev, words, draw),
        )

    def _record(self, given: Ints, sensitivity: int, epsilon: float, draw: Any) -> int:
        self.given.append((given, sensitivity, epsilon))
        self.gave.append(draw() if self._repeat is None else self._repeat.gave[len(self.given) - 1])
        return self.gave[-1]

    @contextmanager
    def listening(self) -> Iterator[Recorder]:
        """Stand for all of them, in every module of estimators that imported them."""
        stands_for = {
            "central_noised": self.noised,
            "central_gaussian": self.gaussian,
            "central_noisy_argmax": self.noisy_argmax,
        }
        homes = ("meanstream.operators.estimators.", "meanstream.lab.papers.")
        known = [module for name, module in sys.modules.items() if name.startswith(homes)]
        with ExitStack() as patches:
            for module in known:
                for name, instead in stands_for.items():
                    if hasattr(module, name):
                        patches.enter_context(patch.object(module, name, instead))

            yield self


def loss(step: Any, one: Summaries, other: Summaries, public: Public, words: RandomWords) -> float:
    """Log-likelihood ratio, at most, of what `step` released about `one` if it had been about `other`."""
    return sum(losses(step, one, other, public, words))


def gaussian_shift(
    step: Any, one: Summaries, other: Summaries, public: Public, words: RandomWords
) -> float:
    """Standard deviations by which `other` moves all that `step` released with Gaussian noise."""
    return math.sqrt(sum(moved**2 for moved in losses(step, one, other, public, words)))


def losses(
    step: Any, one: Summaries, other: Summaries, public: Public, words: RandomWords
) -> list[float]:
    """Add up to `loss`: one for each noised number.

    Of Gaussian noise: by how many standard deviations each number moves.
    """
    first = Recorder()
    with first.listening():
        released = step.release(step.tally(step.encode(one, public), public), public, words)

    second = Recorder(repeat=first)
    with second.listening():
        repeated = step.release(step.tally(step.encode(other, public), public), public, words)

    require_as_audited(
        _shown(released) == _shown(repeated), "the release depends on more than the noisy numbers"
    )
    lost = []

    for (a, scale_a, epsilon_a), (b, scale_b, epsilon_b) in zip(
        first.given, second.given, strict=True
    ):
        same = (scale_a, epsilon_a) == (scale_b, epsilon_b)
        require_as_audited(same, "the scale of the noise depends on private data")
        lost.append(float(np.abs(a - b).max()) * epsilon_a / scale_a)

    return lost


def _shown(found: Any) -> Any:
    """Everything public of a result."""
    if isinstance(found, dict):
        return found
    return [
        float(x) for x in (found.value, found.lower, found.upper, found.stderr, found.unclipped)
    ], found.stages


def replaced_user(given: Summaries, who: int, count: int, share: float, first: float) -> Summaries:
    """Give the same users, but one of them holds other samples."""
    counts = given.count.copy()
    totals = given.total.copy()
    firsts = given.first.copy()
    counts[who] = count
    totals[who] = round(share * count) * given.span
    firsts[who] = round(first) * given.span

    return replace(given, count=counts, total=totals, first=firsts)


def central_neighbors(
    given: Summaries, rng: np.random.Generator, *, same_size: bool, number: int
) -> Iterator[tuple[Summaries, Summaries]]:
    """Give pairs of inputs that differ in all that one user holds.

    Extremes first, then random ones.
    """
    extremes = list(itertools.product((1, 2, 8, 64, 10**6), (0.0, 0.3, 0.31, 1.0)))
    pairs = list(itertools.combinations(extremes, 2))
    _, of_each_size = np.unique(given.count, return_index=True)
    for index in range(number):
        who = int(rng.integers(len(given)))
        one, other = pairs[int(rng.integers(len(pairs)))]
        if same_size and index % 2:
            size = int(given.count[who])
            yield (
                replaced_user(given, who, size, one[1], 0.0),
                replaced_user(given, who, size, other[1], 1.0),
            )
        elif same_size:  # from one bound to the other, of each size in turn
            who = int(of_each_size[index // 2 % len(of_each_size)])
            size = int(given.count[who])
            yield (
                replaced_user(given, who, size, 0.0, 0.0),
                replaced_user(given, who, size, 1.0, 1.0),
            )
        elif index % 2:
            yield replaced_user(given, who, *one, 0.0), replaced_user(given, who, *other, 1.0)
        else:
            size = int(rng.integers(1, 200))
            yield (
                given,
                replaced_user(given, who, size, float(rng.random()), float(rng.integers(2))),
            )
