"""Real servers for tests, one per test session, and a topic per test; skipped with a reason, but never in CI."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers.support import broker as kafka
from tests.servers.support import flink_cluster, registry
from tests.servers.support.flink_cluster import FlinkCluster

REQUIRED = "MEANSTREAM_SERVERS_REQUIRED"
"""Set in CI: there a test that cannot start its server fails."""


def need(reason: str | None) -> None:
    """Skip, or fail where servers are required, if there is a reason."""
    if reason is None:
        return
    if os.environ.get(REQUIRED):
        pytest.fail(f"servers are required here: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def broker_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the broker that all workers of the session share; the last one to leave stops it."""
    need(kafka.missing())
    shared = _shared_folder(tmp_path_factory)
    with _shared_state(shared, "broker") as state:
        if not state.get("users"):
            broker = kafka.Broker(shared / f"kafka-{time.monotonic_ns()}")
            broker.start()
            state.update(users=0, address=broker.address, pid=broker.detach())
        state["users"] += 1
        address = state["address"]
    yield address
    with _shared_state(shared, "broker") as state:
        state["users"] -= 1
        if not state["users"]:
            os.kill(state["pid"], signal.SIGTERM)


@pytest.fixture(scope="session")
def registry_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Schema Registry of this worker."""
    need(registry.missing())
    with registry.running_registry(tmp_path_factory.mktemp("registry") / "log") as address:
        yield address


def _shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Give the folder that all workers of a session have."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@contextmanager
def _shared_state(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """State that the workers of a session share, one at a time."""
    path = folder / f"{name}.json"
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        state = json.loads(text) if text else {}
        yield state
        file.truncate(0)
        file.write(json.dumps(state))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[kafka.Broker]:
    """A broker of this test alone, which it may kill, pause and start again."""
    need(kafka.missing())
    broker = kafka.Broker(tmp_path / "kafka")
    broker.start()
    yield broker
    broker.kill()


_numbers = itertools.count()


@pytest.fixture
def new_topic(broker_address: str) -> Callable[..., str]:
    """Make a topic of a name nobody else uses: `new_topic(partitions=4, config={...})`."""
    from confluent_kafka.admin import AdminClient, NewTopic

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        admin = AdminClient({"bootstrap.servers": broker_address})
        name = f"topic-{os.getpid()}-{next(_numbers)}"
        admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(30)
        until = time.monotonic() + 30
        # A busy broker acknowledges a topic a moment before it lists it.
        while name not in admin.list_topics(timeout=10).topics and time.monotonic() < until:
            time.sleep(0.05)
        return name

    return make


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    """The cluster that all workers of the session share; the last one to leave stops it."""
    need(flink_cluster.missing())
    shared = _shared_folder(tmp_path_factory)
    with _shared_state(shared, "flink") as state:
        if not state.get("users"):
            cluster = FlinkCluster(shared / f"flink-{time.monotonic_ns()}")
            try:
                cluster.start()
            except BaseException:
                cluster.stop()
                raise
            state.update(users=0, cluster=cluster.detach())
        state["users"] += 1
        cluster = FlinkCluster.attach(state["cluster"])
    yield cluster
    with _shared_state(shared, "flink") as state:
        state["users"] -= 1
        if not state["users"]:
            cluster.stop()


@pytest.fixture
def own_flink(tmp_path: Path) -> Iterator[FlinkCluster]:
    """A cluster of this test alone."""
    need(flink_cluster.missing())
    cluster = FlinkCluster(tmp_path / "flink", slots=2)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(flink: FlinkCluster) -> list[str]:
    """Options of Beam for the shared cluster."""
    return flink.arguments()
