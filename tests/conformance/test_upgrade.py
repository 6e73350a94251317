"""The last release runs and is killed with kill -9; this version goes on where it stopped.

The release is a commit of this repository, exported and run as it is. CONTRIBUTING.md says when the pin moves.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conformance.make_kept_store import (
    COMMANDS,
    RELEASED,
    RUNS,
    done,
    facts_of,
    run_in,
    write_input,
)
from tests.conformance.test_kept_store import events, has_all_of
from tests.pipelines.command_line import SECRET, arguments

ROOT = Path(__file__).parents[2]
LAST_RELEASE = "d41338865d5fda132d2776d96b7458d5432e9abe"
"""The commit of the last release; before the first one that lasts, one with the same formats."""
EXPORTED = ("meanstream", "operators", "streaming", "pipelines")

PROGRAM = """
import os, signal, sys
from pathlib import Path
import meanstream
from meanstream.pipelines.commands.program import main
from meanstream.pipelines.commands.run import run_engine
from meanstream.streaming.crash import CrashPoint, Moment

tree, left = Path(sys.argv.pop(1)), int(sys.argv.pop(1))
assert tree in Path(meanstream.__file__).parents, meanstream.__file__

def die(point, moment):
    global left
    if (point, moment) == (CrashPoint.WRITE_RELEASES, Moment.BEFORE):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

run_engine.no_crash = die
main()
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the last release, as it was committed."""
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{LAST_RELEASE}^{{commit}}"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if known.returncode:
        pytest.skip(f"the history here does not have the last release, {LAST_RELEASE}")

    tree = tmp_path_factory.mktemp("release")
    archive = subprocess.run(
        ["git", "archive", LAST_RELEASE, *EXPORTED], cwd=ROOT, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x"], cwd=tree, input=archive.stdout, check=True)
    return tree


def run_release(tree: Path, folder: Path, kind: str, *, deliveries: int = 0) -> int:
    """Run the release in a folder, killed at a delivery or to the end; give its exit code."""
    command = ["run", COMMANDS.get(kind, kind), *arguments(RUNS[kind])]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tree), str(deliveries), *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tree), "MEANSTREAM_SECRET": SECRET},
        capture_output=True,
        check=False,
    )
    assert ran.returncode in {0, -signal.SIGKILL}, ran.stderr.decode()[-2000:]
    return ran.returncode


@pytest.mark.parametrize(("kind", "deliveries"), [("agents", 9), ("pairs", 9), ("rounds", 20)])
def test_this_version_goes_on_where_the_last_release_was_killed(
    kind: str, deliveries: int, release: Path, tmp_path: Path
) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    for place in (whole, folder):
        place.mkdir()
        write_input(place / "samples.csv")

    # What the release does when nothing kills it.
    assert run_release(release, whole, kind) == 0
    if kind == "pairs":
        words = ("--store", str(whole / "state.db"), "--to", str(whole / "ledger.jsonl"))
        done("ledger", "export", *words)
    for name in RELEASED[kind]:
        shutil.copy(whole / name, folder / f"all_{name}")

    # It is killed; the commands of this version read what it left, and change nothing.
    assert run_release(release, folder, kind, deliveries=deliveries) == -signal.SIGKILL
    before = facts_of(folder)
    assert 0 < before["verify"]["rows"] < facts_of(whole)["verify"]["rows"]
    assert before["show"]["name"] == RUNS[kind]["name"]

    ran = run_in(folder, kind)
    assert ran.code == 0, ran.err.decode()
    for name in RELEASED[kind]:
        assert events(folder / name)
        assert has_all_of(folder, name)
    assert facts_of(folder)["verify"] == facts_of(whole)["verify"]


def test_the_gate_has_the_history_that_the_last_release_is_in() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    (checkout,) = (
        step
        for step in workflow["jobs"]["gate"]["steps"]
        if step.get("uses", "").startswith("actions/checkout@")
    )
    assert checkout["with"]["fetch-depth"] == 0
