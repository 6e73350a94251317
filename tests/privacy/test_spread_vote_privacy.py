"""The spread vote with the means: exact sensitivity over all neighboring streams of small cases, an
audit, and twins.

What moves is read off `Agents` itself, fed two streams. Means and votes together are one Gaussian
mechanism: the squared ratios of what one sample moves to the noise add up, and must not exceed that
of (epsilon, delta).
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.vote_of_spread import SpreadVote, TimedPairs
from meanstream.operators.noise.calibration import calibration_delta
from meanstream.operators.noise.distributions import TAIL_DELTA, GaussianNoise
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import VOTE_BINS, Floats, Ints
from tests.privacy.test_person_sensitivity import SameNoise

VALUES = (0.0, 0.25, 0.5, 1.0)
SAMPLES = 6
SHARE = 0.2


def settings(**changes: Any) -> AgentsSettings:
    known: dict[str, Any] = {
        "lower": 0,
        "upper": 1,
        "epsilon": 1,
        "delta": 1e-6,
        "horizon": 4,
        "spread_share": SHARE,
        "noise": "gaussian",
    }
    return AgentsSettings(**known | {"schedule": "geometric:2,3"} | changes)


def released(found: AgentsSettings, values: Floats, noise: Any) -> tuple[Ints, Ints]:
    """Totals and votes of each agent at each release, shape (agents, releases[, columns]); a row of
    values each."""
    agents = Agents(found, noise, votes_alone=True)
    n = len(values)
    agents.add_agents([str(i) for i in range(n)])
    batches = [
        agents.update(np.arange(n), column, np.full(n, float(t)))
        for t, column in enumerate(values.T)
    ]
    batches = [b.releases for b in batches if len(b.releases)]
    return np.stack([b.total for b in batches], axis=1), np.stack(
        [b.votes for b in batches], axis=1
    )


def neighbors() -> tuple[Floats, Floats]:
    """Every stream of a few values, beside every stream that differs from it in one sample."""
    streams = np.array(list(product(VALUES, repeat=SAMPLES)))
    one, other = [], []
    for place in range(SAMPLES):
        for value in VALUES:
            changed = streams.copy()
            changed[:, place] = value
            differs = streams[:, place] != value
            one.append(streams[differs])
            other.append(changed[differs])
    return np.concatenate(one), np.concatenate(other)


def moved(found: AgentsSettings) -> tuple[float, float]:
    """Greatest squared ratio of what a sample moves to the noise: in the votes, and in means and
    votes together."""
    one, other = neighbors()
    (total, votes), (total_other, votes_other) = (
        released(found, v, SameNoise()) for v in (one, other)
    )
    assert found.vote is not None
    increments = np.diff(
        (votes - votes_other)[:, :, 2:], axis=1, prepend=0
    )  # each vote has noise of its own
    of_votes = (increments**2).sum(axis=(1, 2)) / found.vote.noise.stddev**2
    k = total.shape[1]
    # Noise of the totals is A z: the likelihood ratio sees A^-1 of what moved, here for the matrix
    # of the counter.
    whitened = np.linalg.solve(found.mechanism.matrix(k), (total - total_other).T.astype(float))
    of_means = (whitened**2).sum(axis=0) / found.fresh.stddev**2  # type: ignore[union-attr]
    return float(of_votes.max()), float((of_votes + of_means).max())


def spent(found: AgentsSettings, squared: float) -> float:
    """Delta at the settings' epsilon of a Gaussian mechanism that moves by so much of its noise."""
    tails = found.horizon * (1 + VOTE_BINS) * TAIL_DELTA
    return calibration_delta(1 / math.sqrt(squared), found.epsilon) + tails


@pytest.mark.parametrize("counter", ["toeplitz", "pm1"])
def test_one_sample_moves_means_and_votes_within_the_budget_over_all_neighbors(
    counter: str,
) -> None:
    found = settings(counter=counter)
    votes, together = moved(found)
    assert found.vote is not None
    assert votes * found.vote.noise.stddev**2 == pytest.approx(
        2
    )  # sqrt 2 is attained, and never exceeded
    assert spent(found, together) <= found.delta
    if counter == "pm1":  # a sample is in one increment: the bound is attained
        assert spent(found, together) > 0.99 * found.delta


def with_vote(found: AgentsSettings, vote: SpreadVote) -> AgentsSettings:
    twin = replace(found)
    twin.__dict__["vote"] = vote
    return twin


def test_a_vote_of_sensitivity_1_is_caught() -> None:
    found = settings(counter="pm1")
    assert found.vote is not None
    twin = with_vote(
        found, replace(found.vote, noise=GaussianNoise(found.vote.noise.stddev / math.sqrt(2)))
    )
    assert spent(found, moved(twin)[1]) > 2 * found.delta


def test_a_vote_that_is_not_charged_is_caught() -> None:
    """Known bad: the means have the whole budget, and the vote comes on top."""
    found = settings(counter="pm1")
    assert found.vote is not None
    twin = with_vote(settings(counter="pm1", spread_share=0.0), found.vote)
    assert spent(found, moved(twin)[1]) > 2 * found.delta


def overlapping_pairs(
    rows: Any, who: Ints, point: Ints, _time: Floats, starts: Ints, _added: Ints
) -> TimedPairs:
    """Known bad: a sample is compared with both of its neighbors in the stream; each agent has one
    in a batch."""
    last = rows.setdefault("vote_last", np.zeros_like(rows["vote_first"]))
    again = np.minimum(rows["count"][who], 1)
    difference = np.abs(point - last[who])[again == 1]
    last[who] = point
    return TimedPairs(again, starts, difference, starts[again == 1])


def test_overlapping_pairs_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(counter="pm1")
    monkeypatch.setattr("meanstream.operators.agents.agents.timed_pairs", overlapping_pairs)
    assert spent(found, moved(found)[1]) > 2 * found.delta


def separation(
    found: AgentsSettings, claimed: AgentsSettings, n: int = 20_000
) -> tuple[float, float]:
    """Measured mu of canaries whose first sample is at either bound by their own coin, and its
    standard error.

    The score is the matched filter of the claimed mechanism on the first release: its total and its
    vote.
    """
    rng = np.random.default_rng(7)
    coin = rng.random(n) < 0.5
    values = np.stack(
        [coin.astype(float), np.zeros(n)], axis=1
    )  # a pair of equal samples, or of opposite ones
    noise = KeyedNoise(b"f25735d7f2b7edd3a59407cfb81435ed", deployment="audit", purpose="agents")
    total, votes = released(found, values, noise)
    assert claimed.vote is not None
    vote = (votes[:, 0, -1] - votes[:, 0, 2]) / claimed.vote.noise.stddev**2
    score = total[:, 0] * claimed.grid.span / claimed.fresh.stddev**2 + vote  # type: ignore[union-attr]
    apart = score[coin].mean() - score[~coin].mean()
    stddev = math.sqrt(0.5 * (score[coin].var() + score[~coin].var()))
    return apart / stddev, 2 / math.sqrt(n)


def test_an_audit_finds_the_claimed_strength_and_no_more() -> None:
    """Of PM-I, one release: mu within 4 standard errors (false alarms 1 in 16,000); the weaker twin
    is beyond them."""
    found = settings(counter="pm1", horizon=1)
    assert found.mu is not None
    measured, error = separation(found, found)
    assert abs(measured - found.mu) < 4 * error
    assert found.vote is not None
    weak = with_vote(found, replace(found.vote, noise=GaussianNoise(found.vote.noise.stddev / 3)))
    assert separation(weak, weak)[0] > found.mu + 4 * error


def pure_loss(found: AgentsSettings) -> float:
    """Greatest log-likelihood ratio of one sample in means, votes and histograms together, where
    each increment has a draw of its own."""
    one, other = neighbors()
    lost = []
    for values in (one, other):
        agents = Agents(found, SameNoise(), votes_alone=True)  # type: ignore[arg-type]
        agents.add_agents([str(i) for i in range(len(values))])
        told = []
        for t, column in enumerate(values.T):
            now = agents.update(np.arange(len(values)), column, np.full(len(values), float(t)))
            if len(now.releases):
                said = now.releases
                told.append((said.total[:, None], said.votes[:, 2:], said.histogram[:, 2:]))
        lost.append([np.stack(parts, axis=1) for parts in zip(*told, strict=True)])
    assert found.vote is not None
    assert found.histogram is not None
    loss = np.zeros(len(one))
    for a, b, noise in zip(
        *lost, (found.fresh, found.vote.noise, found.histogram.noise), strict=True
    ):
        moved = np.abs(np.diff(a - b, axis=1, prepend=0)).sum(axis=(1, 2))
        loss += moved / noise.scale  # type: ignore[union-attr]
    return float(loss.max())


def test_pure_means_votes_and_histograms_spend_epsilon_together_and_no_more() -> None:
    """Over all neighbors; and votes that are not charged are caught."""
    found = settings(counter="pm1", noise="laplace", histogram_share=0.1)
    assert 0.999 * found.epsilon < pure_loss(found) <= found.epsilon * (1 + 1e-12)
    free = settings(counter="pm1", noise="laplace", histogram_share=0.1, spread_share=0.0)
    twin = with_vote(free, found.vote)  # type: ignore[arg-type]
    assert pure_loss(twin) > 1.1 * found.epsilon
