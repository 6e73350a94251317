"""Ports of metrics, page and private metrics: the same in all worlds that are compared, because
they are shown."""

from __future__ import annotations

import pytest

from tests.fitted_once import fitted_once  # noqa: F401 - fixture
from tests.servers.support.broker import free_ports


@pytest.fixture(scope="module")
def ports() -> tuple[int, ...]:
    return tuple(free_ports(3))
