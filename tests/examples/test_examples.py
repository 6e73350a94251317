"""Every example runs as it stands, is short, and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
BEAMS_OWN = re.compile(r"(?m)^WARNING:root:apitools not found.*\n")
INTERVAL = re.compile(r"\[ *-?[\d.]+, +[\d.]+\]")
PRINTS = {
    "agents_by_month": ("N201AA: mean delay", "2013-12"),
    "beam_pipeline": ("N14228: ", "week of 2013-01-03"),
    "two_leagues": ("296 batters; squared error on the other half 0.", "319 batters"),
    "mean_delays": ("root mean squared error", "(1, 1e-06)-differentially private"),
    "weekly_delays": ("epsilon 1 for each window",),
    "river_statistic": ("private mean ", "of 5,000 samples; the mean itself is within 0.0"),
}


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in EXAMPLES])
def test_an_example_runs_and_is_short(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 90
    ran = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (ran.returncode, BEAMS_OWN.sub("", ran.stderr)) == (0, "")
    for text in PRINTS[path.stem]:
        assert text in ran.stdout
    assert INTERVAL.search(ran.stdout) or "within" in ran.stdout or "lower" in ran.stdout


def test_every_program_is_an_example() -> None:
    assert {path.stem for path in EXAMPLES} == set(PRINTS)
