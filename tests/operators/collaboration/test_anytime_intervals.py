"""Intervals that hold at all moments together: the law that they rest on, and who sees what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.own_blocks import early_samples
from meanstream.operators.collaboration import anytime_intervals as module
from meanstream.operators.collaboration.alone import FittedAlone
from meanstream.operators.collaboration.anytime_intervals import anytime_intervals, valid_coverage
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import OwnMeans

SETTINGS = AgentsSettings(lower=0.0, upper=1.0, epsilon=1.0, delta=1e-6)


def hosted() -> Agents:
    agents = Agents(
        SETTINGS,
        KeyedNoise(
            bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="test", purpose="anytime"
        ),
    )
    agents.add_agents(["a", "b"])
    return agents


def means(n: int = 6, **columns: object) -> OwnMeans:
    rng = np.random.default_rng(n)
    count = np.array([5, 40, 100, 700, 3000, 20_000] * n)[:n]
    mean, variance = rng.uniform(0.2, 0.8, n), 0.04 / count
    early = np.where(
        count >= 64, mean + rng.normal(0, 0.2, n) / np.sqrt(early_samples(count)), np.nan
    )
    return replace(
        OwnMeans(agent=np.arange(n), count=count, mean=mean, variance=variance, early_mean=early),
        **columns,  # type: ignore[arg-type]
    )


def test_the_mean_of_the_first_samples_is_that_of_these_samples() -> None:
    """Whatever the batches, and after a restart; agents with fewer samples have none."""
    values = np.random.default_rng(1).integers(0, 1025, 5000) / 1024
    for cut in (7, 1000, 4999):
        agents = hosted()
        for part in (values[:cut], values[cut:]):
            agents.update(np.zeros(len(part), np.int64), part, np.arange(len(part), dtype=float))
        agents.update(np.ones(63, np.int64), values[:63], np.arange(63, dtype=float))
        again = hosted()
        for chunk in agents.dirty_chunks():
            again.restore_chunk(chunk, agents.snapshot_chunk(chunk))
        for own in (agents.own(), again.own()):
            assert own.early_mean[0] == pytest.approx(values[:512].mean(), abs=1e-9)
            assert np.isnan(own.early_mean[1])


@pytest.mark.parametrize("count", [64, 2047, 2048, 16_383, 16_384, 10**6])
def test_blocks_have_kept_the_first_samples(count: int) -> None:
    agents, part = hosted(), np.arange(count) % 3 / 2
    agents.update(np.zeros(count, np.int64), part, np.zeros(count))
    assert agents.own().early_mean[0] == pytest.approx(
        part[: early_samples(np.array([count]))[0]].mean(), abs=1e-9
    )


def test_whatever_is_left_out_is_twenty_times_less_likely_than_under_the_law() -> None:
    """The definition of the interval, on a grid of means, for a law that is a density."""
    own = means()
    answer = FittedAlone().estimate(own)
    found = anytime_intervals(answer, own, lower=0.0, upper=1.0)
    at = np.linspace(0.0005, 0.9995, 4001)
    for i, count in enumerate(own.count.tolist()):
        degrees, scale = count / module.LENGTH, np.sqrt(own.variance[i])
        posterior = student.pdf((at - own.mean[i]) / scale, degrees) / scale
        law = np.full(len(at), module.BOUNDS_WEIGHT)
        if count >= 64:
            early = int(early_samples(np.array([count]))[0])
            weight = module.EARLY_WEIGHTS[round(np.log2(early / 64) / 3)]
            wide = module.EARLY_SCALE * np.sqrt(own.variance[i] * count / early)
            law += (
                weight * student.pdf((at - own.early_mean[i]) / wide, module.EARLY_DEGREES) / wide
            )
        out = (at < found.lower[i]) | (at > found.upper[i])
        assert (law[out] >= 20 * (1 - 1e-6) * posterior[out]).all()
        assert found.lower[i] <= answer.lower[i]
        assert found.upper[i] >= answer.upper[i]
    assert module.BOUNDS_WEIGHT + module.EARLY_WEIGHTS.sum() <= 1.0


@pytest.mark.parametrize("n", [3, 300, 20_000])
def test_an_agents_samples_change_no_byte_of_others(n: int) -> None:
    own = means(n)
    answer = anytime_intervals(FittedAlone().estimate(own), own, lower=0.0, upper=1.0)
    columns = {
        name: getattr(own, name).copy()
        for name in ("mean", "variance", "value_variance", "early_mean")
    }
    for name, value in (
        ("mean", 0.9),
        ("variance", 0.0),
        ("value_variance", 0.0),
        ("early_mean", 0.01),
    ):
        columns[name][1] = value
    changed = replace(own, **columns)
    other = anytime_intervals(FittedAlone().estimate(changed), changed, lower=0.0, upper=1.0)
    assert other.lower[1] != answer.lower[1]
    for name in ("value", "lower", "upper"):
        assert (
            np.delete(getattr(answer, name), 1).tobytes()
            == np.delete(getattr(other, name), 1).tobytes()
        )


def test_hostile_columns_give_finite_or_wide_intervals() -> None:
    """No variance at all, one beyond all bounds, one sample: never NaN."""
    own = means(
        3, variance=np.array([0.0, np.inf, 0.01]), value_variance=np.array([0.0, 1e9, 0.01])
    )
    for count in (1, 64, 10**7):
        many = replace(own, count=np.full(3, count), early_mean=np.full(3, 0.5))
        answer = replace(FittedAlone().estimate(many), value=np.full(3, 0.5))
        found = anytime_intervals(answer, many, lower=0.0, upper=1.0)
        assert not np.isnan([found.lower, found.upper]).any()


def test_another_promise_and_a_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="coverage must be pointwise or anytime, got 'often'"):
        valid_coverage("often")
    with pytest.raises(ValueError, match="coverage must be pointwise with a memory"):
        valid_coverage("anytime", "half-life:500")
