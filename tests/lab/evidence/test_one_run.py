"""The arithmetic of one-run audits: how often it proves too much, and how much it proves."""

import numpy as np
import pytest
from scipy.special import expit, ndtri

from meanstream.lab.evidence.agents_audit import CanaryEvidence, run_canaries
from meanstream.lab.evidence.canaries import Canaries, CanaryOutputs, compressed
from meanstream.lab.evidence.one_run import (
    _guess_bets,
    gaussian_one_run,
    guesses_one_run,
    pure_guesses,
    sequential_gaussian,
    sequential_guesses,
)
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise

MU = 0.9
AUDITS, CANARIES = 200, 400


@pytest.mark.parametrize("audit", [gaussian_one_run, guesses_one_run])
def test_a_bound_is_wrong_as_often_as_it_says_and_nobody_is_blamed(audit: object) -> None:
    """Of 200 audits 10 prove more than there is (standard deviation 3.1): five deviations more are
    26."""
    rng = np.random.default_rng(5)
    more = {} if audit is guesses_one_run else {"reach": 1.0}
    rows = [
        audit("x", rng.normal(MU / 2, 1, CANARIES), mu=MU, claimed=4.0, delta=1e-5, what="", **more)  # type: ignore[operator]
        for _ in range(AUDITS)
    ]
    truth = 3.8762  # epsilon of mu 0.9 at 1e-5
    assert sum(row.proved > truth for row in rows) < 26
    assert np.mean([row.proved for row in rows]) == pytest.approx(rows[0].ceiling, rel=0.05)
    assert not any(row.violated for row in rows)
    sure = gaussian_one_run(
        "x", rng.normal(MU / 2, 1, 10**6), mu=MU, reach=1, claimed=4.0, delta=1e-5, what=""
    )
    assert truth * 0.99 < sure.proved < truth


def test_a_large_mu_is_known_no_better_than_the_deviation_of_its_scores() -> None:
    """Of 2,000 audits 100 prove more than there is (standard deviation 9.7): five deviations more
    are 149.

    A bound that holds the deviation for known, the twin, proves more in 390 of them, and blames
    nine good mechanisms.
    """
    mu, rng = 4.4089, np.random.default_rng(6)
    rows = [
        gaussian_one_run(
            "x", rng.normal(mu / 2, 1, CANARIES), mu=mu, reach=1, claimed=30.0, delta=1e-6, what=""
        )
        for _ in range(2000)
    ]
    assert 51 < sum(row.proved > 30.0 for row in rows) < 149
    assert not any(row.violated for row in rows)
    assert np.mean([row.proved for row in rows]) == pytest.approx(rows[0].ceiling, rel=0.05)


def test_pure_guesses_prove_what_a_coin_shows() -> None:
    rng = np.random.default_rng(6)
    rows = []
    for _ in range(100):
        coins = rng.integers(0, 2, 2000)
        seen = coins ^ (rng.random(2000) < 1 / (1 + np.e))
        rows.append(
            pure_guesses(
                "x", (2.0 * seen - 1) * rng.uniform(0.95, 1.0, 2000), coins, epsilon=1.0, what=""
            )
        )
    assert not any(row.violated for row in rows)
    assert (
        sum(row.proved > 1.0 for row in rows) < 16
    )  # 5 are expected at most, standard deviation 2.2
    assert np.median([row.proved for row in rows]) > 0.85


def test_a_sequential_test_that_looks_every_time_is_as_rarely_wrong() -> None:
    """At an error of 1 in 20, 400 tests of 1000 looks each: 20 at most are expected, five
    deviations more are 42."""
    rng = np.random.default_rng(7)
    wrong = sum(
        sequential_gaussian(rng.normal(MU / 2, 1, 1000), MU, error=0.05) is not None
        for _ in range(400)
    )
    assert wrong < 42
    wrong = sum(
        sequential_guesses(rng.random(1000) < 0.7, 0.7, error=0.05) is not None for _ in range(400)
    )
    assert wrong < 42


def test_guesses_bet_on_nothing_but_guesses() -> None:
    """Pure privacy has tails that are not normal: of 10^6 first scores one in 6e4 was past what
    normal ones can be.

    The twin is that bet, on a score that one in 10^5 of the differences of two Laplace draws
    exceeds.
    """
    epsilon, score = 1.0, np.full(200, -0.1)
    mu = 2 * ndtri(expit(epsilon))
    score[0] = 6.6
    given = {"mu": mu, "claimed": 5.0, "delta": 1e-6, "what": ""}
    assert sequential_gaussian(score, mu, error=1e-6) == 1
    assert not guesses_one_run("x", score, **given).violated  # type: ignore[arg-type]
    assert guesses_one_run("x", np.ones(200), **given).runs is not None  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 18.0, 19.5, 20.0, 30.0])
def test_bets_on_guesses_are_fair_up_to_the_largest_epsilon(epsilon: float) -> None:
    """What a bet is worth on average is 1, or less, where guesses are right as often as they may
    be."""
    most = float(expit(epsilon))
    won, lost = (
        np.exp([bet[0] for bet in _guess_bets(np.array([right]), most)]) for right in (True, False)
    )
    assert most * won + (1 - most) * lost == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"counter": "pm2", "spread_share": 0.3},
        {"counter": "optimal", "schedule": "geometric:4,3"},
        {"per_person": 3},
        {"histogram_share": 0.3, "exceeds": (1.0,)},
        {"histogram_share": 0.6, "spread_share": 0.0, "per_person": 3},
        {"mode": "paper", "counter": "pm1", "calibration": "classical"},
        {"counter": "pm1", "noise": "laplace"},
        {"counter": "pm2", "noise": "laplace"},
        {"horizon": 1},
    ],
)
def test_canaries_score_what_the_mechanism_is_worth(changes: dict[str, object]) -> None:
    """Mean of the scores of each coin: half its mu, to five standard errors of 1 / sqrt(n) and
    their number."""
    n = 3000
    given = {
        "lower": -3,
        "upper": 5,
        "epsilon": 1,
        "delta": 1e-6,
        "noise": "gaussian",
        "horizon": 8,
        "name": "x",
        **changes,
    }
    canaries = Canaries(compressed(AgentsSettings(**given)), n)  # type: ignore[arg-type]
    coins = np.random.default_rng(2).integers(0, 2, (n, canaries.number))
    noise = KeyedNoise(
        bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="x", purpose="deployment"
    )
    outputs = run_canaries(canaries, noise, coins)
    evidence = CanaryEvidence(canaries, "a test")
    evidence.take(outputs, coins)
    rows = list(evidence.rows())
    assert not any(row.violated for row in rows), rows
    if changes.get("noise") == "laplace":
        assert rows[0].proved > 0.5
        return
    scores = canaries.scores(outputs, coins)
    assert np.abs(scores.mean(axis=0) - canaries.own_mu / 2).max() < 5.5 / np.sqrt(n)
    assert np.abs(scores.std(axis=0) - 1).max() < 5.5 / np.sqrt(2 * n)
    assert canaries.reach <= 1 + 1e-9


def test_what_is_missing_or_comes_twice_is_a_fault() -> None:
    canaries = Canaries(
        compressed(AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, horizon=2)), 400
    )
    outputs = CanaryOutputs.none(2, canaries.settings)
    agent, one = np.arange(2), np.ones(2, np.int64)
    votes, histogram = np.zeros((2, 13), np.int64), np.zeros((2, 0), np.int64)
    outputs.take(agent, one, np.array([5, 6]), votes, histogram)
    outputs.take(agent, one, np.array([5, 8]), votes, histogram)
    outputs.take(agent[:1], 3 * one[:1], np.array([5]), votes[:1], histogram[:1])
    evidence = CanaryEvidence(canaries, "a test")
    evidence.take(outputs, np.zeros((2, canaries.number), np.int64))
    (row,) = evidence.rows()
    assert row.violated
    wanted = "1 releases past the horizon, 1 release ids with a second value, 2 canaries without all of their releases"
    assert row.fault == wanted
