"""Agents in columns against one agent at a time, any split into batches, any restart, both kinds of
schedule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.operators.agents.agents import CHUNK, Agents, AgentsSettings, ReleaseBatch
from meanstream.operators.noise.keyed import (
    KeyedNoise,
    NoiseIds,
    canonical_spelling,
    keyed_owner_words,
)

SECRET = b"0d409462e4304f9f66770dc046be10c9"


def keyed() -> KeyedNoise:
    return KeyedNoise(SECRET, deployment="test", purpose="agents")


def configured(schedule: str = "geometric:3,1.5", **changes: object) -> AgentsSettings:
    options = {
        "lower": -1.0,
        "upper": 3.0,
        "epsilon": 1.0,
        "delta": 1e-6,
        "horizon": 6,
        "schedule": schedule,
    }
    return AgentsSettings(**{**options, "spread_share": 0, **changes})


def stream(n: int, n_agents: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    agent = generator.integers(0, n_agents, n)
    return agent, generator.uniform(-2, 4, n), np.sort(generator.uniform(0, 1000, n))


def fill(options: AgentsSettings, n_agents: int) -> Agents:
    agents = Agents(options, keyed())
    agents.add_agents([f"a{i}" for i in range(n_agents)])
    return agents


def rows(batches: list[ReleaseBatch]) -> list[tuple[int, ...]]:
    """Releases as a sorted list, whatever batches they came in."""
    columns = [
        (b.releases.agent, b.releases.index, b.releases.count, b.releases.total, b.version, b.time)
        for b in batches
    ]
    return sorted(
        row for batch in columns for row in zip(*(c.tolist() for c in batch), strict=True)
    )


def one_at_a_time(
    options: AgentsSettings, agent: np.ndarray, value: np.ndarray, time: np.ndarray
) -> list[tuple]:
    """The same releases from a loop over events that keeps one sum per agent and the counter's
    matrix."""
    noise, grid, counter = (
        keyed().derived("agents", canonical_spelling(options)),
        options.grid,
        options.mechanism,
    )
    due = options.times.times(options.horizon).tolist()
    matrix = counter.matrix(options.horizon)
    sums: dict[int, list[int]] = {}
    draws: dict[int, list[float]] = {}
    out = []
    for a, v, t in zip(agent.tolist(), value, time.tolist(), strict=True):
        state = sums.setdefault(a, [0, 0])
        state[0] += 1
        state[1] += int(grid.encode(np.array([v]))[0])
        past = draws.setdefault(a, [])
        if len(past) < options.horizon and state[0] == due[len(past)]:
            version = noise.version_of(np.array([state[0]]), np.array([state[1]]))
            ids = NoiseIds(
                owner=keyed_owner_words([f"a{a}"]), index=np.array([len(past) + 1]), version=version
            )
            past.append(float(options.fresh.sample(noise.bits(ids))[0]))
            k = len(past)
            noised = state[1] + int(np.rint(matrix[k - 1, :k] @ np.array(past)))
            out.append((a, k, state[0], noised, int(version[0]), t))
    return sorted(out)


@pytest.mark.parametrize("counter", ["pm1", "pm2", "toeplitz", "optimal"])
def test_releases_equal_a_loop_over_single_events(counter: str) -> None:
    options = configured(counter=counter)
    agent, value, time = stream(400, 11)
    agents = fill(options, 11)
    batches = [
        agents.update(*(c[i : i + 57] for c in (agent, value, time))) for i in range(0, 400, 57)
    ]
    expected = one_at_a_time(options, agent, value, time)
    measured = rows(batches)
    assert [r[:3] + r[4:] for r in measured] == [r[:3] + r[4:] for r in expected]
    # The recursion and the matrix sum the same floats in another order: the last grid unit may
    # round differently.
    assert max(abs(m[3] - e[3]) for m, e in zip(measured, expected, strict=True)) <= 1
    assert len(measured) > 40


@given(cuts=st.lists(st.integers(0, 300), max_size=8), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_split_into_batches_changes_nothing(cuts: list[int], seed: int) -> None:
    agent, value, time = stream(300, 5, seed)
    whole = fill(configured(), 5)
    expected = rows([whole.update(agent, value, time)])
    split = fill(configured(), 5)
    edges = [0, *sorted(cuts), 300]
    measured = rows(
        [
            split.update(*(c[i:j] for c in (agent, value, time)))
            for i, j in itertools.pairwise(edges)
        ]
    )
    assert measured == expected
    np.testing.assert_array_equal(split.own().squared_deviations, whole.own().squared_deviations)


@pytest.mark.parametrize("schedule", ["geometric:3,1.5", "every:100s"])
@pytest.mark.parametrize("cut", [0, 1, 133, 399])
def test_snapshot_and_restore_equal_no_cut(schedule: str, cut: int) -> None:
    agent, value, time = stream(400, 2 * CHUNK + 7, seed=3)
    agent[:50] = 2 * CHUNK + 6  # some agent of the last chunk releases
    options = configured(schedule)
    straight = fill(options, 2 * CHUNK + 7)
    expected = rows([straight.update(agent, value, time), straight.advance(2000.0)])

    first = fill(options, 2 * CHUNK + 7)
    before = first.update(agent[:cut], value[:cut], time[:cut])
    saved = {i: first.snapshot_chunk(i) for i in range(3)}
    second = fill(options, 2 * CHUNK + 7)
    for i, state in saved.items():
        second.restore_chunk(i, state)
    after = [second.update(agent[cut:], value[cut:], time[cut:]), second.advance(2000.0)]
    assert rows([before, *after]) == expected
    np.testing.assert_array_equal(second.latest().total, straight.latest().total)


@pytest.mark.parametrize("longer", [False, True])
def test_rows_go_on_where_others_have_made_more_or_fewer_releases(*, longer: bool) -> None:
    options = configured(counter="optimal")
    value, time = np.linspace(-1, 3, 40), np.arange(40.0)
    whole, giver, taker = (fill(options, n) for n in (1, 1, 2))
    expected = rows([whole.update(np.zeros(40, np.int64), value, time)])
    before = rows([giver.update(np.zeros(9, np.int64), value[:9], time[:9])])
    taker.update(
        np.ones(30 if longer else 3, np.int64),
        value[: 30 if longer else 3],
        time[: 30 if longer else 3],
    )
    taker.put_rows(np.array([0]), giver.rows(np.array([0])))
    assert before + rows([taker.update(np.zeros(31, np.int64), value[9:], time[9:])]) == expected


def test_a_snapshot_holds_no_room_for_releases_that_no_one_has_made() -> None:
    agents = fill(configured(counter="optimal"), CHUNK + 1)
    agents.update(np.zeros(5, np.int64), np.zeros(5), np.arange(5.0))  # two releases of six
    assert [agents.snapshot_chunk(chunk)["counter_draws"].shape for chunk in (0, 1)] == [
        (CHUNK, 2),
        (1, 2),
    ]


def test_only_changed_chunks_are_dirty() -> None:
    agents = fill(configured(), 3 * CHUNK)
    agents.mark_clean()
    agents.update(np.array([CHUNK + 3, CHUNK + 3]), np.zeros(2), np.zeros(2))
    assert agents.dirty_chunks() == [1]


def test_every_releases_once_per_window_with_new_samples() -> None:
    agents = fill(configured("every:10s", horizon=3), 2)
    time = np.array([1.0, 2.0, 11.0, 25.0, 47.0, 58.0])
    batches = [agents.update(np.array([0, 1, 0, 0, 0, 0]), np.ones(6), time), agents.advance(70.0)]
    released = [(r[0], r[1], r[2], r[5]) for r in rows(batches)]
    assert released == [(0, 1, 1, 10.0), (0, 2, 2, 20.0), (0, 3, 3, 30.0), (1, 1, 1, 10.0)]


def test_releases_stop_at_the_horizon_and_say_so_once() -> None:
    agents = fill(configured(horizon=3), 1)
    first = agents.update(np.zeros(40, np.int64), np.zeros(40), np.arange(40.0))
    assert first.releases.index.tolist() == [1, 2, 3]
    assert first.exhausted.tolist() == [0]
    second = agents.update(np.zeros(1000, np.int64), np.zeros(1000), np.arange(40.0, 1040.0))
    assert len(second.releases) == 0
    assert len(second.exhausted) == 0
    assert agents.spent().tolist() == [3]


def test_release_now_takes_one_release_of_everybody_with_new_samples() -> None:
    agents = fill(configured("geometric:4,2", horizon=3), 3)
    agent = np.array([0] * 5 + [1] * 2)
    agents.update(agent, np.ones(7), np.arange(7.0))
    now = agents.release_now(10.0)
    assert rows([now]) == [
        (0, 2, 5, *rows([now])[0][3:5], 10.0),
        (1, 1, 2, *rows([now])[1][3:5], 10.0),
    ]
    assert len(agents.release_now(11.0).releases) == 0
    # Agent 1 has had the first release of its schedule: the next is due after 8 samples, its
    # second.
    later = agents.update(np.ones(10, np.int64), np.ones(10), np.arange(12.0, 22.0))
    assert [(r[1], r[2]) for r in rows([later])] == [(2, 8)]


def test_own_means_and_deviations_are_those_of_numpy() -> None:
    agents = fill(configured(lower=-2.0, upper=4.0), 4)
    agent, value, time = stream(5000, 3)
    for i in range(0, 5000, 700):
        agents.update(agent[i : i + 700], value[i : i + 700], time[i : i + 700])
    own = agents.own()
    assert own.count[3] == 0
    assert np.isnan(own.mean[3])
    step = agents.settings.grid.resolution
    for a in range(3):
        mine = value[agent == a]
        assert own.mean[a] == pytest.approx(mine.mean(), abs=step)
        assert own.squared_deviations[a] == pytest.approx(
            ((mine - mine.mean()) ** 2).sum(), rel=1e-5
        )


def test_a_published_mean_is_the_noised_integer_on_the_grid() -> None:
    agents = fill(configured(noise="gaussian"), 1)
    release = agents.update(np.zeros(3, np.int64), np.ones(3), np.arange(3.0)).releases
    grid = agents.settings.grid
    assert release.mean[0] == grid.mean(release.total, release.count)[0]
    # One analytic Gaussian release over 4 units at (1, 1e-6), times the column norm of the counter.
    expected = 4.2247 * 4 * agents.settings.mechanism.l2_sensitivity / 3
    assert np.sqrt(release.noise_variance[0]) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": -1.0}, "epsilon must be positive"),
        ({"delta": 1.0}, r"delta must lie in \[0, 1\)"),
        ({"lower": 3.0}, "lower must be below upper"),
        ({"mode": "fast"}, "mode must be 'tuned' or 'paper'"),
        ({"epsilon": 2.0, "calibration": "classical"}, "epsilon must"),
        ({"counter": "toeplitz", "noise": "laplace"}, "noise must"),
        ({"schedule": "hourly"}, "schedule must"),
    ],
)
def test_a_bad_setting_is_refused_at_once(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configured(**change)


def test_who_was_seen_since_a_time() -> None:
    agents = fill(configured(), 3)
    agents.update(np.array([0, 1, 0]), np.zeros(3), np.array([1.0, 2.0, 5.0]))
    assert agents.seen_since(-1e18).tolist() == [0, 1]
    assert agents.seen_since(5.0).tolist() == [0]


def test_a_snapshot_of_another_version_is_refused() -> None:
    agents = fill(configured(), 3)
    state = agents.snapshot_chunk(0)
    with pytest.raises(ValueError, match="snapshot version must be 5, got 4"):
        fill(configured(), 3).restore_chunk(0, state | {"version": np.array(4)})


@pytest.mark.parametrize("schedule", ["geometric:3,1.5", "preferred:5"])
@pytest.mark.parametrize("changes", [{}, {"noise": "laplace"}, {"spread_share": 0.1}])
def test_the_order_of_samples_of_one_event_time_changes_no_release(
    schedule: str, changes: dict[str, object]
) -> None:
    """A file that is sorted by value within its days gives the releases of any other order."""
    agent, value, time = stream(400, 7)
    time = np.floor(time / 100)
    options = configured(schedule, **changes)

    def released(among_a_time: np.ndarray) -> list[tuple[int, ...]]:
        order = np.lexsort((among_a_time, time))
        return rows([fill(options, 7).update(agent[order], value[order], time[order])])

    by_value = released(value)
    assert len(by_value) > 14
    assert by_value == released(-value)
    assert by_value == released(np.random.default_rng(5).random(len(value)))


def test_a_release_waits_for_the_end_of_its_time_and_the_next_one_for_a_later_number() -> None:
    agents = fill(configured("preferred:5"), 2)
    times = np.array([0.0, *[1.0] * 11, *range(2, 20)])
    batch = agents.update(np.zeros(len(times), np.int64), np.ones(len(times)), times)

    # Numbers 5, 7 and 10 of the schedule lie within the twelve samples of times 0 and 1.
    assert batch.releases.count.tolist() == [12, 15, 20, 30]
    assert batch.releases.index.tolist() == [1, 2, 3, 4]
    assert batch.time.tolist() == [1.0, 4.0, 9.0, 19.0]
