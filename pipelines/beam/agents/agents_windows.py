"""When shards of agents answer.

At the end of every window in which someone has sent a sample, or once, at the end.

Three things happen at the end of a window, one after the other, and event time keeps them apart by
a millisecond each: shards release; shards of releases tell what has changed; the population is
fitted. Samples themselves are never put into windows: which window a sample belongs to is
arithmetic on arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.trigger import AccumulationMode, DefaultTrigger
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    TimestampCombiner,
)
from apache_beam.utils.timestamp import Duration, Timestamp

from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require
from meanstream.pipelines.beam.worker.transform_arguments import as_seconds

MILLI = 1000
LEAST_REFRESH = 1.0
STEPS = 3
"""Milliseconds from the end of a window, all lateness passed, within which its population is
fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWindows:
    """Windows of event time.

    Parameters
    ----------
    refresh : float or None
        Seconds of a window; None: one window for all of a bounded input.
    lateness : float
        Seconds that a window waits for late samples.

    Examples
    --------
    >>> windows = AgentWindows(refresh=60.0, lateness=5.0)
    >>> windows.number(np.array([0.0, 59.9, 60.0])).tolist(), windows.released(0).micros
    ([0, 0, 1], 65000000)
    """

    refresh: float | None
    lateness: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "lateness", as_seconds("lateness", self.lateness))
        require(self.lateness >= 0, "lateness", "be at least 0", self.lateness)

        if self.refresh is not None:
            object.__setattr__(self, "refresh", as_seconds("refresh", self.refresh))
            require(
                self.refresh >= LEAST_REFRESH,
                "refresh",
                f"be at least {LEAST_REFRESH:g} s on Beam",
                self.refresh,
            )

    def number(self, time: Floats) -> Ints:
        """Tell which window each event time belongs to."""
        if self.refresh is None:
            return np.zeros(len(time), np.int64)
        return np.floor_divide(time, self.refresh).astype(np.int64)

    def end(self, number: int) -> float | None:
        """Give the event time that a window is before; None for the one of a bounded input."""
        if self.refresh is None:
            return None
        return (number + 1) * self.refresh

    def noted(self, number: int) -> Timestamp | None:
        """Give the time that carries a note of a window's samples.

        None: the time that the samples came with.
        """
        if self.refresh is None:
            return None
        return self._after(number, -1)

    def released(self, number: int) -> Timestamp:
        """Give the time at which the releases of a window are made."""
        return self._after(number, 0)

    def gathered(self, number: int) -> Timestamp:
        """Give the time at which everyone's newest release is read."""
        return self._after(number, 1)

    def fitted(self, number: int) -> Timestamp:
        """Give the time at which the population of a window is fitted."""
        return self._after(number, 2)

    def _after(self, number: int, step: int) -> Timestamp:
        if self.refresh is None:
            # Whole seconds: so near to the end of time runners round.
            return Timestamp(
                micros=GlobalWindow().max_timestamp().micros - (STEPS - step) * 1_000_000
            )

        end = round((number + 1) * self.refresh * 1e6) + round(self.lateness * 1e6)
        return Timestamp(micros=(-(-end // MILLI) + step) * MILLI)

    def carrier(self, step: int) -> FixedWindows | GlobalWindows:
        """Give windows of which each holds what belongs to one of these, up to a step after its end."""
        if self.refresh is None:
            return GlobalWindows()
        size = round(self.refresh * 1e6)
        return FixedWindows(
            Duration(micros=size), offset=Timestamp(micros=self._after(-1, step).micros % size)
        )


class CarryNotes(beam.PTransform):  # type: ignore[misc]
    """Notes of samples, or, a step later, of releases, into the window that ends as theirs is released, or gathered."""

    def __init__(self, windows: AgentWindows, step: int = 0) -> None:
        super().__init__()
        self._windows = windows
        self._step = step

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Put them there; of a bounded input the time stays that of the samples."""
        return pcoll | "Window" >> _window_into(
            self._windows.carrier(self._step), TimestampCombiner.OUTPUT_AT_LATEST
        )


def _window_into(window_fn: Any, combiner: Any) -> beam.WindowInto:
    return beam.WindowInto(
        window_fn,
        trigger=DefaultTrigger(),
        accumulation_mode=AccumulationMode.DISCARDING,
        timestamp_combiner=combiner,
        allowed_lateness=Duration(0),
    )
