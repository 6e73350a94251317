"""What the page says of the rate is of now: a burst an hour ago is not in it."""

from __future__ import annotations

import pytest

from meanstream.pipelines.page.page_figures import _recent_rate
from meanstream.streaming.metrics.metric_records import TurnRecord


def turn(seconds: float, events: int) -> TurnRecord:
    counts = dict.fromkeys(("accepted", "agents", "releases", "refusals", "estimates"), 0)
    last = {"rejected": (), "input_lag": None, "event_time": None, "watermark": None, "spent": ()}
    return TurnRecord(seconds=seconds, events=events, **counts, **last)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("turns", "rate"),
    [
        ([], None),
        ([turn(0.0, 0)], None),
        ([turn(10.0, 500)], 50.0),
        ([turn(1.0, 100_000), turn(3600.0, 100_000), turn(3700.0, 100_500)], 5.0),
        ([turn(1.0, 100_000), *(turn(10.0 * i, 100_000 + 20 * i) for i in range(1, 40))], 2.0),
    ],
)
def test_the_rate_is_that_of_the_last_minute(turns: list[TurnRecord], rate: float | None) -> None:
    assert _recent_rate(turns) == rate
