"""Real servers for tests, one of a kind for all workers, a topic per test; skipped with a reason,
but never in CI."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.fitted_once import fitted_once  # noqa: F401 - fixture
from tests.servers.support import apicurio as registry
from tests.servers.support import broker as kafka
from tests.servers.support import flink_cluster
from tests.servers.support.empty_broker import remove_all
from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.wait_until import wait_until

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
    """Address of the broker that all workers of the session share; no test stops it."""
    need(kafka.missing())

    def start(folder: Path) -> dict[str, Any]:
        broker = kafka.Broker(folder, OF_ALL)
        broker.start()
        return {"address": broker.address, "pid": broker.detach()}

    with shared_by_workers(tmp_path_factory, "kafka", start) as broker:
        yield broker["address"]


OF_ALL = {"broker.session.timeout.ms": "18000", "log.cleaner.backoff.ms": "500"}
"""Of the shared broker: on a busy machine it is not given up by itself, and what shall be compacted
soon is."""
OF_ONE = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
"""Of a broker that tests kill and pause: it takes transactions back as soon as they time out."""


@pytest.fixture(scope="session")
def registry_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the Schema Registry that all workers of the session share."""
    need(registry.missing())
    with shared_by_workers(tmp_path_factory, "registry", registry.start_registry) as shared:
        yield shared["address"]


@contextmanager
def shared_by_workers(
    factory: pytest.TempPathFactory,
    name: str,
    start: Callable[[Path], dict[str, Any]],
    stop: Callable[[dict[str, Any]], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Share a server: the first worker that needs it starts it, the last one that leaves stops it.

    Parameters
    ----------
    factory : pytest.TempPathFactory
        Of this worker.
    name : str
        Of the server; its folder has it, too.
    start : callable
        Starts it in a folder, and returns what JSON can hold, for all workers: among it `pid`,
        unless `stop` is given.
    stop : callable, optional
        Stops it; by default its process is terminated.
    """
    folder = _shared_folder(factory)
    with _shared_state(folder, name) as state:
        if "server" not in state:
            state["server"] = start(folder / f"{name}-{time.monotonic_ns()}")
        state["users"] = [*state.get("users", []), os.getpid()]
        server = state["server"]
    try:
        yield server
    finally:
        with _shared_state(folder, name) as state:
            state["users"].remove(os.getpid())  # once: a fixture that two modules import is two
            state["users"] = [
                pid for pid in state["users"] if Path(f"/proc/{pid}").exists()
            ]  # not of killed workers
            if not state["users"]:
                (stop or _terminate)(state.pop("server"))


def _terminate(server: dict[str, Any]) -> None:
    with suppress(ProcessLookupError):
        os.kill(server["pid"], signal.SIGTERM)


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


_own: list[kafka.Broker] = []


@pytest.fixture
def own_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> kafka.Broker:
    """A broker of this test alone, which it may kill, pause and leave so; nothing is on it.

    The tests of a worker get the same one, one after the other.
    """
    need(kafka.missing())
    if not _own:
        _own.append(kafka.Broker(tmp_path_factory.mktemp("own") / "kafka", OF_ONE))
        request.config.add_cleanup(_own[0].kill)
    (broker,) = _own
    broker.serve()
    remove_all(broker.address)
    return broker


_numbers = itertools.count()


@pytest.fixture
def new_topic(broker_address: str) -> Callable[..., str]:
    """Make a topic of a name nobody else uses: `new_topic(partitions=4, config={...})`."""
    from confluent_kafka.admin import AdminClient, NewTopic

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        admin = AdminClient({"bootstrap.servers": broker_address})
        name = f"topic-{os.getpid()}-{next(_numbers)}"
        admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(30)
        # A busy broker acknowledges a topic a moment before it lists it.
        wait_until(
            lambda: name in admin.list_topics(timeout=10).topics,
            30,
            why=lambda: f"{name} is not listed",
        )
        return name

    return make


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    """The cluster that all workers of the session share."""
    need(flink_cluster.missing())

    def start(folder: Path) -> dict[str, Any]:
        cluster = FlinkCluster(folder)
        try:
            cluster.start()
        except BaseException:
            cluster.stop()
            raise
        return cluster.detach()

    def stop(server: dict[str, Any]) -> None:
        FlinkCluster.attach(server).stop()

    with shared_by_workers(tmp_path_factory, "flink", start, stop) as server:
        yield FlinkCluster.attach(server)


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
