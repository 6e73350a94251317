"""Messages of any source: the engine's samples, reasons and releases, whatever brings them and
however often."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import TaggedOutput
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows
from apache_beam.utils.timestamp import Timestamp

from meanstream.pipelines.beam.agents.agent_transforms import (
    CollaborateAgents,
    ColumnMapping,
    ParseMessages,
    ReleaseMeans,
    SampleRow,
    SampleRows,
)
from meanstream.pipelines.beam.input import parse_messages as parsing
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.wire import DeadLetter, PrivateDeadLetter
from meanstream.streaming.kafka.connection.registered import wire_head
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.lines import MAX_LINE_BYTES
from tests.pipelines.beam.support import agents_world
from tests.pipelines.beam.support.collecting import collector, run_pipeline

STREAM = agents_world.samples(120, agents=6)
PLAIN, BY_ID = ColumnMapping(), ColumnMapping(id="id")
BAD: list[tuple[bytes | None, str]] = [
    (b"{", "malformed"),
    (b"", "malformed"),
    (None, "malformed"),
    (b"\xff\xfe", "malformed"),
    (b'{"agent":"a","value":NaN,"time":9,"id":"x"}', "not_finite"),
    (b'{"agent":"a","time":9,"id":"y"}', "missing_value"),
    (b'{"agent":"a","value":1,"time":4e9,"id":"z"}', "in_future"),
    (b'{"agent":"a","value":"1","time":9,"id":"z"}', "bad_value"),
    (
        b'{"agent":"a","value":1,"time":9,"id":"z","x":"' + b"x" * MAX_LINE_BYTES + b'"}',
        "oversized",
    ),
]


class FromTopic(NamedTuple):
    """As a connector gives a record of a topic with all that is known of it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def json_of(number: int, *, named: bool = True) -> bytes:
    agent, value, time = STREAM[number]
    whose = {"agent": agent} if named else {}
    return json.dumps({**whose, "value": value, "time": time, "id": f"id {number}"}).encode()


VALUES = [json_of(number) for number in range(len(STREAM))]


def row_of(number: int, value: bytes | None, *, offset: int | None = None) -> FromTopic:
    at = number if offset is None else offset
    return FromTopic(
        "samples", at % 3, at // 3, 1_000 * number, f"key {number}".encode(), value, []
    )


def parsed(
    elements: list[Any], mapping: ColumnMapping, **more: Any
) -> tuple[list[Any], list[Any], list[int]]:
    """What the step makes of a bundle: samples, letters, and the keys of the samples."""
    step = ParseMessages(mapping, **more)._parse
    step.setup()
    step.start_bundle()
    out = [made for element in elements for made in step.process(element, Timestamp(5))]
    out += step.finish_bundle()
    batches = [made.value for made in out if not isinstance(made, TaggedOutput)]
    letters = [made.value.value for made in out if isinstance(made, TaggedOutput)]
    samples = [
        (batch.names[agent], value, time)
        for batch in batches
        for agent, value, time in zip(
            batch.agent.tolist(), batch.value.tolist(), batch.time.tolist(), strict=True
        )
    ]
    return (
        samples,
        letters,
        [key for batch in batches if batch.key is not None for key in batch.key.tolist()],
    )


def parsed_releases(elements: list[Any], parse: ParseMessages) -> tuple[list[bytes], Any]:
    """What agents release upon messages, and the counters."""
    released, counters = run_pipeline(
        lambda pipeline: (
            (
                (pipeline | beam.Create(elements, reshuffle=False) | parse).samples
                | ReleaseMeans(agents_world.SETTINGS, EngineOptions(final_release=False), shards=4)
            ).releases
        )
    )
    return agents_world.release_lines(released), counters


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    world = agents_world.engine_on(tmp_path_factory.mktemp("engine"), STREAM, final_release=False)
    return sorted(world.lines("releases"))


KINDS = {
    "bytes": VALUES,
    "text": [value.decode() for value in VALUES],
    "pairs": [(b"key", value) for value in VALUES],
    "rows": [row_of(number, value) for number, value in enumerate(VALUES)],
    "mappings": [row_of(number, value)._asdict() for number, value in enumerate(VALUES)],
    "beam rows": [beam.Row(value=value) for value in VALUES],
    "Pub/Sub": [
        PubsubMessage(value, {}, message_id=str(number)) for number, value in enumerate(VALUES)
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_the_same_whatever_brings_them(kind: str) -> None:
    assert parsed(KINDS[kind], PLAIN)[:2] == (STREAM, [])


@pytest.mark.parametrize(
    "wrap", [lambda value: value, lambda value: (b"", value), lambda value: row_of(7, value)]
)
def test_reasons_are_those_of_the_engine_and_end_nothing(wrap: Any) -> None:
    elements = [
        *map(wrap, VALUES[:50]),
        *(wrap(value) for value, _ in BAD),
        *map(wrap, VALUES[50:]),
    ]
    samples, rejected, _ = parsed(
        elements, BY_ID, name="clicks", batch_size=17, privacy_unit="sample"
    )
    assert samples == STREAM
    assert [letter.reason for letter in rejected] != []
    assert sorted(letter.reason for letter in rejected) == sorted(reason for _, reason in BAD)
    assert {letter.source for letter in rejected} == {"clicks"}
    place = (7 % 3, 7 // 3) if isinstance(elements[0], FromTopic) else (0, 0)
    assert {(letter.partition, letter.position) for letter in rejected} == {place}


class Unreadable(dict[str, Any]):
    """A mapping that raises when it is read."""

    def get(self, *_: Any) -> Any:
        raise RuntimeError("a value")


class Answers(BaseHTTPRequestHandler):
    """A registry that knows one schema."""

    KNOWN = {"/schemas/types": ["JSON"], "/schemas/ids/7": {"schemaType": "JSON", "schema": "{}"}}  # noqa: RUF012

    def do_GET(self) -> None:
        self.send_response(200 if self.path.partition("?")[0] in self.KNOWN else 404)
        self.end_headers()
        self.wfile.write(json.dumps(self.KNOWN.get(self.path.partition("?")[0], {})).encode())

    def log_message(self, *_: Any) -> None:
        """Be silent."""


def test_values_of_a_registry_are_read_as_it_says() -> None:
    """In Confluent's wire format, beside values of a schema that nobody knows and of no schema."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        place = f"kafka://127.0.0.1:1/samples?registry=http://127.0.0.1:{server.server_port}"
        elements = [
            *(wire_head(7) + value for value in VALUES),
            wire_head(8) + VALUES[0],
            wire_head(7)[:3],
            b"",
        ]
        samples, rejected, _ = parsed(elements, PLAIN, registry_of=place)
    finally:
        server.shutdown()
        server.server_close()
    assert samples == STREAM
    assert sorted(letter.reason for letter in rejected) == [
        "malformed",
        "malformed",
        "unknown_schema",
    ]


@pytest.mark.parametrize(
    "element",
    [
        3.5,
        object,
        (1, 2, 3),
        ("key", 7),
        {"worth": b"1"},
        beam.Row(worth=1),
        "\ud800",
        [b"1"],
        {"value": {}},
        Unreadable(value=b"{}"),
    ],
)
def test_what_is_no_message_is_malformed(element: Any) -> None:
    samples, rejected, _ = parsed([element, VALUES[0]], PLAIN)
    assert (samples, [letter.reason for letter in rejected]) == (STREAM[:1], ["malformed"])


def test_an_offset_tells_records_apart_however_often_they_come(engine: list[bytes]) -> None:
    """As after the kill of a worker whose source gives records again; without offsets these count
    twice."""
    rows = KINDS["rows"]
    for fault in (False, True):
        again = [row._replace(offset=None) for row in rows[:40]] if fault else rows[:40]
        released, counters = parsed_releases([*rows[:60], *again, *rows[60:]], ParseMessages(PLAIN))
        assert (released == engine != []) is not fault
        assert counters.get("rejected_duplicate", 0) == (0 if fault else 40)


def test_a_column_of_ids_stands_before_the_offset() -> None:
    again = [row_of(number, value, offset=1000 + number) for number, value in enumerate(VALUES)]
    keys = parsed([*KINDS["rows"], *again], BY_ID)[2]
    assert keys[: len(STREAM)] == keys[len(STREAM) :]
    assert len(set(keys)) == len(STREAM)


def test_what_nothing_tells_apart_has_no_key() -> None:
    assert [parsed(KINDS[kind], PLAIN)[2] for kind in ("bytes", "pairs", "beam rows")] == [[]] * 3
    assert len(set(parsed(KINDS["Pub/Sub"], PLAIN)[2])) == len(STREAM)


def test_parts_beside_the_value_are_read() -> None:
    """Agent from the key, of rows and of pairs; or from a header."""
    at_key, at_header = ColumnMapping(agent="@key"), ColumnMapping(agent="@header.who")
    agents = [agent.encode() for agent, _, _ in STREAM]
    values = [json_of(number, named=False) for number in range(len(STREAM))]
    pairs = list(zip(agents, values, strict=True))
    rows = [
        row_of(number, value)._replace(key=agent) for number, (agent, value) in enumerate(pairs)
    ]
    headed = [row._replace(key=None, headers=[("who", row.key)]) for row in rows]
    attributes = [
        PubsubMessage(value, {"who": agent.decode()}, message_id="") for agent, value in pairs
    ]
    for elements, mapping in (
        (pairs, at_key),
        (rows, at_key),
        (headed, at_header),
        (attributes, at_header),
    ):
        assert parsed(elements, mapping)[:2] == (STREAM, [])
    stamped = [row_of(number, value) for number, value in enumerate(VALUES)]
    assert [time for _, _, time in parsed(stamped, ColumnMapping(time="@timestamp"))[0]] == [
        *range(len(STREAM))
    ]
    assert parsed(VALUES[:1], ColumnMapping(time="@timestamp"))[0][0][2] == 5


def test_hostile_parts_beside_the_value_are_reasons() -> None:
    hostile = [
        row_of(1, VALUES[1])._replace(key=7, headers=3, partition=-1, offset="x", timestamp="now"),
        row_of(2, VALUES[2])._replace(
            key=[], headers=[(1, 2, 3)], topic=9, offset=True, timestamp=2**80
        ),
        row_of(3, VALUES[3])._replace(
            key=1.5, headers=[(1, b"")], partition=2**70, offset=2**70, timestamp=True
        ),
    ]
    for name, reason in (("@key", "missing_agent"), ("@header.who", "missing_agent")):
        _, rejected, _ = parsed(hostile, ColumnMapping(agent=name))
        assert [letter.reason for letter in rejected] == [reason] * 3
    samples, rejected, _ = parsed(hostile, ColumnMapping(time="@timestamp"))
    assert [time for _, _, time in samples] == [5, 5, 5]  # those of the elements
    assert parsed(hostile, PLAIN)[:2] == (STREAM[1:4], [])


def test_lines_of_csv_are_those_of_the_engines_file(tmp_path: Path) -> None:
    """Among lines that cannot be used, and values that are two lines."""
    path = agents_world.flawed_file(tmp_path, 300)
    lines = path.read_bytes().splitlines()
    source = open_source(str(path), agents_world.MAPPING, sort=False, id_key=b"")
    wanted: list[tuple[str, float, float]] = []
    reasons: list[str] = []
    batch = source.next_batch(1000)
    while len(batch.samples) or not batch.exhausted:
        samples = batch.samples
        wanted += zip(
            samples.agent.tolist(), samples.value.tolist(), samples.time.tolist(), strict=True
        )
        reasons += batch.rejects.reason
        batch = source.next_batch(1000)
    source.close()
    two = [b"agent 1,1,5,a\nagent 2,1,5,b", b'"agent 1\n",1,5,a', b"agent 1,1\r,5,a"]
    columns = lines[0].decode().split(",")
    rows, rejected, _ = parsed(
        [*lines[1:], *two],
        agents_world.MAPPING,
        columns=columns,
        batch_size=50,
        privacy_unit="sample",
    )
    assert sorted((value, time) for _, value, time in rows) == sorted(
        (value, time) for _, value, time in wanted
    )
    assert sorted(letter.reason for letter in rejected) == sorted(
        [*reasons, *["malformed"] * len(two)]
    )


def test_rows_have_a_schema_and_their_own_event_time() -> None:
    """So that windows of one's own stand beside the agents' on the same samples."""

    def build(pipeline: beam.Pipeline) -> Any:
        rows = (pipeline | beam.Create(VALUES) | ParseMessages(PLAIN)).samples | SampleRows()
        assert rows.element_type is SampleRow
        keyed = (
            rows
            | beam.WindowInto(FixedWindows(36_000))
            | beam.Map(lambda row: (row.agent, row.value))
        )
        window = beam.DoFn.WindowParam
        return (
            keyed
            | beam.combiners.Count.PerKey()
            | beam.Map(lambda pair, window=window: (*pair, window.start.micros / 1e6))
        )

    found, _ = run_pipeline(build)
    wanted: dict[tuple[str, float], int] = {}
    for agent, _, time in STREAM:
        wanted[agent, time // 36_000 * 36_000] = wanted.get((agent, time // 36_000 * 36_000), 0) + 1
    assert {(agent, start): count for agent, count, start in found} == wanted


@pytest.mark.parametrize(
    ("unit", "kind"),
    [("user", PrivateDeadLetter), ("sample", DeadLetter)],
)
def test_whose_the_rest_is_and_types_at_run_time(unit: Any, kind: type) -> None:
    keep, rejected = collector()
    with beam.Pipeline(
        FnApiRunner(), options=PipelineOptions(["--performance_runtime_type_check"])
    ) as pipeline:
        made = pipeline | beam.Create([*VALUES, b"{"]) | ParseMessages(PLAIN, privacy_unit=unit)
        assert made.rejected.element_type is kind
        _ = made.rejected | keep
        _ = made.samples | SampleRows()
        _ = made.samples | CollaborateAgents(agents_world.SETTINGS, shards=2)
    assert [type(letter) for letter in rejected] == [kind]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"max_future": -1}, "max_future must be at least 0, got -1"),
        ({"privacy_unit": "person"}, "privacy_unit must be one of sample, user, got 'person'"),
        ({"columns": "agent,value"}, "columns must be the names of the columns, got 'agent,value'"),
        (
            {"columns": ["agent", "value"]},
            "time column must be in the source, got 'time'; the source has agent, value",
        ),
        (
            {"registry_of": "kafka://h:9092/t"},
            "registry_of must name a registry, got 'kafka://h:9092/t'",
        ),
    ],
)
def test_an_option_is_refused_in_one_line(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        ParseMessages(PLAIN, **more)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("given", "mapping", "message"),
    [
        (beam.Create([b"x"]), ColumnMapping(agent="@key"),
         "mapping must name fields of the value where elements are bytes or text, got '@key'"),
        (beam.Create([beam.Row(payload=b"x")]), PLAIN, "value must name a field of the messages, got 'value'"),
        (beam.Create([b"x"]), PLAIN, "messages must be in the global window, got 'FixedWindows'"),
    ],
)  # fmt: skip
def test_a_collection_is_refused_where_the_pipeline_is_built(
    given: Any, mapping: ColumnMapping, message: str
) -> None:
    messages = beam.Pipeline(FnApiRunner()) | given
    if "window" in message:
        messages |= beam.WindowInto(FixedWindows(60))
    with pytest.raises(ValueError, match=r".") as caught:
        _ = messages | ParseMessages(mapping)
    assert str(caught.value).startswith(message)


def test_keys_are_of_the_whole_place() -> None:
    names = ["a/0/1", "a/0/2", "a/1/1", "b/0/1", ""]
    keys = parsing.message_keys(names).tolist()
    assert len(set(keys)) == len(names)
    assert keys[-1] == 0
