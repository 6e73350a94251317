"""The images themselves: built from their Dockerfiles, run with a read-only root and no
capabilities."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from meanstream.pipelines.beam.beam_runners import runner_arguments
from tests.pipelines.command_line import arguments, meanstream
from tests.servers.conftest import need
from tests.servers.support.broker import free_ports
from tests.servers.support.engine_process import SECRET
from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.images import Container, Images, missing
from tests.servers.support.programs import SERVICES
from tests.servers.support.wait_until import wait_until
from tests.streaming.support.rounds_world import samples

pytestmark = pytest.mark.full

USER = 10001
STATE = "/var/lib/meanstream"
OPTIONS = [
    "--lower",
    "-30",
    "--upper",
    "120",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--name",
    "delays",
]
PLACES = ["--store", "state.db", "--releases", "releases.jsonl", "--sink", "own.jsonl"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """Both images; their storage is removed."""
    need(missing())
    with Images(tmp_path_factory.mktemp("images") / "built") as built:
        built.build("engine")
        built.build("beam")
        yield built


def sample_lines(first: int, stop: int) -> str:
    """Samples of 50 agents, one a minute."""
    numbers = range(first, stop)
    lines = [
        {"agent": f"N{i % 50}", "value": i * i * 37 % 83 - 40, "time": 1357034400 + i * 60}
        for i in numbers
    ]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A folder that belongs to the images' user, with samples."""
    folder = tmp_path / "volume"
    folder.mkdir()
    (folder / "samples.jsonl").write_text(sample_lines(0, 3000))
    for path in (folder, folder / "samples.jsonl"):
        os.chown(path, USER, USER)
    folder.chmod(0o700)
    return folder


def run_agents(*more: str) -> list[str]:
    return ["run", "agents", "--source", "samples.jsonl", *OPTIONS, *PLACES, *more]


def test_a_run_on_a_volume_has_the_bytes_of_a_run_outside(
    images: Images, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = {"MEANSTREAM_SECRET": SECRET}
    with Container(
        images, "engine", run_agents(), volumes={STATE: volume}, environment=secret
    ) as engine:
        code, _, errors = engine.wait()
    assert code == 0, errors
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "samples.jsonl").write_bytes((volume / "samples.jsonl").read_bytes())
    monkeypatch.chdir(tmp_path / "outside")
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    assert meanstream(*run_agents()).code == 0
    assert (volume / "releases.jsonl").read_bytes() == Path("releases.jsonl").read_bytes()
    assert (volume / "own.jsonl").read_bytes().count(b"\n") == 50
    found = (volume / "state.db").stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (USER, 0o600)


@pytest.mark.parametrize("name", ["engine", "beam"])
def test_a_container_writes_its_volume_and_nothing_else(
    images: Images, volume: Path, name: str
) -> None:
    program = (
        "import os\n"
        "print(os.getuid(), open('/proc/self/status').read().split('CapEff:')[1].split()[0])\n"
        "for folder in ('/', '/opt/meanstream', '/etc', '/home', '/var/lib', '/tmp', '/var/lib/meanstream'):\n"
        "    try:\n"
        "        open(os.path.join(folder, 'written'), 'w').close(); print(folder)\n"
        "    except OSError: pass\n"
    )
    with Container(
        images, name, ["-c", program], entrypoint=["python"], volumes={STATE: volume}
    ) as container:
        code, output, errors = container.wait()
    assert (code, errors) == (0, "")
    assert output.split() == [str(USER), "0000000000000000", "/tmp", STATE]  # noqa: S108


def test_the_health_check_sigterm_and_the_next_run(images: Images, volume: Path) -> None:
    (port,) = free_ports(1)
    following = run_agents("--follow", "--metrics", f"127.0.0.1:{port}")
    releases, before = volume / "releases.jsonl", b""
    for _ in range(2):
        with Container(images, "engine", following, volumes={STATE: volume}) as engine:
            wait_until(lambda: engine.healthy(port), 120)
            assert (
                engine.run("python", "/opt/meanstream/probe.py", f"http://127.0.0.1:{port}/nothing")
                == 1
            )
            size = len(before)
            wait_until(lambda size=size: releases.exists() and releases.stat().st_size > size, 120)
            engine.signal("TERM")
            code, _, errors = engine.wait(120)
        assert code == 0, errors
        assert releases.read_bytes().startswith(before)
        before = releases.read_bytes()
        with (volume / "samples.jsonl").open("a") as samples_file:
            samples_file.write(sample_lines(3000, 6000))
    ids = [json.loads(line)["release_id"] for line in before.splitlines()]
    assert len(set(ids)) == len(ids)


def test_workers_in_the_image_serve_flink(
    images: Images, flink: FlinkCluster, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    rows = [f"{user},{value!r},{time!r}" for user, value, time in samples()]
    (shared / "samples.csv").write_text("\n".join(["user,value,time", *rows]) + "\n")
    (shared / "secret").write_text(SECRET)
    os.chown(shared / "secret", USER, USER)
    options = {
        "source": shared / "samples.csv", "lower": 0, "upper": 10, "epsilon": 2, "window": "1d",
        "estimator": "kent", "sizes": "uniform:1,30", "user_budget": 6, "secret_file": shared / "secret",
        "store": shared / "rounds.db", "name": "test",
    }  # fmt: skip
    engine, beamed = shared / "engine.jsonl", shared / "flink.jsonl"
    assert meanstream("run", "rounds", *arguments({**options, "sink": engine}), "--quiet").code == 0
    service = SERVICES["beam-worker"]
    assert service["command"] == ["--service_port=50000"]
    pool = Container(
        images,
        "beam",
        [f"--service_port={port}"],
        entrypoint=service["entrypoint"],
        volumes={str(shared): shared},
    )
    with pool:
        probe = [word.replace("50000", str(port)) for word in service["healthcheck"]["test"][1:]]
        wait_until(lambda: pool.run(*probe) == 0, 120)
        of_cluster = flink.arguments(f"--environment_config=127.0.0.1:{port}", own_job_server=True)
        given = [
            f"--runner-arg={argument}" for argument in runner_arguments("FlinkRunner", of_cluster)
        ]
        ran = meanstream(
            "run",
            "rounds",
            *arguments({**options, "sink": beamed, "runner": "FlinkRunner"}),
            *given,
            "--json",
        )
    assert ran.code == 0, ran.err.decode()
    assert beamed.read_bytes() == engine.read_bytes()
    assert beamed.read_bytes().count(b"\n") == 4


def test_the_images_have_what_runs_them(images: Images) -> None:
    with Container(images, "beam", ["--help"]) as boot:
        code, output, errors = boot.wait(60)
    assert code in (0, 2)
    assert "worker_pool" in output + errors
    assert images.size("engine") - images.size("base") < 400e6
