"""A backup of a running engine is put back after its topics went on: what left is made again, to the byte."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.pipelines.command_line import SECRET, Ran, meanstream
from tests.servers.support.kafka_reading import send
from tests.servers.support.kafka_sinks import read

PROMISE = ("--lower", "0", "--upper", "20", "--epsilon", "1", "--delta", "1e-6")
AGENTS = ("ann", "bob", "cleo")


class Deployment:
    """An engine that reads a topic to its end, and writes to two others."""

    def __init__(self, address: str, new_topic: Callable[..., str], folder: Path) -> None:
        self.address = address
        self.topics = {role: new_topic() for role in ("source", "releases", "notices")}
        self.store = folder / "s.db"
        self._sent = 0

    def send(self, number: int) -> None:
        """Send more samples."""
        times = range(self._sent, self._sent + number)
        lines = [
            {"agent": AGENTS[i % 3], "value": float(i * 7 % 20), "time": 1.7e9 + i} for i in times
        ]
        encoded = [json.dumps(line).encode() for line in lines]
        send(self.address, self.topics["source"], encoded)
        self._sent += number

    def run(self) -> Ran:
        """Run until the end of the topic."""
        places = [
            word
            for role, topic in self.topics.items()
            for word in (f"--{role}", f"kafka://{self.address}/{topic}")
        ]
        words = f"run agent-side --until-end --lateness 0s --name old --store {self.store}"
        environment = {"MEANSTREAM_SECRET": SECRET}
        return meanstream(*words.split(), *places, *PROMISE, environment=environment)

    def released(self) -> list[bytes]:
        """Give the lines of the topic of releases."""
        values = [record.value for record in read(self.address, self.topics["releases"])]
        return [value for value in values if value is not None]

    def lose(self, copy: Path) -> None:
        """Lose the store and put a copy back."""
        for path in self.store.parent.glob("s.db*"):
            path.unlink()
        shutil.copy(copy, self.store)


def rows(store: Path) -> int:
    verified = meanstream("ledger", "verify", "--store", str(store), "--json")
    return int(verified.json["rows"])


def test_an_older_copy_goes_on_when_it_is_on_record_and_its_releases_are_the_same(
    broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    deployment = Deployment(broker_address, new_topic, tmp_path)
    store = ("--store", str(deployment.store))
    deployment.send(60)
    assert deployment.run().code == 0
    copy = tmp_path / "copy.db"
    assert meanstream("ledger", "backup", *store, "--to", str(copy)).code == 0

    # Three more deliveries than the copy knows.
    for _ in range(3):
        deployment.send(60)
        assert deployment.run().code == 0
    left = deployment.released()
    assert rows(deployment.store) == len(left) > rows(copy) > 0

    # Without a record the copy is refused, and nothing leaves.
    deployment.lose(copy)
    refused = deployment.run()
    assert refused.code != 0
    assert b"is the store an older copy" in refused.err
    assert deployment.released() == left

    adopted = meanstream("store", "adopt", *store, "--older-copy")
    assert adopted.code == 0, adopted.err
    ran = deployment.run()
    assert ran.code == 0, ran.err
    assert b"the store is an older copy" in ran.err

    # What it makes again is what left, byte for byte, and is charged once.
    again = deployment.released()[len(left) :]
    assert len(again) == len(left) - rows(copy)
    assert sorted(again) == sorted(left[rows(copy) :])
    assert rows(deployment.store) == len(left)

    # From there on each release is there once, as if nothing had been lost.
    deployment.send(60)
    assert deployment.run().code == 0
    new = deployment.released()[2 * len(left) - rows(copy) :]
    assert new
    assert set(new).isdisjoint(left)
    assert rows(deployment.store) == len(left) + len(new)
