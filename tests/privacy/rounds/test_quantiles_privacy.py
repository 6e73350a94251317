"""Votes for bins of a user's mean: the exact worst loss of each level, and mistakes that this
finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meanstream.lab.evidence.local_audit import (
    TOLERANCE,
    ChosenWords,
    bit_probabilities,
    interval_masses,
    worst_loss,
)
from meanstream.operators.estimators.quantile_search import GRID, QuantileSearch
from meanstream.operators.estimators.quantile_tree import QuantileTree
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Floats, Ints, Words
from meanstream.operators.rounds.round_records import Summaries

SPAN = 2**20
Encode = Callable[[Any, Summaries, RandomWords], Ints]


def honest(step: Any, held: Summaries, words: RandomWords) -> Ints:
    return np.asarray(step.encode(held, {"levels": []}, words))


def users_of_all_kinds(bins: int) -> Summaries:
    """Means on, below and above the edges of every bin, with few samples and with many."""
    edges = np.linspace(0, SPAN, bins + 1)
    place = np.unique(
        np.clip(np.concatenate([edges, edges - 1, edges + 1]), 0, SPAN).astype(np.int64)
    )
    count, place = (a.ravel() for a in np.meshgrid([1, 5], place))
    ids = np.arange(2 * len(count), dtype=np.uint64).reshape(-1, 2)
    return Summaries(user=ids, count=count, total=count * place, first=place, span=SPAN)


def krr_loss(step: Any, encode: Encode) -> float:
    """Worst loss of a level that votes by randomized response, between any two users."""
    votes = step._votes
    everyone = users_of_all_kinds(votes.bins)
    edges = [i * votes.unlikely_mass for i in range(votes.categories)] + [2**63]

    def law(user: int) -> dict[int, int]:
        def respond(numbers: Words) -> Ints:
            words = np.column_stack([numbers << np.uint64(1), np.zeros(len(numbers), np.uint64)])
            return encode(step, everyone.take(np.full(len(numbers), user)), ChosenWords(words))[
                :, 0
            ]

        return interval_masses(respond, edges)

    return worst_loss(map(law, range(len(everyone))))


def bits_loss(step: Any, encode: Encode) -> float:
    """The same of rows of independent bits: the sum over bits of the worst of both ratios, which
    some report has."""
    votes = step._votes
    everyone = users_of_all_kinds(votes.bins)

    class Vote:
        @staticmethod
        def randomize(rows: Ints, words: RandomWords) -> Ints:
            return encode(step, everyone.take(rows), words)

    one: Floats = np.unique(bit_probabilities(Vote, np.arange(len(everyone)), votes.bins), axis=0)
    worst = 0.0
    for row in one:
        with np.errstate(divide="ignore", invalid="ignore"):  # what only some can send
            ratio = np.maximum(np.log(one / row), np.log((1.0 - one) / (1.0 - row)))
        worst = max(worst, float(np.where(one == row, 0.0, ratio).sum(axis=1).max()))
    return worst


def losses(epsilon: float, users: int, encode: Encode = honest) -> list[float]:
    tree = QuantileTree(epsilon=epsilon, users=users, quantiles=(0.5,))
    kinds = [(step, vote.name) for step, vote in zip(tree.rounds, tree.votes, strict=True)]
    return [(krr_loss if kind == "krr" else bits_loss)(step, encode) for step, kind in kinds]


@pytest.mark.parametrize(
    ("epsilon", "users"), [(0.3, 1000), (1.0, 1000), (1.0, 100_000), (4.0, 1000)]
)
def test_no_two_users_can_be_told_apart_beyond_epsilon_on_any_level(
    epsilon: float, users: int
) -> None:
    found = losses(epsilon, users)
    assert max(found) <= epsilon + TOLERANCE
    assert min(found) > epsilon - 1e-4  # the whole budget is used


THRESHOLDS = [1, GRID // 3, GRID // 3, GRID // 2, GRID - 2, GRID - 1]


def honest_bit(step: Any, held: Summaries, words: RandomWords) -> Ints:
    public = {"levels": [], "answered": [], "thresholds": THRESHOLDS}
    return np.asarray(step.encode(held, public, words))


def threshold_loss(epsilon: float, encode: Encode = honest_bit) -> float:
    """Worst loss between any two users, over every threshold that the bits of the choice can name."""
    search = QuantileSearch(epsilon=epsilon, users=10_000, quantiles=(0.2, 0.5))
    step = search.rounds[-1]
    everyone = users_of_all_kinds(12)
    edges = [0, search.bit.unlikely_mass, 2**63]
    worst = 0.0

    for choice in range(len(THRESHOLDS)):
        # The bits of the choice are the same whatever the user holds: one law for each choice.
        number = np.uint64((choice * 2**64 + 2**63) // len(THRESHOLDS))

        def law(user: int, number: np.uint64 = number) -> dict[int, int]:
            def respond(numbers: Words) -> Ints:
                nothing = np.zeros(len(numbers), np.uint64)
                chosen = np.full(len(numbers), number)
                words = np.column_stack([numbers << np.uint64(1), nothing, chosen, nothing])
                held = everyone.take(np.full(len(numbers), user))
                return encode(step, held, ChosenWords(words))[:, 0]

            return interval_masses(respond, edges)

        worst = max(worst, worst_loss(map(law, range(len(everyone)))))
    return worst


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_a_bit_about_a_threshold_spends_epsilon_and_no_more(epsilon: float) -> None:
    found = threshold_loss(epsilon)
    assert found <= epsilon + TOLERANCE
    assert found > epsilon - 1e-4


# Known-bad twins


def closest_threshold(step: Any, held: Summaries, words: RandomWords) -> Ints:
    """Answers about the threshold that is closest to its mean: the choice is not private."""
    bit = honest_bit(step, held, words) % 2
    places = 2.0 * np.array(THRESHOLDS) / GRID - 1.0
    chosen = np.abs(held.mean[:, None] - places).argmin(axis=1)
    return 2 * chosen[:, None] + bit


def silent_with_few_samples_bit(step: Any, held: Summaries, words: RandomWords) -> Ints:
    """Sends a report of its own for few samples: tells their number."""
    return np.where(held.count[:, None] < 5, 0, honest_bit(step, held, words))


def sure_far_away(step: Any, held: Summaries, words: RandomWords) -> Ints:
    """Answers without noise where its mean is far from every threshold."""
    report = honest_bit(step, held, words)
    return np.where(np.abs(held.mean[:, None]) > 0.9, report - report % 2, report)


@pytest.mark.parametrize("twin", [closest_threshold, sure_far_away, silent_with_few_samples_bit])
def test_known_bad_twins_of_thresholds_lose_more(twin: Encode) -> None:
    assert threshold_loss(1.0, twin) > 1.0 + 0.1


def two_bins_at_an_edge(step: Any, held: Summaries, words: RandomWords) -> Ints:
    """Closed bins: a mean on an edge votes for both of its neighbors."""
    votes, place = step._votes, 0.5 * (held.mean + 1.0) * step._votes.bins
    own = np.clip(np.floor(place).astype(np.int64), 0, votes.bins - 1)
    on_edge = np.where((place == np.floor(place)) & (own > 0), own - 1, -1)
    if votes.name == "krr":
        return honest(step, held, words)
    return np.asarray(votes.randomize(own, words) | votes.randomize(on_edge, words))


def silent_with_few_samples(step: Any, held: Summaries, words: RandomWords) -> Ints:
    """Sends an empty vote for few samples: tells their number."""
    return np.asarray(np.where(held.count[:, None] < 5, -1, honest(step, held, words)))


@pytest.mark.parametrize("twin", [two_bins_at_an_edge, silent_with_few_samples])
def test_known_bad_twins_lose_more(twin: Encode) -> None:
    found = losses(1.0, 1000, twin)
    assert max(found) > 1.0 + 0.1
