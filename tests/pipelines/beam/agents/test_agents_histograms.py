"""Quantiles and exceedances on Beam: histograms travel with releases, and the prior is the engine's
to the last bit.

That the releases and estimates are the engine's is in `test_agents_equal.py`.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.own_histogram import HistogramColumns
from meanstream.operators.collaboration.shares import shares_prior as prior_module
from meanstream.operators.collaboration.shares.shares_prior import SharesPrior
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import ReleaseColumns
from meanstream.pipelines.beam.agents import answer_agents as answer
from meanstream.pipelines.beam.agents.agent_transforms import (
    CollaborateAgents,
    EngineOptions,
    EstimateAgents,
    ReleaseMeans,
    SingleEvents,
    SnapshotReleases,
)
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentReleases,
    FittedReleases,
    OwnBatch,
    PartialReleases,
    record_agent_hash,
)
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.charges import ReleaseLedger, ShardSpend
from meanstream.pipelines.beam.agents.fit_population import FitReleases
from meanstream.pipelines.beam.agents.gather_releases import gather_releases
from meanstream.pipelines.beam.agents.latest_by_agent import LatestOfShard
from meanstream.pipelines.beam.agents.newest_histograms import (
    newest_histograms,
    newest_histograms_together,
)
from meanstream.pipelines.beam.element_types.beam_samples import RememberedWords
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.element_types.packed import LATEST, unpacked
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.streaming.events.wire import Release
from meanstream.streaming.store.secret_source import noise_from_secret
from tests.pipelines.beam.support.agents_world import (
    HOUR,
    SETTINGS,
    assert_same_estimates,
    engine_on,
    samples,
)
from tests.pipelines.beam.support.collecting import collector, run_pipeline
from tests.streaming.support.rounds_world import SECRET

WITH = replace(SETTINGS, histogram_share=0.2, exceeds=(3.0, 7.5))
ASKED = (0.25, 0.9)
OPTIONS = EngineOptions(quantiles=ASKED)


def collaborate(
    how: dict[str, Any], stream: list[Any], settings: Any = WITH
) -> tuple[list[bytes], list[Any]]:
    """Lines of estimates, and batches of releases."""
    keep, released = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        answers = (
            pipeline
            | beam.Create(stream, reshuffle=False)
            | CollaborateAgents(settings, EngineOptions(quantiles=ASKED), **how)
        )
        _ = answers.releases | "Releases" >> keep
        return answers.estimates

    found, _ = run_pipeline(build)
    return sorted(line for batch in found for line in batch.lines), released


def test_of_more_agents_than_are_looked_at_both_hosts_look_at_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The known-bad twin looks at those who came first."""
    monkeypatch.setattr(prior_module, "MOST_LOOKED_AT", 10)
    stream = samples(900, 40)
    theirs = engine_on(tmp_path / "engine", stream, WITH, quantiles=ASKED).lines("estimates")
    ours, _ = collaborate({"shards": 3}, stream)
    assert_same_estimates(ours, theirs, WITH)
    monkeypatch.setattr(
        "meanstream.operators.collaboration.shares.asked_shares.sampled_histograms",
        lambda key: key.argsort()[-10:],
    )
    twin = engine_on(tmp_path / "twin", stream, WITH, quantiles=ASKED).lines("estimates")
    with pytest.raises(AssertionError):
        assert_same_estimates(ours, twin, WITH)


@pytest.mark.parametrize("how", [{}, {"refresh": 10 * HOUR}], ids=["once", "windows"])
def test_shards_together_are_answered_as_each_alone(
    how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for together in (1, 7, answer.TOGETHER):
        monkeypatch.setattr(answer, "TOGETHER", together)
        found.append(collaborate({"shards": 40, **how}, samples(900, 60))[0])
    assert found[0] == found[1] == found[2]
    assert all(len(json.loads(line)["quantiles"]) == 2 for line in found[0])


def test_a_reader_of_releases_learns_the_same_prior() -> None:
    """Of batches, of single events, and of both twice; the prior of fewer of them is another."""
    stream, windows = samples(), AgentWindows(refresh=None)

    def build(pipeline: beam.Pipeline) -> Any:
        made = pipeline | beam.Create(stream, reshuffle=False) | ReleaseMeans(WITH)
        events = made.releases | SingleEvents(WITH)
        _ = events | "Keep" >> keep
        read = (made, events, (events, events) | "Twice" >> beam.Flatten())
        return [
            one | f"Read {i}" >> SnapshotReleases(WITH, OPTIONS, windows)
            for i, one in enumerate(read)
        ] | ("Populations" >> beam.Flatten())

    keep, events = collector()
    found, _ = run_pipeline(build)
    priors = [prior_bytes(one.shares) for one in found]
    assert len(priors) == 3
    assert priors[0] == priors[1] == priors[2]
    fewer = [event for event in events if event.agent != "agent 3"]
    assert prior_bytes(snapshot(fewer).shares) != priors[0]
    assert prior_bytes(snapshot(events).shares) == priors[0]
    # Who asks nothing of histograms learns nothing of them; what has none is read by whoever asks.
    (plain,) = run_pipeline(
        lambda p: p | beam.Create(events, reshuffle=False) | SnapshotReleases(SETTINGS)
    )[0]
    assert plain.shares is None


def prior_bytes(prior: SharesPrior | None) -> bytes:
    assert prior is not None
    return b"".join(
        np.asarray(getattr(prior, field.name)).tobytes() for field in fields(SharesPrior)
    )


def snapshot(events: list[Release], settings: Any = WITH) -> FittedReleases:
    found: list[FittedReleases]
    found, _ = run_pipeline(
        lambda p: p | beam.Create(events, reshuffle=False) | SnapshotReleases(settings, OPTIONS)
    )
    (one,) = found
    return one


@pytest.fixture(name="events", scope="module")
def _events() -> list[Release]:
    """Releases of 12 agents, each once and with a histogram."""
    return events_of(WITH, 12, 40)


def events_of(settings: Any, agents: int, each: int, seed: int = 1) -> list[Release]:
    made = released(settings, agents, each, seed)
    return [Release.model_validate_json(line) for line in made.lines(settings).lines]


def released(settings: Any, agents: int, each: int, seed: int = 1) -> AgentReleases:
    """Give the newest release of agents with so many samples."""
    import pyarrow as pa

    everybody = Agents(settings, noise_from_secret(SECRET.encode(), settings.name))
    everybody.add_agents([f"agent {i}" for i in range(agents)])
    who, value = (
        np.repeat(np.arange(agents), each),
        np.random.default_rng(seed).normal(5, 2, agents * each),
    )
    everybody.update(who, value, np.arange(float(len(who))))
    names = pa.array(everybody.names, pa.large_string())
    return AgentReleases(
        names=names, number=0, releases=everybody.latest(), time=np.full(agents, 10.0)
    )


FORGED: dict[str, dict[str, Any]] = {
    "huge": {"counts": [10**9] * 19},
    "more samples than the release": {"samples": 10**6},
    "other noise": {"noise_variance": 1e-6},
    "other bins": {"counts": [3] * 5},
    "never counted": {"number": 0, "samples": 0, "counts": [0] * 19},
}


def test_histograms_that_cannot_have_been_told_are_left_out(events: list[Release]) -> None:
    """The releases that they came with count; the prior is that of the others'."""
    (bins,) = {len(event.histogram.counts) for event in events if event.histogram is not None}
    liars = list(FORGED)
    lies = []
    for event, lie in zip(events, liars, strict=False):
        said = json.loads(event.model_dump_json())
        said["histogram"] |= FORGED[lie] | (
            {"counts": FORGED[lie]["counts"][:1] * bins} if lie == "huge" else {}
        )
        lies.append(Release.model_validate_json(json.dumps(said)))
    found = snapshot([*lies, *events[len(lies) :]])
    assert found.agents == len(events)
    assert prior_bytes(found.shares) == prior_bytes(snapshot(events[len(lies) :]).shares)
    assert prior_bytes(found.shares) != prior_bytes(snapshot(events).shares)


def changes() -> list[PartialReleases]:
    """What two shards tell in two windows each: 15 agents each, whose histograms grow."""
    fit = FitReleases(WITH, OPTIONS, AgentWindows(refresh=None), StateOwner(settings={}))
    none = fit.empty()
    found = []
    rng = np.random.default_rng(6)
    for shard in (0, 1):
        key = np.sort(rng.integers(0, 2**62, 15))
        pool = LatestOfShard(WITH).pool
        for turn in (1, 2):
            some = key if turn == 1 else key[::2]
            number = np.full(len(some), turn)
            told = HistogramColumns(some, number, 9 * number, rng.integers(-9, 99, (len(some), 21)))
            found.append(
                PartialReleases(
                    summary=none.summary, pools={shard: pool}, turns={shard: turn}, histograms=told
                )
            )
    return found


@pytest.mark.parametrize("most", [20_000, 12])
def test_histograms_of_shards_join_in_any_order(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of each agent, of those of the least hashes; through bytes at each step."""
    monkeypatch.setattr(prior_module, "MOST_LOOKED_AT", most)
    coder, parts = ColumnsCoder(PartialReleases), changes()
    newest: dict[int, tuple[int, list[int]]] = {}
    for part in parts:
        told = part.histograms
        assert told is not None
        newest |= dict(
            zip(
                told.agent.tolist(),
                zip(told.number.tolist(), told.counts.tolist(), strict=True),
                strict=True,
            )
        )
    expected = sorted(newest)[:most]
    results = set()
    for seed in range(6):
        order = np.random.default_rng(seed).permutation(len(parts))
        whole = FitReleases(
            WITH, OPTIONS, AgentWindows(refresh=None), StateOwner(settings={})
        ).empty()
        waiting: list[PartialReleases] = []
        for place in order.tolist():
            told_now = [coder.decode(coder.encode(parts[place]))] * 2  # it comes twice
            whole = coder.decode(coder.encode(whole))
            waiting = whole.take(waiting + told_now)
        assert not waiting
        joined = whole.histograms
        assert joined is not None
        assert joined.agent.tolist() == expected
        assert [
            (n, c) for n, c in zip(joined.number.tolist(), joined.counts.tolist(), strict=True)
        ] == [newest[key] for key in expected]
        results.add(coder.encode(whole))
    assert len(results) == 1


def test_a_shard_keeps_histograms_in_its_bytes(events: list[Release]) -> None:
    shard, again = LatestOfShard(WITH), LatestOfShard(WITH)
    batches = list(gather_releases(events, WITH))
    shard.observe(batches, RememberedWords().of)
    for batch in batches:
        again.observe([batch], RememberedWords().of)
        again = LatestOfShard(WITH, again.to_bytes())
    assert again.to_bytes() == shard.to_bytes()
    assert shard.latest().histogram[:, 0].min() > 0
    assert again.latest().histogram.tobytes() == shard.latest().histogram.tobytes()


def test_what_moves_comes_back(events: list[Release]) -> None:
    made = released(WITH, 12, 40)
    found = ColumnsCoder(AgentReleases).decode(ColumnsCoder(AgentReleases).encode(made))
    assert found.releases.histogram.tolist() == made.releases.histogram.tolist()
    prior = snapshot(events)
    read = ColumnsCoder(FittedReleases).decode(ColumnsCoder(FittedReleases).encode(prior))
    assert prior_bytes(read.shares) == prior_bytes(prior.shares)
    agents = Agents(WITH, noise_from_secret(SECRET.encode(), WITH.name))
    agents.add_agents(["a", "b"])
    agents.update(np.array([0, 1, 1]), np.array([1.0, 9.9, 4.0]), np.arange(3.0))
    own = OwnBatch(
        names=made.names[:2], words=np.zeros((2, 2), np.uint64), number=3, own=agents.own(), part=np.array([3, 3]),
        newest=np.zeros(2),
    )  # fmt: skip
    back = ColumnsCoder(OwnBatch).decode(ColumnsCoder(OwnBatch).encode(own)).own.cells
    assert back.dtype == np.int64
    assert back.tolist() == agents.own().cells.tolist()
    assert back.sum(axis=1).tolist() == [1, 2]


def test_the_ledger_gives_the_stored_histogram_again() -> None:
    from meanstream.operators.agents.agents import ReleaseBatch

    made, rows = released(WITH, 5, 40), []
    first = replace(made.releases, index=np.ones(5, np.int64))
    none = np.zeros(0, np.int64)
    batch = ReleaseBatch(
        releases=first, version=np.full(5, 7, np.uint64), time=made.time, exhausted=none
    )
    words, spend = np.arange(10, dtype=np.uint64).reshape(5, 2), ShardSpend()
    spend.rounds = np.zeros(5, np.int64)
    _, _, row = ReleaseLedger(spend, lambda: rows).charge(batch, words, np.arange(5))
    assert row is not None
    rows.append(row)
    fresh = replace(batch, releases=replace(first, histogram=first.histogram + 5))
    again, refused, row = ReleaseLedger(spend, lambda: rows).charge(fresh, words, np.arange(5))
    assert row is None
    assert not refused.any()
    assert again.releases.histogram.tolist() == first.histogram.tolist()


RELEASES = {"", "agent", "index", "count", "total", "mean", "noise_variance"}


def test_deployments_without_histograms_have_the_columns_that_they_had() -> None:
    """So their bytes are those that they had: nothing else was added to a head."""
    made = released(SETTINGS, 12, 40)
    shard = LatestOfShard(SETTINGS)
    shard.observe([made], RememberedWords().of)
    head, columns = unpacked(shard.to_bytes(), LATEST)
    assert {*head} == {"pool"}
    assert {"", *(name for name in columns if not name.startswith("own "))} == RELEASES | {"votes"}


def test_batches_with_other_bins_count_without_their_histograms() -> None:
    other = released(replace(WITH, exceeds=(4.0, 4.1, 4.2, 4.3)), 12, 40)
    assert other.releases.histogram.shape[1] != released(WITH, 12, 40).releases.histogram.shape[1]
    for settings in (WITH, SETTINGS):
        (found,) = run_pipeline(
            lambda p: p | beam.Create([other], reshuffle=False) | SnapshotReleases(settings)  # noqa: B023
        )[0]
        assert found.agents == 12


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: CollaborateAgents(SETTINGS, EngineOptions(quantiles=(0.5,))),
            "quantiles must be left out with histogram_share 0, got",
        ),
        (
            lambda: SnapshotReleases(SETTINGS, OPTIONS),
            "quantiles must be left out with histogram_share 0, got",
        ),
        (
            lambda: EstimateAgents(SETTINGS, OPTIONS, AgentWindows(refresh=None), population=None),  # type: ignore[arg-type]
            "quantiles must be left out with histogram_share 0, got",
        ),
        (
            lambda: CollaborateAgents(WITH, EngineOptions(quantiles=(1.5,))),
            r"quantiles must lie in \(0, 1\), got 1.5",
        ),
    ],
)
def test_what_cannot_be_told_is_refused_in_one_line(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_settings_by_name_make_a_histogram_where_something_is_asked() -> None:
    given = {"name": "test", "lower": 0, "upper": 10, "epsilon": 1.0, "delta": 1e-6}
    made = CollaborateAgents(options=EngineOptions(quantiles=(0.5,)), **given)  # type: ignore[arg-type]
    shown = made.display_data()
    assert shown["histogram_share"] == 0.1
    assert shown["quantiles"] == "(0.5,)"


@pytest.mark.parametrize(("groups", "agents"), [(1, 400), (8, 400), (8, 30), (40, 2000)])
def test_groups_tell_of_all_that_a_prior_of_everybody_is_learned_of(
    groups: int, agents: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes first, whatever changes later: the newest histogram of each of the least hashes
    of all."""
    monkeypatch.setattr(prior_module, "MOST_LOOKED_AT", 100)
    words = keyed_owner_words([f"agent {i}" for i in range(agents)])
    key, group = record_agent_hash(words), (words[:, 1] % np.uint64(groups)).astype(int)
    rng, seen = np.random.default_rng(2), np.zeros(agents, bool)
    count, told_rows = np.zeros(agents, np.int64), 0
    joined = HistogramColumns(*(np.zeros(0, np.int64),) * 3, np.zeros((0, 1), np.int64))
    for _ in range(12):
        some = rng.random(agents) < 0.3
        seen |= some
        count += some
        for g in range(groups):
            now = np.flatnonzero(some & (group == g))
            now = now[np.argsort(key[now])]
            real = np.zeros(len(now))
            releases = ReleaseColumns(
                agent=key[now], index=count[now], count=count[now], total=count[now], mean=real, noise_variance=real,
                histogram=np.stack([count[now]] * 3, axis=1),
            )  # fmt: skip
            told = newest_histograms(releases, np.sort(key[seen & (group == g)]), groups)
            told_rows = max(told_rows, len(told.agent))
            joined = newest_histograms_together(joined, told)
    order = np.argsort(key)
    expected = order[seen[order]][:100]
    assert joined.agent.tolist() == key[expected].tolist()
    assert joined.counts[:, 0].tolist() == count[expected].tolist()
    if groups == 40:
        assert told_rows < 40  # of 50 in a group; of ever more agents no more


def test_a_group_of_ten_million_agents_tells_of_few() -> None:
    key = np.arange(12_500)
    column = np.ones(12_500, np.int64)
    releases = ReleaseColumns(
        agent=key, index=column, count=column, total=column, mean=column * 1.0, noise_variance=column * 1.0,
        histogram=np.ones((12_500, 21), np.int64),
    )  # fmt: skip
    assert len(newest_histograms(releases, key, 800).agent) == 25 + 40 + 16
