"""Products of draws: how often good noise is blamed, whatever the samples, and that shared noise is
found."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.lab.evidence import noise_independence
from meanstream.lab.evidence.noise_draws import NoiseDraws
from meanstream.lab.evidence.noise_independence import NoiseIndependence
from meanstream.operators.records import Floats

AUDITS, ERROR = 60, 0.1


def draws(noise: Floats, added: Floats, bound: float) -> NoiseDraws:
    seen = noise + added
    return NoiseDraws(seen, seen, np.full(seen.shape, bound), np.ones(seen.shape, np.bool_), seen)


def judged(found: NoiseDraws, *, laplace: bool = False) -> str | None:
    independence = NoiseIndependence(square_share=0.4 if laplace else 1.0)
    independence.take_sizes(found)
    independence.take_together("bins", found)
    independence.take_in_turn("releases", found)
    return independence.fault()


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("bound", [0.0, 0.5])
def test_good_noise_is_blamed_no_more_often_than_is_said(
    bound: float, laplace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At an error of 1 in 10, with samples that all lie at the same bound: 6 of 60, and 5 standard
    errors more."""
    monkeypatch.setattr(noise_independence, "ALARM_ERROR", ERROR)
    rng = np.random.default_rng(6)
    make = (
        (lambda: rng.laplace(0, 0.5**0.5, (1000, 4)))
        if laplace
        else (lambda: rng.normal(size=(1000, 4)))
    )
    blamed = sum(judged(draws(make(), np.full((1000, 4), bound), bound), laplace=laplace) is not None
                 for _ in range(AUDITS))  # fmt: skip
    assert blamed < AUDITS * ERROR + 5 * np.sqrt(AUDITS * ERROR)


@pytest.mark.parametrize("bound", [0.0, 0.5, 2.0])
def test_noise_that_two_bins_share_is_found(bound: float) -> None:
    """Two standard deviations that samples might add: the columns' lengths say that they added next
    to nothing."""
    rng = np.random.default_rng(7)
    noise = rng.normal(size=(2000, 4))
    noise[:, 2] = noise[:, 0]
    added = rng.uniform(-0.1, 0.1, noise.shape)
    assert judged(draws(noise, added, bound)) == "bins 0 and 2 share noise (correlation 1.00)"


@pytest.mark.parametrize("scale", [0.8, 1.3])
def test_draws_of_another_size_are_found_on_either_side(scale: float) -> None:
    noise = np.random.default_rng(8).normal(0, scale, (2000, 4))
    assert "times as large as declared" in str(judged(draws(noise, np.zeros_like(noise), 0.0)))
