"""One real Alertmanager (Debian's package) with the shipped configuration, in a hurry, and a hook
that it tells."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import yaml

from tests.servers.support.broker import free_ports
from tests.servers.support.programs import DOCKER, Program
from tests.servers.support.wait_until import wait_until

SHIPPED = DOCKER / "alertmanager" / "alertmanager.yml"
PROGRAM = "prometheus-alertmanager"


def missing() -> str | None:
    """Say that it is not there, or None."""
    return (
        f"no {PROGRAM} on the path: apt-get install {PROGRAM}"
        if shutil.which(PROGRAM) is None
        else None
    )


class Alertmanager:
    """Hands alerts on to `told`, grouped and inhibited as shipped; `with` stops it."""

    def __init__(self, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self.told: list[dict[str, Any]] = []
        self._folder = folder
        self._things = ExitStack()

    def __enter__(self) -> Self:
        hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._hook())
        self._things.callback(hook.server_close)
        self._things.callback(hook.shutdown)
        threading.Thread(target=hook.serve_forever, args=(0.05,), daemon=True).start()
        config = yaml.safe_load(SHIPPED.read_text())
        config["route"] |= {"group_wait": "1s", "group_interval": "1s"}
        (receiver,) = config["receivers"]
        receiver["webhook_configs"] = [
            {"url": f"http://127.0.0.1:{hook.server_address[1]}/", "send_resolved": True}
        ]
        self._folder.mkdir(parents=True)
        (self._folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
        words = [
            PROGRAM,
            f"--config.file={self._folder / 'alertmanager.yml'}",
            "--cluster.listen-address=",
        ]
        words += [f"--storage.path={self._folder / 'data'}", f"--web.listen-address={self.address}"]
        program = self._things.enter_context(Program(self._folder, "alertmanager", words))
        program.until(self._ready)
        return self

    def __exit__(self, *_: object) -> None:
        self._things.close()

    def wait_for(self, name: str, status: str) -> dict[str, Any]:
        """Wait until the hook is told of an alert in a state; give it."""

        def found() -> list[dict[str, Any]]:
            return [
                alert
                for alert in self.told
                if (alert["labels"]["alertname"], alert["status"]) == (name, status)
            ]

        wait_until(found, why=lambda: json.dumps(self.told)[-2000:])
        return found()[0]

    def _hook(self) -> type[http.server.BaseHTTPRequestHandler]:
        told = self.told

        class Hook(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told.extend(
                    json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"]
                )
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        return Hook

    def _ready(self) -> bool:
        time.sleep(0.05)
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
