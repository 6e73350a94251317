"""The containers of docker/compose.yaml as plain processes: same arguments and files, real servers,
no image.

Durations are shortened, addresses and folders are this machine's; docker/README.md says what else
is different.
"""

from __future__ import annotations

import http.server
import json
import math
import os
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.servers.conftest import need
from tests.servers.support import broker as kafka
from tests.servers.support.alertmanager import PROGRAM as ALERTMANAGER
from tests.servers.support.alertmanager import missing as missing_alertmanager
from tests.servers.support.broker import JARS, free_ports
from tests.servers.support.programs import DOCKER, HERE, SERVICES, Program, command_of, healthy
from tests.servers.support.prometheus import Prometheus
from tests.servers.support.prometheus import missing as missing_prometheus
from tests.servers.support.wait_until import wait_until

BOARDS = {
    path.stem: json.loads(path.read_text())
    for path in sorted((DOCKER / "grafana" / "dashboards").glob("*.json"))
}
RECORDED = Path(__file__).parents[1] / "docker" / "data"
QUERY_SECONDS = 240.0
ENGINES = {
    "engine": {"--lateness=5s": "--lateness=1s", "--refresh=10s": "--refresh=2s"},
    "rounds": {"--allowed-lateness=5s": "--allowed-lateness=1s", "--window=1m": "--window=3s"},
}
CARRYING = {
    **ENGINES["rounds"],
    "--lower=0": "--lower=-2",
    "--upper=1": "--upper=3",
    "--users=100": "--users=1000",
}
"""Of one more engine of rounds, which finds a narrow window: with compose's hundred users, whose
means are spread over all of the bounds, none pays."""
PRIVATE = ("engine", "rounds")
"""Whose operator's figures are at an address of their own."""
IMAGE_ENTRYPOINT = ["meanstream"]  # of engine.Dockerfile, behind tini; tests/docker sees to it


@dataclass
class Stack:
    """What runs, by the names of the services."""

    folder: Path
    kafka: str
    programs: dict[str, Program]
    metrics: dict[str, str]
    prometheus: ComposedPrometheus


class ComposedPrometheus(Prometheus):
    """Runs with the arguments of its container on compose.yml, with other targets and in a
    hurry."""

    def __init__(
        self, folder: Path, targets: dict[str, str], alertmanager: str, more: list[str]
    ) -> None:
        super().__init__(folder, "unused")
        config = yaml.safe_load((DOCKER / "prometheus" / "compose.yml").read_text())
        config["global"] = dict.fromkeys(config["global"], "1s")
        config["rule_files"] = [str(DOCKER / "prometheus" / path) for path in config["rule_files"]]
        (manager,) = config["alerting"]["alertmanagers"]
        assert manager["static_configs"] == [{"targets": ["alertmanager:9093"]}]
        manager["static_configs"] = [{"targets": [alertmanager]}]
        for job in config["scrape_configs"]:
            for group in job["static_configs"]:
                group["targets"] = [targets[target] for target in group["targets"]]
        config["scrape_configs"][0]["static_configs"].append({"targets": more})
        (folder / "compose.yml").write_text(yaml.safe_dump(config))

    def arguments(self) -> list[str]:
        changes = {
            "/etc/prometheus": str(self.folder),
            "path=/prometheus": f"path={self.folder / 'data'}",
            ":9090": self.url.removeprefix("http://"),
        }
        return command_of("prometheus", ["prometheus"], changes)

    def finite(self, expression: str) -> bool:
        """Whether an expression has given a number at any time of the last minute."""
        now = time.time()
        asked = {"query": expression, "start": now - 60, "end": now, "step": 1}
        found = self._get(f"query_range?{urllib.parse.urlencode(asked)}")["result"]
        return any(math.isfinite(float(value)) for series in found for _, value in series["values"])


def start_kafka(folder: Path) -> tuple[list[str], str]:
    """The broker's container: its own set-up program writes the configuration; then the broker
    starts on it."""
    port, host, controller = free_ports(3)
    changes = {
        "//:9092": f"//127.0.0.1:{port}",
        "//kafka:9092": f"//127.0.0.1:{port}",
        "//:29092": f"//127.0.0.1:{host}",
        "//127.0.0.1:29092": f"//127.0.0.1:{host}",
        "localhost:9093": f"localhost:{controller}",
        "/var/lib/kafka/data": str(folder / "data"),
    }
    text = (DOCKER / "kafka" / "server.properties").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    mounted, default, final = (folder / name for name in ("mounted", "default", "final"))
    for path in (mounted, default, final):
        path.mkdir(parents=True)
    (mounted / "server.properties").write_text(text)
    for name in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
        (default / name).write_text("" if name.endswith("yaml") else "process.roles=broker\n")
    java = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", f"{JARS}/*"]
    setup = ["kafka.docker.KafkaDockerWrapper", "setup", "--default-configs-dir", str(default)]
    setup += ["--mounted-configs-dir", str(mounted), "--final-configs-dir", str(final)]
    environment = {name: str(value) for name, value in SERVICES["kafka"]["environment"].items()}
    subprocess.run(
        [*java, *setup], check=True, env={"PATH": "/usr/bin:/bin", **environment}, cwd=folder
    )
    heap = environment["KAFKA_HEAP_OPTS"].split()
    return [
        "java",
        *heap,
        *java[1:2],
        *java[3:],
        "kafka.Kafka",
        str(final / "server.properties"),
    ], f"127.0.0.1:{port}"


class _Recorded(http.server.SimpleHTTPRequestHandler):
    """Answers /metrics as a process of Flink once did: recorded, because none is started here
    (docker/README.md)."""

    extensions_map = {"": "text/plain; version=0.0.4"}  # noqa: RUF012 - as the base class has it

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def serve_recorded(things: ExitStack, folder: Path, name: str) -> str:
    folder.mkdir()
    shutil.copy(RECORDED / f"{name}.prom", folder / "metrics")
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_Recorded, directory=str(folder))
    )
    things.callback(server.server_close)
    things.callback(server.shutdown)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return f"127.0.0.1:{server.server_address[1]}"


def start_carrying(things: ExitStack, folder: Path, address: str) -> str:
    """Start rounds that carry a narrow window on, with samples and topics of their own; give their
    metrics.

    Other than in compose.yaml are the estimator and what `CARRYING` has.
    """
    own = {"kafka:9092/": f"{address}/carried-"}
    subprocess.run(command_of("topics", [], own), check=True, capture_output=True, cwd=folder)
    producer = command_of(
        "producer", [], {**own, "--agents=100": "--agents=1000", "--rate=200": "--rate=1000"}
    )
    things.enter_context(Program(folder, "carried-producer", producer))
    metrics, private = (f"127.0.0.1:{port}" for port in free_ports(2))
    places = {
        "0.0.0.0:9464": metrics,
        "0.0.0.0:9465": private,
        "/var/lib/meanstream": str(folder / "carried"),
    }
    words = [
        *command_of("rounds", IMAGE_ENTRYPOINT, {**own, **places, **CARRYING}),
        "--estimator=repeating",
    ]
    things.enter_context(Program(folder / "carried", "carried", words))
    return metrics


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Kafka, topic, producer, both engines and Prometheus, in the order that compose.yaml says."""
    need(kafka.missing() or missing_prometheus() or missing_alertmanager())
    folder = tmp_path
    with ExitStack() as things:
        words, address = start_kafka(folder / "kafka")
        programs = {"kafka": things.enter_context(Program(folder / "kafka", "kafka", words))}
        programs["kafka"].until(lambda: healthy("kafka", {"/9092": f"/{address.split(':')[1]}"}))
        topics = command_of("topics", [], {"kafka:9092": address})
        subprocess.run(topics, check=True, capture_output=True, cwd=folder)

        producer = command_of("producer", [], {"kafka:9092": address, "--rate=200": "--rate=2000"})
        programs["producer"] = things.enter_context(Program(folder, "producer", producer))
        metrics, private = {}, {}
        for name, faster in ENGINES.items():
            metrics[name] = f"127.0.0.1:{free_ports(1)[0]}"
            places = {
                "kafka:9092": address,
                "0.0.0.0:9464": metrics[name],
                "/var/lib/meanstream": str(folder / name),
            }
            if name in PRIVATE:
                private[name] = f"127.0.0.1:{free_ports(1)[0]}"
                places["0.0.0.0:9465"] = private[name]
            words = command_of(name, IMAGE_ENTRYPOINT, {**places, **faster})
            programs[name] = things.enter_context(Program(folder / name, name, words))
        carrying = start_carrying(things, folder, address)
        targets = {f"{name}:9464": address for name, address in metrics.items()}
        targets |= {f"{name}:9465": address for name, address in private.items()}
        for name in ("jobmanager", "taskmanager"):
            targets[f"flink-{name}:9249"] = serve_recorded(things, folder / name, f"flink_{name}")
        manager = f"127.0.0.1:{free_ports(1)[0]}"
        places = {
            "/etc/alertmanager": str(DOCKER / "alertmanager"),
            "=/alertmanager": f"={folder / 'manager'}",
        }
        words = command_of("alertmanager", [ALERTMANAGER], {**places, "=:9093": f"={manager}"})
        programs["alertmanager"] = things.enter_context(Program(folder, "alertmanager", words))
        programs["alertmanager"].until(lambda: healthy("alertmanager", {"127.0.0.1:9093": manager}))
        prometheus = things.enter_context(
            ComposedPrometheus(folder / "prometheus", targets, manager, [carrying])
        )
        yield Stack(folder, address, programs, metrics, prometheus)


def health_checks_tell_a_program_that_serves_from_one_that_does_not(stack: Stack) -> None:
    probe = [HERE["python"], HERE["/opt/meanstream/probe.py"]]
    for name, address in stack.metrics.items():
        stack.programs[name].until(
            lambda a=address: (
                subprocess.run([*probe, f"http://{a}/readyz"], check=False).returncode == 0
            )
        )
        assert subprocess.run([*probe, f"http://{address}/healthz"], check=False).returncode == 0
        assert subprocess.run([*probe, f"http://{address}/nothing"], check=False).returncode == 1
    nobody = free_ports(1)[0]
    assert (
        subprocess.run([*probe, f"http://127.0.0.1:{nobody}/healthz"], check=False).returncode == 1
    )
    port = stack.prometheus.url.rpartition(":")[2]
    assert healthy("prometheus", {":9090": f":{port}"})
    assert not healthy("prometheus", {":9090": f":{nobody}"})
    assert not healthy("kafka", {"/9092": f"/{nobody}"})
    assert not healthy("alertmanager", {":9093": f":{nobody}"})


WITHOUT_COVARIATES = "meanstream_covariates_explained_ratio"
"""A metric that is there where covariates are declared: not here."""


def queries() -> dict[str, list[str]]:
    """Every query of every panel, with the variables that Grafana would fill in; and the queries of
    the variables."""
    found: dict[str, list[str]] = {}
    for board in BOARDS.values():
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                text = target["expr"].replace("$__rate_interval", "5s").replace("$instance", ".*")
                assert "$" not in text
                if WITHOUT_COVARIATES in text:
                    continue
                found.setdefault(text, []).append(f"{board['title']}, {panel['title']}")
        (instance,) = [v for v in board["templating"]["list"] if v["name"] == "instance"]
        match = re.fullmatch(r"label_values\((.+), instance\)", instance["query"]["query"])
        assert match is not None
        found.setdefault(match[1], []).append(f"{board['title']}, variable")
    return found


def every_panel_shows_data_of_the_running_programs(stack: Stack) -> None:
    left = queries()
    assert len(left) > 50

    def shown() -> bool:
        for query in [query for query in left if stack.prometheus.finite(query)]:
            del left[query]
        return not left

    wait_until(shown, QUERY_SECONDS, every=1.0, why=lambda: f"no data, ever: {left}")
    assert not stack.prometheus.finite("meanstream_released_half_width_medain")
    assert not stack.prometheus.finite("0 / 0 * up")


def nothing_is_wrong(stack: Stack) -> None:
    """Of the shipped rules at most those about budgets fire; all of them can be evaluated."""
    firing = {series["metric"]["alertname"] for series in stack.prometheus.query(annotation(".*"))}
    assert firing <= {"MeanstreamBudgetNearlySpent", "MeanstreamAgentBudgetNearlySpent"}
    assert [
        rule["name"] for rule in stack.prometheus.rules() if rule["health"] not in ("ok", "unknown")
    ] == []


def an_engine_that_ended_is_an_annotation(stack: Stack) -> None:
    """Of its own instance and of no other; pending, since the alert waits for a minute."""

    def shown(instance: str) -> set[str]:
        query = annotation(instance).replace('alertstate="firing"', 'alertstate="pending"')
        return {series["metric"]["alertname"] for series in stack.prometheus.query(query)}

    stack.programs["kafka"].until(
        lambda: "MeanstreamDown" in shown(re.escape(stack.metrics["engine"]))
    )
    assert "MeanstreamDown" in shown(".*")
    assert "MeanstreamDown" not in shown("another:9464")


def annotation(instance: str) -> str:
    query: str = BOARDS["pipeline"]["annotations"]["list"][0]["target"]["expr"]
    return query.replace("$instance", instance.replace("\\", "\\\\"))


def each_program_ends_on_sigterm_with_code_0_and_its_answers_are_on_the_topics(
    stack: Stack,
) -> None:
    for name in ("producer", "engine", "rounds"):
        assert stack.programs[name].stop() == 0, stack.programs[name].log[-2000:]
    topics = {
        "samples": 1000,
        "releases": 100,
        "estimates": 100,
        "population": 1,
        "reports": 100,
        "means": 1,
    }
    assert {
        topic: count(stack.kafka, topic, least) >= least for topic, least in topics.items()
    } == dict.fromkeys(topics, True)


def count(address: str, topic: str, enough: int) -> int:
    """Count committed records, at least so many."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "test", "enable.auto.commit": False}
    )
    partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    number, end = 0, time.monotonic() + 20
    while number < enough and time.monotonic() < end:
        number += sum(message.error() is None for message in consumer.consume(500, 0.5))
    consumer.close()
    return number


def test_the_programs_of_compose_work_together(stack: Stack) -> None:
    """One test, since all of them are started for it."""
    health_checks_tell_a_program_that_serves_from_one_that_does_not(stack)
    every_panel_shows_data_of_the_running_programs(stack)
    nothing_is_wrong(stack)
    each_program_ends_on_sigterm_with_code_0_and_its_answers_are_on_the_topics(stack)
    an_engine_that_ended_is_an_annotation(stack)
    assert stack.programs["kafka"].stop() in (0, 143)


def test_a_pool_of_workers_runs_the_stages_of_a_pipeline(tmp_path: Path) -> None:
    """The container beside Flink's task manager, here for Beam's own runner."""
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.transforms.environments import ExternalEnvironment

    port = free_ports(1)[0]
    words = command_of("beam-worker", [], {"50000": str(port)})
    path = f"{Path(HERE['python']).parent}:/usr/bin:/bin"
    with Program(tmp_path, "pool", words, PATH=path) as pool:
        pool.until(lambda: healthy("beam-worker", {"50000": str(port)}))
        runner = FnApiRunner(default_environment=ExternalEnvironment(f"127.0.0.1:{port}"))
        with beam.Pipeline(runner=runner) as pipeline:
            place = str(tmp_path / "sums")
            numbers = pipeline | beam.Create([1, 2, 3, 4]) | beam.CombineGlobally(sum)
            numbers | beam.Map(_with_process) | beam.io.WriteToText(place, shard_name_template="")
        total, process = (tmp_path / "sums").read_text().split()
        assert int(total) == 10
        assert int(process) != os.getpid(), "the pool was not asked"
        pool.stop()
    assert not healthy("beam-worker", {"50000": str(port)})


def _with_process(total: int) -> str:
    import os

    return f"{total} {os.getpid()}"
