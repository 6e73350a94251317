"""The demo of rounds on the real flights: a table per window beside the truth, and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

from meanstream.lab.demo import rounds_demo as rounds
from meanstream.lab.demo.rounds_demo import _true_windows
from tests.lab.demo.flights_of_few import EVERY, flights_of_few_aircraft
from tests.pipelines.command_line import meanstream


def test_the_truth_counts_every_aircraft_once() -> None:
    hours = np.array(
        ["2013-01-01T10", "2013-01-01T11", "2013-01-02T10", "2013-01-05T10"], "datetime64[h]"
    )
    flights = pa.table(
        {
            "tailnum": ["a", "a", "b", "a"],
            "dep_delay": [10.0, 20.0, 500.0, -3.0],  # 500 is clipped to 120
            "time_hour": hours.astype("datetime64[s]"),
        }
    )
    # Weeks begin on Thursday, as days since the epoch do: the last flight is in the week of January
    # 3.
    assert _true_windows(flights, "7d")[1].tolist() == [(15 + 120) / 2, -3.0]


def answer_every_week(folder: Path, half_width: float) -> dict[str, Any]:
    """Run the demo. Intervals of level .95: fewer covered than is asserted has probability 1e-4."""
    told = meanstream("demo", "rounds", "--quiet", "--json", "--out", str(folder)).json
    assert told["answered"] == len(told["windows"]) == 53
    assert told["covered"] >= binom.ppf(1e-4, 53, 0.95)
    assert told["root_mean_squared_error"] < told["median_half_width"] < half_width
    return told


@pytest.mark.full
def test_a_whole_year_is_answered(tmp_path: Path) -> None:
    answer_every_week(tmp_path / "all", half_width=10)


def test_the_demo_answers_every_week_and_repeats_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = flights_of_few_aircraft()
    monkeypatch.setattr(rounds, "read_flights", lambda _: flights)
    first = answer_every_week(tmp_path / "first", half_width=10 * EVERY**0.5)
    assert Path(first["picture"]).stat().st_size > 20_000
    second = meanstream("demo", "rounds", "--quiet", "--out", str(tmp_path / "second")).out.decode()
    assert f"{first['covered']} of 53 intervals hold the true mean" in second
    for name in ("means.jsonl", "reports.jsonl", "stages.jsonl"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_options_before_the_name_of_the_demo_are_refused(tmp_path: Path) -> None:
    assert meanstream("demo", "--seed", "3", "rounds").message == "seed must come after 'rounds'"
    assert "epsilon must be positive" in meanstream("demo", "rounds", "--epsilon", "0").message
    assert "window must be SIZE" in meanstream("demo", "rounds", "--window", "weekly").message
