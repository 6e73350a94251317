"""A real Schema Registry: Apicurio's, by Confluent's interface, in memory, on a free port of
127.0.0.1."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.support.broker import SERVERS, free_ports
from tests.servers.support.wait_until import wait_until

APICURIO_VERSION = "3.0.9"  # as in the Makefile
FOLDER = SERVERS / f"apicurio-{APICURIO_VERSION}"
START_SECONDS = 240.0


def missing() -> str | None:
    """Say what is not there to start a registry, or None."""
    if shutil.which("java") is None:
        return "no java on the path"
    if not (FOLDER / ".complete").is_file():
        return f"no registry in {FOLDER}: run `make servers`"
    return None


def start_registry(folder: Path) -> dict[str, Any]:
    """Start a registry, whose log is in a folder; give the address of its interface and its process
    id."""
    (port,) = free_ports(1)
    jar = FOLDER / f"apicurio-registry-app-{APICURIO_VERSION}-runner.jar"
    command = [
        "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dquarkus.http.host=127.0.0.1",
    ]
    command += [f"-Dquarkus.http.port={port}", "-jar", str(jar)]
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "registry.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def ready() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the registry ended: {log.read_text()[-2000:]}")
        return _answers(address)

    try:
        wait_until(ready, START_SECONDS, why=lambda: log.read_text()[-2000:], every=0.1)
    except BaseException:
        process.kill()
        process.wait()
        raise
    process.returncode = 0  # others stop it, by its process id
    return {"address": address, "pid": process.pid}


@contextmanager
def running_registry(folder: Path) -> Iterator[str]:
    """Start a registry; give the address of its interface."""
    registry = start_registry(folder)
    try:
        yield registry["address"]
    finally:
        os.kill(registry["pid"], signal.SIGKILL)
        os.waitpid(registry["pid"], 0)


def _answers(address: str) -> bool:
    try:
        ask(f"{address}/subjects")
    except (urllib.error.URLError, OSError):
        return False
    return True


def ask(address: str, body: Any = None, method: str = "GET") -> Any:
    """Ask a registry."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(address, data, headers, method=method)  # noqa: S310 - http
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        return json.loads(answer.read())


def register(
    address: str, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()
) -> int:
    """Register a schema; give its id."""
    body = {"schema": json.dumps(schema), "schemaType": kind, "references": list(references)}
    return int(ask(f"{address}/subjects/{subject}/versions", body, "POST")["id"])
