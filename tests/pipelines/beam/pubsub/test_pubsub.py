"""Pub/Sub into and out of Beam, on a server in memory: the engine's releases, whatever comes twice
or in disorder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from apache_beam.runners.direct import transform_evaluator
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner, SwitchingDirectRunner
from apache_beam.runners.portability.flink_runner import FlinkRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.prism_runner import PrismRunner

from meanstream.pipelines.beam.agents.agent_transforms import ReleaseMeans
from meanstream.pipelines.beam.input import parse_messages as parsing
from meanstream.pipelines.beam.input.parse_messages import ParseMessages
from meanstream.pipelines.beam.pubsub import pubsub_client as names
from meanstream.pipelines.beam.pubsub.read_pubsub import ReadPubSub
from meanstream.pipelines.beam.pubsub.write_pubsub import WritePubSub
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import DeadLetter, PersonalEstimate, Release
from meanstream.streaming.sinks.sink_protocol import Trust
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.kafka.test_read_kafka import on_runner
from tests.pipelines.beam.support import agents_world
from tests.pipelines.beam.support.agents_world import HOUR
from tests.pipelines.beam.support.collecting import collector, run_pipeline
from tests.pipelines.beam.support.prism import RUNNERS
from tests.servers.conftest import flink, need  # noqa: F401 - a fixture
from tests.servers.support import pubsub_server
from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.pubsub_server import PROJECT, Clients
from tests.servers.support.wait_until import wait_until

pytestmark = pytest.mark.servers
PATIENCE = 60.0
BY_FIELD = ColumnMapping(agent="agent", value="value", time="time", id="id")
BY_MESSAGE = ColumnMapping(agent="agent", value="value", time="time")
SHARDS = 2
STREAM = agents_world.samples(150, agents=8)
BAD = {
    b"{": "malformed",
    b"": "malformed",
    b'{"agent":"agent 1","value":NaN,"time":9,"id":"x"}': "not_finite",
    b'{"agent":"agent 1","time":9,"id":"y"}': "missing_value",
    b'{"agent":"agent 1","value":1,"time":4e9,"id":"z"}': "in_future",
    b'{"agent":"agent 1","value":"1","time":9,"id":"z"}': "bad_value",
}

RUNNER_CLASSES = {
    kind.__name__: kind
    for kind in (
        FnApiRunner,
        PrismRunner,
        FlinkRunner,
        SwitchingDirectRunner,
        BundleBasedDirectRunner,
    )
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    reason = pubsub_server.missing()
    if reason and shutil.which("go") is None:
        pytest.skip(reason)  # as with Prism: what builds them is no part of CI's machine
    need(reason)
    with pubsub_server.running() as address:
        yield address


@pytest.fixture
def clients(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server)
    clients = Clients()
    yield clients
    clients.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Event time of the runner, which takes the clock for it: here it is what the test says."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(transform_evaluator, "time", SimpleNamespace(time=lambda: clock.now))
    return clock


def encoded(number: int, agent: str, value: float, at: float) -> bytes:
    return json.dumps({"agent": agent, "value": value, "time": at, "id": f"id {number}"}).encode()


RECORDS = [encoded(number, *sample) for number, sample in enumerate(STREAM)]
SHUFFLED = [RECORDS[place] for place in np.random.default_rng(2).permutation(len(RECORDS)).tolist()]


def wait_for(done: Callable[[], bool], what: str) -> None:
    wait_until(done, PATIENCE, why=lambda: what)


def streamed(
    subscription: str,
    mapping: ColumnMapping,
    clock: SimpleNamespace,
    *,
    samples: Callable[[], int],
    letters: int = 0,
) -> tuple[list[bytes], list[Any]]:
    """Run agents over a subscription until so much was read, let event time pass everything, and
    give what came."""
    keep_read, read = collector()
    keep_letters, dead = collector()
    keep_released, released = collector()
    pipeline = beam.Pipeline(
        runner=BundleBasedDirectRunner(), options=PipelineOptions(["--streaming"])
    )
    source = pipeline | ReadPubSub(subscription, mapping, privacy_unit="sample")
    _ = source.dead_letters | "Keep letters" >> keep_letters
    made = (
        source.samples
        | "Note" >> keep_read
        | ReleaseMeans(agents_world.SETTINGS, refresh=200 * HOUR, shards=SHARDS)
    )
    _ = made.releases | "Keep releases" >> keep_released
    result = pipeline.run()
    try:
        wait_for(
            lambda: sum(map(len, read)) >= samples() and len(dead) >= letters,
            "all samples must come",
        )
        clock.now = 300 * HOUR
        wait_for(lambda: len(released) == SHARDS, "releases must come")
    finally:
        result.cancel()
    assert sum(map(len, read)) == samples()
    return agents_world.release_lines(released), dead


def engine(folder: Path) -> list[bytes]:
    world = agents_world.engine_on(folder, STREAM, final_release=False)
    return sorted(world.lines("releases"))


def test_the_releases_of_the_engine(
    clients: Clients, clock: SimpleNamespace, tmp_path: Path
) -> None:
    """In any order, among messages that cannot be used, and one of which was sent twice under one
    id."""
    topic, (subscription,) = clients.new_topic()
    clients.publish(topic, [*SHUFFLED[:70], *BAD, *SHUFFLED[70:], SHUFFLED[9]])
    read = len(STREAM) + 1
    released, dead = streamed(subscription, BY_FIELD, clock, samples=lambda: read, letters=len(BAD))
    assert released == engine(tmp_path) != []
    assert sorted(letter.reason for letter in dead) == sorted(BAD.values())
    assert {letter.source for letter in dead} == {subscription.rpartition("/")[2]}
    assert len({letter.position for letter in dead}) == len(BAD)


@pytest.mark.parametrize("fault", [False, True])
def test_messages_that_are_delivered_again_change_nothing(
    fault: bool,
    clients: Clients,
    clock: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first messages are not acknowledged but given back; were they not known by their ids,
    they would count."""
    from google.cloud.pubsub import SubscriberClient

    acknowledge, again = SubscriberClient.acknowledge, []

    def give_back(self: Any, *, subscription: str, ack_ids: list[str]) -> None:
        if len(again) >= 30:
            acknowledge(self, subscription=subscription, ack_ids=ack_ids)
            return
        again.extend(ack_ids)
        self.modify_ack_deadline(subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=0)

    monkeypatch.setattr(SubscriberClient, "acknowledge", give_back)
    if fault:
        monkeypatch.setattr(parsing, "message_keys", lambda ids: np.zeros(len(ids), np.uint64))
    topic, (subscription,) = clients.new_topic()
    clients.publish(topic, SHUFFLED)
    released, _ = streamed(
        subscription, BY_MESSAGE, clock, samples=lambda: len(STREAM) + len(again)
    )
    assert len(again) >= 30
    assert (released == engine(tmp_path)) is not fault


def test_what_is_not_used_is_counted_by_reason(tmp_path: Path) -> None:
    """By the part that parses, where a runner keeps counters of all bundles: the one of trials does
    not."""
    payloads = [*SHUFFLED, *BAD, *SHUFFLED[:3]]
    messages = [
        PubsubMessage(data, {}, message_id=str(2**50 + at)) for at, data in enumerate(payloads)
    ]
    parse = ParseMessages(BY_FIELD, batch_size=40, privacy_unit="sample")
    keep, dead = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        read = pipeline | beam.Create(messages) | parse
        _ = read.rejected | "Letters" >> keep
        return (
            read.samples | ReleaseMeans(agents_world.SETTINGS, EngineOptions(final_release=False))
        ).releases

    released, counters = run_pipeline(build)
    assert agents_world.release_lines(released) == engine(tmp_path)
    reasons = list(BAD.values())
    told = {name: count for name, count in counters.items() if name.startswith("rejected_")}
    assert told == {
        "rejected_duplicate": 3,
        **{f"rejected_{reason}": reasons.count(reason) for reason in reasons},
    }
    assert (counters["events"], counters["samples"]) == (len(payloads), len(SHUFFLED) + 3)
    places = {letter.position - 2**50: letter.reason for letter in dead}
    assert places == dict(enumerate(reasons, len(SHUFFLED)))


@pytest.mark.parametrize(
    ("runner", "options", "more", "message"),
    [
        ("FnApiRunner", ["--streaming"], {}, "runner must be DataflowRunner, or on one machine "
         "BundleBasedDirectRunner, where Pub/Sub is read, got 'FnApiRunner'"),
        ("PrismRunner", ["--streaming"], {}, "got 'PrismRunner'"),
        ("FlinkRunner", ["--streaming"], {}, "got 'FlinkRunner'"),
        ("SwitchingDirectRunner", ["--streaming"], {}, "got 'SwitchingDirectRunner'"),
        ("BundleBasedDirectRunner", [], {}, r"streaming must be given where Pub/Sub is read \(--streaming\), got "),
        ("BundleBasedDirectRunner", ["--streaming"], {"id_label": "a"}, "id_label must be for DataflowRunner, got 'a'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_before_anything_runs(
    runner: str, options: list[str], more: dict[str, Any], message: str
) -> None:
    pipeline = beam.Pipeline(runner=RUNNER_CLASSES[runner](), options=PipelineOptions(options))
    with pytest.raises(ValueError, match=message):
        _ = pipeline | ReadPubSub(f"{PROJECT}/subscriptions/anything", BY_FIELD, **more)


def test_dataflow_reads_the_subscription_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be submitted; nothing was ever run there."""
    monkeypatch.setattr(GoogleCloudOptions, "_warn_if_soft_delete_policy_enabled", lambda *_: None)
    place = [
        "--project=some-project",
        "--region=europe-west1",
        "--temp_location=gs://some-bucket/temp",
        "--no_auth",
    ]
    pipeline = beam.Pipeline(
        runner=DataflowRunner(), options=PipelineOptions(["--streaming", *place])
    )
    subscription = f"{PROJECT}/subscriptions/anything"
    _ = pipeline | ReadPubSub(
        subscription, BY_FIELD, timestamp_attribute="at", id_label="sent_as", privacy_unit="sample"
    )
    steps = pipeline.to_runner_api().components.transforms.values()
    (read,) = [
        step.spec.payload for step in steps if step.spec.urn == "beam:transform:pubsub_read:v1"
    ]
    payload = beam_runner_api_pb2.PubSubReadPayload.FromString(read)
    assert (payload.subscription, payload.with_attributes) == (subscription, True)
    assert (payload.timestamp_attribute, payload.id_attribute) == ("at", "sent_as")


@pytest.mark.parametrize("runner", RUNNERS)
def test_releases_have_the_bytes_of_the_engine_and_go_in_order(
    runner: str, clients: Clients, tmp_path: Path
) -> None:
    world = agents_world.engine_on(tmp_path, STREAM)
    lines = world.lines("releases")
    topic, (subscription,) = clients.new_topic()

    def build(pipeline: beam.Pipeline) -> None:
        _ = pipeline | beam.Create([EventLines(Release, lines)]) | WritePubSub(topic)

    on_runner(runner, build)
    messages = clients.pulled(subscription, len(lines))
    assert sorted(message.data for message in messages) == sorted(lines)
    for message in messages:
        event = json.loads(message.data)
        expected = {"schema_version": "1", "event": "release", "release_id": event["release_id"]}
        assert dict(message.attributes) == expected
        assert message.ordering_key == event["agent"]
    for agent in {agent for agent, _, _ in STREAM}:
        numbers = [
            json.loads(message.data)["index"]
            for message in messages
            if message.ordering_key == agent
        ]
        assert numbers == list(range(1, len(numbers) + 1)) != []
    on_runner(runner, build)  # a bundle that is executed again
    again = clients.pulled(subscription, len(lines))
    seen = {message.attributes["release_id"]: message.data for message in messages}
    assert len(seen) == len(again) == len(lines)
    assert all(seen[message.attributes["release_id"]] == message.data for message in again)


def test_events_as_objects_and_a_topic_that_is_not_there(clients: Clients) -> None:
    topic, (subscription,) = clients.new_topic()
    letter = DeadLetter(reason="late", source="samples", position=7)
    on_runner("FnApiRunner", lambda pipeline: pipeline | beam.Create([letter]) | WritePubSub(topic))
    (message,) = clients.pulled(subscription, 1)
    assert message.data == letter.model_dump_json().encode()
    assert (dict(message.attributes)["event"], message.ordering_key) == ("dead_letter", "")
    with pytest.raises(
        Exception, match=r"topic must accept messages, got NotFound from 'projects/"
    ):
        on_runner(
            "FnApiRunner", lambda p: p | beam.Create([letter]) | WritePubSub(f"{topic}-missing")
        )


def test_private_events_do_not_go_to_a_public_topic(clients: Clients) -> None:
    topic, (subscription,) = clients.new_topic()
    estimates = EventLines(PersonalEstimate, [b'{"agent":"ann"}'])

    def build(trust: Trust) -> Callable[[beam.Pipeline], Any]:
        return lambda pipeline: (
            pipeline | beam.Create([estimates]) | WritePubSub(topic, trust=trust)
        )

    with pytest.raises(
        Exception, match="public sink must be given public events, got PersonalEstimate"
    ):
        on_runner("FnApiRunner", build(Trust.PUBLIC))
    assert clients.pulled(subscription, 0) == []
    on_runner("FnApiRunner", build(Trust.PRIVATE))
    assert [message.ordering_key for message in clients.pulled(subscription, 1)] == ["ann"]


def test_the_extra_is_named_where_the_client_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_has_client", lambda: False)
    with pytest.raises(
        ValueError, match=r"topic needs google-cloud-pubsub: pip install 'meanstream\[gcp\]'"
    ):
        WritePubSub(f"{PROJECT}/topics/means")


def test_flink_sends_releases(
    clients: Clients,
    server: str,
    flink: FlinkCluster,  # noqa: F811
    tmp_path: Path,  # noqa: F811, RUF100
) -> None:
    """Its workers have the server's address in their environment."""
    lines = agents_world.engine_on(tmp_path, STREAM).lines("releases")
    topic, (subscription,) = clients.new_topic()
    options = flink.arguments(environment={"PUBSUB_EMULATOR_HOST": server})
    pipeline = beam.Pipeline(runner="FlinkRunner", options=PipelineOptions(options))
    _ = pipeline | beam.Create([EventLines(Release, lines)]) | WritePubSub(topic)
    pipeline.run().wait_until_finish()
    messages = clients.pulled(subscription, len(lines))
    seen = {
        message.attributes["release_id"]: (message.data, message.ordering_key)
        for message in messages
    }
    assert sorted(data for data, _ in seen.values()) == sorted(lines)
    assert {key for _, key in seen.values()} == {agent for agent, _, _ in STREAM}
