"""The counters of a pipeline."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

NAMESPACE = "meanstream"
"""Of the counters of a pipeline."""


def counters_of(result: Any) -> dict[str, int]:
    """Add up the counters of a pipeline that has run."""
    totals: dict[str, int] = {}
    for counter in result.metrics().query(beam.metrics.MetricsFilter().with_namespace(NAMESPACE))["counters"]:
        name = counter.key.metric.name
        totals[name] = totals.get(name, 0) + (counter.result or 0)
    return dict(sorted(totals.items()))
