"""The loop over stages: who is asked when, exact tallies, keyed reports."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import chi2

from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.noise.keyed import KeyedNoise, keyed_owner_words
from meanstream.operators.rounds.round_protocol import (
    ReportWords,
    assign_protocol_stages,
    protocol_stages_of_positions,
    run_protocol,
)
from meanstream.operators.rounds.round_records import Estimate, Summaries, Tally

SECRET = b"0d409462e4304f9f66770dc046be10c9"


def summaries(n=1000, span=1000, seed=0):
    rng = np.random.default_rng(seed)
    count = rng.integers(1, 50, n)
    return Summaries(
        user=keyed_owner_words([f"user {i}" for i in range(n)]),
        count=count,
        total=count * rng.integers(0, span, n),
        first=rng.integers(0, span, n),
        span=span,
    )


@dataclass
class Whole:
    """Reports the mean itself: no privacy, for the loop only."""

    name: str = "whole"
    epsilon: float = 1.0
    last: bool = True

    def encode(self, given, public, words):
        return np.rint(given.mean * 1e6).astype(np.int64)[:, None]

    def tally(self, reports, public):
        return Tally(len(reports), (int(reports.sum()),))

    def decode(self, tally, public):
        mean = np.asarray(tally.sums[0] / tally.n / 1e6)
        if not self.last:
            return {"before": float(mean)}
        return Estimate(
            value=mean, lower=mean, upper=mean, level=0.95, stderr=mean, epsilon=1.0, n_users=tally.n,
            method="whole", mode="paper", unclipped=mean, stages=(public,),
        )  # fmt: skip


@dataclass
class TwoStages:
    name: ClassVar[str] = "two stages"
    rounds: tuple = (Whole(last=False), Whole())
    shares: tuple = (0.5, 0.5)


def test_stages_follow_each_other_and_get_the_result_of_the_one_before():
    given = summaries()
    stage = assign_protocol_stages((0.5, 0.5), given.user, b"round")
    estimate = run_protocol(TwoStages(), given, stage, [lambda draw: None] * 2)
    assert estimate.value == pytest.approx(given.mean[stage == 1].mean(), abs=1e-6)
    assert estimate.stages[0]["before"] == pytest.approx(given.mean[stage == 0].mean(), abs=1e-6)


def test_an_estimator_without_an_answer_is_a_fault_that_names_it():
    broken = TwoStages()
    broken.rounds = (Whole(last=False),)
    with pytest.raises(TypeError, match="two stages: the last stage gave no estimate"):
        run_protocol(broken, summaries(), np.zeros(1000, np.int64), [lambda draw: None])


def test_users_are_split_by_shares_whatever_their_order_and_size():
    # Chi-square over three stages; false alarm 1e-6 per key.
    shares, n = (0.12, 0.28, 0.6), 50_000
    user = keyed_owner_words([str(i) for i in range(n)])
    for key in (b"2013-01-07", b"2013-01-14"):
        stage = assign_protocol_stages(shares, user, key)
        expected = np.array(shares) * n
        assert ((np.bincount(stage, minlength=3) - expected) ** 2 / expected).sum() < chi2.isf(
            1e-6, 2
        )
        order = np.random.default_rng(1).permutation(n)
        assert np.array_equal(assign_protocol_stages(shares, user[order], key), stage[order])


def test_every_round_splits_anew():
    user = keyed_owner_words([str(i) for i in range(20_000)])
    first, second = (assign_protocol_stages((0.5, 0.5), user, key) for key in (b"a", b"b"))
    # The agreement of two independent halves is binomial: 5 standard errors, false alarm 6e-7.
    assert abs(np.mean(first == second) - 0.5) < 5 * 0.5 / np.sqrt(20_000)


def test_positions_on_an_edge_belong_to_the_later_stage():
    assert protocol_stages_of_positions(
        (0.5, 0.5), np.array([0.0, 0.499, 0.5, 0.999])
    ).tolist() == [0, 0, 1, 1]


def test_tallies_are_exact_in_any_order():
    parts = [Tally(1, (2**62, -5)), Tally(2, (2**62, 7)), Tally(), Tally(1, (2**62, 1))]
    forward, backward = sum(parts, Tally()), sum(parts[::-1], Tally())
    assert forward == backward == Tally(4, (3 * 2**62, 3))


def words(given, *, purpose="round 1", stage=0, secret=SECRET):
    noise = KeyedNoise(secret, deployment="test", purpose=purpose)
    return ReportWords(noise, given, stage)(0)


def test_a_retry_meets_the_same_bits_in_any_order_of_users():
    given = summaries(100)
    order = np.random.default_rng(3).permutation(100)
    assert np.array_equal(words(given), words(given))
    assert np.array_equal(words(given.take(order)), words(given)[order])


@pytest.mark.parametrize(
    "other",
    [
        {"purpose": "round 2"},
        {"stage": 1},
        {"secret": b"395a3bce14bdb4e289967f87cf699a41"},
    ],
)
def test_another_round_stage_or_secret_meets_other_bits(other):
    given = summaries(100)
    assert not (words(given, **other) == words(given)).any()


@pytest.mark.parametrize("column", ["count", "total", "first"])
def test_another_input_of_the_same_user_meets_other_bits(column):
    given = summaries(100)
    changed = replace(given, **{column: getattr(given, column) + 1})
    assert not (words(changed) == words(given)).any()


def test_an_unknown_estimator_is_refused_by_name():
    with pytest.raises(ValueError, match=r"estimator must be one of .*, got 'dam'"):
        build_estimator("dam", epsilon=1.0, users=10)


def test_an_answer_is_told_in_the_unit_of_the_values():
    half = np.asarray(0.5)
    estimate = Estimate(
        value=half, lower=-half, upper=half, level=0.95, stderr=half, epsilon=1.0, n_users=3, method="m", mode="tuned",
        unclipped=3 * half,
    ).in_unit(-30.0, 120.0)  # fmt: skip
    assert (estimate.value, estimate.lower, estimate.upper) == (82.5, 7.5, 82.5)
    assert (estimate.stderr, estimate.unclipped) == (37.5, 157.5)
