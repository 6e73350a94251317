"""Engines of one deployment learn from each other's releases, which stay as they are to the byte."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.collaboration.variance.pooled_variance import PooledVariance
from meanstream.streaming.agents.engine_summary import (
    OTHERS,
    EngineSummary,
    deployment_digest,
    read_summary,
)
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.agents.shared_summaries import (
    ShardRun,
    SharedSummaries,
    summary_path,
)
from meanstream.streaming.agents.store_answers import StoreAnswers
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.store.state_snapshot import (
    decode_snapshot_columns,
    encode_snapshot_columns,
)
from meanstream.streaming.store.state_store import Store
from tests.streaming.support.scripted_source import ScriptedSource

NewWorld = Callable[[str], Any]
FIRST = [f"a{i}" for i in range(12)]
SECOND = [f"b{i}" for i in range(3)]
AGENTS = [*FIRST, *SECOND]


class Part(ScriptedSource):
    """Some partitions of a topic, whose others another store reads."""

    is_part = True

    def elsewhere(self, names: Any) -> set[str]:
        return set()


def samples(agents: list[str], count: int = 40) -> list[tuple[str, float, float]]:
    """Agents of two classes, each with samples of its own, whoever else is there."""
    rows = []
    for row in range(count):
        for agent in agents:
            number = AGENTS.index(agent)
            noise = np.random.default_rng([number, row]).normal(0, 1)
            rows.append((agent, 3.0 + 4.0 * (number % 2) + float(noise), row + number / 100))

    return rows


def last_answers(world: Any) -> dict[str, dict[str, Any]]:
    return {str(one["agent"]): one for one in world.events("estimates")}


def bring(world: Any, other: Any, name: str = "other.summary") -> Path:
    """Let an engine find what another one has published."""
    world.folder.mkdir(exist_ok=True)
    place: Path = world.folder / name
    shutil.copy(summary_path(other.folder / "s.db"), place)
    return place


@pytest.fixture
def first(new_world: NewWorld) -> Any:
    world = new_world("first")
    world.run(Part(samples(FIRST)))
    return world


@pytest.mark.parametrize("collaboration", ["learned_prior", "james_stein", "tests"])
def test_answers_are_those_of_one_engine_that_has_all_agents_and_releases_are_as_before(
    new_world: NewWorld, collaboration: str
) -> None:
    """The order of summing differs: answers agree within rounding."""
    first, alone, together, whole = map(new_world, ("first", "alone", "together", "whole"))
    for world in (first, alone, together, whole):
        world.options = replace(world.options, collaboration=collaboration, refresh=None)
    # The first engine publishes at its end, where it answers.
    first.run(Part(samples(FIRST)))
    bring(together, first)
    alone.run(ScriptedSource(samples(SECOND)))
    together.run(Part(samples(SECOND)))
    whole.run(ScriptedSource(samples(AGENTS)))

    assert together.lines("releases") == alone.lines("releases")
    for agent, answer in last_answers(together).items():
        expected = last_answers(whole)[agent]
        for name in ("value", "interval", "effective_class_size"):
            np.testing.assert_allclose(answer[name], expected[name], rtol=1e-9)

    sizes = [
        np.median([one["effective_class_size"] for one in last_answers(world).values()])
        for world in (alone, together)
    ]
    if collaboration == "learned_prior":  # which knows two classes from many agents
        assert sizes[1] > sizes[0]
    assert together.events("population")[-1]["agents"] == len(AGENTS)


def test_an_engine_that_reads_all_partitions_publishes_nothing_and_reads_nothing(
    new_world: NewWorld, first: Any
) -> None:
    alone, beside = new_world("alone"), new_world("beside")
    bring(beside, first)
    for world in (alone, beside):
        world.run(ScriptedSource(samples(SECOND)))

    assert beside.files() == alone.files()
    assert not summary_path(beside.folder / "s.db").exists()


def test_an_answer_that_is_written_again_is_the_same_whatever_others_publish_meanwhile(
    new_world: NewWorld, first: Any
) -> None:
    """A commit has what its answers rest on, at each point where the process may die."""

    class DiedError(RuntimeError):
        pass

    later = new_world("later")
    later.run(Part(samples(FIRST, 10)))
    deaths = 0
    for visit in range(2, 8):
        world = new_world(f"world {visit}")
        place = bring(world, first)
        visits = 0

        def die(point: CrashPoint, moment: Moment) -> None:
            nonlocal visits
            visits += (point, moment) == (CrashPoint.FLUSH_SINKS, Moment.AFTER)
            if visits == visit:  # noqa: B023 - used within this turn
                raise DiedError

        with pytest.raises(DiedError):
            world.run(Part(samples(SECOND)), crash=die)
        written = world.lines("estimates")
        deaths += bool(written)
        shutil.copy(summary_path(later.folder / "s.db"), place)
        os.utime(place, (1, 1))
        world.run(Part(samples(SECOND)))
        assert world.lines("estimates")[: len(written)] == written

    assert deaths > 3


def test_readers_of_the_store_answer_as_the_engine_does(new_world: NewWorld, first: Any) -> None:
    world = new_world("world")
    place = bring(world, first)
    world.run(Part(samples(SECOND)))
    place.unlink()  # the store has it
    answers = StoreAnswers(world.folder / "s.db")
    for agent, answer in last_answers(world).items():
        found = answers.answer(agent)
        assert found is not None
        assert (found["value"], found["interval"]) == (answer["value"], answer["interval"])


@pytest.mark.parametrize("changed_row", [-1, 0])
def test_a_summary_is_a_function_of_releases(new_world: NewWorld, changed_row: int) -> None:
    """A value that no release has taken in changes no byte but the random id of the store; one that
    a release has taken in does (the twin that shows that this test can fail)."""
    contents = []
    for number, value in enumerate((0.0, 10.0)):
        world = new_world(f"world {number}")
        world.options = replace(world.options, refresh=None, final_release=False)
        rows = samples(SECOND, 39)
        agent, _, time = rows[changed_row]
        rows[changed_row] = agent, value, time
        world.run(Part(rows))
        data = summary_path(world.folder / "s.db").read_bytes()
        contents.append(changed(data, head=with_head(engine="any")))

    assert (contents[0] == contents[1]) is (changed_row == -1)


def changed(data: bytes, **columns: Any) -> bytes:
    """The same file with other columns: its checksum is right."""
    read = decode_snapshot_columns(data)
    for name, change in columns.items():
        key = name if name == "head" else f"summary.{name}"
        read[key] = change(read[key])

    return encode_snapshot_columns(read)


def with_head(**fields: Any) -> Callable[[Any], Any]:
    def change(head: Any) -> Any:
        plain = {**msgspec.json.decode(head.tobytes()), **fields}
        return np.frombuffer(msgspec.json.encode(plain), np.uint8)

    return change


def put(index: tuple[int, ...], value: float) -> Callable[[Any], Any]:
    def change(column: Any) -> Any:
        column[index] = value
        return column

    return change


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "torn": lambda data: data[: len(data) // 2],
    "a byte": lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
    "not ours": lambda _: b"hello\n" * 100,
    "version": lambda data: changed(data, head=with_head(version=2)),
    "kind": lambda data: changed(data, head=with_head(kind="no such")),
    "other kind": lambda data: changed(data, head=with_head(kind="covariates")),
    "agents": lambda data: changed(data, head=with_head(agents="many")),
    "more agents": lambda data: changed(data, head=with_head(agents=10**6)),
    "bounds": lambda data: changed(data, head=with_head(numbers={"version": 2, "lower": 0})),
    "not a number": lambda data: changed(data, rows=put((0, 0), np.nan)),
    "infinite": lambda data: changed(data, rows=put((0, 1), np.inf)),
    "negative variance": lambda data: changed(data, rows=put((2, 0), -1.0)),
    "no samples": lambda data: changed(data, rows=put((1, 0), 0.0)),
    "odd shape": lambda data: changed(data, rows=lambda rows: rows.reshape(-1)[:-1]),
    "lengths": lambda data: changed(data, group=lambda _: np.arange(3)),
    "other deployment": lambda data: changed(data, head=with_head(deployment="another")),
    "other pool": lambda data: changed(data, head=with_head(pool={"version": 1})),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_file_that_is_none_of_ours_changes_nothing(
    new_world: NewWorld, first: Any, fault: str
) -> None:
    alone, world = new_world("alone"), new_world("world")
    place = bring(world, first)
    place.write_bytes(HOSTILE[fault](place.read_bytes()))
    (world.folder / "folder.summary").mkdir()
    os.mkfifo(world.folder / "pipe.summary")
    for each in (alone, world):
        each.run(Part(samples(SECOND, 15)))

    assert world.files() == alone.files()


def test_a_file_that_is_gone_is_forgotten_with_the_next_commit(
    new_world: NewWorld, first: Any
) -> None:
    world = new_world("world")
    place = bring(world, first)
    source = samples(SECOND)
    world.run(Part(source[:60]), stop=(world.folder / "s.db.summary").exists)
    with Store.read(world.folder / "s.db") as store:
        assert [read_summary(columns).agents for _, columns in store.chunks(OTHERS)] == [12]
    place.unlink()
    world.run(Part(source))
    with Store.read(world.folder / "s.db") as store:
        assert not list(store.chunks(OTHERS))


def test_shards_wait_for_each_others_ends(new_world: NewWorld, first: Any) -> None:
    """A summary of an earlier run is no end; the end of each shard of this one is."""
    world = new_world("world")
    world.run(Part(samples(SECOND)))
    settings, options = world.settings, world.options
    path = world.folder / "s.db"
    place = bring(world, first)
    (plain,) = [read_summary(decode_snapshot_columns(place.read_bytes()))]
    store = Store.amend(path)
    shared = SharedSummaries(store, settings, options, ShardRun("this run", 2))
    assert not shared.settled()
    for run, is_end in ((None, False), ("run before", False), ("this run", True)):
        ended = replace(plain, run=run)
        place.write_bytes(encode_snapshot_columns(ended.columns()))
        assert shared.settle() is is_end

    assert shared.settled()
    assert shared.others.agents == len(FIRST)
    again = SharedSummaries(store, settings, options, ShardRun("next run", 2))
    again.restore(store, store.state("engine"))
    assert again.settled()
    assert again.others.agents == len(FIRST)
    again.note(store, None)
    assert not again.settled()
    store.close()


def test_engines_that_do_not_agree_on_everything_do_not_learn_together() -> None:
    settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, name="a")
    options = EngineOptions()
    others = [
        deployment_digest(replace(settings, name="b"), options),
        deployment_digest(replace(settings, upper=2), options),
        deployment_digest(settings, EngineOptions(collaboration="tests")),
    ]
    assert deployment_digest(settings, EngineOptions(refresh=5.0)) not in others
    assert len({deployment_digest(settings, options), *others}) == 4


@pytest.mark.parametrize("agents", [100, 62_500])
def test_a_summary_is_small_and_comes_back_as_it_was(agents: int) -> None:
    """Of many agents it has one size; `docs` name it."""
    rng = np.random.default_rng(3)
    settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6)
    host = PersonalEstimates(settings, EngineOptions())
    from meanstream.operators.records import ReleaseColumns

    number = np.arange(agents)
    releases = ReleaseColumns(
        agent=number,
        index=number * 0 + 1,
        count=rng.integers(10, 200, agents),
        total=number,
        mean=rng.normal(0.5, 0.1, agents),
        noise_variance=rng.choice([0.01, 0.02], agents),
    )
    part = EngineSummary("a", "b", agents, host.summarize(releases), PooledVariance(0, 1))
    data = encode_snapshot_columns(part.columns())
    again = read_summary(decode_snapshot_columns(data))
    assert encode_snapshot_columns(again.columns()) == data
    assert len(data) < 200_000
