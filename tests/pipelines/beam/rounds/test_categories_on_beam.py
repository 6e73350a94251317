"""Categories on Beam: elements and files have the bytes of the engine, and the same reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.rounds.round_transforms import RunRounds, sample_batch
from meanstream.pipelines.beam.rounds.rounds_from_files import run_rounds_file
from meanstream.pipelines.beam.worker import beam_metrics as metrics
from meanstream.pipelines.beam.worker.beam_metrics import PRIVATE_NAMESPACE, metric_counters
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.support.collecting import lines, run
from tests.streaming.rounds.test_rounds_categories import (
    NAMES,
    number_of,
    shares_settings,
    source,
    visits,
    write,
)
from tests.streaming.support.rounds_world import RoundsWorld


@pytest.mark.parametrize(
    "changes", [{}, {"options": {"votes": "oue"}, "window": "2d,1d", "user_budget": 6.0}]
)
def test_every_window_has_the_bytes_of_the_engine(changes: dict[str, Any], tmp_path: Path) -> None:
    rows = visits(n=300)
    world = RoundsWorld(tmp_path / "engine", shares_settings(**changes))
    world.run(source(write(tmp_path, "csv", rows)))
    shuffled = [rows[place] for place in np.random.default_rng(7).permutation(len(rows))]
    estimates, counters = run(shuffled, RunRounds(world.settings))
    assert lines(estimates) == world.lines("means")
    assert counters["samples"] == len(rows)
    user, device, time = zip(*rows, strict=True)
    batches = [sample_batch(user, [number_of(one) for one in device], time)]
    assert lines(run(batches, RunRounds(world.settings, shards=3))[0]) == world.lines("means")


def test_elements_of_no_category_are_rejected_with_their_reason(tmp_path: Path) -> None:
    names = NAMES[:3]
    good: list[Any] = [
        ("a", "phone", 5.0),
        ("b", " tablet ", 6.0),
        {"user": "c", "value": "desktop", "time": 7.0},
    ]
    bad: list[Any] = [
        ("d", "fridge", 5.0),
        ("e", None, 5.0),
        ("f", 1.5, 5.0),
        ("g", True, 5.0),
        ("h", 10**4, 5.0),
    ]
    settings = shares_settings(categories=names)
    alone, _ = run(good, RunRounds(settings))
    batch = sample_batch(["i", "j", "k"], [3.0, 0.5, -1.0], [5.0] * 3)
    estimates, counters = run([*good, *bad, batch], RunRounds(settings))

    # Who takes part is public, whatever a record says: their votes are random, and the same for
    # each fault.
    nothing = [*good, *((user, None, 5.0) for user in "defghijk")]
    assert lines(estimates) == lines(run(nothing, RunRounds(settings))[0])
    assert (alone[0].users, estimates[0].users) == (3, 11)
    rejected = {name: count for name, count in counters.items() if name.startswith("rejected_")}
    assert rejected == {
        "rejected_unknown_category": 5,
        "rejected_missing_category": 1,
        "rejected_bad_category": 2,
    }


def test_a_file_is_read_as_the_engine_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, names = write(tmp_path, "jsonl", visits(n=200)), NAMES[:3]
    world = RoundsWorld(tmp_path / "engine", shares_settings(categories=names))
    stats = world.run(source(path, names))
    monkeypatch.setattr(
        metrics, "metric_counters", lambda result: metric_counters(result, PRIVATE_NAMESPACE)
    )
    mapping = ColumnMapping(agent="who", value="device", categories=names, time="t")
    counters = run_rounds_file(
        world.settings,
        SourceLocation(location=str(path), mapping=mapping, sort=False),
        tmp_path / "beam.jsonl",
        secret=SecretLocation(),
        engine_options=EngineOptions(batch_size=50),
    )
    assert (tmp_path / "beam.jsonl").read_bytes().splitlines() == world.lines("means")
    assert counters["rejected_unknown_category"] == stats.rejected["unknown_category"] > 0
