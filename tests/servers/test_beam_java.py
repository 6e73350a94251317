"""The program of examples/java on Prism: rows of Java, our transform from the expansion service,
then steps of Java."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from meanstream.pipelines.beam.beam_runners import prism_runner_binary
from tests.code_blocks import ROOT
from tests.servers.conftest import need
from tests.servers.support.broker import SERVERS, free_ports
from tests.servers.support.engine_process import SECRET
from tests.servers.support.flink_cluster import QUICK

PROGRAM = ROOT / "examples" / "java" / "PrivateMeans.java"
JARS = SERVERS / "beam-java-2.65.0"  # as in the Makefile
AGENTS = 9


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Class path of the compiled program."""
    need(None if shutil.which("javac") else "no javac on the path")
    need(
        None if (JARS / ".complete").exists() else f"no Beam for Java in {JARS}: run `make servers`"
    )
    folder = tmp_path_factory.mktemp("java")
    subprocess.run(["javac", "-cp", f"{JARS}/*", "-d", folder, PROGRAM], check=True, timeout=300)
    return f"{folder}:{JARS}/*"


@pytest.fixture
def expansion(tmp_path: Path) -> Iterator[str]:
    """Address of our expansion service, which runs the steps of Python, too."""
    command = [sys.executable, "-m", "meanstream.beam.expansion", "--port", "0"]
    environment = {**os.environ, "MEANSTREAM_SECRET": SECRET}
    with (tmp_path / "expansion.log").open("wb") as log:
        service = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert service.stdout is not None
    try:
        yield service.stdout.readline().split()[-1]
    finally:
        service.terminate()
        assert service.wait(30) == 0
        service.stdout.close()


def samples_of(folder: Path) -> Path:
    """Write samples: a value of each agent in each minute."""
    path = folder / "samples.csv"
    lines = [
        f"N{i % AGENTS},{i * i * 37 % 83 - 40 + i % AGENTS},{1357034400 + i * 60}"
        for i in range(900)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def prism(tmp_path: Path) -> Iterator[str]:
    """Address of a runner's job service."""
    binary = prism_runner_binary()
    need(None if binary else "no Prism: run `make servers`")
    (port,) = free_ports(1)
    with (tmp_path / "prism.log").open("wb") as log:
        runner = subprocess.Popen(
            [str(binary), f"-job_port={port}", "-serve_http=false"], stdout=log, stderr=log
        )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        runner.kill()
        runner.wait(30)


def test_a_program_of_java_runs_to_its_end(
    classes: str, expansion: str, prism: str, tmp_path: Path
) -> None:
    samples, (port,) = samples_of(tmp_path), free_ports(1)
    command = [
        "java", QUICK, "-cp", classes, PROGRAM.stem, "--runner=PortableRunner",
        f"--jobEndpoint={prism}",
        "--defaultEnvironmentType=LOOPBACK", f"--defaultEnvironmentConfig=127.0.0.1:{port}",
        f"--expansion={expansion}", f"--samples={samples}", f"--output={tmp_path / 'out'}",
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert re.search(r"estimates: \[agent, time, n, value, lower, upper, ", ran.stdout)
    # No event time decides what is asked here: see tests/pipelines/beam/support/prism.py.
    estimates = [
        json.loads(line) for line in (tmp_path / "out" / "estimates").read_text().splitlines()
    ]
    assert sorted(row["agent"] for row in estimates) == [f"N{i}" for i in range(AGENTS)]
    assert all(
        row["lower"] < row["value"] < row["upper"] and row["epsilon"] == 1 for row in estimates
    )
    indices = defaultdict(list)
    for line in (tmp_path / "out" / "releases").read_text().splitlines():
        row = json.loads(line)
        assert row["release_id"] == f"delays/{row['agent']}:{row['index']}"
        indices[row["agent"]].append(row["index"])
    assert set(indices) == {f"N{i}" for i in range(AGENTS)}
    assert all(sorted(found) == list(range(1, len(found) + 1)) for found in indices.values())
