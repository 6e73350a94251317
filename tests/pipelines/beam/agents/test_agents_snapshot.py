"""The population from releases alone, as those have it who read a public topic; and their own
agents under it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.collaboration.variance.pooled_variance import PooledVariance
from meanstream.operators.records import ReleaseColumns
from meanstream.pipelines.beam.agents import gather_releases as gather
from meanstream.pipelines.beam.agents import snapshot_releases as snapshot
from meanstream.pipelines.beam.agents.agent_transforms import (
    AgentWindows,
    CollaborateAgents,
    EngineOptions,
    EstimateAgents,
    ReleaseMeans,
    SingleEvents,
    SnapshotReleases,
)
from meanstream.pipelines.beam.agents.agents_elements import (
    FittedReleases,
    Packed,
    PartialReleases,
)
from meanstream.pipelines.beam.agents.agents_windows import TickShards
from meanstream.pipelines.beam.agents.fit_population import FitReleases
from meanstream.pipelines.beam.agents.gather_releases import (
    JoinShards,
    gather_releases,
    shard_groups,
)
from meanstream.pipelines.beam.agents.latest_by_agent import LatestOfShard
from meanstream.pipelines.beam.beam_runners import runner_arguments
from meanstream.pipelines.beam.element_types.beam_samples import AGENT_SHARDS, RememberedWords
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.events.wire import Release
from tests.pipelines.beam.support.agents_world import HOUR, SETTINGS, assert_same_estimates, samples
from tests.pipelines.beam.support.collecting import collector, run_pipeline
from tests.pipelines.beam.support.keyed_cells import cells, fire, take
from tests.pipelines.beam.support.prism import on_prism

OPTIONS = EngineOptions()
REFRESHES = [None, 28 * HOUR]


class World:
    """What `CollaborateAgents` makes of all samples together: the oracle."""

    def __init__(
        self, stream: list[Any], refresh: float | None, options: EngineOptions = OPTIONS
    ) -> None:
        keep_batches, self.batches = collector()
        keep_events, self.events = collector()
        keep_population, self.population = collector()

        def build(pipeline: beam.Pipeline) -> Any:
            collaborate = CollaborateAgents(
                SETTINGS,
                EngineOptions(collaboration=options.collaboration, level=options.level),
                refresh=refresh,
            )
            answers = pipeline | beam.Create(stream, reshuffle=False) | collaborate
            _ = answers.releases | "Batches" >> keep_batches
            _ = answers.releases | "Single" >> SingleEvents(SETTINGS) | "Events" >> keep_events
            _ = answers.population | "Population" >> keep_population
            return answers.estimates

        self.estimates = lines_of(run_pipeline(build)[0])


def lines_of(batches: Iterable[Any]) -> list[bytes]:
    return sorted(line for batch in batches for line in batch.lines)


@cache
def world_of(refresh: float | None) -> World:
    return World(samples(), refresh)


@pytest.fixture(params=REFRESHES, ids=["once", "windows"])
def world(request: pytest.FixtureRequest, on_time: None) -> tuple[float | None, World]:
    return request.param, world_of(request.param)


def snapshots(
    releases: list[Any], refresh: float | None, options: EngineOptions = OPTIONS
) -> list[FittedReleases]:
    """What a reader of releases fits."""
    snapshot = SnapshotReleases(SETTINGS, options, AgentWindows(refresh=refresh))
    return run_pipeline(
        lambda pipeline: pipeline | beam.Create(releases, reshuffle=False) | snapshot
    )[0]


@pytest.mark.parametrize("form", ["batches", "events", "twice and in another order"])
def test_a_reader_of_releases_has_the_same_population(
    form: str, world: tuple[float | None, World]
) -> None:
    refresh, made = world
    releases: list[Any] = made.batches if form == "batches" else made.events
    if form.startswith("twice"):
        releases = [
            made.events[place] for place in np.random.default_rng(0).permutation(len(made.events))
        ] * 2
    found = snapshots(releases, refresh)
    told = sorted((e.agents, e.fitted["n_components"]) for e in made.population)
    assert sorted((e.agents, e.fitted.describe()["n_components"]) for e in found) == told
    assert sorted(str(e.fitted.describe()) for e in found) == sorted(
        str(e.fitted) for e in made.population
    )
    assert len(found) == (1 if refresh is None else 4)
    fewer = snapshots(
        releases[: len(releases) // 4], refresh
    )  # the comparison sees what is missing
    assert sorted(str(e.fitted.describe()) for e in fewer) != sorted(
        str(e.fitted) for e in made.population
    )


def federation(refresh: float | None, *, alone: bool = False) -> list[bytes]:
    """Two parties release their agents' means to one topic; each answers its own, or, `alone`,
    reads its own only."""
    windows = AgentWindows(refresh=refresh)
    stream = samples()
    parties = [
        [s for s in stream if (int(s[0].split()[1]) % 3 == 0) is first] for first in (True, False)
    ]

    def build(pipeline: beam.Pipeline) -> Any:
        made = [
            pipeline | f"Samples {i}" >> beam.Create(part, reshuffle=False) | f"Release {i}" >> ReleaseMeans(
                SETTINGS, refresh=refresh)
            for i, part in enumerate(parties)
        ]  # fmt: skip
        events = [
            one.releases | f"Single {i}" >> SingleEvents(SETTINGS) for i, one in enumerate(made)
        ]
        topic = events | "Topic" >> beam.Flatten()
        answers = []
        for i, one in enumerate(made):
            read = events[i] if alone else topic
            population = read | f"Snapshot {i}" >> SnapshotReleases(
                SETTINGS, OPTIONS, windows, ticks=one.ticks
            )
            estimate = EstimateAgents(SETTINGS, OPTIONS, windows, population=population)
            answers.append(one.own | f"Estimate {i}" >> estimate)
        return answers | "Answers" >> beam.Flatten()

    return lines_of(run_pipeline(build)[0])


def windows_of(lines: Iterable[bytes]) -> list[dict[str, bytes]]:
    """Estimates by agent, for each number of samples that an agent had."""
    windows: dict[int, dict[str, bytes]] = defaultdict(dict)
    for line in lines:
        event = json.loads(line)
        del event[
            "time"
        ]  # a party knows that of its own newest sample and of everybody's newest release
        windows[event["n"]][event["agent"]] = json.dumps(event).encode()
    return [windows[n] for n in sorted(windows)]


@pytest.mark.parametrize("alone", [False, True])
def test_a_federation_of_two_answers_as_one_pipeline_would(
    alone: bool, world: tuple[float | None, World]
) -> None:
    refresh, made = world
    found, expected = windows_of(federation(refresh, alone=alone)), windows_of(made.estimates)
    assert len(found) == len(expected) > 5
    wrong = 0
    for here, there in zip(found, expected, strict=True):
        try:
            assert_same_estimates(here.values(), there.values(), SETTINGS)
        except AssertionError:
            wrong += 1
    assert wrong == 0 if not alone else wrong > len(found) / 2


def test_a_window_with_own_samples_and_no_release_has_a_population() -> None:
    """Two samples are enough for the first release; here an agent with one asks while nobody has
    released."""
    stream = [("agent 1", 3.0, 10.0), ("agent 2", 4.0, 100.0), ("agent 2", 5.0, 101.0)]
    windows = AgentWindows(refresh=60.0)

    def build(pipeline: beam.Pipeline) -> Any:
        made = (
            pipeline | beam.Create(stream, reshuffle=False) | ReleaseMeans(SETTINGS, refresh=60.0)
        )
        population = made.releases | SnapshotReleases(SETTINGS, OPTIONS, windows, ticks=made.ticks)
        return made.own | EstimateAgents(SETTINGS, OPTIONS, windows, population=population)

    assert len(lines_of(run_pipeline(build)[0])) == 2


@on_prism
@pytest.mark.parametrize("fault", [False, True])
def test_releases_that_come_with_the_end_of_their_window_are_no_late_ones(
    fault: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they do from `ReleaseMeans` in the same pipeline: made when event time has reached the
    end.

    Prism moves the event time of a script when nothing else is left to do, so no step can be behind
    it.
    """
    if fault:
        monkeypatch.setattr(
            snapshot,
            "TickShards",
            lambda windows, shards, owner, step: TickShards(windows, shards, owner),
        )
    events = [TimestampedValue(event, 60.0) for event in events_of({1: 1.0}, SETTINGS.epsilon)]
    script = Stream().advance_watermark_to(60.0).add_elements(events).advance_watermark_to(70.0)
    found, _ = run_pipeline(
        lambda pipeline: (
            pipeline
            | script.advance_watermark_to_infinity()
            | beam.Map(lambda event: event).with_output_types(Release)
            | SnapshotReleases(SETTINGS, OPTIONS, AgentWindows(refresh=60.0), shards=1)
        ),
        runner="PrismRunner",
        options=[*runner_arguments("PrismRunner", ()), "--streaming"],
    )
    assert [one.agents for one in found] == ([] if fault else [1])


@pytest.mark.parametrize("collaboration", ["tests", "none"])
def test_other_collaborations_are_fitted_too(collaboration: str) -> None:
    options = EngineOptions(collaboration=collaboration)
    made = World(samples(), None, options)
    (found,) = snapshots(made.events, None, options)
    assert [str(found.fitted.describe())] == [str(e.fitted) for e in made.population]


def told_of(totals: dict[int, float], epsilon: float, agent: str = "ann") -> list[Release]:
    """Releases of an agent, such as nobody can have made: for what comes behind the rule."""
    from datetime import UTC, datetime

    return [
        Release(
            release_id=f"{agent}:{index}", agent=agent, index=index, time=datetime.fromtimestamp(index, UTC),
            n=2 * index, total=0, mean=mean, noise_variance=0.1, epsilon=epsilon, delta=SETTINGS.delta, mode="tuned",
        )
        for index, mean in totals.items()
    ]  # fmt: skip


def events_of(
    totals: dict[int, float],
    epsilon: float,
    agent: str = "ann",
    settings: AgentsSettings = SETTINGS,
) -> list[Release]:
    """Releases of an agent, such as can have been made."""
    from datetime import UTC, datetime

    found = []
    for index, wanted in totals.items():
        n = 10 * index
        total = round((wanted - settings.lower) * n / settings.grid.resolution)
        least = settings.mean_variance(np.array([index]), np.array([n]))[0]
        event = Release(
            release_id=f"{agent}:{index}", agent=agent, index=index, time=datetime.fromtimestamp(index, UTC), n=n,
            total=total, mean=float(settings.grid.mean(total, n)), noise_variance=float(least), epsilon=epsilon,
            delta=settings.delta, mode="tuned",
        )  # fmt: skip
        found.append(event)
    return found


@pytest.mark.parametrize("epsilon", [SETTINGS.epsilon, 2.0])
def test_the_variance_is_read_off_releases_that_are_alike(epsilon: float) -> None:
    events = events_of({1: 1.0, 2: 9.0}, epsilon)
    shard = LatestOfShard(SETTINGS)
    shard.observe(list(gather_releases(events, SETTINGS)), RememberedWords().of)
    assert shard.latest().index.tolist() == [2]
    assert shard.pool.n == (1 if epsilon == SETTINGS.epsilon else 0)


def test_a_shard_keeps_what_agents_have_released_in_its_bytes() -> None:
    """Gaussian noise of several releases tells more than that of the newest; increments' does not."""
    gaussian = replace(SETTINGS, counter="optimal", noise="gaussian")
    for settings in (SETTINGS, gaussian):
        events = events_of({1: 1.0, 2: 9.0, 3: 4.0}, settings.epsilon, settings=settings)
        whole, parted = LatestOfShard(settings), LatestOfShard(settings)
        whole.observe(list(gather_releases(events, settings)), RememberedWords().of)
        for event in events:
            parted.observe(list(gather_releases([event], settings)), RememberedWords().of)
            parted = LatestOfShard(settings, parted.to_bytes())

        assert parted.to_bytes() == whole.to_bytes()
        ratio = whole.combined().noise_variance[0] / whole.latest().noise_variance[0]
        assert ratio < 1 if settings is gaussian else ratio == 1


def test_a_shard_whose_first_window_had_no_release_keeps_means_exactly() -> None:
    """The state of nobody holds no whole numbers in place of means."""
    rng = np.random.default_rng(3)
    words = RememberedWords().of
    latest = LatestOfShard(SETTINGS)
    assert latest.changed([], words) is not None
    now = None
    for index in range(1, 4):
        latest = LatestOfShard(SETTINGS, latest.to_bytes())
        events = events_of({index: float(rng.normal(5, 2))}, SETTINGS.epsilon)
        changed = latest.changed(list(gather_releases(events, SETTINGS)), words)
        assert changed is not None
        before, after = changed
        assert np.array_equal(before.mean, [] if now is None else now.mean)
        now = after


def changes(n: int = 5) -> list[PartialReleases]:
    """What shards tell one after the other, with pools whose sums depend on their order: 30 agents
    each, twice."""
    rng, host = np.random.default_rng(1), PersonalEstimates(SETTINGS, OPTIONS)
    found = []
    for shard in range(n):
        latest = LatestOfShard(SETTINGS)
        for first, agents in ((1, 30), (4, 40)):
            events = [
                event
                for agent in range(agents)
                for event in told_of(
                    dict(enumerate(rng.normal(5, 2, 3), first)),
                    SETTINGS.epsilon,
                    f"{shard} {agent}",
                )
            ]
            changed = latest.changed(list(gather_releases(events, SETTINGS)), RememberedWords().of)
            assert changed is not None
            before, now = map(host.summarize, changed)
            turns = {shard: latest.turns}
            found.append(
                PartialReleases(summary=now, before=before, pools={shard: latest.pool}, turns=turns)
            )
        assert latest.changed([], RememberedWords().of) is None
    return found


def nobody() -> PartialReleases:
    windows = AgentWindows(refresh=None)
    return FitReleases(SETTINGS, OPTIONS, windows, StateOwner(settings={})).empty()


def joined(order: Iterable[int], groups: int) -> PartialReleases:
    """Take changes in, so many at a time, through bytes at each step; what comes too early
    waits."""
    coder, parts = ColumnsCoder(PartialReleases), changes()
    whole, waiting = nobody(), []
    for group in np.array_split(np.array(list(order)), groups):
        told = [coder.decode(coder.encode(parts[place])) for place in group.tolist()]
        whole = coder.decode(coder.encode(whole))
        waiting = whole.take(waiting + told + told[:1])  # one of them comes twice
    assert not waiting
    return whole


def check_joins() -> None:
    """Changes in any order: the same bytes, the same variance, and what a summary of everybody's
    newest holds."""
    results = set()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        whole = joined(rng.permutation(10), int(rng.integers(1, 5)))
        assert whole.summary.n == 200
        results.add((ColumnsCoder(PartialReleases).encode(whole), whole.pool().variance))
    assert len(results) == 1


def test_changes_of_shards_join_in_any_order() -> None:
    check_joins()


def test_pools_that_are_added_as_they_come_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    take = PartialReleases.take

    def added(self: PartialReleases, told: Iterable[PartialReleases]) -> list[PartialReleases]:
        told = list(told)
        pool = PooledVariance(SETTINGS.lower, SETTINGS.upper)
        for one in (*self.pools.values(), *(part.pools[next(iter(part.turns))] for part in told)):
            pool.merge(one)
        rest = take(self, told)
        self.pools = {0: pool}
        return rest

    monkeypatch.setattr(PartialReleases, "take", added)
    with pytest.raises(AssertionError):
        check_joins()


def test_groups_of_shards_join_to_the_bytes_of_one_key() -> None:
    """Two groups, whose changes come in any order, in two turns, and one of them twice."""
    coder, parts = ColumnsCoder(PartialReleases), changes()
    expected = coder.encode(joined(range(10), 1))
    windows = AgentWindows(refresh=60.0)
    step = JoinShards(StateOwner(settings={}), windows)
    step.setup()
    for seed in range(6):
        order = np.random.default_rng(seed).permutation(10).tolist()
        whole, waiting = nobody(), []
        groups = [cells(JoinShards), cells(JoinShards)]
        for number, turn in enumerate((order[:6], order[6:] + order[:1])):
            for place in turn:
                (shard,) = parts[place].turns
                change = replace(parts[place], number=number)
                take(step, Packed(coder.encode(change)), groups[shard % 2])

            told = [made for one in groups for made in fire(step, windows.joined(number), one)]
            decoded = [coder.decode(made.value[1].encoded) for made in told]
            assert {made.value[0] for made in told} == {0}
            assert len(decoded) <= 4
            waiting = whole.take(waiting + decoded[::-1])

        assert not waiting
        assert coder.encode(whole) == expected


def test_a_population_of_groups_is_that_of_one_level(
    world: tuple[float | None, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh, expected = world
    monkeypatch.setattr(gather, "TWO_LEVELS", 2)
    assert shard_groups(AGENT_SHARDS) == 4
    grouped = World(samples(), refresh)
    assert grouped.estimates == expected.estimates
    assert sorted(grouped.population, key=repr) == sorted(expected.population, key=repr)


@pytest.mark.parametrize("collaboration", ["learned_prior", "tests", "none"])
def test_what_was_taken_out_of_a_summary_was_never_there(collaboration: str) -> None:
    """Few are kept one by one, many are counted in bins."""
    host = PersonalEstimates(SETTINGS, EngineOptions(collaboration=collaboration))
    rng = np.random.default_rng(2)
    n = 1500
    columns = ReleaseColumns(
        agent=np.arange(n), index=np.ones(n, np.int64), count=rng.integers(1, 99, n), total=np.ones(n, np.int64),
        mean=rng.normal(5, 2, n), noise_variance=rng.random(n),
    )  # fmt: skip
    for last, taken in ((300, 100), (n, 100), (n, 800)):
        some = np.arange(last)
        whole = host.summarize(columns.take(some))
        whole.subtract(host.summarize(columns.take(some[:taken])))
        other = host.summarize(columns.take(some[taken:]))
        for name, expected in other.snapshot().items():
            assert np.array_equal(whole.snapshot()[name], expected), name
        if collaboration != "none":
            with pytest.raises(ValueError, match="releases must have been added"):
                whole.subtract(host.summarize(columns.take(some[:taken])))


def test_an_input_that_has_ended_is_fitted_once_and_says_which_windows_it_overtook() -> None:
    keep, population = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        answers = (
            pipeline
            | beam.Create(samples(), reshuffle=False)
            | CollaborateAgents(SETTINGS, refresh=28 * HOUR)
        )
        _ = answers.population | "Population" >> keep
        return answers.estimates

    found, counters = run_pipeline(build)
    (told,) = population
    assert told.overtaken == counters["windows_overtaken"] == 3
    lines = [json.loads(line) for line in lines_of(found)]
    expected = {json.loads(line)["agent"]: json.loads(line) for line in world_of(None).estimates}
    by_window: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        by_window[line["time"]].append(line)
    *early, newest = sorted(by_window)
    assert len(early) == 3
    assert all(one["population_time"] == newest for time in early for one in by_window[time])
    assert not any("population_time" in one for one in by_window[newest])
    assert all(one["n"] <= expected[one["agent"]]["n"] for one in lines)
    assert all(one["local"] == expected[one["agent"]]["local"] for one in by_window[newest])


def test_what_is_private_is_refused() -> None:
    def build(pipeline: beam.Pipeline) -> Any:
        made = pipeline | beam.Create(samples(50), reshuffle=False) | ReleaseMeans(SETTINGS)
        return made.own | SnapshotReleases(SETTINGS)

    with pytest.raises(TypeError, match=r"collaboration takes releases only, got .*OwnBatch"):
        run_pipeline(build)


def test_releases_without_an_end_need_a_refresh() -> None:
    pipeline = beam.Pipeline()
    releases = pipeline | beam.Create(events_of({1: 1.0}, 1.0))
    releases.is_bounded = False
    with pytest.raises(ValueError, match="refresh must be given for an unbounded input, got None"):
        _ = releases | SnapshotReleases(SETTINGS)
