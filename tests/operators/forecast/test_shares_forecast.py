"""The forecast of quantiles and exceedances against agents that take their samples one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import AT_THE_END
from meanstream.operators.agents.own_histogram import histograms_of_releases
from meanstream.operators.collaboration.shares.asked_shares import ShareQueries
from meanstream.operators.forecast.shares_forecast import (
    RUNS,
    STATED_ERROR,
    SharesRow,
    forecast_shares,
    shares_release_settings,
)
from meanstream.operators.forecast.together_forecast import Crowd
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats
from meanstream.operators.rounds.user_sizes import SizeDistribution

QUANTILES, CENTER, HOSTED = (0.5, 0.9), 20.0, 10
NAMES = ("quantile 0.5", "quantile 0.9", "share above 30")


def asked_of(epsilon: float = 1.0, **more: Any) -> ShareQueries:
    given = {
        "lower": -30,
        "upper": 120,
        "delta": 1e-6,
        "schedule": AT_THE_END,
        "horizon": 1,
        "exceeds": (30,),
    }
    settings = AgentsSettings(**(given | {"epsilon": epsilon, "histogram_share": 0.1} | more))
    return ShareQueries(settings, QUANTILES, 0.95)


def crowd_of(sizes: str, agents: int, spread: float, stddev: float) -> Crowd:
    return Crowd(agents=agents, sizes=SizeDistribution.parse(sizes), spread=spread, stddev=stddev)


def hosted(crowd: Crowd, asked: ShareQueries, count: int, seed: int) -> dict[str, Floats]:
    """Have one crowd take raw samples and release, and find what agents of a count are told, by
    question."""
    rng = np.random.default_rng(seed)
    size = rng.choice(crowd.sizes.support, crowd.agents, p=crowd.sizes.probability)
    mean = rng.normal(CENTER, crowd.spread, crowd.agents)
    owner = np.repeat(np.arange(crowd.agents), size)
    value = rng.normal(mean[owner], crowd.stddev)
    order = rng.permutation(len(owner))
    agents = Agents(
        asked.settings, KeyedNoise(rng.bytes(16), deployment="forecast", purpose="agents")
    )
    agents.add_agents([str(i) for i in range(crowd.agents)])
    agents.update(owner[order], value[order], np.arange(len(owner), dtype=np.float64))
    agents.release_now(float(len(owner)))
    told = histograms_of_releases(agents.latest())
    prior, some = asked.fit(told, told.agent), np.flatnonzero(size == count)
    found: dict[str, Floats] = {}
    samples = [np.clip(value[owner == one], -30, 120) for one in some]
    own = np.array([[*np.quantile(one, QUANTILES), np.mean(one > 30)] for one in samples])
    law = norm(mean[some], crowd.stddev)
    truth = np.stack([*(np.clip(law.ppf(q), -30, 120) for q in QUANTILES), law.sf(30)], axis=1)
    answers = {
        "together": asked.own(prior, agents.own().cells),
        "released": asked.released(prior, told),
    }
    found["alone"] = ((own - truth) ** 2).mean(axis=0)
    for (name, answer), width in zip(
        answers.items(), ("half_width", "half_width_released"), strict=True
    ):
        every = np.concatenate([answer.quantiles, answer.exceeds], axis=1)[some]
        found[name] = ((every[..., 0] - truth) ** 2).mean(axis=0)
        found[width] = (every[..., 2] - every[..., 1]).mean(axis=0) / 2
    return found


def off(rows: list[SharesRow], runs: list[dict[str, Floats]]) -> dict[str, float]:
    """Give how far the forecast is from what was found, in units of what is allowed.

    That is the stated error and three standard errors of both sides, between whose crowds priors
    differ.
    """
    found = {}
    for i, row in enumerate(rows):
        for name in runs[0]:
            each = np.array([run[name][i] for run in runs])
            value, error = each.mean(), each.std(ddof=1) * np.sqrt(1 / len(runs) + 1 / RUNS)
            if not name.startswith("half_width"):
                value, error = np.sqrt(value), error / (2 * np.sqrt(value))
            apart = abs(getattr(row, name) - value)
            found[f"{row.question}, {name}"] = float(apart / (STATED_ERROR * value + 3 * error))
    return found


@pytest.mark.parametrize(
    ("crowd", "count", "more"),
    [
        (crowd_of("point:40", 300, 6, 30), 40, {}),
        (crowd_of("point:150", 60, 4, 12), 150, {"epsilon": 0.5}),
        (crowd_of("two:20,120,0.5", 400, 15, 20), 120, {"epsilon": 3.0, "histogram_share": 0.3}),
        (crowd_of("point:200", 200, 10, 20), 200, {"horizon": 40, "schedule": "preferred:10"}),
    ],
)
def test_hosted_agents_are_within_the_stated_error(
    crowd: Crowd, count: int, more: dict[str, Any]
) -> None:
    """Seeds from 9100 on chose nothing: those that the forecast was compared with when it was made
    were 1 to 12."""
    asked = asked_of(**more)
    shown = 2 if crowd.sizes.least < count else 1  # the row of the 90 % quantile, or of the median
    rows = forecast_shares(crowd, asked, center=CENTER)[shown::3]
    assert [(row.question, row.samples) for row in rows] == [(name, count) for name in NAMES]
    runs = [hosted(crowd, asked, count, 9100 + seed) for seed in range(HOSTED)]
    found = off(rows, runs)
    assert len(found) == 15
    assert max(found.values()) <= 1, found
    wrong = asked_of(**(more | {"epsilon": 6 * float(more.get("epsilon", 1.0))}))
    others = forecast_shares(crowd, wrong, center=CENTER)[shown::3]
    assert max(off(others, runs).values()) > 1  # another epsilon would be found


def test_a_forecast_is_the_same_each_time_and_moves_as_it_must() -> None:
    crowd = crowd_of("point:100", 200, 6, 30)
    few, again = (forecast_shares(crowd, asked_of()) for _ in range(2))
    assert few == again
    more = forecast_shares(crowd, asked_of(epsilon=10.0))
    for one, other in zip(few, more, strict=True):
        assert other.half_width_released < one.half_width_released
        assert other.released < one.released
    apart = forecast_shares(crowd, asked_of(epsilon=10.0), center=90)
    assert apart[6].alone != more[6].alone
    assert "error" in few[0].sentence()


def test_agents_of_one_law_and_of_few_samples_are_forecast() -> None:
    for sizes, agents, spread in (("point:1", 2, 0.0), ("two:1,9007199254740992,0.5", 3, 1.0)):
        rows = forecast_shares(crowd_of(sizes, agents, spread, 1e-3), asked_of())
        assert all(
            np.isfinite([row.alone, row.together, row.released, row.half_width]).all()
            for row in rows
        )


def test_settings_of_one_release_are_those_of_a_frame() -> None:
    planned = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, histogram_share=0.1)
    assert shares_release_settings(planned, None).horizon == 1
    assert shares_release_settings(planned, None).schedule == AT_THE_END
    assert shares_release_settings(planned, 40) is planned


def test_refusals() -> None:
    crowd = crowd_of("point:10", 5, 1, 1)
    plain = ShareQueries(AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6), (0.5,), 0.95)
    with pytest.raises(
        ValueError, match="histogram_share must be more than 0 with quantiles or exceeds"
    ):
        forecast_shares(crowd, plain)
    with pytest.raises(
        ValueError, match=r"mean must lie strictly between -30\.0 and 120\.0, got 500"
    ):
        forecast_shares(crowd, asked_of(), center=500.0)
