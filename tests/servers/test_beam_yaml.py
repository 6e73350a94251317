"""docs/beam-yaml.md in Beam YAML itself, on FnApiRunner as it stands and on Flink; its Java is in
test_beam_java.py."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.code_blocks import ROOT, Block, PageRun, blocks_of
from tests.servers.conftest import need
from tests.servers.support.broker import SERVERS, free_ports
from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.wait_until import wait_until

PAGE = ROOT / "docs" / "beam-yaml.md"
YAML = SERVERS / "beam-yaml-2.77.0"  # as in the Makefile
RUNNER = "--runner=FnApiRunner"


def block_with(text: str) -> Block:
    """Find the one block of the page that has a text."""
    (block,) = [block for block in blocks_of(PAGE) if text in block.text]
    return block


RUN = block_with(RUNNER)
SHOWN = [line for line in RUN.text.splitlines() if line.startswith("{")]


@pytest.fixture
def python_path() -> str:
    """What Beam YAML needs besides Beam, and this project."""
    need(None if (YAML / ".complete").exists() else f"no Beam YAML in {YAML}: run `make servers`")
    return f"{YAML}{os.pathsep}{ROOT}"


@pytest.fixture
def page(tmp_path: Path, python_path: str) -> PageRun:
    """The page as far as its samples, its pipeline and the file of providers; only `pip` has run
    before."""
    (tmp_path / "page").mkdir()
    runner = PageRun(tmp_path / "page")
    runner.run(Block(PAGE, 0, "", f"export PYTHONPATH={python_path}\n"))
    copying = block_with("rows.PROVIDERS")
    (command,) = [line for line in copying.text.splitlines() if not line.startswith("pip ")]
    runner.run(replace(copying, text=command))
    for block in blocks_of(PAGE):
        if block.what == "file" or block.runs:
            runner.run(block)
    return runner


def check_results(folder: Path) -> None:
    """Hold what was written to what the page shows, and to what there must be of everyone."""
    found = {
        name: [line for path in folder.glob(f"{name}*") for line in path.read_text().splitlines()]
        for name in ("late", "releases", "weekly")
    }
    assert sorted(found["late"]) == SHOWN
    assert len(SHOWN) >= 3
    releases = [json.loads(line) for line in found["releases"]]
    assert len({release["release_id"] for release in releases}) == len(releases) > 200
    assert {release["agent"] for release in releases} == {f"N{i}" for i in range(200)}
    weeks = [json.loads(line) for line in found["weekly"]]
    assert sorted(week["start"] for week in weeks) == [
        "2012-12-27T00:00:00Z",
        "2013-01-03T00:00:00Z",
    ]
    assert all(
        week["lower"] < week["value"] < week["upper"] and week["users"] == 200 for week in weeks
    )


def test_the_page_runs_as_it_stands(page: PageRun) -> None:
    page.run(RUN)
    check_results(page.folder / "out")


@pytest.fixture
def yaml_workers(page: PageRun, python_path: str, tmp_path: Path) -> Iterator[str]:
    """Address of workers for Flink that have Beam YAML."""
    (port,) = free_ports(1)
    program = f"from tests.servers.support.worker_pool import main; main({port})"
    secret = RUN.text.partition("MEANSTREAM_SECRET=")[2].split()[0]
    environment = {**os.environ, "PYTHONPATH": python_path, "MEANSTREAM_SECRET": secret}
    log = tmp_path / "pool.log"
    with log.open("wb") as file:
        pool = subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=page.folder,  # the pipeline's paths are relative, and those of the workers
            env=environment,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        wait_until(lambda: pool.poll() is None and _listens(port), 90, why=log.read_text)
        yield f"127.0.0.1:{port}"
    finally:
        os.killpg(pool.pid, signal.SIGKILL)  # workers are processes of their own
        pool.wait(30)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_page_runs_on_flink(page: PageRun, yaml_workers: str, flink: FlinkCluster) -> None:
    options = flink.arguments("--runner=FlinkRunner", f"--environment_config={yaml_workers}")
    quoted = " ".join(
        f"'{option}'" for option in options if not option.startswith("--environment_config={")
    )
    page.run(replace(RUN, text=RUN.text.replace(RUNNER, quoted)))
    check_results(page.folder / "out")
