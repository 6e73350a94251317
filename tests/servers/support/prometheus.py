"""One real Prometheus (Debian's package) with the shipped configuration, in a hurry."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

import yaml

from tests.servers.support.broker import free_ports
from tests.servers.support.wait_until import NotInTimeError

SHIPPED = Path(__file__).parents[3] / "docker" / "prometheus"
START_SECONDS = 240.0
STOP_SECONDS = 20.0


def missing() -> str | None:
    """Say what is not there to start Prometheus and to check its files, or None."""
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            return f"no {program} on the path: apt-get install prometheus"
    return None


class Prometheus:
    """Scrapes targets each second with the shipped jobs and rules; `with` stops it.

    Parameters
    ----------
    folder : Path
        Configuration, data and log.
    *targets : str
        `HOST:PORT` in place of the shipped ones.
    shipped : str
        Which of the shipped configurations.
    alertmanager : str
        `HOST:PORT` of the one that is told of alerts.
    hurried : str
        An alert that waits for a second until it fires. On a busy machine a scrape may fail: others
        wait as shipped.
    """

    def __init__(
        self,
        folder: Path,
        *targets: str,
        shipped: str = "prometheus.yml",
        alertmanager: str | None = None,
        hurried: str = "",
    ) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"
        config = yaml.safe_load((SHIPPED / shipped).read_text())
        config["global"] = dict.fromkeys(config["global"], "1s")
        config["rule_files"] = [str(SHIPPED / path) for path in config["rule_files"]]
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": list(targets)}]
        folder.mkdir(parents=True, exist_ok=True)
        config.pop("alerting", None)
        if alertmanager is not None:
            config["alerting"] = {
                "alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]
            }
        if hurried:
            for number, path in enumerate(config["rule_files"]):
                rules = yaml.safe_load(Path(path).read_text())
                for rule in (rule for group in rules["groups"] for rule in group["rules"]):
                    if rule.get("alert") == hurried:
                        rule["for"] = "1s"
                copy = folder / Path(path).name
                copy.write_text(yaml.safe_dump(rules))
                config["rule_files"][number] = str(copy)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def arguments(self) -> list[str]:
        """Its command."""
        return [
            "prometheus",
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.arguments(),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        end = time.monotonic() + START_SECONDS
        while not self._ready():
            ended, late = self._process.poll() is not None, time.monotonic() > end
            if ended or late:
                self.__exit__()
                kind = RuntimeError if ended else NotInTimeError
                raise kind(f"Prometheus did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def log(self) -> Path:
        return self.folder / "prometheus.log"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluate an expression now."""
        result: list[dict[str, Any]] = self._get(
            f"query?{urllib.parse.urlencode({'query': expression})}"
        )["result"]
        return result

    def rules(self) -> list[dict[str, Any]]:
        """All rules with their health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as answer:  # noqa: S310 - our own
            return json.load(answer)["data"]

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:  # noqa: S310 - our own
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
