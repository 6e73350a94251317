"""Deployments of one name that read the same records, each with a store, a consumer group and
topics of its own.

One name on one topic is one store, so each reads a topic of its own, which holds the same records
at the same offsets.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.support.engine_input import LATENESS, PARTITIONS, EngineInput
from tests.servers.support.engine_process import ROLES, EngineProcess, EngineWorld, Fate
from tests.servers.support.outcomes import (
    Fault,
    Kind,
    Outcome,
    TopicsReader,
    faults,
    read_ledger,
    read_outcome,
    uncharged,
)

OPTIONS = (
    *(
        "--id",
        "id",
        "--lateness",
        f"{LATENESS:g}s",
        "--until-end",
        "--final-release",
        "--quiet",
        "--batch-size",
        "24",
    ),
    *("--lower", "0", "--upper", "10", "--epsilon", "1", "--delta", "1e-6"),
    *("--counter", "pm1", "--schedule", "geometric:2,1.5", "--horizon", "3", "--refresh", "20s"),
)
"""Small batches, many releases, agents that come to their horizon, and estimates each twenty
seconds of event time."""


def changed(**values: str) -> tuple[str, ...]:
    """Give the options with other values."""
    typed = list(OPTIONS)
    for name, value in values.items():
        typed[typed.index(f"--{name.replace('_', '-')}") + 1] = value
    return tuple(typed)


_EXPECTED: dict[tuple[EngineInput, tuple[str, ...]], Outcome] = {}

COMPACTED = ("releases", "estimates")
OUTPUT_PARTITIONS = 2


@dataclass
class EngineWorlds:
    """One input, and the outcome of a run on it without faults.

    Parameters
    ----------
    address : str
        The broker.
    folder : Path
        Where the stores are made.
    input : EngineInput
        What is read.
    options : sequence of str
        Of `meanstream run agents`.
    outputs : str
        Broker of the outputs, if it is another one.
    """

    address: str
    folder: Path
    input: EngineInput = field(default_factory=EngineInput)
    options: Sequence[str] = OPTIONS
    outputs: str = ""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.outputs = self.outputs or self.address
        self._tag = secrets.token_hex(4)
        self.folder.mkdir(exist_ok=True)
        self._configuration = self.folder / "consumer.yaml"
        self._configuration.write_text(self.input.consumer)

    def new(self, count: int = 1) -> list[EngineWorld]:
        """Make so many deployments."""
        names = [f"{self._tag}-{next(self._numbers)}" for _ in range(count)]
        roles = [{role: f"{role}-{name}" for role in ROLES} for name in names]
        make_topics(
            self.outputs,
            {topic: OUTPUT_PARTITIONS for topics in roles for topic in topics.values()},
        )
        samples = [
            [f"samples{topic or ''}-{name}" for topic in range(self.input.topics)] for name in names
        ]
        for topics in samples:
            self._write(topics)
        return [
            EngineWorld(
                folder=self.folder / name,
                address=self.outputs,
                source=f"kafka://{self.address}/{','.join(read)}?config={self._configuration}&group={name}",
                samples=read,
                topics=topics,
                options=self.options,
            )
            for name, read, topics in zip(names, samples, roles, strict=True)
        ]

    def _write(self, topics: Sequence[str]) -> None:
        """Write the input to new topics."""
        make_topics(self.address, dict.fromkeys(topics, PARTITIONS))
        self.input.produce(self.address, *topics)

    @cached_property
    def reference(self) -> EngineWorld:
        """A deployment that met nothing, at its end."""
        world = self.new()[0]
        world.finish()
        return world

    @property
    def expected(self) -> Outcome:
        """What it has let out: for one input and the same options once per process, wherever the
        brokers are."""
        asked = (self.input, tuple(self.options))
        if asked not in _EXPECTED:
            _EXPECTED[asked] = self.outcome(self.reference)
        return _EXPECTED[asked]

    def outcome(self, world: EngineWorld) -> Outcome:
        """Read it; dead letters name the topic of samples, whose name alone is not the same in two
        deployments."""
        found = read_outcome(self._committed, world.topics, world.store)
        letters = found.topics["dead_letters"]
        for number, topic in enumerate(world.samples):
            own, common = f'"source":"{topic}"'.encode(), f'"source":"samples{number}"'.encode()
            letters = [line.replace(own, common) for line in letters]
        return replace(found, topics={**found.topics, "dead_letters": letters})

    def faults(self, world: EngineWorld) -> list[Fault]:
        """Compare a deployment that has come to its end."""
        return faults(self.outcome(world), self.expected)

    def uncharged(self, world: EngineWorld) -> list[Fault]:
        """Look at a deployment whose engine was killed: also what it had not committed must have
        been charged."""
        topic = world.topics["releases"]
        charged, damage = read_ledger(world.store)
        damaged = [Fault(Kind.DAMAGED, damage)] if damage else []
        return damaged + uncharged(self._everything.read([topic])[topic], charged)

    @cached_property
    def _committed(self) -> TopicsReader:
        return TopicsReader(self.outputs)

    @cached_property
    def _everything(self) -> TopicsReader:
        return TopicsReader(self.outputs, committed=False)

    def close(self) -> None:
        for name in ("_committed", "_everything"):
            if name in self.__dict__:
                self.__dict__[name].close()


def make_topics(address: str, topics: dict[str, int]) -> None:
    """Make topics, by name and number of partitions."""
    admin = AdminClient({"bootstrap.servers": address})
    new = [
        NewTopic(
            name,
            count,
            1,
            config={"cleanup.policy": "compact"} if name.startswith(COMPACTED) else {},
        )
        for name, count in topics.items()
    ]
    for made in admin.create_topics(new).values():
        made.result(30)


def start_all(worlds: Sequence[EngineWorld], fates: Sequence[Fate]) -> list[EngineProcess]:
    """Start one engine in each."""
    return [world.start(fate) for world, fate in zip(worlds, fates, strict=True)]


def finish_all(worlds: Sequence[EngineWorld]) -> None:
    """Run all to the end, at the same time."""
    for life in start_all(worlds, [Fate()] * len(worlds)):
        life.succeed()
