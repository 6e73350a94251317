"""The law of the noise: how often its bound is wrong, and that nothing is said of noise that
rounding hides."""

import numpy as np
import pytest
from scipy.stats import chi2

from meanstream.lab.evidence.noise_independence import square_share
from meanstream.lab.evidence.noise_law import NoiseLaw, _most_scale
from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.distributions import LaplaceNoise
from meanstream.operators.noise.keyed import KeyedNoise

AUDITS, FREEDOM = 20_000, 1_000


def test_a_good_scale_is_blamed_once_in_a_million_audits() -> None:
    """A bound by normal error bars blames sixteen of them at a thousand degrees of freedom."""
    for squares in (1e3, 1e4, 1e6, 1e9):
        just = chi2.ppf(1e-6, squares) / squares
        assert _most_scale(just, squares, 1e-6) == pytest.approx(1.0, abs=1e-12)


def test_squares_of_laplace_draws_are_blamed_no_more_often_than_is_said() -> None:
    """Of 20,000 sums of 1,000 squares 20 at an error of 1e-3, 1,000 at one of 1 in 20; normal error
    bars take 52."""
    rng = np.random.default_rng(3)
    shares = [float(np.mean(rng.laplace(0, 0.5**0.5, FREEDOM) ** 2)) for _ in range(AUDITS)]
    for error in (1e-3, 0.05):
        small = sum(
            _most_scale(share, square_share(LaplaceNoise(1e6)) * FREEDOM, error) < 1.0
            for share in shares
        )
        assert small < AUDITS * error + 5 * np.sqrt(AUDITS * error)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("epsilon", [30.0, 100.0, 1e3, 1e8, 1e15])
def test_noise_that_rounding_hides_is_unknown_and_nobody_is_blamed(
    epsilon: float, noise: str
) -> None:
    settings = AgentsSettings(
        lower=0,
        upper=1,
        epsilon=epsilon,
        delta=1e-6,
        horizon=8,
        noise=noise,
        counter="pm2",
        spread_share=0.05,
    )
    key = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
    # Each agent is a host of its own: one vote of all would be too few.
    agents = Agents(settings, KeyedNoise(key, deployment="x", purpose="y"), votes_alone=True)
    agents.add_agents([f"a{i}" for i in range(1_000)])
    law, rng = NoiseLaw(settings), np.random.default_rng(4)
    for second in range(60):
        law.take(
            agents.update(
                np.arange(1_000), rng.random(1_000), np.full(1_000, float(second))
            ).releases
        )
    sums, votes = law.row("sums"), next(law.rows_of_counts("x"), None)
    assert not sums.violated
    assert sums.proved < 1.1 * epsilon
    assert ("rounding" in sums.method) is (settings.fresh.variance < 1)
    if votes is not None and settings.vote is not None:
        assert not votes.violated
        assert ("rounding" in votes.method) is (settings.vote.noise.variance < 1)
        assert (votes.proved > 0) is (settings.vote.noise.variance >= 1)
