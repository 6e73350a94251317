"""Draws made again from the key: what each law makes of its bits, and nothing else, passes."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.lab.evidence.repeated_draws import RepeatedDraws, follows_bits
from meanstream.operators.noise.distributions import (
    GaussianNoise,
    LaplaceNoise,
    NoiseDistribution,
    StaircaseNoise,
)
from meanstream.operators.records import Words

LAWS = [
    GaussianNoise(3.0),
    GaussianNoise(2.0**38),
    LaplaceNoise(2.0),
    LaplaceNoise(2.0**38),
    StaircaseNoise(10, 3.0),
    StaircaseNoise(2**20, 0.001),
    StaircaseNoise(2**30, 8.0),
]


def words() -> Words:
    """Usual ones, some far out in the tails, and both ends."""
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2**64, (20_000, 2), dtype=np.uint64)
    bits[:2000, 0] >>= rng.integers(1, 60, 2000).astype(np.uint64)
    bits[2000:2100, 0] = 0
    bits[2100] = 0
    bits[2101] = 2**64 - 1
    return bits


@pytest.mark.parametrize("noise", LAWS, ids=str)
def test_all_draws_of_the_sampler_follow_their_bits(noise: NoiseDistribution) -> None:
    bits = words()
    assert follows_bits(noise, bits, noise.sample(bits)).all()


@pytest.mark.parametrize("noise", LAWS, ids=str)
def test_draws_of_another_law_do_not(noise: NoiseDistribution) -> None:
    """Signs turned, a step farther from 0, a scale 1 % too small, and the draws of other bits."""
    bits = words()
    drawn = noise.sample(bits)
    away = np.where(drawn < 0, -1.0, 1.0)
    step = max(1.0, 1e-6 * noise.variance**0.5)
    some = drawn != 0

    assert not follows_bits(noise, bits, -drawn)[some].any()
    assert not follows_bits(noise, bits, drawn + step * away)[2102:].any()
    smaller = np.rint(0.99 * drawn)
    assert not follows_bits(noise, bits, smaller)[some & (smaller != np.rint(drawn))].any()
    others = noise.sample(bits[::-1].copy())
    assert not follows_bits(noise, bits, others)[others != drawn].any()


def test_each_fault_is_counted_and_named() -> None:
    noise = LaplaceNoise(1e6)
    bits = words()[2102:2202]
    bits[1] = bits[0]
    drawn = noise.sample(bits)
    drawn[:3] = 0.0
    draws = RepeatedDraws()
    draws.take(noise, bits, drawn, np.arange(100) >= 4)
    draws.impossible = 5
    assert draws.fault() == (
        "4 of 100 releases are no exact sum with the draw of their id; 1 of 100 draws have two "
        "owners; 3 of 100 draws do not have the declared law; 5 of 100 exact sums are not of "
        "samples within the bounds"
    )
    assert draws.method.startswith("100 draws made again from the key")


def test_nothing_is_wrong_with_no_draw() -> None:
    draws = RepeatedDraws()
    draws.take(LaplaceNoise(1e6), words()[:0], np.zeros(0), np.zeros(0, np.bool_))
    assert (draws.number, draws.fault()) == (0, None)
