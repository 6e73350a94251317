"""The histogram with means and votes: exact sensitivity over all neighboring streams of small
cases, an audit, twins.

What moves is read off `Agents` itself, fed two streams. All that is released is one Gaussian
mechanism: the squared ratios of what one sample moves to the noise add up, and must not exceed that
of (epsilon, delta).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.own_histogram import (
    MOST_BINS,
    SampleHistogram,
    histograms_of_releases,
)
from meanstream.operators.agents.vote_of_spread import SpreadPairs
from meanstream.operators.noise.calibration import calibration_delta
from meanstream.operators.noise.distributions import TAIL_DELTA, GaussianNoise
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds
from meanstream.operators.records import VOTE_BINS, Floats, Ints
from tests.privacy.test_person_sensitivity import SameNoise
from tests.privacy.test_spread_vote_privacy import neighbors

SHARE = 0.3


def settings(**changes: Any) -> AgentsSettings:
    known: dict[str, Any] = {
        "lower": 0,
        "upper": 1,
        "epsilon": 1,
        "delta": 1e-6,
        "horizon": 4,
        "spread_share": 0.1,
        "noise": "gaussian",
    }
    return AgentsSettings(
        **known | {"schedule": "geometric:2,3", "histogram_share": SHARE} | changes
    )


def released(found: AgentsSettings, values: Floats, noise: Any) -> tuple[Ints, Ints, Ints]:
    """Totals, votes and histograms of each agent at each release; a row of values each."""
    agents, n = Agents(found, noise, votes_alone=True), len(values)
    agents.add_agents([str(i) for i in range(n)])
    told: list[tuple[Ints, Ints, Ints]] = []
    for t, column in enumerate(values.T):
        now = agents.update(np.arange(n), column, np.full(n, float(t))).releases
        if len(now):
            told.append(
                (now.total, now.votes[:, 2:], histograms_of_releases(agents.latest()).counts)
            )
    total, votes, counts = (np.stack(columns, axis=1) for columns in zip(*told, strict=True))
    return total, votes, counts


def moved(found: AgentsSettings) -> tuple[float, float]:
    """Greatest squared ratio of what a sample moves to the noise: in the histograms, and in all
    that is released."""
    one, other = neighbors()
    differ = [
        a - b for a, b in zip(*(released(found, v, SameNoise()) for v in (one, other)), strict=True)
    ]
    total, votes, counts = differ
    assert found.vote is not None
    assert found.histogram is not None

    def squared(
        sums: Ints, stddev: float
    ) -> Floats:  # what is new with each release has noise of its own
        return np.asarray((np.diff(sums, axis=1, prepend=0) ** 2).sum(axis=(1, 2)) / stddev**2)

    of_counts = squared(counts, found.histogram.noise.stddev)
    whitened = np.linalg.solve(found.mechanism.matrix(total.shape[1]), total.T.astype(float))
    of_means = (whitened**2).sum(axis=0) / found.fresh.stddev**2  # type: ignore[union-attr]
    together = of_counts + squared(votes, found.vote.noise.stddev) + of_means
    return float(of_counts.max()), float(together.max())


def spent(found: AgentsSettings, squared: float) -> float:
    """Delta at the settings' epsilon of a Gaussian mechanism that moves by so much of its noise."""
    tails = found.horizon * (1 + VOTE_BINS + MOST_BINS) * TAIL_DELTA
    return calibration_delta(1 / math.sqrt(squared), found.epsilon) + tails


@pytest.mark.parametrize("counter", ["toeplitz", "pm1"])
def test_one_sample_moves_all_that_is_released_within_the_budget_over_all_neighbors(
    counter: str,
) -> None:
    found = settings(counter=counter)
    counts, together = moved(found)
    assert found.histogram is not None
    assert counts * found.histogram.noise.stddev**2 == pytest.approx(
        2
    )  # sqrt 2 is attained, and never exceeded
    assert spent(found, together) <= found.delta
    if counter == "pm1":  # a sample is in one increment: the bound is attained
        assert spent(found, together) > 0.99 * found.delta


def with_histogram(found: AgentsSettings, histogram: SampleHistogram) -> AgentsSettings:
    twin = replace(found)
    twin.__dict__["histogram"] = histogram
    return twin


def weaker(histogram: SampleHistogram, factor: float) -> SampleHistogram:
    return replace(histogram, noise=GaussianNoise(histogram.noise.stddev / factor))


def test_a_histogram_of_sensitivity_1_is_caught() -> None:
    found = settings(counter="pm1")
    assert found.histogram is not None
    assert (
        spent(found, moved(with_histogram(found, weaker(found.histogram, math.sqrt(2))))[1])
        > 2 * found.delta
    )


def test_a_histogram_that_is_not_charged_is_caught() -> None:
    """Known bad: means and votes have the whole budget, and the histogram comes on top."""
    found = settings(counter="pm1")
    assert found.histogram is not None
    twin = with_histogram(settings(counter="pm1", histogram_share=0.0), found.histogram)
    assert spent(found, moved(twin)[1]) > 2 * found.delta


class ToldAgain(SampleHistogram):
    """Known bad: all samples are noised anew with each release of counts."""

    def cast(
        self,
        rows: dict[str, np.ndarray],
        agent: Ints,
        count: Ints,
        ids: NoiseIds,
        noise: KeyedNoise,
    ) -> None:
        before = rows["histogram_new"][agent]
        SampleHistogram.cast(self, rows, agent, count, ids, noise)
        rows["histogram_new"][agent] = before


class BothNeighbors(SampleHistogram):
    """Known bad: a sample is counted in the next bin, too."""

    def samples(
        self, rows: dict[str, np.ndarray], who: Ints, point: Ints, starts: Ints
    ) -> SpreadPairs:
        found = SampleHistogram.samples(self, rows, who, point, starts)
        agent = np.repeat(who, np.diff(starts, append=len(point)))
        np.add.at(rows["histogram_new"], (agent, np.maximum(found.bins - 1, 0)), 1)
        return found


@pytest.mark.parametrize("twin", [ToldAgain, BothNeighbors])
def test_samples_that_are_counted_twice_are_caught(twin: type[SampleHistogram]) -> None:
    found = settings(counter="pm1")
    assert found.histogram is not None
    bad = with_histogram(found, twin(found.histogram.edges, found.histogram.noise))
    assert spent(found, moved(bad)[1]) > 2 * found.delta


def separation(
    found: AgentsSettings, claimed: AgentsSettings, n: int = 20_000
) -> tuple[float, float]:
    """Measured mu of canaries whose first sample is at either bound by their own coin, and its
    standard error.

    The score is the matched filter of the claimed mechanism on the first release: total, vote and
    histogram.
    """
    coin = np.random.default_rng(7).random(n) < 0.5
    values = np.stack(
        [coin.astype(float), np.zeros(n)], axis=1
    )  # a pair of equal samples, or of opposite ones
    noise = KeyedNoise(b"f25735d7f2b7edd3a59407cfb81435ed", deployment="audit", purpose="agents")
    total, votes, counts = released(found, values, noise)
    assert claimed.vote is not None
    assert claimed.histogram is not None
    score = total[:, 0] * claimed.grid.span / claimed.fresh.stddev**2  # type: ignore[union-attr]
    score = score + (votes[:, 0, -1] - votes[:, 0, 0]) / claimed.vote.noise.stddev**2
    score = score + (counts[:, 0, -1] - counts[:, 0, 0]) / claimed.histogram.noise.stddev**2
    apart = score[coin].mean() - score[~coin].mean()
    return apart / math.sqrt(0.5 * (score[coin].var() + score[~coin].var())), 2 / math.sqrt(n)


def test_an_audit_finds_the_claimed_strength_and_no_more() -> None:
    """Of PM-I, one release: mu within 4 standard errors (false alarms 1 in 16,000); the weaker twin
    is beyond them."""
    found = settings(counter="pm1", horizon=1)
    assert found.mu is not None
    assert found.histogram is not None
    measured, error = separation(found, found)
    assert abs(measured - found.mu) < 4 * error
    weak = with_histogram(found, weaker(found.histogram, 3))
    assert separation(weak, weak)[0] > found.mu + 4 * error
