"""One report per user, of its own samples alone, in a stage that its id decides."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from meanstream.lab.papers.dame.dame import Dame
from meanstream.lab.papers.kent.univariate import Kent
from meanstream.lab.random_words import SeededWords
from meanstream.operators.rounds.round_protocol import assign_protocol_stages, run_protocol
from meanstream.operators.rounds.round_records import Estimate, Summaries
from tests.privacy.rounds.test_round_privacy import DAME, LAPLACE, SPAN, everybody

TWO_STAGES = [Dame(**DAME, mode="paper", effective_size=1000), Kent(**DAME)]


class Recorded:
    """A stage that notes whom it was sent reports by."""

    def __init__(self, step, seen):
        self.step, self.seen = step, seen

    def encode(self, summaries, public, words):
        reports = self.step.encode(summaries, public, words)
        assert len(reports) == len(summaries)
        self.seen.append(summaries.user)
        return reports

    def tally(self, reports, public):
        return self.step.tally(reports, public)

    def decode(self, tally, public):
        return self.step.decode(tally, public)


def messages(estimator, users, stage):
    """How many reports each user sends."""
    seen = []

    class Watched:
        name = estimator.name
        rounds = tuple(Recorded(step, seen) for step in estimator.rounds)

    words = [
        SeededWords(np.random.default_rng(9), int((stage == i).sum()))
        for i in range(len(estimator.rounds))
    ]
    assert isinstance(run_protocol(Watched(), users, stage, words), Estimate)
    _, times = np.unique(np.concatenate(seen), axis=0, return_counts=True)
    return times


@pytest.mark.parametrize(
    "estimator", [*TWO_STAGES, LAPLACE["duchi"], LAPLACE["semi"]], ids=lambda e: e.name
)
def test_every_user_sends_exactly_one_report(estimator):
    users = everybody(TWO_STAGES[0].bins, 1000)
    times = messages(
        estimator, users, assign_protocol_stages(estimator.shares, users.user, b"round")
    )
    assert times.tolist() == [1] * len(users)


@pytest.mark.parametrize("estimator", TWO_STAGES, ids=lambda e: e.name)
def test_a_report_depends_on_its_own_user_alone(estimator):
    users = everybody(estimator.bins, 1000)
    some = np.arange(len(users)) % 3 == 1
    public = {}
    for step in estimator.rounds:
        words = SeededWords(np.random.default_rng(4), len(users))
        everybody_s = step.encode(users, public, words)
        alone = step.encode(users.take(some), public, lambda draw, words=words: words(draw)[some])
        assert np.array_equal(everybody_s[some], alone)
        public = step.decode(step.tally(everybody_s, public), public)


@pytest.mark.parametrize("estimator", TWO_STAGES, ids=lambda e: e.name)
def test_the_stage_of_a_user_depends_on_its_id_alone(estimator):
    users = everybody(estimator.bins, 1000)
    order = np.argsort(users.count, kind="stable")

    def by_hash(given):
        return assign_protocol_stages(estimator.shares, given.user, b"2013-01-07")

    def by_position(given):
        return (np.arange(len(given)) >= len(given) // 2).astype(np.int64)

    for split, is_right in ((by_hash, True), (by_position, False)):
        same = np.array_equal(split(users)[order], split(users.take(order)))
        assert same is is_right  # D15: "the first half" of a list sorted by size
    larger = Summaries(
        user=users.user, count=users.count + 7, total=users.total, first=users.first, span=SPAN
    )
    assert np.array_equal(by_hash(users), by_hash(larger))


def test_enumerated_users_reach_every_bin_from_both_sides():
    bins = TWO_STAGES[0].bins
    means = np.sort(np.unique(everybody(bins, 1000).mean))
    crossed = [(a, b) for a, b in pairwise(bins.which(means)) if a != b]
    assert crossed == [(j, j + 1) for j in range(bins.count - 1)]
