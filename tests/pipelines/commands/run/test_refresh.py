"""How often agents get estimates: as given, every 10 s of a source without end, else at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meanstream.pipelines.commands.main import app
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.streaming.store.state_store import Store
from tests.pipelines.command_line import (
    SECRET,
    arguments,
    meanstream,
    options,
    run_agents,
    write_samples,
)

KEY = {"MEANSTREAM_SECRET": SECRET}
TOPIC, SUBSCRIPTION = "kafka://broker:9092/samples", "projects/some-project/subscriptions/samples"


@pytest.mark.parametrize(
    ("given", "seconds", "text"),
    [
        ({"source": TOPIC}, 10.0, "10s"),
        ({"source": "samples.jsonl", "follow": True}, 10.0, "10s"),
        ({"source": SUBSCRIPTION}, 10.0, "10s"),
        ({"source": TOPIC, "until_end": True}, None, "at the end"),
        ({"source": TOPIC, "runner": "FnApiRunner", "offsets": "0:0-9"}, None, "at the end"),
        ({"source": "flights.csv"}, None, "at the end"),
        ({"source": "-"}, None, "at the end"),
        ({"source": "flights.csv", "refresh": "1h"}, 3600.0, "1h"),
        ({"source": TOPIC, "refresh": "0s"}, 0.0, "0s"),
        ({"source": TOPIC, "refresh": "never"}, None, "at the end"),
    ],
)
def test_the_default_is_a_function_of_the_kind_of_source(
    given: dict[str, Any], seconds: Any, text: str
) -> None:
    taken = AgentsOptions(**given, lower=0, upper=1, epsilon=1, delta=1e-6)
    found = taken.refresh_in_force()
    assert (found.seconds, found.text) == (seconds, text)
    assert taken.engine_options().refresh == seconds


def test_it_is_shown_at_the_start_with_its_reason_and_when_the_first_estimates_are_due(
    tmp_path: Path,
) -> None:
    write_samples(tmp_path / "flights.csv")
    given = options(tmp_path, lateness="90m", collaboration="none")
    ran = meanstream("run", "agents", *arguments({**given, "refresh": "6h"}), environment=KEY)
    lines = [line for line in ran.err.decode().splitlines() if "estimates are due" in line]
    (line,) = lines
    assert line.endswith(
        'refresh=6h why="as it was given" first="when a sample is 90m past the first one"'
    ), line
    given["store"] = tmp_path / "other.db"
    dry = " ".join(
        meanstream("run", "agents", "--dry-run", *arguments(given), environment=KEY)
        .out.decode()
        .split()
    )
    assert (
        "refresh at the end: default of a source that ends; first estimates at the end of the source "
        in dry
    )


def test_it_is_recorded_in_the_store(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    assert run_agents(tmp_path, refresh="6h", collaboration="none").code == 0
    store = Store.read(tmp_path / "state.db")
    try:
        assert store.state("delivered")["answers"]["refresh"] == 6 * 3600.0
    finally:
        store.close()


def test_the_help_says_how_numbers_of_time_are_told_apart() -> None:
    assert app is not None
    text = " ".join(meanstream("run", "agents", "--help-all").out.decode().split())
    assert "seconds below 1e11, milliseconds below 1e14, else microseconds" in text
    assert "default: 10s of a source without end, else once at its end" in text
