"""The plan that learns the law of sizes first: its learning, its cost, its privacy, and where it is
refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from meanstream.lab.evidence.local_audit import TOLERANCE, bit_probabilities, worst_pmf_loss
from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.plan.planned_rounds import Plan
from meanstream.operators.estimators.plan.unknown_sizes import (
    CLASSES,
    SHARES,
    GainRound,
    PlannedRound,
    SizeVoteRound,
    learned_unknown_sizes,
    unknown_size_class,
)
from meanstream.operators.rounds.channels.registry import make_channel
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries, Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution
from tests.oracles.round_errors import measure_round_goal, round_goal_two_point_users


def plan(users: int = 20_000, epsilon: float = 1.0, **options) -> Plan:
    return Plan(epsilon=epsilon, users=users, sizes="unknown", **{"between_users": 0.0, **options})


def test_classes_of_sizes_are_exact() -> None:
    counts = np.array([1, 2, 3, 4, 1023, 1024, 1025, 2**20 - 1, 2**20, 2**40])
    assert unknown_size_class(counts).tolist() == [0, 1, 1, 2, 9, 10, 10, 19, 20, 20]


@pytest.mark.parametrize("text", ["uniform:1,199", "two:1000,100000,0.4", "point:50"])
def test_what_is_learned_has_the_mean_square_root_of_the_truth(text: str) -> None:
    truth = SizeDistribution.parse(text)
    shares = np.bincount(unknown_size_class(truth.support), truth.probability, minlength=CLASSES)
    noisy = shares + 0.01 * np.random.default_rng(1).standard_normal(CLASSES)
    found = learned_unknown_sizes(noisy, 0.01)
    assert found.mean_sqrt() == pytest.approx(truth.mean_sqrt(), rel=0.25)
    assert found.probability.sum() == pytest.approx(1)


def test_missing_users_count_as_users_with_one_sample() -> None:
    shares = np.zeros(CLASSES)
    shares[7] = 0.6
    assert learned_unknown_sizes(shares, 0.01).probability[0] == pytest.approx(0.4)
    assert learned_unknown_sizes(np.zeros(CLASSES), 0.01).greatest == 1
    assert learned_unknown_sizes(shares / 0.6 * 0.99, 0.01).least >= 128


@pytest.mark.parametrize(
    ("text", "epsilon"), [("uniform:1,199", 1.0), ("point:1000", 1.0), ("poisson:5", 2.0)]
)
def test_it_costs_a_few_times_the_error(text: str, epsilon: float) -> None:
    sizes, users, runs = SizeDistribution.parse(text), 20_000, 12
    known = Plan(epsilon=epsilon, users=users, sizes=sizes, between_users=0.0).design
    assert known is not None
    found = measure_round_goal(plan(users, epsilon), sizes, users, runs=runs, seed=4, theta=0.3)
    # The mean of 12 squared normal errors exceeds 2.5 times its expectation once in 3000; 3 is the
    # cost.
    assert found.mse < 3 * 2.5 * known.risk
    assert found.coverage >= 0.7
    # Where sizes are large it is still far better than one report each.
    one_shot = sum(make_channel("one_bit", epsilon).moments) / users
    assert text == "poisson:5" or found.mse < 0.3 * one_shot


def test_it_is_refused_with_the_reason_where_too_little_can_be_learned() -> None:
    with pytest.raises(
        ValueError,
        match=r"sizes must be given where users \* epsilon\*\*2 is below 10000 \(it is 5e\+03\)",
    ):
        plan(users=20_000, epsilon=0.5)
    with pytest.raises(ValueError, match="sizes must be a SizeDistribution or 'unknown'"):
        Plan(epsilon=1.0, users=20_000, sizes="unkown", between_users=0.0)


def test_nothing_declared_needs_no_sizes() -> None:
    assert plan(2_000, between_users=None).describe()["kind"] == "one_shot"
    assert plan(between_users=None).describe()["kind"] == "watched"
    assert plan(between_users=None, tails="exponential").describe()["kind"] == "adaptive"


def test_the_description_says_what_is_not_known() -> None:
    described = plan().describe()
    assert json.loads(json.dumps(described)) == described
    assert described["kind"] == "sizes unknown"
    assert described["predicted_stderr"] == pytest.approx(0.0163, rel=0.1)
    assert plan().shares == SHARES
    assert math.isclose(sum(SHARES), 1.0)


def test_no_reports_make_a_wide_answer_and_public_values_are_json() -> None:
    for first in (Tally(), None):
        estimator, public = plan(), {}
        users = round_goal_two_point_users(
            SizeDistribution.parse("point:1000"), 3000, 0.0, np.random.default_rng(1)
        )
        for number, step in enumerate(estimator.rounds):
            if number == 0 and first is None:
                reports = step.encode(
                    users, public, SeededWords(np.random.default_rng(2), len(users))
                )
                tally = step.tally(reports, public)
            else:
                tally = Tally()
            found = step.decode(tally, public)
            public = found if isinstance(found, Estimate) else json.loads(json.dumps(found))
        assert isinstance(public, Estimate)
        assert (float(public.lower), float(public.upper)) == (-1.0, 1.0)
        assert public.n_users == (0 if first is not None else 3000)


def users_of_all_sizes() -> Summaries:
    counts = np.repeat([1, 2, 100, 5000, 10**6], 5)
    total = np.rint(np.tile([0, 0.2, 0.5, 0.8, 1.0], 5) * counts).astype(np.int64)
    return Summaries(
        user=np.zeros((25, 2), np.uint64), count=counts, total=total, first=total // counts, span=1
    )


class _Votes:
    def __init__(self, step: SizeVoteRound, users: Summaries) -> None:
        self.step, self.users = step, users

    def randomize(self, rows, words):
        return self.step.encode(self.users.take(rows), {}, words)


class _TwoVotes(SizeVoteRound):
    """Known-bad: a size votes for its class and for the one below."""

    def encode(self, summaries, public, words):
        below = np.maximum(unknown_size_class(summaries.count) - 1, 0)
        return super().encode(summaries, public, words) | self.votes.randomize(below, words)


def vote_loss(step: SizeVoteRound) -> float:
    users = users_of_all_sizes()
    probability = bit_probabilities(_Votes(step, users), np.arange(len(users)), CLASSES)
    ones, zeros = np.log(probability), np.log1p(-probability)
    differ = np.maximum(np.abs(ones[:, None] - ones), np.abs(zeros[:, None] - zeros))
    return float(differ.sum(axis=-1).max())


def test_votes_on_sizes_stay_within_epsilon_and_the_twin_does_not() -> None:
    settings = plan()._settings
    assert 0.9 < vote_loss(SizeVoteRound(settings, 0.0)) <= 1.0 + TOLERANCE
    assert vote_loss(_TwoVotes(settings, 0.0)) > 1.2


def test_later_stages_stay_within_epsilon_whatever_was_learned() -> None:
    users = users_of_all_sizes()
    first, *others = plan().rounds
    learned = first.encode(
        round_goal_two_point_users(
            SizeDistribution.parse("uniform:1,199"), 4000, 0.0, np.random.default_rng(1)
        ),
        {},
        SeededWords(np.random.default_rng(2), 4000),
    )
    found = first.decode(first.tally(learned, {}), {})
    for public in (found, found | {"restart": []}, {"restart": [], "found": []}):
        assert isinstance(public, dict)
        placed: Public = public | {"center": 0.3, "stderr": 0.1}
        for step in others:
            if isinstance(step, GainRound):
                channel, restart = step.channel(placed), "restart" in placed
                at = (
                    step._full.distance(users, placed) if restart else step.shrinkage(users, placed)
                )
            else:
                assert isinstance(step, PlannedRound)
                inner = step.chosen(placed)
                assert inner.name.startswith("stage")
                channel, at = inner.channel(placed), inner.distance(users, placed)
            assert (
                worst_pmf_loss(np.array([channel.pmf(float(x)) for x in np.unique(at)]))
                <= 1.0 + TOLERANCE
            )
