"""What probes are told, to the second: alive, ready, and how old the last checkpoint is."""

from __future__ import annotations

from pathlib import Path

import pytest

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.store.deployment_store import open_deployment
from tests.streaming.support.scripted_source import MemorySink, ScriptedSource, SettableConnection


class Clock:
    """Seconds that are set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> EngineHealth:
    return EngineHealth(silent_seconds=100.0, stuck_seconds=10.0, now=clock)


def test_before_the_start_it_is_alive_and_not_ready(health: EngineHealth, clock: Clock) -> None:
    assert (health.not_alive(), health.not_ready()) == (None, "state is being restored")
    assert health.checkpoint_age is None
    clock.now += 100.5
    assert health.not_alive() == "no sign of life for 100 s"


def test_every_report_is_a_sign_of_life(health: EngineHealth, clock: Clock) -> None:
    for report in (health.started, health.turned, health.delivering, health.delivered):
        clock.now += 100.0
        assert health.not_alive() is None
        clock.now += 0.5
        assert health.not_alive() == "no sign of life for 100 s"
        report()
        assert health.not_alive() is None


def test_what_is_waited_for_before_the_start_is_the_reason_and_a_sign_of_life(
    health: EngineHealth, clock: Clock
) -> None:
    clock.now += 90.0
    health.waiting("source waits for the brokers h:1 (refused)")
    clock.now += 90.0
    assert (health.not_alive(), health.not_ready()) == (
        None,
        "source waits for the brokers h:1 (refused)",
    )
    health.waiting(None)
    assert health.not_ready() == "state is being restored"


def test_the_connection_of_what_is_private_alone_is_not_watched(tmp_path: Path) -> None:
    """A broker that is silent would tell whether there was something to write."""

    class Answering(MemorySink):
        client = "sink"

        def connection_problem(self) -> str | None:
            return "h:1 (refused)"

    class Watched(Answering):
        watched = True

    class Apart(Answering):
        watched = False

    settings = AgentsSettings(name="t", lower=0, upper=1, epsilon=1, delta=1e-6)
    secret = {"MEANSTREAM_SECRET": "7c1e94b05fa3d2681be60c9d37f25a84"}
    for kind, expected in ((Watched, {"sink": "h:1 (refused)"}), (Apart, {})):
        deployment = open_deployment(tmp_path / f"{kind.__name__}.db", settings, environment=secret)
        engine = Engine(
            source=ScriptedSource([]),
            settings=settings,
            noise=deployment.noise,
            store=deployment.store,
            sinks=Sinks(dead_letters=kind(trust=Trust.PRIVATE)),
        )
        assert engine.health.connections() == expected
        deployment.store.close()


def test_only_a_turn_is_a_checkpoint(health: EngineHealth, clock: Clock) -> None:
    health.started()
    clock.now += 7.0
    assert health.checkpoint_age == 7.0
    health.delivering()
    health.delivered()
    assert health.checkpoint_age == 7.0
    health.turned()
    assert health.checkpoint_age == 0.0
    clock.now -= 1.0
    assert health.checkpoint_age == 0.0  # a turn that ends while a probe asks


def test_a_delivery_that_takes_long_is_not_ready_until_it_succeeds(
    health: EngineHealth, clock: Clock
) -> None:
    health.started()
    health.delivering()
    clock.now += 6.0
    health.delivering()  # a second attempt at the same delivery
    clock.now += 4.0
    assert health.not_ready() is None
    clock.now += 1.0
    assert health.not_ready() == "delivery has not succeeded for 11 s"
    health.delivered()
    assert health.not_ready() is None
    clock.now += 50.0
    health.delivering()
    assert health.not_ready() is None


def test_it_is_not_ready_while_a_connection_is_down_or_when_it_stops(
    health: EngineHealth, clock: Clock
) -> None:
    connections = [SettableConnection("source"), SettableConnection("sink")]
    for connection in connections:
        health.watch(connection)
    health.started()
    assert health.not_ready() is None
    for connection in connections:
        connection.problem = "h:1 (refused)"
        assert health.not_ready() == f"{connection.client} cannot be reached: h:1 (refused)"
        assert health.connections() == {one.client: one.problem for one in connections}
        connection.problem = None
    health.delivering()
    clock.now += 11.0
    connections[1].problem = "h:1 (refused)"
    assert (
        health.not_ready() == "sink cannot be reached: h:1 (refused)"
    )  # the cause, not what follows from it
    connections[1].problem = None
    health.delivered()
    health.turned()
    clock.now += 101.0
    assert health.not_ready() == "no sign of life for 101 s"
    health.stopping()
    assert health.not_ready() == "stopping"
