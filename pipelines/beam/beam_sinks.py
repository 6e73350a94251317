"""Where a pipeline of the command line ends.

Events to a file, whole or not at all, or to a topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import typecoders
from apache_beam.transforms.trigger import DefaultTrigger

import meanstream.pipelines.beam.element_types.events as _events  # noqa: F401 - coders register themselves
from meanstream.pipelines.beam.element_types.beam_source import SourceLocation, write_file_whole
from meanstream.pipelines.beam.element_types.events import (
    OwnCoder,
    beam_event_from_json,
    beam_event_to_json,
    text_of_lines,
)
from meanstream.pipelines.beam.worker.beam_steps import Step, discreet_step
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location
from meanstream.streaming.sinks.sink_protocol import Trust, check_sink_trust
from meanstream.streaming.sources.mapping import ColumnMapping


class WriteEvents(beam.PTransform):  # type: ignore[misc]
    """Events to one JSONL file, in the order of time, again the same on a retry.

    Or to a topic, at least once.

    **Privacy.** Private events are refused unless the place is declared private.

    Parameters
    ----------
    place : Path or str
        A file that the workers can write, which is replaced: a path, or `gs://...`; or a topic,
        `kafka://...`, see `sink`, or `projects/PROJECT/topics/NAME`, see `sink`.
    lines_of : callable
        What an element is in a sink, with one line per event.
    role : str
        What the place is for, as the engine's options name it.
    trust : Trust
        Who can read it.
    """

    def __init__(
        self,
        place: Path | str,
        lines_of: Callable[[Any], EventLines],
        *,
        role: str = "sink",
        trust: Trust = Trust.PUBLIC,
    ) -> None:
        super().__init__()
        self._place = place
        self._lines_of = lines_of
        self._role = role
        self._trust = trust

    def expand(self, pcoll: beam.PCollection) -> None:
        """Send, or gather and write."""
        if isinstance(self._place, str) and _is_topic(self._place):
            lines = pcoll | "Lines" >> beam.ParDo(_InLines(self._lines_of)).with_output_types(
                EventLines
            )
            _ = lines | "Send" >> write_to_topic_sink(self._place, self._role, self._trust)

            return

        text = beam.Map(_text, self._lines_of, self._trust).with_output_types(tuple[int, bytes])
        _ = (
            pcoll
            | "Lines" >> text
            | "For good" >> beam.WindowInto(beam.window.GlobalWindows(), trigger=DefaultTrigger())
            | "Gather" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(_WriteFile(str(self._place)))
        )


def _is_topic(place: str) -> bool:
    """Say whether a place is a topic of Kafka or of Pub/Sub, and not a file.

    Examples
    --------
    >>> [_is_topic(place) for place in ("kafka://broker:9092/means", "projects/p/topics/means", "gs://bucket/means.jsonl")]
    [True, True, False]
    """
    return is_kafka_location(place) or place.startswith("projects/")


def write_to_topic_sink(place: str, role: str, trust: Trust) -> beam.PTransform:
    """Make the sink of a topic."""
    if is_kafka_location(place):
        from meanstream.pipelines.beam.kafka.write_kafka import WriteKafka

        return WriteKafka(place, role=role, trust=trust)

    from meanstream.pipelines.beam.pubsub.write_pubsub import WritePubSub

    return WritePubSub(place, trust=trust)


class _InLines(Step):
    def __init__(self, lines_of: Callable[[Any], EventLines]) -> None:
        self._lines_of = lines_of

    def process(self, element: Any) -> Iterator[EventLines]:
        yield self._lines_of(element)


class _WriteFile(Step):
    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, element: tuple[int, Iterable[bytes]]) -> None:
        lines = sorted(
            (line for some in element[1] for line in some.split(b"\n") if line), key=_order
        )
        write_file_whole(self._path, b"".join(line + b"\n" for line in lines))


@discreet_step
def _text(event: Any, lines_of: Callable[[Any], EventLines], trust: Trust) -> tuple[int, bytes]:
    lines = lines_of(event)
    check_sink_trust(trust, lines.kind)
    return 0, text_of_lines(lines)


def _order(line: bytes) -> tuple[datetime, datetime, str, int]:
    """Order events by their time; windows by their end, then by their start."""
    event = json.loads(line)
    end = datetime.fromisoformat(event["end"] if "end" in event else event["time"])
    start = datetime.fromisoformat(event["start"]) if "start" in event else end
    return end, start, event.get("agent", ""), event.get("index", 0)


class SourceLocationCoder(OwnCoder):
    """Where samples are; none of them."""

    def encode(self, value: SourceLocation) -> bytes:
        """JSON."""
        return beam_event_to_json(
            [value.location, value.mapping.model_dump(mode="json"), value.sort, value.ranges]
        )

    def decode(self, encoded: bytes) -> SourceLocation:
        """Read and check it."""
        location, mapping, sort, ranges = beam_event_from_json(encoded)
        return SourceLocation(
            location=location,
            mapping=ColumnMapping.model_validate_json(
                json.dumps(mapping)
            ),  # strict: a list would be no tuple
            sort=sort,
            ranges=tuple((partition, first, stop) for partition, first, stop in ranges),
        )


typecoders.registry.register_coder(SourceLocation, SourceLocationCoder)
