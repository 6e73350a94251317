"""Metrics: what they count, that they show nothing but public figures, and the server and probes around them."""

from __future__ import annotations

import ast
import http.client
import re
import socket
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from operators.agents import AgentsSettings
from operators.collaboration import answers_from_releases, make_collaboration
from operators.pooled_variance import release_variance
from operators.records import Floats, ReleaseColumns
from streaming import personal
from streaming.deployment import open_deployment
from streaming.engine import Engine
from streaming.health import EngineHealth
from streaming.metrics import REASONS, Metrics
from streaming.metrics_server import MetricsServer
from streaming.options import EngineOptions
from streaming.sinks.group import Sinks
from streaming.sinks.sink import Trust
from streaming.stats import EngineStats
from streaming.testing import MemorySink, ScriptedSample, ScriptedSource, SettableClock
from streaming.variance import ReleaseVariance

LOWER, UPPER = 0.0, 10.0
SETTINGS = AgentsSettings(
    lower=LOWER, upper=UPPER, epsilon=5, delta=1e-6, counter="pm1", schedule="geometric:2,1.5", horizon=5
)
OPTIONS = EngineOptions(batch_size=10, refresh=10.0, final_release=False)
TIMINGS = re.compile(rb"meanstream_(commit|batch)_seconds_")
SAMPLES = [(f"agent {i % 12}", float((i % 3) * 3 + (i * 7 % 11) / 11), float(i)) for i in range(180)]


@dataclass
class Life:
    """One engine over one script; what its metrics said after each turn."""

    folder: Path
    settings: AgentsSettings = SETTINGS
    options: EngineOptions = OPTIONS
    metrics_type: type[Metrics] = Metrics
    pages: list[bytes] = field(default_factory=list)

    def run(self, samples: Sequence[ScriptedSample], ids: Sequence[int] | None = None) -> Life:
        store = self.folder / "s.db"
        environment = {"MEANSTREAM_SECRET": "a secret of more than sixteen bytes"}
        deployment = open_deployment(store, self.settings, environment=environment)
        clock = SettableClock(1000.0)
        health = EngineHealth(now=clock.now)
        self.metrics = self.metrics_type(settings=self.settings, health=health, store=store, clock=clock)
        self.releases, self.estimates = MemorySink(trust=Trust.PUBLIC), MemorySink(trust=Trust.PRIVATE)
        engine = Engine(
            source=ScriptedSource(samples, ids=ids),
            settings=self.settings,
            noise=deployment.noise,
            store=deployment.store,
            sinks=Sinks(releases=self.releases, estimates=self.estimates),
            options=self.options,
            clock=clock,
            on_turn=self._observe,
            health=health,
        )
        self.stats = engine.run()
        deployment.store.close()
        return self

    def _observe(self, stats: EngineStats) -> None:
        self.metrics.observe(stats)
        self.pages.append(self.metrics.exposition())

    @property
    def figures(self) -> dict[str, float]:
        """The last page, by name and labels."""
        lines = [line for line in self.pages[-1].decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    @property
    def untimed(self) -> list[bytes]:
        """Each page without what depends on the speed of the machine."""
        return [b"\n".join(row for row in page.split(b"\n") if not TIMINGS.match(row)) for page in self.pages]


@pytest.fixture
def new_life(tmp_path: Path) -> Callable[..., Life]:
    def make(**changes: Any) -> Life:
        folder = tmp_path / f"life {sum(1 for _ in tmp_path.iterdir())}"
        folder.mkdir()
        return Life(folder, **changes)

    return make


def bucket(name: str, bound: float) -> str:
    return f'meanstream_{name}_bucket{{le="{bound}"}}'


def test_what_is_counted(new_life: Callable[..., Life]) -> None:
    late = [("agent 1", 1.0, 5.0), ("agent 2", 1.0, 6.0)]
    again = [("agent 3", 5.0, 179.0)]
    ids = [*range(1, 183), 180]
    life = new_life().run([*SAMPLES, *late, *again], ids)
    figures = life.figures
    assert figures["meanstream_events_total"] == 183
    rejected = {reason: figures[f'meanstream_rejects_total{{reason="{reason}"}}'] for reason in REASONS}
    assert {reason: n for reason, n in rejected.items() if n} == {"late": 2, "duplicate": 1}
    assert figures["meanstream_releases_total"] == len(life.releases.lines) > 0
    assert figures["meanstream_ledger_rows"] == len(life.releases.lines)
    assert figures["meanstream_ledger_bytes"] == sum(map(len, life.releases.lines))
    assert figures["meanstream_estimates_total"] == len(life.estimates.lines) > 0
    assert figures["meanstream_refusals_total"] == 0
    assert figures["meanstream_agents"] == 12
    assert figures["meanstream_ready"] == 1
    assert figures["meanstream_checkpoint_age_seconds"] == 0
    assert figures["meanstream_watermark_lag_seconds"] == pytest.approx(1000 - 179)
    assert figures["meanstream_commit_seconds_count"] == figures["meanstream_batch_seconds_count"] == life.stats.commits
    assert "meanstream_input_lag_events" not in figures  # the script does not tell


def test_budgets_are_those_of_the_releases(new_life: Callable[..., Life]) -> None:
    few = [sample for sample in SAMPLES if sample[0] not in {"agent 0", "agent 1"} or sample[2] < 30]
    life = new_life().run([*few, ("newcomer", 1.0, 200.0)])
    made = Counter(msgspec.json.decode(line)["agent"] for line in life.releases.lines)
    spent = np.array([made[name] for name in {*(sample[0] for sample in few), "newcomer"}]) / SETTINGS.horizon
    assert len(set(spent.tolist())) >= 3
    figures = life.figures
    for bound in np.arange(11) / 10:
        assert figures[bucket("budget_spent_ratio", bound)] == np.count_nonzero(spent <= bound + 1e-9)
    assert figures["meanstream_budget_spent_ratio_gcount"] == len(spent)
    assert figures["meanstream_budget_spent_ratio_gsum"] == pytest.approx(spent.sum())
    assert figures["meanstream_budget_spent_ratio_max"] == spent.max() == 1
    assert figures["meanstream_agents_exhausted"] == np.count_nonzero(spent == 1)


def released(lines: Sequence[bytes], settings: AgentsSettings) -> tuple[ReleaseColumns, float]:
    """Read the newest release of each agent, and the pooled variance of a sample, off what was published."""
    events = [msgspec.json.decode(line) for line in lines]
    number = {name: i for i, name in enumerate(dict.fromkeys(event["agent"] for event in events))}

    def columns(rows: list[dict[str, Any]]) -> ReleaseColumns:
        return ReleaseColumns(
            agent=np.array([number[row["agent"]] for row in rows]),
            index=np.array([row["index"] for row in rows]),
            count=np.array([row["n"] for row in rows]),
            total=np.array([row["total"] for row in rows]),
            mean=np.array([row["mean"] for row in rows]),
            noise_variance=np.array([row["noise_variance"] for row in rows]),
        )

    variance = ReleaseVariance(settings)
    for event in events:
        variance.observe(columns([event]))
    return columns(list({event["agent"]: event for event in events}.values())), variance.variance


@pytest.mark.parametrize("method", ["learned_prior", "tests", "none"])
def test_anybody_can_compute_the_precision_from_the_releases(method: str, new_life: Callable[..., Life]) -> None:
    """The shown half-widths and class sizes follow from the published file alone, hence hold nothing else."""
    life = new_life(options=replace(OPTIONS, collaboration=method)).run(SAMPLES)
    latest, pool = released(life.releases.lines, SETTINGS)
    variance = release_variance(latest, pool)
    fitted = make_collaboration(method, lower=LOWER, upper=UPPER).fit(latest, variance)
    answer = answers_from_releases(fitted, latest, variance, level=OPTIONS.level)
    half_width: Floats = (np.clip(answer.upper, LOWER, UPPER) - np.clip(answer.lower, LOWER, UPPER)) / 2
    figures = life.figures
    assert figures["meanstream_estimate_half_width_median"] == pytest.approx(np.median(half_width))
    assert figures["meanstream_effective_class_size_median"] == pytest.approx(np.median(answer.effective_class_size))
    for bound in (0.625, 1.25, 2.5):
        assert figures[bucket("estimate_half_width", bound)] == np.count_nonzero(half_width <= bound)
    for bound in (1.0, 1.5, 2.0):
        expected = np.count_nonzero(answer.effective_class_size <= bound * (1 + 1e-12))
        assert figures[bucket("effective_class_size", bound)] == expected
    assert figures["meanstream_estimate_half_width_gcount"] == len(latest) == 12
    description = fitted.describe()
    assert figures["meanstream_prior_components"] == description["n_components"]
    assert figures.get("meanstream_prior_spread") == description.get("spread")
    assert ("meanstream_prior_spread" in figures) == (method == "learned_prior")


def test_of_many_agents_some_are_looked_at(new_life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(personal, "MOST_SHOWN", 5)
    figures = new_life().run(SAMPLES).figures
    assert figures["meanstream_estimate_half_width_gcount"] == 5
    assert figures["meanstream_budget_spent_ratio_gcount"] == 12


# -- privacy -------------------------------------------------------------------------------------------------------


def changed(index: int, value: float) -> list[ScriptedSample]:
    agent, _, time = SAMPLES[index]
    return [*SAMPLES[:index], (agent, value, time), *SAMPLES[index + 1 :]]


def after_the_last_release() -> tuple[list[ScriptedSample], list[ScriptedSample]]:
    """Differ in the last sample, when no agent has a release left: estimates differ, releases do not."""
    two = {"agent 10", "agent 11"}  # few, so that one value moves the median
    return [s for s in changed(179, 0.5) if s[0] in two], [s for s in changed(179, 9.5) if s[0] in two]


def beyond_the_bound() -> tuple[list[ScriptedSample], list[ScriptedSample]]:
    """Differ in a value on the bound or beyond it: all sums are the same, but one more value is clipped."""
    return changed(20, UPPER), changed(20, UPPER + 5)


class ShowsClipped(Metrics):
    """A known-bad twin: exports how many values were clipped."""

    def observe(self, stats: EngineStats) -> None:
        super().observe(stats)
        self.clipped = stats.clipped

    def exposition(self) -> bytes:
        return super().exposition() + b"meanstream_clipped_total %d\n" % self.clipped


class ShowsOwnWidths(Metrics):
    """A known-bad twin: exports the half-width of the personal estimates."""

    def observe(self, stats: EngineStats) -> None:
        super().observe(stats)
        self.width = stats.median_half_width

    def exposition(self) -> bytes:
        return super().exposition() + f"meanstream_own_half_width {self.width}\n".encode()


@pytest.mark.parametrize("pair", [after_the_last_release, beyond_the_bound])
@pytest.mark.parametrize("metrics_type", [Metrics, ShowsClipped, ShowsOwnWidths])
def test_streams_with_the_same_releases_have_the_same_metrics(
    pair: Callable[[], tuple[list[ScriptedSample], list[ScriptedSample]]],
    metrics_type: type[Metrics],
    new_life: Callable[..., Life],
) -> None:
    one, two = (new_life(metrics_type=metrics_type).run(samples) for samples in pair())
    assert one.releases.lines == two.releases.lines
    assert len(one.pages) == len(two.pages) >= 5
    leaks = (metrics_type, pair) in {(ShowsClipped, beyond_the_bound), (ShowsOwnWidths, after_the_last_release)}
    assert (one.untimed == two.untimed) != leaks


def test_before_the_first_release_no_value_shows(new_life: Callable[..., Life]) -> None:
    settings = replace(SETTINGS, schedule="geometric:100,2")
    mirrored = [(agent, UPPER - value, time) for agent, value, time in SAMPLES]
    one, two = (new_life(settings=settings).run(samples) for samples in (SAMPLES, mirrored))
    assert one.estimates.lines != two.estimates.lines
    assert one.untimed == two.untimed


def test_other_releases_show(new_life: Callable[..., Life]) -> None:
    """The comparison sees a difference where there is one."""
    mirrored = [(agent, UPPER - value, time) for agent, value, time in SAMPLES]
    one, two = (new_life().run(samples) for samples in (SAMPLES, mirrored))
    assert one.untimed != two.untimed


def test_no_metric_has_an_agent_or_a_label_beyond_the_known(new_life: Callable[..., Life]) -> None:
    life = new_life().run(SAMPLES)
    text = life.pages[-1].decode()
    assert "agent 1" not in text
    assert set(re.findall(r"[{,](\w+)=", text)) == {"le", "python", "reason", "version"}


def test_one_file_imports_the_client() -> None:
    root = Path(__file__).parents[2]
    importing = []
    for package in ("operators", "streaming", "pipelines"):
        for path in (root / package).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
            names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
            if any(name.partition(".")[0] == "prometheus_client" for name in names):
                importing.append(path.name)
    assert importing == ["metrics.py"]


# -- serving -------------------------------------------------------------------------------------------------------


def metrics_of(health: EngineHealth) -> Metrics:
    return Metrics(settings=SETTINGS, health=health)


def ask(url: str, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_metrics_before_the_first_turn() -> None:
    health = EngineHealth()
    with MetricsServer("127.0.0.1:0", metrics_of(health), health) as server:
        status, text = ask(server.url, "/metrics")
    assert status == 200
    assert "meanstream_events_total 0.0" in text
    assert text.count("meanstream_rejects_total{") == len(REASONS)
    assert "meanstream_ready 0.0" in text
    for absent in (
        "ledger_rows",
        "watermark_lag_seconds",
        "checkpoint_age_seconds",
        "prior_spread",
        "input_lag_events",
    ):
        assert f"\nmeanstream_{absent} " not in text


def test_prometheus_gets_the_format_it_asks_for() -> None:
    health = EngineHealth()
    with MetricsServer("127.0.0.1:0", metrics_of(health), health) as server:
        request = urllib.request.Request(  # noqa: S310 - our own
            f"{server.url}/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            text = answer.read().decode()
    assert text.endswith("# EOF\n")
    assert "# TYPE meanstream_budget_spent_ratio gaugehistogram" in text


def test_paths_and_methods() -> None:
    health = EngineHealth()
    with MetricsServer("127.0.0.1:0", metrics_of(health), health) as server:
        assert ask(server.url, "/healthz") == (200, "ok\n")
        assert ask(server.url, "/metrics", "HEAD") == (200, "")
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert ask(server.url, "/metrics", method)[0] == 405
        assert ask(server.url, "/")[0] == ask(server.url, "/metrics/agents")[0] == 404
        url = server.url
    with pytest.raises(ConnectionRefusedError):
        ask(url, "/healthz")


def test_a_fault_is_an_answer_and_not_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    health = EngineHealth()
    metrics = metrics_of(health)
    health.watch("source", lambda: 1 / 0 > 1)
    health.started()
    with MetricsServer("127.0.0.1:0", metrics, health) as server:
        assert ask(server.url, "/readyz") == (500, "ZeroDivisionError\n")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "address",
    ["9464", "localhost", "127.0.0.1:", ":9464", "127.0.0.1:http", "127.0.0.1:70000", "::1:9464", "a b:1", ""],
)
def test_a_bad_address_is_one_line(address: str) -> None:
    health = EngineHealth()
    with pytest.raises(ValueError, match=r"^metrics must be HOST:PORT, such as 127\.0\.0\.1:9464, got ") as refused:
        MetricsServer(address, metrics_of(health), health)
    assert str(refused.value).endswith(repr(address))


def test_a_port_in_use_is_one_line() -> None:
    health = EngineHealth()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ValueError, match=r"^metrics must be an address that is free, got '127.*\(Address already"):
            MetricsServer(address, metrics_of(health), health)


def test_a_client_that_says_nothing_delays_nobody(new_life: Callable[..., Life]) -> None:
    health = EngineHealth()
    server = MetricsServer("127.0.0.1:0", metrics_of(health), health)
    with server, socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))):
        assert ask(server.url, "/healthz")[0] == 200


def test_scrapes_while_the_engine_works_see_whole_turns(new_life: Callable[..., Life]) -> None:
    """Every page belongs to the end of one turn: as many events as batches of 10 hold, all of them accounted for."""
    life = new_life(options=replace(OPTIONS, collaboration="none"))
    seen: list[dict[str, float]] = []
    done = threading.Event()

    def scrape() -> None:
        while not done.is_set():
            if hasattr(life, "metrics"):
                text = life.metrics.exposition().decode()
                rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
                seen.append({name: float(value) for name, value in rows})

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        life.run([(f"agent {i % 7}", 1.0, float(i)) for i in range(1000)])
    finally:
        done.set()
        thread.join()
    events = [page["meanstream_events_total"] for page in seen]
    assert events == sorted(events)
    assert len(set(events)) > 3
    assert all(n % 10 == 0 for n in events)
    for page in seen:
        agents = page.get("meanstream_budget_spent_ratio_gcount", 0.0)
        assert agents == page.get("meanstream_agents", 0.0)  # before the first turn there is nothing to show


# -- health --------------------------------------------------------------------------------------------------------


def test_ready_after_the_start_until_a_delivery_is_stuck_or_a_connection_is_down() -> None:
    clock = SettableClock(0.0)
    health = EngineHealth(silent_seconds=100, stuck_seconds=30, now=clock.now)
    assert health.not_ready() == "state is being restored"
    assert health.not_alive() is None
    assert health.checkpoint_age is None
    health.started()
    assert health.not_ready() is None
    clock.set(10)
    health.delivering()
    clock.set(40)
    health.delivering()  # tried again
    assert health.not_ready() is None
    clock.set(41)
    assert health.not_ready() == "delivery has not succeeded for 31 s"
    assert health.not_alive() is None
    assert health.checkpoint_age == 41
    health.delivered()
    health.turned()
    assert health.not_ready() is None
    assert health.checkpoint_age == 0
    down = [True]
    health.watch("source", lambda: down[0])
    assert health.not_ready() == "source cannot be reached"
    down[0] = False
    assert health.not_ready() is None
    health.stopping()
    assert health.not_ready() == "stopping"


def test_not_alive_without_a_sign_of_life() -> None:
    clock = SettableClock(0.0)
    health = EngineHealth(silent_seconds=100, now=clock.now)
    health.started()
    clock.set(100)
    assert health.not_alive() is None
    clock.set(101)
    assert health.not_alive() == health.not_ready() == "no sign of life for 101 s"
    with MetricsServer("127.0.0.1:0", metrics_of(health), health) as server:
        assert ask(server.url, "/healthz") == (503, "no sign of life for 101 s\n")
        assert ask(server.url, "/readyz")[0] == 503
        health.delivering()
        assert ask(server.url, "/healthz") == (200, "ok\n")


def test_the_engine_reports_its_start_turns_and_end(new_life: Callable[..., Life]) -> None:
    ready: list[bool] = []

    class Watched(Metrics):
        def observe(self, stats: EngineStats) -> None:
            super().observe(stats)
            ready.append(self._health.not_ready() is None)

    life = new_life(metrics_type=Watched).run(SAMPLES)
    assert ready == [True] * len(life.pages)
    assert life.metrics._health.not_ready() == "stopping"
    assert b"meanstream_events_total 0.0" in life.pages[0]  # before the first batch
