"""The engine and Beam are given the same samples, secret and settings: the answers are the same
bytes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from meanstream.pipelines.beam.beam_runners import runner_arguments
from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.rounds.round_transforms import RunRounds, sample_batch
from meanstream.pipelines.beam.rounds.rounds_from_files import run_rounds_file
from meanstream.pipelines.beam.worker import beam_metrics as metrics
from meanstream.pipelines.beam.worker.beam_metrics import PRIVATE_NAMESPACE, metric_counters
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.store.secret_source import key_derived_from_secret
from tests.pipelines.beam.support.collecting import lines, run
from tests.pipelines.beam.support.prism import on_prism
from tests.streaming.support.rounds_world import DAY, SECRET, RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource

CASES = {
    "two stages": {},
    "users declared": {"users": 12},
    "one stage": {"estimator": "one_shot"},
    "dame": {"estimator": "dame", "sizes": "uniform:1,30"},
    "sliding": {"window": "2d,1d", "user_budget": 6.0},
    "sessions": {"window": "session:2h"},
    "budget": {"user_budget": 4.0, "estimator": "one_shot"},
    "sliding budget": {"window": "2d,1d", "user_budget": 5.0},
    "calendar": {
        "window": "day@Asia/Kathmandu",
        "estimator": "one_shot",
        "allowed_lateness": 7200.5,
    },
    "quantiles": {"estimator": "quantile_tree", "quantiles": (0.1, 0.5)},
    "searched quantiles": {"estimator": "quantile_search", "quantiles": (0.1, 0.5)},
    "lateness": {"allowed_lateness": 7200.5, "estimator": "one_shot"},
}


@pytest.mark.parametrize("case", CASES)
def test_every_window_has_the_bytes_of_the_engine(case: str, tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path, rounds_settings(**CASES[case]))
    stream = samples(n=160)
    world.run(ScriptedSource(stream))
    shuffled = [stream[place] for place in np.random.default_rng(7).permutation(len(stream))]
    estimates, counters = run(shuffled, RunRounds(world.settings))
    assert len(estimates) > 3
    assert lines(estimates) == world.lines("means")
    assert counters["samples"] == len(stream)
    if "budget" in case:
        refused = world.events("notices")
        assert counters["over_budget"] == sum("remaining" in event for event in refused) > 0


def repeating(days: int = 6, users: int = 1500) -> list[tuple[str, float, float]]:
    rng = np.random.default_rng(8)
    values = rng.normal(4.0, 0.4, (days, users)).clip(0.0, 10.0)
    return [
        (f"user {u}", float(values[d, u]), d * DAY + 40.0 * u)
        for d in range(days)
        for u in range(users)
    ]


@pytest.mark.parametrize("more", [{}, {"user_budget": 8.0}, {"allowed_lateness": 7200.5}])
def test_windows_that_repeat_hand_on_what_the_engine_hands_on(
    more: dict[str, float], tmp_path: Path
) -> None:
    world = RoundsWorld(tmp_path, rounds_settings(estimator="repeating", epsilon=2.0, **more))
    stream = repeating()
    world.run(ScriptedSource(stream))
    shuffled = [stream[place] for place in np.random.default_rng(7).permutation(len(stream))]
    estimates, counters = run(shuffled, RunRounds(world.settings, shards=3))
    states = [
        estimate.stages[-1]["state"] for estimate in sorted(estimates, key=lambda one: one.start)
    ]
    assert states[3]["half_width"] is not None
    narrow = [
        stage
        for estimate in estimates
        for stage in estimate.stages
        if stage.get("stage") == "narrow"
    ]
    assert narrow or "user_budget" in more
    assert len({state["center"] for state in states}) > 3
    assert lines(estimates) == world.lines("means")
    assert counters["rounds"] == 6
    assert counters.get("over_budget", 0) == (3000 if "user_budget" in more else 0)


def test_batches_of_samples_are_samples(tmp_path: Path) -> None:
    settings, stream = rounds_settings(), samples()
    one_by_one, _ = run(stream, RunRounds(settings, shards=3))
    cuts = [stream[:100], stream[100:101], stream[101:]]
    batched, counters = run(
        [sample_batch(*zip(*part, strict=True)) for part in cuts], RunRounds(settings, shards=1)
    )
    assert lines(batched) == lines(one_by_one)
    assert counters["samples"] == len(stream)


def flawed_file(folder: Path) -> Path:
    """Samples out of order, some of them twice, in the future, or unreadable."""
    rows = [f"{user},{value!r},{time!r},id{n}" for n, (user, value, time) in enumerate(samples())]
    order = np.random.default_rng(3).permutation(len(rows)).tolist()
    rows = [rows[place] for place in order]
    rows += [rows[5], "user 1,3.5,5000000000,soon", "user 2,,1000,none", "user 3,nan,1000,nan"]
    path = folder / "samples.csv"
    path.write_text("\n".join(["user,value,time,id", *rows]) + "\n")
    return path


@pytest.mark.parametrize("sort", [True, False])
def test_a_file_is_read_as_the_engine_reads_it(
    sort: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = flawed_file(tmp_path)
    mapping = ColumnMapping(agent="user", value="value", time="time", id="id")
    settings = rounds_settings(allowed_lateness=0.25 * DAY)
    world = RoundsWorld(tmp_path / "engine", settings)
    stats = world.run(
        open_source(
            str(path),
            mapping,
            sort=sort,
            id_key=key_derived_from_secret(SECRET.encode(), "sample ids"),
        )
    )
    monkeypatch.setattr(
        metrics, "metric_counters", lambda result: metric_counters(result, PRIVATE_NAMESPACE)
    )
    counters = run_rounds_file(
        settings,
        SourceLocation(location=str(path), mapping=mapping, sort=sort),
        tmp_path / "beam.jsonl",
        secret=SecretLocation(),
        engine_options=EngineOptions(batch_size=50),
    )
    assert (tmp_path / "beam.jsonl").read_bytes().splitlines() == world.lines("means")
    assert counters["accepted"] == stats.accepted
    assert {"bad_time", "missing_value", "not_finite"} <= set(stats.rejected)
    assert "duplicate" in stats.rejected
    assert "late" not in stats.rejected  # a file that ends closes nothing before its end
    for reason, count in stats.rejected.items():
        assert counters[f"rejected_{reason}"] == count


@on_prism
def test_prism_answers_each_window_once(tmp_path: Path) -> None:
    path = flawed_file(tmp_path)
    mapping = ColumnMapping(agent="user", value="value", time="time", id="id")
    source = SourceLocation(location=str(path), mapping=mapping)
    settings = rounds_settings(user_budget=4.0, estimator="one_shot")
    (tmp_path / "secret").write_text(os.environ["MEANSTREAM_SECRET"])
    place = SecretLocation(file=str(tmp_path / "secret"))
    written = []
    for runner in ("FnApiRunner", "PrismRunner"):
        sink = tmp_path / f"{runner}.jsonl"
        run_rounds_file(
            settings, source, sink, secret=place, engine_options=EngineOptions(), runner=runner,
            arguments=runner_arguments(runner, ()),
        )  # fmt: skip
        written.append(sink.read_bytes())
    known, found = ([json.loads(line) for line in lines.splitlines()] for lines in written)
    users = {event["round_id"]: event["users"] for event in known}
    assert len(users) == 4
    assert 0 < len(found) == len({event["round_id"] for event in found})
    assert all(event["users"] <= users[event["round_id"]] for event in found)
