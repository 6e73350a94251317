"""Event time: what waits for the end of a window, what is late, and streams that have no end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms import sideinputs
from apache_beam.transforms.window import FixedWindows, IntervalWindow, TimestampedValue, WindowFn
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from meanstream.pipelines.beam.agents import snapshot_releases as snapshot
from meanstream.pipelines.beam.agents.agent_transforms import CollaborateAgents, ReleaseMeans
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.streaming.engine.engine_options import EngineOptions
from tests.pipelines.beam.support.agents_world import SETTINGS, by_agent, engine_on, release_lines
from tests.pipelines.beam.support.collecting import collector, run_pipeline


@pytest.fixture
def empty_bundles_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner of streams that follow a script looks for the window of an empty bundle and dies
    of it."""
    mapping = sideinputs.default_window_mapping_fn

    def tolerant(window_fn: Any) -> Any:
        find, nowhere = mapping(window_fn), IntervalWindow(MIN_TIMESTAMP, MIN_TIMESTAMP)
        return lambda window: nowhere if window is None else find(window)

    monkeypatch.setattr(sideinputs, "default_window_mapping_fn", tolerant)
    # Only here is event time moved so slowly that nothing is dropped: see `script`.
    monkeypatch.setattr(snapshot, "require_populations", lambda _: None)


ON_TIME = [(f"agent {i % 4}", float(i % 9), i * 0.7) for i in range(60)]
"""Of 42 seconds: windows of ten seconds, the last one not full."""
LATE = [(f"agent {i % 4}", 5.0, 3.0 + i) for i in range(4)]


def script() -> Iterator[Any]:
    """Samples of a window come in the wrong order and half of them after its end; LATE ones after
    the lateness."""
    stream = Stream().advance_watermark_to(0)
    for number in range(5):
        inside = [s for s in ON_TIME if s[2] // 10 == number]
        early, behind = inside[::-2], inside[-2::-2]
        stream = stream.add_elements([TimestampedValue(s, s[2]) for s in early])
        stream = stream.advance_watermark_to(10 * (number + 1) + 4)
        stream = stream.add_elements([TimestampedValue(s, s[2]) for s in behind])
        for milliseconds in range(
            4
        ):  # this runner drops what a timer gives once event time has gone further
            stream = stream.advance_watermark_to(
                Timestamp(micros=(10 * (number + 1) + 5) * 10**6 + milliseconds * 1000)
            )
        if number == 1:
            stream = stream.advance_watermark_to(25.5)
            stream = stream.add_elements([TimestampedValue(s, s[2]) for s in LATE])
    return stream.advance_watermark_to(60).advance_watermark_to_infinity()


@pytest.mark.usefixtures("empty_bundles_are_no_fault")
def test_samples_within_the_lateness_count_and_later_ones_do_not(tmp_path: Any) -> None:
    keep, released = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        collaborate = CollaborateAgents(
            SETTINGS, EngineOptions(allowed_lateness=5.0), refresh=10.0, shards=2
        )
        answers = pipeline | script() | collaborate
        _ = answers.releases | "Releases" >> keep
        return answers.estimates

    estimates, _ = run_pipeline(build, runner=BundleBasedDirectRunner(), options=["--streaming"])
    world = engine_on(tmp_path, ON_TIME, final_release=False)
    assert release_lines(released) == sorted(world.lines("releases"))
    newest = by_agent(sorted((line for batch in estimates for line in batch.lines), key=_count))
    expected = by_agent(world.lines("estimates"))
    assert {a: (e["n"], e["local"]) for a, e in newest.items()} == {
        a: (e["n"], e["local"]) for a, e in expected.items()
    }
    assert len({event["time"] for event in by_time(estimates)}) == 5


def by_time(batches: list[Any]) -> list[dict[str, Any]]:
    import json

    return [json.loads(line) for batch in batches for line in batch.lines]


def _count(line: bytes) -> int:
    import json

    return int(json.loads(line)["n"])


@pytest.mark.parametrize("refresh", [1.0, 60.0, 86_400.0, 7.5])
@pytest.mark.parametrize("lateness", [0.0, 4.0, 100.0004])
def test_a_carrier_holds_the_answers_of_one_window(refresh: float, lateness: float) -> None:
    windows = AgentWindows(refresh=refresh, lateness=lateness)
    notes, later = windows.carrier(0), windows.carrier(1)
    assert isinstance(notes, FixedWindows)
    seen = set()
    for number in range(-5, 6):
        end = (number + 1) * refresh + lateness
        released, gathered, noted = (
            windows.released(number),
            windows.gathered(number),
            windows.noted(number),
        )
        assert 0 <= released.micros - end * 1e6 < 1001
        (of_note,) = notes.assign(WindowFn.AssignContext(noted))
        (one,) = later.assign(WindowFn.AssignContext(released))
        assert of_note.end.micros == released.micros
        assert one.end.micros == gathered.micros == windows.joined(number).micros - 1000
        seen.add(one)
    assert len(seen) == 11


def test_a_window_is_that_of_its_samples_to_the_last_bit() -> None:
    windows = AgentWindows(refresh=10.0)
    times = np.array([np.nextafter(10.0, 0.0), 10.0, -0.5])
    assert windows.number(times).tolist() == [0, 1, -1]
    assert AgentWindows(refresh=None).number(times).tolist() == [0, 0, 0]


def test_an_input_without_an_end_needs_a_refresh() -> None:
    pipeline = beam.Pipeline(runner=BundleBasedDirectRunner())
    unbounded = pipeline | Stream().advance_watermark_to_infinity()
    unbounded.is_bounded = False
    with pytest.raises(ValueError, match="refresh must be given for an unbounded input, got None"):
        _ = unbounded | ReleaseMeans(SETTINGS)


def test_a_runner_that_drops_populations_is_refused_where_the_pipeline_is_built() -> None:
    samples = beam.Pipeline(runner=BundleBasedDirectRunner()) | beam.Create(
        [("a", 1.0, 1.0)], reshuffle=False
    )
    with pytest.raises(
        ValueError, match=r"runner must give populations, .*got 'BundleBasedDirectRunner'"
    ):
        _ = samples | CollaborateAgents(SETTINGS, refresh=60)
    assert (samples | ReleaseMeans(SETTINGS, refresh=60)).releases is not None


def test_samples_must_not_be_windowed_before() -> None:
    windowed = beam.Create([("a", 1.0, 1.0)], reshuffle=False) | beam.WindowInto(FixedWindows(5))
    with pytest.raises(
        ValueError, match="samples must be in the global window, got 'FixedWindows'"
    ):
        run_pipeline(lambda pipeline: (pipeline | windowed | ReleaseMeans(SETTINGS)).releases)
