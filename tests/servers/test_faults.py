"""Brokers that die or fall silent and come back, a disk that is full: nothing lost, nothing
doubled, clear lines."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from meanstream.streaming.crash import CrashPoint
from tests.servers.support.broker import Broker
from tests.servers.support.engine_input import EngineInput
from tests.servers.support.engine_process import EngineProcess, Fate
from tests.servers.support.engine_worlds import EngineWorlds, changed, start_all
from tests.servers.support.wait_until import wait_until

MOST_GROWTH = 12.0
"""MiB that an engine may grow by while it waits for its sinks."""
STOP_SECONDS = 20.0

LOST = r"brokers cannot be reached: {address} \(.+\)"
AGAIN = r"brokers can be reached again: {address}"
WAITING = r"{address}: waiting for the brokers: [a-z ]+ \(.+\)"
TOOK = r"{address}: [a-z ]+ took (\d+) s"
STOPPED = (
    r"delivery failed, the next run writes it again: stopped while {address} did not answer \(.+\)"
)
WRITTEN_AGAIN = r"delivery failed, it is written again in .+ s: .+"
NO_SPACE = r"meanstream: store must have space on a working disk, got '.+' for '{store}'; committed work is safe: .+"


# What was read may have been delivered when the broker dies: then nobody waits for the sinks.
EITHER = ([f"{LOST}|{WAITING}"], [f"{AGAIN}|{TOOK}"])


@pytest.mark.parametrize(
    ("side", "turns", "down", "up"),
    [
        ("input", (3,), [LOST], [AGAIN]),
        ("outputs", (3,), [WAITING], [TOOK]),
        ("both", (2,), *EITHER),
        pytest.param("both", (1, 3, 5), *EITHER, marks=pytest.mark.full),
    ],
)
def test_a_broker_that_is_killed_and_comes_back(  # noqa: PLR0917 - fixtures are given by name
    side: str,
    turns: tuple[int, ...],
    down: list[str],
    up: list[str],
    own_broker: Broker,
    broker_address: str,
    tmp_path: Path,
) -> None:
    broker = own_broker
    worlds = EngineWorlds(
        broker_address if side == "outputs" else broker.address,
        tmp_path / "worlds",
        outputs=broker_address if side == "input" else broker.address,
    )
    assert worlds.expected.charged
    world = worlds.new()[0]
    life = world.start(Fate(holds=tuple(turn + 1 for turn in turns)))
    for turn in turns:
        wait_for(lambda turn=turn: life.holds(turn + 1), life)
        before = said(life, broker, down)
        broker.kill()
        life.let_go(turn + 1)
        wait_for(lambda before=before: more(said(life, broker, down), before), life)
        before = said(life, broker, up)
        broker.start()
        wait_for(lambda before=before: more(said(life, broker, up), before), life)
    life.succeed()
    assert worlds.faults(world) == []
    # A broker that starts may be reached, refuse, and be reached: one outage may be told twice,
    # none may be missing.
    assert min(said(life, broker, down + up)) >= len(turns)
    worlds.close()


@pytest.mark.parametrize(
    ("samples", "seconds"), [(40_000, 1.0), pytest.param(200_000, 30.0, marks=pytest.mark.full)]
)
def test_sinks_that_are_silent_hold_the_source_back(
    samples: int, seconds: float, own_broker: Broker, broker_address: str, tmp_path: Path
) -> None:
    """The larger topic is larger than what the engine may grow by."""
    broker = own_broker
    much = EngineInput(samples=samples, life=samples, at_a_time=3000, consumer="")
    options = changed(batch_size="2000", refresh="1000d")
    worlds = EngineWorlds(
        broker_address, tmp_path / "worlds", much, options, outputs=broker.address
    )
    assert worlds.expected.charged
    world = worlds.new()[0]
    life = world.start(Fate(holds=(8,)))
    wait_for(lambda: life.holds(8), life)
    memory = life.memory
    broker.pause()
    life.let_go(8)
    wait_for(lambda: "waiting for the brokers" in life.log, life)
    read, began = life.trace.visits(CrashPoint.READ_BATCH), time.monotonic()
    wait_for(lambda: time.monotonic() - began > seconds, life)
    grown = life.memory - memory
    assert life.trace.visits(CrashPoint.READ_BATCH) == read
    broker.resume()
    life.succeed()
    assert grown < MOST_GROWTH
    assert worlds.faults(world) == []
    # On a slow machine the silence is long enough for records to be given up, and written again.
    assert lines(life, [WAITING, TOOK, WRITTEN_AGAIN], address=broker.address)[:2] == [
        WAITING,
        TOOK,
    ]
    worlds.close()


@pytest.mark.parametrize("side", ["outputs", "both"])
def test_asked_to_stop_while_the_brokers_are_silent(
    side: str, own_broker: Broker, broker_address: str, tmp_path: Path
) -> None:
    """The batch is in the store; the next run delivers it."""
    broker = own_broker
    source = broker.address if side == "both" else broker_address
    ahead = EngineInput(
        consumer=""
    )  # it reads ahead, so that something is to be delivered when both are silent
    worlds = EngineWorlds(source, tmp_path / "worlds", ahead, outputs=broker.address)
    assert worlds.expected.charged
    world = worlds.new()[0]
    life = world.start(Fate(holds=(4,)))
    wait_for(lambda: life.holds(4), life)
    broker.pause()
    life.let_go(4)
    try:
        wait_for(lambda: "waiting for the brokers" in life.log, life)
        life.terminate()
        assert life.wait(STOP_SECONDS) == 0
    finally:
        broker.resume()
    told = lines(life, [LOST, WAITING, STOPPED], address=broker.address)
    assert [line for line in told if line != LOST] == [WAITING, STOPPED]
    world.finish()
    assert worlds.faults(world) == []
    worlds.close()


def test_a_disk_that_is_full_ends_the_run_and_the_next_one_goes_on(
    broker_address: str, tmp_path: Path
) -> None:
    """The operating system lets no file of the process grow any more."""
    worlds = EngineWorlds(broker_address, tmp_path / "worlds")
    assert worlds.expected.charged
    turns = (2, 5)
    cases = worlds.new(len(turns))
    lives = start_all(cases, [Fate(holds=(turn,)) for turn in turns])
    for turn, world, life in zip(turns, cases, lives, strict=True):
        wait_for(lambda turn=turn, life=life: life.holds(turn), life)
        size = world.store.with_name("state.db-wal").stat().st_size
        resource.prlimit(life.pid, resource.RLIMIT_FSIZE, (size, size))
        life.let_go(turn)
    for world, life in zip(cases, lives, strict=True):
        assert life.wait() == 1
        assert lines(life, [NO_SPACE], store=world.store) == [NO_SPACE]
        assert worlds.uncharged(world) == []
        world.finish()
        assert worlds.faults(world) == []
    worlds.close()


def said(life: EngineProcess, broker: Broker, kinds: list[str]) -> list[int]:
    """Count the lines of each kind that an engine has written so far."""
    return [
        len(re.findall(kind.format(address=re.escape(broker.address)), life.log)) for kind in kinds
    ]


def more(now: list[int], before: list[int]) -> bool:
    """Tell whether every count has grown."""
    return all(a > b for a, b in zip(now, before, strict=True))


def wait_for(condition: Callable[[], bool], life: EngineProcess, seconds: float = 60.0) -> None:
    def met() -> bool:
        assert life.runs, f"the engine has ended; its log:\n{life.log}"
        return condition()

    wait_until(met, seconds, why=lambda: f"the engine's log:\n{life.log}")


def lines(life: EngineProcess, kinds: list[str], **names: object) -> list[str]:
    """Say of which kind each line is that an engine wrote; there must not be others."""
    known = {
        kind: kind.format(**{name: re.escape(str(value)) for name, value in names.items()})
        for kind in kinds
    }
    said = []
    for line in life.log.splitlines():
        text = re.sub(r"^\S+ warning meanstream\.\w+: ", "", line)
        found = [kind for kind, form in known.items() if re.fullmatch(form, text)]
        assert found or not line, life.log
        said += found
    return said
