"""Agent-side and collaboration apart give the agents what the engine that does both gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.release_checks import PossibleReleases
from meanstream.streaming.agents.collaborating_site import Collaborator
from meanstream.streaming.agents.saved_agents import own_settings
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.sources.releases_file import ReleasesFile
from tests.streaming.support.scripted_source import MemorySink, ScriptedSource, SettableClock

AGENTS = 12


def samples(agents: range, seed: int = 3) -> list[Any]:
    rng = np.random.default_rng(seed)
    rows = [(a, t) for t in range(60) for a in range(AGENTS)]
    values = rng.normal(np.where(np.array([a for a, _ in rows]) % 2, 3.0, 7.0), 1.0)
    return [
        (f"agent {a}", float(v), float(t))
        for (a, t), v in zip(rows, values, strict=True)
        if a in agents
    ]


def side(new_world: Callable[[str], Any], name: str, agents: range) -> Any:
    """One organization: raw samples in, releases out."""
    world = new_world(name)
    world.run(ScriptedSource(samples(agents)), roles=("releases",))
    return world


def collaborator(world: Any, path: Path, **changes: Any) -> Collaborator:
    given = {
        "releases": ReleasesFile(path),
        "store": world.folder / "s.db",
        "settings": own_settings(world.folder / "s.db"),
        "options": world.options,
        "sinks": Sinks(
            estimates=MemorySink(trust=Trust.PRIVATE), population=MemorySink(trust=Trust.PUBLIC)
        ),
        "every": 10.0,
        "clock": SettableClock(1000.0),
    }
    return Collaborator(**{**given, **changes})


def estimates(made: Collaborator) -> dict[str, Any]:
    return {e["agent"]: e for e in map(json.loads, made._sinks.estimates.lines)}  # type: ignore[union-attr]


def test_two_organizations_get_what_one_engine_gives_them(
    new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    hosted = new_world("hosted")
    hosted.run(ScriptedSource(samples(range(AGENTS))))
    expected = {e["agent"]: e for e in hosted.events("estimates")[-AGENTS:]}

    left, right = side(new_world, "left", range(5)), side(new_world, "right", range(5, AGENTS))
    together = tmp_path / "releases.jsonl"
    together.write_bytes(
        b"".join((w.folder / "releases.jsonl").read_bytes() for w in (left, right))
    )
    found = {}
    for world in (left, right):
        made = collaborator(world, together)
        stats = made.run(until_end=True)
        assert (stats.agents, stats.own_agents) == (AGENTS, len(estimates(made)))
        assert (stats.releases, stats.estimates) == (
            len(together.read_bytes().splitlines()),
            len(estimates(made)),
        )
        assert (stats.refreshes, dict(stats.rejected)) == (1, {})
        found.update(estimates(made))
    assert found.keys() == expected.keys()
    for agent, estimate in found.items():
        # the releases are the same bytes; only the order of the agents, and so of sums, differs
        assert estimate["local"] == expected[agent]["local"]
        np.testing.assert_allclose(estimate["value"], expected[agent]["value"], rtol=1e-6)
        np.testing.assert_allclose(estimate["interval"], expected[agent]["interval"], rtol=1e-6)


def test_releases_of_others_help(new_world: Callable[[str], Any], tmp_path: Path) -> None:
    left, right = side(new_world, "left", range(5)), side(new_world, "right", range(5, AGENTS))
    alone = collaborator(left, left.folder / "releases.jsonl")
    alone.run(until_end=True)
    both = tmp_path / "releases.jsonl"
    both.write_bytes(b"".join((w.folder / "releases.jsonl").read_bytes() for w in (right, left)))
    together = collaborator(left, both)
    together.run(until_end=True)
    assert set(estimates(alone)) == set(estimates(together)) == {f"agent {a}" for a in range(5)}
    assert estimates(alone) != estimates(together)


def test_it_answers_again_when_releases_or_own_samples_have_come(
    new_world: Callable[[str], Any],
) -> None:
    world = new_world("growing")
    script = samples(range(AGENTS))
    world.run(ScriptedSource(script[: 17 * AGENTS]), roles=("releases",))
    clock = SettableClock(1000.0)
    made = collaborator(world, world.folder / "releases.jsonl", clock=clock)
    turns = 0

    def stop() -> bool:
        """Let more samples come after twelve seconds, and look at what was answered until twenty
        more have passed."""
        nonlocal turns
        turns += 1
        if turns == 120:
            world.run(ScriptedSource(script), roles=("releases",))
        return turns > 320

    stats = made.run(stop)
    assert stats.refreshes == 2  # at the start, and once for what came
    assert stats.estimates == 2 * AGENTS
    assert {e["n"] for e in estimates(made).values()} == {60}


def test_a_clock_that_is_set_back_holds_no_answer_up(new_world: Callable[[str], Any]) -> None:
    world = new_world("set back")
    script = samples(range(AGENTS))
    world.run(ScriptedSource(script[: 17 * AGENTS]), roles=("releases",))
    clock = SettableClock(10_000.0)
    made = collaborator(world, world.folder / "releases.jsonl", clock=clock)
    turns = 0

    def stop() -> bool:
        """Set the clock back by an hour after some answers, then let more samples come."""
        nonlocal turns
        turns += 1
        if turns == 120:
            clock.set(clock.now() - 3600.0)
            world.run(ScriptedSource(script), roles=("releases",))
        return turns > 320

    assert made.run(stop).refreshes == 2
    assert {e["n"] for e in estimates(made).values()} == {60}


def test_without_samples_of_its_own_it_waits(
    new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    left = side(new_world, "left", range(5))
    empty = new_world("empty")
    empty.run(ScriptedSource([]), roles=("releases",))
    made = collaborator(empty, left.folder / "releases.jsonl")
    assert made.run(until_end=True).estimates == 0


def test_what_is_no_release_is_left_out(new_world: Callable[[str], Any], tmp_path: Path) -> None:
    left = side(new_world, "left", range(5))
    clean = collaborator(left, left.folder / "releases.jsonl")
    clean.run(until_end=True)
    dirty = tmp_path / "releases.jsonl"
    lines = (left.folder / "releases.jsonl").read_bytes().splitlines()
    bad = [
        b"",
        b"no json",
        b"{}",
        b'{"agent":"\xff"}',
        lines[0],
        lines[0].replace(b'"n":', b'"m":'),
    ]
    dirty.write_bytes(b"\n".join([*lines, *bad, b'{"torn']))
    made = collaborator(left, dirty)
    made.run(until_end=True)
    assert estimates(made) == estimates(clean)


@pytest.mark.parametrize("name", ["releases.txt", "none.jsonl"])
def test_a_file_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "releases.txt").touch()
    with pytest.raises(ValueError, match=r"releases must be a readable \.jsonl file"):
        ReleasesFile(tmp_path / name)


def forged(line: bytes) -> list[bytes]:
    """What a stranger may send in the place of a release."""
    event = json.loads(line)
    changes: list[dict[str, Any]] = [
        {"n": event["n"] * 1000, "mean": 0.0, "total": 0, "noise_variance": 1e-9},
        {"n": 10_000_000},
        {"mean": event["mean"] + 1.0},
        {"noise_variance": 0.0},
        {"noise_variance": 1e308},
        {"total": 2**63 - 1, "mean": 1e308},
        {"total": -(2**63) + 1},
        {"n": -1},
        {"index": 2**62},
        {"index": 10**400},
        {"total": "7"},
        {"agent": ["agent 1"]},
        {"time": "9999-12-31T23:59:59.999999Z", "mean": 3.0},
    ]
    lines = [json.dumps({**event, **one}).encode() for one in changes]
    lines += [
        line.replace(b'"mean":', b'"mean":' + word + b',"was":')
        for word in (b"NaN", b"1e999", b"-Infinity")
    ]
    bomb = b"[" * 200_000
    return [
        *lines,
        bomb,
        b'{"agent":"agent 1","x":' + bomb,
        b'{"agent":' + b"9" * 100_000 + b"}",
        b"x" * 3_000_000,
    ]


def test_forged_releases_change_nobodys_answer(
    new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    """Before the honest ones, so that what is left out must not keep the place of what follows; and
    a torn end."""
    left = side(new_world, "left", range(5))
    right = side(new_world, "right", range(5, AGENTS))
    honest = b"".join((w.folder / "releases.jsonl").read_bytes() for w in (left, right))
    clean, dirty = tmp_path / "clean.jsonl", tmp_path / "dirty.jsonl"
    clean.write_bytes(honest)
    lines = forged(next(one for one in honest.splitlines() if b'"agent 7"' in one))
    dirty.write_bytes(b"\n".join([*lines, honest, *lines, b"y" * 3_000_000]))
    settings = own_settings(left.folder / "s.db")
    made = []
    for path in (clean, dirty):
        sinks = Sinks(
            estimates=MemorySink(trust=Trust.PRIVATE), population=MemorySink(trust=Trust.PUBLIC)
        )
        feed = ReleasesFile(path, PossibleReleases(settings))
        made.append(collaborator(left, path, **{"releases": feed, "sinks": sinks}))
    for one in made:
        one.run(until_end=True)
    assert made[0].stats.rejected == {}
    assert sum(made[1].stats.rejected.values()) == 2 * len(lines)
    assert estimates(made[0]) == estimates(made[1])
    # Without the rule the same lines move the others' answers: what the test is there to find.
    loose = collaborator(left, dirty)
    loose.run(until_end=True)
    assert estimates(loose) != estimates(made[0])
