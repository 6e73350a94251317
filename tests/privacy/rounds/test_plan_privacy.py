"""The tuned plan: exact privacy of every stage's report, whatever a user has, and known-bad
twins."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meanstream.lab.evidence.local_audit import TOLERANCE, bit_probabilities, worst_pmf_loss
from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.plan.plan_stages import PairVoteStage, WindowStage
from meanstream.operators.estimators.plan.planned_rounds import Plan
from meanstream.operators.records import Floats
from meanstream.operators.rounds.channels.registry import make_channel
from meanstream.operators.rounds.round_records import Public, Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution

SPAN = 1000
CENTERS: tuple[Public, ...] = (
    {"center": 0.0, "stderr": 0.1},
    {"center": 0.97, "stderr": 0.1},
    {"center": -1.0, "stderr": 0.1, "restart": []},
)


def every_kind_of_user() -> Summaries:
    """Users with one to very many samples, and means all over the range, ends and edges of bins
    included."""
    counts = np.repeat([1, 3, 50, 999, 1000, 10**6], 201)
    means = np.tile(np.linspace(0, SPAN, 201), 6)
    total = np.rint(means * counts).astype(np.int64)
    n = len(counts)
    return Summaries(
        user=np.zeros((n, 2), np.uint64),
        count=counts,
        total=total,
        first=total // counts,
        span=SPAN,
    )


def plans(epsilon: float) -> list[Plan]:
    def build(users: int, sizes: str, between_users: float = 0.0) -> Plan:
        law = SizeDistribution.parse(sizes)
        return Plan(epsilon=epsilon, users=users, sizes=law, between_users=between_users)

    return [
        build(10_000, "two:100000,1000000,0.5"),
        build(20_000, "point:1000", 0.05),
        build(3000, "poisson:5"),
    ]


def windows(plan: Plan) -> list[WindowStage]:
    return [step for step in plan.rounds if isinstance(step, WindowStage)]


def losses(step: WindowStage, public: Public, users: Summaries) -> float:
    """Worst loss between any two users, from the exact probabilities of the channel at what they
    randomize."""
    channel = step.channel(public)
    assert step.epsilon == channel.spend()
    at = np.unique(step.distance(users, public))
    return worst_pmf_loss(np.array([channel.pmf(float(x)) for x in at[:: max(1, len(at) // 40)]]))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_reports_of_every_stage_stay_within_epsilon(epsilon: float) -> None:
    users = every_kind_of_user()
    for plan in plans(epsilon):
        assert plan.rounds
        for step in windows(plan):
            for public in CENTERS:
                found = losses(step, public, users)
                assert 0.5 * epsilon < found <= epsilon + TOLERANCE


def test_what_is_sent_is_what_was_audited() -> None:
    users = every_kind_of_user()
    words = SeededWords(np.random.default_rng(1), len(users))
    for step in windows(plans(1.0)[0]):
        for public in CENTERS:
            sent = step.encode(users, public, words)
            again = step.channel(public).randomize(step.distance(users, public), words)
            assert np.array_equal(sent[:, 0], again)
            assert bool(step.valid(sent, public).all())


class _Sent:
    """What a vote stage sends for users of these numbers, as `bit_probabilities` asks for it."""

    def __init__(self, step: PairVoteStage, users: Summaries) -> None:
        self.step, self.users = step, users

    def randomize(self, rows, words):
        return self.step.encode(self.users.take(rows), {}, words)


def worst_row_loss(probability: Floats) -> float:
    """Worst loss of rows of independent bits: the worst of each bit, added up, between any two
    rows."""
    ones, zeros = np.log(probability), np.log1p(-probability)
    rows = range(len(probability))
    return max(
        float(np.maximum(np.abs(ones[a] - ones[b]), np.abs(zeros[a] - zeros[b])).sum())
        for a in rows
        for b in rows
    )


def vote_stage(epsilon: float, cls: type[PairVoteStage] = PairVoteStage) -> PairVoteStage:
    plan = plans(epsilon)[0]
    step = plan.rounds[0]
    assert isinstance(step, PairVoteStage)
    return cls(plan._settings, step.design)


@pytest.mark.parametrize("epsilon", [0.63, 2.0])
def test_votes_stay_within_epsilon_also_for_users_who_vote_for_nothing(epsilon: float) -> None:
    step = vote_stage(epsilon)
    users = every_kind_of_user().take(slice(None, None, 23))
    ballot = step.ballot(users)
    assert -1 in ballot
    assert len(set(ballot.tolist())) > 5
    probability = bit_probabilities(_Sent(step, users), np.arange(len(users)), step.bins.count)
    assert probability.min() > 0
    assert 0.9 * epsilon < worst_row_loss(probability) <= epsilon + TOLERANCE


class _Abstains(PairVoteStage):
    """Known-bad: users with too few samples send a row of zeros that is not randomized."""

    def encode(self, summaries, public, words):
        reports = super().encode(summaries, public, words)
        return np.where((self.ballot(summaries) < 0)[:, None], 0, reports)


def test_the_twin_whose_small_users_abstain_is_caught() -> None:
    step = vote_stage(1.0, _Abstains)
    users = every_kind_of_user().take(slice(None, None, 23))
    probability = bit_probabilities(_Sent(step, users), np.arange(len(users)), step.bins.count)
    assert probability.min() == 0


class _ClosedBins(PairVoteStage):
    """Known-bad: a mean on the edge of two bins votes for both."""

    def encode(self, summaries, public, words):
        lower = super().encode(summaries, public, words)
        beside = self.votes.randomize(np.maximum(self.ballot(summaries) - 1, -1), words)
        return lower | beside


def test_the_twin_with_closed_bins_is_caught() -> None:
    step = vote_stage(1.0, _ClosedBins)
    users = every_kind_of_user().take(slice(None, None, 23))
    probability = bit_probabilities(_Sent(step, users), np.arange(len(users)), step.bins.count)
    assert worst_row_loss(probability) > 1.2


class _WiderForLargeUsers(WindowStage):
    """Known-bad: who has many samples sends two reports' worth, its distance through a channel of
    twice the epsilon."""

    def pmf(self, users: Summaries, public: Public) -> list[Floats]:
        channels = [
            make_channel("one_bit", self.epsilon * (2.0 if m > 100 else 1.0)) for m in users.count
        ]
        at = self.distance(users, public)
        return [channel.pmf(float(x)) for channel, x in zip(channels, at, strict=True)]


def test_the_twin_with_less_noise_for_large_users_is_caught() -> None:
    plan = plans(1.0)[0]
    good = windows(plan)[0]
    bad = _WiderForLargeUsers(
        plan._settings, good.design, restart=good.design, name="bad", last=False
    )
    users = every_kind_of_user().take(slice(None, None, 50))
    assert worst_pmf_loss(np.array(bad.pmf(users, CENTERS[0]))) > 1.1
    assert losses(good, CENTERS[0], users) <= 1 + TOLERANCE


def test_every_user_is_asked_once_and_the_split_ignores_the_data() -> None:
    for plan in plans(1.0):
        assert math.isclose(sum(plan.shares), 1.0)
        assert min(plan.shares) > 0
        assert len(plan.shares) == len(plan.rounds)
        assert all(step.epsilon == plan.epsilon for step in plan.rounds)
