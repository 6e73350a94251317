"""Shards of one topic on a real broker: their releases are those of one engine, whatever is killed,
and all of them learn from all releases."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from tests.pipelines.command_line import SECRET, meanstream
from tests.servers.support.broker import free_ports
from tests.servers.support.programs import Command
from tests.servers.support.wait_until import wait_until
from tests.servers.test_start import ask

NewTopic = Callable[..., str]
AGENTS, SAMPLES, SHARDS, PARTITIONS = 40, 60, 2, 4
SPREAD = 0.3
END_SECONDS = 240.0
SETTINGS = (
    "--name together --lower 0 --upper 10 --epsilon 1 --delta 1e-6 --lateness 2s --id id "
    "--schedule geometric:4,2"
)
NO_VOTES = ("--spread-share", "0")
KEY = {"MEANSTREAM_SECRET": SECRET}


def samples(agents: int = AGENTS, per_agent: int = SAMPLES) -> Iterable[tuple[str, dict[str, Any]]]:
    """Samples of two classes of agents, in the order of time."""
    rng = np.random.default_rng(5)
    means = rng.choice([2.0, 8.0], agents)
    for row in range(per_agent):
        for agent in range(agents):
            value = float(np.clip(rng.normal(means[agent], SPREAD), 0, 10))
            time = 1.7e9 + row * 10 + agent * 0.01
            yield f"n{agent}", {"agent": f"n{agent}", "value": value, "time": time, "id": f"{row}"}


class World:
    """A topic, and runs on it that write files."""

    def __init__(self, address: str, topic: str, folder: Path) -> None:
        self.address, self.topic, self.folder = address, topic, folder
        folder.mkdir()

    def send(self, messages: Iterable[tuple[str, dict[str, Any]]]) -> None:
        producer = Producer({"bootstrap.servers": self.address})
        for key, value in messages:
            producer.produce(self.topic, json.dumps(value), key=key)
            producer.poll(0)
        assert producer.flush(60) == 0

    def start(self, *more: str, shards: int | str | None = SHARDS) -> Command:
        shard, store = ("", "one.db") if shards is None else ("{shard}", "stores")
        roles = ("sink", "releases", "dead-letters")
        places = {role: str(self.folder / f"{role}{shard}.jsonl") for role in roles}
        places |= {"source": f"kafka://{self.address}/{self.topic}"}
        places |= {"store": str(self.folder / store)}
        places |= {} if shards is None else {"shards": str(shards)}
        typed = [word for option, place in places.items() for word in (f"--{option}", place)]
        return Command(
            self.folder, "run", ["run", "agents", *typed, *SETTINGS.split(), *more], **KEY
        )

    def finish(self, *more: str, shards: int | str | None = SHARDS) -> str:
        """Run to the end of the topic; give what was logged."""
        with self.start("--until-end", *more, shards=shards) as command:
            code = command._process.wait(END_SECONDS)
            assert code == 0, command.log
        return command.log

    def lines(self, role: str) -> list[bytes]:
        found = self.folder.glob(f"{role}*.jsonl")
        return sorted(line for path in found for line in path.read_bytes().splitlines())

    def answers(self) -> dict[str, dict[str, Any]]:
        """The newest answer of each agent."""
        read = (json.loads(line) for line in self.lines("sink"))
        return {one["agent"]: one for one in sorted(read, key=lambda one: one["time"])}


def without_votes(lines: list[bytes]) -> list[dict[str, Any]]:
    """Releases without what an engine releases for all of its agents together."""
    return [{**json.loads(line), "votes": None} for line in lines]


@pytest.fixture
def worlds(broker_address: str, new_topic: NewTopic, tmp_path: Path) -> tuple[World, World]:
    """Two copies of a topic: for one engine, and for shards of the same name and key."""
    one, two = (
        World(broker_address, new_topic(partitions=PARTITIONS), tmp_path / name)
        for name in ("one", "two")
    )
    for world in (one, two):
        world.send(samples())
    return one, two


def children(process: Command) -> list[int]:
    pid = process._process.pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """Whether it runs; one that ended and was not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_shards_release_and_answer_as_one_engine_does(worlds: tuple[World, World]) -> None:
    """At the end each has the releases of all, so that even the answers are the same."""
    one, two = worlds
    one.finish(*NO_VOTES, shards=None)
    told = two.finish("--json", "--quiet", *NO_VOTES)
    shards = json.loads(told.splitlines()[-1])["shards"]
    assert sum(shard["accepted"] for shard in shards) == AGENTS * SAMPLES
    assert min(shard["agents"] for shard in shards) > 0
    assert two.lines("releases") == one.lines("releases")
    assert len(one.lines("releases")) > AGENTS
    assert two.lines("dead-letters") == []
    assert two.answers().keys() == one.answers().keys()
    for agent, answer in one.answers().items():
        for name in ("value", "interval", "effective_class_size"):
            np.testing.assert_allclose(two.answers()[agent][name], answer[name], rtol=1e-6)


def test_a_kill_of_one_shard_ends_all_and_the_next_run_continues(
    worlds: tuple[World, World],
) -> None:
    one, two = worlds
    one.finish(shards=None)
    address, answers = (f"127.0.0.1:{port}" for port in free_ports(2))
    with two.start("--metrics", address, "--refresh", "60s", "--batch-size", "200") as run:
        run.until(lambda: len(children(run)) == SHARDS and two.lines("releases"))
        os.kill(children(run)[0], signal.SIGKILL)
        assert run._process.wait(END_SECONDS) == 128 + signal.SIGKILL
    # A SIGTERM ends all; their metrics and probes are at one address, their answers at another.
    with two.start("--metrics", address, "--answers", answers, "--refresh", "60s") as run:
        run.until(lambda: ask(address, "/readyz") == (200, "ok"))
        shown = ask(address, "/metrics")[1]
        for shard in range(SHARDS):
            assert f'meanstream_events_total{{shard="{shard}"}}' in shown
        run.until((two.folder / "stores.answers").is_file)
        token = (two.folder / "stores.answers").read_text().split()[-1]
        run.until(lambda: {own_answer(answers, f"n{k}", token) for k in range(AGENTS)} == {200})
        assert own_answer(answers, "n99", token) == 404
        pids = children(run)
        assert run.stop() == 0
        assert not any(map(alive, pids))
    two.finish("--refresh", "60s")
    assert without_votes(two.lines("releases")) == without_votes(one.lines("releases"))
    assert "n7" in two.answers()
    check_commands(two)


def own_answer(address: str, agent: str, token: str) -> int:
    """Ask for an agent's answer; give the status."""
    connection = http.client.HTTPConnection(address)
    head = {"Authorization": f"Bearer {token}"}
    connection.request("GET", f"/v1/agents/{agent}", headers=head)
    status = connection.getresponse().status
    connection.close()
    return status


def check_commands(world: World) -> None:
    """Whoever reads a store reads the folder of all of them."""
    stores = ("--store", str(world.folder / "stores"))
    budget = meanstream("budget", *stores, "--json").json
    assert len(budget["agents"]) == budget["summary"]["agents"] == AGENTS
    assert f"{AGENTS} agents: at most" in meanstream("budget", *stores).out.decode()
    answer = meanstream("get", "n7", *stores, "--json").json
    assert answer["value"] == world.answers()["n7"]["value"]
    ledgers = meanstream("ledger", "verify", *stores, "--json").json["stores"]
    assert sum(ledger["agents"] for ledger in ledgers) == AGENTS
    assert meanstream("explain", "agents", *stores).code == 0
    assert meanstream("report", str(world.folder / "out.html"), *stores).code == 0
    assert "Shard 1: " in (world.folder / "out.html").read_text()
    refused = meanstream("get", "--top", "3", *stores).message
    assert refused.startswith("top must come with one store")
    moved = ("--from", str(world.folder / "stores" / "0.db"), "--to", "other.db")
    assert meanstream("store", "forget", "n7", *stores).code == 0
    assert meanstream("get", "n7", *stores).code == 2
    assert meanstream("budget", *stores, "--json").json == budget
    assert "shards keep" in meanstream("store", "move", *moved, "--partition", "0").message


def test_shards_end_when_the_command_that_started_them_is_killed(
    worlds: tuple[World, World],
) -> None:
    _, two = worlds
    with two.start("--refresh", "60s") as run:
        run.until(lambda: len(children(run)) == SHARDS and two.lines("releases"))
        pids = children(run)
        os.kill(run._process.pid, signal.SIGKILL)
        wait_until(lambda: not any(map(alive, pids)), END_SECONDS)
    # Their stores are free again, and know of how many shards they are.
    ran = two.start(shards=4)
    assert ran._process.wait(END_SECONDS) == 2
    assert "shards must be 2, as when the stores" in ran.log
    two.finish(shards="auto")


def test_partitions_that_the_shards_do_not_divide_are_refused_in_one_line(
    worlds: tuple[World, World],
) -> None:
    _, two = worlds
    with two.start(shards=3) as run:
        assert run._process.wait(END_SECONDS) == 2
        (line,) = [one for one in run.log.splitlines() if one.startswith("meanstream: ")]
        assert "shards must be a number that divides the 4 partitions" in line
