"""Every report of a window that others watch, counted exactly as its stage makes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanstream.lab.evidence.local_audit import TOLERANCE, worst_loss
from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.adaptive.watched_windows import WatchStage
from meanstream.operators.estimators.plan.planned_rounds import Plan
from meanstream.operators.records import Floats, Words
from meanstream.operators.rounds.round_records import Public
from meanstream.operators.rounds.votes.choice_votes import RandomizedResponseVotes
from tests.privacy.rounds.test_adaptive_privacy import (
    EPSILONS,
    INPUTS,
    report_loss,
    response_masses,
    users_of,
)

WINDOWS = ([0.3, 0.15], [-0.9, 0.2], [1.05, 0.1])
"""One amid the bounds, one cut by them, one whose center lies beyond."""


def known(window: list[float]) -> Public:
    return {
        "n_users": 9, "parts": [], "center": window[0], "center_stderr": 0.03, "mode": "narrow",
        "scales": [{"value": 0.05, "log_stderr": 0.2}], "window": window, "moment": 0.06,
    }  # fmt: skip


def stages(epsilon: float) -> Any:
    found = Plan(epsilon=epsilon, users=2_000_000).rounds
    assert [stage.name for stage in found] == ["center", "scale", "watch", "last"]
    assert all(stage.epsilon == epsilon for stage in found)
    return found


def watch_loss(stage: WatchStage, public: Public, means: Floats = INPUTS) -> float:
    """Worst loss of a watcher's report between any two users."""
    votes: Any = stage._votes(public)
    assert isinstance(votes, RandomizedResponseVotes)
    return worst_loss(response_masses(stage, public, mean, votes) for mean in means)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_every_watcher_and_every_report_in_and_out_of_the_window(
    epsilon: float, window: list[float]
) -> None:
    _, _, watch, last = stages(epsilon)
    assert epsilon - 1e-3 < watch_loss(watch, known(window)) <= epsilon + TOLERANCE
    for public in (known(window), {**known(window), "mode": "wide", "window": [0.0, 1.0]}):
        assert report_loss(last, public) <= epsilon + TOLERANCE


def test_one_message_per_user_whatever_it_holds() -> None:
    watch, public = stages(1.0)[2], known(WINDOWS[0])
    reports = [
        watch.encode(who, public, SeededWords(np.random.default_rng(3), len(who)))
        for who in (users_of(INPUTS), users_of(INPUTS, size=1000))
    ]
    assert (reports[0] == reports[1]).all()
    assert len(reports[0]) == len(INPUTS)
    assert watch.valid(reports[0], public).all()


class TwiceTold(WatchStage):
    """Known-bad: watchers answer as if they had twice the budget."""

    def _votes(self, public: Public) -> Any:
        return RandomizedResponseVotes(2.0 * self.epsilon, 3, zero_row=False)


class EdgeOfTheData(WatchStage):
    """Known-bad: a user who is outside sends another report than the vote for it."""

    def encode(self, summaries: Any, public: Public, words: Any) -> Words:
        reports = super().encode(summaries, public, words)
        far = np.abs(summaries.mean - public["window"][0]) >= 0.5
        return np.where(far[:, None], 2, reports)


@pytest.mark.parametrize("twin", [TwiceTold, EdgeOfTheData])
def test_twins_fail_the_same_count(twin: type[WatchStage]) -> None:
    plan = stages(1.0)[2]._plan
    assert watch_loss(twin(plan, 2, "watch", first=False), known(WINDOWS[0])) > 1.5
