"""Which tests start real servers: those are part of `make test`, not of `make check`."""

from __future__ import annotations

from pathlib import Path

import pytest

SERVERS = Path(__file__).parent / "servers"
STARTED_BY = {"broker_address", "own_broker", "flink", "own_flink"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVERS in item.path.parents or STARTED_BY & set(getattr(item, "fixturenames", ())):
            item.add_marker("servers")
