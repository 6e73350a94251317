"""Agents that forget: against sums made anew, in any batches, from snapshots, and what is
refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agent_memory import parse_memory
from meanstream.operators.agents.agents import Agents, ReleaseBatch
from meanstream.operators.agents.agents_settings import AgentsSettings, settings_identity
from meanstream.operators.agents.release_checks import PossibleReleases
from meanstream.operators.agents.release_times import parse_release_times
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.counters.base import ENDLESS
from meanstream.operators.noise.keyed import KeyedNoise, canonical_spelling
from meanstream.operators.records import ReleaseColumns

KEY = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
KNOWN: dict[str, Any] = {"lower": -2.0, "upper": 6.0, "epsilon": 1.0, "delta": 1e-6}
SAMPLES = AgentsSettings(**KNOWN, memory="half-life:32", schedule="preferred:3")
TURNS = AgentsSettings(**KNOWN, memory="half-life:30s", schedule="every:10s")
WINDOW = AgentsSettings(**KNOWN, memory="window:32", schedule="preferred:3")
WINDOW_TURNS = AgentsSettings(**KNOWN, memory="window:30s", schedule="every:10s")
ALL = {"samples": SAMPLES, "turns": TURNS, "window": WINDOW, "window of turns": WINDOW_TURNS}
every_memory = pytest.mark.parametrize("settings", ALL.values(), ids=list(ALL))
M, N = 7, 900


def agents_of(settings: AgentsSettings, n: int = M) -> Agents:
    agents = Agents(settings, KeyedNoise(KEY, deployment="test", purpose="agents"))
    agents.add_agents([f"agent {i}" for i in range(n)])
    return agents


def stream(seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Agents, values and times; agent 0 is silent for half of the time."""
    rng = np.random.default_rng(seed)
    time = np.sort(rng.uniform(0, 400, N))
    agent = rng.integers(0, M, N)
    agent[(agent == 0) & (time > 100) & (time < 300)] = 1
    return agent, rng.normal(1.5, 1.0, N) + (agent > 3), time


def columns(batches: list[ReleaseBatch]) -> dict[str, list[Any]]:
    joined = ReleaseColumns.joined([batch.releases for batch in batches])
    order = np.lexsort((joined.index, joined.agent))
    taken = joined.take(order)
    return {
        name: getattr(taken, name).tolist()
        for name in ("agent", "index", "count", "total", "noise_variance")
    }


@every_memory
def test_batches_and_snapshots_change_no_bit(settings: AgentsSettings) -> None:
    agent, value, time = stream()
    whole, parts = agents_of(settings), agents_of(settings)
    expected = [whole.update(agent, value, time)]
    found, cuts = [], [0, 1, 2, 50, 51, 300, 640, N]
    for start, stop in itertools.pairwise(cuts):
        found.append(parts.update(agent[start:stop], value[start:stop], time[start:stop]))
        again = agents_of(settings)
        again.restore_chunk(0, parts.snapshot_chunk(0))
        parts = again
    assert columns(found) == columns(expected)
    assert len(expected[0].releases) > 60
    for name in ("count", "mean", "squared_deviations"):
        np.testing.assert_array_equal(getattr(parts.own(), name), getattr(whole.own(), name))
    last, latest = expected[0].releases, whole.latest()
    newest = np.array([np.flatnonzero(last.agent == a)[-1] for a in range(M)])
    assert latest.take(np.arange(M)).total.tolist() == last.take(newest).total.tolist()
    assert latest.noise_variance.tolist() == last.noise_variance[newest].tolist()


def weights_by_hand(settings: AgentsSettings, time: np.ndarray) -> np.ndarray:
    """Weights of one agent's samples, from its increments between releases; the last one may be
    open."""
    if settings is WINDOW_TURNS:
        return np.asarray(np.floor(time / 10) > np.floor(time[-1] / 10) - 3, np.float64)
    if settings is WINDOW:
        return window_by_hand(len(time))
    if settings is SAMPLES:
        counts = settings.times.times(200)  # type: ignore[union-attr]
        block = np.searchsorted(counts, np.arange(1, len(time) + 1), side="left")
        at = np.append(0, counts)[1:]
        age = (at[block[-1]] - at[block]) / 32
    else:
        age = (np.floor(time[-1] / 10) - np.floor(time / 10)) * 10 / 30
    return np.asarray(0.5**age)


def window_by_hand(n: int) -> np.ndarray:
    """Weights of samples in slots of at most 4 samples, or of one increment, that leave with their
    first one."""
    begins: list[int] = []
    counts = [0, *(int(c) for c in WINDOW.times.times(400) if c <= n)]  # type: ignore[union-attr]
    for before, here in itertools.pairwise(counts):
        if not begins or here - begins[-1] > 4:
            begins.append(before)
    first = min([begin for begin in begins if begin >= n - 32], default=counts[-1])
    return np.asarray(np.arange(n) >= first, np.float64)


@every_memory
def test_an_agents_own_mean_is_the_weighted_one(settings: AgentsSettings) -> None:
    agent, value, time = stream()
    agents = agents_of(settings)
    for last in (30, 200, 555, N):
        agents = agents_of(settings)
        agents.update(agent[:last], value[:last], time[:last])
        own = agents.own()
        for a in range(M):
            mine = agent[:last] == a
            x = np.clip(value[:last][mine], -2, 6)
            w = weights_by_hand(settings, time[:last][mine])
            mean, effective = (w * x).sum() / w.sum(), w.sum() ** 2 / (w * w).sum()
            assert own.mean[a] == pytest.approx(mean, abs=1e-4)
            assert own.count[a] == pytest.approx(effective, abs=1 + 1e-6)
            spread = (w * (x - mean) ** 2).sum() / w.sum()
            assert own.squared_deviations[a] == pytest.approx(
                spread * own.count[a], rel=1e-3, abs=1e-3
            )


@every_memory
def test_released_means_err_by_the_stated_variance(settings: AgentsSettings) -> None:
    """2000 agents of a constant: mean squared error over stated variance, 5 standard errors; also
    of who has waited."""
    n, rng = 2000, np.random.default_rng(5)
    agents = agents_of(replace(settings, spread_share=0.0), n)
    for second in range(0, 300, 5):
        some = np.flatnonzero((rng.random(n) < 0.7) | (np.arange(n) % 2 == 0))
        some = some[(some % 4 != 1) | (second < 60) | (second > 240)]
        agents.update(some, np.full(len(some), 3.0), np.full(len(some), float(second)))
    latest = agents.latest()
    ratio = (latest.mean - 3.0) ** 2 / latest.noise_variance
    for part in (ratio, ratio[latest.agent % 4 == 1]):
        assert abs(part.mean() - 1.0) < 5 * np.sqrt(2 / len(part))
    assert PossibleReleases(agents.settings).reasons(latest).tolist() == [""] * n


def test_who_waits_forgets_by_time() -> None:
    agents = agents_of(TURNS, 1)
    zero = np.zeros(50, np.int64)
    agents.update(zero, np.full(50, 0.0), np.linspace(0, 9, 50))
    agents.update(zero, np.full(50, 4.0), np.linspace(300, 309, 50))  # ten half-lives later
    own = agents.own()
    assert own.mean[0] == pytest.approx(4.0 * 1024 / 1025, abs=0.02)
    assert own.count[0] == 50


def test_what_leaves_a_window_is_gone() -> None:
    """Silent for longer than the window, or after so many samples: nothing of what was before is
    left."""
    zero = np.zeros(50, np.int64)
    agents = agents_of(replace(WINDOW_TURNS, epsilon=1000.0), 1)
    agents.update(zero, np.full(50, 0.0), np.linspace(0, 9, 50))
    newest = agents.update(zero, np.full(50, 4.0), np.linspace(300, 309, 50)).releases
    assert newest.count.tolist() == [50]
    last = agents.advance(320.0).releases
    assert (last.count.tolist(), last.index.tolist()) == ([50], [2])
    assert last.mean[0] == pytest.approx(4.0, abs=0.05)
    assert agents.own().mean[0] == pytest.approx(4.0, abs=1e-4)

    agents = agents_of(replace(WINDOW, epsilon=1000.0), 1)
    agents.update(np.zeros(100, np.int64), np.repeat([0.0, 4.0], [64, 36]), np.arange(100.0))
    assert agents.latest().mean[0] == pytest.approx(4.0, abs=0.05)
    assert 28 <= agents.latest().count[0] <= 32


def test_releases_between_turns_do_not_shorten_a_window() -> None:
    """As where a program is run many times a day, with a last release each time: a turn, and a few
    samples, are one."""
    often, rarely = agents_of(WINDOW_TURNS, 1), agents_of(WINDOW_TURNS, 1)
    for second in range(60):
        often.update(np.zeros(1, np.int64), np.full(1, 1.0), np.full(1, float(second)))
        rarely.update(np.zeros(1, np.int64), np.full(1, 1.0), np.full(1, float(second)))
        often.release_now(float(second))
    rarely.release_now(59.0)
    assert often.latest().count.tolist() == rarely.latest().count.tolist() == [30]
    assert often.latest().index.tolist() == [60]
    assert PossibleReleases(WINDOW_TURNS).reasons(often.latest()).tolist() == [""]

    one_by_one = agents_of(WINDOW, 1)
    for second in range(200):
        one_by_one.update(np.zeros(1, np.int64), np.full(1, 1.0), np.full(1, float(second)))
        one_by_one.release_now(float(second))
        assert one_by_one.own().count[0] <= 32
    assert 28 <= one_by_one.latest().count[0] <= 32
    assert PossibleReleases(WINDOW).reasons(one_by_one.latest()).tolist() == [""]


@every_memory
def test_an_agent_whose_mean_changes_leaves_what_was_before(settings: AgentsSettings) -> None:
    """Agents 0 to 2 change by 3 standard deviations; in any batches they know it the same, and the
    others stay."""
    rng, n = np.random.default_rng(4), 1500
    agent, time = rng.integers(0, M, n), np.sort(rng.uniform(0, 600, n))
    moved = (agent < 3) & (time > 400)
    value = rng.normal(1.0, 0.5, n) + 1.5 * moved
    whole, parts = agents_of(settings), agents_of(settings)
    batch = whole.update(agent, value, time)
    for start, stop in itertools.pairwise([0, 700, 1001, 1100, 1101, n]):
        parts.update(agent[start:stop], value[start:stop], time[start:stop])
        again = agents_of(settings)
        again.restore_chunk(0, parts.snapshot_chunk(0))
        parts = again
    own, other = whole.own(), parts.own()
    for name in ("count", "mean", "squared_deviations", "ahead"):
        np.testing.assert_array_equal(getattr(own, name), getattr(other, name))
    for a in range(M):
        recent = value[(agent == a) & (time > 400)]
        assert abs(own.mean[a] - (2.5 if a < 3 else 1.0)) < 5 * 0.5 / len(recent) ** 0.5 + 0.1
    assert set(np.flatnonzero(own.ahead)) <= {0, 1, 2}
    assert len(batch.drift) == len(batch.releases)


def test_false_alarms_are_taken_back() -> None:
    """300 agents whose mean stays: who was wrongly thought to have changed has its past again, but
    earlier doubts."""
    n, half_life = 300, 4000
    settings = AgentsSettings(**KNOWN, memory=f"half-life:{half_life}")
    agents, rng, taken = agents_of(settings, n), np.random.default_rng(11), []
    suspected = np.zeros(n, np.bool_)
    for _ in range(64):
        taken.append(rng.random((64, n)))
        agents.update(np.tile(np.arange(n), 64), taken[-1].ravel(), np.zeros(64 * n))
        suspected |= agents.own().ahead
    own, sent = agents.own(), np.concatenate(taken)
    back = np.flatnonzero(suspected & ~own.ahead)
    assert len(back) >= 3
    never = np.flatnonzero(~suspected)[0]
    weights = weights_of_blocks(settings, len(sent), half_life)
    for a in back:
        assert own.count[a] == pytest.approx(own.count[never], rel=0.1)
        assert own.mean[a] == pytest.approx((weights * sent[:, a]).sum() / weights.sum(), abs=3e-3)


def weights_of_blocks(settings: AgentsSettings, n: int, half_life: float) -> np.ndarray:
    """Weights of samples by the release that holds them."""
    counts = settings.times.times(100)  # type: ignore[union-attr]
    at = counts[np.searchsorted(counts, np.arange(1, n + 1), side="left")]
    return np.asarray(0.5 ** ((at[-1] - at) / half_life))


def test_windows_before_1970_end_as_others_do() -> None:
    settings = AgentsSettings(**KNOWN, schedule="every:10s")
    times = []
    for begin in (-1000.0, -15.0, 1000.0):
        agents = agents_of(settings, 1)
        batch = agents.update(np.zeros(30, np.int64), np.full(30, 1.0), begin + np.arange(30.0))
        rest = agents.advance(begin + 40.0)
        times.append([*(batch.time - begin), *(rest.time - begin)])
    assert times == [[10.0, 20.0, 30.0], [5.0, 15.0, 25.0, 35.0], [10.0, 20.0, 30.0]]


@pytest.mark.parametrize("memory", ["half-life:8", "window:8"])
def test_there_is_no_end_and_what_is_forged_is_told(memory: str) -> None:
    settings = AgentsSettings(**KNOWN, memory=memory, schedule="preferred:1")
    agents = agents_of(settings, 1)
    batch = agents.update(np.zeros(3000, np.int64), np.full(3000, 1.0), np.arange(3000.0))
    releases = batch.releases
    assert len(releases) == 3000
    assert not len(batch.exhausted)
    assert (settings.horizon, settings.most_releases) == (ENDLESS, None)
    possible = PossibleReleases(settings)
    assert set(possible.reasons(releases)) == {""}
    assert int(releases.count.max()) <= possible.largest_count <= releases.count.max() + 3
    more = possible.largest_count + 1
    assert set(possible.reasons(replace(releases, count=np.full(3000, more)))) == {
        "impossible_count"
    }
    forged = replace(
        releases,
        noise_variance=settings.fresh.variance * settings.grid.resolution**2 / 1e6
        + 0 * releases.mean,
    )
    assert set(possible.reasons(forged)) == {"too_precise"}


def test_what_a_sample_varies_by_is_known_from_votes_alone() -> None:
    """A mean that moves between releases is no spread of samples: 300 agents, two values far apart,
    one at a time."""
    settings = AgentsSettings(lower=0, upper=1, epsilon=3, delta=1e-6, memory="half-life:100")
    agents, followed = agents_of(settings, 300), FollowedReleases(settings)
    rng = np.random.default_rng(2)
    for turn in range(60):
        who = np.repeat(np.arange(300), 20)
        value = (0.2 if turn < 30 else 0.8) + rng.normal(0, 0.05, len(who))
        made = agents.update(who, value, turn + np.tile(np.arange(20) / 20, 300))
        followed.observe(made.releases, made.before)
    assert 0.02 < followed.variance**0.5 < 0.1
    assert not followed.own.combines


def test_settings_of_who_keeps_everything_are_spelled_as_they_were() -> None:
    forever = AgentsSettings(**KNOWN)
    assert forever == AgentsSettings(**KNOWN, memory="forever", horizon=40)
    assert {"memory", "horizon"}.isdisjoint(canonical_spelling(forever))
    assert "memory" not in settings_identity(forever)
    assert settings_identity(SAMPLES)["memory"] == "half-life:32"
    assert AgentsSettings(**settings_identity(SAMPLES)) == SAMPLES
    assert canonical_spelling(replace(SAMPLES, memory="half-life: 032")) == canonical_spelling(
        SAMPLES
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"memory": "half-life:30d"},
            "schedule must be every:DURATION with memory half-life:30d, got 'preferred:10'",
        ),
        (
            {"memory": "half-life:1m", "schedule": "every:1h"},
            "schedule must be at most as long as memory half-life:1m",
        ),
        (
            {"memory": "half-life:50", "schedule": "every:1h"},
            "schedule must count samples, as memory half-life:50 does",
        ),
        (
            {"memory": "window:12w"},
            "schedule must be every:DURATION with memory window:84d, got 'preferred:10'",
        ),
        (
            {"memory": "window:12w", "schedule": "every:5w"},
            "memory must be 1 to 128 times 35d of the schedule",
        ),
        (
            {"memory": "window:129d", "schedule": "every:1d"},
            "memory must be 1 to 128 times 1d of the schedule",
        ),
        (
            {"memory": "window:9"},
            "schedule must have its first release within memory window:9, got 'preferred:10'",
        ),
        (
            {"memory": "window:500", "schedule": "every:1h"},
            "schedule must count samples, as memory window:500 does",
        ),
        (
            {"memory": "window:500", "counter": "windowed"},
            "counter must be left out with memory window:500",
        ),
        (
            {"memory": "window:500", "horizon": 40},
            "horizon must be left out with memory window:500",
        ),
        (
            {"memory": "half-life:50", "horizon": 40},
            "horizon must be left out with memory half-life:50",
        ),
        (
            {"memory": "half-life:50", "counter": "toeplitz"},
            "counter must be left out with memory half-life:50",
        ),
        ({"memory": "half-life:50", "mode": "paper"}, "memory must be forever with mode paper"),
        (
            {"memory": "half-life:50", "noise": "laplace", "counter": "pm1"},
            "and noise laplace, got 'half-life:50'",
        ),
        ({"memory": "half-life:nan"}, "memory must be forever, half-life"),
        (
            {"memory": "half-life:1e400d", "schedule": "every:1d"},
            "memory must be forever, half-life",
        ),
        ({"memory": "half-life:9" + "9" * 30}, "memory must"),
        ({"memory": "half-life:\u0665"}, "memory must"),
        ({"memory": "half-life:500000w", "schedule": "every:1s"}, "memory must forget something"),
        (
            {"counter": "decayed"},
            "counter must be one of pm1, pm2, two_level, toeplitz, optimal, got 'decayed'",
        ),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _ = AgentsSettings(**{**KNOWN, **changes}).numeric_slack


def test_a_schedule_that_grows_slowly_is_steady_in_the_end() -> None:
    times = parse_memory("half-life:800000").times(parse_release_times("geometric:1,1.0000001"))
    assert times.at(np.array([1, 128, 129, 130])).tolist() == [1, 128, 100_128, 200_128]  # type: ignore[union-attr]
