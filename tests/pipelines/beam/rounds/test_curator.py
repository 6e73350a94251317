"""A trusted curator and vectors on Beam: the engine's bytes; noise once per release, after adding
up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.rounds.central_rounds import ReleaseWords
from meanstream.operators.rounds.round_records import Tally
from meanstream.pipelines.beam.rounds.answer_rounds import AnswerOnce
from meanstream.pipelines.beam.rounds.round_transforms import RunRounds, sample_batch
from meanstream.pipelines.beam.rounds.rounds_elements import UserBatch
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.open_source import open_source
from meanstream.streaming.rounds.summarize_users import summarize
from meanstream.streaming.rounds.window_widths import Window
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.support.collecting import lines, run
from tests.pipelines.beam.support.keyed_cells import cells, take
from tests.streaming.rounds.test_rounds_vectors import vector_settings, vectors, write
from tests.streaming.support.rounds_world import RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource

CURATORS: dict[str, dict[str, Any]] = {
    "ratio": {"estimator": "cummings.ratio"},
    "sizes public": {"estimator": "cummings.known_sizes", "users": 60},
    "tested": {"estimator": "cummings.private_sizes"},
    "ideal, sliding": {"estimator": "cummings.ideal", "window": "2d,1d", "user_budget": 10.0},
    "sessions": {"estimator": "cummings.ratio", "window": "session:20m"},
    "budget": {"estimator": "cummings.ratio", "user_budget": 4.0},
    "one budget": {"estimator": "central.mean", "user_windows": 3, "user_delta": 0.01},
}


def stream() -> list[tuple[str, float, float]]:
    return samples(700, users=60)


@pytest.mark.parametrize("case", CURATORS)
def test_a_curators_answers_have_the_bytes_of_the_engine(case: str, tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path, rounds_settings(**CURATORS[case]))
    world.run(ScriptedSource(stream()))
    shuffled = [stream()[place] for place in np.random.default_rng(7).permutation(700)]
    estimates, counters = run(shuffled, RunRounds(world.settings, shards=3))
    assert len(estimates) >= 3
    assert lines(estimates) == world.lines("means")
    assert counters.get("refusals", 0) == 0
    assert (counters.get("over_budget", 0) > 0) == ("budget" in case)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"estimator": "kent.l2", "users": 40},
        {"estimator": "kent.sparse_threshold", "options": {"sparsity": 2}},
    ],
)
def test_answers_about_vectors_have_the_bytes_of_the_engine(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    rows = vectors()
    world = RoundsWorld(tmp_path / "engine", vector_settings(epsilon=6.0, **changes))
    path = write(tmp_path, "csv", rows)
    world.run(open_source(str(path), ColumnMapping(agent="who", values=("x", "y", "z"), time="t")))
    user, value, time = zip(*rows, strict=True)
    cuts = [slice(0, 100), slice(100, 101), slice(101, None)]
    batches = [sample_batch(user[cut], value[cut], time[cut]) for cut in cuts]
    estimates, _ = run(batches, RunRounds(world.settings, shards=3))
    assert lines(estimates) == world.lines("means")
    one_by_one, _ = run(rows, RunRounds(world.settings, shards=1))
    assert lines(one_by_one) == world.lines("means")


@pytest.mark.parametrize(
    "changes",
    [
        {"estimator": "kent.density", "options": {"terms": 4}},
        {"estimator": "kent.mixture", "options": {"components": 2, "half_width": 0.1}},
    ],
)
def test_a_density_and_a_mixture_too(changes: dict[str, Any], tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path, rounds_settings(epsilon=4.0, sizes="point:2", **changes))
    world.run(ScriptedSource(stream()))
    estimates, _ = run(stream(), RunRounds(world.settings, shards=2))
    assert lines(estimates) == world.lines("means")
    assert all(
        json.loads(line).get("function") or json.loads(line).get("components")
        for line in lines(estimates)
    )


def test_noise_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One draw per round and release, whatever the shards."""
    drawn: list[tuple[str, int]] = []
    original = ReleaseWords.__init__

    def counted(self: ReleaseWords, noise: Any, round_id: str, stage: int, tally: Tally) -> None:
        drawn.append((round_id, stage))
        original(self, noise, round_id, stage, tally)

    monkeypatch.setattr(ReleaseWords, "__init__", counted)
    estimates, _ = run(stream(), RunRounds(rounds_settings(estimator="cummings.ratio"), shards=4))
    assert len(estimates) == 4
    assert len(drawn) == len(set(drawn)) == 4 * 5


def users_of(n: int) -> UserBatch:
    """Some users of a window, who are told apart by their number."""
    names = [f"user {n} {i}" for i in range(n)]
    grid = rounds_settings(estimator="cummings.ratio", users=60).grid
    return UserBatch(
        window=Window(0, 86_400_000_000),
        names=pa.array(names, pa.large_string()),
        words=keyed_owner_words(names),
        sums=summarize(np.arange(n), np.full(n, 3.0), np.zeros(n), grid),
    )


def test_a_release_is_made_once_and_other_sums_under_its_name_are_refused() -> None:
    """A retried bundle, whose state was not committed, releases the same; a second look is refused."""
    step = AnswerOnce(rounds_settings(estimator="cummings.ratio", users=60), SecretLocation())
    step.setup()
    kept = cells(AnswerOnce)
    (first,) = take(step, users_of(5), kept)
    assert take(step, users_of(5), kept) == []
    assert take(step, users_of(6), kept) == []
    (again,) = take(step, users_of(5), cells(AnswerOnce))
    assert again == first
    assert len(kept["released"].value) == 64  # a digest
