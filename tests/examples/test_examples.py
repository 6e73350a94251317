"""Every example runs as it stands, is short, and prints what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
PRINTS = {
    "private_means": ("root mean squared error", "(1, 1e-06)-differentially private"),
    "private_windows": ("epsilon 1 for each window",),
    "river_statistic": ("private mean",),
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_is_short(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    ran = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    for text in PRINTS[path.stem]:
        assert text in ran.stdout
