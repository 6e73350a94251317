"""What windows that repeat carry on: metrics and page say what the public answers say, and the gain
is what it is."""

from __future__ import annotations

import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from meanstream.pipelines.page.page_figures import page_figures, page_figures_of_window
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.metrics.metric_records import carried_figures
from meanstream.streaming.metrics.metrics_server import MetricsServer
from meanstream.streaming.metrics.rounds_metrics import RoundsMetrics
from meanstream.streaming.metrics.telemetry import RoundsTelemetry
from tests.streaming.support.rounds_world import DAY, RoundsWorld, rounds_settings
from tests.streaming.support.scripted_source import ScriptedSource, SettableClock

SETTINGS = rounds_settings(estimator="repeating", epsilon=1.0)
NAMES = {f"meanstream_rounds_carried_{name}" for name in ("windows", "half_width", "gain")}
USERS = 1500


def samples(means: tuple[float, ...], seed: int = 8) -> list[tuple[str, float, float]]:
    rng = np.random.default_rng(seed)
    values = [rng.normal(mean, 0.3, USERS).clip(0.0, 10.0) for mean in means]
    return [
        (f"user {u}", float(row[u]), d * DAY + 40.0 * u)
        for d, row in enumerate(values)
        for u in range(USERS)
    ]


class Watched:
    """A run to its end, what the address of its metrics then serves, and the rows of its page."""

    def __init__(self, folder: Path, means: tuple[float, ...], **changes: Any) -> None:
        world = RoundsWorld(
            folder, replace(SETTINGS, **changes), options=EngineOptions(batch_size=5000)
        )
        health, telemetry = EngineHealth(), RoundsTelemetry(settings=world.settings)
        metrics = RoundsMetrics(settings=world.settings, health=health, clock=SettableClock(2e9))

        def look(stats: Any) -> None:
            metrics.observe(stats)
            telemetry.observe(stats)

        world.run(ScriptedSource(samples(means)), on_turn=look)
        with (
            MetricsServer("127.0.0.1:0", metrics, health) as server,
            urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer,  # noqa: S310 - our own
        ):
            families = text_string_to_metric_families(answer.read().decode())
            self.shown = {
                sample.name: sample.value for family in families for sample in family.samples
            }
        self.events = world.events("means")
        self.rows = page_figures(telemetry.view(), kind="rounds", horizon=None, bounds=(0.0, 10.0))[
            "windows"
        ]


def test_metrics_and_page_say_what_the_newest_answer_carries_on(tmp_path: Path) -> None:
    found = Watched(tmp_path / "w", (4.0,) * 8)
    newest = found.events[-1]
    first, state = newest["stages"][0], newest["stages"][-1]["state"]
    assert found.shown["meanstream_rounds_carried_windows"] == state["windows"] == 8
    assert found.shown["meanstream_rounds_carried_half_width"] == pytest.approx(
        5.0 * state["half_width"]
    )
    alone = 5.0 * (first["variance"] * first["n"] / newest["users"]) ** 0.5
    assert found.shown["meanstream_rounds_carried_gain"] == pytest.approx(alone / newest["stderr"])
    assert [row["carried"]["windows"] for row in found.rows] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found.rows[-1]["carried"] == {
        "contradicts": "",
        **{
            name: found.shown[f"meanstream_rounds_carried_{name}"]
            for name in ("windows", "half_width", "gain")
        },
    }


def test_the_gain_is_that_over_one_report_of_each_user_on_the_bounds(tmp_path: Path) -> None:
    """Against `one_shot` on the same samples: both measure their errors, here to within a few
    percent."""
    means = (4.0,) * 12
    carried, alone = (
        Watched(tmp_path / "c", means),
        Watched(tmp_path / "a", means, estimator="one_shot"),
    )
    gains = [row["carried"]["gain"] for row in carried.rows]
    true = [
        one["stderr"] / each["stderr"]
        for one, each in zip(alone.events, carried.events, strict=True)
    ]
    assert gains == pytest.approx(true, rel=0.05)
    assert gains[0] < 1.0 < max(gains), "some users vote in the first window; later ones are better"
    assert not NAMES & set(alone.shown)
    assert all(row["carried"] is None for row in alone.rows)


def test_after_a_jump_all_begins_anew_and_the_page_says_why(tmp_path: Path) -> None:
    found = Watched(tmp_path / "w", (*(3.0,) * 8, 9.0))
    assert found.rows[-2]["carried"]["windows"] == 8
    assert found.rows[-1]["carried"] | {"gain": 0} == {
        "windows": 1, "half_width": None, "gain": 0, "contradicts": "the center has jumped",
    }  # fmt: skip
    assert found.shown["meanstream_rounds_carried_windows"] == 1
    assert "meanstream_rounds_carried_half_width" not in found.shown


NARROW = {"n": 10, "variance": 0.1}
STATE = {"stage": "carried", "state": {"windows": 3, "half_width": 0.1}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({}, None),
        ({"stages": []}, None),
        ({"stages": ["carried"]}, None),
        ({"stages": [{"stage": "carried", "state": "all"}]}, None),
        ({"stages": [{"stage": "carried", "state": {}}]}, (0, None, None)),
        ({"stages": [{"stage": "carried", "state": {"windows": "3", "half_width": float("nan")}}]}, (0, None, None)),
        ({"users": 0, "stderr": 0.1, "stages": [NARROW, STATE]}, (3, 0.5, None)),
        ({"users": 9, "stderr": 0, "stages": [NARROW, STATE]}, (3, 0.5, None)),
        ({"users": 9, "stderr": 1, "stages": [{"n": 1, "variance": 4}, STATE]}, (3, 0.5, None)),
        ({"users": 10, "stderr": 1, "stages": [NARROW, STATE]}, (3, 0.5, 5 * 0.1**0.5)),
    ],
)  # fmt: skip
def test_what_is_not_as_the_engine_writes_it_is_left_out(
    answer: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    """A report draws files of answers, too, which anybody can have written."""
    found = carried_figures(answer, 0.0, 10.0)
    assert (found and tuple(found[name] for name in ("windows", "half_width", "gain"))) == (
        expected and pytest.approx(expected)
    )


def test_of_vectors_nothing_is_carried() -> None:
    event = {
        "start": "2024-01-01T00:00:00Z",
        "end": "2024-01-02T00:00:00Z",
        "value": [1.0],
        "interval": [[0.0, 2.0]],
    }
    row = page_figures_of_window(
        event | {"users": 9, "method": "m", "epsilon": 1.0, "stages": []}, None
    )
    assert row["carried"] is None
