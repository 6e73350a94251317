"""Quantiles and exceedances on the engine: what is released, what each agent is told, after deaths
and by strangers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import meanstream
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.own_histogram import histograms_of_releases
from meanstream.operators.agents.release_checks import PossibleReleases
from meanstream.operators.collaboration.shares.shares_posterior import own_shares
from meanstream.streaming.agents.collaborating_site import Collaborator
from meanstream.streaming.agents.estimates import ShareEstimates
from meanstream.streaming.agents.saved_agents import own_settings
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.wire import PersonalEstimate, Release
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.sources.received_releases import ReceivedReleases
from meanstream.streaming.sources.releases_file import ReleasesFile
from meanstream.streaming.store.state_store import StoreError
from tests.streaming.support.dying import DieAt, Died
from tests.streaming.support.scripted_source import MemorySink, ScriptedSource, SettableClock
from tests.streaming.support.stored_rows import stored_rows

AGENTS = 12
ON_KAFKA = {CrashPoint.PRODUCE, CrashPoint.SEND_MARKER, CrashPoint.COMMIT_TRANSACTION}
POINTS = [point for point in CrashPoint if point not in ON_KAFKA]
SECRET = "7c1e94b05fa3d2681be60c9d37f25a84"  # noqa: S105 - of a test


def samples(agents: range = range(AGENTS), n: int = 60) -> list[Any]:
    rng = np.random.default_rng(3)
    rows = [(a, t) for t in range(n) for a in range(AGENTS)]
    values = rng.normal(np.where(np.array([a for a, _ in rows]) % 2, 3.0, 7.0), 1.0)
    return [
        (f"agent {a}", float(v), float(t))
        for (a, t), v in zip(rows, values, strict=True)
        if a in agents
    ]


def asking(world: Any, **changes: Any) -> Any:
    world.settings = replace(world.settings, histogram_share=0.2, exceeds=(5.0,), **changes)
    world.options = replace(world.options, quantiles=(0.5, 0.9))
    return world


@pytest.fixture
def new_asking(new_world: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda name: asking(new_world(name))


def ledger(folder: Path) -> list[Any]:
    return stored_rows(folder / "s.db")


def test_releases_carry_histograms_and_agents_are_told_of_their_own(
    new_asking: Callable[[str], Any],
) -> None:
    world = asking(new_asking("w"), epsilon=1000.0)
    world.run(ScriptedSource(samples()))
    releases = [Release.model_validate_json(line) for line in world.lines("releases")]
    histogram = world.settings.histogram
    for one in releases:
        assert one.histogram is not None
        assert len(one.histogram.counts) == histogram.bins
        assert one.histogram.noise_variance == histogram.noise.variance
        assert one.histogram.samples <= one.n <= 3 * one.histogram.samples + 2
    told = [PersonalEstimate.model_validate_json(line) for line in world.lines("estimates")][
        -AGENTS:
    ]
    values = {
        f"agent {a}": np.array([v for who, v, _ in samples() if who == f"agent {a}"])
        for a in range(AGENTS)
    }
    for one in told:
        assert one.quantiles is not None
        assert one.exceeds is not None
        own = values[one.agent]
        assert [q.quantile for q in one.quantiles] == [0.5, 0.9]
        for asked in one.quantiles:
            assert asked.interval[0] <= asked.value <= asked.interval[1]
            assert asked.value == pytest.approx(np.quantile(own, asked.quantile), abs=0.6)
        (share,) = one.exceeds
        assert share.threshold == 5.0
        assert share.interval[0] <= share.share <= share.interval[1]
        assert share.share == pytest.approx(np.mean(own > 5), abs=0.1)


def test_without_a_histogram_every_byte_is_as_before(new_world: Callable[[str], Any]) -> None:
    """Quantiles that nobody's settings have a histogram for change nothing; nor has a release a
    word of it."""
    plain, asked = new_world("plain"), new_world("asked")
    asked.options = replace(asked.options, quantiles=(0.5,))
    for world in (plain, asked):
        world.run(ScriptedSource(samples()))
    assert plain.files() == asked.files()
    assert not any(
        b"histogram" in line or b"quantiles" in line
        for one in plain.files().values()
        for line in [one]
    )


def test_killed_at_every_step_the_outputs_are_the_same_bytes(
    new_asking: Callable[[str], Any],
) -> None:
    whole = new_asking("whole")
    whole.run(ScriptedSource(samples(n=24)))
    for point, (moment, visit) in product(POINTS, ((Moment.BEFORE, 1), (Moment.AFTER, 2))):
        world = new_asking(f"{point.name} {visit}")
        twice = point is CrashPoint.MARK_DELIVERY  # at the start and at the end of a run
        with pytest.raises(Died):
            world.run(
                ScriptedSource(samples(n=24)),
                crash=DieAt(point, moment, min(visit, 2 if twice else 3)),
            )
        world.run(ScriptedSource(samples(n=24)))
        assert world.files() == whole.files()
        assert ledger(world.folder) == ledger(whole.folder)


@pytest.mark.parametrize(
    "changes",
    [{"histogram_share": 0.3}, {"exceeds": (4.0,)}, {"histogram_share": 0.0, "exceeds": ()}],
)
def test_a_store_refuses_what_changes_the_noise_and_takes_other_quantiles(
    changes: dict[str, Any], new_asking: Callable[[str], Any]
) -> None:
    world = new_asking("w")
    world.run(ScriptedSource(samples(n=20)))
    before = world.files()
    settings, world.settings = world.settings, replace(world.settings, **changes)
    with pytest.raises(StoreError, match=r"histogram_share|exceeds"):
        world.run(ScriptedSource(samples(n=20)))
    assert world.files() == before
    world.settings, world.options = settings, replace(world.options, quantiles=(0.25,))
    world.run(ScriptedSource(samples()))
    assert [q["quantile"] for q in world.events("estimates")[-1]["quantiles"]] == [0.25]


def frame_of(rows: list[Any]) -> pa.Table:
    agent, value, time = zip(*rows, strict=True)
    return pa.table({"agent": agent, "value": value, "time": time})


@pytest.mark.parametrize("collaboration", ["learned_prior", "none"])
def test_private_means_and_the_engine_say_the_same(
    collaboration: str, new_world: Callable[[str], Any]
) -> None:
    """The same releases, and of them, read as a stranger reads them, the same public answers, to
    the last bit."""
    bounds = {"lower": 0.0, "upper": 10.0, "epsilon": 1.0, "delta": 1e-6}
    world = new_world("engine")
    schedule = "geometric:2,1.5"
    world.settings = AgentsSettings(
        **bounds, horizon=12, schedule=schedule, name="world", histogram_share=0.1, exceeds=(5.0,)
    )
    world.options = EngineOptions(collaboration=collaboration, quantiles=(0.5, 0.9))
    world.run(ScriptedSource(samples()))
    found = meanstream.private_means(
        frame_of(samples()), by="agent", value="value", time="time", **bounds, releases=12, schedule=schedule,
        quantiles=[0.5, 0.9], exceeds=[5.0], collaboration=collaboration, secret=world.secret, name="world",
    )  # fmt: skip
    received = ReceivedReleases(PossibleReleases(world.settings))
    received.take([(json.loads(line)["agent"].encode(), line) for line in world.lines("releases")])
    assert not received.rejected
    latest, told = received.latest(), ShareEstimates(world.settings, world.options)
    assert world.settings.histogram.possible_of(latest.columns, latest.histogram_variance).all()
    prior = told.fit_newest(latest.names, latest.columns)
    answers = told.released(prior, histograms_of_releases(latest.columns))
    table = found.to_arrow()
    place = [table.column("agent").to_pylist().index(name) for name in latest.names]
    for name, column in (("q0.5", answers.quantiles[:, 0]), ("q0.9", answers.quantiles[:, 1]),
                         ("exceeds5", answers.exceeds[:, 0])):  # fmt: skip
        for i, end in enumerate(("", "_lower", "_upper")):
            assert np.asarray(table.column(name + end))[place].tobytes() == column[:, i].tobytes()
    # What the engine has told an agent is its own cells under that same prior.
    engine, names = world.engine.agents, world.engine.agents.names
    own = told.columns(told.own(prior, engine.own()))
    last = {event["agent"]: event for event in world.events("estimates")}
    assert prior.agents == (0 if collaboration == "none" else AGENTS)
    assert own_shares(prior, engine.own().cells).shares.shape == engine.own().cells.shape
    for at, name in enumerate(names):
        assert [q["value"] for q in last[name]["quantiles"]] == [
            q.value for q in own["quantiles"][at]
        ]
        assert last[name]["exceeds"][0]["interval"] == list(own["exceeds"][at][0].interval)


def collaborator(world: Any, path: Path, **changes: Any) -> Collaborator:
    return Collaborator(
        releases=ReleasesFile(path, PossibleReleases(world.settings)),
        store=world.folder / "s.db",
        settings=own_settings(world.folder / "s.db"),
        options=replace(world.options, **changes),
        sinks=Sinks(
            estimates=MemorySink(trust=Trust.PRIVATE), population=MemorySink(trust=Trust.PUBLIC)
        ),
        every=10.0,
        clock=SettableClock(1000.0),
    )


def told_by(made: Collaborator) -> dict[str, Any]:
    made.run(until_end=True)
    lines = made._sinks.estimates.lines  # type: ignore[union-attr]
    return {e["agent"]: (e["quantiles"], e["exceeds"]) for e in map(json.loads, lines)}


def test_two_organizations_are_told_what_one_engine_tells(
    new_asking: Callable[[str], Any], tmp_path: Path
) -> None:
    """The same bytes, in whatever order agents are met: who is looked at and in which order follows
    from names."""
    hosted = new_asking("hosted")
    hosted.run(ScriptedSource(samples()))
    expected = {e["agent"]: (e["quantiles"], e["exceeds"]) for e in hosted.events("estimates")}
    sides = []
    for name, agents in (("left", range(5)), ("right", range(5, AGENTS))):
        side = new_asking(name)
        side.run(ScriptedSource(samples(agents)), roles=("releases",))
        sides.append(side)
    path, found = tmp_path / "releases.jsonl", {}
    path.write_bytes(
        b"".join((side.folder / "releases.jsonl").read_bytes() for side in reversed(sides))
    )
    for side in sides:
        found |= told_by(collaborator(side, path))
    assert found == expected


def test_a_strangers_histogram_that_nobody_can_have_made_is_as_if_it_were_not_there(
    new_asking: Callable[[str], Any], tmp_path: Path
) -> None:
    world = new_asking("w")
    world.run(ScriptedSource(samples()))
    honest = world.lines("releases")
    good = tmp_path / "good.jsonl"
    last = {json.loads(line)["agent"]: i for i, line in enumerate(honest)}

    def forged(name: str, **changes: Any) -> Path:
        """The last releases of four agents carry something else."""
        lines = list(honest)
        for agent in ("agent 0", "agent 3", "agent 7", "agent 8"):
            event = json.loads(lines[last[agent]])
            if changes:
                event["histogram"] |= changes
            else:
                del event["histogram"]
            lines[last[agent]] = json.dumps(event).encode()
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b"\n".join(lines) + b"\n")
        return path

    good.write_bytes(b"\n".join(honest) + b"\n")
    whole, without = (
        told_by(collaborator(world, good)),
        told_by(collaborator(world, forged("none"))),
    )
    assert whole != without
    bins = world.settings.histogram.bins
    for name, changes in {
        "precise": {"noise_variance": 1e-9},
        "vague": {"noise_variance": 1e9},
        "more": {"samples": 10**6},
        "often": {"number": 40},
        "bins": {"counts": [1] * (bins + 1)},
        "one": {"counts": [5]},
        "far": {"counts": [2**39, -(2**39), *[0] * (bins - 2)]},
    }.items():
        assert told_by(collaborator(world, forged(name, **changes))) == without, name
    huge = collaborator(world, forged("huge", counts=[2**70, *[0] * (bins - 1)]))
    huge.run(until_end=True)
    assert huge.stats.rejected == {"malformed": 4}
