"""Which tests start real servers: those are part of `make test`, not of `make check`. No test fails for being slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.beam_once import looked_at_once

# A machine with much else to do is no fault. The same examples each time: a commit is good or not. Others are tried
# by `pytest --hypothesis-profile=searching`.
settings.register_profile("searching", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeated", settings.get_profile("searching"), derandomize=True, database=None)
settings.load_profile("repeated")

SERVERS = Path(__file__).parent / "servers"
STARTED_BY = {"broker_address", "own_broker", "flink", "own_flink"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVERS in item.path.parents or STARTED_BY & set(getattr(item, "fixturenames", ())):
            item.add_marker("servers")


@pytest.fixture(autouse=True, scope="session")
def _beam_looks_once() -> Iterator[None]:
    with looked_at_once():
        yield
