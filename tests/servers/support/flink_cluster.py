"""A real Flink cluster on free ports of 127.0.0.1: JobManager, TaskManager, Beam's job server and
its pool of workers.

Each process is a session of its own and ends by its id; the pool's worker processes end with the
pool.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.servers.support.broker import SERVERS, free_ports
from tests.servers.support.wait_until import NotInTimeError

FLINK_VERSION = "1.19.3"  # as in the Makefile
FLINK = SERVERS / f"flink-{FLINK_VERSION}"
JOB_SERVER = FLINK / "beam-flink-job-server.jar"
ROOT = Path(__file__).parents[3]
START_SECONDS = 300.0
QUICK = "-XX:TieredStopAtLevel=1"
MEMORY = 3584
"""Mebibytes of a TaskManager; enough for what a test sends."""
CLASSES = 1024
"""Mebibytes of them for classes, and as many for buffers outside the heap. A TaskManager that runs
out of either (of 256 and 128, by default) loses all its jobs."""
SLOTS = 8
"""Of a TaskManager that all tests share; a job takes as many as its parallelism."""
ENDED = {"CANCELED", "FINISHED", "FAILED"}
STREAMING = (
    "--streaming",
    "--checkpointing_interval=1000",
    "--max_bundle_time_mills=200",
    "--parallelism=1",
    "--finish_bundle_before_checkpointing",
)
"""Options of Beam for a pipeline without end that makes a checkpoint each second. Each step holds
its output for the time of a bundle, a second by default."""

# A lost TaskManager is noticed by its connection, in seconds; a slow one on a busy machine is not
# given up, and may take a minute to reply.
_CONFIG = """
jobmanager: {{bind-host: 127.0.0.1, rpc: {{address: 127.0.0.1, port: {rpc}}}, memory: {{process: {{size: 1024m}}}}}}
taskmanager:
  bind-host: 127.0.0.1
  host: 127.0.0.1
  numberOfTaskSlots: {slots}
  memory: {{process: {{size: {memory}m}}, network: {{min: 256m, max: 256m}}, jvm-metaspace: {{size: {classes}m}},
    framework: {{off-heap: {{size: {classes}m}}}}, managed: {{size: 512m}}}}
rest: {{address: 127.0.0.1, bind-address: 127.0.0.1, port: {rest}}}
parallelism: {{default: 1}}
io: {{tmp: {{dirs: {folder}/tmp}}}}
classloader: {{resolve-order: parent-first}}
heartbeat: {{interval: 1000, timeout: 30000, rpc-failure-threshold: 2}}
pekko: {{ask: {{timeout: 60 s}}}}
restart-strategy: {{type: fixed-delay, fixed-delay: {{attempts: 100000, delay: 500 ms}}}}
state: {{checkpoints: {{dir: 'file://{folder}/checkpoints'}}, savepoints: {{dir: 'file://{folder}/savepoints'}}}}
metrics: {{reporter: {{prom: {{factory: {{class: org.apache.flink.metrics.prometheus.PrometheusReporterFactory}}}}}}}}
"""
_OPENED = "lang net io nio lang.reflect text time util util.concurrent util.concurrent.atomic util.concurrent.locks"
_JAVA = [
    "-XX:+UseSerialGC",
    "--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    *(f"--add-opens=java.base/java.{part}=ALL-UNNAMED" for part in _OPENED.split()),
]
_CLASS_PATH = f"{FLINK}/deps/lib/*:{JOB_SERVER}"
"""With Beam's runner, so that jobs share its classes: each would load them from its own copy of the
jar, and compile them again."""
_UNSENT = FLINK / "gradle" / "wrapper" / JOB_SERVER.name
"""The jar under a name by which the job server does not send it, 163 MB, along with every job: it
sends what is on its class path, but for what has `gradle/wrapper` in its path (Beam's
`PipelineResources.isStageable`)."""
_PORTS = ("rest", "rpc", "pool", "jobs", "artifacts", "jobmanager_metrics", "taskmanager_metrics")


def missing() -> str | None:
    """Say what is not there to start a cluster, or None."""
    if shutil.which("java") is None:
        return "no java on the path"
    if not JOB_SERVER.is_file():
        return f"no Flink in {FLINK}: run `make flink`"
    return None


class FlinkCluster:
    """A cluster over a folder, whose TaskManager and pool of workers may be killed and started
    again.

    Parameters
    ----------
    folder : Path
        Configuration, checkpoints, savepoints and logs.
    slots : int
        Of the one TaskManager; a job takes as many as its parallelism.
    python_path : str
        Folders that workers import from besides the repository.
    compiler : str
        Option of Java: the quick compiler is done sooner with the little that a test does; "" for
        measurements.
    memory : int
        Mebibytes of the TaskManager. A shard's waiting samples go through it in one bundle, several
        times over.

    Attributes
    ----------
    jobmanager_metrics, taskmanager_metrics : int
        Ports of Flink's Prometheus reporter, on every address of this machine.
    """

    def __init__(
        self,
        folder: Path,
        *,
        slots: int = SLOTS,
        python_path: str = "",
        compiler: str = QUICK,
        memory: int = MEMORY,
    ) -> None:
        self.folder = folder.resolve()
        self.slots = slots
        self.python_path = python_path
        self.memory = memory
        self._java = ["java", *_JAVA, *([compiler] if compiler else [])]
        self.ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self.pids: dict[str, int] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._sizes: tuple[list[str], list[str]] | None = None

    @property
    def jobmanager_metrics(self) -> int:
        return self.ports["jobmanager_metrics"]

    @property
    def taskmanager_metrics(self) -> int:
        return self.ports["taskmanager_metrics"]

    @property
    def savepoints(self) -> Path:
        return self.folder / "savepoints"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def arguments(
        self, *more: str, own_job_server: bool = False, environment: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return Beam's options for `FlinkRunner`.

        Parameters
        ----------
        more : str
            Further options; the last one of a kind counts.
        own_job_server : bool
            Let the pipeline start a job server of its own, which takes ten seconds.
        environment : mapping, optional
            Variables of the job's workers.
        """
        address = "127.0.0.1:{}".format
        workers = {"url": address(self.ports["pool"]), "params": dict(environment or {})}
        server = (
            [f"--flink_job_server_jar={JOB_SERVER}"]
            if own_job_server
            else [
                f"--job_endpoint={address(self.ports['jobs'])}",
                f"--artifact_endpoint={address(self.ports['artifacts'])}",
            ]
        )
        return [
            f"--flink_master={address(self.ports['rest'])}",
            "--flink_version=1.19",
            *server,
            "--environment_type=EXTERNAL",
            f"--environment_config={json.dumps(workers)}",
            *more,
        ]

    def start(self) -> None:
        """Start everything and wait until jobs can be submitted."""
        (self.folder / "conf").mkdir(parents=True)
        _UNSENT.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            _UNSENT.hardlink_to(JOB_SERVER)
        sizes = {"slots": self.slots, "memory": self.memory, "classes": CLASSES}
        text = _CONFIG.format(
            folder=self.folder, rest=self.ports["rest"], rpc=self.ports["rpc"], **sizes
        )
        (self.folder / "conf" / "config.yaml").write_text(text)
        self._spawn(
            "jobmanager", *self._java, "-Xmx512m", "-cp", _CLASS_PATH,
            "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint", "--configDir", "conf",
            f"-Dmetrics.reporter.prom.port={self.jobmanager_metrics}",
        )  # fmt: skip
        self._spawn(
            "jobs", *self._java, "-Xmx384m", "-jar", str(_UNSENT), "--flink-master",
            f"127.0.0.1:{self.ports['rest']}", "--job-host", "127.0.0.1", "--job-port", str(self.ports["jobs"]),
            "--artifact-port", str(self.ports["artifacts"]), "--expansion-port", "-1", "--artifacts-dir", "artifacts",
        )  # fmt: skip
        self.start_pool()
        self.start_taskmanager()
        self.wait_for_slots()
        log = self.folder / "jobs.log"
        self._wait(lambda: "JobService started" in log.read_text(), "no job server")

    def stop(self) -> None:
        """Kill everything."""
        for name in list(self.pids):
            self._kill(name)

    def detach(self) -> dict[str, Any]:
        """Leave it to somebody else, who may `attach` to what this gives and stop it."""
        for process in self._processes.values():
            process.returncode = 0  # no warning that it still runs
        self._processes.clear()
        return {
            "folder": str(self.folder),
            "slots": self.slots,
            "ports": self.ports,
            "pids": self.pids,
        }

    @classmethod
    def attach(cls, state: dict[str, Any]) -> FlinkCluster:
        """Take a cluster that another process has started."""
        cluster = cls(Path(state["folder"]), slots=state["slots"])
        cluster.ports, cluster.pids = dict(state["ports"]), dict(state["pids"])
        return cluster

    def kill_taskmanager(self) -> None:
        """Let it die as a machine does; its slots are gone until another is started, and so is its
        folder.

        It cannot clean up itself: two copies of the job's jar, 331 MiB, and one of its own, 20,
        would stay behind.
        """
        self._kill("taskmanager")
        shutil.rmtree(self._taskmanager_tmp, ignore_errors=True)

    @property
    def _taskmanager_tmp(self) -> Path:
        return self.folder / "tmp-taskmanager"

    def exceptions(self, job: str) -> list[str]:
        """Give what has ended attempts of a job, as far as Flink's history goes back."""
        entries = self.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
        return [str(entry["stacktrace"]) for entry in entries]

    def start_taskmanager(self) -> None:
        """Start it, without waiting for its slots."""
        if self._sizes is None:
            self._sizes = self._memory()
        options, more = self._sizes
        self._taskmanager_tmp.mkdir(exist_ok=True)
        self._spawn(
            "taskmanager", *self._java, *options, "-cp", _CLASS_PATH,
            "org.apache.flink.runtime.taskexecutor.TaskManagerRunner", "--configDir", "conf", *more,
            f"-Dmetrics.reporter.prom.port={self.taskmanager_metrics}", f"-Dio.tmp.dirs={self._taskmanager_tmp}",
        )  # fmt: skip

    def kill_pool(self) -> None:
        """Kill the pool and, with it, every worker process that it has started."""
        self._kill("pool")

    def start_pool(self) -> None:
        """Start the pool; Flink asks it for workers."""
        program = f"from tests.servers.support.worker_pool import main; main({self.ports['pool']})"
        self._spawn("pool", sys.executable, "-c", program)

    def wait_for_slots(self) -> None:
        """Wait until the TaskManager has told the JobManager of itself."""
        self._wait(lambda: self.get("/overview")["slots-total"], "no slot")

    def cpu_seconds(self) -> dict[str, float]:
        """Give the processor time that each process has used, worker processes with their pool."""
        ticks = dict.fromkeys(self.pids, 0)
        names = {pid: name for name, pid in self.pids.items()}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if (name := names.get(int(fields[3]))) is not None:  # the session
                    ticks[name] += sum(
                        map(int, fields[11:15])
                    )  # its own, and of children that have ended
        return {name: count / os.sysconf("SC_CLK_TCK") for name, count in ticks.items()}

    def jobs(self) -> dict[str, str]:
        """Give the status of every job by its id."""
        return {job["id"]: job["status"] for job in self.get("/jobs")["jobs"]}

    def job_id(self, name: str) -> str:
        """Wait for a job of this name (Beam's option job_name) and give the id of the newest."""
        found: list[str] = []

        def look() -> bool:
            jobs = sorted(self.get("/jobs/overview")["jobs"], key=lambda job: job["start-time"])
            found[:] = [job["jid"] for job in jobs if job["name"] == name]
            return bool(found)

        self._wait(look, f"no job {name}")
        return found[-1]

    def status(self, job: str) -> str:
        """Tell how a job is: RUNNING, RESTARTING, FINISHED, ..."""
        return str(self.get(f"/jobs/{job}")["state"])

    def completed_checkpoints(self, job: str) -> int:
        """Count a job's checkpoints."""
        return int(self.get(f"/jobs/{job}/checkpoints")["counts"]["completed"])

    def wait_for_checkpoint(self, job: str) -> None:
        """Wait until a checkpoint is complete that was begun after now."""
        known = self.completed_checkpoints(job)
        self._wait(lambda: self.completed_checkpoints(job) >= known + 2, "no checkpoint")

    def retained_checkpoint(self, job: str) -> str:
        """Give the folder of a job's newest checkpoint, as `--savepoint_path` takes it."""
        return str(self.get(f"/jobs/{job}/checkpoints")["latest"]["completed"]["external_path"])

    def cancel(self, job: str) -> None:
        """End a job that has not ended yet, without a savepoint, and wait until it has ended."""
        if self.status(job) in ENDED:
            return
        try:
            self._request(f"/jobs/{job}?mode=cancel", method="PATCH")
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:  # the job has ended by itself
                raise
        self._wait(lambda: self.status(job) in ENDED, f"{job} was not cancelled")

    def stop_with_savepoint(self, job: str) -> str:
        """Make a savepoint, cancel the job, and give the folder, as `--savepoint_path` takes it."""
        asked = self._request(f"/jobs/{job}/savepoints", {"cancel-job": True}, method="POST")[
            "request-id"
        ]
        found: dict[str, Any] = {}

        def look() -> bool:
            found.update(self.get(f"/jobs/{job}/savepoints/{asked}"))
            return bool(found["status"]["id"] == "COMPLETED")

        self._wait(look, "no savepoint")
        if "location" not in found["operation"]:
            raise RuntimeError(
                f"no savepoint: {found['operation']['failure-cause']['stack-trace'][:500]}"
            )
        self._wait(lambda: self.status(job) in ENDED, f"{job} was not cancelled")
        return str(found["operation"]["location"])

    def get(self, path: str) -> Any:
        """Ask the JobManager."""
        return self._request(path)

    def _request(
        self, path: str, body: dict[str, Any] | None = None, *, method: str = "GET"
    ) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports['rest']}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            return json.loads(answer.read() or b"{}")

    def _wait(self, done: Callable[[], Any], why: str) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if done():
                    return
            time.sleep(0.1)
        raise NotInTimeError(f"{why} after {START_SECONDS:g} s; logs are in {self.folder}")

    def _spawn(self, name: str, *command: str) -> None:
        path = os.pathsep.join(
            part for part in (str(ROOT), self.python_path, os.environ.get("PYTHONPATH", "")) if part
        )
        environment = {
            **os.environ,
            "FLINK_CONF_DIR": str(self.folder / "conf"),
            "FLINK_LIB_DIR": str(FLINK / "deps" / "lib"),
            "FLINK_PLUGINS_DIR": str(FLINK / "deps" / "plugins"),
            "PATH": os.pathsep.join(
                [str(Path(sys.executable).parent), os.environ["PATH"]]
            ),  # the pool starts `python`
            "PYTHONPATH": path,
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment,
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        self._processes[name], self.pids[name] = process, process.pid

    def _kill(self, name: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pids.pop(name), signal.SIGKILL)
        if process := self._processes.pop(name, None):
            process.wait()

    def _memory(self) -> tuple[list[str], list[str]]:
        """Ask Flink how large the parts of a TaskManager are: options of Java, and of Flink."""
        classes = f"{FLINK}/deps/bin/bash-java-utils.jar:{FLINK}/deps/lib/*"
        utility = "org.apache.flink.runtime.util.bash.BashJavaUtils"
        command = [
            "java",
            QUICK,
            "-cp",
            classes,
            utility,
            "GET_TM_RESOURCE_PARAMS",
            "--configDir",
            "conf",
        ]
        answer = subprocess.run(
            command, cwd=self.folder, capture_output=True, check=True, text=True
        ).stdout
        mark = "BASH_JAVA_UTILS_EXEC_RESULT:"
        options, more = (
            line.partition(mark)[2].split() for line in answer.splitlines() if mark in line
        )
        return options, more
