"""At most K samples of a person count within an agent on Beam, too: the engine's releases, however
samples come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from meanstream.operators.agents.admission import PersonCounts
from meanstream.pipelines.beam.agents.agent_transforms import ReleaseMeans, agent_batch
from meanstream.pipelines.beam.agents.agents_shard import AgentShard
from meanstream.pipelines.beam.agents.release_agents import ReleaseShard
from meanstream.pipelines.beam.element_types.elements import SampleFields
from meanstream.streaming.engine.engine_options import EngineOptions
from tests.pipelines.beam.support.agents_world import HOUR, SETTINGS, release_lines, samples
from tests.pipelines.beam.support.collecting import run
from tests.streaming.conftest import World
from tests.streaming.support.rounds_world import SECRET
from tests.streaming.support.scripted_source import ScriptedSource

LIMITED = replace(SETTINGS, per_person=2)
N = 400
WHO = np.random.default_rng(9).integers(0, 12, N).tolist()
STREAM = samples(N)
NAMED = [
    {"agent": agent, "value": value, "time": time, "patient": f"p{whose}"}
    for (agent, value, time), whose in zip(STREAM, WHO, strict=True)
]


def _releases(transform: ReleaseMeans) -> Any:
    return beam.ptransform_fn(lambda pcoll: (pcoll | transform).releases)()


def released(
    elements: Sequence[Any],
    person: str | None = None,
    *,
    final_release: bool = True,
    **changes: Any,
) -> tuple[list[bytes], dict[str, int]]:
    options = EngineOptions(final_release=final_release)
    transform = ReleaseMeans(LIMITED, options, fields=SampleFields(person=person), **changes)
    made, counters = run(elements, _releases(transform))
    return release_lines(made, LIMITED), counters


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[bytes], int]:
    """What the engine makes of the same samples: releases, and how many were over the limit."""
    world = World(
        tmp_path_factory.mktemp("engine") / "w", LIMITED, EngineOptions(refresh=None), secret=SECRET
    )
    stats = world.run(
        ScriptedSource(STREAM, persons=[whose * 0x9E3779B97F4A7C15 % 2**64 for whose in WHO])
    )
    assert stats.rejected["over_person"] > 50
    return sorted(world.lines("releases")), stats.rejected["over_person"]


def batches(n: int) -> list[Any]:
    batch = agent_batch(*zip(*STREAM, strict=True), persons=[row["patient"] for row in NAMED])
    return [batch.take(part) for part in np.array_split(np.random.default_rng(n).permutation(N), n)]


WAYS: dict[str, Callable[[], tuple[Sequence[Any], dict[str, Any]]]] = {
    "mappings": lambda: (NAMED, {"person": "patient"}),
    "functions": lambda: (NAMED, {"person": lambda row: row["patient"]}),
    "batches": lambda: (batches(5), {}),
    "both": lambda: ([*batches(2)[:1], *[NAMED[i] for i in np.random.default_rng(2).permutation(N)[N // 2 :]]],
                     {"person": "patient"}),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_the_same_samples_count_as_on_the_engine(way: str, engine: tuple[list[bytes], int]) -> None:
    elements, named = WAYS[way]()
    lines, counters = released(elements, **named)
    assert (lines, counters["rejected_over_person"]) == engine


def test_windows_and_repeated_bundles_count_nobody_twice(engine: tuple[list[bytes], int]) -> None:
    """Shards restore their state between windows; bundles are executed again."""
    lines, counters = released(NAMED, person="patient", refresh=7 * HOUR, final_release=False)
    assert set(lines) <= set(engine[0])
    assert counters["rejected_over_person"] == engine[1]
    again = run(
        NAMED,
        _releases(ReleaseMeans(LIMITED, fields=SampleFields(person="patient"), refresh=7 * HOUR)),
        options=["--direct_runner_bundle_repeat=2"],
    )[0]
    assert set(release_lines(again, LIMITED)) == set(lines)


@pytest.mark.usefixtures("on_time")
@pytest.mark.parametrize("forgets", [False, True], ids=["kept", "forgotten"])
def test_a_shard_made_of_its_bytes_knows_whom_it_has_counted(
    forgets: bool, monkeypatch: pytest.MonkeyPatch, engine: tuple[list[bytes], int]
) -> None:
    """The known-bad twin loses the counts, and lets persons count anew in each window."""
    made = ReleaseShard._shard

    def anew(self: ReleaseShard, *given: Any) -> AgentShard:
        self._known.clear()
        return made(self, *given)

    monkeypatch.setattr(ReleaseShard, "_shard", anew)
    if forgets:
        monkeypatch.setattr(PersonCounts, "restore", lambda *_: None)
    over = released(NAMED, person="patient", refresh=7 * HOUR, final_release=False)[1].get(
        "rejected_over_person", 0
    )
    assert over < engine[1] / 2 if forgets else over == engine[1]


def test_a_sample_without_a_person_is_rejected_alone(engine: tuple[list[bytes], int]) -> None:
    bad: list[Any] = [
        {**NAMED[0], "patient": None},
        {k: v for k, v in NAMED[1].items() if k != "patient"},
    ]
    bad += [
        {**NAMED[2], "patient": ""},
        {**NAMED[3], "patient": 1.5},
        {**NAMED[4], "patient": "x" * 300},
    ]
    lines, counters = released(
        [*NAMED, *bad, agent_batch(["agent 1"], [1.0], [2.0])], person="patient"
    )
    assert lines == engine[0]
    assert (counters["rejected_missing_person"], counters["rejected_bad_person"]) == (4, 2)


@pytest.mark.parametrize(
    ("settings", "person", "message"),
    [
        (SETTINGS, "patient", "per_person must be given with person, got None"),
        (
            LIMITED,
            "patint",
            "person must name a field of the samples, got 'patint'; did you mean 'patient'?",
        ),
        (LIMITED, None, "person must be given with per_person, got None"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_the_pipeline_is_built(
    settings: Any, person: Any, message: str
) -> None:
    rows = [beam.Row(agent="a", value=1.0, time=2.0, patient="p")]
    with pytest.raises(ValueError, match=f"^{message}$".replace("?", r"\?")):
        run(rows, _releases(ReleaseMeans(settings, fields=SampleFields(person=person))))
