"""Every report of the honest default, counted exactly as its stage makes it, for users and public
values it can meet.

Audited is `encode` itself, window, bins and all: a stage is put behind the interface of the channel
or vote that the counting functions know. Known-bad twins fail the same counts.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from meanstream.lab.evidence.local_audit import (
    TOLERANCE,
    ChosenWords,
    bit_probabilities,
    interval_masses,
    subset_pmf,
    window_masses,
    worst_bits_loss,
    worst_loss,
)
from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.adaptive import adaptive_stages
from meanstream.operators.estimators.adaptive.adaptive import Adaptive
from meanstream.operators.estimators.adaptive.adaptive_design import (
    AdaptiveFound,
    adaptive_design_cut_window,
)
from meanstream.operators.estimators.adaptive.adaptive_scale import scale_bin
from meanstream.operators.estimators.adaptive.adaptive_stages import ReportStage, VoteStage
from meanstream.operators.noise.random_bits import RandomWords, random_bits_32
from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import best_channel
from meanstream.operators.rounds.channels.window_channel import WindowChannel
from meanstream.operators.rounds.round_protocol import assign_protocol_stages
from meanstream.operators.rounds.round_records import Public, Reports, Summaries, Tally
from meanstream.operators.rounds.votes.choice_votes import RandomizedResponseVotes, SubsetVotes
from meanstream.operators.rounds.votes.registry import make_votes
from meanstream.operators.rounds.votes.unary_votes import SymmetricVotes
from meanstream.operators.rounds.votes.vote_packing import pack_votes

EPSILONS = (0.3, 1.0, 2.5)
"""In each, another channel or another kind of votes is best."""
USERS = 200_000
SPAN = 40


def users_of(means: Floats, *, size: int = 1) -> Summaries:
    """One user for each mean on the grid of 40 steps, with so many equal samples."""
    grid = np.rint((np.asarray(means) + 1.0) * SPAN / 2).astype(np.int64)
    n = len(grid)
    count = np.full(n, size)
    return Summaries(
        user=np.zeros((n, 2), np.uint64), count=count, total=grid * count, first=grid, span=SPAN
    )


INPUTS = np.linspace(-1.0, 1.0, SPAN + 1)


def built(epsilon: float) -> Adaptive:
    estimator = Adaptive(epsilon=epsilon, users=USERS)
    assert len(estimator.rounds) == 5
    return estimator


def publics(estimator: Adaptive) -> list[list[Public]]:
    """What may be public before each stage: from no reports, and from reports and votes that say
    most different things.

    Every one is made by `decode` of the stages before, so it can be reached.
    """
    known: list[list[Public]] = [[{}]]
    for stage in estimator.rounds[:-1]:
        found = {}
        for public in known[-1]:
            for tally in tallies(stage, public):
                after = stage.decode(tally, public)
                assert isinstance(after, dict)
                found[after.get("mode"), repr(after.get("window")), after.get("moment")] = after
        known.append([one for mode in (None, "wide", "narrow") for one in _few(found, mode)])
    return known


def _few(found: dict[tuple[Any, ...], Public], mode: str | None) -> list[Public]:
    of_mode = [public for key, public in found.items() if key[0] == mode]
    return of_mode[:: max(1, len(of_mode) // 3)]


def tallies(stage: Any, public: Public) -> list[Tally]:
    n = 4000
    if isinstance(stage, VoteStage) and stage.is_vote(AdaptiveFound.known(public)):
        votes: Any = stage._votes(AdaptiveFound.known(public))
        named = [
            np.where(np.arange(votes.bins) == own, votes.likely, votes.unlikely)
            for own in range(0, votes.bins, 2)
        ]
        return [Tally(), *(Tally(n, tuple(int(n * p) for p in row)) for row in named)]
    report = stage._report if isinstance(stage, VoteStage) else stage
    step = report.channel(AdaptiveFound.known(public)).step
    sums = [round(position * n / step) for position in (-1.0, -0.4, 0.0, 0.3)]
    return [
        Tally(),
        *(Tally(n, (total, round(4.0 * n / step**2) + total**2 // n + 1)) for total in sums),
    ]


class AsChannel:
    """A report stage behind the interface of a channel on users' means."""

    def __init__(self, stage: ReportStage, public: Public) -> None:
        channel = stage.channel(AdaptiveFound.known(public))
        assert isinstance(channel, WindowChannel)
        self._stage, self._public = stage, public
        self.points, self.window = channel.points, channel.window
        self.unlikely, self.likely = channel.unlikely, channel.likely

    def randomize(self, x: Floats, words: RandomWords) -> Ints:
        return self._stage.encode(users_of(x), self._public, words)[:, 0]


def report_loss(stage: ReportStage, public: Public, inputs: Floats = INPUTS[::10]) -> float:
    """Worst loss of a report between any two users, whichever way a place is rounded at random."""
    channel: Any = AsChannel(stage, public)
    return worst_loss(
        window_masses(channel, x, rounded_up=up) for x in inputs for up in (False, True)
    )


class AsVotes:
    """A vote stage behind the interface of votes: bins become users whose deviation lies in
    them."""

    def __init__(self, stage: VoteStage, public: Public, means: Floats) -> None:
        self._stage, self._public, self._means = stage, public, np.asarray(means)

    def randomize(self, row: Ints, words: RandomWords) -> Reports:
        return self._stage.encode(users_of(self._means[row]), self._public, words)


def inputs_by_bin(stage: VoteStage, public: Public) -> dict[int, Floats]:
    row = scale_bin(
        np.abs(INPUTS - public.get("center", 0.0)), stage._edges(AdaptiveFound.known(public))
    )
    return {int(own): INPUTS[row == own] for own in np.unique(row)}


def vote_loss(stage: VoteStage, public: Public, counted: set[tuple[str, int]]) -> float | None:
    """Worst loss of a vote between any two users, for the smallest and the largest mean of every
    bin.

    None for sets that have been counted for this stage with other edges.
    """
    votes: Any = stage._votes(AdaptiveFound.known(public))
    found: list[Any] = []
    by_bin = inputs_by_bin(stage, public)
    if isinstance(votes, RandomizedResponseVotes):
        means = [mean for in_bin in by_bin.values() for mean in (in_bin[0], in_bin[-1])]
        return worst_loss(response_masses(stage, public, mean, votes) for mean in means)
    # Listing sets takes long: two bins are counted, the others vote like them, bit for bit, but for
    # the bin's name.
    assert isinstance(votes, SubsetVotes)
    for own, in_bin in by_bin.items():
        words = SeededWords(np.random.default_rng(own), len(in_bin))
        expected = votes.randomize(np.full(len(in_bin), own), words)
        assert (stage.encode(users_of(in_bin), public, words) == expected).all()
    if (stage.name, votes.bins) in counted:
        return None
    counted.add((stage.name, votes.bins))
    for own in (min(by_bin), max(by_bin)):
        users: Any = AsVotes(stage, public, np.full(votes.bins, by_bin[own][0]))
        found.append(subset_pmf(users, own, votes.categories))
    return worst_loss(found)


def response_masses(
    stage: VoteStage, public: Public, mean: float, votes: RandomizedResponseVotes
) -> dict[int, int]:
    def respond(numbers: Words) -> Ints:
        words = ChosenWords(np.column_stack([numbers << np.uint64(1), numbers]))
        return stage.encode(users_of(np.full(len(numbers), mean)), public, words)[:, 0]

    others = votes.categories - 1
    return interval_masses(respond, [*(i * votes.unlikely_mass for i in range(others + 1)), 2**63])


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_every_report_of_every_stage(epsilon: float) -> None:
    estimator = built(epsilon)
    seen = set()
    counted: set[tuple[str, int]] = set()
    stages: Any = estimator.rounds
    for stage, known in zip(stages, publics(estimator), strict=True):
        for public in known:
            is_vote = isinstance(stage, VoteStage) and stage.is_vote(AdaptiveFound.known(public))
            seen.add((stage.name, public.get("mode"), is_vote))
            if is_vote:
                loss = vote_loss(stage, public, counted)
            else:
                loss = report_loss(stage._report if isinstance(stage, VoteStage) else stage, public)
            assert loss is None or epsilon - 1e-3 < loss <= epsilon + TOLERANCE, (
                stage.name,
                public,
            )
    assert {
        ("scale", None, True),
        ("scale again", "narrow", True),
        ("scale again", "wide", False),
    } <= seen
    assert {("last", "narrow", False), ("last", "wide", False), ("narrow", "narrow", False)} <= seen


def test_one_message_per_user_whatever_it_holds() -> None:
    """Nobody is left out, a report has as many integers for all, and the size matters through the
    mean only."""
    estimator = built(1.0)
    for stage, known in zip(estimator.rounds, publics(estimator), strict=True):
        for public in known:
            few, many = users_of(INPUTS), users_of(INPUTS, size=1000)
            reports = [
                stage.encode(who, public, SeededWords(np.random.default_rng(3), len(who)))
                for who in (few, many)
            ]
            assert (reports[0] == reports[1]).all()
            assert len(reports[0]) == len(INPUTS)
            assert stage.valid(reports[0], public).all()


def test_stages_share_no_user_and_look_at_no_data() -> None:
    shares = built(1.0).shares
    ids = np.random.default_rng(5).integers(0, 2**64, (1000, 2), dtype=np.uint64)
    stage = assign_protocol_stages(shares, ids, b"round")
    assert sum(shares) == pytest.approx(1.0)
    assert (assign_protocol_stages(shares, ids[::-1], b"round") == stage[::-1]).all()


def test_charge_is_one_report() -> None:
    estimator = built(0.7)
    assert all(stage.epsilon == estimator.epsilon == 0.7 for stage in estimator.rounds)


# Known-bad twins


class WideReports(ReportStage):
    """Cuts means to a window, but adds the noise of one half as wide."""

    def channel(self, known: AdaptiveFound) -> Mechanism:
        return best_channel(2.0 * self.epsilon, self.moment(known))


def test_twin_with_a_window_narrower_than_its_noise() -> None:
    plan = built(1.0).plan
    for public in ({}, {"n_users": 1, "mode": "narrow", "window": [0.2, 0.3], "moment": 0.06}):
        assert report_loss(ReportStage(plan, 2, "narrow"), public) <= 1.0 + TOLERANCE
        assert report_loss(WideReports(plan, 2, "narrow"), public) > 1.5


class ManyBins(VoteStage):
    """Votes for every bin that holds the deviation: more than one where bins overlap, or are closed
    on both sides."""

    overlap = 1e-12  # Means on an edge differ from it by the rounding of floats.

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        edges = self._edges(AdaptiveFound.known(public))
        low, high = np.r_[0.0, edges] - self.overlap, np.r_[edges, np.inf] + self.overlap
        deviation = np.abs(summaries.mean - public.get("center", 0.0))[:, None]
        return self._flip((low <= deviation) & (deviation <= high), words)

    def _flip(self, rows: Bools, words: RandomWords) -> Reports:
        votes = make_votes("sue", self.epsilon, rows.shape[1])
        assert isinstance(votes, SymmetricVotes)
        number = np.concatenate(
            [random_bits_32(words, draw) for draw in range(-(-rows.shape[1] // 4))], axis=1
        )
        return pack_votes(
            number[:, : rows.shape[1]]
            < np.where(rows, votes.set_own, votes.set_other).astype(np.uint32)
        )


class OverlappingBins(ManyBins):
    overlap = 0.06


def unary_loss(stage: VoteStage, public: Public, means: Sequence[float]) -> float:
    """Worst loss between these users when votes are bits that are flipped one by one."""
    rows = np.arange(len(means))
    users = AsVotes(stage, public, np.asarray(means))
    return worst_bits_loss(
        bit_probabilities(users, rows, len(stage._edges(AdaptiveFound.known(public))) + 1)
    )


@pytest.mark.parametrize("twin", [ManyBins, OverlappingBins])
def test_twins_with_closed_and_overlapping_bins(
    twin: type[ManyBins], monkeypatch: pytest.MonkeyPatch
) -> None:
    public: Public = {"n_users": 1, "center": 0.0, "center_stderr": 0.06}
    monkeypatch.setattr(
        adaptive_stages, "scale_votes", lambda epsilon, bins: make_votes("sue", epsilon, bins)
    )
    plan = built(1.0).plan
    good = VoteStage(plan, 1, "scale", first=True)
    # Means on an edge of two bins, as lattice data have them, and within bins.
    means = [0.0, 0.1, 0.2, 0.3, 0.4, 0.9]
    assert set(np.round(good._edges(AdaptiveFound.known(public)), 6)) >= {0.1, 0.2, 0.4}
    assert 1.0 - 1e-3 < unary_loss(good, public, means) <= 1.0 + TOLERANCE
    assert unary_loss(twin(plan, 1, "scale", first=True), public, means) > 1.4


class SmallUsersAbstain(VoteStage):
    """Users with one sample send nothing."""

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        return super().encode(summaries, public, words)[summaries.count > 1]


def test_twin_whose_small_users_abstain() -> None:
    stage = SmallUsersAbstain(built(1.0).plan, 1, "scale", first=True)
    who = users_of(INPUTS)
    assert len(stage.encode(who, {}, SeededWords(np.random.default_rng(3), len(who)))) != len(who)


def test_windows_that_decode_gives_lie_within_the_bounds() -> None:
    estimator = built(1.0)
    for public in itertools.chain(*publics(estimator)):
        center, half_width = adaptive_design_cut_window(*public.get("window", (0.0, 1.0)))
        assert -1.0 - 1e-12 <= center - half_width < center + half_width <= 1.0 + 1e-12
