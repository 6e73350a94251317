"""Windows that repeat: every report exactly epsilon-private whatever is carried, its noise of that
alone; and twins."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from meanstream.lab.evidence.audit_record import AuditFaultError
from meanstream.lab.evidence.local_audit import (
    TOLERANCE,
    response_masses,
    subset_pmf,
    window_masses,
    worst_loss,
)
from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.adaptive.adaptive_design import EVERYTHING
from meanstream.operators.estimators.carried.carried_design import carried_habits
from meanstream.operators.estimators.carried.carried_rounds import Carried
from meanstream.operators.estimators.carried.carried_stages import (
    NarrowReports,
    ReportsOnBounds,
    VotesForSpread,
)
from meanstream.operators.estimators.carried.carried_state import EDGES, CarriedState
from meanstream.operators.noise.keyed import NoiseIds, keyed_owner_words
from meanstream.operators.rounds.round_protocol import protocol_stages_of_positions, run_protocol
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries
from meanstream.operators.rounds.votes.choice_votes import RandomizedResponseVotes, SubsetVotes
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window
from tests.streaming.support.rounds_world import rounds_settings

SPAN = 1000
BINS = len(EDGES) + 1
EPSILONS = (0.3, 1.0, 4.0)


def users(counts: tuple[int, ...] = (1, 7, 10**6), places: int = 41) -> Summaries:
    """Users of all numbers of samples with means all over the range, both ends among them."""
    count = np.repeat(counts, places)
    total = np.rint(np.tile(np.linspace(0, SPAN, places), len(counts)) * count).astype(np.int64)
    words = np.zeros((len(count), 2), np.uint64)
    return Summaries(user=words, count=count, total=total, first=total // count, span=SPAN)


def a_window(
    estimator: Carried, center: float, rng: np.random.Generator, n: int = 3000
) -> Estimate:
    place = np.rint(SPAN * 0.5 * (rng.normal(center, 0.05, n).clip(-1.0, 1.0) + 1.0)).astype(
        np.int64
    )
    ones, words = np.ones(n, np.int64), np.zeros((n, 2), np.uint64)
    given = Summaries(user=words, count=ones, total=place, first=place, span=SPAN)
    stage = protocol_stages_of_positions(estimator.shares, rng.random(n))
    bits = [
        SeededWords(rng, int(np.sum(stage == number))) for number in range(len(estimator.rounds))
    ]
    return run_protocol(estimator, given, stage, bits)


def states(epsilon: float) -> Iterator[Public | None]:
    """What is carried into the first window, after some, after a jump; and states at the ends of
    what they can be."""
    first, rng, state = Carried(epsilon=epsilon, users=3000), np.random.default_rng(4), None
    yield state
    for center in (0.3, 0.3, 0.3, 0.3, -0.8, -0.8):
        state = first.carried_after(a_window(first.carrying(state), center, rng))
        yield state
    for center, half_width in product((-1.0, 0.02, 1.0), (1e-3, 0.2, 0.59)):
        yield CarriedState(
            windows=5,
            center=center,
            half_width=half_width,
            gain=0.5,
            missed=9.0,
            watching=False,
        ).plain()


CARRIED = (ReportsOnBounds, VotesForSpread)


def stages(epsilon: float) -> Iterator[tuple[Any, Public]]:
    """Every stage there is, with what those before it may have found."""
    first = Carried(epsilon=epsilon, users=3000)
    for state in states(epsilon):
        estimator = first.carrying(state)
        assert math.isclose(sum(estimator.shares), 1.0)
        assert len(estimator.shares) == len(estimator.rounds)
        # Stages of a watched window are enumerated in test_watched_privacy.
        own = [step for step in estimator.rounds if isinstance(step, CARRIED)]
        for step in own:
            for jump, mean in ((0, 0.3), (1, -40.0)):
                before: Public = {"n": 9, "mean": mean, "variance": 0.01, "jump": jump}
                voted = before | {"votes": [1] * BINS, "voters": BINS}
                known = {ReportsOnBounds: {}, VotesForSpread: before}
                yield step, known.get(type(step), voted)


class Sent:
    """What a stage sends for users of these numbers, as an audit of its channel or its votes asks
    for it."""

    def __init__(self, step: Any, given: Summaries, public: Public) -> None:
        self.votes = isinstance(step, VotesForSpread)
        self._step, self._given, self._public = step, given, public
        randomizer = step._votes if self.votes else step.channel(public)
        for name in ("points", "window", "likely", "unlikely", "categories", "unlikely_mass"):
            if hasattr(randomizer, name):
                setattr(self, name, getattr(randomizer, name))
        self.kind = type(randomizer)
        self._user = dict(
            zip(randomized(step, given, public).tolist(), range(len(given)), strict=True)
        )
        self.numbers = sorted(self._user)
        """What users randomize: a bin, or a place in the window; each by one user who has it."""

    def randomize(self, number: Any, words: Any) -> Any:
        rows = np.array([self._user[one] for one in np.asarray(number).tolist()], np.int64)
        sent = self._step.encode(self._given.take(rows), self._public, words)
        return sent if self.votes else sent[:, 0]

    @staticmethod
    def all_of_a_stage(step: Any, given: Summaries, public: Public) -> Any:
        return step.encode(given, public, SeededWords(np.random.default_rng(6), len(given)))

    @staticmethod
    def all_of_its_randomizer(step: Any, given: Summaries, public: Public) -> Any:
        words = SeededWords(np.random.default_rng(6), len(given))
        if isinstance(step, VotesForSpread):
            return step._votes.randomize(randomized(step, given, public), words)
        assert step.channel(public).epsilon == step.epsilon
        return step.channel(public).randomize(randomized(step, given, public), words)[:, None]


def randomized(step: Any, given: Summaries, public: Public) -> Any:
    """The only thing of a user that a report may be made of."""
    if isinstance(step, VotesForSpread):
        center = step._state.center if step._state.windows else public["mean"]
        return np.searchsorted(EDGES, np.abs(given.residual - center), side="right")
    center, half_width = window = step.window(public)
    value = given.mean if window == EVERYTHING else given.residual
    return ((value - center) / half_width).clip(-1.0, 1.0)


def loss_of(sent: Sent) -> float:
    """Worst loss between any two users: the code of the stage runs on chosen bits, and reports are
    counted."""
    asked: Any = sent
    if sent.kind is SubsetVotes:
        some = (
            sent.numbers[0],
            sent.numbers[-1],
        )  # seconds for each; of all pairs: test_local_votes
        return worst_loss(subset_pmf(asked, number, BINS) for number in some)
    if sent.kind is RandomizedResponseVotes:
        return worst_loss(response_masses(asked, number) for number in sent.numbers)
    middle = sent.numbers[len(sent.numbers) // 2]
    ends = {sent.numbers[0], sent.numbers[1 % len(sent.numbers)], middle, sent.numbers[-1]}
    return worst_loss(
        window_masses(asked, number, rounded_up=up) for number in ends for up in (False, True)
    )


@pytest.mark.parametrize(
    ("epsilon", "offset"), [*((epsilon, 0.0) for epsilon in EPSILONS), (1.0, 0.6)]
)
def test_every_report_is_epsilon_private_whatever_is_carried(epsilon: float, offset: float) -> None:
    """The offset is what a public forecast takes off the mean of a user, whoever it is."""
    given, fullest = users(), dict[Any, Sent]()
    given = replace(given, offset=np.full(len(given), offset))
    for step, public in stages(epsilon):
        assert step.epsilon == epsilon
        sent = Sent(step, given, public)
        # In every state users send what is counted below of the one in which they randomize the
        # most numbers.
        assert np.array_equal(
            *(one(step, given, public) for one in (Sent.all_of_a_stage, Sent.all_of_its_randomizer))
        )
        before = fullest.get((step.name, sent.kind))
        if before is None or len(sent.numbers) > len(before.numbers):
            fullest[step.name, sent.kind] = sent
    # At the largest epsilon so few users are answered without a carried window.
    narrow = {"narrow"} if epsilon < 4.0 else set()
    assert {name for name, _ in fullest} == {"on the bounds", "spread"} | narrow
    for sent in fullest.values():
        assert 0.99 * epsilon < loss_of(sent) <= epsilon + TOLERANCE


class _OutsidersOnBounds(NarrowReports):
    """Known-bad: who lies beyond the carried window reports on the bounds instead."""

    def encode(self, summaries: Summaries, public: Public, words: Any) -> Any:
        center, half_width = self.window(public)
        outside = np.abs(summaries.mean - center) > half_width
        wide = self._channel.randomize(summaries.mean, words)
        return np.where(outside[:, None], wide[:, None], super().encode(summaries, public, words))


class _NarrowIsDearer(NarrowReports):
    """Known-bad: a window narrower than the bounds counts as part of the budget only."""

    def channel(self, public: Public) -> Any:
        return Carried(epsilon=2.0 * self.epsilon, users=3000)._one_shot._channel


class _FarVotesPlainly(VotesForSpread):
    """Known-bad: who lies beyond the last edge says so."""

    def encode(self, summaries: Summaries, public: Public, words: Any) -> Any:
        far = np.abs(summaries.mean - self._state.center) >= EDGES[-1]
        return np.where(far[:, None], 0, super().encode(summaries, public, words))


@pytest.mark.parametrize(
    ("bad", "epsilon"),
    [
        (_OutsidersOnBounds, 1.0),
        (_OutsidersOnBounds, 4.0),
        (_NarrowIsDearer, 1.0),
        (_FarVotesPlainly, 4.0),
    ],
)
def test_the_twins_are_caught(bad: Any, epsilon: float) -> None:
    state = CarriedState(windows=5, center=0.3, half_width=0.1, gain=0.8)
    public: Public = {
        "n": 9,
        "mean": 0.3,
        "variance": 0.01,
        "jump": 0,
        "votes": [1] * BINS,
        "voters": BINS,
    }
    estimator, given = Carried(epsilon=epsilon, users=3000), users()
    settings, moment = estimator._settings, estimator._one_shot.second_moment
    habits = carried_habits(epsilon)
    if bad is _FarVotesPlainly:
        good, twin = (kind(settings, state, habits, last=False) for kind in (VotesForSpread, bad))
    else:
        good, twin = (
            kind(settings, state, habits, moment, assumes=False) for kind in (NarrowReports, bad)
        )

    assert loss_of(Sent(good, given, public)) <= epsilon + TOLERANCE
    try:
        caught = loss_of(Sent(twin, given, public))
    except AuditFaultError:  # reports change where the channel's do not
        caught = math.inf
    assert caught > 1.2 * epsilon


DAY = 86_400_000_000
SECRET = b"an honest secret of 32 bytes at least"


def bits(this: WindowRound, stage: int, public: Public) -> Any:
    """The words that the stage draws for some user."""
    ids = NoiseIds(keyed_owner_words(["ann"]), np.zeros(1, np.int64), np.zeros(1, np.uint64))
    return this.stage_noise(SECRET, stage, public).bits(ids, 0).tolist()


def test_the_same_state_repeats_the_noise_of_a_window_and_another_state_has_another() -> None:
    """A window that is answered again, with what is carried as it was, sends the same; else nothing
    is shared."""
    settings = rounds_settings(estimator="repeating", epsilon=1.0)
    window, public = Window(0, DAY), {"n": 9, "mean": 0.3, "variance": 0.01, "jump": 0}
    told = [state for state in states(1.0) if state is not None]
    drawn = [bits(WindowRound(settings, window, 3000, state), 1, public) for state in told]
    again = [bits(WindowRound(settings, window, 3000, dict(state)), 1, public) for state in told]
    assert drawn == again
    assert len({str(one) for one in drawn}) == len(told)
    for name, other in (
        ("center", 0.31),
        ("half_width", 0.21),
        ("votes", [1] * BINS),
        ("missed", 0.1),
    ):
        assert (
            bits(WindowRound(settings, window, 3000, {**told[-1], name: other}), 1, public)
            not in drawn
        )
