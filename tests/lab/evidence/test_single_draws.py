"""The law of single draws: how often good noise is blamed, whatever the samples, and what is found."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.lab.evidence.noise_draws import NoiseDraws
from meanstream.lab.evidence.noise_independence import NoiseIndependence
from meanstream.lab.evidence.single_draws import DeclaredLaw, SingleDraws, low_bits_fault
from meanstream.operators.noise.distributions import (
    GaussianNoise,
    LaplaceNoise,
    NoiseDistribution,
    StaircaseNoise,
)
from meanstream.operators.records import Floats

AUDITS, ERROR, N = 40, 0.1, 3000
LAWS = {
    "wide": GaussianNoise(1e6),
    "narrow": GaussianNoise(2.0),
    "laplace": LaplaceNoise(1e5),
    "narrow laplace": LaplaceNoise(1.5),
    "staircase": StaircaseNoise(2**20, 1.0),
    "high staircase": StaircaseNoise(2**20, 6.0),
}


def drawn(noise: NoiseDistribution, rng: np.random.Generator) -> Floats:
    """Draws as they are released: whole numbers."""
    return np.rint(noise.sample(rng.integers(0, 2**64, (N, 2), dtype=np.uint64)))


def draws(noise: NoiseDistribution, seen: Floats, bound: float) -> NoiseDraws:
    """Columns of draws, in deviations, with what samples and rounding may add."""
    stddev = noise.variance**0.5
    seen = seen.reshape(-1, 1) / stddev
    bounds = np.full(seen.shape, bound + 0.5 / stddev)
    return NoiseDraws(seen, seen, bounds, np.ones(seen.shape, np.bool_), seen)


def judged(noise: NoiseDistribution, seen: Floats, bound: float, error: float) -> str | None:
    single = SingleDraws(DeclaredLaw(noise), "draws")
    single.take(draws(noise, seen, bound))
    return single.fault(error)


@pytest.mark.parametrize("bound", [0.0, 0.5])
@pytest.mark.parametrize("law", LAWS)
def test_good_noise_is_blamed_no_more_often_than_is_said(law: str, bound: float) -> None:
    """At an error of 1 in 10, with samples that all lie at one bound: 4 of 40, and 5 standard
    errors more; in fact fewer, since comparisons overlap."""
    noise, rng = LAWS[law], np.random.default_rng(6)
    added = np.rint(bound * noise.variance**0.5)
    blamed = sum(
        judged(noise, drawn(noise, rng) + added, bound, ERROR) is not None for _ in range(AUDITS)
    )
    assert blamed < AUDITS * ERROR + 5 * (AUDITS * ERROR * (1 - ERROR)) ** 0.5


@pytest.mark.parametrize("bound", [0.0, 0.2])
def test_noise_that_is_cut_is_found(bound: float) -> None:
    noise, rng = LAWS["wide"], np.random.default_rng(7)
    seen = np.clip(drawn(noise, rng), -1.5e6, 1.5e6) / 0.8818
    seen += rng.uniform(-bound, bound, N) * 1e6
    assert "deviations, where the declared law has" in str(judged(noise, seen, bound, 1e-6))


def test_noise_that_is_cut_is_found_whatever_samples_may_add() -> None:
    """Its frequencies say so: samples can only weaken them."""
    noise, rng = LAWS["wide"], np.random.default_rng(8)
    seen = np.concatenate([drawn(noise, rng) for _ in range(10)])
    seen = np.clip(seen, -1.5e6, 1.5e6) / 0.8818 + rng.uniform(-0.3, 0.3, len(seen)) * 1e6
    assert "repeat at" in str(judged(noise, seen, 3.0, 1e-6))


def test_a_value_that_comes_too_often_is_found() -> None:
    noise, rng = LAWS["wide"], np.random.default_rng(9)
    seen = drawn(noise, rng)
    seen[:12] = 123_456.0
    assert str(judged(noise, seen, 0.0, 1e-6)) == (
        "draws: 12 draws of 3,000 have one value, 0.12 deviations"
    )


@pytest.mark.parametrize("bit", [0, 3])
def test_a_low_bit_that_is_left_is_found(bit: int) -> None:
    rng = np.random.default_rng(10)
    exact = rng.integers(0, 2**30, (500, 4))
    published = exact + np.rint(rng.normal(0, 1e6, exact.shape)).astype(np.int64)
    assert low_bits_fault(published, exact, np.full(4, 1e6)) is None
    kept = published ^ ((published ^ exact) & (1 << bit))
    assert f"bit {bit} of 2,000 of 2,000" in str(low_bits_fault(kept, exact, np.full(4, 1e6)))
    assert low_bits_fault(kept, exact, np.full(4, 2.0)) is None  # noise that leaves bits anyway


@pytest.mark.parametrize("bound", [0.0, 1.0])
def test_kinds_that_share_noise_are_found(bound: float) -> None:
    noise, rng = LAWS["wide"], np.random.default_rng(11)
    mean = draws(noise, drawn(noise, rng), bound)
    bins = np.stack([drawn(noise, rng) for _ in range(5)], axis=1) / 1e6

    for shared, expected in ((False, None), (True, "mean and bin of votes 3 of one release")):
        seen = bins.copy()
        if shared:
            seen[:, 3] = mean.seen[:, 0]
        others = NoiseDraws(seen, seen, np.full(seen.shape, bound), seen < 99, seen)
        single = NoiseIndependence()
        single.take_across(("mean", "bin of votes"), mean, others)
        fault = single.fault()
        assert fault == (expected and f"{expected} share noise (correlation 1.00)")
