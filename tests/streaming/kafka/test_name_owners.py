"""Who owns partitions under a name, where a broker answers late or not at all; a real one:
tests/servers."""

from __future__ import annotations

from typing import Any

import pytest

from meanstream.streaming.kafka.claims import name_owners, ownership
from meanstream.streaming.kafka.claims.name_owners import NameOwners
from meanstream.streaming.kafka.claims.ownership import OwnedElsewhereError
from meanstream.streaming.kafka.connection.kafka_client import KafkaError, KafkaException
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation


class Broker:
    """A consumer that notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.committed: list[Any] = []

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        assert asynchronous
        self.asked.append("commit")
        self.committed = offsets

    def poll(self, seconds: float) -> None:
        assert seconds == 0
        self.asked.append("poll")

    def close(self) -> None:
        self.asked.append("close")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(name_owners, "make_client_consumer", lambda location, **_: broker)
    return broker


def owners() -> NameOwners:
    return NameOwners(
        KafkaLocation.parse("kafka://127.0.0.1:1/topic?group=g", role="source"),
        "delays",
        "a store",
        {},
    )


def answering(error: Exception | None) -> Any:
    def unowned(*_: Any) -> None:
        if error is not None:
            raise error

    return unowned


@pytest.mark.usefixtures("broker")
def test_a_claim_that_is_being_made_is_waited_for_and_a_refusal_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ownership.time, "sleep", lambda _: None)
    busy = KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
    answers: list[Exception | None] = [busy, busy, None]
    monkeypatch.setattr(ownership, "unowned_partitions", lambda *_: answering(answers.pop(0))())
    owners().check({0: 1})
    assert not answers, "asked until it was told"
    refused = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    monkeypatch.setattr(ownership, "unowned_partitions", answering(refused))
    with pytest.raises(KafkaException) as caught:
        owners().check({0: 1})
    assert caught.value is refused
    monkeypatch.setattr(
        ownership, "unowned_partitions", answering(OwnedElsewhereError("source must be free"))
    )
    with pytest.raises(
        OwnedElsewhereError, match="source must be free; name must be another than 'delays'"
    ):
        owners().check({0: 1})


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.COORDINATOR_LOAD_IN_PROGRESS])
def test_nobody_goes_on_without_an_answer(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check was left out where the group's answer took too long: two stores could begin on one
    partition."""
    monkeypatch.setattr(ownership, "WAIT_SECONDS", 0.0)
    silent = KafkaException(KafkaError(code))
    monkeypatch.setattr(ownership, "unowned_partitions", answering(silent))
    with pytest.raises(KafkaException) as caught:
        owners().check({0: 1})
    assert caught.value is silent


def test_an_owner_is_noted_again_and_the_client_is_heard(broker: Broker) -> None:
    found = owners()
    found.renew({"0": 7})
    assert broker.asked == ["commit", "poll"]
    assert [(one.topic, one.partition, one.offset) for one in broker.committed] == [("topic", 0, 7)]
    found.renew({"0": 8})  # within ten minutes
    assert broker.asked == ["commit", "poll", "poll"]
    found.close()
    assert broker.asked[-1] == "close"
