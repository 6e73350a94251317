"""Non-interference of collaborations: one agent's raw samples change no byte of anybody else's
answer.

Every collaboration of the registry is under test by being in it. The twins are what the product did
once.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from meanstream.operators.collaboration.prior.prior_fitted import FittedPrior
from meanstream.operators.collaboration.registry import (
    COLLABORATIONS,
    FittedPopulation,
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.collaboration.variance.pooled_variance import pooled_own_means
from meanstream.operators.records import (
    AgentEstimates,
    Floats,
    OwnMeans,
    OwnSamples,
    ReleaseColumns,
)

LOWER, UPPER = -1.0, 3.0
POOL = 0.09
SIZES = (3, 300, 20_000, 40_000)
CHANGED = 1
"""The agent whose raw samples differ between the worlds; its release is what it was."""


def releases_of(n: int) -> ReleaseColumns:
    """Noisy releases of three classes; counts differ, as those of a stream do."""
    rng = np.random.default_rng(n)
    truth, count = np.array([0.2, 0.5, 1.4])[np.arange(n) % 3], rng.integers(20, 200, n)
    return ReleaseColumns(
        agent=np.arange(n), index=np.ones(n, np.int64), count=count, total=np.ones(n, np.int64),
        mean=truth + rng.normal(0, 0.05, n), noise_variance=np.full(n, 0.002),
    )  # fmt: skip


def samples_of(releases: ReleaseColumns) -> OwnSamples:
    """Each agent's own samples, a few more than those of its release."""
    rng, n = np.random.default_rng(7), len(releases)
    count = releases.count + rng.integers(0, 9, n)
    mean = np.clip(releases.mean + rng.normal(0, 0.02, n), 0.1, 1.9)
    return OwnSamples(
        agent=releases.agent,
        count=count,
        mean=mean,
        squared_deviations=POOL * rng.chisquare(count - 1),
    )


def worlds(samples: OwnSamples) -> list[OwnMeans]:
    """The same samples, but for the values of one agent: its mean and its variance are now the
    least, now the most."""
    made = [pooled_own_means(samples, POOL)]
    count = float(samples.count[CHANGED])
    for mean, deviations in (
        (LOWER, 0.0), (UPPER, 0.0), (0.7, 1e-9), (0.7, count * 4.0), (-0.98765, 0.3), (2.123, 50.0),
    ):  # fmt: skip
        other = {
            "mean": samples.mean.copy(),
            "squared_deviations": samples.squared_deviations.copy(),
        }
        other["mean"][CHANGED], other["squared_deviations"][CHANGED] = mean, deviations
        made.append(pooled_own_means(replace(samples, **other), POOL))
    return made


def differing_bytes(ours: AgentEstimates, theirs: AgentEstimates, changed: int) -> int:
    """Count the bytes of everybody else's answer that differ."""
    differing = 0
    for field in fields(AgentEstimates):
        if getattr(ours, field.name) is None:  # without covariates
            assert getattr(theirs, field.name) is None
            continue
        one, other = (np.atleast_1d(getattr(answer, field.name)) for answer in (ours, theirs))
        if len(one) > 1:
            one, other = np.delete(one, changed), np.delete(other, changed)
        differing += int(np.count_nonzero(one.view(np.uint8) != other.view(np.uint8)))
    return differing


def interference(fitted: FittedPopulation, samples: OwnSamples) -> int:
    """Count the differing bytes over all worlds: 0 for every collaboration."""
    first, *others = (fitted.estimate(own) for own in worlds(samples))
    return sum(differing_bytes(first, other, CHANGED) for other in others)


def fitted_and_samples(name: str, n: int) -> tuple[FittedPopulation, OwnSamples]:
    releases = releases_of(n)
    collaboration = make_collaboration(name, lower=LOWER, upper=UPPER)
    return collaboration.fit(releases, POOL / releases.count + releases.noise_variance), samples_of(
        releases
    )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", COLLABORATIONS)
def test_a_raw_value_changes_no_byte_of_anybody_elses_answer(name: str, n: int) -> None:
    fitted, samples = fitted_and_samples(name, n)
    assert interference(fitted, samples) == 0


@pytest.mark.parametrize("name", ["learned_prior", "pooled_prior"])
def test_how_many_agents_have_two_variances_changes_no_byte_of_others(name: str) -> None:
    """The number of them depends on raw values."""
    fitted, samples = fitted_and_samples(name, 20_000)
    own = pooled_own_means(samples, POOL)
    ratio = np.where(np.arange(len(own.mean)) < 1 << 14, 0.5, 1.0)
    one = estimate_with_two_variances(fitted, replace(own, value_variance=ratio * own.variance))
    ratio[CHANGED] = 1.0
    other = estimate_with_two_variances(fitted, replace(own, value_variance=ratio * own.variance))
    assert one.value[CHANGED] != other.value[CHANGED]
    assert differing_bytes(one, other, CHANGED) == 0


def test_the_own_answer_does_change() -> None:
    """The test sees something: the worlds differ where they may."""
    for n in SIZES:
        fitted, samples = fitted_and_samples("pooled_prior", n)
        values = {fitted.estimate(own).value[CHANGED] for own in worlds(samples)}
        assert len(values) == 7


@pytest.mark.parametrize("n", SIZES)
def test_a_floor_of_the_variance_from_all_agents_is_caught(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: the posterior's floor was taken over the agents of a chunk once, not over the
    components alone."""
    posterior = FittedPrior.posterior

    def floored(self: FittedPrior, mean: Floats, variance: Floats) -> Floats:
        means, variances = posterior(self, mean, variance)
        return np.stack([means, np.maximum(variances, 2 * variances.min())])

    monkeypatch.setattr(FittedPrior, "posterior", floored)
    assert interference(*fitted_and_samples("pooled_prior", n)) > 0


def test_an_evaluation_rounds_alike_wherever_it_stands() -> None:
    fitted, samples = fitted_and_samples("pooled_prior", 300)
    assert isinstance(fitted, FittedPrior)
    own = worlds(samples)[0]
    whole = fitted.posterior(own.mean, own.variance)
    for rows in (slice(5, 6), slice(5, 7), slice(5, 16), slice(77, None, 13)):
        alone = fitted.posterior(own.mean[rows], own.variance[rows])
        assert alone.tobytes() == whole[:, rows].tobytes()
