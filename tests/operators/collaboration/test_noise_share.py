"""The part of an interval that is privacy noise, against answers under other draws of the noise
alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri

from meanstream.operators.collaboration.noise_share import NoiseShare
from meanstream.operators.collaboration.registry import COLLABORATIONS, make_collaboration
from meanstream.operators.records import Floats, OwnMeans, ReleaseColumns

DRAWS = 60
SAMPLE, LEVEL = 0.05, 0.95


def world(kind: str, *, noise_stddev: float, seed: int = 7) -> tuple[OwnMeans, ReleaseColumns]:
    """Releases without noise, and own means; what the noise will be stands in them."""
    rng, n = np.random.default_rng(seed), 400
    truth = (
        rng.normal(0.5, 0.03, n) if kind == "normal" else np.where(np.arange(n) < n // 2, 0.3, 0.7)
    )
    count = np.full(n, 100)
    mean = truth + rng.normal(0, np.sqrt(SAMPLE / 100), n)
    own = OwnMeans(agent=np.arange(n), count=count, mean=mean, variance=np.full(n, SAMPLE / 100))
    ones = np.ones(n, np.int64)
    noise = np.full(n, noise_stddev**2)
    return own, ReleaseColumns(
        agent=np.arange(n), index=ones, count=count, total=ones, mean=mean, noise_variance=noise
    )


def spread_of_answers(name: str, own: OwnMeans, releases: ReleaseColumns) -> tuple[Floats, Floats]:
    """Standard deviation of each answer over draws of the noise, and what the answers say that it
    is."""
    rng, values, told = np.random.default_rng(11), [], []
    collaboration = make_collaboration(name, lower=0.0, upper=1.0)
    for _ in range(DRAWS):
        noised = releases.mean + rng.normal(0, np.sqrt(releases.noise_variance))
        fitted = collaboration.fit(
            replace(releases, mean=noised), SAMPLE / releases.count + releases.noise_variance
        )
        answer = fitted.estimate(own, level=LEVEL)
        assert answer.noise_half_width is not None
        assert (answer.noise_half_width <= (answer.upper - answer.lower) / 2 * (1 + 1e-9)).all()
        values.append(answer.value)
        told.append(answer.noise_half_width)
    return np.std(values, axis=0), np.mean(told, axis=0) / ndtri(0.5 + LEVEL / 2)


LEARNED = ("learned_prior", "pooled_prior", "consensus")


@pytest.mark.parametrize("kind", ["normal", "classes"])
@pytest.mark.parametrize("name", sorted(COLLABORATIONS))
def test_answers_vary_with_the_noise_as_they_say(name: str, kind: str) -> None:
    """The deviation found has a relative standard error of .09 (60 draws of a common center);
    learned priors change their number of components, too, and consensus its edges, which first
    order does not know: within a factor of 1.7 here."""
    own, releases = world(kind, noise_stddev=0.03)
    found, told = (float(np.sqrt(np.mean(x**2))) for x in spread_of_answers(name, own, releases))
    if name == "none":
        assert told == 0
        assert found < 1e-12
        return
    low, high = (0.55, 1.7) if name in LEARNED else (0.7, 1.4)
    assert low * found <= told <= high * found


@pytest.mark.parametrize("name", sorted(COLLABORATIONS))
def test_without_noise_no_part_is_noise(name: str) -> None:
    own, releases = world("normal", noise_stddev=0.0)
    fitted = make_collaboration(name, lower=0.0, upper=1.0).fit(releases, SAMPLE / releases.count)
    assert fitted.estimate(own).noise_half_width == pytest.approx(np.zeros(len(own)), abs=1e-12)


def test_the_part_falls_with_the_spread_and_lies_between_tabled_spreads() -> None:
    share = NoiseShare.of(np.ones(3), noise=np.full(3, 0.01), total=np.full(3, 0.02), width=1.0)
    spread = np.array([0.0, 0.05, 0.1, 0.3])
    exact = 0.01 / (0.02 + spread**2)
    np.testing.assert_allclose(share.of_center(spread), exact, rtol=0.05)
    squared = 2 * ((0.02 + spread**2) ** 2 - (0.01 + spread**2) ** 2) / 3
    np.testing.assert_allclose(
        share.of_squared_spread(spread), np.minimum(squared, spread**4), rtol=0.25
    )
