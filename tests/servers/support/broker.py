"""One real Kafka broker (KRaft, broker and controller in one JVM) on free ports of 127.0.0.1."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.servers.support.wait_until import NotInTimeError

KAFKA_VERSION = "4.3.1"  # as in the Makefile
SERVERS = Path(os.environ.get("MEANSTREAM_SERVERS", Path.home() / ".cache" / "meanstream-servers"))
JARS = SERVERS / f"kafka-{KAFKA_VERSION}"
HEAP = "384m"
START_SECONDS = 240.0
STOP_SECONDS = 20.0
ARCHIVE_SECONDS = 120.0
QUICK = "-XX:TieredStopAtLevel=1"
_SHARES = 16
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
PORTS = range(10_000, 32_768)[_WORKER::_SHARES]
"""Below those that Linux gives to clients: one of these was taken before its server began. Workers
share none."""
_GIVEN: deque[int] = deque(maxlen=500)
"""Whose servers may not have begun yet, or begin again."""

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
auto.create.topics.enable=false
num.partitions=1
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.cleaner.dedupe.buffer.size=4194304
"""

_LOGGING = """
status=error
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c: %m%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=OUT
logger.server.name=kafka.server.KafkaRaftServer
logger.server.level=INFO
"""


def missing() -> str | None:
    """Say what is not there to start a broker, or None."""
    if shutil.which("java") is None:
        return "no java on the path"
    if not (JARS / ".complete").is_file():
        return f"no Kafka in {JARS}: run `make servers`"
    return None


class Broker:
    """A broker over a folder; it can be stopped, killed, paused and started again over the same
    data.

    Parameters
    ----------
    folder : Path
        Configuration, data and log.
    properties : mapping
        Server properties that replace or add to the standard ones; `{port}` and `{spare}` are
        filled in.
    compiler : str
        Option of Java: the quick compiler is done sooner with the little that a test does; "" for
        measurements.
    classes : str, optional
        Option of Java that names an archive of parsed classes; by default that of an earlier
        broker.
    """

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        *,
        compiler: str = QUICK,
        classes: str | None = None,
    ) -> None:
        self.folder = folder
        if classes is None:
            archive = kept_files().classes
            classes = f"-XX:SharedArchiveFile={archive}" if archive.exists() else ""
        self._options = [compiler, classes, "-XX:+ExitOnOutOfMemoryError"]
        self.port, self.controller, self.spare = free_ports(3)
        self.pid: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        lines = dict(line.split("=", 1) for line in _PROPERTIES.strip().splitlines())
        lines.update(properties or {})
        values = {
            "port": self.port,
            "controller": self.controller,
            "spare": self.spare,
            "folder": folder,
        }
        text = "".join(f"{key}={value.format(**values)}\n" for key, value in lines.items())
        (folder / "server.properties").write_text(text)
        (folder / "log4j2.properties").write_text(_LOGGING)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def spare_address(self) -> str:
        """Address of the listener that `properties` put on the spare port."""
        return f"127.0.0.1:{self.spare}"

    @property
    def _properties(self) -> str:
        return str(self.folder / "server.properties")

    @property
    def log(self) -> Path:
        return self.folder / "kafka.log"

    def start(self, *, wait: bool = True) -> None:
        """Start, the first time after formatting the folder."""
        if not (self.folder / "logs" / "meta.properties").is_file():
            self.format(kept_files().checkpoint)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._java(HEAP, self._options, "kafka.Kafka", self._properties),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.pid = self._process.pid
        if wait:
            self.wait()

    def serve(self) -> None:
        """Start it if it does not run, and let it go on if it was paused."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        self.resume()

    def wait(self) -> None:
        """Wait until it serves."""
        end = time.monotonic() + START_SECONDS
        while not (b"Kafka Server started" in self.log.read_bytes() and self._answers()):
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(f"the broker ended: {self.log.read_text()[-2000:]}")
            if time.monotonic() > end:
                self.kill()
                raise NotInTimeError(f"the broker was not ready: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ask it to end; insist if it does not."""
        self._end(signal.SIGTERM, seconds)

    def kill(self) -> None:
        """Let it die as a machine does."""
        self._end(signal.SIGKILL)

    def detach(self) -> int:
        """Leave it to somebody else to stop it, by its process id."""
        assert self._process is not None
        pid = self._process.pid
        self._process.returncode = 0  # no warning that it still runs
        self._process = None
        return pid

    def pause(self) -> None:
        """Make it silent: connections stand, nothing answers."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, how: signal.Signals, seconds: float = STOP_SECONDS) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = self.pid = None

    def format(self, checkpoint: Path) -> None:
        """Format the folder with the features in a file of `format_by_tool`, and with ids of its
        own."""
        logs = self.folder / "logs"
        logs.mkdir()
        shutil.copyfile(checkpoint, logs / checkpoint.name)
        ids = f"cluster.id={_new_id()}\ndirectory.id={_new_id()}\n"
        (logs / "meta.properties").write_text(f"version=1\nnode.id=1\n{ids}")

    def format_by_tool(self) -> Path:
        """Format the folder with Kafka's own tool, which is a second JVM; return the file that it
        made of features."""
        arguments = ["-t", _new_id(), "-c", self._properties]
        subprocess.run(
            self._java("128m", [QUICK], "kafka.tools.StorageTool", "format", *arguments),
            check=True,
            capture_output=True,
        )
        return self.folder / "logs" / "bootstrap.checkpoint"

    def _java(self, heap: str, options: list[str], program: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        options = [*options, "-Djava.awt.headless=true", "-XX:+UseSerialGC", logging]
        given = [f"-Xms{heap}", f"-Xmx{heap}", *filter(None, options)]
        return ["java", *given, "-cp", f"{JARS}/*", program, *arguments]

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class KeptFiles(NamedTuple):
    """What one broker leaves for those after it: its parsed classes, and the features of a
    formatted folder."""

    classes: Path
    checkpoint: Path


@cache
def kept_files() -> KeptFiles:
    """Return the files of the first broker on this machine, which is run here if there was none
    yet.

    With the archive a start takes a third of the processor time. Java itself checks whether the
    archive fits.
    """
    java = Path(shutil.which("java") or "").resolve()
    version = hashlib.sha256(f"{java} {java.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    folder = JARS / "archives" / version
    kept = KeptFiles(folder / "kafka.jsa", folder / "bootstrap.checkpoint")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock, tempfile.TemporaryDirectory() as temporary:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.checkpoint.exists():  # not every Java can make an archive
            archive = Path(temporary) / "kafka.jsa"
            first = Broker(Path(temporary) / "kafka", classes=f"-XX:ArchiveClassesAtExit={archive}")
            checkpoint = first.format_by_tool()
            first.start()
            first.stop(ARCHIVE_SECONDS)
            if archive.exists():
                shutil.move(archive, kept.classes)
            shutil.copyfile(checkpoint, kept.checkpoint)
    return kept


def _new_id() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()[:22].replace("-", "A")


def free_ports(count: int) -> list[int]:
    """Find ports of 127.0.0.1 that nobody listens on, and none that the system gives to clients
    meanwhile."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if port not in _GIVEN and _binds(probe, port):
                found.append(port)
                _GIVEN.append(port)
    return found


def _binds(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


@contextmanager
def temporary_broker(*, compiler: str = "") -> Iterator[Broker]:
    """Give a broker that serves, in a new folder with room for others' files; both go at the end.

    For measurements: its compiler is the one that users' brokers have.

    Raises
    ------
    SystemExit
        With what is missing to start one.
    """
    if reason := missing():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        broker = Broker(Path(folder) / "kafka", compiler=compiler)
        try:
            broker.start()
            yield broker
        finally:
            broker.kill()
