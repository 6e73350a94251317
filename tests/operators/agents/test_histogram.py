"""The histogram of samples: what it counts, when, that its noise is a function of the input, and
what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.agents_settings import settings_identity
from meanstream.operators.agents.own_histogram import (
    CELLS,
    EVEN_BINS,
    MOST_BINS,
    HistogramColumns,
    histogram_cells,
    histogram_edges,
    histograms_of_releases,
)
from meanstream.operators.agents.vote_of_spread import FACTOR
from meanstream.operators.noise.calibration import calibrated_gaussian_stddev
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import KeyedNoise, canonical_spelling
from tests.privacy.test_person_sensitivity import SameNoise

SHARE = 0.25


def settings(**changes: Any) -> AgentsSettings:
    known: dict[str, Any] = {
        "lower": 0.0,
        "upper": 1.0,
        "epsilon": 1.0,
        "delta": 1e-6,
        "horizon": 8,
        "noise": "gaussian",
    }
    known |= {"schedule": "geometric:4,2", "histogram_share": SHARE, "exceeds": (0.3,)}
    return AgentsSettings(**known | changes)


def noise(seed: int = 0) -> KeyedNoise:
    return KeyedNoise.of_judged_key(
        bytes(range(seed, seed + 32)), deployment="test", purpose="agents"
    )


def stream(n: int, agents: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    value = np.where(rng.random(n) < 0.5, rng.choice([0.0, 0.3, 1.0], n), rng.random(n))
    return rng.integers(0, agents, n), value, np.arange(float(n))


def fed(found: AgentsSettings, source: Any, batches: int, n: int = 600, agents: int = 7) -> Agents:
    agent, value, time = stream(n, agents)
    everybody = Agents(found, source)
    everybody.add_agents([str(i) for i in range(agents)])
    for part in np.array_split(np.arange(n), batches):
        everybody.update(agent[part], value[part], time[part])
    return everybody


@pytest.mark.parametrize(
    "exceeds", [(), (30.0,), (-30.0, 0.0, 119.9), tuple(np.linspace(-29, 100, 16))]
)
def test_bins_hold_the_bounds_alone_and_thresholds_are_edges(exceeds: tuple[float, ...]) -> None:
    grid = FixedPoint(-30.0, 120.0)
    edges = histogram_edges(grid, exceeds)
    assert edges[0] == 0
    assert edges[-1] == grid.span - 1
    assert list(edges) == sorted(set(edges))
    assert {grid.encode_one(t) for t in exceeds} <= set(edges)
    assert len(edges) + 1 <= MOST_BINS
    assert max(np.diff(edges)) <= 1.51 * grid.span / EVEN_BINS
    cells = histogram_cells(edges)
    assert len(cells) + 1 == CELLS * (len(edges) - 1) + 2
    assert set(edges) <= set(cells.tolist())


def test_counts_are_those_of_the_definition() -> None:
    """Without noise: every sample is in one bin, strictly above a threshold or not, and told with
    the right release."""
    found = settings()
    agent, value, _ = stream(600, 7)
    agents = fed(found, SameNoise(), 13)
    assert found.histogram is not None
    own, told = agents.own().cells, histograms_of_releases(agents.latest())
    at = histogram_edges(found.grid, found.exceeds).index(found.grid.encode_one(0.3))
    shift = np.rint(found.histogram.noise.sample(SameNoise().bits([0]))).astype(int)[0]
    for a in range(7):
        mine = value[agent == a]
        assert own[a].sum() == len(mine)
        assert own[a][0] == (found.grid.encode(mine) == 0).sum()
        assert own[a][-1] == (mine == 1.0).sum()
        bins = found.histogram.bins_of_cells(own[[a]])[0]
        assert bins[at + 1 :].sum() == (found.grid.encode(mine) > found.grid.encode_one(0.3)).sum()
        last, number = 0, 0
        for n in found.times.times(8).tolist():  # type: ignore[union-attr]
            if n <= len(mine) and n // FACTOR >= last:
                last, number = n, number + 1
        assert (told.number[a], told.samples[a]) == (number, last)
        point, ends = found.grid.encode(mine[:last]), [-1, *found.histogram.edges, found.grid.span]
        expected = np.array(
            [((low < point) & (point <= high)).sum() for low, high in pairwise(ends)]
        )
        assert (told.counts[a] - number * shift).tolist() == expected.tolist()


def test_batches_restores_and_moves_change_no_byte() -> None:
    found, key = settings(), noise()
    whole, parts = fed(found, key, 1), fed(found, key, 50)
    for one, other in zip(
        histograms_of_releases(whole.latest()), histograms_of_releases(parts.latest()), strict=True
    ):
        assert one.tobytes() == other.tobytes()
    assert whole.latest().total.tobytes() == parts.latest().total.tobytes()
    again = Agents(found, key)
    again.add_agents(whole.names)
    again.restore_chunk(0, whole.snapshot_chunk(0))
    moved = Agents(found, key)
    moved.add_agents(whole.names)
    moved.put_rows(np.arange(7), parts.rows(np.arange(7)))
    agent, value, time = stream(400, 7, seed=3)
    for other in (again, moved):
        assert other.own().cells.tobytes() == whole.own().cells.tobytes()
    for everybody in (whole, again, moved):
        everybody.update(agent, value, time + 600)
    for other in (again, moved):
        assert (
            histograms_of_releases(other.latest()).counts.tobytes()
            == histograms_of_releases(whole.latest()).counts.tobytes()
        )


def test_other_counts_meet_other_noise() -> None:
    """Streams with one sum and one number, but other bins: neither mean nor histogram shares a
    draw."""
    found, key = settings(horizon=1, spread_share=0.0), noise()
    values = np.array([[0.0, 1.0, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5]])
    told = []
    for row in values:
        agents = Agents(found, key)
        agents.add_agents(["a"])
        agents.update(np.zeros(4, np.int64), row, np.arange(4.0))
        bins = agents.own().cells
        assert found.histogram is not None
        noise_of_counts = histograms_of_releases(
            agents.latest()
        ).counts - found.histogram.bins_of_cells(bins)
        told.append((int(agents.latest().total[0]), noise_of_counts[0]))
    assert told[0][0] != told[1][0]
    assert not (told[0][1] == told[1][1]).any()


def test_without_a_histogram_nothing_is_another_than_it_was() -> None:
    plain = AgentsSettings(
        lower=0, upper=1, epsilon=1, delta=1e-6, horizon=8, schedule="geometric:4,2"
    )
    assert not {"histogram_share", "exceeds"} & {
        *settings_identity(plain),
        *canonical_spelling(plain),
    }
    assert settings_identity(settings())["exceeds"] == (0.3,)
    agents = fed(plain, noise(), 3)
    assert not [name for name in agents.snapshot_chunk(0) if "histogram" in name]
    assert len(histograms_of_releases(agents.latest()).agent) == 0
    assert agents.own().cells.shape == (agents.n_agents, 0)


@pytest.mark.parametrize("per_person", [None, 3])
@pytest.mark.parametrize("counter", ["toeplitz", "optimal", "pm1"])
def test_means_votes_and_histogram_spend_the_budget_together(
    counter: str, per_person: int | None
) -> None:
    found = settings(counter=counter, per_person=per_person, spread_share=0.1)
    assert found.vote is not None
    assert found.histogram is not None
    units = per_person or 1
    means = found.mechanism.l2_sensitivity * found.grid.span * units / found.fresh.stddev  # type: ignore[union-attr]
    votes = 2**0.5 * units / found.vote.noise.stddev
    counts = 2**0.5 * units / found.histogram.noise.stddev
    mu = 1 / calibrated_gaussian_stddev(found.epsilon, found.delta_of_noise, calibration="analytic")
    assert means**2 + votes**2 + counts**2 == pytest.approx(mu**2, rel=1e-9)
    assert found.mu == pytest.approx(mu, rel=1e-9)
    assert counts**2 == pytest.approx(SHARE * mu**2, rel=1e-9)
    assert found.delta_of_noise < replace(found, histogram_share=0.0, exceeds=()).delta_of_noise
    assert found.numeric_slack < 0.01


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"histogram_share": 0.95},
            r"histogram_share must lie in \[0, 0\.9\): what spread_share leaves, got 0\.95",
        ),
        ({"histogram_share": -0.1}, r"histogram_share must lie in \[0, 0\.9\)"),
        ({"histogram_share": 0.0}, "histogram_share must be more than 0 with exceeds, got 0.0"),
        ({"exceeds": (1.0,)}, r"exceeds must lie in \[0\.0, 1\.0\), got 1\.0"),
        ({"exceeds": (float("nan"),)}, "exceeds must"),
        (
            {"exceeds": tuple(np.linspace(0, 0.9, 17))},
            "exceeds must be at most 16 thresholds, got 17",
        ),
        (
            {"memory": "half-life:500", "horizon": None},
            "histogram_share must be 0, .* a memory that forgets, got 0.25",
        ),
        (
            {"mode": "paper", "spread_share": 0.0},
            "histogram_share must be 0, .* in paper mode and with a memory",
        ),
        ({"histogram_share": 1e-13}, "histogram_share must be 0, or a part of epsilon"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as told:
        settings(**changes)
    assert "\n" not in str(told.value)


def test_one_threshold_has_one_spelling() -> None:
    assert settings(exceeds=("0.3", 0.3)) == settings(exceeds=[0.3]) == settings()


def honest() -> tuple[AgentsSettings, HistogramColumns, np.ndarray, np.ndarray]:
    found = settings()
    agents = fed(found, noise(), 3, n=6000, agents=20)
    return (
        found,
        histograms_of_releases(agents.latest()),
        agents.latest().index,
        agents.latest().count,
    )


def test_histograms_of_honest_agents_are_possible() -> None:
    found, told, index, count = honest()
    assert found.histogram is not None
    variance = np.full(20, found.histogram.noise.variance)
    assert found.histogram.possible(told, variance, index=index, count=count).all()


@pytest.mark.parametrize(
    ("field", "value"),
    [("number", 0), ("number", 9), ("samples", 10**7), ("samples", 0), ("counts", 10**6)],
)
def test_forged_histograms_are_not(field: str, value: int) -> None:
    found, told, index, count = honest()
    assert found.histogram is not None
    variance = np.full(20, found.histogram.noise.variance)
    forged = told._replace(**{field: np.full_like(getattr(told, field), value)})
    assert not found.histogram.possible(forged, variance, index=index, count=count).any()
    assert not found.histogram.possible(told, variance / 2, index=index, count=count).any()
    drained = told._replace(counts=told.counts - 10 * int(found.histogram.noise.stddev))
    assert not found.histogram.possible(drained, variance, index=index, count=count).any()


def test_own_samples_are_counted_by_cells() -> None:
    """Without a histogram there are no cells."""
    found, key = settings(), noise()
    agent, value, time = stream(400, 7)
    whole, plain = Agents(found, key), Agents(replace(found, histogram_share=0.0, exceeds=()), key)
    for agents in (whole, plain):
        agents.add_agents([f"agent {i}" for i in range(7)])
        agents.update(agent, value, time)
    assert whole.own().cells.sum(axis=1).tolist() == whole.own().count.tolist()
    assert plain.own().cells.shape == (7, 0)
