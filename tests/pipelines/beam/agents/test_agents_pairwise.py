"""The paper's agents, who ask each other, on Beam: equal to the operator, the same again, charged
before they tell."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import BytesCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from meanstream.lab.papers.colme.pairwise_stream import PairwiseStream
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.pipelines.beam.agents import pairwise_turns as pairwise
from meanstream.pipelines.beam.agents.agent_transforms import CollaboratePairwise, SnapshotReleases
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.pairwise_shard import (
    FederationShard,
    PairBatch,
    pairwise_release_ids,
)
from meanstream.pipelines.beam.agents.pairwise_turns import StepFederation
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.element_types.events import DamagedBytesError
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.store.secret_source import noise_from_secret
from meanstream.streaming.store.state_snapshot import CorruptedSnapshotError
from tests.pipelines.beam.agents.test_agents_idempotent import _leaves
from tests.pipelines.beam.support.collecting import collector, run_pipeline
from tests.pipelines.beam.support.fresh_noise import FreshNoise
from tests.streaming.support.rounds_world import SECRET

NAMES = ("ann", "bob", "cem", "dora")
RELEASE = AgentsSettings(
    name="test",
    lower=-2,
    upper=6,
    epsilon=1,
    delta=1e-6,
    horizon=6,
    counter="pm1",
    mode="paper",
    spread_share=0.0,
)
SETTINGS = PairwiseStreamSettings(release=RELEASE)
WINDOWS = AgentWindows(refresh=10.0)
REPEAT = ["--direct_runner_bundle_repeat=4"]
Sample = tuple[str, float, float]


def samples(steps: int = 20, seed: int = 1) -> list[Sample]:
    """A sample of everybody per two seconds, at times of its own."""
    rng = np.random.default_rng(seed)
    return [
        (name, float(1 + 3 * (i % 2) + rng.normal()), 2.0 * step + i * 0.3)
        for step in range(steps)
        for i, name in enumerate(NAMES)
    ]


def collaborate(
    stream: list[Any],
    settings: PairwiseStreamSettings = SETTINGS,
    repeat: Iterable[str] = (),
    runner: Any = None,
    **parameters: Any,
) -> tuple[list[dict[str, Any]], list[PairBatch], dict[str, int]]:
    """Estimates, addressed releases and counters."""
    keep, told = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        answers = (
            pipeline
            | beam.Create(stream, reshuffle=False)
            | CollaboratePairwise(settings, **parameters)
        )
        _ = answers.releases | "Told" >> keep
        return answers.estimates

    estimates, counters = run_pipeline(build, runner=runner, options=list(repeat))
    return [json.loads(line) for batch in estimates for line in batch.lines], told, counters


def totals_of(batches: Iterable[PairBatch]) -> dict[str, list[int]]:
    """All noised sums that left under each release id."""
    found: dict[str, list[int]] = defaultdict(list)
    for batch in batches:
        releases = batch.releases
        ids = pairwise_release_ids(
            batch.agent.to_pylist(),
            batch.reader.to_pylist(),
            releases.index.tolist(),
            deployment=SETTINGS.name,
        )
        for release_id, total in zip(ids, releases.total.tolist(), strict=True):
            found[release_id].append(total)
    return found


def operator(
    settings: PairwiseStreamSettings, stream: list[Sample]
) -> tuple[PairwiseStream, dict[str, list[int]]]:
    """The oracle: the operator, on all samples at once."""
    federation = PairwiseStream(settings, noise(settings), capacity=9)
    who, value, time = (
        np.array(column) for column in zip(*sorted(stream, key=lambda s: s[2]), strict=True)
    )
    number = np.array([NAMES.index(name) for name in who])
    made = federation.take(number, value.astype(float), time.astype(float), NAMES)
    agents, readers = (
        [NAMES[place] for place in who.tolist()] for who in (made.agent, made.reader)
    )
    ids = pairwise_release_ids(agents, readers, made.index.tolist(), deployment=settings.name)
    return federation, {one: [total] for one, total in zip(ids, made.total.tolist(), strict=True)}


def noise(settings: PairwiseStreamSettings) -> Any:
    return noise_from_secret(SECRET.encode(), settings.name)


CASES: list[dict[str, Any]] = [
    {},
    {"stddev": 1.0, "counter": "toeplitz", "weights": "mean_of_means"},
    {"counter": "pm2", "horizon": 3, "variance": "released"},
    {"schedule": "restricted_round_robin", "variance": "bayesian", "weights": "windowed"},
    {
        "partners": {
            "ann": ("bob", "cem"),
            "bob": ("dora",),
            "cem": ("ann", "dora"),
            "dora": ("bob",),
        },
        "horizon": 20,
    },
]


@pytest.mark.parametrize("refresh", [None, 10.0])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_tells_and_answers_what_the_operator_does(
    case: dict[str, Any], refresh: float | None
) -> None:
    release = {name: value for name, value in case.items() if name in ("counter", "horizon")}
    own = {name: value for name, value in case.items() if name not in release}
    settings = PairwiseStreamSettings(release=replace(RELEASE, levels=None, **release), **own)
    stream = samples()
    shuffled = [
        stream[place] for place in np.random.default_rng(3).permutation(len(stream)).tolist()
    ]
    options = EngineOptions(collaboration="tests", members=True)
    estimates, told, counters = collaborate(shuffled, settings, refresh=refresh, options=options)
    federation, expected = operator(settings, stream)
    assert totals_of(told) == expected
    assert len(expected) > 20
    public = settings.schedule == "round_robin"  # otherwise how many there are depends on values
    assert counters.get("releases") == (len(expected) if public else None)
    answer, alone = federation.estimate(np.arange(4))
    last = {event["agent"]: event for event in estimates if event["n"] == 20}
    assert [last[name]["value"] for name in NAMES] == answer.value.tolist()
    assert [last[name]["interval"] for name in NAMES] == np.stack(
        [answer.lower, answer.upper], axis=1
    ).tolist()
    assert [last[name]["local"] for name in NAMES] == alone.value.tolist()
    assert [last[name]["members"] for name in NAMES] == [
        federation.members(number) for number in range(4)
    ]
    assert len(estimates) == 4 * (1 if refresh is None else 4)


def test_each_release_is_for_one_reader() -> None:
    _, told, _ = collaborate(samples())
    pairs = {
        pair
        for batch in told
        for pair in zip(batch.agent.to_pylist(), batch.reader.to_pylist(), strict=True)
    }
    assert pairs == {(agent, reader) for agent in NAMES for reader in NAMES if agent != reader}


def test_what_was_told_to_one_reader_is_no_public_release() -> None:
    with pytest.raises(TypeError, match=r"collaboration takes releases only, got .*PairBatch"):
        run_pipeline(
            lambda pipeline: (
                (
                    pipeline
                    | beam.Create(samples(), reshuffle=False)
                    | CollaboratePairwise(SETTINGS)
                ).releases
                | SnapshotReleases(SETTINGS.release)
            )
        )


def test_nobody_waits_for_an_agent_that_has_fallen_silent() -> None:
    stream = [s for s in samples() if s[0] != "dora" or s[2] < 20]
    estimates, told, _ = collaborate(stream, refresh=10.0)
    assert {event["agent"]: event["n"] for event in estimates} == {
        "ann": 20,
        "bob": 20,
        "cem": 20,
        "dora": 10,
    }
    assert len(estimates) == 3 * 4 + 2
    assert totals_of(told) == operator(SETTINGS, stream)[1]


def test_what_is_late_too_many_or_there_twice_is_counted_and_not_used() -> None:
    from meanstream.pipelines.beam.agents.agent_transforms import agent_batch

    stream = samples()
    strangers = [("zoe", 1.0, 5.0), ("zoe", 1.0, 6.0)]
    all_of_them = [*stream, *strangers, *stream[:3]]
    agents = sorted({agent for agent, _, _ in stream})
    seen = dict.fromkeys([*agents, "zoe"], 0)
    ids = []  # each agent numbers its own
    for agent, _, _ in all_of_them[: len(stream) + 2]:
        ids.append(f"id {seen[agent]}")
        seen[agent] += 1
    ids += ids[:3]
    options = EngineOptions(max_agents=4)
    _, told, counters = collaborate(
        [agent_batch(*zip(*all_of_them, strict=True), ids=ids)], options=options
    )
    assert totals_of(told) == operator(SETTINGS, stream)[1]
    assert (counters["rejected_too_many_agents"], counters["rejected_duplicate"]) == (2, 3)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("refresh", [None, 10.0])
def test_a_repeated_bundle_tells_the_same(
    fresh: bool, refresh: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fresh:
        monkeypatch.setattr(pairwise, "noise_from_secret", lambda *_: FreshNoise())
    _, told, _ = collaborate(samples(), repeat=REPEAT, refresh=refresh)
    found = totals_of(told)
    assert len(found) == 72
    assert min(map(len, found.values())) > 1  # each was told again by an execution
    distinct = max(len(set(values)) for values in found.values())
    assert distinct > 1 if fresh else distinct == 1


def test_addressed_releases_have_bytes_of_their_own() -> None:
    _, (batch,), _ = collaborate(samples())
    coder = ColumnsCoder(PairBatch)
    again = coder.decode(coder.encode(batch))
    assert totals_of([again]) == totals_of([batch])
    assert again.time.tolist() == batch.time.tolist()
    with pytest.raises((DamagedBytesError, CorruptedSnapshotError)):
        coder.decode(FederationShard(SETTINGS, noise(SETTINGS), 4).to_bytes())


def test_nothing_that_moves_or_stays_is_pickled() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    _ = pipeline | beam.Create(samples(3), reshuffle=False) | CollaboratePairwise(SETTINGS)
    components = pipeline.to_runner_api().components
    context = PipelineContext(components)
    primitive = {
        one.unique_name
        for one in components.pcollections.values()
        if "FastPrimitivesCoder" in _leaves(context.coders.get_by_id(one.coder_id))
    }
    assert [name for name in primitive if "Newest" not in name] == []  # notes are two numbers
    stored = [*StepFederation.SPECS.values()]
    assert [type(spec.coder) for spec in stored] == [BytesCoder] * len(stored) != []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"refresh": 0.5}, "refresh must be at least 1 s on Beam, got 0.5"),
        (
            {"options": EngineOptions(max_agents=5000)},
            "max_agents must be at most 1541 for a state of 256 MiB",
        ),
    ],
)
def test_what_does_not_go_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CollaboratePairwise(SETTINGS, **changes)
