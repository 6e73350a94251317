"""A federation that can be deployed: what leaves is whole and keyed, and it learns what Algorithm 1 learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanstream.operators.noise.canonical import canonical_spelling
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds
from meanstream.operators.papers.colme.pairwise_agents import PairwiseAgents, PairwiseSettings
from meanstream.operators.papers.colme.pairwise_federation import FederationSettings, PairReleases, PairwiseFederation

NAMES = ("ann", "bob", "cem", "dora", "eve")
NONE = np.zeros(len(NAMES), np.bool_)
STEPS = 30


def settings_of(**changes: Any) -> FederationSettings:
    known: dict[str, Any] = {"agents": NAMES, "lower": -2, "upper": 6, "epsilon": 1, "delta": 1e-6, "stddev": 1.0}
    return FederationSettings(**(known | changes))


def keyed() -> KeyedNoise:
    return KeyedNoise(b"0d409462e4304f9f66770dc046be10c9", deployment="test", purpose="agents")


def values_of(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(np.arange(len(NAMES)) % 2, 1.0, 4.0) + rng.normal(0, 1, (STEPS, len(NAMES)))


CASES: list[dict[str, Any]] = [
    {},
    {"counter": "pm2", "weights": "windowed", "test": "eager"},
    {"counter": "toeplitz", "weights": "mean_of_means"},
    {"stddev": None},
    {"stddev": None, "counter": "toeplitz", "mode": "tuned"},
    {"noise": "laplace"},
]


def direct(settings: FederationSettings) -> PairwiseAgents:
    """Algorithm 1 in the value's unit, on floats, with the same draws."""
    release, n = settings.release, len(NAMES)
    grid = release.grid
    unit = grid.resolution
    known = None if settings.stddev is None else np.full((1, n), settings.stddev**2)
    agents = PairwiseAgents(
        PairwiseSettings(
            agents=n, runs=1, counter=release.mechanism, fresh_variance=release.fresh.variance * unit**2,
            weights=settings.weights, test=settings.test, variance="from_releases" if known is None else "known",
            corrected=settings.mode == "tuned", half_width=(grid.upper - grid.lower) / 2,
        ),
        sample_variance=known,
    )  # fmt: skip
    federation, totals = PairwiseFederation(settings, keyed()), np.zeros(n, np.int64)
    key = keyed().derived("pairwise agents", canonical_spelling(settings))
    for step, values in enumerate(values_of()):
        encoded = grid.encode(values)
        totals += encoded
        turn, offset = divmod(step, n - 1)
        reader = np.arange(n)
        asked = offset + (reader <= offset)
        version = key.version_of(np.full(n, step + 1), totals[asked])
        ids = NoiseIds(owner=federation.words(asked, reader), index=np.full(n, turn + 1), version=version)
        fresh = release.fresh.sample(key.bits(ids)) * unit
        agents.step((encoded * unit - 4)[None], fresh[None])  # the declared interval is around 0 in the paper
    return agents


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_learns_what_algorithm_1_learns(case: dict[str, Any]) -> None:
    settings = settings_of(**case)
    federation = PairwiseFederation(settings, keyed())
    for values in values_of():
        federation.step(values)
    expected, variance = (one[0] for one in direct(settings).estimate())
    expected += 2
    found, alone = federation.estimate(NONE)
    # The wire carries whole grid units: a millionth of the width.
    np.testing.assert_allclose(found.value, np.clip(expected, -2, 6), atol=1e-5)
    np.testing.assert_allclose(found.effective_class_size, direct(settings).own_variance[0] / variance, rtol=1e-4)
    assert (found.effective_class_size > 1.0).any()
    assert (alone.effective_class_size == 1.0).all()


def told(made: list[PairReleases]) -> list[tuple[int, ...]]:
    return [
        row
        for one in made
        for row in zip(*(getattr(one, name).tolist() for name in ("agent", "reader", "index", "total")), strict=True)
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("cut", [1, 17])
def test_a_restored_federation_continues_as_if_uncut(case: dict[str, Any], cut: int) -> None:
    settings = settings_of(**case)
    uncut, before, after = (PairwiseFederation(settings, keyed()) for _ in range(3))
    expected = [uncut.step(values) for values in values_of()]
    found = [before.step(values) for values in values_of()[:cut]]
    after.restore(before.snapshot())
    found += [after.step(values) for values in values_of()[cut:]]
    assert told(found) == told(expected)
    np.testing.assert_array_equal(after.estimate(NONE)[0].value, uncut.estimate(NONE)[0].value)


def test_every_ordered_pair_has_noise_of_its_own() -> None:
    """All are asked at the same sums; what they tell differs by noise alone."""
    federation = PairwiseFederation(settings_of(), keyed())
    made = told([federation.step(np.full(len(NAMES), 1.0)) for _ in range(len(NAMES) - 1)])
    assert len({(agent, reader) for agent, reader, _, _ in made}) == 20
    assert len({total for *_, total in made}) == 20


def test_past_the_horizon_nothing_leaves_and_own_means_go_on() -> None:
    federation = PairwiseFederation(settings_of(horizon=2), keyed())
    made = [federation.step(values) for values in values_of()]
    assert [len(one) for one in made] == [5] * 8 + [0] * 22
    assert max(row[2] for row in told(made)) == 2
    np.testing.assert_allclose(federation.estimate(NONE)[1].value, values_of().mean(axis=0), atol=0.2)


def test_who_must_learn_alone_uses_nothing_that_it_was_told() -> None:
    federation = PairwiseFederation(settings_of(), keyed())
    for values in values_of():
        federation.step(values)
    alone = NONE.copy()
    alone[2] = True
    found, own = federation.estimate(alone)
    assert found.value[2] == own.value[2]
    assert found.value[0] != own.value[0]
    assert found.class_size[2] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agents": ("a", "a")}, "agents must be names, each once, got '2 of them'"),
        ({"agents": ("a",)}, "agents must be at least 2, got 1"),
        ({"agents": ("a", "b\x1fc")}, "agents must be names, each once"),
        ({"weights": "gls"}, "weights must be one of last, mean_of_means, windowed, got 'gls'"),
        ({"test": "oracle"}, "test must be lazy or eager, got 'oracle'"),
        ({"stddev": -1.0}, "stddev must be positive"),
        ({"stddev": None, "counter": "toeplitz"}, "counter must be pm1 or pm2"),
        ({"calibration": "classical", "epsilon": 3}, "epsilon"),
    ],
)
def test_what_does_not_go_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of(**changes)
