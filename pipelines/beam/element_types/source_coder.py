"""Bytes of where samples are; `source` itself is loaded before anyone knows that Beam is there."""

from __future__ import annotations

import json

from apache_beam import coders
from apache_beam.coders import typecoders

from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.element_types.events import beam_event_from_json, beam_event_to_json
from meanstream.streaming.sources.mapping import ColumnMapping


class SourceLocationCoder(coders.Coder):  # type: ignore[misc]
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

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


typecoders.registry.register_coder(SourceLocation, SourceLocationCoder)
