"""A private event never enters a public sink: every type of event, every sink, both trusts."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.events.base import Event, PrivateEvent, PublicEvent
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import EVENTS
from meanstream.streaming.sinks.jsonl_sink import JsonlSink, StreamSink
from meanstream.streaming.sinks.parquet_sink import ParquetSink
from meanstream.streaming.sinks.sink_protocol import Sink, Sinks, Trust
from tests.streaming.support.scripted_source import MemorySink

SINKS: dict[str, Callable[[Path, Trust], Any]] = {
    "jsonl": lambda folder, trust: JsonlSink(folder / "x.jsonl", trust=trust),
    "parquet": lambda folder, trust: ParquetSink(folder / "x.parquet", trust=trust),
    "stream": lambda _, trust: StreamSink(trust=trust, stream=io.BytesIO()),
    "memory": lambda _, trust: MemorySink(trust=trust),
}


class Unclassified(Event):
    """Neither public nor private."""

    topic = "unclassified"


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.parametrize("make", SINKS.values(), ids=SINKS)
@pytest.mark.parametrize("kind", [*EVENTS.values(), Unclassified], ids=lambda kind: kind.__name__)
def test_every_pair_of_event_and_sink(
    kind: type[Event], make: Callable[[Path, Trust], Sink], trust: Trust, tmp_path: Path
) -> None:
    sink = make(tmp_path, trust)
    events = EventLines(kind, [b'{"x":1}'])
    if trust is Trust.PUBLIC and not issubclass(kind, PublicEvent):
        with pytest.raises(
            TypeError, match=f"public sink must be given public events, got {kind.__name__}"
        ):
            sink.write(events)
        sink.flush()
        assert not any(path.is_file() and path.stat().st_size for path in tmp_path.rglob("*"))
    else:
        sink.write(events)
        sink.flush()
    sink.close()


def test_the_private_types_are_these() -> None:
    assert {name for name, kind in EVENTS.items() if issubclass(kind, PrivateEvent)} == {
        "sample",
        "estimate",
        "pair_release",
        "private_dead_letter",
    }
    assert all(
        issubclass(kind, PublicEvent) != issubclass(kind, PrivateEvent) for kind in EVENTS.values()
    )


def test_a_public_sink_for_estimates_is_refused_before_the_run() -> None:
    with pytest.raises(
        TypeError, match="public sink must be given public events, got PersonalEstimate"
    ):
        Sinks(estimates=MemorySink(trust=Trust.PUBLIC))
