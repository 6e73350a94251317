"""A real Flink cluster gives the bytes of the engine, two stages and a budget included."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipelines.beam.runners import arguments_of
from tests.pipelines.command_line import arguments, meanstream
from tests.streaming.rounds_world import SECRET, samples

SERVERS = Path(os.environ.get("MEANSTREAM_SERVERS") or Path.home() / ".cache" / "meanstream-servers")
FLINK = SERVERS / "flink-1.19.3"
JOB_SERVER = FLINK / "beam-flink-job-server.jar"
SCRIPT = Path(__file__).parents[1] / "servers" / "flink.sh"
START_SECONDS = 90.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not JOB_SERVER.is_file(), reason=f"Flink is not in {FLINK}: make flink fetches it"),
]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[str]]:
    """Options of Beam for a cluster of one worker."""
    rest, rpc, pool = free_ports(3)
    environment = {
        **os.environ, "FLINK": str(FLINK), "RUN": str(tmp_path / "flink"), "PYTHON": sys.executable,
        "REST_PORT": str(rest), "RPC_PORT": str(rpc), "POOL_PORT": str(pool),
    }  # fmt: skip
    try:
        subprocess.run([SCRIPT, "start"], env=environment, check=True, timeout=60)
        wait_for_slots(rest)
        yield [
            f"--flink_master=127.0.0.1:{rest}",
            "--flink_version=1.19",
            f"--flink_job_server_jar={JOB_SERVER}",
            "--environment_type=EXTERNAL",
            f"--environment_config=127.0.0.1:{pool}",
        ]
    finally:
        subprocess.run([SCRIPT, "stop"], env=environment, check=True, timeout=60)


def wait_for_slots(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/overview", timeout=1) as answer:
                if json.load(answer)["slots-total"]:
                    return
        except OSError:
            pass
        time.sleep(0.25)
    raise TimeoutError(f"Flink had no slot after {START_SECONDS:g} s")


def test_flink_gives_the_bytes_of_the_engine(cluster: list[str], tmp_path: Path) -> None:
    rows = [f"{user},{value!r},{time!r}" for user, value, time in samples()]
    (tmp_path / "samples.csv").write_text("\n".join(["user,value,time", *rows]) + "\n")
    (tmp_path / "secret").write_text(SECRET)
    options = {
        "source": tmp_path / "samples.csv", "lower": 0, "upper": 10, "epsilon": 2, "window": "1d",
        "estimator": "kent", "sizes": "uniform:1,30", "user_budget": 6, "secret_file": tmp_path / "secret",
        "store": tmp_path / "rounds.db",
    }  # fmt: skip
    engine, flink = tmp_path / "engine.jsonl", tmp_path / "flink.jsonl"
    assert meanstream("run", "rounds", *arguments({**options, "sink": engine}), "--quiet").code == 0
    given = [f"--runner-arg={argument}" for argument in arguments_of("FlinkRunner", cluster)]
    ran = meanstream("run", "rounds", *arguments({**options, "sink": flink, "runner": "FlinkRunner"}), *given, "--json")
    assert ran.code == 0, ran.err.decode()
    assert ran.json["refused_users"] == 12
    assert flink.read_bytes() == engine.read_bytes()
    assert flink.read_bytes().count(b"\n") == 4
