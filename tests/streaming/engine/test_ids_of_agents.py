"""An id is its agent's own: who sends another's first takes nothing from it. Stores of before go
on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.streaming.support.rounds_world import RoundsWorld, rounds_settings
from tests.streaming.support.scripted_source import ScriptedSource

SAMPLES = [(("ann", "bob")[i % 2], float(i % 7), float(i)) for i in range(40)]
OWN = [i // 2 + 1 for i in range(40)]  # each id once of ann and once of bob


def counted(world: Any) -> dict[object, object]:
    return {event["agent"]: event["n"] for event in world.events("estimates")}


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
@pytest.mark.parametrize("quorum", [1, 2])
def test_an_id_of_two_agents_is_two_samples_and_one_agents_twice_is_one(
    batch_size: int, quorum: int, new_world: Callable[[str], Any]
) -> None:
    twice = [(name, 9.0, at + 0.5) for name, _, at in SAMPLES]
    mixed = [event for pair in zip(SAMPLES, twice, strict=True) for event in pair]
    world = new_world("w")
    world.options = replace(world.options, batch_size=batch_size, quorum=quorum)
    ids = [id_ for own in OWN for id_ in (own, own)]
    first = world.run(ScriptedSource(mixed[:30], ids=ids[:30]))
    second = world.run(ScriptedSource(mixed, ids=ids))
    assert first.rejected + second.rejected == Counter(duplicate=40)
    assert counted(world) == {"ann": 20, "bob": 20}


def test_a_forger_who_is_first_takes_no_sample_away(new_world: Callable[[str], Any]) -> None:
    honest = [sample for sample in SAMPLES if sample[0] == "ann"]
    alone, attacked = new_world("alone"), new_world("attacked")
    alone.run(ScriptedSource(honest, ids=OWN[::2]))
    forged = [
        event for name, value, at in honest for event in (("eve", 3.0, at), (name, value, at))
    ]
    attacked.run(ScriptedSource(forged, ids=[id_ for own in OWN[::2] for id_ in (own, own)]))
    releases = [line for line in attacked.lines("releases") if b'"eve"' not in line]
    assert releases == [line.replace(b"alone", b"attacked") for line in alone.lines("releases")]


def test_in_rounds_an_id_is_its_users_own(tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path / "w", rounds_settings(estimator="one_shot", users=4))
    day = [(f"user {i % 4}", 1.0, 60.0 * i) for i in range(24)]
    stats = world.run(ScriptedSource([*day, *day], ids=[i // 4 + 1 for i in range(24)] * 2))
    assert (stats.accepted, stats.rejected) == (24, Counter(duplicate=24))
