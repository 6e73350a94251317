"""The vote of a host: what it adds up, when, and that batches, restarts and the order of rows with
one event time change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.host_votes import HostPairs, order_of_pairs
from meanstream.operators.agents.vote_of_spread import (
    BY_CONTENT,
    FACTOR,
    ContentPairs,
    content_pairs,
    expected_pairs,
    spread_vote_bins,
)
from meanstream.operators.noise.keyed import KeyedNoise, keyed_owner_words
from meanstream.operators.records import VOTE_BINS, Floats, Ints

NOISE = KeyedNoise.of_judged_key(bytes(range(32)), deployment="test", purpose="agents")
NAMES = list("abcdefg")


def settings(**changes: Any) -> AgentsSettings:
    known: dict[str, Any] = {"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6, "horizon": 12}
    return AgentsSettings(**known | {"schedule": "geometric:4,2", "spread_share": 0.2} | changes)


def stream(seed: int, n: int = 400) -> tuple[Ints, Floats, Floats]:
    """Samples of seven agents, a third of them at an event time of another sample."""
    rng = np.random.default_rng(seed)
    time = np.sort(rng.integers(0, 5 * n, n)).astype(np.float64) // rng.choice([1, 12], n)
    return rng.integers(0, len(NAMES), n), rng.choice([0, 0.1, 0.5, 1.0], n), np.sort(time)


def taken(found: AgentsSettings, rows: tuple[Ints, Floats, Floats], cuts: Ints) -> Agents:
    """Take samples in batches, in each of which an event time is whole; end with a last release."""
    agent, value, time = rows
    agents = Agents(found, NOISE)
    agents.add_agents(NAMES)
    ends = np.unique(np.searchsorted(time, time[cuts], side="right"))
    for start, stop in zip([0, *ends], [*ends, len(time)], strict=True):
        agents.update(agent[start:stop], value[start:stop], time[start:stop])
    agents.release_now(float(time[-1]))
    return agents


def plain_pairs(found: AgentsSettings, rows: tuple[Ints, Floats, Floats]) -> list[tuple[int, int]]:
    """Pairs in words: at which sample each is complete, and its bin."""
    agent, value, time = rows
    point = found.grid.encode(value)
    pairs, first = [], dict[int, int]()
    for i, a in enumerate(agent.tolist()):
        if np.count_nonzero((agent == a) & (time == time[i])) > 1:
            continue
        if a in first:
            away = np.array([abs(int(point[i]) - first.pop(a))])
            pairs.append((i, int(spread_vote_bins(away, found.grid.span)[0])))
        else:
            first[a] = int(point[i])
    return pairs


@pytest.mark.parametrize("seed", range(4))
def test_votes_of_a_host_are_those_of_a_loop_over_the_samples(seed: int) -> None:
    """Their number, pairs and carriers exactly; counts but for the noise: five deviations of it, an
    alarm by chance in one of 10,000 runs."""
    found, rows = settings(), stream(seed)
    agents = taken(found, rows, np.zeros(0, np.int64))
    pairs = plain_pairs(found, rows)
    due = set(found.times.times(found.horizon).tolist())  # type: ignore[union-attr]
    seen, votes, before = np.zeros(len(NAMES), np.int64), np.zeros((len(NAMES), 2), np.int64), 0
    for i, a in enumerate(rows[0].tolist()):
        seen[a] += 1
        now = sum(at <= i for at, _ in pairs)
        if seen[a] in due and now >= max(FACTOR * before, 1):
            votes[a] += [1, now - before]
            before = now
    waiting = [a for a in range(len(NAMES)) if seen[a] not in due]
    if waiting and len(pairs) >= FACTOR * before:
        votes[waiting[0]] += [1, len(pairs) - before]
        before = len(pairs)

    said = agents.latest().votes
    assert said[:, :2].tolist() == votes.tolist()
    assert before > 0
    counts = np.bincount([b for _, b in pairs[:before]], minlength=VOTE_BINS)
    assert found.vote is not None
    noise = (said[:, 2:].sum(axis=0) - counts) / np.sqrt(
        votes[:, 0].sum() * found.vote.noise.variance
    )
    assert np.abs(noise).max() < 5
    assert noise.std() > 0.4


@pytest.mark.parametrize("seed", range(6))
def test_neither_batches_nor_the_order_within_an_event_time_change_a_byte(seed: int) -> None:
    found, rows = settings(schedule="every:1h", noise="laplace", counter="pm1"), stream(seed)
    rng = np.random.default_rng(100 + seed)
    whole = taken(found, rows, np.zeros(0, np.int64)).latest()
    parts = taken(found, rows, np.unique(rng.integers(0, 400, 30))).latest()
    mixed = rng.permutation(400)
    order = mixed[np.argsort(rows[2][mixed], kind="stable")]
    other = taken(found, tuple(column[order] for column in rows), np.array([200])).latest()  # type: ignore[arg-type]
    for same in (parts, other):
        assert np.array_equal(whole.votes, same.votes)
        assert np.array_equal(whole.total, same.total)
    assert whole.votes[:, 0].sum() >= 1


def test_a_host_goes_on_from_its_agents_rows() -> None:
    """Whatever a host knows is in the rows of its agents: from a snapshot after each batch it casts
    the same votes."""
    found, (agent, value, time) = settings(), stream(9)
    whole, resumed = Agents(found, NOISE), Agents(found, NOISE)
    for agents in (whole, resumed):
        agents.add_agents(NAMES)
    time = np.arange(400.0)
    whole.update(agent, value, time)
    for i in range(0, 400, 11):
        resumed.update(agent[i : i + 11], value[i : i + 11], time[i : i + 11])
        again = Agents(found, NOISE)
        again.add_agents(NAMES)
        again.restore_chunk(0, resumed.snapshot_chunk(0))
        resumed = again
    assert np.array_equal(whole.latest().votes, resumed.latest().votes)


def test_one_vote_has_one_noise_for_any_number_of_agents() -> None:
    """2,000 agents of 20 samples: alone their votes have 2,000 noises in each bin, together one."""
    found = settings(schedule="geometric:1000000000000,2", noise="gaussian")
    agent = np.repeat(np.arange(2000), 20)
    noises = []
    for alone in (False, True):
        agents = Agents(found, NOISE, votes_alone=alone)
        agents.add_agents([str(i) for i in range(2000)])
        agents.update(agent, np.full(40_000, 0.5), np.tile(np.arange(20.0), 2000))
        votes = agents.release_now(20.0).releases.votes.sum(axis=0)
        assert votes[1] == 20_000
        assert votes[0] == (2000 if alone else 1)
        assert found.vote is not None
        noises.append(float(np.abs(votes[3:]).max() / found.vote.noise.stddev))  # type: ignore[union-attr]
    assert noises[0] < 5
    assert noises[1] > 20


def content(values: Ints, groups: Ints, span: int) -> tuple[ContentPairs, Ints]:
    pairs = content_pairs(groups, values, span, keyed_owner_words(list("xyz")), NOISE)
    return pairs, np.bincount(spread_vote_bins(pairs.difference, span), minlength=VOTE_BINS)


@pytest.mark.parametrize("distinct", [2, 7, 10**6])
def test_one_value_that_is_replaced_moves_at_most_two_pairs_whatever_the_order(
    distinct: int,
) -> None:
    """In 150 frames each; and any permutation, a sorted one as well, gives the same pairs."""
    rng, most = np.random.default_rng(distinct), 0
    for _ in range(150):
        n, span = int(rng.integers(1, 120)), 1 << 20
        groups, values = rng.integers(0, 3, n), rng.integers(0, distinct, n) * (span // distinct)
        found, counts = content(values, groups, span)
        sorted_rows = np.argsort(values, kind="stable")
        again, _ = content(values[sorted_rows], groups[sorted_rows], span)
        assert again.agent.tolist() == found.agent.tolist()
        assert again.difference.tolist() == found.difference.tolist()
        assert again.number.tolist() == found.number.tolist()

        values[int(rng.integers(n))] = int(rng.integers(span))
        sorted_rows = np.argsort(values, kind="stable")
        other, moved = content(values[sorted_rows], groups[sorted_rows], span)
        assert other.number.tolist() == found.number.tolist()  # public
        assert np.abs(moved - counts).sum() <= 4
        assert ((moved - counts) ** 2).sum() <= 8
        most = max(most, int(np.abs(moved - counts).sum()))
    assert most >= 2


def test_the_expected_number_of_pairs_is_their_mean() -> None:
    """Of 400 keys, within five standard errors: an alarm by chance in fewer than 1 of a million."""
    values, groups = np.arange(300) * 7, np.repeat([0, 0, 1], 100)
    made = [
        len(
            content_pairs(
                groups, values, 5000, keyed_owner_words(["x", "y"]), NOISE.derived(str(key), {})
            ).agent
        )
        for key in range(400)
    ]
    expected = expected_pairs(np.array([200, 100])).sum()
    assert abs(np.mean(made) - expected) < 5 * np.std(made) / 20
    assert content_pairs(
        groups[:0], values[:0], 8, keyed_owner_words(["x"]), NOISE
    ).number.tolist() == [0]


def test_pairs_are_given_where_they_are_by_content_alone() -> None:
    found = settings(pairs=BY_CONTENT)
    agents = Agents(found, NOISE)
    agents.add_agents(["x", "y", "z"])
    agents.update(np.arange(3), np.full(3, 0.5), np.zeros(3))
    pairs, _ = content(np.arange(90), np.repeat([0, 1, 2], 30), found.grid.span)
    agents.count_pairs(pairs)
    (votes,) = agents.release_now(1.0).releases.votes[:, :2][[0]].tolist()
    assert votes == [1, round(float(pairs.number.sum()))]
    with pytest.raises(ValueError, match="pairs must be by_content for pairs that are given"):
        Agents(settings(), NOISE).count_pairs(pairs)
    with pytest.raises(ValueError, match="pairs must be one of by_time, by_content, got 'by_row'"):
        settings(pairs="by_row")


def test_pure_noise_is_of_integers_for_votes_and_histograms_too() -> None:
    found = settings(noise="laplace", counter="pm1", histogram_share=0.1, pairs=BY_CONTENT)
    assert found.vote is not None
    assert found.histogram is not None
    assert found.vote.noise.scale == pytest.approx(4 / 0.2)  # type: ignore[union-attr]
    assert found.histogram.noise.scale == pytest.approx(2 / 0.1)  # type: ignore[union-attr]
    assert found.fresh.scale == pytest.approx(found.grid.span / 0.7)  # type: ignore[union-attr]
    persons = settings(noise="laplace", counter="pm1", per_person=3)
    assert persons.vote is not None
    assert persons.vote.noise.scale == pytest.approx(3 * 2 / 0.2)  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(4))
def test_pairs_stand_in_the_order_of_the_samples_that_complete_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    moment = rng.permutation(50)[: 13 * seed]
    pairs = HostPairs(rng.integers(0, 7, len(moment)), rng.integers(0, 11, len(moment)), moment)
    order, complete = order_of_pairs(pairs, 60)
    assert order.tolist() == np.argsort(moment, kind="stable").tolist()
    assert complete.tolist() == [int(np.count_nonzero(moment <= i)) for i in range(60)]
