"""Every alert fires: shipped rules in a hurry, on what real engines serve when what it warns of
happens to them.

promtool holds the thresholds (test_prometheus.py), a running stack that none fires when all is well
(test_compose.py).
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from tests.servers.conftest import need
from tests.servers.support import broker as kafka
from tests.servers.support.broker import free_ports
from tests.servers.support.programs import Command
from tests.servers.support.prometheus import SHIPPED, Prometheus, missing
from tests.servers.support.repaired_store import serve_refusals
from tests.servers.support.wait_until import wait_until

SECRET = "7c1e94b05fa3d2681be60c9d37f25a84"  # noqa: S105 - of tests only
SECONDS = 400.0
HURRIED = {
    r"for: \d+m": "for: 0s",
    r"\[(10m|5m|1h)\]": "[6s]",
    "offset 1h": "offset 6s",
    "> 600": "> 2",
    "> 300": "> 2",
    r"<= 3600 \+": "<= 6 +",
    r"> 10000 \+": "> 10 +",
    r"\(\) 1000 \+": "() 10 +",
    r"2 \* \(60 \+": "2 * (0 +",
    r"< 0\.05 \* meanstream_store": "< 1.1 * meanstream_store",  # a disk that is full would be everybody's
    r"> 0\.8 \* process_max_fds": "> 0.0001 * process_max_fds",
}
"""What of the rules is in minutes and thousands is in seconds and tens; each occurs."""
FIRES = {
    "MeanstreamDown": "rounds",
    "MeanstreamNotReady": "blocked",
    "MeanstreamCheckpointStale": "blocked",
    "MeanstreamWatermarkLagGrowing": "stuck",
    "MeanstreamPendingGrowing": "stuck",
    "MeanstreamNoRelease": "stuck",
    "MeanstreamDeadLetters": "stuck",
    "MeanstreamBudgetNearlySpent": "stuck",
    "MeanstreamAgentBudgetNearlySpent": "stuck",
    "MeanstreamInputLagGrowing": "slow",
    "MeanstreamAnswerLagGrowing": "slow",
    "MeanstreamPartitionStuck": "slow",
    "MeanstreamNoWindow": "rounds",
    "MeanstreamUsersOverBudget": "rounds",
    "MeanstreamRefusal": "repaired",
    "MeanstreamDiskFull": "private",
    "MeanstreamDescriptors": "private",
}
"""Each alert, and whom it is about."""
ELSEWHERE = {
    "MeanstreamReadingTurnsMany",
    "MeanstreamAgentsMoved",
    "MeanstreamInputSilent",
    "MeanstreamGroupNotCommitted",
    "MeanstreamNoEstimates",
}
"""Of jobs on Flink, of agents with a memory whose means move, and of what is missing for half an
hour: promtool's."""

BOUNDS = ("--lower", "0", "--upper", "1", "--epsilon", "1")
SPENDING = (
    "--delta",
    "1e-6",
    "--schedule",
    "geometric:2,2",
    "--horizon",
    "2",
    "--lateness",
    "0s",
    "--refresh",
    "1s",
)
OPTIONS = {
    "stuck": ("agents", *SPENDING),
    "slow": ("agents", *SPENDING, "--batch-size", "1"),
    "blocked": ("agents", *SPENDING),
    "rounds": (
        "rounds",
        "--user",
        "agent",
        "--window",
        "2s",
        "--allowed-lateness",
        "0s",
        "--user-budget",
        "1",
    ),
}


class Hurried(Prometheus):
    """Evaluates the shipped rules in a hurry."""

    def __init__(self, folder: Path, *targets: str) -> None:
        super().__init__(folder, *targets)
        config = yaml.safe_load((folder / "prometheus.yml").read_text())
        texts = {Path(path).name: Path(path).read_text() for path in config["rule_files"]}
        for old, new in HURRIED.items():
            assert any(re.search(old, text) for text in texts.values()), old
            texts = {name: re.sub(old, new, text) for name, text in texts.items()}
        for name, text in texts.items():
            (folder / name).write_text(text)
        config["rule_files"] = [str(folder / name) for name in texts]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def firing(self) -> set[tuple[str, str]]:
        """Name and instance of each alert."""
        found = self.query('ALERTS{alertstate="firing"}')
        return {(one["metric"]["alertname"], one["metric"].get("instance", "")) for one in found}


class Feed:
    """Writes to the topics of engines that have troubles, until it is ended."""

    def __init__(self, address: str, topics: dict[str, str]) -> None:
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
        self._topics = topics
        self._begin = time.time()
        self.of_rounds = self.of_slow = True
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Feed:
        self._send(
            "stuck", "c", self._begin - 86400
        )  # one that has hardly begun, and two that spend all they have
        for i in range(40):
            self._send("stuck", f"a{i % 2}", self._begin - 86400 + i)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(10)

    def _run(self) -> None:
        turn = 0
        while not self._ended.wait(0.2):
            turn += 1
            for i in range(10):
                self._send("stuck", f"a{i % 2}", self._begin - 86000)  # clocks that stand still
            for _ in range(3):
                self._producer.produce(self._topics["stuck"], b"{")
            for i in range(1000 if self.of_slow else 0):
                self._send("slow", f"a{i % 3}", self._begin + turn / 5)
            self._send("blocked", f"a{turn % 2}", time.time())
            for i in range(3 if self.of_rounds else 0):
                self._send("rounds", f"u{i}", time.time())
            self._producer.poll(0)

    def _send(self, engine: str, agent: str, at: float) -> None:
        value = json.dumps({"agent": agent, "value": 0.5, "time": at})
        while True:
            try:
                self._producer.produce(self._topics[engine], value, agent)
                return
            except BufferError:
                self._producer.poll(0.1)


def start(folder: Path, name: str, source: str, sink: str, served: tuple[str, str]) -> Command:
    kind, *options = OPTIONS[name]
    places = ("--source", source, "--store", str(folder / f"{name}.db"), "--sink", sink)
    shown = ("--metrics", served[0], "--private-metrics", served[1], "--quiet")
    return Command(
        folder, name, ["run", kind, *options, *BOUNDS, *places, *shown], MEANSTREAM_SECRET=SECRET
    )


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[str]:
    """Address of an engine that has refused releases."""
    with serve_refusals(tmp_path / "repaired") as address:
        yield address


def test_every_alert_fires_on_what_it_warns_of(
    broker_address: str,
    own_broker: kafka.Broker,
    new_topic: Callable[..., str],
    refusing: str,
    tmp_path: Path,
) -> None:
    need(missing())
    topics = {name: new_topic() for name in OPTIONS}
    ports = free_ports(2 * len(OPTIONS))
    public = {name: f"127.0.0.1:{port}" for name, port in zip(OPTIONS, ports, strict=False)}
    private = {
        name: f"127.0.0.1:{port}" for name, port in zip(OPTIONS, ports[len(OPTIONS) :], strict=True)
    }
    whose: dict[str, set[str]] = {
        **{name: {place} for name, place in public.items()},
        "repaired": {refusing},
    }
    whose["private"] = set(private.values())
    seen: dict[str, set[str]] = defaultdict(set)
    with ExitStack() as things:
        engines: dict[str, Command] = {}
        for name, topic in topics.items():
            sink = str(tmp_path / f"{name}.jsonl")
            if name == "blocked":
                sink = f"kafka://{own_broker.address}/answers?create=1"
            source = f"kafka://{broker_address}/{topic}?group={topic}"
            engines[name] = things.enter_context(
                start(tmp_path, name, source, sink, (public[name], private[name]))
            )
        targets = [*public.values(), *private.values(), refusing]
        prometheus = things.enter_context(Hurried(tmp_path / "prometheus", *targets))
        feed = things.enter_context(Feed(broker_address, topics))

        def fires(*names: str) -> bool:
            for alert, instance in prometheus.firing():
                seen[alert].add(instance)
            return all(seen[name] & whose[FIRES[name]] for name in names)

        def wait_for(*names: str) -> None:
            wait_until(
                lambda: fires(*names), SECONDS, every=0.5, why=lambda: _why(seen, whose, engines)
            )

        wait_until(
            lambda: prometheus.query(f'meanstream_ready{{instance="{public["blocked"]}"}} == 1'),
            SECONDS,
        )
        slow = [alert for alert, engine in FIRES.items() if engine == "slow"]
        wait_for("MeanstreamUsersOverBudget", *slow)
        feed.of_rounds = feed.of_slow = False
        assert engines["slow"].stop() == 0  # its small turns take a processor of their own
        own_broker.kill()
        wait_for(*(FIRES.keys() - {"MeanstreamDown"}))
        assert engines["rounds"].stop() == 0
        wait_for(*FIRES)
        assert seen["MeanstreamRefusal"] == {refusing}
        assert seen["MeanstreamUsersOverBudget"] | seen["MeanstreamNoWindow"] == {public["rounds"]}
        assert public["slow"] not in seen["MeanstreamDeadLetters"]
        rules = yaml.safe_load((SHIPPED / "rules" / "alerts.yml").read_text())["groups"]
        assert FIRES.keys() | ELSEWHERE == {
            rule["alert"] for group in rules for rule in group["rules"]
        }


def _why(seen: dict[str, set[str]], whose: dict[str, set[str]], engines: dict[str, Command]) -> str:
    left = {
        name: sorted(seen[name]) for name, engine in FIRES.items() if not seen[name] & whose[engine]
    }
    return f"not yet: {left} of {whose}; {[program.log[-300:] for program in engines.values()]}"
