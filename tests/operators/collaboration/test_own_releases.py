"""All of an agent's own releases as one: the dense least squares, never worse than the newest,
strangers left alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from meanstream.lab.papers.colme.statistic import statistic_release_covariance, weights
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.release_times import Counts
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.own_releases import CHUNK, REMEMBERED, OwnReleases
from meanstream.operators.counters.registry import Counter, make_counter
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats, Ints, ReleaseColumns

SETTINGS = AgentsSettings(
    lower=-3, upper=7, epsilon=1, delta=1e-6, name="test", noise="gaussian", spread_share=0
)
CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "votes": {"spread_share": 0.1},
    "optimal": {"counter": "optimal"},
    "pm1": {"counter": "pm1"},
    "pm2": {"counter": "pm2"},
    "laplace": {"counter": "pm1", "noise": "laplace"},
    "staircase": {"counter": "pm1", "noise": "staircase"},
    "long": {"counter": "toeplitz", "horizon": 5000, "schedule": "geometric:3,1.01"},
    "persons": {"per_person": 3},
    "by time": {"schedule": "every:1h"},
}


def releases_of(
    settings: AgentsSettings, counts: Ints, first: int = 1, agent: int = 0, seed: int = 0
) -> ReleaseColumns:
    """Releases of one agent, of any sums."""
    n = len(counts)
    index = np.arange(first, first + n)
    total = np.random.default_rng(seed).integers(0, settings.grid.span, n) * counts
    return ReleaseColumns(
        agent=np.full(n, agent),
        index=index,
        count=counts,
        total=total,
        mean=settings.grid.mean(total, counts),
        noise_variance=settings.mean_variance(index, counts),
    )


def dense(
    settings: AgentsSettings,
    releases: ReleaseColumns,
    sample_variance: float,
    remembered: int = REMEMBERED,
) -> tuple[Floats, Floats]:
    """Weights of the newest releases for the largest variance of a sample, and their covariance for
    another one."""
    noise = (
        settings.fresh.variance
        * settings.mechanism.covariance(int(releases.index[-1]))
        * settings.grid.resolution**2
    )
    noise += np.eye(len(noise)) / 12 * settings.grid.resolution**2
    newest = releases.take(slice(-remembered, None))  # type: ignore[arg-type]
    times = newest.count.astype(np.float64)
    part = noise[np.ix_(newest.index - 1, newest.index - 1)] / np.multiply.outer(times, times)
    sampling = 1 / np.maximum.outer(times, times)
    largest = (0.5 * settings.grid.span * settings.grid.resolution) ** 2
    return weights(
        "gls", len(times), covariance=largest * sampling + part
    ), sample_variance * sampling + part


def combined(settings: AgentsSettings, releases: ReleaseColumns) -> ReleaseColumns:
    own = OwnReleases(settings)
    own.observe(releases)
    return own.combined(releases.take(np.array([len(releases) - 1])))


def counts_of(settings: AgentsSettings, n: int) -> Ints:
    """Counts at the releases; the source of the agent ended once, before the last one on
    schedule."""
    times = settings.times
    counts = times.times(n) if isinstance(times, Counts) else np.arange(1, n + 1) * 7
    room = [*np.flatnonzero(np.diff(counts, prepend=0) > 1), 0][-1]  # a count before it is free
    return np.asarray(np.insert(counts, room, counts[room] - 1)[:n], np.int64)


@pytest.mark.parametrize(
    ("counter", "lost"), [("toeplitz", 0.02), ("optimal", 0.021), ("pm1", 0.052), ("pm2", 0.011)]
)
def test_older_releases_would_add_little(counter: str, lost: float) -> None:
    """Where a sample varies by a tenth of what the bounds allow, or by all of it."""
    settings = replace(SETTINGS, counter=counter)
    largest = (0.5 * settings.grid.span * settings.grid.resolution) ** 2
    for n in (9, 12, 16, 24, 32, 40):
        assert isinstance(settings.times, Counts)
        releases = releases_of(settings, settings.times.times(n))
        for sample_variance in (0.1 * largest, largest):
            kept, of_all = (
                weight @ covariance @ weight
                for weight, covariance in (
                    dense(settings, releases, sample_variance, k) for k in (REMEMBERED, n)
                )
            )
            assert of_all <= kept * (1 + 1e-12)
            assert kept <= of_all * (1 + lost)


@pytest.mark.parametrize("n", [2, 5, 8, 9, 30])
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_dense_least_squares(case: str, n: int) -> None:
    settings = replace(SETTINGS, **CASES[case])
    releases = releases_of(settings, counts_of(settings, n), seed=n)
    found = combined(settings, releases)
    weight, covariance = dense(settings, releases, 0.0)
    kept = releases.mean[-REMEMBERED:]
    np.testing.assert_allclose(
        found.mean, [weight @ kept], rtol=0, atol=1e-12 * 10
    )  # of a width of 10
    _, largest = dense(
        settings, releases, (0.5 * settings.grid.span * settings.grid.resolution) ** 2
    )
    more = weight @ (largest - covariance) @ weight - largest[-1, -1] + covariance[-1, -1]
    np.testing.assert_allclose(
        found.noise_variance, [weight @ covariance @ weight + more], rtol=1e-9
    )
    assert weight @ covariance @ weight <= found.noise_variance[0] * (1 + 1e-12)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sample_variance", [0.0, 0.01, 1.0, 25.0])
def test_it_is_never_worse_than_the_newest(case: str, sample_variance: float) -> None:
    """And what it says of its variance is never too little, up to the largest that the bounds
    allow."""
    settings = replace(SETTINGS, **CASES[case])
    counts = counts_of(settings, 30)
    assert (np.diff(counts) > 0).all()
    for n in (1, 2, 3, 9, 17, 30):
        releases = releases_of(settings, counts[:n])
        found = combined(settings, releases)
        weight, covariance = dense(settings, releases, sample_variance)
        said = sample_variance / releases.count[-1] + found.noise_variance[0]
        assert weight @ covariance @ weight <= said * (1 + 1e-9)
        assert said <= covariance[-1, -1] * (1 + 1e-9)
        assert n == 1 or found.noise_variance[0] < releases.noise_variance[-1]


def test_the_reference_is_that_of_the_simulator() -> None:
    releases = releases_of(SETTINGS, counts_of(SETTINGS, 8))
    _, covariance = dense(SETTINGS, releases, 2.0)
    fresh = SETTINGS.fresh.variance * SETTINGS.grid.resolution**2
    theirs = statistic_release_covariance(
        releases.count, sample_variance=2.0, counter=SETTINGS.mechanism, fresh_variance=fresh
    )
    np.testing.assert_allclose(covariance, theirs, rtol=1e-9)


def stream(
    settings: AgentsSettings, agents: int = 20, seed: int = 3
) -> tuple[Agents, list[ReleaseColumns]]:
    """Releases of agents with unequal numbers of samples, in batches, with a final release of
    everybody."""
    rng = np.random.default_rng(seed)
    everybody = Agents(settings, KeyedNoise(rng.bytes(32), deployment="test", purpose="agents"))
    everybody.add_agents([str(a) for a in range(agents)])
    who = rng.permutation(np.repeat(np.arange(agents), rng.integers(1, 200, agents)))
    value, time = rng.normal(2, 1, len(who)), np.arange(len(who)) * 60.0
    cuts = np.linspace(0, len(who), 7).astype(int)
    made = [
        everybody.update(who[a:b], value[a:b], time[a:b]).releases
        for a, b in pairwise(cuts.tolist())
    ]
    return everybody, [*made, everybody.release_now(float(len(who))).releases]


@pytest.mark.parametrize("case", ["votes", "by time", "optimal"])
def test_the_same_bits_however_releases_come(case: str) -> None:
    settings = replace(SETTINGS, **CASES[case])
    everybody, made = stream(settings)
    whole, single, restored = OwnReleases(settings), OwnReleases(settings), OwnReleases(settings)
    whole.observe(ReleaseColumns.joined(made))
    for releases in made:
        for place in range(len(releases)):
            single.observe(releases.take(np.array([place])))
        again = OwnReleases(settings)
        restored.observe(releases)
        for chunk, columns in restored.changes():
            again.restore(chunk, columns)
        restored = again.renumbered(20, np.arange(20)) if len(releases) else restored
    latest = everybody.latest()
    found = [own.combined(latest) for own in (whole, single, restored)]
    assert (found[0].noise_variance < latest.noise_variance).sum() > 15
    assert len({(one.mean.tobytes(), one.noise_variance.tobytes()) for one in found}) == 1
    assert np.array_equal(found[0].total, latest.total)
    assert np.array_equal(found[0].votes, latest.votes)


def test_its_error_is_what_it_says() -> None:
    """Over many agents whose samples do not vary the error is noise, of less than the newest
    release's."""
    settings = replace(SETTINGS, epsilon=3.0)
    everybody = Agents(
        settings,
        KeyedNoise(np.random.default_rng(5).bytes(32), deployment="test", purpose="agents"),
    )
    everybody.add_agents([str(a) for a in range(2000)])
    agent = np.repeat(np.arange(2000), 70)
    followed = FollowedReleases(settings)
    made = everybody.update(agent, np.full(len(agent), 2.0), np.arange(len(agent)) * 1.0)
    followed.observe(made.releases, made.before)
    latest = everybody.latest()
    found = followed.combined(latest)
    errors = [
        float(np.mean((one.mean - 2.0) ** 2 / latest.noise_variance)) for one in (latest, found)
    ]
    said = float(np.mean(found.noise_variance / latest.noise_variance))
    assert errors[0] == pytest.approx(1, abs=0.1)
    assert errors[1] == pytest.approx(said, abs=0.1)
    assert errors[1] < errors[0]


@pytest.mark.parametrize(
    "forged",
    [
        {"noise_variance": np.array([9.0, 9.0, 9.0])},
        {"index": np.array([1, 2, 4])},
        {"index": np.array([1, 2, 2**62])},
        {"index": np.array([-5, -4, -3])},
        {"count": np.array([10, 15, 15])},
        {"count": np.array([10, 15, 0])},
        {"count": np.array([10, 15, 2**62])},
    ],
)
def test_a_stranger_is_taken_at_the_newest(forged: dict[str, Any]) -> None:
    releases = replace(releases_of(SETTINGS, np.array([10, 15, 20])), **forged)
    with np.errstate(all="raise"):
        found = combined(SETTINGS, releases)
    assert found.mean.tolist() == releases.mean[2:].tolist()
    assert found.noise_variance.tolist() == releases.noise_variance[2:].tolist()


def test_sums_that_nobody_can_have_stay_numbers() -> None:
    releases = replace(
        releases_of(SETTINGS, np.array([10, 15, 20])), total=np.array([-(2**63) + 1, 2**63 - 1, 5])
    )
    found = combined(SETTINGS, releases)
    assert np.isfinite(found.mean).all()
    assert (found.noise_variance <= releases.noise_variance[2]).all()


def test_it_goes_on_after_a_gap() -> None:
    before, after = (
        releases_of(SETTINGS, np.array([10, 15])),
        releases_of(SETTINGS, np.array([30, 50]), first=4),
    )
    alone = combined(SETTINGS, after)
    both = combined(SETTINGS, ReleaseColumns.joined([before, after]))
    assert both.mean.tolist() == alone.mean.tolist()
    assert both.noise_variance[0] < after.noise_variance[1]


def test_a_release_that_was_not_observed_stays() -> None:
    own = OwnReleases(SETTINGS)
    own.observe(releases_of(SETTINGS, np.array([10, 15])))
    other = releases_of(SETTINGS, np.array([10, 15, 20]), seed=1)
    latest = ReleaseColumns.joined(
        [other.take(np.array([2])), replace(other.take(np.array([1])), agent=np.array([9]))]
    )
    found = own.combined(latest)
    assert found.mean.tolist() == latest.mean.tolist()
    same_index = own.combined(
        other.take(np.array([1]))
    )  # of the index that was observed, but another sum
    assert same_index.mean.tolist() == other.mean[1:2].tolist()


def test_paper_mode_reads_the_newest() -> None:
    settings = AgentsSettings(
        lower=0,
        upper=1,
        epsilon=1,
        delta=1e-6,
        counter="pm1",
        calibration="classical",
        mode="paper",
    )
    releases = releases_of(settings, counts_of(settings, 8))
    found = combined(settings, releases)
    assert found.mean.tolist() == releases.mean[-1:].tolist()
    assert found.noise_variance.tolist() == releases.noise_variance[-1:].tolist()


def test_only_chunks_that_changed_are_saved() -> None:
    own = OwnReleases(SETTINGS)
    own.observe(releases_of(SETTINGS, np.array([10]), agent=2 * CHUNK + 3))
    assert [chunk for chunk, _ in own.changes()] == [2]
    own.mark_clean()
    assert not list(own.changes())
    with pytest.raises(ValueError, match="snapshot version must be 1, got 7"):
        own.restore(0, {"version": np.array(7)})


@pytest.mark.parametrize(
    "counter", [make_counter(name, horizon=40) for name in ("toeplitz", "optimal", "pm1", "pm2")]
)
def test_lagged_covariances_are_those_of_the_matrix(counter: Counter) -> None:
    whole = counter.covariance(40)
    found = counter.lagged_covariance(40, 8)
    for lag in range(8):
        np.testing.assert_allclose(found[lag, lag:], np.diag(whole, -lag), rtol=1e-12)
        assert not found[lag, :lag].any()
    assert np.array_equal(counter.lagged_covariance(11, 8), found[:, :11])


@pytest.mark.parametrize("case", CASES)
def test_reading_on_the_way_changes_no_bit(case: str) -> None:
    settings = replace(SETTINGS, **CASES[case])
    often = OwnReleases(settings)
    once = OwnReleases(settings)
    for first in range(1, 12, 2):
        for agent in (0, 3):
            releases = releases_of(settings, 10 * np.arange(first, first + 2), first, agent, first)
            often.observe(releases)
            once.observe(releases)
        often.columns()

    for name, column in often.columns().items():
        assert np.array_equal(column, once.columns()[name])
