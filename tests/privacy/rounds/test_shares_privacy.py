"""Votes for categories: the exact worst loss of a report, whatever a user's samples are, and
mistakes that this finds.

Users are enumerated: all counts of up to three samples of three categories. The draw of a sample is
enumerated by its remainder, the vote by the bits that lead to each report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import product
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
from meanstream.operators.estimators.category_shares import CategoryShares
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Ints, Words
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.votes.registry import make_votes

CATEGORIES, MOST = 3, 3
COUNTS = [
    counts for counts in product(range(MOST + 1), repeat=CATEGORIES) if 0 < sum(counts) <= MOST
]
EPSILONS = (0.1, 1.0, 4.0)

Encode = Callable[[Any, Summaries, RandomWords], Ints]
Law = dict[tuple[int, ...], float]


def honest(step: Any, held: Summaries, words: RandomWords) -> Ints:
    return np.asarray(step.encode(held, {}, words))


def held_by(counts: tuple[int, ...], n: int) -> Summaries:
    total = np.tile(np.array(counts, np.int64), (n, 1))
    users = np.arange(2 * n, dtype=np.uint64).reshape(n, 2)
    return Summaries(
        user=users, count=total.sum(axis=1), total=total, first=np.minimum(total, 1), span=1
    )


class FirstDraw:
    """The bits of the first draw are chosen, those of the others given."""

    def __init__(self, drawn: int, others: RandomWords, n: int) -> None:
        self._first = np.full((n, 2), drawn << 1, np.uint64)
        self._others = others

    def __call__(self, draw: int) -> Words:
        return self._first if draw == 0 else self._others(draw - 1)


def krr_law(estimator: CategoryShares, counts: tuple[int, ...], encode: Encode) -> Law:
    """Probability of each report of a user with these samples, as the code runs on chosen bits."""
    votes: Any = estimator.rounds[0]._votes
    found: Law = defaultdict(float)
    others = votes.categories - 1
    edges = [i * votes.unlikely_mass for i in range(others + 1)] + [2**63]
    for drawn in range(sum(counts)):

        def respond(numbers: Words, drawn: int = drawn) -> Ints:
            words = np.column_stack([numbers << np.uint64(1), np.zeros(len(numbers), np.uint64)])
            held = held_by(counts, len(numbers))
            return encode(
                estimator.rounds[0], held, FirstDraw(drawn, ChosenWords(words), len(numbers))
            )[:, 0]

        for report, mass in interval_masses(respond, edges).items():
            found[report,] += mass / 2**63 / sum(counts)
    return found


def unary_law(estimator: CategoryShares, counts: tuple[int, ...], encode: Encode) -> Law:
    """The same of a row of bits: each bit's probability is exact, and bits of one draw of a sample
    are independent."""
    found: Law = defaultdict(float)
    for drawn in range(sum(counts)):

        class Vote:
            @staticmethod
            def randomize(rows: Ints, words: RandomWords, drawn: int = drawn) -> Ints:
                n = len(rows)
                return encode(estimator.rounds[0], held_by(counts, n), FirstDraw(drawn, words, n))

        one = bit_probabilities(Vote, np.zeros(1, np.int64), CATEGORIES)[0]
        for bits in product((0, 1), repeat=CATEGORIES):
            chance = float(
                np.prod([p if bit else 1.0 - p for bit, p in zip(bits, one, strict=True)])
            )
            found[bits] += chance / sum(counts)
    return found


LAWS = {"krr": krr_law, "oue": unary_law, "sue": unary_law}


def loss(votes: str, epsilon: float, encode: Encode = honest) -> float:
    estimator = CategoryShares(epsilon=epsilon, users=100, categories=CATEGORIES, votes=votes)
    return worst_loss(LAWS[votes](estimator, counts, encode) for counts in COUNTS)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("votes", LAWS)
def test_no_two_users_can_be_told_apart_beyond_epsilon(votes: str, epsilon: float) -> None:
    found = loss(votes, epsilon)
    assert found <= epsilon + TOLERANCE
    assert found > epsilon - 1e-4  # the whole budget is used


def test_a_set_is_drawn_for_one_category_whatever_the_user_holds() -> None:
    """Subset selection itself is enumerated in test_local_votes.py; here it is given one category
    of each user."""
    seen: list[Ints] = []
    estimator = CategoryShares(epsilon=1.0, users=100, categories=CATEGORIES, votes="subset")
    step: Any = estimator.rounds[0]
    inner = step._votes.randomize

    def watched(row: Ints, words: RandomWords, first_draw: int = 0) -> Ints:
        assert first_draw == 1  # the draw that chose the sample is not used again
        seen.append(row)
        return np.asarray(inner(row, words, first_draw))

    step._votes.randomize = watched
    for counts in COUNTS:
        for drawn in range(sum(counts)):
            honest(
                step,
                held_by(counts, 1),
                FirstDraw(drawn, ChosenWords(np.zeros((1, 8), np.uint64)), 1),
            )
            assert seen[-1].shape == (1,)
            assert counts[int(seen[-1][0])] > 0


# Known-bad twins


def every_category(step: Any, held: Summaries, words: RandomWords) -> Ints:
    """Votes for each category of which the user has a sample: rows differ in more places than the
    budget pays for."""
    votes = step._votes
    rows = [
        votes.randomize(np.where(held.total[:, c] > 0, c, -1), words, 1) for c in range(CATEGORIES)
    ]
    return np.asarray(np.bitwise_or.reduce(rows))


def silent_if_undecided(step: Any, held: Summaries, words: RandomWords) -> Ints:
    """Abstains where the samples are of several categories: tells that they are."""
    undecided = (held.total > 0).sum(axis=1) > 1
    return np.asarray(np.where(undecided[:, None], -1, honest(step, held, words)))


def without_the_largest(step: Any, held: Summaries, words: RandomWords) -> Ints:
    """Names the most frequent category as it is where the user has many samples."""
    sure = held.total.max(axis=1) >= MOST
    return np.asarray(
        np.where(sure[:, None], held.total.argmax(axis=1)[:, None], honest(step, held, words))
    )


@pytest.mark.parametrize(
    ("votes", "twin"),
    [
        ("oue", every_category),
        ("krr", silent_if_undecided),
        ("krr", without_the_largest),
    ],
)
def test_known_bad_twins_lose_more(votes: str, twin: Encode) -> None:
    assert loss(votes, 1.0, twin) > 1.0 + 0.1


def test_a_vote_with_too_little_noise_loses_more() -> None:
    strong: Any = make_votes("krr", 1.5, CATEGORIES, zero_row=False)
    estimator = CategoryShares(epsilon=1.0, users=100, categories=CATEGORIES, votes="krr")
    estimator.rounds[0]._votes = strong  # type: ignore[attr-defined]
    assert worst_loss(krr_law(estimator, counts, honest) for counts in COUNTS) > 1.4
