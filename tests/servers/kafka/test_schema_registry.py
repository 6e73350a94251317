"""Avro and JSON Schema by a real registry, from a real topic to samples; and releases that a
registry knows."""

from __future__ import annotations

import io
import json
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import fastavro
import pytest

from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.registered import wire_head
from meanstream.streaming.kafka.reading.kafka_source import KafkaSource
from meanstream.streaming.kafka.reading.scan import TopicScan, scan_values
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.store.state_store import Store
from tests.pipelines.command_line import SECRET, meanstream
from tests.servers.support.apicurio import ask, register
from tests.servers.support.kafka_reading import NewTopicOf, first_batch, read_count, send
from tests.servers.support.wait_until import wait_until

SAMPLE = {
    "type": "record",
    "name": "Sample",
    "fields": [
        {"name": "agent", "type": "string"},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "data",
            "type": {
                "type": "record",
                "name": "Data",
                "fields": [{"name": "value", "type": "double"}],
            },
        },
    ],
}
MAPPING = ColumnMapping(value="data.value")


def avro(number: int, schema: Any, i: int) -> bytes:
    out = io.BytesIO()
    record = {
        "agent": f"a{i % 7}",
        "time": 1_700_000_000_000 + 1000 * i,
        "data": {"value": float(i)},
    }
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return wire_head(number) + out.getvalue()


def opened(broker: str, topic: str, registry: str) -> KafkaSource:
    location = KafkaLocation.parse(f"kafka://{broker}/{topic}?group=of-{topic}&registry={registry}")
    return KafkaSource(location, MAPPING, owner="store-1")


def test_avro_of_several_versions_and_json_schema_are_samples_and_others_dead_letters(
    broker_address: str, new_topic: NewTopicOf, registry_address: str
) -> None:
    topic = new_topic()
    newer = {
        **SAMPLE,
        "fields": [
            {"name": "more", "type": ["null", "string"], "default": None},
            *SAMPLE["fields"],
        ],
    }
    old = register(registry_address, f"{topic}-value", SAMPLE)
    new = register(registry_address, f"{topic}-value", newer)
    loose = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    text = register(registry_address, f"{topic}-json", loose, "JSON")
    data = {"type": "record", "name": "lib.Data", "fields": [{"name": "value", "type": "double"}]}
    register(registry_address, f"{topic}-data", data)
    reference = {"name": "lib.Data", "subject": f"{topic}-data", "version": 1}
    apart = {
        **SAMPLE,
        "name": "Apart",
        "fields": [*SAMPLE["fields"][:2], {"name": "data", "type": "lib.Data"}],
    }
    by_reference = register(registry_address, f"{topic}-apart", apart, references=[reference])
    line = json.dumps({"agent": "a", "time": 1.7e9, "data": {"value": 2}}).encode()
    values = [
        avro(old, SAMPLE, 0),
        avro(new, newer, 1),
        wire_head(text) + line,
        avro(by_reference, SAMPLE, 3),
        avro(old, SAMPLE, 4)[:-1],  # torn
        avro(999_999, SAMPLE, 5),
        wire_head(text) + b"{",
        wire_head(text),
        line,  # without the head
        b"\x00\x00",
    ]
    send(broker_address, topic, values)
    with closing(opened(broker_address, topic, registry_address)) as source:
        batch = first_batch(source)
    assert dict(zip(batch.samples.position.tolist(), batch.samples.value.tolist(), strict=True)) == {
        0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0,
    }  # fmt: skip
    reasons = dict(zip(batch.rejects.position, batch.rejects.reason, strict=True))
    assert reasons == {
        4: "malformed",
        5: "unknown_schema",
        **dict.fromkeys(range(6, 10), "malformed"),
    }


class Gate:
    """A registry behind which the real one is; it can be shut, or lie."""

    def __init__(self, address: str) -> None:
        gate = self
        self.answer: bytes | None = None
        self.shut = False

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if gate.shut:
                    self.send_error(503)
                    return
                body = gate.answer
                if body is None or not self.path.startswith("/schemas/ids/"):
                    with urlopen(address + self.path, timeout=10) as real:  # noqa: S310 - http
                        body = real.read()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_while_the_registry_is_away_reading_waits_says_so_and_loses_nothing(
    broker_address: str, new_topic: NewTopicOf, registry_address: str
) -> None:
    topic = new_topic()
    number = register(registry_address, f"{topic}-value", SAMPLE)
    send(broker_address, topic, [avro(number, SAMPLE, i) for i in range(20)])
    with closing(Gate(registry_address)) as gate:
        with closing(opened(broker_address, topic, gate.address)) as source:
            gate.shut = True
            wait_until(
                lambda: (
                    not len(source.next_batch(100).samples)
                    and source.connection_problem() is not None
                )
            )
            batch = source.next_batch(100)
            assert (len(batch.samples), len(batch.rejects), batch.position["partitions"]) == (
                0,
                0,
                {"0": 0},
            )
            assert (
                str(source.connection_problem())
                == f"registry must answer at {gate.address}, got HTTP 503"
            )
            gate.shut = False
            _, batch = read_count(source, 20)
        assert source.connection_problem() is None
        assert batch.position["partitions"] == {"0": 20}
        gate.shut = True
        with pytest.raises(ValueError, match=r"registry must answer at .*, got HTTP 503"):
            opened(broker_address, topic, gate.address)


@pytest.mark.parametrize(
    "lie",
    [b'{"schema":"{"}', b'{"schema":7}', b'{"schema":"\\"int\\"","schemaType":"PROTOBUF"}', b"[]"],
)
def test_what_a_lying_registry_says_spoils_only_its_own_records(
    lie: bytes, broker_address: str, new_topic: NewTopicOf, registry_address: str
) -> None:
    topic = new_topic()
    send(broker_address, topic, [wire_head(1) + b"\x02a", avro(2, SAMPLE, 0)])
    with (
        closing(Gate(registry_address)) as gate,
        closing(opened(broker_address, topic, gate.address)) as source,
    ):
        gate.answer = lie
        batch = first_batch(source)
    assert batch.rejects.reason == ["unknown_schema"] * 2
    assert source.connection_problem() is None


def test_releases_are_registered_for_ever_and_our_own_readers_read_them(
    broker_address: str, new_topic: NewTopicOf, registry_address: str, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic(config={"cleanup.policy": "compact"})
    number = register(registry_address, f"{source}-value", SAMPLE)
    send(broker_address, source, [avro(number, SAMPLE, i) for i in range(140)])
    command = [
        *(
            "run",
            "agents",
            "--source",
            f"kafka://{broker_address}/{source}?registry={registry_address}",
        ),
        *(
            "--value",
            "data.value",
            "--lower",
            "0",
            "--upper",
            "200",
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
        ),
        *(
            "--store",
            str(tmp_path / "state.db"),
            "--sink",
            str(tmp_path / "estimates.jsonl"),
            "--until-end",
            "--quiet",
        ),
        *(
            "--final-release",
            "--releases",
            f"kafka://{broker_address}/{target}?registry={registry_address}",
        ),
    ]
    ran = meanstream(*command, environment={"MEANSTREAM_SECRET": SECRET})
    assert ran.code == 0, ran.err
    with closing(Store.read(tmp_path / "state.db")) as store:
        charged = store.ledger.rows()
    location = KafkaLocation.parse(f"kafka://{broker_address}/{target}")
    with closing(TopicScan(location)) as scan:
        records = scan.read(1000)
    assert records is not None
    kept = ask(f"{registry_address}/subjects/{target}-value/versions/latest")
    assert kept["schemaType"] == "JSON"
    assert "release_id" in kept["schema"]
    assert ask(f"{registry_address}/config/{target}-value") == {
        "compatibilityLevel": "BACKWARD_TRANSITIVE"
    }
    assert {bytes(value or b"")[:5] for value in records.values} == {wire_head(int(kept["id"]))}
    assert len(records.values) == charged
    assert all(json.loads(value or b"")["schema_version"] == 1 for value in scan_values(location))
