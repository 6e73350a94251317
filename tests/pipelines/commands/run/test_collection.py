"""A run looks for no cycles while it imports its modules, and looks for them while it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc, sys
seen = []
def note(phase, info):
    if phase == "start":
        seen.append("meanstream.streaming.agents.agents_engine" in sys.modules)
from meanstream.pipelines.commands.main import main
from meanstream.pipelines.commands.run import signals as collection
gc.callbacks.append(note)
try:
    main()
finally:
    frozen = gc.get_freeze_count() > 100_000
    print(gc.isenabled(), gc.get_threshold()[0] == collection.YOUNG_OBJECTS, frozen, all(seen), file=sys.stderr)
"""


def said_at_the_end(*arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, check=True, text=True
    )
    return ran.stderr.splitlines()[-1]


def test_a_run_collects_only_what_it_makes(tmp_path: Path) -> None:
    source = tmp_path / "samples.csv"
    source.write_text("agent,value,time\na,0.5,1700000000\n")
    given = ["--lower", "0", "--upper", "1", "--epsilon", "1", "--delta", "1e-6", "--quiet"]
    places = ["--store", str(tmp_path / "s.db"), "--sink", str(tmp_path / "e.jsonl")]
    assert (
        said_at_the_end("run", "agents", "--source", str(source), *given, *places)
        == "True True True True"
    )


def test_a_run_that_only_helps_looks_for_cycles_in_the_end() -> None:
    assert said_at_the_end("run", "agents", "--help").split()[0] == "True"
