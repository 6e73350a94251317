"""Exact losses of every report of Kent's estimators, with the mistakes of the paper as twins that
fail the same audit.

A report is public columns (a place, a seed: functions of who the user is) and parts that are
random: rows of bits, whose probabilities are counted on the code as it runs for every row that some
data lead to, and numbers from channels, whose masses are counted for every value that some data
lead to. Losses of parts with bits of their own add up.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from meanstream.lab.evidence.local_audit import (
    TOLERANCE,
    bit_probabilities,
    worst_bits_loss,
    worst_window_loss,
)
from meanstream.lab.papers.kent.cover import CoverSelect
from meanstream.lab.papers.kent.folds import FoldRound, Folds
from meanstream.lab.papers.kent.hash_vote_stage import HashVoteRound
from meanstream.lab.papers.kent.kent_vectors import Linf
from meanstream.lab.papers.kent.mixture import Mixture
from meanstream.lab.papers.kent.mixture_stages import ComponentMeanRound
from meanstream.lab.papers.kent.public_hash import hash_seeds, hash_signs, hash_users
from meanstream.lab.papers.kent.sparse import SparseSelect
from meanstream.lab.papers.kent.univariate import Kent
from meanstream.lab.random_words import SeededWords
from meanstream.lab.simulation.vector_laws import vector_law_summaries
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.channels.registry import make_channel
from meanstream.operators.rounds.channels.window_channel import OneBitChannel, WindowChannel
from meanstream.operators.rounds.localization import Bins
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.rounds.votes.unary_votes import BinaryVotes, SymmetricVotes

SIZES = SizeDistribution.parse("two:5,100,0.5")
GRID = np.linspace(-1.0, 1.0, 41)
"""Means, the edges of bins of half-width .1 among them: means of lattice data fall on edges."""


def words(n: int) -> SeededWords:
    return SeededWords(np.random.default_rng(0), n)


def one_user(mean: Floats, count: int = 100) -> Summaries:
    """All of these means, as data that the same user might have."""
    given = vector_law_summaries(
        np.asarray(mean), np.full(len(mean), count), np.random.default_rng(0)
    )
    return replace(given, user=np.repeat(given.user[:1], len(given), axis=0))


# The audit of rows of bits


def rows_loss(votes: Any, rows: Bools) -> float:
    """Worst loss between any two of these rows, as the votes run."""
    if isinstance(votes, SymmetricVotes):
        assert (rows.sum(axis=1) <= 1).all()
        rows = np.where(rows.any(axis=1), rows.argmax(axis=1), -1)
    return worst_bits_loss(bit_probabilities(votes, np.unique(rows, axis=0), votes.bins))


class Unchecked(BinaryVotes):
    """Flips every bit as one-hot votes do, whatever the rows: what a mistaken host would run."""

    def __init__(self, epsilon: float, bins: int) -> None:
        super().__init__(epsilon, bins, bits=min(2, bins))
        self.bits = self.bins


def one_hot(which: Ints, bins: int) -> Bools:
    return np.asarray(which[:, None] == np.arange(bins))


@pytest.mark.parametrize("mode", ["paper", "tuned"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_one_hot_votes(epsilon: float, mode: str) -> None:
    kent = Kent(
        epsilon=epsilon,
        users=500,
        sizes=SIZES,
        mode=mode,
        half_width=0.1,
        votes="one_hot",
        threshold=100,
    )
    ballots = np.concatenate([kent.ballot(one_user(GRID, count)) for count in (5, 100)])
    assert set(ballots.tolist()) == set(range(-1, 10))
    votes = kent.rounds[0].votes  # type: ignore[attr-defined]
    loss = rows_loss(votes, one_hot(ballots, 10))
    assert epsilon - 1e-4 < loss <= epsilon + TOLERANCE


@pytest.mark.parametrize("half_width", [0.1, 0.21, 0.34, 0.6, 1.0])
@pytest.mark.parametrize("epsilon", [1.5, 4.0])
def test_three_hot_votes(epsilon: float, half_width: float) -> None:
    kent = Kent(
        epsilon=epsilon, users=500, sizes=SIZES, mode="paper", half_width=half_width, threshold=100
    )
    assert kent.votes == "three_hot"
    rows = np.concatenate([kent.neighbors(one_user(GRID, count)) for count in (5, 100)])
    assert rows_loss(kent.rounds[0].votes, rows) <= epsilon + TOLERANCE  # type: ignore[attr-defined]


def test_closed_bins_are_caught() -> None:
    """K3: a mean on an edge is in two closed bins."""
    bins = Bins(0.1)
    edges = [bins.edges(j) for j in range(bins.count)]
    closed = np.array([[low - 1e-12 <= x <= high + 1e-12 for low, high in edges] for x in GRID])
    assert rows_loss(Unchecked(1.0, 10), one_hot(bins.which(GRID), 10)) <= 1.0 + TOLERANCE
    assert rows_loss(Unchecked(1.0, 10), closed) > 1.9


def test_covers_and_overlapping_balls() -> None:
    """K2: votes for every ball that holds the mean."""
    centers = np.array([[-0.8], [-0.4], [0.0], [0.4], [0.8], [0.1]])
    cover = CoverSelect(epsilon=1.0, users=100, radius=0.3, centers=centers)
    holds = np.abs(GRID[:, None] - centers[:, 0]) <= 0.3
    assert holds.sum(axis=1).max() == 3
    assert (
        rows_loss(SymmetricVotes(1.0, 6), one_hot(cover.balls(GRID[:, None]), 6)) <= 1.0 + TOLERANCE
    )
    assert rows_loss(Unchecked(1.0, 6), one_hot(cover.balls(GRID[:, None]), 6)) <= 1.0 + TOLERANCE
    assert rows_loss(Unchecked(1.0, 6), holds) > 1.9


def test_the_cover_s_stage_sends_those_votes() -> None:
    cover = CoverSelect(epsilon=1.0, users=100, radius=0.3, dimension=2)
    given = one_user(np.stack([GRID, GRID[::-1]], axis=1))
    sent = cover.rounds[0].encode(given, {}, words(len(given)))
    expected = SymmetricVotes(1.0, len(cover.centers)).randomize(
        cover.balls(given.mean), words(len(given))
    )
    assert np.array_equal(sent, expected)


@pytest.mark.parametrize("mode", ["paper", "tuned"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_votes_for_components(epsilon: float, mode: str) -> None:
    mixture = Mixture(
        epsilon=epsilon,
        users=900,
        sizes=SIZES,
        components=3,
        half_width=0.08,
        mode=mode,
        threshold=100,
    )
    middles = np.array([-0.5, -0.1, 0.7])
    ballots = np.concatenate(
        [mixture.closest(one_user(GRID, count), middles) for count in (5, 100)]
    )
    assert set(ballots.tolist()) == {-1, 0, 1, 2}
    votes = mixture.rounds[1].votes  # type: ignore[attr-defined]
    assert votes.epsilon == epsilon
    if votes.name in {"sue", "oue"}:
        rows = np.unique(ballots)
        assert worst_bits_loss(bit_probabilities(votes, rows, 3)) <= epsilon + TOLERANCE
    else:  # audited in test_local_votes, with and without the zero row
        assert votes.name in {"krr", "subset"}
        assert votes.categories == 4


def test_widened_bins_are_caught() -> None:
    """K12: (53) with the bins widened by two half-widths, which overlap."""
    middles = np.array([-0.5, -0.1, 0.7])
    widened = np.abs(GRID[:, None] - middles) <= 0.3
    closest = np.abs(GRID[:, None] - middles).argmin(axis=1)
    assert rows_loss(Unchecked(1.0, 3), one_hot(closest, 3)) <= 1.0 + TOLERANCE
    assert rows_loss(Unchecked(1.0, 3), widened) > 1.4


# The audit of folds


@dataclass
class DrawsOf:
    """Random bits that remember which draws were asked for."""

    words: SeededWords
    draws: list[int]

    def __call__(self, draw: int) -> Any:
        self.draws.append(draw)
        return self.words(draw)


def folds_loss(stage: FoldRound, inner: Kent) -> float:
    """Worst loss of a report: places are those of the user, and losses of parts with different bits
    add up."""
    given = one_user(np.repeat(GRID[:, None], stage.folds.coordinates, axis=1))
    asked = DrawsOf(words(len(given)), [])
    reports = stage.encode(given, {}, asked)
    assert len(np.unique(reports[:, 0])) == 1
    assert len(set(asked.draws)) == len(asked.draws)
    ballots = np.concatenate([inner.ballot(one_user(GRID, count)) for count in (5, 100)])
    votes = inner.rounds[0].votes  # type: ignore[attr-defined]
    return stage.folds.participation * rows_loss(votes, one_hot(ballots, inner.bins.count))


@pytest.mark.parametrize(
    ("epsilon", "mode"), [(0.7, "paper"), (1.5, "paper"), (2.5, "paper"), (3.9, "tuned")]
)
def test_folds(epsilon: float, mode: str) -> None:
    mean = Linf(
        epsilon=epsilon,
        users=900,
        sizes=SIZES,
        dimension=4,
        half_width=0.1,
        mode=mode,
        threshold=100,
    )
    assert isinstance(mean.inner, Kent)
    stage = mean.rounds[0]
    assert isinstance(stage, FoldRound)
    loss = folds_loss(stage, mean.inner)
    assert epsilon - 1e-3 < loss <= epsilon + 1e-9
    for one in mean.rounds:
        assert one.epsilon == pytest.approx(epsilon)


def test_a_fold_too_many_is_caught() -> None:
    """K4: N_j to N_(j + floor(epsilon)) as printed, with a budget of 1 in each."""
    epsilon = 1.5
    inner = Kent(
        epsilon=1.0, users=200, sizes=SIZES, half_width=0.1, votes="one_hot", threshold=100
    )
    printed = FoldRound(inner.rounds[0], Folds(4, math.floor(epsilon) + 1, ""))
    assert folds_loss(printed, inner) > epsilon + 0.4
    assert printed.epsilon > epsilon
    fixed = FoldRound(inner.rounds[0], Folds(4, math.floor(epsilon), ""))
    assert folds_loss(fixed, inner) <= epsilon


@pytest.mark.parametrize(
    "name", ["kent.linf", "kent.l2", "kent.sparse_select", "kent.sparse_threshold", "kent.density"]
)
@pytest.mark.parametrize("mode", ["paper", "tuned"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 1.5, 4.2, 9.9])
def test_participation_times_budget(name: str, mode: str, epsilon: float) -> None:
    own: dict[str, Any] = {"terms": 9} if name == "kent.density" else {"dimension": 8}
    own |= {"sparsity": 3} if "sparse" in name else {}
    estimator: Any = build_estimator(
        name, epsilon=epsilon, users=2000, sizes=SIZES, mode=mode, **own
    )
    assert estimator.participation * estimator.inner.epsilon <= epsilon * (1 + 1e-12)
    for stage in estimator.rounds:
        assert stage.epsilon <= epsilon * (1 + 1e-12)
        if isinstance(stage, FoldRound):
            assert stage.inner.epsilon * stage.folds.participation <= epsilon * (1 + 1e-12)


# The audit of hashed numbers


class Spy:
    """A channel that remembers which values it was given, and answers 0."""

    def __init__(self, channel: WindowChannel) -> None:
        self.channel = channel
        self.epsilon = channel.epsilon
        self.moments = channel.moments
        self.seen: list[float] = []

    def randomize(self, x: Floats, words: Any, first_draw: int = 0) -> Ints:
        self.seen += np.asarray(x).tolist()
        return np.zeros(len(x), np.int64)


def hashed_loss(stage: Any, spy: Spy, given: Summaries, public: dict[str, Any]) -> float:
    """Worst loss of a report over all data of one user: its public columns, and the number as the
    channel runs."""
    reports = stage.encode(given, public, words(len(given)))
    if len(np.unique(reports[:, :-1], axis=0)) > 1:
        return math.inf  # only some data can lead to this report
    return worst_window_loss(spy.channel, np.unique(np.round(spy.seen, 12)).tolist())


MIDDLES = {"users": 9, "middles": [-0.5, -0.1, 0.7], "shares": [0.3] * 3, "share_stderr": [0.1] * 3}
CHANNELS = [OneBitChannel(1.0), make_channel("window", 4.0, second_moment=0.3)]


@pytest.mark.parametrize("channel", CHANNELS)
def test_hashed_marks(channel: WindowChannel) -> None:
    """All marks of four coordinates, of a user with any number of samples."""
    spy = Spy(channel)
    marks = np.array(list(itertools.product([0.0, 0.9], repeat=4)))
    given = one_user(marks)
    stage = HashVoteRound(
        lambda summaries: np.abs(summaries.mean) > 0.5,
        coordinates=4,
        clip=1.5,
        channel=spy,
        select=lambda *_: {},  # type: ignore[arg-type]
        most=4,
    )
    loss = hashed_loss(stage, spy, given, {})
    assert len(set(np.round(spy.seen, 9))) >= 3
    assert channel.epsilon - 1e-4 < loss <= channel.epsilon + TOLERANCE


def test_hashed_marks_of_the_estimator_are_protected_for_few_samples_too() -> None:
    for mode in ("paper", "tuned"):
        mean = SparseSelect(
            epsilon=1.0, users=900, sizes=SIZES, dimension=4, sparsity=2, threshold=100, mode=mode
        )
        vote = mean.rounds[0]
        assert isinstance(vote, HashVoteRound)
        assert vote.channel.epsilon == vote.epsilon == 1.0
        assert not mean.marks(one_user(np.ones((3, 4)), 5)).any()
        assert vote.encode(one_user(np.ones((3, 4)), 5), {}, words(3)).shape == (3, 2)


def test_marks_in_the_seed_are_caught() -> None:
    """A seed that is drawn from the data says which data."""

    class Twin(HashVoteRound):
        def encode(self, summaries: Summaries, public: Any, words: Any) -> Any:
            reports = super().encode(summaries, public, words)
            reports[:, 0] ^= self._marks(summaries).sum(axis=1)
            return reports

    given = one_user(np.array(list(itertools.product([0.0, 0.9], repeat=4))))
    for kind, caught in ((HashVoteRound, False), (Twin, True)):
        spy = Spy(CHANNELS[0])
        stage = kind(
            lambda s: np.abs(s.mean) > 0.5,
            coordinates=4,
            clip=1.5,
            channel=spy,
            select=lambda *_: {},  # type: ignore[arg-type]
            most=4,
        )
        assert (hashed_loss(stage, spy, given, {}) > 1.0 + TOLERANCE) == caught


@pytest.mark.parametrize("channel", CHANNELS)
def test_hashed_components(channel: WindowChannel) -> None:
    mixture = Mixture(
        epsilon=channel.epsilon,
        users=900,
        sizes=SIZES,
        components=3,
        half_width=0.08,
        threshold=100,
    )
    spy = Spy(channel)
    stage = ComponentMeanRound(spy, mixture.offset, 3, mixture._answer)  # type: ignore[arg-type]
    public = MIDDLES
    few = one_user(GRID, 5)
    given = one_user(GRID)
    loss = max(
        hashed_loss(stage, spy, given, public),
        hashed_loss(stage, spy, replace(few, user=given.user), public),
    )
    assert {-1.0, 0.0, 1.0} <= set(spy.seen) or min(spy.seen) < 0.0 < max(spy.seen)
    assert channel.epsilon - 1e-4 < loss <= channel.epsilon + TOLERANCE


def test_a_component_that_is_told_is_caught() -> None:
    """The distance is protected, and the bin it is from is not: what the hash is for."""

    class Twin(ComponentMeanRound):
        def encode(self, summaries: Summaries, public: Any, words: Any) -> Any:
            component, distance = self._offset(summaries, np.array(public["middles"]))
            return np.stack([component, self.channel.randomize(distance, words)], axis=1)

    mixture = Mixture(
        epsilon=1.0, users=900, sizes=SIZES, components=3, half_width=0.08, threshold=100
    )
    spy = Spy(CHANNELS[0])
    twin = Twin(spy, mixture.offset, 3, mixture._answer)  # type: ignore[arg-type]
    assert hashed_loss(twin, spy, one_user(GRID), MIDDLES) == math.inf


def test_seeds_and_signs_depend_on_the_user_alone() -> None:
    users = one_user(GRID).user
    assert len(np.unique(hash_seeds(hash_users(users, b"signs ")))) == 1
    first = hash_seeds(hash_users(users, b"signs "))
    assert np.array_equal(hash_signs(first, 9)[0], hash_signs(first, 9)[-1])


# Laplace noise of mode paper


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_laplace_noise_is_as_wide_as_the_window_it_is_used_in(epsilon: float) -> None:
    kent = Kent(epsilon=epsilon, users=500, sizes=SIZES, mode="paper", half_width=0.1)
    mixture = Mixture(
        epsilon=epsilon, users=900, sizes=SIZES, components=3, half_width=0.08, mode="paper"
    )
    select = SparseSelect(
        epsilon=epsilon, users=900, sizes=SIZES, dimension=4, sparsity=2, mode="paper"
    )
    window = kent.rounds[0].usual_window()  # type: ignore[attr-defined]
    for channel in (kent.channel(window), mixture.rounds[2].channel, select.rounds[0].channel):  # type: ignore[attr-defined]
        # Values lie on [-1, 1] after scaling, so their width is 2.
        assert channel.noise.scale * channel.step * epsilon >= 2.0
