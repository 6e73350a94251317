"""A secret for every test of Beam, and an estimator of two stages."""

from __future__ import annotations

import pytest

from meanstream.operators.estimators.registry import ESTIMATORS
from tests.servers.conftest import cluster, flink, own_flink  # noqa: F401 - fixtures
from tests.streaming.support.rounds_world import SECRET
from tests.streaming.support.tiny_estimator import TINY


@pytest.fixture(autouse=True)
def _secret_and_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)
