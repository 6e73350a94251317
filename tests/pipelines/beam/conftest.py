"""A secret for every test of Beam, and an estimator of two stages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from meanstream.operators.agents.agents import Agents
from meanstream.operators.estimators.registry import ESTIMATORS
from tests.servers.conftest import cluster, flink, own_flink  # noqa: F401 - fixtures
from tests.streaming.support.rounds_world import SECRET
from tests.streaming.support.tiny_estimator import TINY


@pytest.fixture(autouse=True)
def _secret_and_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)


@pytest.fixture(autouse=True, scope="module")
def _engine_votes_as_beam_does() -> Iterator[None]:
    """Agents on Beam vote alone, those of an engine together: all else is compared byte for byte.

    It holds for a module, since engines that many of its tests compare with run before each test's
    own fixtures.
    """
    with pytest.MonkeyPatch.context() as patched:
        alone = partial(Agents, votes_alone=True)
        patched.setattr("meanstream.streaming.agents.agents_engine.Agents", alone)
        yield


@pytest.fixture
def on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every window has its own turn and its own population, as in a stream that keeps up; a bounded
    input does not."""
    from meanstream.pipelines.beam.agents import waiting_samples as waiting

    monkeypatch.setattr(waiting, "overtakes", lambda: False)
