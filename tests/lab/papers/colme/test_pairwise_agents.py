"""PairwiseAgents: snapshots, refusals, schedules, and what a run shares with another."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.lab.papers.bounds.agents_forecast import forecast_agents_table
from meanstream.lab.papers.colme.pairwise_agents import (
    PairwiseAgents,
    PairwiseSettings,
    schedule_same_class,
)
from meanstream.lab.papers.colme.pairwise_settings import RestrictedRoundRobin, RoundRobin
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.lab.simulation.simulated_pairwise import simulate_pairwise
from meanstream.operators.counters.registry import HorizonReached, make_counter

AGENTS, RUNS, STEPS = 5, 3, 40


def make(**choices: object) -> PairwiseAgents:
    counter = make_counter(str(choices.pop("counter", "pm1")), horizon=STEPS)
    settings = PairwiseSettings(
        agents=AGENTS, runs=RUNS, counter=counter, fresh_variance=2.0, **choices
    )  # type: ignore[arg-type]
    known = settings.variance == "known"
    classes = (
        schedule_same_class(np.tile(np.arange(AGENTS) % 2, (RUNS, 1)))
        if settings.test == "oracle"
        else None
    )
    return PairwiseAgents(
        settings, sample_variance=np.full((RUNS, AGENTS), 0.5) if known else None, classes=classes
    )


def inputs(agents: PairwiseAgents, seed: int = 4) -> list[tuple[np.ndarray, ...]]:
    generator = np.random.default_rng(seed)
    arrays = 3 if agents.settings.variance == "released" else 2
    return [tuple(generator.standard_normal((arrays, RUNS, AGENTS))) for _ in range(STEPS)]


CHOICES = [
    {},
    {
        "counter": "pm2",
        "weights": "windowed",
        "schedule": "restricted_round_robin",
        "test": "eager",
    },
    {"counter": "toeplitz", "weights": "gls"},
    {"counter": "toeplitz", "weights": "mean_of_means", "schedule": "restricted_round_robin"},
    {"counter": "pm2", "variance": "released", "test": "eager"},
    {"variance": "bayesian"},
    {"variance": "jeffreys"},
    {"variance": "from_releases", "corrected": True, "test": "oracle"},
]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
@pytest.mark.parametrize("cut", [1, 17])
def test_a_restored_snapshot_continues_as_if_uncut(choices: dict[str, object], cut: int) -> None:
    uncut, before, after = make(**choices), make(**choices), make(**choices)
    steps = inputs(uncut)
    for step in steps[:cut]:
        uncut.step(*step)
        before.step(*step)
    after.restore(before.snapshot())
    for step in steps[cut:]:
        uncut.step(*step)
        after.step(*step)
    for expected, actual in zip(uncut.estimate(), after.estimate(), strict=True):
        np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(after.accepted, uncut.accepted)


@pytest.mark.parametrize("choices", CHOICES, ids=str)
@pytest.mark.parametrize("pairs", [RUNS * AGENTS, 2 * RUNS * AGENTS, 1 << 20])
def test_steps_taken_together_are_the_steps_one_by_one(
    choices: dict[str, object], pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits of sums, noise and statistics, whether a round is taken whole, by halves or by
    steps."""
    monkeypatch.setattr("meanstream.lab.papers.colme.pairwise_agents.PAIRS_AT_ONCE", pairs)
    single, together = make(**choices), make(**choices)
    for step in inputs(single):
        single.step(*step)
    arrays = [np.stack(one) for one in zip(*inputs(together), strict=True)]
    together.steps(*(one[:7] for one in arrays))
    together.steps(*(one[7:] for one in arrays))
    for expected, actual in zip(single.estimate(), together.estimate(), strict=True):
        np.testing.assert_array_equal(actual, expected)
    one_by_one, at_once = single.snapshot(), together.snapshot()
    assert one_by_one.keys() == at_once.keys()
    for name, expected in one_by_one.items():
        np.testing.assert_array_equal(at_once[name], expected, err_msg=name)


def test_a_snapshot_is_plain_data_and_a_copy() -> None:
    agents = make()
    steps = inputs(agents)
    agents.step(*steps[0])
    snapshot = agents.snapshot()
    kept = {name: np.copy(value) for name, value in snapshot.items()}
    agents.step(*steps[1])
    assert all(isinstance(value, int | np.ndarray) for value in snapshot.values())
    for name, value in snapshot.items():
        np.testing.assert_array_equal(value, kept[name])


def test_foreign_snapshots_are_refused() -> None:
    agents = make()
    with pytest.raises(ValueError, match="version must be 2"):
        agents.restore({"version": 1})
    with pytest.raises(ValueError, match="must have shape"):
        agents.restore(agents.snapshot() | {"own.total": np.zeros(3)})


def test_runs_do_not_touch_each_other() -> None:
    agents = make()
    settings = PairwiseSettings(
        agents=AGENTS, runs=1, counter=make_counter("pm1", horizon=STEPS), fresh_variance=2.0
    )
    alone = PairwiseAgents(settings, sample_variance=np.full((1, AGENTS), 0.5))
    for values, fresh in inputs(agents):
        agents.step(values, fresh)
        alone.step(values[1:2], fresh[1:2])
    np.testing.assert_allclose(alone.estimate()[0][0], agents.estimate()[0][1], rtol=1e-12)


def test_past_the_horizon_nothing_is_released() -> None:
    settings = PairwiseSettings(
        agents=2, runs=1, counter=make_counter("pm2", horizon=3), fresh_variance=1.0
    )
    agents = PairwiseAgents(settings, sample_variance=np.ones((1, 2)))
    for _ in range(3):
        agents.step(np.zeros((1, 2)), np.zeros((1, 2)))
    with pytest.raises(HorizonReached, match="pm2: release 4 is past the horizon of 3"):
        agents.step(np.zeros((1, 2)), np.zeros((1, 2)))


def test_round_robin_asks_everybody_in_order() -> None:
    schedule = RoundRobin(4, 1)
    nobody = np.zeros(12, dtype=np.bool_)
    asked = [schedule.ask(t, nobody, {}).target.tolist() for t in range(1, 5)]
    assert asked == [[1, 0, 0, 0], [2, 2, 1, 1], [3, 3, 3, 2], [1, 0, 0, 0]]


def test_restricted_round_robin_skips_and_an_agent_alone_asks_nobody() -> None:
    schedule = RestrictedRoundRobin(3, 1)
    accepted = np.array(
        [[True, False, False], [True, True, False]]
    ).ravel()  # agent 0: both; 1: only 2; 2: nobody
    state = schedule.init()
    asked = [schedule.ask(t, accepted, state) for t in (1, 2, 3)]
    assert [a.asker.tolist() for a in asked] == [[0, 1]] * 3  # type: ignore[union-attr]
    assert [a.target.tolist() for a in asked] == [[1, 2], [2, 2], [1, 2]]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"schedule": "broadcast"},
            "schedule must be one of round_robin, restricted_round_robin, got 'broadcast'",
        ),
        ({"test": "never"}, "test must be lazy, eager or oracle"),
        ({"variance": "guessed"}, "variance must be one of"),
        (
            {"weights": "gls", "schedule": "restricted_round_robin"},
            "weights must not be gls unless",
        ),
        ({"counter": "toeplitz", "variance": "from_releases"}, "counter must be pm1 or pm2"),
        ({"counter": "toeplitz", "variance": "bayesian"}, "counter must be pm1 or pm2"),
        ({"design_variance": 0.0}, "design_variance must be positive"),
    ],
    ids=str,
)
def test_refusals(choices: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**choices)


def test_variance_noise_comes_exactly_with_released_variances() -> None:
    zero = np.zeros((RUNS, AGENTS))
    with pytest.raises(ValueError, match="variance_fresh must be given if variance is released"):
        make().step(zero, zero, zero)
    with pytest.raises(ValueError, match="variance_fresh must be given if variance is released"):
        make(variance="released").step(zero, zero)


def test_few_partners_with_known_classes_err_as_a_round_robin_over_so_many() -> None:
    """Proposition 3 over ten others; four standard errors (false alarm below 1e-4 for each of two)."""
    options = {"agents": 60, "partners": 10, "steps": 400, "checkpoints": (100, 400), "runs": 30}
    result = simulate_pairwise(
        SimulationConfig.from_options(mode="paper", test="oracle", **options)
    )
    ten = forecast_agents_table(
        agents=11,
        checkpoints=[100, 400],
        classes=3,
        stddev=0.5,
        half_width=0.75**0.5,
        epsilon=1.0,
        delta=1e-6,
    )
    assert (np.abs(np.array(result.mse) - ten["oracle"]) < 4 * np.array(result.stderr)).all()


def test_a_lost_answer_leaves_what_was_there_and_the_next_one_is_as_if_none_was_lost() -> None:
    def agents() -> PairwiseAgents:
        settings = PairwiseSettings(
            agents=3, runs=1, counter=make_counter("pm1", horizon=9), fresh_variance=1.0
        )
        return PairwiseAgents(settings, sample_variance=np.ones((1, 3)))

    rng = np.random.default_rng(5)
    values = rng.normal(size=(6, 1, 3))
    fresh = rng.normal(size=(6, 1, 3))
    whole, part = agents(), agents()
    whole.steps(values[:2], fresh[:2])
    part.steps(values[:2], fresh[:2])

    # Of the second round, every answer to agent 1 is lost.
    lost = np.zeros((4, 1, 3), dtype=bool)
    lost[:2, 0, 1] = True
    before = part.snapshot()
    whole.steps(values[2:4], fresh[2:4])
    part.steps(values[2:4], fresh[2:4], lost=lost[:2])
    for name in ("pair.value", "pair.precision"):
        rows = [np.asarray(one.snapshot()[name]).reshape(2, 3) for one in (whole, part)]
        assert (rows[1][:, 1] == np.asarray(before[name]).reshape(2, 3)[:, 1]).all()
        assert (rows[0][:, [0, 2]] == rows[1][:, [0, 2]]).all()

    whole.steps(values[4:], fresh[4:])
    part.steps(values[4:], fresh[4:], lost=lost[2:])
    assert part.estimate()[0].tolist() == whole.estimate()[0].tolist()


def test_lost_answers_are_for_the_newest_release_of_a_known_variance() -> None:
    settings = PairwiseSettings(
        agents=2,
        runs=1,
        counter=make_counter("pm1", horizon=2),
        fresh_variance=1.0,
        weights="mean_of_means",
    )
    agents = PairwiseAgents(settings, sample_variance=np.ones((1, 2)))
    nothing = np.zeros((1, 1, 2))
    with pytest.raises(ValueError, match="lost must be left out unless variance is known"):
        agents.steps(nothing, nothing, lost=nothing > 0)
