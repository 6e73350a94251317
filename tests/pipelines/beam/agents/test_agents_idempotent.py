"""Whatever is executed or restored again releases the same again, and is charged once."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import BytesCoder, typecoders
from apache_beam.internal import cloudpickle_pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from meanstream.operators.agents.agents import ReleaseBatch
from meanstream.operators.noise.keyed import KeyedNoise, canonical_spelling, keyed_owner_words
from meanstream.operators.records import ReleaseColumns
from meanstream.pipelines.beam.agents import release_agents as release
from meanstream.pipelines.beam.agents.agent_transforms import (
    CollaborateAgents,
    ReleaseMeans,
    agent_batch,
)
from meanstream.pipelines.beam.agents.agents_coders import (
    pack_for_coder,
)
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentReleases,
    AgentSamples,
    FittedReleases,
    ForShard,
    OwnBatch,
    PartialReleases,
    Tick,
)
from meanstream.pipelines.beam.agents.agents_parts import agents_part_state
from meanstream.pipelines.beam.agents.agents_shard import AgentShard
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.answer_agents import AnswerAgents
from meanstream.pipelines.beam.agents.charges import ReleaseLedger
from meanstream.pipelines.beam.agents.fit_population import FitReleases
from meanstream.pipelines.beam.agents.gather_releases import GatherShard, JoinShards
from meanstream.pipelines.beam.agents.release_agents import ReleaseShard
from meanstream.pipelines.beam.element_types.beam_samples import AgentBatch
from meanstream.pipelines.beam.element_types.events import DamagedBytesError
from meanstream.pipelines.beam.element_types.packed import unpacked
from meanstream.pipelines.beam.keyed_state.beam_ledger import SpendLedger
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.store.secret_source import noise_from_secret
from meanstream.streaming.store.state_snapshot import CorruptedSnapshotError
from tests.pipelines.beam.support.agents_world import HOUR, SETTINGS, release_lines, samples
from tests.pipelines.beam.support.collecting import run, run_pipeline
from tests.pipelines.beam.support.fresh_noise import FreshNoise
from tests.pipelines.beam.support.keyed_cells import cells, fire, take
from tests.streaming.support.rounds_world import SECRET

REPEAT = ["--direct_runner_bundle_repeat=4"]
WINDOWS = AgentWindows(refresh=20 * HOUR)


def values_of(batches: Iterable[AgentReleases]) -> dict[tuple[str, int], list[int]]:
    """All noised sums that were let out under each release id."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for batch in batches:
        names, releases = batch.names.to_pylist(), batch.releases
        for agent, index, total in zip(
            releases.agent.tolist(), releases.index.tolist(), releases.total.tolist(), strict=True
        ):
            found[names[agent], index].append(total)
    return found


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("refresh", [None, 20 * HOUR])
def test_a_repeated_bundle_releases_the_same(
    fresh: bool, refresh: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fresh:
        monkeypatch.setattr(release, "noise_from_secret", lambda *_: FreshNoise())
    made, _ = run(samples(), _releases(ReleaseMeans(SETTINGS, refresh=refresh)), options=REPEAT)
    found = values_of(made)
    assert len(found) > 100
    assert min(map(len, found.values())) > 1  # each was let out again by an execution
    distinct = max(len(set(values)) for values in found.values())
    assert distinct > 1 if fresh else distinct == 1


def test_repeated_pipelines_give_the_same_bytes() -> None:
    first, counters = run(samples(), _releases(ReleaseMeans(SETTINGS, refresh=20 * HOUR)))
    again, _ = run(samples(), _releases(ReleaseMeans(SETTINGS, refresh=20 * HOUR)), options=REPEAT)
    assert set(release_lines(first)) == set(release_lines(again))
    assert counters["releases"] == len(release_lines(first))
    assert counters.get("refusals", 0) == 0


def test_samples_of_one_time_have_an_order_of_their_own() -> None:
    stream = [(f"agent {i % 3}", float(i % 7), float(i // 30)) for i in range(300)]
    batch = agent_batch(*zip(*stream, strict=True), ids=[f"id {i}" for i in range(300)])
    lines = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(300)
        pieces = [batch.take(part) for part in np.array_split(order, 7)]
        lines.append(release_lines(run(pieces, _releases(ReleaseMeans(SETTINGS)))[0]))
    assert lines[0] == lines[1] == lines[2] != []


def noise() -> KeyedNoise:
    return noise_from_secret(SECRET.encode(), SETTINGS.name)


def samples_of(number: int) -> AgentSamples:
    """The samples of a window, for a shard."""
    stream = [s for s in samples() if s[2] // (20 * HOUR) == number]
    batch = agent_batch(*zip(*stream, strict=True))
    import pyarrow as pa

    return AgentSamples(
        names=pa.array(batch.names, pa.large_string()),
        agent=batch.agent,
        point=SETTINGS.grid.encode(batch.value),
        time=batch.time,
        key=np.zeros(len(batch), np.uint64),
        position=batch.position,
    )


def turn(shard: AgentShard, number: int) -> list[tuple[str, int, int]]:
    part = samples_of(number)
    tick = Tick(number, float(part.time.max()))
    made = shard.turn([part], keyed_owner_words, [tick], WINDOWS, final_release=False)
    assert len(made.own) > 0
    return [
        (shard.agents.names[a], i, t)
        for batch in made.released
        for a, i, t in zip(
            batch.releases.agent.tolist(),
            batch.releases.index.tolist(),
            batch.releases.total.tolist(),
            strict=True,
        )
    ]


@pytest.mark.parametrize("cut", [1, 3])
def test_state_restored_from_its_bytes_releases_the_same(cut: int) -> None:
    whole = AgentShard(SETTINGS, noise())
    expected = [turn(whole, number) for number in range(5)]
    assert sum(map(len, expected)) > 100
    first = AgentShard(SETTINGS, noise())
    before = [turn(first, number) for number in range(cut)]
    saved = first.to_bytes()
    lost = turn(first, cut)  # done, and then the worker dies
    second = AgentShard(SETTINGS, noise(), saved)
    assert second.to_bytes() == saved
    after = [turn(second, number) for number in range(cut, 5)]
    assert lost == after[0]
    assert before + after == expected
    assert second.to_bytes() == whole.to_bytes()


def test_a_late_sample_is_counted_and_changes_nothing() -> None:
    shard, other = AgentShard(SETTINGS, noise()), AgentShard(SETTINGS, noise())
    turn(shard, 0), turn(other, 0)
    late, now = samples_of(0), samples_of(1)
    tick = Tick(1, float(now.time.max()))
    with_late = shard.turn([late, now], keyed_owner_words, [tick], WINDOWS, final_release=False)
    without = other.turn([now], keyed_owner_words, [tick], WINDOWS, final_release=False)
    assert (with_late.late, without.late) == (len(late), 0)
    assert shard.to_bytes() == other.to_bytes()


def releases(totals: list[int], index: int, version: int) -> ReleaseBatch:
    n = len(totals)
    whole = {"index": np.full(n, index), "count": np.full(n, 4), "total": np.array(totals)}
    real = {"mean": np.array(totals, float), "noise_variance": np.ones(n)}
    columns = ReleaseColumns(agent=np.arange(n), **whole, **real)
    times, none = np.full(n, float(index)), np.zeros(0, np.int64)
    return ReleaseBatch(
        releases=columns, version=np.full(n, version, np.uint64), time=times, exhausted=none
    )


def test_the_ledger_gives_what_was_stored_and_refuses_another_input() -> None:
    words, rows = keyed_owner_words(["a", "b"]), []
    spend = SpendLedger(b"")
    ledger = ReleaseLedger(spend, lambda: rows)
    _, refused, row = ledger.charge(releases([5, 6], 1, 77), words)
    assert row is not None
    assert not refused.any()
    rows.append(row)
    ledger = ReleaseLedger(SpendLedger(spend.to_bytes()), lambda: rows)
    again, refused, row = ledger.charge(
        releases([500, 600], 1, 77), words
    )  # the same input, fresh noise
    assert (again.releases.total.tolist(), refused.tolist(), row) == ([5, 6], [False, False], None)
    _, refused, row = ledger.charge(releases([5, 6], 1, 78), words)  # another input
    assert (refused.tolist(), row) == ([True, True], None)
    _, refused, row = ledger.charge(releases([7, 8], 2, 79), words)
    assert not refused.any()
    assert row is not None
    with pytest.raises(ValueError, match="release must be its agent's next one"):
        ledger.charge(releases([7, 8], 4, 80), words)


def life(
    state: dict[str, Any], part: AgentSamples, number: int, *, secret: str | None = None
) -> list[Any]:
    """One window of a shard in a worker that was just started, on given state."""
    place = SecretLocation(variable=secret)
    owner = StateOwner(settings=agents_part_state(SETTINGS, WINDOWS, 1), secret=place)
    shard = ReleaseShard(SETTINGS, WINDOWS, place, owner, final_release=False)
    shard.setup()
    for element in (pack_for_coder(part), Tick(number, float(part.time.max()))):
        take(shard, element, state)
    return list(fire(shard, WINDOWS.released(number), state))


def fresh_state() -> dict[str, Any]:
    return cells(ReleaseShard)


def public(out: list[Any]) -> list[bytes]:
    return release_lines(o.value for o in out if not isinstance(o, beam.pvalue.TaggedOutput))


def tagged(out: list[Any], tag: str) -> list[Any]:
    return [o.value.value for o in out if isinstance(o, beam.pvalue.TaggedOutput) and o.tag == tag]


def test_agents_that_were_lost_while_the_ledger_was_kept_release_what_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = fresh_state()
    first = public(life(state, samples_of(0), 0))
    rows, charges = list(state["ledger"].values), charged(state)
    lose_agents(state)
    monkeypatch.setattr(release, "noise_from_secret", _other_noise_same_versions)
    again = life(state, samples_of(0), 0)
    assert public(again) == first != []
    assert (state["ledger"].values, charged(state)) == (rows, charges)  # nothing was charged
    lose_agents(state)
    part = samples_of(0)
    other = replace(part, point=part.point[::-1].copy())
    refused = life(state, other, 0)
    events = tagged(refused, "refusals")
    # A release of other values is another input; a reversal keeps few sums.
    assert len(events) + len(public(refused)) == len(first)
    assert len(events) > len(first) // 2
    assert {(e.asked, e.remaining) for e in events} == {
        (1, SETTINGS.horizon - e.spent) for e in events
    }
    assert set(public(refused)) <= set(first)
    assert (state["ledger"].values, charged(state)) == (rows, charges)


def charged(state: dict[str, Any]) -> list[int]:
    """How many releases each agent was charged, as the state says."""
    return AgentShard(
        SETTINGS, noise(), state["agents"].value, state["changes"].values
    ).spend.rounds.tolist()


def lose_agents(state: dict[str, Any]) -> None:
    for name in ("agents", "head"):
        state[name].value = None
    state["changes"].clear()


def _other_noise_same_versions(*_: Any) -> Any:
    keyed = noise().derived("agents", canonical_spelling(SETTINGS))

    class Both(FreshNoise):
        version_of = staticmethod(keyed.version_of)

        def derived(self, purpose: str, settings: Any) -> FreshNoise:
            return self

    return Both()


PACKED = (AgentBatch, ForShard, AgentReleases, OwnBatch, PartialReleases, FittedReleases)


@pytest.mark.parametrize("kind", PACKED)
def test_bytes_of_another_kind_are_refused(kind: Any) -> None:
    with pytest.raises((DamagedBytesError, CorruptedSnapshotError)):
        typecoders.registry.get_coder(kind).decode(AgentShard(SETTINGS, noise()).to_bytes())


@pytest.mark.parametrize("what", ["agents", "ledger"])
def test_damaged_state_is_refused(what: str) -> None:
    state = fresh_state()
    life(state, samples_of(0), 0)
    kept = state["agents"].value if what == "agents" else state["ledger"].values[0]
    kind = "shard 2" if what == "agents" else "charged"
    unpacked(kept, kind)
    with pytest.raises(CorruptedSnapshotError):
        unpacked(kept[:-40] + bytes([kept[-40] ^ 1]) + kept[-39:], kind)


def test_nothing_that_moves_or_stays_is_pickled() -> None:
    """Every element between steps has a coder of its own; primitives are those of notes, which are
    two numbers."""
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    _ = pipeline | beam.Create(samples(60), reshuffle=False) | CollaborateAgents(SETTINGS)
    components = pipeline.to_runner_api().components
    context = PipelineContext(components)
    primitive = {
        one.unique_name
        for one in components.pcollections.values()
        if "FastPrimitivesCoder" in _leaves(context.coders.get_by_id(one.coder_id))
    }
    assert [name for name in primitive if "Newest" not in name] == []
    assert len(components.pcollections) > 20
    specs = (ReleaseShard, GatherShard, JoinShards, FitReleases, AnswerAgents)
    stored = [spec for kind in specs for spec in kind.SPECS.values()]
    assert {type(spec.coder) for spec in stored} == {BytesCoder}
    assert len(stored) == 28


def _leaves(coder: Any) -> list[str]:
    parts = coder._get_component_coders()
    return [leaf for part in parts for leaf in _leaves(part)] if parts else [type(coder).__name__]


def test_the_secret_is_not_in_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled: list[bytes] = []
    compress = cloudpickle_pickler.bz2.compress
    monkeypatch.setattr(
        cloudpickle_pickler.bz2,
        "compress",
        lambda data, **k: pickled.append(data) or compress(data),
    )
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    _ = pipeline | beam.Create(samples(50)) | CollaborateAgents(SETTINGS)
    graph = pipeline.to_runner_api().SerializeToString() + b"".join(pickled)
    assert SECRET.encode() not in graph
    assert b"ReleaseShard" in graph  # so the search would find it
    with pytest.raises(TypeError):
        pickle.dumps(noise())


def _releases(transform: ReleaseMeans) -> Callable[[Any], Any]:
    """A transform's public output alone."""

    class Public(beam.PTransform):
        def expand(self, pcoll: Any) -> Any:
            return (pcoll | transform).releases

    return Public()


def test_what_is_not_a_release_does_not_reach_the_public_side() -> None:
    with pytest.raises(Exception, match="releases only"):
        run_pipeline(lambda p: p | beam.Create([("a", 1.0, 1.0)]) | beam.ParDo(_by_shard()))


def _by_shard() -> Any:
    from meanstream.pipelines.beam.agents.gather_releases import ReleasesByShard

    return ReleasesByShard(2)
