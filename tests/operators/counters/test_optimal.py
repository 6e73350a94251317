"""The optimal factorization: exact covariance, the same bits everywhere, optimal, and how it is
refused."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
import pytest

from meanstream.lab.papers.bounds.agents_forecast import forecast_agents_table
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.release_times import Counts, parse_release_times
from meanstream.operators.counters import optimal
from meanstream.operators.counters.optimal import (
    LONGEST,
    Optimal,
    factorize_optimal_counter,
    optimal_counter_sampling,
)
from meanstream.operators.counters.toeplitz import Toeplitz
from meanstream.operators.records import Floats

DIGESTS = {"preferred:10": "36920a35333eef1f", "geometric:200,1.1": "a29f10b3416191c3"}


def times_of(schedule: str, n: int = 40) -> np.ndarray:
    parsed = parse_release_times(schedule)
    assert isinstance(parsed, Counts)
    return parsed.times(n)


def exactly(counter: Optimal) -> tuple[list[list[Fraction]], list[Fraction]]:
    """Covariance `B B^T` and squared norms of the columns of `B^{-1} A`, in rational numbers."""
    n = counter.horizon
    b = [[Fraction(float(x)) for x in row] for row in counter.matrix(n)]
    covariance = [
        [sum(x * y for x, y in zip(b[i], b[j], strict=True)) for j in range(n)] for i in range(n)
    ]
    c: list[list[Fraction]] = []
    for k in range(n):
        rest = [Fraction(int(j <= k)) - sum(b[k][e] * c[e][j] for e in range(k)) for j in range(n)]
        c.append([x / b[k][k] for x in rest])
    return covariance, [sum(c[k][j] ** 2 for k in range(n)) for j in range(n)]


@pytest.mark.parametrize("sampling", [(), tuple(float(2**k) / 64 for k in range(12))])
def test_covariance_and_sensitivity_are_exact(sampling: tuple[float, ...]) -> None:
    counter = Optimal(12, sampling)
    covariance, squares = exactly(counter)
    np.testing.assert_allclose(
        counter.covariance(12), np.array(covariance, dtype=np.float64), rtol=1e-14
    )
    assert counter.l2_sensitivity == pytest.approx(float(max(squares)) ** 0.5, rel=1e-13)
    on_grid = counter.matrix(12) * 2.0**40
    assert np.array_equal(on_grid, np.rint(on_grid))


def test_factors_of_stored_streams_do_not_change() -> None:
    """Other bits would be other noise on replay: additions, products, quotients and roots are the
    same everywhere."""
    digests = {
        schedule: hashlib.sha256(
            Optimal(40, optimal_counter_sampling(times_of(schedule), 1.0)).matrix(40).tobytes()
        ).hexdigest()[:16]
        for schedule in ("preferred:10", "geometric:200,1.1")
    }
    assert digests == DIGESTS


def objective(noise: Floats, sampling: Floats) -> float:
    """Mean log error at columns of norm 1."""
    strategy = np.linalg.solve(noise, np.tri(len(noise)))
    scale = (strategy**2).sum(axis=0).max()
    return float(np.log(sampling + scale * (noise**2).sum(axis=1)).mean())


@pytest.mark.parametrize("schedule", ["preferred:10", "geometric:200,1.1"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
def test_no_change_of_the_strategy_does_better(schedule: str, epsilon: float) -> None:
    """At an optimum small changes of `C` whose columns keep their norm gain nothing in first order;
    1e-4 is allowed."""
    sampling = optimal_counter_sampling(times_of(schedule), epsilon)
    pair, rng = (
        factorize_optimal_counter(tuple(min(s, 1e4) for s in sampling)),
        np.random.default_rng(1),
    )
    best = objective(pair.noise, np.minimum(sampling, 1e4))
    for _ in range(200):
        changed = pair.strategy * (1 + 0.02 * np.tril(rng.normal(size=pair.strategy.shape)))
        changed /= np.sqrt((changed**2).sum(axis=0))
        assert (
            objective(np.linalg.solve(changed.T, np.tri(40).T).T, np.minimum(sampling, 1e4))
            > best - 1e-4
        )


@pytest.mark.parametrize("schedule", ["preferred:10", "geometric:200,1.1"])
def test_better_than_the_square_root_for_what_it_is_made(schedule: str) -> None:
    """Geometric mean over releases of the error of a released sum: 5 % and more below the square
    root's."""
    sampling = np.array(optimal_counter_sampling(times_of(schedule), 1.0))
    optimal, root = (
        objective(c.matrix(40), sampling) for c in (Optimal(40, tuple(sampling)), Toeplitz(40))
    )
    assert optimal < root - 0.05


def test_inner_products_of_columns_are_not_negative() -> None:
    """What a sample that leaves again (`removals`) relies on: two columns differ by at most sqrt(2)
    norms."""
    for schedule in ("preferred:10", "geometric:200,1.1", "geometric:1,1.01"):
        strategy = Optimal(40, optimal_counter_sampling(times_of(schedule), 1.0)).factors.strategy
        assert (strategy.T @ strategy).min() >= 0
    for horizon in (1, 2, 3, 5, 10, 20, 40, 128):
        strategy = Optimal(horizon).factors.strategy
        assert (strategy.T @ strategy).min() >= 0


def test_longest() -> None:
    counter = Optimal(LONGEST, optimal_counter_sampling(times_of("geometric:10,1.1", LONGEST), 1.0))
    np.testing.assert_allclose(
        counter.matrix(LONGEST) @ counter.factors.strategy, np.tri(LONGEST), atol=1e-12
    )
    with pytest.raises(
        ValueError, match="horizon must be at most 128 for the optimal counter, got 129"
    ):
        Optimal(LONGEST + 1)


@pytest.mark.parametrize(
    "sampling", [(1.0,), (1.0, -1.0), (1.0, float("inf")), (1.0, float("nan"))]
)
def test_refused_sampling(sampling: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="sampling must be 2 finite numbers that are not negative"):
        Optimal(2, sampling)


def test_laplace_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="noise must be gaussian for the optimal counter"):
        AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, counter="optimal", noise="laplace")


def test_settings_make_it_for_their_schedule() -> None:
    settings = AgentsSettings(
        lower=0, upper=1, epsilon=1, delta=1e-6, counter="optimal", spread_share=0
    )
    assert settings.mechanism == Optimal(
        40, optimal_counter_sampling(times_of("preferred:10"), 1.0)
    )
    daily = AgentsSettings(
        lower=0, upper=1, epsilon=1, delta=1e-6, counter="optimal", schedule="every:1d"
    )
    assert daily.mechanism == Optimal(40)


def test_where_every_pair_would_keep_its_draws_it_is_refused() -> None:
    rule = "counter must be pm1, pm2 or toeplitz"
    pair = AgentsSettings(
        lower=0, upper=1, epsilon=1, delta=1e-6, counter="optimal", spread_share=0
    )
    with pytest.raises(ValueError, match=rule):
        PairwiseStreamSettings(release=pair)
    with pytest.raises(ValueError, match=rule):
        SimulationConfig.from_options(
            counter="optimal", schedule="round_robin", collaboration="tests"
        )
    with pytest.raises(
        ValueError, match=r"counter must not be optimal beyond 128 releases .* 201\)"
    ):
        SimulationConfig.from_options(
            counter="optimal", schedule="broadcast:geometric:1,1.0000001", steps=201
        )


def test_theory_is_lower_with_it() -> None:
    common = {"agents": 200, "checkpoints": (300, 1000, 10_000), "classes": 3, "stddev": 0.5, "half_width": 0.75**0.5,
              "epsilon": 1.0, "delta": 1e-6, "schedule": "broadcast:preferred:10", "weights": "gls", "horizon": 40,
              "calibration": "analytic", "composition": "concentrated"}  # fmt: skip
    optimal, root = (
        forecast_agents_table(counter=name, **common)["oracle"] for name in ("optimal", "toeplitz")
    )  # type: ignore[arg-type]
    assert np.prod(np.array(optimal) / root) < 0.9


def product_one_by_one(a: Floats, b: Floats) -> Floats:
    """Add one term after the other."""
    total = np.zeros_like(a)
    for k in range(len(b)):
        total += a[:, k][:, None] * b[k]
    return total


@pytest.mark.parametrize("n", [1, 2, 3, 7, 39, 40, 41, 80, 81, LONGEST])
def test_products_have_the_bits_of_terms_that_are_added_one_by_one(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(5):
        a, b = (rng.normal(0, 1, (n, n)) * 10.0 ** rng.integers(-12, 12, (n, n)) for _ in range(2))
        assert optimal._product(a, b).tobytes() == product_one_by_one(a, b).tobytes()


def test_the_factors_in_use_are_those_of_terms_that_are_added_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = factorize_optimal_counter.__wrapped__
    settings = AgentsSettings(lower=-30, upper=60, epsilon=1, delta=1e-6, noise="gaussian")
    sampling = settings.mechanism.sampling
    fast = make(sampling)
    monkeypatch.setattr(optimal, "_product", product_one_by_one)
    for one, other in zip(fast, make(sampling), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
