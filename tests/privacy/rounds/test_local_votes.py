"""The votes' privacy, counted exactly on the code as it runs for all rows that users can have, and
twins that fail."""

import math
from typing import Any

import numpy as np
import pytest

from meanstream.lab.evidence.local_audit import (
    TOLERANCE,
    ChosenWords,
    bit_probabilities,
    response_masses,
    subset_pmf,
    worst_bits_loss,
    worst_loss,
)
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.round_records import Reports
from meanstream.operators.rounds.votes.choice_votes import RandomizedResponseVotes, SubsetVotes
from meanstream.operators.rounds.votes.registry import VOTES, make_votes
from meanstream.operators.rounds.votes.unary_votes import (
    BinaryVotes,
    OptimizedVotes,
    SymmetricVotes,
)

EPSILONS = (0.05, 0.3, 22 / 35, 1.0, 4.0, 8.0, 30.0)


def all_rows(bins: int) -> Ints:
    return np.arange(-1, bins)


def neighborhoods(bins: int) -> Bools:
    """Rows of DAME: a bin and its neighbors, and the row of zeros."""
    own = np.arange(bins)
    rows = np.abs(own[:, None] - own) <= 1
    return np.vstack([np.zeros(bins, np.bool_), rows])


# Unary


@pytest.mark.parametrize("bins", [1, 2, 5, 9])
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", ["sue", "oue"])
def test_unary(name: str, epsilon: float, bins: int) -> None:
    votes = make_votes(name, epsilon, bins)
    probability = bit_probabilities(votes, all_rows(bins), bins)
    loss = worst_bits_loss(probability)
    assert loss <= epsilon + TOLERANCE
    # Two different bins use the whole epsilon; a single bin can only be voted for or not.
    assert bins == 1 or loss > min(epsilon, 20.0) - 1e-4


@pytest.mark.parametrize("bins", [1, 2, 4, 5, 6, 7, 9])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_binary(epsilon: float, bins: int) -> None:
    votes = make_votes("binary", epsilon, bins)
    loss = worst_bits_loss(bit_probabilities(votes, neighborhoods(bins), bins))
    assert loss <= epsilon + TOLERANCE
    reached = max(int((a != b).sum()) for a in neighborhoods(bins) for b in neighborhoods(bins))
    assert loss > min(epsilon, 20.0) * reached / min(6, bins) - 1e-4


def test_bits_of_many_bins_are_alike() -> None:
    for name in ("sue", "oue"):
        rows = np.array([-1, 0, 61, 62, 69])
        probability = bit_probabilities(make_votes(name, 1.0, 70), rows, 70)
        own = np.arange(70) == rows[:, None]
        assert len(np.unique(probability[own])) == len(np.unique(probability[~own])) == 1


def test_binary_refuses_rows_beyond_its_budget() -> None:
    votes = BinaryVotes(1.0, 9, bits=2)
    with pytest.raises(ValueError, match="rows must have at most 1 bits set"):
        votes.randomize(neighborhoods(9), ChosenWords(np.zeros((10, 6), np.uint64)))


# Choices


@pytest.mark.parametrize("zero_row", [True, False])
@pytest.mark.parametrize("bins", [2, 3, 8, 64])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomized_response(epsilon: float, bins: int, zero_row: bool) -> None:
    votes = RandomizedResponseVotes(epsilon, bins, zero_row=zero_row)
    masses = [response_masses(votes, row) for row in range(-1 if zero_row else 0, bins)]
    assert all(sum(one.values()) == 2**63 and len(one) == bins + zero_row for one in masses)
    assert epsilon - 1e-4 < worst_loss(masses) <= epsilon + TOLERANCE


@pytest.mark.parametrize("zero_row", [True, False])
@pytest.mark.parametrize("bins", [2, 4])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 30.0])
def test_subset(epsilon: float, bins: int, zero_row: bool) -> None:
    votes = SubsetVotes(epsilon, bins, zero_row=zero_row)
    k = votes.categories
    pmfs = [subset_pmf(votes, row, k) for row in range(-1 if zero_row else 0, bins)]
    assert all(len(pmf) == math.comb(k, votes.members) for pmf in pmfs)
    assert all(abs(sum(pmf.values()) - 1.0) < 1e-12 for pmf in pmfs)
    assert min(epsilon, 20.0) - 1e-4 < worst_loss(pmfs) <= epsilon + TOLERANCE
    for row, pmf in zip(range(-1 if zero_row else 0, bins), pmfs, strict=True):
        named = [
            sum(p for members, p in pmf.items() if members >> bin_ & 1) for bin_ in range(bins)
        ]
        expected = np.where(np.arange(bins) == row, votes.likely, votes.unlikely)
        assert np.allclose(named, expected, rtol=0.0, atol=1e-12)


def test_subset_allows_for_the_rounding_of_many_steps() -> None:
    votes = SubsetVotes(1.0, 999)
    k, d = votes.categories, votes.members
    out = votes.out_mass / 2**53
    between_sets = math.log((1.0 - out) / out * (k - d) / d)
    assert between_sets + 2.0 * k * k / 2**53 <= 1.0


@pytest.mark.parametrize("name", VOTES)
def test_charge_is_epsilon(name: str) -> None:
    assert make_votes(name, 0.7, 5).spend() == 0.7


# Known-bad twins: how a mean becomes a row of bits


MEANS = np.linspace(-1.0, 1.0, 81)
EDGES = np.linspace(-1.0, 1.0, 5)


def half_open(means: Floats) -> Bools:
    """The right way: each mean lies in exactly one bin, the last of which is closed."""
    index = np.clip(np.searchsorted(EDGES, means, side="right") - 1, 0, 3)
    return np.asarray(index[:, None] == np.arange(4))


def closed(means: Floats) -> Bools:
    """Kent's Algorithm 10, line 1, as printed: a mean on an edge lies in two bins."""
    return np.asarray((means[:, None] >= EDGES[:-1]) & (means[:, None] <= EDGES[1:]))


def overlapping(means: Floats) -> Bools:
    """Kent's Algorithm 1, line 5, as printed: a vote for every ball that holds the mean, and balls
    overlap."""
    centers = 0.5 * (EDGES[:-1] + EDGES[1:])
    return np.asarray(np.abs(means[:, None] - centers) < 0.6)


def row_loss(rows: Bools) -> float:
    """Loss at epsilon 1 of rows that share the budget of one-hot rows: two bits."""
    reachable = np.unique(np.vstack([rows, np.zeros_like(rows[:1])]), axis=0)
    return worst_bits_loss(bit_probabilities(TrustingVotes(1.0, 4, bits=2), reachable, 4))


class TrustingVotes(BinaryVotes):
    """Randomises whatever row it is given, however many bits are set."""

    def randomize(self, rows: Bools, words: RandomWords, first_draw: int = 0) -> Reports:
        limit, self.bits = self.bits, self.bins
        reports = super().randomize(rows, words, first_draw)
        self.bits = limit
        return reports


def test_twins_with_overlapping_and_closed_bins() -> None:
    assert row_loss(half_open(MEANS)) <= 1.0 + TOLERANCE
    assert row_loss(closed(MEANS)) == pytest.approx(2.0, abs=1e-6)
    # Two neighboring balls against two others: four bits of half the budget each.
    assert row_loss(overlapping(MEANS)) == pytest.approx(2.0, abs=1e-6)


def test_twins_are_refused_by_the_votes_themselves() -> None:
    words = ChosenWords(np.zeros((len(MEANS), 2), np.uint64))
    BinaryVotes(1.0, 4, bits=2).randomize(half_open(MEANS), words)
    for bad in (closed, overlapping):
        with pytest.raises(ValueError, match="rows must have at most 1 bits set"):
            BinaryVotes(1.0, 4, bits=2).randomize(bad(MEANS), words)


# Known-bad twins: how a row is randomised


def test_twin_with_the_budget_of_one_bit() -> None:
    """Each bit of a one-hot row is given all of epsilon, as if two rows differed in one bit."""
    votes = BinaryVotes(1.0, 5, bits=1)
    rows = np.eye(5, dtype=np.bool_)
    assert (
        worst_bits_loss(bit_probabilities(SymmetricVotes(1.0, 5), all_rows(5), 5))
        <= 1.0 + TOLERANCE
    )
    trusting = TrustingVotes(1.0, 5, bits=1)
    assert worst_bits_loss(bit_probabilities(trusting, rows, 5)) > 1.9
    with pytest.raises(ValueError, match="at most 0 bits"):
        votes.randomize(rows, ChosenWords(np.zeros((5, 4), np.uint64)))


@pytest.mark.parametrize("build", [SymmetricVotes, OptimizedVotes])
def test_twin_that_rounds_thresholds_down(build: type[SymmetricVotes]) -> None:
    votes = build(1.0, 3)
    votes.set_other -= 4
    votes.set_own += 4
    assert worst_bits_loss(bit_probabilities(votes, all_rows(3), 3)) > 1.0 + TOLERANCE


class AbstainingVotes(SymmetricVotes):
    """Users without enough samples send a row of zeros as it is."""

    def randomize(self, row: Ints, words: RandomWords, first_draw: int = 0) -> Reports:
        reports = super().randomize(row, words, first_draw)
        return np.where(row[:, None] < 0, 0, reports)


def test_twin_whose_small_users_abstain() -> None:
    assert worst_bits_loss(bit_probabilities(AbstainingVotes(1.0, 4), all_rows(4), 4)) == math.inf


class HonestNone(RandomizedResponseVotes):
    """Says truly that it votes for none of the bins."""

    def randomize(self, row: Ints, words: RandomWords, first_draw: int = 0) -> Reports:
        return np.where(row[:, None] < 0, self.bins, super().randomize(row, words, first_draw))


def test_twin_that_shows_who_votes_for_none() -> None:
    votes = HonestNone(1.0, 4)
    assert worst_loss(response_masses(votes, row) for row in range(4)) <= 1.0 + TOLERANCE
    assert worst_loss(response_masses(votes, row) for row in range(-1, 4)) == math.inf


def test_twin_with_unlikely_masses_rounded_down() -> None:
    votes = RandomizedResponseVotes(1.0, 4)
    votes.unlikely_mass -= 2**25
    votes.likely_mass += 4 * 2**25
    assert worst_loss(response_masses(votes, row) for row in range(-1, 4)) > 1.0 + TOLERANCE


@pytest.mark.parametrize("change", [{"members": 1}, {"out_mass": 2**51}, {"out_mass": 0}])
def test_twin_with_sets_of_another_size(change: dict[str, Any]) -> None:
    """The probability of leaving the voter's bin out belongs to the size of the set."""
    votes = SubsetVotes(0.5, 4)
    assert votes.members == 2
    assert worst_loss(subset_pmf(votes, row, 5) for row in (0, 3)) <= 0.5 + TOLERANCE
    for name, value in change.items():
        setattr(votes, name, value)
    assert worst_loss(subset_pmf(votes, row, 5) for row in (0, 3)) > 0.5 + TOLERANCE
