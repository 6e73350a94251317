"""The window in which nothing ends, and elements with a time of their own."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import GlobalWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

# Where it does not say what it holds, Beam's check of types at run time takes it for the element
# itself.
_Timed = TimestampedValue[Any]


def with_window_time(time: Timestamp, value: Any) -> TimestampedValue:
    """Give an element its time."""
    return _Timed(value, time)


class ForGood(beam.PTransform):  # type: ignore[misc]
    """Elements into the one window whose state is never dropped, each as soon as it is there."""

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Put them there."""
        return pcoll | "Window" >> beam.WindowInto(
            GlobalWindows(),
            trigger=Repeatedly(AfterCount(1)),
            accumulation_mode=AccumulationMode.DISCARDING,
        )
