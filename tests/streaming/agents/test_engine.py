"""What the engine lets out: order, lateness, duplicates, the horizon, estimates, refusals."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.agents_settings import settings_identity
from meanstream.streaming.agents.agents_budget import agents_budgets
from meanstream.streaming.agents.agents_releases import OWN_RELEASES
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.base import Event
from meanstream.streaming.events.wire import (
    BudgetEvent,
    PersonalEstimate,
    Population,
    Refusal,
    Release,
)
from meanstream.streaming.store.state_store import Store
from tests.streaming.support.scripted_source import ScriptedSource, SettableClock

LATENESS = 5.0


def run(
    world_type: Any, samples: list[Any], *, batch_size: int, ids: list[int], schedule: str
) -> tuple[Any, Any]:
    with tempfile.TemporaryDirectory() as folder:
        world = world_type(Path(folder))
        world.settings = replace(world.settings, schedule=schedule)
        world.options = EngineOptions(batch_size=batch_size, allowed_lateness=LATENESS, quorum=1)
        stats = world.run(ScriptedSource(samples, ids=ids), roles=["releases"])
        return stats, sorted(world.lines("releases"))


@settings(max_examples=25, deadline=None)
@given(
    times=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    batch_size=st.integers(1, 20),
    schedule=st.sampled_from(["geometric:2,1.5", "every:7s"]),
    shift=st.randoms(use_true_random=False),
)
def test_order_of_arrival_within_the_lateness_and_batches_change_no_release(
    times: list[int], batch_size: int, schedule: str, shift: Any, world_type: Any
) -> None:
    times = sorted(times)
    samples = [(f"agent {i % 3}", float(i % 11), float(t)) for i, t in enumerate(times)]
    ids = list(range(1, len(samples) + 1))
    stats, expected = run(world_type, samples, batch_size=1000, ids=ids, schedule=schedule)
    # Delays shorter than the lateness: a sample never arrives after one that is later by as much.
    order = sorted(range(len(samples)), key=lambda i: times[i] + shift.uniform(0, LATENESS - 0.001))
    shuffled = [samples[i] for i in order]
    again, found = run(
        world_type, shuffled, batch_size=batch_size, ids=[ids[i] for i in order], schedule=schedule
    )
    assert again.accepted == stats.accepted == len(samples)
    assert not again.rejected
    assert found == expected


@settings(max_examples=25, deadline=None)
@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=60),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    ids=st.lists(st.integers(1, 25), min_size=60, max_size=60),
)
def test_which_samples_are_late_does_not_depend_on_batches(
    times: list[int], sizes: tuple[int, int], ids: list[int], world_type: Any
) -> None:
    samples = [(f"agent {i % 3}", 1.0, float(t)) for i, t in enumerate(times)]
    unique = list(range(1, len(samples) + 1))
    one, two = (
        run(world_type, samples, batch_size=s, ids=unique, schedule="geometric:2,1.5")
        for s in sizes
    )
    assert one[0].rejected == two[0].rejected
    assert one[1] == two[1]
    newest = -np.inf
    late = 0
    for t in times:
        late += t < newest - LATENESS
        newest = max(newest, t)
    assert one[0].rejected["late"] == late


def test_releases_are_those_of_the_agents_alone(world: Any) -> None:
    """The oracle: sums of the clipped samples, and the noise of the keyed source at the released
    counts."""
    values = np.linspace(-2, 12, 90)
    world.run(ScriptedSource([("ann", float(v), float(i)) for i, v in enumerate(values)]))
    releases = [Release.model_validate_json(line) for line in world.lines("releases")]
    assert [r.index for r in releases] == list(range(1, len(releases) + 1))
    assert [r.n for r in releases] == [
        *world.settings.times.times(len(releases) - 1).tolist(),
        90,
    ]  # and at the end
    clipped = np.clip(values, 0, 10)
    for r in releases:
        # A false alarm has probability 1e-9 per release: 6.1 standard errors of a Gaussian.
        assert abs(r.mean - clipped[: r.n].mean()) < 6.1 * np.sqrt(r.noise_variance)
        assert r.time.timestamp() == r.n - 1


def test_every_line_is_a_valid_event(world: Any) -> None:
    world.run(ScriptedSource([(f"a{i % 3}", float(i % 9), i / 7) for i in range(300)]))
    kinds: dict[str, type[Event]] = {
        "releases": Release,
        "estimates": PersonalEstimate,
        "population": Population,
    }
    for role, kind in kinds.items():
        assert [kind.model_validate_json(line) for line in world.lines(role)]
    assert [BudgetEvent.model_validate_json(line).agent for line in world.lines("notices")] == []
    assert (world.folder / "estimates.jsonl").stat().st_mode & 0o777 == 0o600


def test_at_the_end_everybody_with_a_sample_has_a_newest_estimate(world: Any) -> None:
    samples = [(f"a{i % 3}", float(i % 9), float(i)) for i in range(60)] + [("rare", 4.0, 60.0)]
    stats = world.run(ScriptedSource(samples))
    newest = {e["agent"]: e for e in world.events("estimates")}
    assert {a: e["n"] for a, e in newest.items()} == {"a0": 20, "a1": 20, "a2": 20, "rare": 1}
    assert newest["rare"]["local"] == pytest.approx(4.0, abs=1e-5)
    assert all(e["time"] == "1970-01-01T00:01:00Z" for e in newest.values())
    assert all(
        0 <= e["interval"][0] <= e["value"] <= e["interval"][1] <= 10 for e in newest.values()
    )
    assert stats.estimates == len(world.lines("estimates"))
    assert stats.median_half_width is not None


def test_the_horizon_ends_the_releases_with_a_notice(world: Any) -> None:
    world.settings = AgentsSettings(
        name="test",
        lower=0,
        upper=10,
        epsilon=1,
        delta=1e-6,
        counter="pm2",
        schedule="geometric:1,1.1",
        horizon=4,
    )
    stats = world.run(
        ScriptedSource([("ann", 1.0, float(i)) for i in range(100)] + [("bob", 1.0, 100.0)])
    )
    notice = BudgetEvent.model_validate_json(world.lines("notices")[0])
    assert (notice.agent, notice.spent, notice.horizon) == ("ann", 4, 4)
    last = Release.model_validate_json(world.lines("releases")[3])
    assert (last.index, last.time) == (4, notice.time)
    assert (len(world.lines("notices")), stats.exhausted) == (1, 1)
    assert len(world.lines("releases")) == 5
    shown = {
        b.agent: (b.spent, b.remaining, b.horizon)
        for b in agents_budgets(world.folder / "s.db").agents
    }
    assert shown == {"ann": (4, 0, 4), "bob": (1, 3, 4)}
    assert (stats.spenders, stats.most_spent) == (2, 4)


def test_what_the_engine_counts_is_what_it_wrote(world: Any) -> None:
    samples = [(f"a{i % 3}", 20.0 if i % 10 == 0 else float(i % 9), float(i)) for i in range(60)]
    samples += [("a1", 1.0, 10.0), ("rare", 4.0, 61.0), ("rare", 4.0, 62.0)]
    ids = [*range(1, 63), 62]
    lives = [world.run(ScriptedSource(samples[:end], ids=ids[:end])) for end in (40, 63)]
    assert [(s.events, s.accepted, dict(s.rejected), s.clipped) for s in lives] == [
        (40, 40, {}, 4),
        (23, 21, {"late": 1, "duplicate": 1}, 2),
    ]
    assert sum(s.releases for s in lives) == len(world.lines("releases"))
    assert sum(s.estimates for s in lives) == len(world.lines("estimates"))
    assert len(world.lines("dead_letters")) == 2
    assert [s.agents for s in lives] == [3, 4]
    assert [s.commits for s in lives] == [4, 3]  # batches of 16, and the end
    last = lives[-1]
    names = [event["agent"] for event in world.events("releases")]
    of_lives = [Counter(part) for part in (names[: lives[0].releases], names[lives[0].releases :])]
    assert [(s.spenders, s.most_spent) for s in lives] == [
        (len(one), max(one.values())) for one in of_lives
    ]
    made = Counter(names)
    assert last.spent == tuple(
        list(made.values()).count(k) for k in range(world.settings.horizon + 1)
    )
    assert last.event_time == 61.0
    assert (last.refusals, last.exhausted) == (0, 0)


def test_a_second_release_of_an_id_from_another_input_is_refused(
    new_world: Callable[[str], Any],
) -> None:
    """The state of the agents is lost (as after a wrong repair), the ledger is not."""
    world = new_world("repaired")
    world.run(ScriptedSource([("ann", float(i % 5), float(i)) for i in range(12)]))
    before = world.lines("releases")
    world.lose_agents()
    other = [("ann", 5.0 if i == 0 else float(i % 5), float(i)) for i in range(12)]
    stats = world.run(ScriptedSource(other))
    assert stats.refusals == len(before)
    assert world.lines("releases") == before
    refusals = [Refusal.model_validate_json(line) for line in world.lines("notices")]
    assert [r.release_id for r in refusals] == [f"world/ann:{i + 1}" for i in range(len(before))]


def test_the_same_release_again_is_not_charged_again(new_world: Callable[[str], Any]) -> None:
    world = new_world("replayed")
    samples = [("ann", float(i % 5), float(i)) for i in range(12)]
    world.run(ScriptedSource(samples))
    before, spent = world.lines("releases"), agents_budgets(world.folder / "s.db")
    world.lose_agents()
    stats = world.run(ScriptedSource(samples))
    assert stats.refusals == 0
    assert world.lines("releases") == before
    assert agents_budgets(world.folder / "s.db") == spent


def test_duplicates_are_recognized_across_batches_and_restarts(world: Any) -> None:
    world.options = EngineOptions(batch_size=4, allowed_lateness=20.0)
    samples = [("ann", 1.0, float(i)) for i in range(16)]
    stops = iter([False] * 2)
    source = ScriptedSource(samples + samples, ids=list(range(1, 17)) * 2)
    first = world.run(source, stop=lambda: next(stops, True))
    second = world.run(ScriptedSource(source.script, ids=list(range(1, 17)) * 2))
    assert first.accepted + second.accepted == 16
    assert second.rejected == {"duplicate": 16}


def test_equal_ids_of_two_sources_are_two_samples(world: Any) -> None:
    samples = [("ann", 1.0, float(i)) for i in range(8)]
    world.run(ScriptedSource(samples, ids=list(range(1, 9)), name="one"))
    later = [("ann", 1.0, 8.0 + i) for i in range(8)]
    stats = world.run(ScriptedSource(later, ids=list(range(1, 9)), name="two"))
    assert stats.accepted == 8


def test_a_release_holds_all_samples_of_its_time(world_type: Any) -> None:
    """Where in the source a sample stands, among those of its time, moves none over a release."""
    totals = []
    for order in ([3, 1, 2, 4], [4, 3, 2, 1]):
        samples = [("ann", float(number), 1.0) for number in order]
        with tempfile.TemporaryDirectory() as folder:
            world = world_type(Path(folder))
            world.run(ScriptedSource([*samples, ("ann", 9.0, 2.0)]), roles=["releases"])
            (first, *_) = world.events("releases")
            totals.append((first["n"], first["total"]))
    assert totals[0] == totals[1]
    assert totals[0][0] == 4


def test_what_agents_have_released_goes_on_after_a_restart(new_world: Callable[[str], Any]) -> None:
    script = [(f"agent {i % 3}", float(i * 7 % 11), float(i)) for i in range(60)]
    whole, parted = new_world("whole"), new_world("parted")
    whole.run(ScriptedSource(script))
    stops = iter([False] * 2)
    parted.run(ScriptedSource(script), stop=lambda: next(stops, True))
    store = Store.open(
        parted.folder / "s.db",
        settings=settings_identity(parted.settings),
        secret=parted.secret.encode(),
    )
    assert len(list(store.chunks(OWN_RELEASES))) == 1
    store.close()
    parted.run(ScriptedSource(script))
    assert parted.lines("estimates")[-3:] == whole.lines("estimates")[-3:]
    assert parted.lines("population")[-1:] == whole.lines("population")[-1:]
    (found,), (expected,) = (
        [columns for _, columns in read_own(world)] for world in (parted, whole)
    )
    assert all(
        np.array_equal(found[name][:3], expected[name][:3])
        for name in expected
        if name != "version"
    )
    assert found["length"].tolist()[:3] == [7, 7, 7]


def read_own(world: Any) -> list[tuple[int, dict[str, Any]]]:
    store = Store.read(world.folder / "s.db")
    try:
        return list(store.chunks(OWN_RELEASES))
    finally:
        store.close()


def test_a_source_with_nothing_to_give_is_asked_again_later(world: Any) -> None:
    clock = SettableClock(2e9)
    world.clock = clock
    asked = iter(range(100))
    world.run(ScriptedSource([("ann", 1.0, 0.0)], bounded=False), stop=lambda: next(asked) >= 11)
    assert clock.now() == pytest.approx(2e9 + 10 * world.options.poll)
