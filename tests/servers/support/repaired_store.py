"""An engine over a store whose agents were lost and whose ledger was not: what it would release
again is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.metrics.engine_metrics import Metrics
from meanstream.streaming.metrics.metrics_server import MetricsServer
from tests.streaming.conftest import World
from tests.streaming.support.scripted_source import ScriptedSource


@contextmanager
def serve_refusals(folder: Path) -> Iterator[str]:
    """Let the engine refuse, and serve its metrics as it left them; give their address."""
    world = World(folder)
    world.run(ScriptedSource([("ann", float(i % 5), float(i)) for i in range(12)]))
    world.lose_agents()
    stats = world.run(
        ScriptedSource([("ann", 5.0 if i == 0 else float(i % 5), float(i)) for i in range(12)])
    )
    assert stats.refusals
    health = EngineHealth()
    metrics = Metrics(settings=world.settings, health=health)
    metrics.observe(stats)
    with MetricsServer("127.0.0.1:0", metrics, health) as server:
        yield server.url.removeprefix("http://")
