"""Addresses of topics: what they mean, one line for each mistake, and secrets that show nowhere."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from meanstream.streaming.client_logs import logs_of_clients
from meanstream.streaming.kafka.connection import kafka_health as health
from meanstream.streaming.kafka.connection.kafka_configuration import read_configuration
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location

SECRET = "correct horse battery staple"  # noqa: S105 - it must not show


def test_an_address_in_full(tmp_path: Path) -> None:
    config = tmp_path / "a+b c.yaml"
    config.write_text("security.protocol: SASL_SSL\nssl.endpoint.identification.algorithm: none\n")
    text = (
        "kafka://one.example:9092,[::1]:9093,two/my.topic_1?group=a%26b&partitions=7,0,2-4&start=latest&gap=skip"
        f"&config={tmp_path}/a+b%20c.yaml"
    )
    location = KafkaLocation.parse(text)
    assert location.brokers == "one.example:9092,[::1]:9093,two"
    assert (location.topic, location.group) == ("my.topic_1", "a&b")
    assert location.partitions == (0, 2, 3, 4, 7)
    assert (location.start, location.gap, location.create) == ("latest", "skip", None)
    assert location.config == config
    assert dict(location.settings)["security.protocol"] == "SASL_SSL"
    assert str(location) == "kafka://one.example:9092,[::1]:9093,two/my.topic_1"


def test_what_is_not_said() -> None:
    location = KafkaLocation.parse("kafka://h/t")
    assert (location.group, location.partitions) == ("meanstream", None)
    assert (location.start, location.gap, location.config) == ("earliest", "refuse", None)
    assert KafkaLocation.parse("kafka://h/t?create=3", role="releases").create == 3


def test_one_client_serves_topics_of_the_same_cluster_only(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("linger.ms: 5\n")
    one = KafkaLocation.parse("kafka://h/t?create=1", role="releases")
    assert one.same_cluster(KafkaLocation.parse("kafka://h/u", role="sink"))
    assert not one.same_cluster(KafkaLocation.parse("kafka://i/t", role="sink"))
    assert not one.same_cluster(
        KafkaLocation.parse(f"kafka://h/t?config={tmp_path}/c.yaml", role="sink")
    )


def test_only_kafka_is_kafka() -> None:
    assert is_kafka_location("kafka://h/t")
    assert not is_kafka_location("kafka.jsonl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "kafka://h",
            "source must be kafka://HOST:PORT/TOPIC?OPTION=VALUE with a topic of letters",
        ),
        ("kafka://h/a/b", "with a topic of letters, digits, '.', '_' and '-', got 'a/b'"),
        ("kafka://h/..", "with a topic of letters"),
        ("kafka://h/" + "x" * 250, "with a topic of letters"),
        ("kafka:///t", "with brokers HOST:PORT, got ''"),
        ("kafka://h:port/t", "with brokers HOST:PORT, got 'h:port'"),
        ("kafka://h,,i/t", "with brokers HOST:PORT, got ''"),
        ("kafka://h/t#x", "with a topic of letters"),
        (
            "kafka://h/t,u",
            "source must be one topic (several are for the source of an engine), got 't,u'",
        ),
        ("h:9092/t", "source must be kafka://HOST:PORT/TOPIC?OPTION=VALUE, got 'h:9092/t'"),
        (
            "kafka://h/t?gruop=a",
            "source must have options that are known, got 'gruop'; did you mean 'group'?",
        ),
        ("kafka://h/t?group=a&group=b", "source must have each option once, got 'group' again"),
        ("kafka://h/t?group=", "group must have a value, got none"),
        ("kafka://h/t?group", "group must have a value, got none"),
        ("kafka://h/t?group=%00", "group must be 1 to 255 visible characters, got '\\x00'"),
        (
            "kafka://h/t?create=3",
            "source must have options of a topic that is read from, got 'create'",
        ),
        ("kafka://h/t?start=begin", "start must be 'earliest' or 'latest', got 'begin'"),
        ("kafka://h/t?gap=ignore", "gap must be 'refuse' or 'skip', got 'ignore'"),
        (
            "kafka://h/t?partitions=1-",
            "partitions must be numbers and ranges such as 0,2-3, got '1-'",
        ),
        (
            "kafka://h/t?partitions=3-1",
            "partitions must be ranges from low to high below 100000, got '3-1'",
        ),
        (
            "kafka://h/t?partitions=0-999999",
            "partitions must be ranges from low to high below 100000",
        ),
        ("kafka://h/t?partitions=0-2,1", "partitions must be distinct, got '0-2,1'"),
        (
            "kafka://h/t?config=/no/such/file",
            "config must be a readable file, got '/no/such/file' (No such file",
        ),
    ],
)
def test_a_mistake_in_a_source_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        KafkaLocation.parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "kafka://h/t?group=a",
            "releases must have options of a topic that is written to, got 'group'",
        ),
        (
            "kafka://h/t?partitions=1",
            "releases must have options of a topic that is written to, got 'partitions'",
        ),
        ("kafka://h/t?create=0", "create must be a number of partitions from 1 on, got '0'"),
        (
            "kafka://h/t?crate=1",
            "releases must have options that are known, got 'crate'; did you mean 'create'?",
        ),
    ],
)
def test_a_mistake_in_a_sink_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        KafkaLocation.parse(text, role="releases")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kafka://h/t,u,t", "source must name each topic once, got 't'"),
        ("kafka://h/t,", "with a topic of letters, digits, '.', '_' and '-', got ''"),
        ("kafka://h/t,..", "with a topic of letters, digits, '.', '_' and '-', got '..'"),
        (
            "kafka://h/" + ",".join(f"t{i}" for i in range(33)),
            "source must be at most 32 topics, got 33",
        ),
        (
            "kafka://h/t,u?partitions=0-1",
            "partitions must be left out with several topics, whose agents one store has",
        ),
    ],
)
def test_a_mistake_in_several_topics_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        KafkaLocation.parse(text, several=True)
    assert message in str(caught.value)


def test_several_topics_are_the_same_source_in_any_order() -> None:
    one = KafkaLocation.parse("kafka://h/t,u?group=g&gap=skip", several=True)
    assert one == KafkaLocation.parse("kafka://h/u,t?group=g&gap=skip", several=True)
    assert [(each.topic, each.group, each.gap) for each in one.each()] == [
        ("t", "g", "skip"),
        ("u", "g", "skip"),
    ]
    assert [each.topic for each in KafkaLocation.parse("kafka://h/t").each()] == ["t"]


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="source must name brokers only") as caught:
        KafkaLocation.parse(f"kafka://me:{SECRET}@h/t")
    assert SECRET not in str(caught.value)
    with pytest.raises(ValueError, match=r"'sasl\.password'") as caught:
        KafkaLocation.parse(f"kafka://h/t?sasl.password={SECRET}")
    assert SECRET not in str(caught.value)


SECRET_PROPERTIES = [
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
]


@pytest.mark.parametrize("name", SECRET_PROPERTIES)
def test_a_secret_in_the_file_is_refused_and_not_shown(name: str, tmp_path: Path) -> None:
    config = tmp_path / "kafka.yaml"
    config.write_text(f"{name}: {SECRET}\n")
    with pytest.raises(
        ValueError, match=r"must be env:NAME or file:PATH, got the secret itself"
    ) as caught:
        read_configuration(config)
    assert f"{name} in {str(config)!r}" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_secrets_come_from_the_environment_or_a_file_and_show_nowhere(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("-----BEGIN\nline two\n")
    config = tmp_path / "kafka.yaml"
    config.write_text(
        "sasl.password: env:KAFKA_PASSWORD\nssl.key.pem: file:key.pem\nsasl.username: env:KAFKA_USER\nlinger.ms: 5\n"
        "enable.ssl.certificate.verification: true\n"
    )
    environment = {"KAFKA_PASSWORD": SECRET, "KAFKA_USER": "me"}
    location = KafkaLocation.parse(f"kafka://h/t?config={config}", environment=environment)
    assert dict(location.settings) == {
        "sasl.password": SECRET,
        "ssl.key.pem": "-----BEGIN\nline two",
        "sasl.username": "me",
        "linger.ms": "5",
        "enable.ssl.certificate.verification": "true",
    }
    assert SECRET not in f"{location} {location!r}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sasl.password: env:NOT_SET", "must be in the environment, got no variable 'NOT_SET'"),
        ("sasl.password: file:missing", "must be in a readable file, got"),
        ("sasl.password: file:empty", "must be in a file that is not empty, got"),
        ("sasl.password: [a]", "must be text, a number, true or false, got list"),
        ("sasl.password:", "must be text, a number, true or false, got NoneType"),
        ("enable.auto.commit: true", "must not be set: the store decides the offsets"),
        (
            "isolation.level: read_uncommitted",
            "must not be set: records of aborted transactions must not be read",
        ),
        ("transactional.id: x", "must not be set: the store decides who may write"),
        ("acks: 1", "must not be set: records must be written exactly once"),
        ("group.id: x", "must not be set: the address names the group (group=)"),
        ("bootstrap.servers: x", "must not be set: the address names the brokers"),
        ("error_cb: x", "must not be set: it is not a property of a file"),
        ("- a", "config must be a file of names and values"),
        ("1: a", "config must be a file of names and values"),
        (f"a: b\nsasl.password: {SECRET}: {SECRET}", "config must be a YAML file, got another in"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_without_its_values(
    content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("\n")
    config = tmp_path / "kafka.yaml"
    config.write_text(content)
    with pytest.raises(ValueError, match=r".") as caught:
        read_configuration(config, {})
    assert message in str(caught.value)
    assert str(config) in str(caught.value) or "file:" in content
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("line", ["no.such.property: 1", "batch.num.messages: many"])
def test_a_property_that_librdkafka_refuses_is_named_with_its_file(
    line: str, tmp_path: Path
) -> None:
    from meanstream.streaming.kafka.connection.kafka_client import make_client_producer

    config = tmp_path / "kafka.yaml"
    config.write_text(line)
    location = KafkaLocation.parse(f"kafka://127.0.0.1:1/t?config={config}", role="releases")
    with pytest.raises(
        ValueError, match="releases must have valid properties of librdkafka, got: "
    ) as caught:
        make_client_producer(location)
    assert line.partition(":")[0] in str(caught.value)
    assert str(config) in str(caught.value)


@pytest.mark.parametrize(
    "kind", ["make_client_consumer", "make_client_producer", "make_client_admin"]
)
def test_brokers_that_are_not_there_are_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from meanstream.streaming.kafka.connection import kafka_client as client

    monkeypatch.setattr(client, "CONNECT_SECONDS", 0.2)
    location = KafkaLocation.parse("kafka://127.0.0.1:1/t")
    with pytest.raises(
        ValueError, match=r"source must be on brokers that can be reached, got 127\.0\.0\.1:1 "
    ) as caught:
        getattr(client, kind)(location)
    assert "Connection refused" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_consumers_which_are_read_all_the_time_have_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a client that nobody polls for hours they would pile up in memory."""
    from meanstream.streaming.kafka.connection import kafka_client as client

    made: dict[str, Any] = {}

    class Made(Exception):  # noqa: N818 - nothing is to be connected
        """A client would have been made."""

    def make_nothing(self: object, configuration: dict[str, Any]) -> None:
        made[type(self).__name__] = configuration["statistics.interval.ms"]
        raise Made

    for name in ("Consumer", "Producer", "AdminClient"):
        monkeypatch.setattr(client, name, type(name, (), {"__init__": make_nothing}))
    location = KafkaLocation.parse("kafka://127.0.0.1:1/t")
    for make in (
        client.make_client_consumer,
        client.make_client_producer,
        client.make_client_admin,
    ):
        with pytest.raises(Made):
            make(location)
    assert made == {"Consumer": 1000, "Producer": 0, "AdminClient": 0}


class Trouble:
    """An error as a client reports it."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._text


def statistics(state: str) -> str:
    return f'{{"ts": 0, "brokers": {{"h:1/1": {{"nodeid": 1, "state": "{state}"}}}}}}'


def test_an_outage_is_two_lines_however_long_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "meanstream.kafka")
    watched = health.Health("h:1", [SECRET])
    watched.connected = True
    for _ in range(50):
        watched.on_error(Trouble("_TRANSPORT", f"refused {SECRET} (after 3ms in state CONNECT)"))
        watched.on_error(Trouble("_ALL_BROKERS_DOWN", "1/1 brokers are down"))
        watched.log(logging.ERROR, "%s [%s] %s", "FAIL", "client", "refused")
        watched.on_statistics(statistics("CONNECT"))
    assert watched.problem() == "h:1 (refused ***)"
    watched.on_statistics(statistics("UP"))
    watched.on_statistics(statistics("UP"))
    assert watched.problem() is None
    assert [record.getMessage() for record in caplog.records] == [
        "brokers cannot be reached: h:1 (refused ***)",
        "brokers can be reached again: h:1",
    ]


def connections(now: int, *idle: tuple[int, int]) -> str:
    """Statistics of connections that stand: the time, seconds since each was sent something, and
    what it is owed."""
    several = {
        str(i): {"name": str(i), "state": "UP", "rxidle": s * 1_000_000, "waitresp_cnt": owed}
        for i, (s, owed) in enumerate(idle)
    }
    return json.dumps({"ts": now * 1_000_000, "brokers": several})


def test_a_connection_that_is_asked_nothing_does_not_stand_for_a_silent_one() -> None:
    """The group's coordinator is the same broker on another connection: idle, it hid an outage for
    a minute."""
    watched = health.Health("h:1")
    watched.on_statistics(connections(100, (0, 1), (300, 0)))
    watched.on_statistics(connections(107, (7, 1), (307, 0)))
    assert watched.problem() is None
    watched.on_statistics(connections(109, (9, 1), (309, 0)))
    assert watched.problem() == "h:1 (no answer for 9 s)"
    watched.on_statistics(connections(111, (11, 1), (311, 0)))
    assert watched.problem() is not None
    watched.on_statistics(connections(112, (0, 1), (312, 0)))
    assert watched.problem() is None
    # Another broker that answers, or nobody who is owed anything: no outage.
    watched.on_statistics(connections(172, (60, 1), (1, 1)))
    assert watched.problem() is None
    watched.on_statistics(connections(232, (60, 0), (60, 0)))
    assert watched.problem() is None


def test_a_question_after_a_long_rest_is_a_new_one() -> None:
    """A source that is held back asks nothing: its first fetch was owed for half a minute, it
    seemed."""
    watched = health.Health("h:1")
    watched.on_statistics(connections(100, (29, 0), (30, 0)))
    watched.on_statistics(connections(101, (30, 1), (31, 0)))
    assert watched.problem() is None
    watched.on_statistics(connections(108, (37, 1), (38, 0)))
    assert watched.problem() is None
    watched.on_statistics(connections(110, (39, 1), (40, 0)))
    assert watched.problem() == "h:1 (no answer for 9 s)"


def test_lines_end_with_the_command_that_made_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A client that no one closed, or that still waits for brokers, writes into no later command."""
    caplog.set_level(logging.INFO, "meanstream.kafka")
    with logs_of_clients():
        closed, left = health.Health("h:1"), health.Health("h:2")
        closed.connected = left.connected = True
        left.lost("no answer")
        closed.end()
        for watched in (closed, left):
            watched.log(logging.WARNING, "%s [%s] %s", "SESSTMOUT", "client", "during")
    assert len(caplog.records) == 2

    with logs_of_clients():
        left.reached()
        left.lost("no answer")
        left.on_error(KafkaError(-196))
        left.log(logging.WARNING, "%s [%s] %s", "FATAL", "client", "after")
        left.log(logging.WARNING, "%s [%s] %s", "TERMINATE", "client", "after")
    assert len(caplog.records) == 2, "the client's own calls still report"

    library = health.Health("h:3")
    with logs_of_clients():
        library.log(logging.WARNING, "%s [%s] %s", "TERMINATE", "client", "of no command")
    assert len(caplog.records) == 3


def test_a_timed_out_request_is_no_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal of one line stays one: statistics, or the call that waits, say that no one answers."""
    caplog.set_level(logging.INFO, "meanstream.kafka")
    watched = health.Health("h:1")
    watched.log(logging.WARNING, "%s [%s] %s", "REQTMOUT", "client", "Timed out 1 in-flight")
    assert caplog.records == []


def test_other_lines_are_rare_and_tell_how_many_they_stand_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "meanstream.kafka")
    now = [0.0]
    monkeypatch.setattr(health.time, "monotonic", lambda: now[0])
    watched = health.Health("h:1", [SECRET])
    for _ in range(5):
        watched.log(logging.WARNING, "%s [%s] %s", "SESSTMOUT", "client", f"busy\n{SECRET}")
    now[0] = health.QUIET_SECONDS + 1
    watched.log(logging.WARNING, "%s [%s] %s", "SESSTMOUT", "client", "busy")
    assert [record.getMessage() for record in caplog.records] == [
        "SESSTMOUT [client] busy ***",
        "SESSTMOUT [client] busy (4 more lines of this kind were left out)",
    ]
