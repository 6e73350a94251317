"""Shares, quantiles and exceedances of agents: the learned prior, what is known under it, and
whether they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import gamma

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.own_histogram import (
    CELLS,
    histogram_cells,
    histogram_edges,
    histograms_of_releases,
)
from meanstream.operators.collaboration.shares import shares_prior as prior_module
from meanstream.operators.collaboration.shares.asked_shares import ShareQueries
from meanstream.operators.collaboration.shares.shares_posterior import own_shares, released_shares
from meanstream.operators.collaboration.shares.shares_prior import (
    NoisedShares,
    SharesPrior,
    fit_shares_prior,
    sampled_histograms,
    shares_stratum,
    simplex_projection,
)
from meanstream.operators.collaboration.shares.shares_quantiles import BinnedLaw, valid_quantiles
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats, Ints

MEAN = np.array([0.0, 0.1, 0.3, 0.35, 0.2, 0.05, 0.0])
LAW = BinnedLaw(0.0, 1.0)


def noised(
    n: int, *, concentration: float = 50.0, samples: int = 20, stddev: float = 10.0, seed: int = 1
) -> Any:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(concentration * np.maximum(MEAN, 1e-9), n)
    counts = np.stack([rng.multinomial(samples, row / row.sum()) for row in shares])
    told = NoisedShares(
        counts=counts + np.rint(rng.normal(0, stddev, counts.shape)),
        samples=np.full(n, samples),
        variance=np.full(n, stddev**2),
    )
    return shares, counts, told


@pytest.mark.parametrize("stddev", [1e-3, 5.0, 15.0])
def test_the_mean_is_found_within_what_the_prior_says_of_it(stddev: float) -> None:
    """Over 20 seeds, sums of shares are off by no more than stated, and what is stated is not
    idle."""
    errors, stated = [], []
    for seed in range(20):
        prior = fit_shares_prior(noised(1000, stddev=stddev, seed=seed)[2], np.ones(7))
        assert prior.mean.sum(axis=1) == pytest.approx(1)
        assert (prior.mean > 0).all()
        errors.append((np.cumsum(prior.mean[1] - MEAN)[:-1] ** 2).sum())
        stated.append(prior.below[1].sum())
    assert 0.1 * np.mean(stated) < np.mean(errors) < np.mean(stated)


@pytest.mark.parametrize("concentration", [3.0, 30.0, 300.0])
def test_the_concentration_is_found(concentration: float) -> None:
    prior = fit_shares_prior(
        noised(3000, concentration=concentration, samples=50, stddev=3.0)[2], np.ones(7)
    )
    found = float(np.exp(prior.weight @ np.log(prior.concentration)))
    assert found == pytest.approx(concentration, rel=0.35)


def test_noise_that_hides_everything_leaves_a_prior_that_is_worth_little() -> None:
    few = fit_shares_prior(noised(10, samples=5, stddev=40.0)[2], np.ones(7))
    many = fit_shares_prior(noised(5000, samples=50, stddev=5.0)[2], np.ones(7))
    assert float(few.worth(0).max()) < 5
    assert float(many.weight @ many.worth(2)) > 25


def test_nobody_or_two_are_no_population() -> None:
    for n in (0, 1, 2):
        prior = fit_shares_prior(noised(3)[2].take(np.arange(n)), np.ones(7))
        assert prior.agents == 0
        assert prior.mean[0] == pytest.approx(np.full(7, 1 / 7))


def test_strata_of_the_count_are_told_apart_where_they_are_apart() -> None:
    """Who has few samples is of another kind: its stratum's mean is its own; where all are alike,
    it is everybody's."""
    rng = np.random.default_rng(3)
    other = np.array([0.0, 0.5, 0.3, 0.1, 0.1, 0.0, 0.0])
    for rare in (MEAN, other):
        samples = np.repeat([20, 200], 1500)
        shares = np.where((samples == 20)[:, None], rare, MEAN)
        counts = np.stack([rng.multinomial(n, row) for n, row in zip(samples, shares, strict=True)])
        told = NoisedShares(
            counts=counts + rng.normal(0, 8, counts.shape),
            samples=samples,
            variance=np.full(3000, 64),
        )
        prior = fit_shares_prior(told, np.ones(7))
        assert np.abs(prior.mean[shares_stratum(np.array([20]))[0]] - rare).sum() < 0.1
        assert np.abs(prior.mean[shares_stratum(np.array([200]))[0]] - MEAN).sum() < 0.1
        assert prior.mean[0] == pytest.approx(
            prior.mean[1], abs=0.01
        )  # nobody there: as the nearest


def test_the_prior_is_the_same_in_any_order() -> None:
    told = noised(500)[2]
    one, other = (fit_shares_prior(t, np.ones(7)) for t in (told, told.take(np.arange(500)[::-1])))
    assert one.mean == pytest.approx(other.mean, rel=1e-9)


def test_who_is_looked_at_does_not_depend_on_the_order_nor_on_how_agents_are_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the prior of those is the same to the last bit: in another order the sums would be
    rounded otherwise."""
    monkeypatch.setattr(prior_module, "MOST_LOOKED_AT", 300)
    rng = np.random.default_rng(4)
    key, told = rng.permutation(2**62 + np.arange(1000) ** 5), noised(1000)[2]
    whole = sampled_histograms(key)
    assert key[whole].tolist() == sorted(key.tolist())[:300]
    priors = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(1000)
        parts = [part[sampled_histograms(key[part])] for part in np.array_split(order, 3)]
        joined = np.concatenate(parts)
        looked_at = joined[sampled_histograms(key[joined])]
        assert looked_at.tolist() == whole.tolist()
        priors.append(fit_shares_prior(told.take(looked_at), np.ones(7)))
    assert (
        len(
            {
                prior.mean.tobytes() + prior.below.tobytes() + prior.weight.tobytes()
                for prior in priors
            }
        )
        == 1
    )


def test_projection_is_the_nearest_point_of_the_simplex() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        point = rng.normal(0.2, 0.3, 5)
        found = simplex_projection(point)
        others = rng.dirichlet(np.ones(5), 2000)
        assert np.linalg.norm(found - point) < np.linalg.norm(others - point, axis=1).min() + 1e-3


def cells_of(values: Floats, law: BinnedLaw = LAW) -> Ints:
    grid = FixedPoint(law.lower, law.upper)
    ends = histogram_cells(histogram_edges(grid, law.exceeds))
    return np.bincount(
        np.searchsorted(ends, grid.encode(values), side="left"), minlength=len(ends) + 1
    )[None]


def test_many_own_samples_outweigh_any_prior() -> None:
    values = np.random.default_rng(1).beta(2, 5, 200_000)
    found = own_shares(SharesPrior.alone(LAW.widths), cells_of(values))
    for q in (0.01, 0.5, 0.9):
        value, low, high = LAW.quantile(found, q, level=0.95)[0]
        assert low <= value <= high
        assert value == pytest.approx(np.quantile(values, q), abs=0.005)
        assert high - low < 0.02


def test_an_agent_without_samples_is_told_of_the_population() -> None:
    prior = SharesPrior.alone(LAW.widths)
    found = own_shares(prior, np.zeros((1, CELLS * 17 + 2), np.int64))
    value, low, high = LAW.quantile(found, 0.5, level=0.95)[0]
    assert value == pytest.approx(0.5, abs=0.01)
    assert (low, high) == (0.0, 1.0)


def test_values_at_the_bounds_are_told_as_the_bounds() -> None:
    values = np.repeat([0.0, 1.0], [300, 700])
    found = own_shares(SharesPrior.alone(LAW.widths), cells_of(values))
    assert LAW.quantile(found, 0.2, level=0.95)[0].tolist() == [0.0, 0.0, 0.0]
    assert LAW.quantile(found, 0.5, level=0.95)[0].tolist() == [1.0, 1.0, 1.0]
    share, low, high = BinnedLaw(0.0, 1.0, (0.0,)).exceedance(
        own_shares(SharesPrior.alone(LAW.widths), cells_of(values)), 0.0, level=0.95
    )[0]
    assert low < share < high
    assert share == pytest.approx(0.7, abs=0.002)


def test_answers_are_in_order_and_within_the_bounds() -> None:
    rng = np.random.default_rng(5)
    prior = fit_shares_prior(noised(50, stddev=8.0)[2], np.ones(7))
    wide = SharesPrior.alone(LAW.widths)
    law = BinnedLaw(0.0, 1.0, (0.25, 0.8))
    cells = rng.poisson(0.05, (400, CELLS * 17 + 2))
    told = NoisedShares(
        counts=rng.normal(0, 20, (400, 19)),
        samples=rng.integers(1, 60, 400),
        variance=np.full(400, 400.0),
    )
    assert prior.agents == 50
    for found in (own_shares(wide, cells), released_shares(wide, told)):
        last = np.full((400, 3), -1.0)
        for q in (0.05, 0.5, 0.9, 0.99):
            answer = law.quantile(found, q, level=0.95)
            assert (answer[:, 1] <= answer[:, 0]).all()
            assert (answer[:, 0] <= answer[:, 2]).all()
            assert ((answer >= 0) & (answer <= 1)).all()
            assert (answer[:, 0] >= last[:, 0]).all()
            last = answer
        low, high = (law.exceedance(found, t, level=0.95) for t in (0.25, 0.8))
        assert (low[:, 0] >= high[:, 0]).all()
        assert ((low[:, 1] <= low[:, 0]) & (low[:, 0] <= low[:, 2])).all()


def population(seed: int, epsilon: float = 1.0) -> tuple[ShareQueries, Agents, Floats, Floats]:
    """400 agents of gamma laws with 5 to 60 samples each: answers of all, the true quantile and
    exceedance."""
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.normal(np.log(0.1), 0.3, 400))
    size = rng.integers(5, 61, 400)
    agent = np.repeat(np.arange(400), size)
    value = np.minimum(rng.gamma(2.0, scale[agent]), 1.0)
    settings = AgentsSettings(
        lower=0, upper=1, epsilon=epsilon, delta=1e-6, horizon=1, schedule="geometric:1000000000000,2",
        histogram_share=0.1, exceeds=(0.3,),
    )  # fmt: skip
    agents = Agents(
        settings, KeyedNoise.of_judged_key(rng.bytes(32), deployment="test", purpose="agents")
    )
    agents.add_agents([str(i) for i in range(400)])
    agents.update(agent, value, np.arange(len(agent), dtype=float))
    agents.release_now(1e6)
    truth = np.minimum(gamma.ppf(0.9, 2.0, scale=scale), 1.0)
    return ShareQueries(settings, (0.9,), 0.95), agents, truth, gamma.sf(0.3, 2.0, scale=scale)


@pytest.mark.parametrize("by", ["own", "released"])
def test_intervals_cover(by: str) -> None:
    """12 populations: coverage at least .93 in all and .89 in the worst (3 standard errors of 400
    are .03)."""
    covered: dict[str, list[float]] = {"quantile": [], "exceeds": []}
    for seed in range(12):
        asked, agents, quantile, exceeds = population(seed)
        told = histograms_of_releases(agents.latest())
        prior = asked.fit(told, told.agent)
        answers = (
            asked.own(prior, agents.own().cells) if by == "own" else asked.released(prior, told)
        )
        for name, answer, truth in (
            ("quantile", answers.quantiles[:, 0], quantile), ("exceeds", answers.exceeds[:, 0], exceeds),
        ):  # fmt: skip
            covered[name].append(float(((answer[:, 1] <= truth) & (truth <= answer[:, 2])).mean()))
    for rates in covered.values():
        assert np.mean(rates) > 0.93
        assert min(rates) > 0.89


def test_agents_gain_from_what_others_release() -> None:
    """Squared errors of the 90 % quantile over 6 populations at epsilon 10, against the own
    samples' alone."""
    ours, alone = [], []
    for seed in range(6):
        asked, agents, quantile, _ = population(seed, epsilon=10.0)
        cells, prior = (
            agents.own().cells,
            asked.fit(histograms_of_releases(agents.latest()), np.arange(agents.n_agents)),
        )
        own = [np.quantile(np.repeat(asked.law.cell_ends[1:], row), 0.9) for row in cells]
        ours.append(((asked.own(prior, cells).quantiles[:, 0, 0] - quantile) ** 2).mean())
        alone.append(((np.array(own) - quantile) ** 2).mean())
    assert np.mean(ours) < 0.85 * np.mean(alone)


def test_answers_of_agents_do_not_depend_on_other_agents_samples() -> None:
    """Given what is released, an agent's answer reads its own cells, and no chunk of others beside
    it."""
    asked, agents, _, _ = population(1)
    prior, cells = (
        asked.fit(histograms_of_releases(agents.latest()), np.arange(agents.n_agents)),
        agents.own().cells,
    )
    alone = asked.own(prior, cells[7:8])
    assert asked.own(prior, cells).quantiles[7].tolist() == alone.quantiles[0].tolist()
    changed = np.where(np.arange(400)[:, None] == 7, cells, cells[::-1] + 5)
    assert asked.own(prior, changed).exceeds[7].tolist() == alone.exceeds[0].tolist()


@pytest.mark.parametrize("bad", [[0], [1.0], [-0.5], ["x"], [float("nan")]])
def test_quantiles_outside_of_0_and_1_are_refused(bad: list[Any]) -> None:
    with pytest.raises(ValueError, match="quantiles must"):
        valid_quantiles(bad)
