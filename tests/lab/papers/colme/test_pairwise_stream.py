"""Algorithm 1 on a stream learns what the simulator learns, and what each agent receives is what it
was charged for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanstream.lab.papers.colme.pairwise_agents import PairwiseAgents, PairwiseSettings
from meanstream.lab.papers.colme.pairwise_partners import Everyone
from meanstream.lab.papers.colme.pairwise_stream import PairwiseStream
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds, keyed_owner_words

NAMES = [f"agent {number}" for number in range(7)]
STEPS = 60
RELEASE = {
    "lower": -2,
    "upper": 6,
    "epsilon": 1,
    "delta": 1e-6,
    "mode": "paper",
    "counter": "pm1",
    "horizon": 100,
}


def settings_of(**changes: Any) -> PairwiseStreamSettings:
    release = {
        name: changes.pop(name)
        for name in ("counter", "mode", "noise", "horizon", "epsilon")
        if name in changes
    }
    return PairwiseStreamSettings(
        release=AgentsSettings(**{**RELEASE, "spread_share": 0.0, **release}), **changes
    )


def keyed() -> KeyedNoise:
    return KeyedNoise(b"0d409462e4304f9f66770dc046be10c9", deployment="test", purpose="agents")


def values_of(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(np.arange(len(NAMES)) % 2, -1.5, 5.0) + rng.normal(0, 0.2, (STEPS, len(NAMES)))


def samples_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    steps, agents = values.shape
    return (
        np.tile(np.arange(agents), steps),
        values.ravel(),
        np.repeat(np.arange(steps, dtype=float), agents),
    )


def run_stream(
    settings: PairwiseStreamSettings, cuts: tuple[int, ...] = (), capacity: int = 9
) -> PairwiseStream:
    stream = PairwiseStream(settings, keyed(), capacity=capacity)
    agent, value, time = samples_of(values_of())
    for part in np.split(np.arange(len(agent)), [cut * len(NAMES) for cut in cuts]):
        stream.take(agent[part], value[part], time[part], NAMES)
    return stream


CASES: list[dict[str, Any]] = [
    {"stddev": 0.5},
    {"stddev": 0.5, "counter": "pm2", "weights": "windowed"},
    {"stddev": 0.5, "weights": "mean_of_means", "schedule": "restricted_round_robin"},
    {"stddev": 0.5, "noise": "laplace", "schedule": "restricted_round_robin"},
    {},
    {"mode": "tuned"},
    {"variance": "bayesian"},
    {"variance": "jeffreys", "schedule": "restricted_round_robin"},
    {"variance": "uniform"},
    {"variance": "released", "epsilon": 40},
    {"variance": "released", "epsilon": 40, "counter": "pm2", "schedule": "restricted_round_robin"},
]


def simulated(settings: PairwiseStreamSettings) -> PairwiseAgents:
    """Run the simulator, one step at a time, on the same samples with the same keyed draws."""
    release, n = settings.release, len(NAMES)
    grid, known = release.grid, None
    if settings.stddev is not None:
        known = np.full((1, n), (settings.stddev / grid.resolution) ** 2)
    agents = PairwiseAgents(
        PairwiseSettings(
            agents=n, runs=1, counter=release.mechanism, fresh_variance=settings.means.fresh.variance,
            schedule=settings.schedule, weights=settings.weights, variance=settings.variance,
            corrected=release.mode == "tuned", half_width=grid.span / 2, whole=True,
        ),
        sample_variance=known,
    )  # fmt: skip
    key = keyed().derived("pairwise stream", settings.key())
    totals, made = np.zeros(n, np.int64), np.zeros((n, n), np.int64)
    for step, values in enumerate(values_of()):
        points = grid.encode(values)
        totals += points
        asked = agents._schedule.ask(
            step + 1, agents._state["pair"]["accepted"],
            {name: one.copy() for name, one in agents._state["schedule"].items()},
        )  # fmt: skip
        reader, target = np.arange(n)[asked.asker], asked.target
        made[target, reader] += 1
        words = keyed_owner_words(
            [f"{NAMES[t]}\x1f{NAMES[r]}" for t, r in zip(target, reader, strict=True)]
        )
        version = key.version_of(np.full(len(target), step + 1), totals[target])
        ids = NoiseIds(words, made[target, reader], version)
        fresh, squares = np.zeros((1, n)), np.zeros((1, n))
        fresh[0, reader] = settings.means.fresh.sample(key.bits(ids))
        if settings.squares_noise is not None:
            squares[0, reader] = settings.squares_noise.sample(key.bits(ids, 1)) * settings.shift**2
        more = () if settings.squares_noise is None else (squares,)
        agents.step((points - grid.span // 2)[None].astype(float), fresh, *more)
    return agents


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_stream_learns_what_the_simulator_learns(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper's rounds begin at the first agent, so they are asked for here in every mode."""
    monkeypatch.setattr(PairwiseStreamSettings, "literal", True)
    settings = settings_of(**case)
    stream, oracle = run_stream(settings, cuts=(1, 20)), simulated(settings)
    (expected,), (variance,) = oracle.estimate()
    grid = settings.release.grid
    found, alone = stream.estimate(np.arange(len(NAMES)))
    assert oracle.time == STEPS
    center = np.clip(
        grid.lower + (expected + grid.span // 2) * grid.resolution, grid.lower, grid.upper
    )
    # A released variance is of whole numbers on a coarser grid; everything else is the same
    # numbers.
    rough = settings.variance == "released"
    np.testing.assert_allclose(found.value, center, rtol=1e-4 if rough else 1e-12)
    expected_size = oracle.own_variance[0] / variance
    np.testing.assert_allclose(
        found.effective_class_size, expected_size, rtol=1e-3 if rough else 1e-9
    )
    assert (found.effective_class_size > 1).any()
    assert (alone.effective_class_size == 1).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_size_of_batches_and_a_restart_change_nothing(case: dict[str, Any]) -> None:
    settings = settings_of(**case)
    whole = run_stream(settings).estimate(np.arange(len(NAMES)))[0]
    agent, value, time = samples_of(values_of())
    stream, saved = PairwiseStream(settings, keyed(), capacity=9), {}
    for part in np.split(np.arange(len(agent)), [7, 21, 140, 147, 301]):
        stream.take(agent[part], value[part], time[part], NAMES)
        saved |= {
            (kind, chunk): {n: a.copy() for n, a in columns.items()}
            for kind, chunk, columns in stream.changes()
        }
        stream = PairwiseStream(settings, keyed(), capacity=12)  # another capacity, another layout
        for (kind, chunk), columns in saved.items():
            stream.restore(kind, chunk, columns)
        stream.restored(NAMES)
    again = stream.estimate(np.arange(len(NAMES)))[0]
    np.testing.assert_array_equal(again.value, whole.value)
    np.testing.assert_array_equal(again.class_size, whole.class_size)


def test_agents_that_come_late_and_agents_that_fall_silent() -> None:
    """Nobody waits for anyone: the rest goes on, and the newcomer is queried and queries."""
    settings = settings_of(stddev=0.5)
    stream = PairwiseStream(settings, keyed(), capacity=9)
    values, n = values_of(), len(NAMES)
    made = []
    for step in range(STEPS):
        here = np.array(
            [a for a in range(n) if not (a == 6 and step < 30) and not (a == 0 and step >= 10)]
        )
        made.append(stream.take(here, values[step, here], np.full(len(here), float(step)), NAMES))
    early = np.concatenate([one.agent for one in made[:30]])
    late = np.concatenate([one.reader for one in made[30:]])
    assert 6 not in early
    assert (
        late == 6
    ).sum() == 30 - 4  # agents 1 to 5 answer; agent 0 has nothing new after its first answer
    asked = [int((one.agent == 0).sum()) for one in made]
    assert not any(asked[16:30])  # each of the other five asked once more, and then had all of it
    assert stream.estimate(np.array([6]))[0].effective_class_size[0] > 1
    assert stream.counts().tolist() == [10, 60, 60, 60, 60, 60, 30]


def test_members_are_those_whose_release_passes_the_test() -> None:
    stream = run_stream(settings_of(stddev=0.2, epsilon=30))
    for agent, name in enumerate(NAMES):
        own = {other for other in NAMES[agent % 2 :: 2] if other != name}
        assert set(stream.members(agent)) == own
    assert stream.estimate(np.arange(len(NAMES)))[0].class_size.tolist() == [4, 3, 4, 3, 4, 3, 4]


def test_who_has_no_usable_variance_counts_for_nothing_and_is_no_member() -> None:
    """The paper's class has all seven here: each test accepts an infinite variance, with weight 0."""
    agent, value, time = samples_of(values_of()[:6])
    unknown = PairwiseStream(settings_of(), keyed(), capacity=9)
    known = PairwiseStream(settings_of(stddev=0.5), keyed(), capacity=9)
    for stream in (unknown, known):
        stream.take(agent, value, time, NAMES)

    # Six steps are one release of each pair, and equation (16) needs two.
    together, alone = unknown.estimate(np.arange(7))
    assert all(unknown.members(number) == [] for number in range(7))
    assert together.class_size.tolist() == [1.0] * 7
    np.testing.assert_allclose(together.value, alone.value, rtol=1e-12)
    assert any(known.members(number) for number in range(7))


def test_a_graph_of_all_others_is_everyone_and_a_smaller_one_stays_inside() -> None:
    everyone = {name: [other for other in NAMES if other != name] for name in NAMES}
    agents = np.arange(len(NAMES))
    for schedule in ("round_robin", "restricted_round_robin"):
        plain = run_stream(settings_of(schedule=schedule, stddev=0.5)).estimate(agents)[0]
        graph = run_stream(settings_of(schedule=schedule, stddev=0.5, partners=everyone)).estimate(
            agents
        )[0]
        np.testing.assert_allclose(graph.value, plain.value, rtol=1e-12)
        np.testing.assert_array_equal(graph.class_size, plain.class_size)
    ring = {name: [NAMES[(place + 2) % 7]] for place, name in enumerate(NAMES[:-1])}
    stream = run_stream(settings_of(stddev=0.5, partners=ring))
    assert stream.members(0) == [NAMES[2]]
    assert stream.members(6) == []  # no partners: it learns alone
    assert stream.estimate(agents)[0].class_size.max() == 2


def test_each_pair_stops_at_its_horizon_and_own_means_go_on() -> None:
    stream = PairwiseStream(settings_of(stddev=0.5, horizon=2), keyed(), capacity=9)
    made = stream.take(*samples_of(values_of()), NAMES)
    assert len(made) == 2 * 7 * 6
    assert made.index.max() == 2
    assert np.bincount(made.agent).tolist() == [12] * 7
    assert sorted(made.charge[made.agent == 3].tolist()) == list(range(1, 13))
    assert stream.counts().tolist() == [STEPS] * 7


def test_a_capacity_that_memory_does_not_hold_is_refused() -> None:
    settings = settings_of()
    rule = rf"max_agents must be at most {settings.most_agents} with schedule round_robin, or come with partners"
    with pytest.raises(ValueError, match=rule):
        PairwiseStream(settings, keyed(), capacity=(settings.most_agents or 0) + 1)
    assert Everyone(5).blocks(np.array([0, 24])).tolist() == [0, 4 << 16]
    with pytest.raises(ValueError, match="name no agent as its own partner"):
        PairwiseStream(settings_of(partners={"a": ["a"]}), keyed(), capacity=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variance": "known"}, "variance must be known with stddev, and only then, got 'known'"),
        ({"variance": "bayesian", "stddev": 1}, "variance must be known with stddev"),
        ({"weights": "gls"}, "weights must be one of last, mean_of_means, windowed"),
        (
            {"schedule": "preferred:10"},
            "schedule must be one of round_robin, restricted_round_robin",
        ),
        ({"counter": "optimal", "mode": "tuned"}, "counter must be pm1, pm2 or toeplitz"),
        ({"partners": {}}, "partners must have 1 to"),
    ],
)
def test_settings_that_no_pair_can_have_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of(**changes)


@pytest.mark.parametrize("mode", ["tuned", "paper"])
def test_a_round_begins_behind_its_agent_so_that_all_are_queried_alike(mode: str) -> None:
    """Of 300 agents with 20 samples each, today's first numbers were queried by everyone."""
    n, steps = 300, 20
    stream = PairwiseStream(settings_of(stddev=0.5, mode=mode), keyed(), capacity=n)
    values = np.random.default_rng(1).normal(0, 0.2, (steps, n))
    made = stream.take(*samples_of(values), [f"agent {number}" for number in range(n)])
    queried = np.bincount(made.agent, minlength=n)
    if mode == "paper":
        assert np.count_nonzero(queried) == steps + 1
    else:
        assert queried.tolist() == [steps] * n
    assert stream.samples_per_partner() == pytest.approx(steps / (n - 1))


def covered(settings: PairwiseStreamSettings, means: np.ndarray, looks: tuple[int, ...]) -> Any:
    """Run agents with these means, and samples of deviation .15; give at each look which intervals
    cover, and their length over that of alone."""
    rng, n = np.random.default_rng(5), len(means)
    stream = PairwiseStream(settings, keyed(), capacity=n)
    names, before = [f"agent {number}" for number in range(n)], 0
    for look in looks:
        shape = (look - before, n)
        values = np.clip(means + 0.15 * 3**0.5 * rng.uniform(-1, 1, shape), 0, 1)
        agent, value, time = samples_of(values)
        stream.take(agent, value, time + before, names)
        before = look
        answer, alone = stream.estimate(np.arange(n))
        inside = (answer.lower <= means) & (means <= answer.upper)
        yield inside.mean(), np.median((answer.upper - answer.lower) / (alone.upper - alone.lower))


MEANS = {
    "no classes": np.clip(0.5 + 0.05 * np.random.default_rng(1).standard_normal(60), 0.2, 0.8),
    "three classes": np.array([0.3, 0.4, 0.7])[np.arange(60) % 3],
    "one class": np.full(60, 0.4),
}


@pytest.mark.parametrize("world", MEANS)
def test_intervals_hold_whether_there_are_classes_or_not(world: str) -> None:
    """Those that are printed cover .22 to .8 until classes are found.

    Of 60 agents .85 lie within 3.6 standard errors of .95; their answers share noise.
    """
    release = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, counter="pm1",
                             spread_share=0.0, horizon=10**6)  # fmt: skip
    looks = (50, 200, 500, 1000)
    settings = PairwiseStreamSettings(release=release, stddev=0.15)
    found = list(covered(settings, MEANS[world], looks))
    assert min(cover for cover, _ in found) >= 0.85
    assert found[0][1] >= 1.0  # less than one release of each pair: tests have no power
    assert found[-1][1] < (1.3 if world == "no classes" else 1.05)


def test_the_literal_interval_holds_given_the_class_only() -> None:
    release = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, counter="pm1",
                             spread_share=0.0, horizon=10**6, mode="paper")  # fmt: skip
    settings = PairwiseStreamSettings(release=release, stddev=0.15)
    (cover, length), *_ = covered(settings, MEANS["no classes"], (200,))
    assert cover < 0.6
    assert length < 0.8
