"""The spread vote: what it counts, when, and that its noise is a function of the input."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.vote_of_spread import FACTOR, HALVINGS, spread_vote_bins
from meanstream.operators.noise.calibration import calibrated_gaussian_stddev
from meanstream.operators.noise.distributions import TAIL_DELTA
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import VOTE_BINS

SHARE = 0.25


def settings(**changes: object) -> AgentsSettings:
    known = {
        "lower": 0.0,
        "upper": 1.0,
        "epsilon": 1.0,
        "delta": 1e-6,
        "schedule": "geometric:4,2",
        "horizon": 8,
        "noise": "gaussian",
    }
    return AgentsSettings(**{**known, "spread_share": SHARE, **changes})  # type: ignore[arg-type]


def noise(seed: int = 0) -> KeyedNoise:
    return KeyedNoise.of_judged_key(
        bytes(range(seed, seed + 32)), deployment="test", purpose="agents"
    )


def stream(n: int, agents: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    value = rng.choice([0.0, 0.25, 0.5, rng.random(), 1.0], n)
    return rng.integers(0, agents, n), value, np.arange(float(n))


def plain_bin(difference: int, span: int) -> int:
    """The bins in words: equal, opposite bounds, else by the least power of two that holds the
    difference."""
    if difference == 0:
        return 0
    if difference == span:
        return VOTE_BINS - 1
    return 1 + sum(difference * 2**halving > span for halving in HALVINGS)


@pytest.mark.parametrize("span", [1, 2, 3, 5, 1000, 614_400, 2**20])
def test_bins_are_those_of_the_definition(span: int) -> None:
    difference = np.unique(
        np.concatenate([np.arange(min(span, 2000) + 1), span - np.arange(min(span, 3)), [span]])
    )
    assert spread_vote_bins(difference, span).tolist() == [
        plain_bin(d, span) for d in difference.tolist()
    ]


def counted(
    found: AgentsSettings, agent: np.ndarray, value: np.ndarray
) -> dict[int, list[tuple[int, list[int]]]]:
    """Votes of each agent without noise, one sample after the other: pairs so far and their counts
    by bin."""
    point, times = found.grid.encode(value), set(found.times.times(found.horizon).tolist())  # type: ignore[union-attr]
    seen: dict[int, list[int]] = {}
    votes: dict[int, list[tuple[int, list[int]]]] = {}
    last: dict[int, int] = {}
    for a, x in zip(agent.tolist(), point.tolist(), strict=True):
        seen.setdefault(a, []).append(x)
        n = len(seen[a])
        if n in times and n // 2 >= FACTOR * last.get(a, 0):
            counts = [0] * VOTE_BINS
            for i in range(0, n - 1, 2):
                counts[plain_bin(abs(seen[a][i] - seen[a][i + 1]), found.grid.span)] += 1
            votes.setdefault(a, []).append((n // 2, counts))
            last[a] = n // 2
    return votes


@pytest.mark.parametrize("batch", [1, 3, 50, 400])
def test_votes_of_one_alone_are_the_counted_pairs_and_noise_however_samples_come(
    batch: int,
) -> None:
    """Without the noise, which is known from the key, they are what a loop over the samples
    counts."""
    found, (agent, value, time) = settings(), stream(400, 5, 1)
    agents = Agents(found, noise(), votes_alone=True)
    agents.add_agents(list("abcde"))
    batches = [
        agents.update(agent[i : i + batch], value[i : i + batch], time[i : i + batch])
        for i in range(0, 400, batch)
    ]
    votes = np.concatenate([b.releases.votes for b in batches])
    who = np.concatenate([b.releases.agent for b in batches])
    expected = counted(found, agent, value)
    assert found.vote is not None
    for a in range(5):
        mine = votes[who == a]
        cast = mine[np.flatnonzero(np.diff(mine[:, 0], prepend=0))]
        assert cast[:, :2].tolist() == [[k + 1, pairs] for k, (pairs, _) in enumerate(expected[a])]
        wrong = cast[:, 2:] - np.array([counts for _, counts in expected[a]])
        fresh = np.diff(wrong, axis=0, prepend=0) / found.vote.noise.stddev
        assert np.abs(fresh).max() < 5
        assert 0.5 < fresh.std() < 1.6
    assert np.array_equal(agents.latest().votes, np.stack([votes[who == a][-1] for a in range(5)]))


def test_votes_do_not_depend_on_batches_nor_on_where_a_run_was_resumed() -> None:
    found, (agent, value, time) = settings(), stream(300, 3, 2)
    whole, parts = Agents(found, noise()), Agents(found, noise())
    for agents in (whole, parts):
        agents.add_agents(list("abc"))
    whole.update(agent, value, time)
    for i in range(0, 300, 7):
        parts.update(agent[i : i + 7], value[i : i + 7], time[i : i + 7])
        resumed = Agents(found, noise())
        resumed.add_agents(list("abc"))
        resumed.restore_chunk(0, parts.snapshot_chunk(0))
        parts = resumed
    assert np.array_equal(whole.latest().votes, parts.latest().votes)
    assert np.array_equal(whole.latest().total, parts.latest().total)


def test_other_pairs_of_the_same_sum_meet_other_noise() -> None:
    """Otherwise the difference of two votes would be that of their pairs, exactly."""
    found = settings()
    votes, versions, totals = [], [], []
    for value in ([0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0]):
        agents = Agents(found, noise())
        agents.add_agents(["a"])
        batch = agents.update(np.zeros(4, np.int64), np.array(value), np.arange(4.0))
        votes.append(batch.releases.votes[0, 2:])
        versions.append(int(batch.version[0]))
        totals.append(int(batch.releases.total[0]))
    assert versions[0] == versions[1]  # of the sum, which is the same
    assert totals[0] == totals[1]
    assert np.count_nonzero(votes[0] - votes[1]) > 2  # equal noise would leave two bins


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("calibration", ["analytic", "classical"])
def test_means_and_votes_spend_the_budget_together(share: float, calibration: str) -> None:
    """The squared sensitivity over the variance adds up to that of one Gaussian mechanism at
    (epsilon, delta)."""
    found = settings(spread_share=share, calibration=calibration)
    assert found.vote is not None
    means = (found.mechanism.l2_sensitivity * found.grid.span / found.fresh.stddev) ** 2  # type: ignore[union-attr]
    votes = 2 / found.vote.noise.stddev**2
    delta = found.delta - (1 + VOTE_BINS) * found.horizon * TAIL_DELTA
    budget = calibrated_gaussian_stddev(1.0, delta, calibration=calibration) ** -2  # type: ignore[arg-type]
    assert votes == pytest.approx(share * budget, rel=1e-12)
    assert means + votes == pytest.approx(budget, rel=1e-9)


def test_without_a_share_all_is_as_before() -> None:
    """Noise, state and releases of those who do not vote are those before there were votes."""
    found = settings(spread_share=0.0, noise="gaussian")
    agents = Agents(found, noise())
    agents.add_agents(["a"])
    batch = agents.update(np.zeros(8, np.int64), np.full(8, 0.5), np.arange(8.0))
    assert not batch.releases.votes.any()
    assert not [name for name in agents.snapshot_chunk(0) if name.startswith("vote")]
    assert found.fresh.stddev == pytest.approx(  # type: ignore[union-attr]
        calibrated_gaussian_stddev(1.0, 1e-6, calibration="analytic")
        * found.mechanism.l2_sensitivity
        * found.grid.span,
        rel=1e-9,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spread_share": 1.0}, r"spread_share must lie in \[0, 1\), got 1.0"),
        ({"spread_share": math.nan}, r"spread_share must lie in \[0, 1\), got nan"),
        (
            {"mode": "paper", "counter": "pm1"},
            "spread_share must be 0 in paper mode, got 0.25",
        ),
    ],
)
def test_what_cannot_vote_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**changes)
