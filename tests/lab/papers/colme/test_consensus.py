"""Consensus on a graph of partners: weights, what is left out, and what it gains in exact classes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from meanstream.lab.papers.colme import consensus
from meanstream.lab.papers.colme.consensus import (
    Consensus,
    MessagePassing,
    PartnerEdges,
    partner_edges,
)
from meanstream.lab.simulation.broadcast import simulate_broadcast
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.operators.records import OwnMeans, ReleaseColumns

VARIANCE = 0.01


def classes(n: int, seed: int = 0) -> tuple[ReleaseColumns, OwnMeans]:
    """Releases of agents of two classes that are ten standard errors apart, and their own means."""
    rng = np.random.default_rng(seed)
    agent = np.arange(n)
    one = np.ones(n, np.int64)
    truth = np.where(agent % 2 == 0, 0.0, 1.4)
    own = truth + rng.normal(0, VARIANCE**0.5, n)
    releases = ReleaseColumns(
        agent=agent,
        index=one,
        count=400 * one,
        total=one,
        mean=own + rng.normal(0, VARIANCE**0.5, n),
        noise_variance=np.full(n, VARIANCE),
    )
    return releases, OwnMeans(agent=agent, count=400 * one, mean=own, variance=np.full(n, VARIANCE))


def test_edges_stay_when_others_come_and_do_not_depend_on_who_is_looked_at():
    few = {tuple(edge) for edge in np.stack(partner_edges(np.arange(50), 10)).T.tolist()}
    many = {tuple(edge) for edge in np.stack(partner_edges(np.arange(400), 10)).T.tolist()}
    assert few == {edge for edge in many if max(edge) < 50}

    some = np.arange(0, 400, 3)
    edges = partner_edges(some, 10)
    among = {(int(some[a]), int(some[b])) for a, b in zip(*edges, strict=True)}
    assert among == {edge for edge in many if edge[0] % 3 == 0 and edge[1] % 3 == 0}


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_agents_learn_alone_or_from_each_other(n):
    releases, own = classes(n)
    answer = Consensus().fit(releases, np.full(n, 2 * VARIANCE)).estimate(own)
    assert answer.value.tolist() == pytest.approx(own.mean.tolist())
    assert answer.class_size.tolist() == [1.0] * n


def test_an_answer_is_the_weighted_sum_that_its_definition_says():
    """A dense transcription: `W^8`, less the own release, by inverse variances."""
    n = 40
    releases, own = classes(n)
    total = np.full(n, 2 * VARIANCE)
    answer = Consensus().fit(releases, total).estimate(own)

    # Differences of 2.6 standard errors or less pass the test of agents with 400 samples.
    limit = -ndtri(0.5 * 0.05 / np.log(401)) * (4 * VARIANCE) ** 0.5
    accepted = np.zeros((n, n))
    for a, b in zip(*partner_edges(np.arange(n), 10), strict=True):
        if abs(releases.mean[a] - releases.mean[b]) < limit:
            accepted[a, b] = accepted[b, a] = 1.0

    degree = accepted.sum(axis=0)
    mixing = accepted / (np.maximum(degree, degree[:, np.newaxis]) + 1)
    mixing += np.diag(1 - mixing.sum(axis=1))
    weights = np.linalg.matrix_power(mixing, 8)
    own_weight = np.diagonal(weights)
    others = (weights @ releases.mean - own_weight * releases.mean) / (1 - own_weight)
    variance = 2 * VARIANCE * ((weights**2).sum(axis=1) - own_weight**2) / (1 - own_weight) ** 2

    expected = (own.mean / VARIANCE + others / variance) / (1 / VARIANCE + 1 / variance)
    fits = np.abs(own.mean - others) < consensus.FITS * np.sqrt(VARIANCE + variance)
    assert fits.mean() > 0.9
    assert answer.value[fits] == pytest.approx(expected[fits], rel=1e-9, abs=1e-12)
    gain = 1 + VARIANCE / variance
    assert answer.effective_class_size[fits] == pytest.approx(gain[fits], rel=1e-9)


def test_estimated_weights_are_near_the_exact_ones(monkeypatch):
    """Of 256 probes: a variance has a relative standard error of .09, so that its inverse is a little too large."""
    n = 600
    releases, own = classes(n)
    total = np.full(n, 2 * VARIANCE)
    exact = Consensus().fit(releases, total).estimate(own)
    monkeypatch.setattr(consensus, "EXACT", 0)
    estimated = Consensus().fit(releases, total).estimate(own)

    ratio = estimated.effective_class_size / exact.effective_class_size
    assert abs(float(ratio.mean()) - 1) < 0.1
    assert float(ratio.std()) < 0.2
    assert np.abs(estimated.value - exact.value).max() < 0.1 * VARIANCE**0.5


def test_whose_own_mean_does_not_fit_its_class_learns_alone():
    releases, own = classes(100)
    moved = own.mean.copy()
    moved[7] += 0.7
    answer = (
        Consensus()
        .fit(releases, np.full(100, 2 * VARIANCE))
        .estimate(OwnMeans(agent=own.agent, count=own.count, mean=moved, variance=own.variance))
    )
    assert answer.value[7] == pytest.approx(moved[7])
    assert answer.class_size[7] == 1.0
    assert answer.class_size[5] > 10


def test_nobody_s_release_moves_a_class_that_it_has_no_path_to():
    releases, own = classes(200)
    total = np.full(200, 2 * VARIANCE)
    before = Consensus().fit(releases, total).estimate(own)
    mean = releases.mean.copy()
    mean[1::2] += 0.3
    after = (
        Consensus()
        .fit(
            ReleaseColumns(
                agent=releases.agent,
                index=releases.index,
                count=releases.count,
                total=releases.total,
                mean=mean,
                noise_variance=releases.noise_variance,
            ),
            total,
        )
        .estimate(own)
    )
    assert after.value[::2] == pytest.approx(before.value[::2], rel=1e-9, abs=1e-12)
    assert np.abs(after.value[1::2] - before.value[1::2]).max() > 0.01


def test_partners_of_partners_gain_what_few_partners_cannot():
    """300 agents in three classes, 2,000 steps, 10 runs: .05 of alone is the goal; five standard
    errors more are allowed, so that a run is red by chance once in 3 million."""
    config = SimulationConfig.from_options(
        agents=300, steps=2000, runs=10, seed=5, collaboration="consensus"
    )
    result = simulate_broadcast(config)
    assert result.mse[0] - 5 * (result.stderr or [0.0])[0] < 0.05 * result.local[0]
    assert result.mse[0] < 0.1 * result.local[0]
    assert result.coverage[0] > 0.94


def test_no_partners_are_refused():
    with pytest.raises(ValueError, match=r"partners must lie in 1\.\.65535, got 0"):
        Consensus(partners=0)


def test_edges_are_pairs_of_places():
    edges = partner_edges(np.array([3, 900]), 10)
    assert isinstance(edges, PartnerEdges)
    assert set(edges.one.tolist()) <= {0, 1}


def test_messages_bring_the_releases_of_those_three_accepted_edges_away() -> None:
    """A search along the edges, one agent after the other."""
    n = 60
    releases, own = classes(n)
    answer = MessagePassing(partners=2).fit(releases, np.full(n, 2 * VARIANCE)).estimate(own)
    limit = -ndtri(0.5 * 0.05 / np.log(401)) * (4 * VARIANCE) ** 0.5
    partners: list[set[int]] = [set() for _ in range(n)]
    for a, b in zip(*partner_edges(np.arange(n), 2), strict=True):
        if abs(releases.mean[a] - releases.mean[b]) < limit:
            partners[a].add(int(b))
            partners[b].add(int(a))

    compared = 0
    for a in range(n):
        reached = {a}
        for _ in range(3):
            reached |= {c for b in reached for c in partners[b]}

        others = sorted(reached - {a})
        mixed = releases.mean[others].mean() if others else 0.0
        variance = 2 * VARIANCE / max(len(others), 1)
        if others and abs(own.mean[a] - mixed) < consensus.FITS * np.sqrt(VARIANCE + variance):
            expected = (own.mean[a] / VARIANCE + mixed / variance) / (1 / VARIANCE + 1 / variance)
            assert answer.value[a] == pytest.approx(expected, rel=1e-9, abs=1e-12)
            compared += 1

    assert compared > 50
