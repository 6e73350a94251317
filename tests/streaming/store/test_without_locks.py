"""A system without POSIX locks (Windows): a store is refused in one line; what needs none works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HIDDEN = """
import sys
sys.modules["fcntl"] = None
{then}
"""
COMMAND = """
sys.argv = ["meanstream", *{words!r}]
from meanstream.pipelines.commands.main import main
main()
"""
FRAME = """
import pyarrow as pa
import meanstream
table = pa.table({"who": ["a", "b"] * 50, "value": [1.0, 2.0] * 50})
print(len(meanstream.private_means(table, by="who", value="value", lower=0, upper=3, epsilon=1.0, delta=1e-6)))
"""


def run(then: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = HIDDEN.format(then=then)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=folder
    )


def test_a_store_is_refused_in_one_line(tmp_path: Path) -> None:
    line = "run agents --source synthetic:5,100 --lower 0 --upper 1 --epsilon 1 --delta 1e-6 --store s.db --quiet"
    ran = run(COMMAND.format(words=line.split()), tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [
        "meanstream: store must be on a system with locks of POSIX (Linux, macOS, or WSL on Windows), "
        f"got {sys.platform} for 's.db'"
    ]
    assert not (tmp_path / "s.db").exists()


def test_frames_and_plans_need_no_lock(tmp_path: Path) -> None:
    ran = run(FRAME, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "2\n"), ran.stderr
    line = "explain agents --lower 0 --upper 1 --epsilon 1 --delta 1e-6"
    ran = run(COMMAND.format(words=line.split()), tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "protected" in ran.stdout
