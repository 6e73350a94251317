"""The window in which nothing ends."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import GlobalWindows


class ForGood(beam.PTransform):  # type: ignore[misc]
    """Elements into the one window whose state is never dropped, each as soon as it is there."""

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Put them there."""
        return pcoll | "Window" >> beam.WindowInto(
            GlobalWindows(), trigger=Repeatedly(AfterCount(1)), accumulation_mode=AccumulationMode.DISCARDING
        )
