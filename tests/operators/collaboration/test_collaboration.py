"""What every collaboration of the registry keeps to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanstream.lab.evidence.collaboration_checks import (
    COLLABORATION_CHECKS,
    CollaborationTrial,
    collaboration_intervals_cover,
)
from meanstream.lab.papers.colme.same_mean_tests import SameMeanTests
from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.collaboration.registry import COLLABORATIONS, make_collaboration
from meanstream.operators.records import Floats, OwnMeans, ReleaseColumns

N = 60


def releases_of(mean: Floats, noise: float = 0.0) -> ReleaseColumns:
    agent = np.arange(len(mean))
    ones = np.ones_like(agent)
    return ReleaseColumns(
        agent=agent,
        index=ones,
        count=100 * ones,
        total=ones,
        mean=mean,
        noise_variance=np.full(len(mean), noise),
    )


def population(seed: int = 0) -> tuple[Floats, ReleaseColumns, OwnMeans, Floats]:
    rng = np.random.default_rng(seed)
    truth = rng.choice([0.2, 0.8], N)
    variance, noise = np.full(N, 0.01), 0.01
    mean = truth + rng.normal(0, 0.1, N)
    own = OwnMeans(agent=np.arange(N), count=np.full(N, 25), mean=mean, variance=variance)
    return truth, releases_of(mean + rng.normal(0, 0.1, N), noise), own, variance + noise


@pytest.fixture(params=sorted(COLLABORATIONS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("check", COLLABORATION_CHECKS, ids=lambda check: check.__name__)
def test_every_collaboration_keeps_to_the_checks_that_others_may_import(
    name: str, check: Any
) -> None:
    check(CollaborationTrial.of(make_collaboration(name, lower=0.0, upper=1.0)))


@pytest.mark.parametrize("learned", ["learned_prior", "pooled_prior", "james_stein"])
@pytest.mark.parametrize("widths", [2.0, 20.0, 200.0, 1e6])
def test_a_mean_with_more_noise_than_the_bounds_are_wide_says_next_to_nothing(
    learned: str, widths: float
) -> None:
    """A group of one row has a release like this; the answer is that of the prior, up to what one
    deviation says: the prior's variance over a width, at most .45 where the center of one sample is
    hardly known."""
    _, releases, _, variance = population()
    fitted = make_collaboration(learned, lower=0.0, upper=1.0).fit(releases, variance)
    agent = np.arange(3)
    own = OwnMeans(
        agent=agent,
        count=np.ones_like(agent),
        mean=np.array([0.5, 0.5 + widths, 0.5 - widths]),
        variance=np.array([np.inf, widths**2, widths**2]),
    )
    answer = fitted.estimate(own)
    assert abs(answer.value[1:] - answer.value[0]).max() < 0.45 / widths + 1e-3
    assert np.isfinite([answer.lower, answer.upper]).all()


def test_a_description_names_its_method(name: str) -> None:
    _, releases, _, variance = population()
    assert (
        make_collaboration(name, lower=0.0, upper=1.0).fit(releases, variance).describe()["method"]
        == name
    )


@pytest.mark.parametrize("chosen", ["learned_prior", "tests"])
def test_collaboration_helps_where_there_are_classes(chosen: str) -> None:
    truth, releases, own, variance = population()
    answer = make_collaboration(chosen, lower=0.0, upper=1.0).fit(releases, variance).estimate(own)
    assert np.mean((answer.value - truth) ** 2) < 0.5 * np.mean((own.mean - truth) ** 2)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"collaboration must be one of learned_prior, .*, tests, consensus, none.*, got 'friends'",
    ):
        make_collaboration("friends", lower=0.0, upper=1.0)


def test_a_variance_of_another_length_is_refused() -> None:
    _, releases, _, variance = population()
    for chosen in ("learned_prior", "tests"):
        with pytest.raises(ValueError, match="variance must have 60 entries, got 59"):
            make_collaboration(chosen, lower=0.0, upper=1.0).fit(releases, variance[1:])


class Printed(SameMeanTests):
    """The interval of eq. (4), which holds given that the class is right."""

    def fit(self, releases: ReleaseColumns, variance: Floats) -> Any:
        right = super().fit(releases, variance)

        class Fitted:
            def estimate(self, own: OwnMeans, *, level: float) -> Any:
                answer = right.estimate(own, level=level)
                half = half_width_alone(own.variance / answer.effective_class_size, level)
                return replace(answer, lower=answer.value - half, upper=answer.value + half)

        return Fitted()


def test_intervals_that_cover_less_are_refused_without_a_reason() -> None:
    trial = CollaborationTrial.of(Printed())
    with pytest.raises(AssertionError, match=r"must cover at least 0\.9 .* with two near classes"):
        collaboration_intervals_cover(trial)
    Printed.covers_less = "they hold given that each class is right"
    collaboration_intervals_cover(trial)
