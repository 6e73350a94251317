"""An outage of Kafka as probes, Prometheus, its alert and the page see it: at once, with the
reason, and its end."""

from __future__ import annotations

import http.cookiejar
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.pipelines.command_line import meanstream
from tests.servers.conftest import need
from tests.servers.support import broker as kafka
from tests.servers.support.alertmanager import Alertmanager
from tests.servers.support.alertmanager import missing as no_alertmanager
from tests.servers.support.broker import free_ports
from tests.servers.support.programs import Command
from tests.servers.support.prometheus import Prometheus
from tests.servers.support.prometheus import missing as no_prometheus
from tests.servers.support.wait_until import wait_until

SECRET = "7c1e94b05fa3d2681be60c9d37f25a84"  # noqa: S105 - of tests only
BUDGETS = {
    "agents": (
        "--delta",
        "1e-6",
        "--schedule",
        "geometric:2,2",
        "--lateness",
        "0s",
        "--refresh",
        "1s",
    ),
    "rounds": ("--window", "1h"),
}


ALERT = "MeanstreamNotReady"


class Engine(Command):
    """An engine between two clusters, with metrics and a page."""

    def __init__(self, folder: Path, name: str, kind: str, source: str, output: str) -> None:
        self.metrics = f"127.0.0.1:{free_ports(1)[0]}"
        bounds = ("--lower", "0", "--upper", "1", "--epsilon", "1", *BUDGETS[kind])
        users = ("--user", "agent") if kind == "rounds" else ()
        sinks = {
            "releases" if kind == "agents" else "reports": output,
            "sink": f"{output}-estimates",
        }
        words = [
            word for role, place in sinks.items() for word in (f"--{role}", f"{place}?create=1")
        ]
        places = ("--source", source, "--store", str(folder / f"{name}.db"), *words)
        served = ("--metrics", self.metrics, "--page", "127.0.0.1:0", "--log-format", "json")
        super().__init__(
            folder, name, ["run", kind, *users, *bounds, *places, *served], MEANSTREAM_SECRET=SECRET
        )

    def ready(self) -> str:
        """What /readyz says: ok, or why it is not."""
        try:
            with urllib.request.urlopen(f"http://{self.metrics}/readyz", timeout=5) as answer:
                return str(answer.read().decode()).strip()
        except urllib.error.HTTPError as error:
            return str(error.read().decode()).strip()
        except OSError:
            return "no answer"

    def connected(self) -> dict[str, float]:
        """The metric of each client."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        found = re.findall(
            r'^meanstream_kafka_connected\{client="(\w+)"\} (\S+)$', text, re.MULTILINE
        )
        return {client: float(value) for client, value in found}

    def on_page(self) -> str | None:
        """The problem that the page shows."""
        place = re.search(r'"token_in": ?"([^"]+\.page)"', self.log)
        assert place is not None
        url = Path(place[1]).read_text().strip()
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        opener = urllib.request.build_opener(jar)
        opener.open(url, timeout=5).close()
        with opener.open(f"{url.partition('?')[0]}data", timeout=5) as answer:
            problem: str | None = json.load(answer)["problem"]
        return problem


class Answers(Engine):
    """The answers for a small store's agents, from everybody's releases."""

    def __init__(self, folder: Path, name: str, releases: str) -> None:
        bounds = {"--lower": "0", "--upper": "1", "--epsilon": "1", "--delta": "1e-6"}
        store = {
            "--source": "synthetic:2,20",
            "--store": f"{folder}/own.db",
            "--releases": f"{folder}/own.jsonl",
        }
        own = [word for option in (bounds | store).items() for word in option]
        assert (
            meanstream("run", "agent-side", *own, environment={"MEANSTREAM_SECRET": SECRET}).code
            == 0
        )
        self.metrics = f"127.0.0.1:{free_ports(1)[0]}"
        served = (
            "--metrics",
            self.metrics,
            "--page",
            "127.0.0.1:0",
            "--sink",
            f"{folder}/own-estimates.jsonl",
        )
        places = ("--releases", releases, "--store", f"{folder}/own.db", "--log-format", "json")
        Command.__init__(self, folder, name, ["run", "collaborate", *places, *served])


@pytest.fixture
def engines(
    own_broker: kafka.Broker, broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> Iterator:
    """Engines that read from the broker that will die, or write to it, each by what it calls the
    topic there."""
    samples = f"kafka://{broker_address}/{new_topic()}"
    for topic in ("samples", "everybodys"):
        _make_topic(own_broker.address, topic)
    mortal = f"kafka://{own_broker.address}"
    with ExitStack() as running:
        made = {
            "source": Engine(
                tmp_path, "reads", "agents", f"{mortal}/samples", f"{samples}-releases"
            ),
            "releases": Engine(
                tmp_path, "writes", "agents", f"{samples}?group=a", f"{mortal}/releases"
            ),
            "reports": Engine(
                tmp_path, "rounds", "rounds", f"{samples}?group=b", f"{mortal}/reports"
            ),
            "answers": Answers(tmp_path, "answers", f"{mortal}/everybodys"),
        }
        for engine in made.values():
            running.enter_context(engine)
        _produce(broker_address, samples.rpartition("/")[2])
        _produce(own_broker.address, "samples")
        for engine in made.values():
            engine.until(lambda engine=engine: engine.ready() == "ok")
        yield made


def test_an_outage_is_told_everywhere_with_its_reason_and_so_is_its_end(
    engines: dict[str, Engine], own_broker: kafka.Broker, tmp_path: Path
) -> None:
    need(no_prometheus() or no_alertmanager())
    targets = [engine.metrics for engine in engines.values()]
    with (
        Alertmanager(tmp_path / "alertmanager") as alertmanager,
        Prometheus(
            tmp_path / "prometheus", *targets, alertmanager=alertmanager.address, hurried=ALERT
        ) as prometheus,
    ):
        wait_until(lambda: len(prometheus.query("meanstream_ready == 1")) == len(engines))
        own_broker.kill()
        for name, engine in engines.items():
            option = "releases" if name == "answers" else name
            expected = f"{option} cannot be reached: {own_broker.address} ("
            wait_until(
                lambda e=engine, x=expected: e.ready().startswith(x),
                why=lambda e=engine: e.ready() + e.log,
            )
            states = engine.connected()
            assert states[option] == 0
            elsewhere = {"source": "sink", "answers": None}.get(name, "source")
            assert states.get(elsewhere, 1) == 1
            assert str(engine.on_page()).startswith(expected)
        wait_until(lambda: len(prometheus.query("meanstream_ready == 0")) == len(engines))
        alert = f'ALERTS{{alertname="{ALERT}"}}'
        wait_until(lambda: len(prometheus.query(alert)) == len(engines))
        told = alertmanager.wait_for(ALERT, "firing")
        assert told["labels"]["instance"] in targets
        assert told["labels"]["severity"] == "critical"
        assert told["annotations"]["runbook_url"] == "docs/runbook.md#meanstreamnotready"
        own_broker.start()
        for name, engine in engines.items():
            engine.until(lambda e=engine: e.ready() == "ok")
            assert set(engine.connected().values()) == {1}, name
            assert engine.on_page() is None
        wait_until(lambda: len(prometheus.query("meanstream_ready == 1")) == len(engines))
        wait_until(lambda: not prometheus.query(alert))
        alertmanager.wait_for(ALERT, "resolved")
        assert {one["labels"]["alertname"] for one in alertmanager.told} == {ALERT}


def _make_topic(address: str, name: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def _produce(address: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    for i in range(60):
        value = {"agent": f"a{i % 3}", "value": i % 2, "time": 1_700_000_000 + i}
        producer.produce(topic, json.dumps(value))
    assert producer.flush(30) == 0
