"""What every collaboration of the registry keeps to."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from meanstream.operators.collaboration.registry import COLLABORATIONS, make_collaboration
from meanstream.operators.records import Floats, OwnMeans, ReleaseColumns

N = 60


def releases_of(mean: Floats, noise: float = 0.0) -> ReleaseColumns:
    agent = np.arange(len(mean))
    ones = np.ones_like(agent)
    return ReleaseColumns(
        agent=agent, index=ones, count=100 * ones, total=ones, mean=mean, noise_variance=np.full(len(mean), noise)
    )


def population(seed: int = 0) -> tuple[Floats, ReleaseColumns, OwnMeans, Floats]:
    rng = np.random.default_rng(seed)
    truth = rng.choice([0.2, 0.8], N)
    variance, noise = np.full(N, 0.01), 0.01
    mean = truth + rng.normal(0, 0.1, N)
    own = OwnMeans(agent=np.arange(N), count=np.full(N, 25), mean=mean, variance=variance)
    return truth, releases_of(mean + rng.normal(0, 0.1, N), noise), own, variance + noise


def take(record: OwnMeans | ReleaseColumns, rows: np.ndarray) -> dict[str, np.ndarray]:
    return {field.name: getattr(record, field.name)[rows] for field in dataclasses.fields(record)}


@pytest.fixture(params=sorted(COLLABORATIONS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_answers_have_the_shape_of_the_question(name: str) -> None:
    _, releases, own, variance = population()
    fitted = make_collaboration(name, lower=0.0, upper=1.0).fit(releases, variance)
    answer = fitted.estimate(own, level=0.9)
    assert answer.level == 0.9
    for field in dataclasses.fields(answer):
        if field.name not in ("level", "moved"):  # which covariates have done
            column = getattr(answer, field.name)
            assert column.shape == (N,)
            assert np.isfinite(column).all()
    assert (answer.lower < answer.value).all()
    assert (answer.value < answer.upper).all()
    assert (answer.class_size >= 1).all()
    assert ((answer.membership > 0) & (answer.membership <= 1)).all()
    wider = fitted.estimate(own, level=0.99)
    assert (wider.upper - wider.lower > answer.upper - answer.lower).all()


def test_without_releases_everybody_learns_alone(name: str) -> None:
    _, _, own, _ = population()
    fitted = make_collaboration(name, lower=0.0, upper=1.0).fit(releases_of(np.zeros(0)), np.zeros(0))
    answer = fitted.estimate(own)
    np.testing.assert_allclose(answer.value, own.mean, rtol=1e-12)
    np.testing.assert_allclose(answer.upper - answer.value, 1.959964 * np.sqrt(own.variance), rtol=1e-6)
    assert (answer.class_size == 1).all()


def test_the_order_of_agents_and_of_releases_does_not_matter(name: str) -> None:
    _, releases, own, variance = population()
    rng = np.random.default_rng(1)
    collaboration = make_collaboration(name, lower=0.0, upper=1.0)
    expected = collaboration.fit(releases, variance).estimate(own)
    shuffled, some = rng.permutation(N), rng.permutation(N)[:20]
    fitted = collaboration.fit(ReleaseColumns(**take(releases, shuffled)), variance[shuffled])
    answer = fitted.estimate(OwnMeans(**take(own, some)))
    np.testing.assert_allclose(answer.value, expected.value[some], rtol=1e-9)
    np.testing.assert_allclose(answer.upper, expected.upper[some], rtol=1e-9)


def test_an_agent_without_a_release_gets_an_answer_and_moves_nobody(name: str) -> None:
    _, releases, own, variance = population()
    rows = np.arange(1, N)
    fitted = make_collaboration(name, lower=0.0, upper=1.0).fit(ReleaseColumns(**take(releases, rows)), variance[rows])
    assert np.isfinite(fitted.estimate(own).value[0])


def test_a_release_of_unknown_variance_is_left_out(name: str) -> None:
    _, releases, own, variance = population()
    rows = np.arange(1, N)
    collaboration = make_collaboration(name, lower=0.0, upper=1.0)
    expected = collaboration.fit(ReleaseColumns(**take(releases, rows)), variance[rows]).estimate(own)
    unknown = variance.copy()
    unknown[0] = np.inf
    answer = collaboration.fit(releases, unknown).estimate(own)
    np.testing.assert_allclose(answer.value, expected.value, rtol=1e-9)


@pytest.mark.parametrize("learned", ["learned_prior", "pooled_prior", "james_stein"])
@pytest.mark.parametrize("widths", [2.0, 20.0, 200.0, 1e6])
def test_a_mean_with_more_noise_than_the_bounds_are_wide_says_next_to_nothing(learned: str, widths: float) -> None:
    """A group of one row has a release like this; the answer is that of the prior, up to what one deviation says."""
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
    assert abs(answer.value[1:] - answer.value[0]).max() < 0.25 / widths + 1e-3
    assert np.isfinite([answer.lower, answer.upper]).all()


def test_the_description_is_plain_data(name: str) -> None:
    _, releases, _, variance = population()
    described = make_collaboration(name, lower=0.0, upper=1.0).fit(releases, variance).describe()
    assert json.loads(json.dumps(described)) == described
    assert described["method"] == name
    assert len(described["components"]) == described["n_components"]


@pytest.mark.parametrize("chosen", ["learned_prior", "tests"])
def test_collaboration_helps_where_there_are_classes(chosen: str) -> None:
    truth, releases, own, variance = population()
    answer = make_collaboration(chosen, lower=0.0, upper=1.0).fit(releases, variance).estimate(own)
    assert np.mean((answer.value - truth) ** 2) < 0.5 * np.mean((own.mean - truth) ** 2)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match="collaboration must be one of learned_prior, pooled_prior, james_stein, tests, none, got 'friends'",
    ):
        make_collaboration("friends", lower=0.0, upper=1.0)


def test_a_variance_of_another_length_is_refused() -> None:
    _, releases, _, variance = population()
    for chosen in ("learned_prior", "tests"):
        with pytest.raises(ValueError, match="variance must have 60 entries, got 59"):
            make_collaboration(chosen, lower=0.0, upper=1.0).fit(releases, variance[1:])
