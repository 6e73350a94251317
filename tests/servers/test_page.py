"""The live page of a running engine, in a real browser, and who is refused."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.commands.report.report_charts import budget_chart, stages_chart
from meanstream.pipelines.commands.report.report_parts import (
    ReportPage,
    ReportPart,
    report_parts_as_html,
)
from meanstream.pipelines.commands.run.run_page import page_run_facts
from meanstream.pipelines.page.page_figures import page_figures, page_figures_of_window
from meanstream.pipelines.page.page_server import PageServer
from meanstream.streaming.agents.agents_budget import budget_outlook
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.agents.pairwise.pairs_picture import pairs_picture
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.event_columns import Batch
from meanstream.streaming.metrics.metric_records import budget_histogram_record
from meanstream.streaming.metrics.telemetry import AgentsTelemetry, RoundsTelemetry
from meanstream.streaming.rounds.rounds_deployment import open_rounds_deployment
from meanstream.streaming.rounds.rounds_engine import RoundsEngine
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.rounds_stats import RoundsStats
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.store.deployment_store import open_deployment
from tests.pipelines.command_line import arguments, meanstream, options, write_samples
from tests.servers.conftest import need
from tests.servers.support.browser import (
    as_new,
    complaints,
    hosts_asked,
    missing,
    opened_browser,
    until,
)
from tests.streaming.metrics.test_pairs_telemetry import RELEASE, answers_of, stream_of
from tests.streaming.support.scripted_source import MemorySink, ScriptedSample, ScriptedSource

SECRET = {"MEANSTREAM_SECRET": "7c1e94b05fa3d2681be60c9d37f25a84"}
AGENTS = AgentsSettings(
    name="test", lower=0, upper=10, epsilon=5, delta=1e-6, schedule="geometric:2,1.5", horizon=12
)
FORGETTING = AgentsSettings(
    name="test", lower=0, upper=10, epsilon=1, delta=1e-6, memory="half-life:400"
)
ROUNDS = RoundsSettings(
    name="rounds",
    lower=0,
    upper=10,
    epsilon=4.0,
    window="1h",
    estimator="kent",
    options={},
    sizes="point:4",
)
NAMES = 40
HELD_SECONDS = 300.0
"""At most until a page has shown the first windows; a busy machine takes a while to open a browser."""


class SlowSource(ScriptedSource):
    """Gives a batch every fifth of a second, so that there is something to see."""

    def next_batch(self, max_samples: int) -> Batch:
        time.sleep(0.2)
        return super().next_batch(max_samples)


class HeldSource(ScriptedSource):
    """Gives its first samples at once, and the others after a page has shown those."""

    def __init__(self, script: Sequence[ScriptedSample], *, held: int) -> None:
        super().__init__(script, in_order=True)
        self.shown = threading.Event()
        self._given, self._held = 0, held

    def next_batch(self, max_samples: int) -> Batch:
        if self._given >= self._held:
            assert self.shown.wait(HELD_SECONDS)
        self._given += max_samples
        return super().next_batch(max_samples)


def samples(n: int) -> list[tuple[str, float, float]]:
    begin = 1_700_000_000.0
    good = [
        (f"agent {i % NAMES}", float((i % 2) * 5 + (i * 7 % 11) / 3), begin + 60 * i)
        for i in range(n)
    ]
    return [*good[:500], ("agent 1", 1.0, begin - 1e6), *good[500:]]  # one is far too late


def run_agents(
    folder: Path,
    telemetry: AgentsTelemetry,
    stop: threading.Event,
    source: ScriptedSource | None = None,
    *,
    batch_size: int = 100,
    given: AgentsSettings = AGENTS,
    quantiles: tuple[float, ...] = (),
) -> None:
    deployment = open_deployment(folder / "agents.db", given, environment=SECRET)
    engine = Engine(
        source=source or SlowSource(samples(20_000)),
        settings=given,
        noise=deployment.noise,
        store=deployment.store,
        sinks=Sinks(estimates=MemorySink(trust=Trust.PRIVATE)),
        options=EngineOptions(batch_size=batch_size, refresh=0.0, quantiles=quantiles),
        on_turn=telemetry.observe,
    )
    engine.history = telemetry
    telemetry.about = page_run_facts(AGENTS, source="delays.csv") | {
        "lateness": "0s",
        "why": "of a test",
    }
    engine.run(stop.is_set)
    deployment.store.close()


def run_rounds(
    folder: Path, telemetry: RoundsTelemetry, stop: threading.Event, source: ScriptedSource
) -> None:
    opened = open_rounds_deployment(folder / "rounds.db", ROUNDS, environment=SECRET)
    engine = RoundsEngine(
        source=source,
        settings=ROUNDS,
        secret=opened.secret,
        store=opened.store,
        sinks=Sinks(means=MemorySink(trust=Trust.PUBLIC)),
        options=EngineOptions(batch_size=100, collaboration="none", refresh=None),
        on_turn=telemetry.observe,
    )
    engine.run(stop.is_set)
    opened.store.close()


@contextmanager
def page(
    telemetry: Any, work: Callable[[threading.Event], None], outlook: Any = None
) -> Iterator[str]:
    """Serve the page of an engine that works in a thread of its own, as SQLite wants it; give its
    address."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    try:
        with PageServer("127.0.0.1:0", telemetry, bounds=(0.0, 10.0), outlook=outlook) as server:
            yield server.url
    finally:
        stop.set()
        thread.join(60)


@contextmanager
def agents_page(folder: Path, n_samples: int = 20_000) -> Iterator[str]:
    telemetry = AgentsTelemetry(settings=AGENTS)
    outlook = budget_outlook(AGENTS, folder / "agents.db")
    source = SlowSource(samples(n_samples))
    with page(telemetry, lambda stop: run_agents(folder, telemetry, stop, source), outlook) as url:
        yield url


@pytest.fixture(scope="session")
def one_browser() -> Iterator[Any]:
    """The browser of this worker, one for all tests."""
    need(missing())
    with opened_browser() as driver:
        yield driver


Browser = Callable[..., Any]


@pytest.fixture
def browser(one_browser: Any) -> Browser:
    """Give a browser that has seen nothing: `browser(width=400, dark=True)`."""
    return partial(as_new, one_browser)


@pytest.fixture(scope="module")
def agents_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the page of a short run: when it has ended, charts are not drawn again each second."""
    with agents_page(tmp_path_factory.mktemp("agents"), n_samples=2_000) as url:
        yield url


@pytest.fixture
def living_url(tmp_path: Path) -> Iterator[str]:
    """Give a page whose run has just begun, and goes on while a browser looks at it."""
    with agents_page(tmp_path) as url:
        yield url


@pytest.fixture(scope="module")
def rounds_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, HeldSource]]:
    """Give the page of a run of rounds, and its source, whose later windows are held back."""
    folder, telemetry = tmp_path_factory.mktemp("rounds"), RoundsTelemetry(settings=ROUNDS)
    source = HeldSource(sorted(samples(2_000), key=itemgetter(2)), held=1_000)
    with page(telemetry, lambda stop: run_rounds(folder, telemetry, stop, source)) as url:
        try:
            yield url, source
        finally:
            source.shown.set()


@pytest.fixture
def rounds_url(rounds_run: tuple[str, HeldSource]) -> str:
    return rounds_run[0]


def get(url: str, path: str, **headers: str) -> http.client.HTTPResponse:
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


TILES = (
    "return Object.fromEntries([...document.querySelectorAll('.tile b')].map((e) => "
    "[e.dataset.name, e.textContent]))"
)
"""All at once: the page makes them again each second."""


def tile(driver: Any, name: str) -> str:
    script = (
        "return document.querySelector(`#tiles b[data-name='${arguments[0]}']`)?.textContent ?? ''"
    )
    return str(driver.execute_script(script, name))


def drawn(driver: Any, chart: str) -> int:
    """Count the marks of a chart."""
    script = "return document.querySelectorAll(`#${arguments[0]} .trace, #${arguments[0]} .point`).length"
    return int(driver.execute_script(script, chart))


def without_numbers(driver: Any, before: str = "") -> list[str]:
    """Tell which charts that are drawn have a y axis with fewer than two numbers or names."""
    found: list[str] = driver.execute_script(
        before
        + """
        return [...document.querySelectorAll(".chart:not(.empty)")]
          .filter((e) => e.offsetParent && e.querySelector(".main-svg"))
          .filter((e) => e.querySelectorAll(".ytick text").length < (["rejects", "stages"].includes(e.id) ? 1 : 2))
          .map((e) => e.id);
        """
    )
    return found


def overlaps(driver: Any) -> list[list[str]]:
    """Tell which cards, or numbers of an axis, lie on each other, and which cards stand out of the
    window."""
    found: list[list[str]] = driver.execute_script(
        """
        const found = [];
        const compare = (boxes) => boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
          if (p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 1 && q.top < p.bottom - 1) {
            found.push([a, b]);
          }
        }));
        const boxed = (elements) => [...elements].map((e) => [e.id || e.textContent, e.getBoundingClientRect()]);
        const boxes = boxed([...document.querySelectorAll(".card, .tile")].filter((e) => e.offsetParent));
        compare(boxes);
        for (const chart of document.querySelectorAll(".chart")) {
          if (chart.layout && chart.layout.xaxis.type === "date") compare(boxed(chart.querySelectorAll(".xtick text")));
        }
        boxes.filter(([, p]) => p.right > innerWidth + 1).forEach(([a]) => found.push([a, "window"]));
        return found;
        """
    )
    return found


def test_the_page_of_agents_lives(living_url: str, browser: Browser) -> None:
    driver = browser()
    driver.get(living_url)
    first = until(lambda: tile(driver, "events"))
    until(lambda: tile(driver, "events") != first and tile(driver, "estimates") not in ("", "0"))
    for chart in ("convergence", "population", "budget", "flow"):
        until(lambda chart=chart: drawn(driver, chart))
    until(lambda: drawn(driver, "rejects"))  # the late one
    driver.find_element("id", "name").send_keys("agent 7\n")
    until(lambda: drawn(driver, "agent"))
    assert driver.find_element("id", "agent-text").text.startswith("agent 7: ")
    assert not driver.find_element("id", "windows-card").is_displayed()
    assert driver.find_element("id", "run").text == "test"
    line = driver.find_element("id", "about").text
    assert line.startswith(
        "from delays.csv · epsilon 5, delta 1e-6 of one sample, over at most 12 releases · lateness"
    )
    # early they may be longer
    better = until(
        lambda: re.fullmatch(r"(\d+) % shorter than alone", tile(driver, "error bars (median)"))
    )
    assert int(better[1]) >= 1
    assert re.match(r"\d+ years", tile(driver, "answers behind the clock"))
    assert until(lambda: tile(driver, "next release (event time, UTC)") not in ("", "-"))
    until(lambda: driver.find_element("id", "forecast").text.startswith("At this rate agent "))
    assert tile(driver, "first budget ends in") not in ("", "-")
    title = "return document.querySelector('#convergence .xtitle').textContent"
    assert driver.execute_script(title) == "event time (UTC)"
    driver.find_element("css selector", "#axis input[value=clock]").click()
    until(lambda: driver.execute_script(title) == "clock (UTC)")
    assert without_numbers(driver) == []
    spoil = "document.querySelectorAll('#budget .ytick').forEach((e) => e.remove());"
    assert without_numbers(driver, spoil) == ["budget"]  # it would be seen
    assert "token" not in driver.current_url
    assert driver.find_element("id", "state").text == "running"
    assert complaints(driver) == []
    assert hosts_asked(driver) == {"127.0.0.1"}


def test_the_page_of_rounds_shows_what_is_public(
    rounds_run: tuple[str, HeldSource], browser: Browser
) -> None:
    rounds_url, source = rounds_run
    driver = browser()
    driver.get(rounds_url)
    until(lambda: tile(driver, "windows answered") not in ("", "0"))
    before = until(lambda: drawn(driver, "windows"))
    until(lambda: drawn(driver, "stages"))
    source.shown.set()
    until(lambda: drawn(driver, "windows") > before)
    assert not driver.find_element("id", "agent-card").is_displayed()
    assert not driver.find_element("id", "convergence-card").is_displayed()
    assert re.fullmatch(r"[\d.]+ ± [\d.]+", tile(driver, "newest mean"))
    assert without_numbers(driver) == []
    assert complaints(driver) == []
    assert hosts_asked(driver) == {"127.0.0.1"}
    cookie = "; ".join(f"{c['name']}={c['value']}" for c in driver.get_cookies())
    assert get(rounds_url, "/agent?name=agent%201", Cookie=cookie).status == 404
    assert get(rounds_url, "/data", Cookie=cookie).status == 200


def test_means_that_go_with_counts_are_drawn(tmp_path: Path, browser: Browser) -> None:
    begin, rng = 1_700_000_000.0, np.random.default_rng(5)
    means = {f"agent {i}": (int(10 ** (1 + i / 140)), 2 + 3 * i / 200) for i in range(200)}
    rows = [
        (name, float(value))
        for name, (n, mean) in means.items()
        for value in rng.normal(mean, 1.0, n)
    ]
    source = ScriptedSource([(*row, begin + i) for i, row in enumerate(rows)])
    telemetry = AgentsTelemetry(settings=AGENTS)
    run_agents(tmp_path, telemetry, threading.Event(), source, batch_size=len(rows) // 4)
    with PageServer("127.0.0.1:0", telemetry, bounds=(0.0, 10.0)) as server:
        driver = browser()
        driver.get(server.url)
        until(lambda: drawn(driver, "counts"))
        text = driver.find_element("id", "counts-text").text
        assert re.match(
            r"Means depend on the number of samples: (9\d|100) % probable\. Each agent is", text
        ), text
        assert overlaps(driver) == []
        assert without_numbers(driver) == []
        assert complaints(driver) == []


def test_budgets_of_agents_that_query_each_other_are_drawn(browser: Browser) -> None:
    stream = stream_of(200)
    telemetry = AgentsTelemetry(settings=RELEASE)
    stats = EngineStats(pairs_picture=partial(pairs_picture, stream), answers=answers_of(stream))
    telemetry.observe(stats)
    with PageServer("127.0.0.1:0", telemetry, bounds=(0.0, 10.0)) as server:
        driver = browser()
        driver.get(server.url)
        until(lambda: drawn(driver, "budget"))
        assert not driver.find_element("id", "population-card").is_displayed()
        assert tile(driver, "releases") == "864"
        assert (
            "Each reader of an agent has a budget" in driver.find_element("id", "budget-text").text
        )
        assert (
            driver.execute_script("return document.querySelector('#budget .ytitle').textContent")
            == "pairs"
        )
        assert overlaps(driver) == []
        assert without_numbers(driver) == []
        assert complaints(driver) == []


def test_quantiles_of_one_agent_are_a_table(tmp_path: Path, browser: Browser) -> None:
    asked = replace(AGENTS, histogram_share=0.2, exceeds=(4.0,))
    telemetry = AgentsTelemetry(settings=asked)
    source = ScriptedSource(samples(1_000))
    run_agents(
        tmp_path,
        telemetry,
        threading.Event(),
        source,
        batch_size=500,
        given=asked,
        quantiles=(0.5, 0.9),
    )
    row = telemetry.history("agent 7")[-1]["shares"]
    with PageServer("127.0.0.1:0", telemetry, bounds=(0.0, 10.0)) as server:
        driver = browser()
        driver.get(server.url)
        until(lambda: drawn(driver, "convergence"))
        assert not driver.find_element("id", "agent-shares").is_displayed()
        driver.find_element("id", "name").send_keys("agent 7\n")
        until(lambda: drawn(driver, "agent"))
        lines = driver.find_element("id", "agent-shares").text.splitlines()
        assert lines[0] == "of its values estimate from to"
        assert [line.rsplit(" ", 3)[0] for line in lines[1:]] == list(row) == [
            "quantile 0.5", "quantile 0.9", "share above 4"
        ]  # fmt: skip
        shown = [[float(n) for n in line.rsplit(" ", 3)[1:]] for line in lines[1:]]
        np.testing.assert_allclose(shown, list(row.values()), rtol=0.01)
        assert overlaps(driver) == []
        assert complaints(driver) == []


def test_means_that_changed_are_marked_and_counted(tmp_path: Path, browser: Browser) -> None:
    """One of two agents moves by 2.5 after 1,500 samples; in a stream that stays there is no
    mark."""
    value, begin = np.random.default_rng(5).uniform(2, 5, (2400, 2)), 1_700_000_000.0
    marks = []
    for change in (2.5, 0.0):
        value[1500:, 0] += change
        rows = [
            (f"agent {k}", float(value[i, k]), begin + 2 * i + k)
            for i in range(len(value))
            for k in (0, 1)
        ]
        value[1500:, 0] -= change
        telemetry, folder = AgentsTelemetry(settings=FORGETTING), tmp_path / str(change)
        folder.mkdir()
        run_agents(
            folder,
            telemetry,
            threading.Event(),
            ScriptedSource(rows),
            batch_size=1600,
            given=FORGETTING,
        )
        with PageServer("127.0.0.1:0", telemetry, bounds=(0.0, 10.0)) as server:
            driver = browser()
            driver.get(server.url)
            until(lambda driver=driver: drawn(driver, "convergence"))
            names = driver.find_element("css selector", "#convergence .legend").get_attribute(
                "textContent"
            )
            marks.append(
                ("means changed" in names, tile(driver, "means that changed") not in ("", "0"))
            )
            assert complaints(driver) == []
    assert marks == [(True, True), (False, False)]


def test_what_a_page_has_shown_outlives_a_restart(tmp_path: Path) -> None:
    first, second, third = (AgentsTelemetry(settings=AGENTS) for _ in range(3))
    halves = samples(2000)
    run_agents(tmp_path, first, stopping_after(3), ScriptedSource(halves))
    shown = page_figures(first.view(), kind="agents", horizon=12, bounds=(0.0, 10.0))["convergence"]
    run_agents(tmp_path, second, stopping_after(0), ScriptedSource(halves))
    again = page_figures(second.view(), kind="agents", horizon=12, bounds=(0.0, 10.0))
    assert len(shown["event_time"]) == 3
    assert again["convergence"]["event_time"][:3] == shown["event_time"]
    assert again["convergence"]["together"]["median"][:3] == shown["together"]["median"]
    assert again["convergence"]["gain"] == pytest.approx(
        shown["gain"], rel=1e-6
    )  # over all agents, not those of now
    assert again["convergence"]["answered"] == shown["answered"] > 30
    assert again["answered_until"] is not None
    run_agents(tmp_path, third, stopping_after(2), ScriptedSource(halves))
    assert third.view().precision[-1].event_time > first.view().precision[-1].event_time


def stopping_after(turns: int) -> Any:
    """Let an engine end after so many turns."""
    left = iter([False] * turns)
    return SimpleNamespace(is_set=lambda: next(left, True))


def window_line(day: int, value: Any, interval: Any) -> bytes:
    stages = [{"stage": "vote", "users": 5, "lower": -0.5, "upper": 0.5}]
    event = {
        "start": f"2024-01-0{day}T00:00:00Z",
        "end": f"2024-01-0{day + 1}T00:00:00Z",
        "value": value,
    }
    more = {"interval": interval, "users": 9, "epsilon": 1.0, "method": "kent", "stages": stages}
    return json.dumps(event | more).encode()


def test_a_chosen_window_shows_its_stages(browser: Browser) -> None:
    telemetry = RoundsTelemetry(settings=ROUNDS)
    lines = [window_line(day, 5.0 + day, [4.0 + day, 6.0 + day]) for day in (1, 2, 3)]
    telemetry.observe(RoundsStats(estimates=3, answers_of_turn=tuple(lines)))
    with PageServer("127.0.0.1:0", telemetry, bounds=(0.0, 10.0)) as server:
        driver = browser()
        from selenium.webdriver import ActionChains

        driver.get(server.url)
        until(lambda: drawn(driver, "stages"))
        text = driver.find_element("id", "stages-text")
        assert text.text.startswith("Window from 2024-01-03 00:00")
        points = driver.find_elements("css selector", "#windows .point")
        ActionChains(driver).move_to_element(points[0]).click().perform()
        until(lambda: text.text.startswith("Window from 2024-01-01 00:00"))
        assert complaints(driver) == []


@pytest.mark.parametrize("width", [400, 1600])
def test_what_is_carried_on_and_its_gain_are_tiles(width: int, browser: Browser) -> None:
    telemetry = RoundsTelemetry(settings=ROUNDS)
    lines = []
    for day, half_width, contradicts in ((1, None, "the center has jumped"), (2, 0.1, "")):
        event = json.loads(window_line(day, 5.0, [4.0, 6.0])) | {"users": 400, "stderr": 0.25}
        state = {
            "stage": "carried",
            "state": {"windows": day, "half_width": half_width},
            "contradicts": contradicts,
        }
        lines.append(json.dumps(event | {"stages": [{"n": 100, "variance": 0.04}, state]}).encode())
    telemetry.observe(RoundsStats(estimates=2, answers_of_turn=tuple(lines)))
    with PageServer("127.0.0.1:0", telemetry, bounds=(0.0, 10.0)) as server:
        driver = browser(width=width)
        driver.get(server.url)
        text = driver.find_element("id", "stages-text")
        until(lambda: text.text != "")
        tiles = driver.execute_script(TILES)
        assert tiles["windows that are carried on"] == "2"
        assert tiles["standard error if nothing were carried"] == "2.00 times"
        assert text.text.endswith(
            "For the next window: a narrow window of half-width 0.5, learned from 2 windows."
        )
        assert overlaps(driver) == []
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        driver.execute_script("choose(0)")
        assert (
            "Earlier windows were contradicted: the center has jumped. For the next window: no narrow window yet, "
            "learned from 1 window."
        ) in text.text
        assert complaints(driver) == []


def test_vectors_are_drawn_by_coordinate(browser: Browser) -> None:
    telemetry = RoundsTelemetry(settings=ROUNDS)
    vector = window_line(4, [1.0, 9.0, 3.0], [[0.5, 1.5], [9.5, 10.0], [2.0, 4.0]])
    telemetry.observe(RoundsStats(estimates=1, answers_of_turn=(vector,)))
    with PageServer("127.0.0.1:0", telemetry) as server:
        driver = browser(width=400)
        driver.get(server.url)
        until(lambda: len(driver.find_elements("css selector", "#windows .point")) == 3)
        assert "coordinate" in driver.find_element("id", "windows").get_attribute("innerHTML")
        assert (
            driver.find_element("id", "stages").text
            == "The stages of this round say nothing of an interval."
        )
        assert driver.find_element("id", "state").text == "running"
        assert overlaps(driver) == []
        assert complaints(driver) == []


def test_names_of_categories_are_no_tags(browser: Browser) -> None:
    """Plotly makes links and bold letters of tags in its texts."""
    telemetry = RoundsTelemetry(settings=ROUNDS)
    names = ["<a href='https://x.invalid/'>login</a>", "<b>bold</b>", "&lt;5"]
    event = json.loads(window_line(4, [0.5, 0.25, 0.25], [[0.4, 0.6], [0.2, 0.3], [0.2, 0.3]]))
    line = json.dumps(event | {"categories": names}).encode()
    telemetry.observe(RoundsStats(estimates=1, answers_of_turn=(line,)))
    with PageServer("127.0.0.1:0", telemetry) as server:
        driver = browser()
        driver.get(server.url)
        until(lambda: len(driver.find_elements("css selector", "#windows .point")) == 3)
        ticks = driver.find_elements("css selector", "#windows .xtick text")
        assert [tick.text for tick in ticks] == names
        assert driver.find_elements("css selector", "#windows a") == []
        assert complaints(driver) == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1000, 1600])
def test_nothing_lies_on_anything_else(
    agents_url: str, width: int, dark: bool, browser: Browser
) -> None:
    driver = browser(width=width, dark=dark)
    driver.get(agents_url)
    for chart in ("convergence", "flow"):
        until(lambda chart=chart: drawn(driver, chart))
    assert overlaps(driver) == []
    back = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) < 3 * 128) == dark
    driver.execute_script("document.querySelector('#budget-card').style.marginTop = '-80px'")
    assert overlaps(driver)  # it would be seen


def test_a_report_fits_a_narrow_window_and_the_dark(tmp_path: Path, browser: Browser) -> None:
    budget = budget_chart(budget_histogram_record(9, (1, 8), 12), "agents")
    row = page_figures_of_window(json.loads(window_line(1, 5.0, [4.0, 6.0])), (0.0, 10.0))
    stages = ReportPart(
        title="Stages", picture=stages_chart(row), table=[("head " * 9, "0123456789abcdef" * 4)]
    )
    parts = [
        ReportPart(title="Budget", picture=budget, lines="name   " + "word " * 99, aligned=True),
        stages,
    ]
    page = ReportPage(title="Report", about="Of a test", parts=parts)
    (tmp_path / "report.html").write_text(report_parts_as_html(page))
    driver = browser(width=400, dark=True)
    driver.get((tmp_path / "report.html").as_uri())
    shown = [part.is_displayed() for part in driver.find_elements("css selector", ".wide, .narrow")]
    assert shown == [False, True, False, True]
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 400
    script = "return getComputedStyle(document.querySelector('.narrow svg g[id*=xtick] use, .narrow svg text')).fill"
    ink = driver.execute_script(script)
    assert min(map(int, re.findall(r"\d+", ink)[:3])) > 200, ink  # light on dark
    assert complaints(driver) == []


def test_a_request_that_leaves_the_machine_would_be_seen(agents_url: str, browser: Browser) -> None:
    driver = browser()
    driver.get("data:text/html,<img src='http://meanstream.invalid/x.png'>")
    until(lambda: "meanstream.invalid" in hosts_asked(driver))


def test_who_has_no_token_sees_nothing(agents_url: str) -> None:
    token = urllib.parse.parse_qs(urllib.parse.urlsplit(agents_url).query)["token"][0]
    port = urllib.parse.urlsplit(agents_url).port
    cookie = f"meanstream_page_{port}={{}}"
    for path in ("/", "/data", "/agent?name=agent%201", "/plotly.js", "/nothing"):
        assert get(agents_url, path).status == 401
        assert get(agents_url, path, Cookie=cookie.format(token[:-1] + "é")).status in (401, 403)
        assert get(agents_url, path, Cookie=cookie.format(token[:-1])).status == 403
    assert get(agents_url, "/?token=" + token[::-1]).status == 403
    assert get(agents_url, "/data", Cookie=cookie.format(token)).status == 200
    assert (
        get(agents_url, "/data", Cookie=cookie.format(token), Host="attacker.example").status == 403
    )
    moved = get(agents_url, f"/?token={token}")
    assert (moved.status, moved.headers["Location"]) == (303, "/")
    for word in ("HttpOnly", "SameSite=Strict"):
        assert word in moved.headers["Set-Cookie"]
    assert "default-src 'none'" in moved.headers["Content-Security-Policy"]


def test_every_page_has_its_own_token() -> None:
    telemetry = AgentsTelemetry(settings=AGENTS)
    with PageServer("127.0.0.1:0", telemetry) as one, PageServer("127.0.0.1:0", telemetry) as other:
        assert one.url.partition("token=")[2] != other.url.partition("token=")[2]
        assert get(one.url, "/?token=" + other.url.partition("token=")[2]).status == 403


def test_an_empty_page_says_what_it_waits_for(browser: Browser) -> None:
    with PageServer("127.0.0.1:0", AgentsTelemetry(settings=AGENTS)) as server:
        driver = browser(width=400)
        driver.get(server.url)
        until(lambda: driver.find_element("id", "state").text == "running")
        for chart in ("convergence", "population", "agent", "budget", "flow", "rejects"):
            assert driver.find_element("id", chart).text, chart
        assert overlaps(driver) == []
        assert complaints(driver) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["--page", "0.0.0.0:0"],
            "page must be an address of this machine only, unless --page-remote is given",
        ),
        (["--page", "8080"], "page must be HOST:PORT"),
        (["--page-remote"], "page_remote must come with --page"),
        (["--runner", "FnApiRunner", "--page", "127.0.0.1:0"], "page "),
    ],
)
def test_addresses_that_are_refused(tmp_path: Path, given: list[str], message: str) -> None:
    write_samples(tmp_path / "flights.csv")
    typed = ["run", "agents", *arguments(options(tmp_path)), *given]
    assert message in meanstream(*typed, environment=SECRET).message
    assert not (tmp_path / "state.db").exists()


def test_the_command_writes_the_token_beside_the_store_and_never_into_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_samples(tmp_path / "flights.csv")
    place, told = tmp_path / "state.db.page", []
    observe = AgentsTelemetry.observe

    def look(self: AgentsTelemetry, stats: Any) -> None:
        observe(self, stats)
        told.append((place.read_text(), place.stat().st_mode & 0o777))

    monkeypatch.setattr(AgentsTelemetry, "observe", look)
    place.write_text("left by a run that was killed")
    typed = ["run", "agents", *arguments(options(tmp_path)), "--page", "127.0.0.1:0"]
    ran = meanstream(*typed, "--log-format", "json", environment=SECRET)
    assert ran.code == 0
    [(address, mode)] = set(told)
    found = urllib.parse.urlsplit(address.strip())
    assert (found.hostname, mode) == ("127.0.0.1", 0o600)
    token = urllib.parse.parse_qs(found.query)["token"][0].encode()
    assert token not in ran.err + ran.out
    assert b"page is served" in ran.err
    assert not place.exists()
    estimates = (tmp_path / "estimates.jsonl").read_bytes()
    (tmp_path / "other").mkdir()
    write_samples(tmp_path / "other" / "flights.csv")
    other = meanstream("run", "agents", *arguments(options(tmp_path / "other")), environment=SECRET)
    assert other.code == 0
    assert (
        tmp_path / "other" / "estimates.jsonl"
    ).read_bytes() == estimates  # a page changes nothing


def test_what_a_page_of_rounds_holds_is_public(rounds_url: str) -> None:
    token = urllib.parse.parse_qs(urllib.parse.urlsplit(rounds_url).query)["token"][0]
    place = urllib.parse.urlsplit(rounds_url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=10)
    connection.request("GET", f"/data?token={token}")
    shown = json.loads(connection.getresponse().read())
    connection.close()
    assert shown["kind"] == "rounds"
    assert not {"clipped", "median_half_width", "convergence", "population"} & (
        shown.keys() | shown["counts"].keys()
    )


def test_a_page_of_rounds_needs_the_side_that_reads_samples() -> None:
    side = ["--from-reports", "reports.jsonl", "--stages", "stages.jsonl"]
    message = meanstream("run", "rounds", "--page", "127.0.0.1:0", *side).message
    assert message.startswith("page must be of the engine that reads samples")


def test_nothing_is_drawn_before_the_kind_of_run_is_known(
    agents_url: str, browser: Browser
) -> None:
    driver = browser()
    driver.get(agents_url)
    hidden = driver.execute_script(
        "return fetch('/').then((a) => a.text()).then((t) => t.includes('<main hidden>'))"
    )
    assert hidden
    until(lambda: tile(driver, "events"))
    assert driver.find_element("id", "convergence-card").is_displayed()
    assert not driver.find_element("id", "windows-card").is_displayed()


def test_a_run_without_records_is_idle(agents_url: str, browser: Browser) -> None:
    driver = browser()
    driver.get(agents_url)
    until(lambda: tile(driver, "events"))
    shown = (
        "running({running: true, last_record: Date.now() / 1000 - arguments[0]}); "
        "return document.getElementById('state').textContent"
    )
    texts = [driver.execute_script(shown, seconds) for seconds in (5, 430, 7300, 200_000)]
    assert texts == ["running", "idle 7 min", "idle 2 h", "idle 2 d"]


def test_lines_that_coincide_are_one_in_the_legend(agents_url: str, browser: Browser) -> None:
    driver = browser()
    driver.get(agents_url)
    until(lambda: tile(driver, "events"))
    shown = """
        const of = (k) => ({low: [k, k], median: [2 * k, 2 * k], high: [3 * k, 3 * k]});
        drawConvergence({clock: [1e9, 1e9 + 60], event_time: [1e9, 1e9 + 60], together: of(1),
          alone: of(arguments[0]), error: null}, null, "clock");
        return document.querySelector("#convergence .legend").textContent;
    """
    assert driver.execute_script(shown, 1.001) == "together and alone: one line for both"
    assert set(driver.execute_script(shown, 1.5).split("together")) == {"alone", ""}


def test_on_a_phone_the_first_chart_comes_before_the_counts(
    agents_url: str, browser: Browser
) -> None:
    driver = browser(width=390)
    driver.get(agents_url)
    until(lambda: drawn(driver, "convergence"))
    tops = driver.execute_script(
        "return ['convergence-card', 'tiles', 'population-card'].map((id) => "
        "document.getElementById(id).getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)
    judged = driver.find_element("id", "judgement").text
    assert judged.startswith("Learning together ")
    assert overlaps(driver) == []
