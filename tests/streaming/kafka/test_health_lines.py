"""What a client says of its brokers: once that they are away, once that they are back, nothing
while it connects."""

from __future__ import annotations

import logging

import pytest

from meanstream.streaming.kafka.connection.kafka_health import Health


def test_an_outage_is_one_line_and_its_end_another(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    health = Health("h:1")
    health.lost("refused")  # whoever connects reports that itself
    health.reached()
    assert health.problem() is None
    health.connected = True
    health.reached()
    assert caplog.records == []
    health.lost("refused")
    health.lost("refused again")
    assert health.problem() == "h:1 (refused again)"
    health.reached()
    health.reached()
    assert health.problem() is None
    assert [record.getMessage() for record in caplog.records] == [
        "brokers cannot be reached: h:1 (refused)",
        "brokers can be reached again: h:1",
    ]
