"""Stores that share a topic: an agent lives in one of them, wherever its key goes, and can be moved
to another."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from meanstream.streaming.agents import move_agents as moving
from meanstream.streaming.agents.move_agents import departed_agents
from meanstream.streaming.agents.saved_agents import saved_sample_counts
from meanstream.streaming.store.state_store import Store
from tests.pipelines.command_line import SECRET, Ran, meanstream
from tests.servers.support.kafka_sinks import read

NewTopic = Callable[..., str]
OPTIONS = (
    "--lower",
    "0",
    "--upper",
    "10",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--schedule",
    "geometric:4,2",
)
AGENTS = ("ann", "bob", "cid", "dee")


class Shared:
    """A topic of samples and one of releases, and stores of one name that read some of the
    partitions."""

    def __init__(self, address: str, topic: str, folder: Path) -> None:
        self.address, self.topic, self.folder = address, topic, folder
        self.releases = f"kafka://{address}/{topic}-releases?create=1"
        self._second = 0

    def send(self, *agents: tuple[str, int], count: int = 8) -> None:
        """Write samples of agents to partitions of one's choice, as the hash of a key would."""
        producer = Producer({"bootstrap.servers": self.address})
        for _ in range(count):
            self._second += 1
            for agent, partition in agents:
                value = {"agent": agent, "value": self._second % 7, "time": 1.7e9 + self._second}
                producer.produce(self.topic, json.dumps(value), partition=partition)
        assert producer.flush(30) == 0

    def run(self, store: str, partitions: str, *more: str) -> Ran:
        source = f"kafka://{self.address}/{self.topic}?partitions={partitions}"
        places = (
            "--store",
            str(self.folder / f"{store}.db"),
            "--source",
            source,
            "--releases",
            self.releases,
        )
        return meanstream(
            *("run", "agent-side", "--until-end", "--name", "shared", "--lateness", "2s", "--json"),
            *(*places, *OPTIONS, *more),
            environment={"MEANSTREAM_SECRET": SECRET},
        )

    def done(self, store: str, partitions: str) -> dict[str, int]:
        ran = self.run(store, partitions)
        assert ran.code == 0, ran.err
        found: dict[str, int] = json.loads(ran.out)
        return found

    def move(self, giver: str, taker: str, partition: int) -> Ran:
        return meanstream(
            *(
                "store",
                "move",
                "--from",
                str(self.folder / f"{giver}.db"),
                "--to",
                str(self.folder / f"{taker}.db"),
            ),
            *("--partition", str(partition), "--json"),
            environment={"MEANSTREAM_SECRET": SECRET},
        )

    def released(self) -> Counter[str]:
        return Counter(
            json.loads(r.value)["release_id"] for r in read(self.address, f"{self.topic}-releases")
        )

    def taken(self, name: str) -> dict[str, int]:
        """Samples of each agent that are in its sum, or wait for event time: none lost, none
        twice."""
        store = Store.read(self.folder / f"{name}.db")
        names, state = store.agents(), store.state("engine")
        count = saved_sample_counts(store)
        for _, columns in store.chunks("pending"):
            waits = columns["agent"][columns["time"] >= state["intake"]["watermark"]]
            count += np.bincount(waits, minlength=len(count))
        store.close()
        return dict(zip(names, count.tolist(), strict=False))

    def verified(self, store: str) -> bool:
        return meanstream("ledger", "verify", "--store", str(self.folder / f"{store}.db")).code == 0

    def spent(self, store: str) -> dict[str, int]:
        ran = meanstream("budget", "--store", str(self.folder / f"{store}.db"), "--json")
        return {one["agent"]: one["spent"] for one in json.loads(ran.out)["agents"]}


@pytest.fixture
def shared(broker_address: str, new_topic: NewTopic, tmp_path: Path) -> Shared:
    return Shared(broker_address, new_topic(partitions=2), tmp_path)


def test_an_agent_whose_key_moves_is_refused_by_the_other_store_and_partitions_can_be_added(
    shared: Shared,
) -> None:
    shared.send(("ann", 0), ("bob", 1))
    assert shared.done("a", "0")["agents"] == shared.done("b", "1")["agents"] == 1
    before = shared.released()
    shared.send(("ann", 1), ("cid", 1))  # a producer that hashes otherwise
    told = shared.done("b", "1")
    assert told["rejected"] == {"other_store": 8}
    assert told["agents"] == 2
    assert not [one for one in shared.released() - before if "/ann:" in one]
    # Twice as many partitions: what was in p is in p or p + 2, and each store takes both.
    admin = AdminClient({"bootstrap.servers": shared.address})
    admin.create_partitions([NewPartitions(shared.topic, 4)])[shared.topic].result(30)
    shared.send(("ann", 2), ("bob", 3), ("dee", 2), count=16)
    assert shared.done("a", "0,2")["rejected"] == {}
    assert shared.done("b", "1,3")["rejected"] == {}
    assert max(shared.released().values()) == 1
    assert shared.spent("a").keys() == {"ann", "dee"}
    assert shared.spent("b").keys() == {"bob", "cid"}
    # Ann's newest samples are from partition 2: it moves with her, and dee, to a store that is made
    # for it.
    facts = json.loads(shared.move("a", "c", 2).out)
    assert (facts["agents"], facts["agents_of_unknown_partition"]) == (2, 0)
    assert shared.spent("c").keys() == {"ann", "dee"}
    assert sum(shared.spent("c").values()) == facts["ledger_rows"] > 4
    assert shared.spent("a") == {}
    shared.send(("ann", 2), ("dee", 0), count=32)
    refused = shared.run("a", "0,2")
    assert refused.code == 2
    assert b"partitions must be none that this store has given to another, got [2]" in refused.err
    assert shared.done("a", "0")["rejected"] == {
        "other_store": 32
    }  # dee has moved, and the store knows it
    assert shared.done("c", "2")["rejected"] == {}
    released = shared.released()
    assert max(released.values()) == 1
    index = sorted(int(one.rpartition(":")[2]) for one in released if "/ann:" in one)
    assert index == list(range(1, len(index) + 1))
    assert len(index) == shared.spent("c")["ann"]
    assert all(shared.verified(store) for store in "abc")


def test_persons_count_on_where_their_agent_goes_and_when_it_comes_back(shared: Shared) -> None:
    """At most three samples of a person count, however often the agent moves; nothing is counted
    twice on the way."""
    limit = ("--person", "who", "--per-person", "3", "--quorum", "1", "--value", "value")
    producer = Producer({"bootstrap.servers": shared.address})

    def send(partition: int, agent: str, *persons: str) -> None:
        for who in (
            *persons,
            f"last {shared._second}",
        ):  # the last one moves event time past the others
            shared._second += 10
            sample = {"agent": agent, "who": who, "value": 1, "time": 1.7e9 + shared._second}
            producer.produce(shared.topic, json.dumps(sample), partition=partition)
        assert producer.flush(30) == 0

    def rejected(store: str, partitions: str) -> dict[str, int]:
        ran = shared.run(store, partitions, *limit)
        assert ran.code == 0, ran.err
        found: dict[str, int] = json.loads(ran.out)["rejected"]
        return found

    send(0, "ann", "p", "p", "q")
    send(1, "bob", "p", "r", "r", "r")
    assert rejected("a", "0-1") == {}
    assert json.loads(shared.move("a", "b", 1).out)["agents"] == 1
    send(1, "bob", "r", "p", "p", "p")  # r has three, p has one: two more count
    send(0, "ann", "p", "p")  # the other ward's p has two: one more counts
    assert rejected("b", "1") == {"over_person": 2}
    assert rejected("a", "0") == {"over_person": 1}
    assert (
        json.loads(shared.move("a", "b", 0).out)["agents"] == 1
    )  # the copy of ann's persons in b is older
    send(0, "ann", "p", "q", "q", "q")
    assert rejected("b", "0-1") == {"over_person": 2}
    assert json.loads(shared.move("b", "a", 1).out)["agents"] == 1
    send(1, "bob", "r", "p", "new")
    assert rejected("a", "1") == {"over_person": 2}
    assert max(shared.released().values()) == 1
    assert shared.verified("a")
    assert shared.verified("b")


class KilledError(RuntimeError):
    """Here the process died."""


@pytest.mark.parametrize("step", ["noted", "taken"])
def test_a_move_that_is_killed_has_happened_or_has_not(shared: Shared, step: str) -> None:
    """Whichever engine comes first afterwards, exactly one of them has the agent, and all that it
    knew."""
    shared.send(("ann", 0), ("bob", 1), count=12)
    shared.done("a", "0-1")

    def die(done: str) -> None:
        if done == step:
            raise KilledError(done)

    stores = [Store.amend(shared.folder / "a.db")]
    settings = stores[0].settings()
    assert settings is not None
    stores.append(Store.open(shared.folder / "b.db", settings=settings, secret=SECRET.encode()))
    with pytest.raises(KilledError):
        moving.move_partition(stores[0], stores[1], 1, after=die)
    for store in stores:
        store.close()
    happened = step == "taken"
    shared.send(("ann", 0), ("bob", 1), count=24)
    left = shared.run("a", "0-1")
    assert left.code == (2 if happened else 0)
    if happened:
        assert b"partitions must be none that this store has given to another" in left.err
        assert shared.done("a", "0")["rejected"] == {}
        assert shared.done("b", "1")["rejected"] == {}
    else:
        assert json.loads(shared.move("a", "b", 1).out)["agents"] == 1  # again, from the beginning
        assert shared.spent("a").keys() == {"ann"}
        assert shared.spent("b").keys() == {"bob"}
    released = shared.released()
    assert max(released.values()) == 1
    assert {one.partition("/")[2].partition(":")[0] for one in released} == {"ann", "bob"}
    assert shared.spent("b")["bob"] == sum("/bob:" in one for one in released)
    if happened:
        assert (shared.taken("a")["ann"], shared.taken("b")["bob"]) == (36, 36)
    store = Store.read(shared.folder / "a.db")
    bob = store.agents().index("bob")  # either partition may have come first
    assert np.flatnonzero(departed_agents(store)).tolist() == [bob]
    counts = saved_sample_counts(store)
    assert counts[bob] == 0, "its sums have left the store"
    store.close()


def test_a_partition_comes_back_with_what_was_released_meanwhile(shared: Shared) -> None:
    shared.send(("ann", 0), ("bob", 1))
    shared.done("a", "0-1")
    assert shared.move("a", "b", 1).code == 0
    shared.send(("ann", 0), ("bob", 1), count=16)
    shared.done("b", "1")
    shared.done("a", "0")
    back = json.loads(shared.move("b", "a", 1).out)
    assert back["agents"] == 1
    assert back["ledger_rows"] >= 1  # what it has not yet
    shared.send(("ann", 0), ("bob", 1), count=40)
    assert shared.done("a", "0-1")["rejected"] == {}
    released = shared.released()
    assert max(released.values()) == 1
    spent = shared.spent("a")
    assert spent["ann"] == spent["bob"] == sum("/bob:" in one for one in released)
    assert shared.verified("a")
    assert shared.verified("b")


def test_what_does_not_belong_together_is_refused_and_nothing_is_left(shared: Shared) -> None:
    shared.send(("ann", 0), ("bob", 1))
    shared.done("a", "0")
    shared.done("b", "1")
    refused = {
        ("a", "b", 1): "partition must be one that the store has read, got 1; it has 0",
        ("a", "a", 0): "to must be another store than from",
        ("none", "b", 0): "from must be an existing file",
        ("a", "new", 7): "partition must be one that the store has read, got 7; it has 0",
    }
    for (giver, taker, partition), text in refused.items():
        ran = shared.move(giver, taker, partition)
        assert ran.code == 2
        assert text in ran.err.decode()
    assert not list(shared.folder.glob("new.db*"))
    shutil.copy(shared.folder / "a.db", shared.folder / "copy.db")
    assert b"another" in shared.move("a", "copy", 0).err
    assert shared.done("a", "0")["rejected"] == {}


def test_a_store_of_several_topics_gives_no_partition_away_and_goes_on(
    broker_address: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    """They are read whole by one store: no other could go on with a partition of them."""
    first, second = (
        Shared(broker_address, new_topic(2), tmp_path),
        Shared(broker_address, new_topic(2), tmp_path),
    )
    both = Shared(broker_address, f"{first.topic},{second.topic}", tmp_path)
    both.releases = f"kafka://{broker_address}/{first.topic}-releases?create=1"
    for topic in (first, second):
        topic.send(("ann", 0), ("bob", 1))

    def run() -> dict[str, int]:
        source = f"kafka://{broker_address}/{both.topic}"
        ran = meanstream(
            *(
                "run",
                "agent-side",
                "--until-end",
                "--name",
                "shared",
                "--lateness",
                "2s",
                "--json",
                *OPTIONS,
            ),
            *("--source", source, "--store", str(tmp_path / "a.db"), "--releases", both.releases),
            environment={"MEANSTREAM_SECRET": SECRET},
        )
        assert ran.code == 0, ran.err
        found: dict[str, int] = json.loads(ran.out)
        return found

    assert run()["accepted"] == 32
    for partition in (0, 1, 8192):
        ran = both.move("a", "b", partition)
        assert ran.code == 2
        assert "from must be a store that reads one topic" in ran.err.decode()
        assert "read whole by one store" in ran.err.decode()
    assert not list(tmp_path.glob("b.db*"))
    first.send(("ann", 0), count=4)
    assert run()["accepted"] == 4
