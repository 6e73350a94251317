"""What the live page costs an engine.

CPU seconds of a run with the page, watched once a second, over those without.

Prints one JSON object. Run from the repository:
`python benchmarks/speed/speed_of_page.py --samples 2000000`. Both runs take turns in one process,
on the same samples, and the ratio is that of the fastest of each. With the page, the seconds hold
its server and the one that watches, too. Refreshing all estimates at every commit is when the page
has most to do.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.page.page_server import PageServer
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.metrics.telemetry import AgentsTelemetry
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sinks.jsonl_sink import JsonlSink
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.store.deployment_store import open_deployment

SETTINGS = AgentsSettings(lower=0, upper=10, epsilon=1, delta=1e-6)


def run(agents: int, samples: int, *, refresh: bool, watched: bool) -> tuple[float, int]:
    """Run an engine; return its CPU seconds, and how often the page was looked at."""
    telemetry = AgentsTelemetry(settings=SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        deployment = open_deployment(
            Path(folder) / "s.db", SETTINGS, environment={"MEANSTREAM_SECRET": "x" * 16}
        )
        source = open_source(f"synthetic:{agents},{samples},1", ColumnMapping())
        sinks = Sinks(estimates=JsonlSink(Path(folder) / "estimates.jsonl", trust=Trust.PRIVATE))

        engine = Engine(
            source=source,
            settings=SETTINGS,
            noise=deployment.noise,
            store=deployment.store,
            sinks=sinks,
            options=EngineOptions(batch_size=65_536, refresh=0.0 if refresh else None),
            on_turn=telemetry.observe if watched else None,
        )

        looks: list[int] = []
        done = threading.Event()
        watcher = threading.Thread(target=watch, args=(telemetry, done, looks))
        if watched:
            watcher.start()
        began = time.process_time()
        engine.run()
        seconds = time.process_time() - began
        done.set()

        if watched:
            watcher.join()
        sinks.close()
        source.close()
        deployment.store.close()

    return seconds, len(looks)


def watch(telemetry: AgentsTelemetry, done: threading.Event, looks: list[int]) -> None:
    """Ask the page for its figures once a second, as a browser does."""
    with PageServer("127.0.0.1:0", telemetry) as server:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        opener.open(server.url).read()
        data = server.url.partition("?")[0] + "data"
        while not done.wait(1.0):
            looks.append(len(opener.open(data).read()))


def measure(agents: int, samples: int, repeats: int, *, refresh: bool) -> dict[str, Any]:
    """Take turns."""
    with_page = []
    without = []
    looks = 0

    for _ in range(repeats):
        without.append(run(agents, samples, refresh=refresh, watched=False)[0])
        seconds, seen = run(agents, samples, refresh=refresh, watched=True)
        with_page.append(seconds)
        looks += seen

    return {
        "seconds_without": round(min(without), 3),
        "seconds_with": round(min(with_page), 3),
        "ratio": round(min(with_page) / min(without), 4),
        "looks": looks,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    found = {
        name: measure(given.agents, given.samples, given.repeats, refresh=refresh)
        for name, refresh in (("estimates_at_every_commit", True), ("estimates_at_the_end", False))
    }

    sys.stdout.write(json.dumps(vars(given) | found) + "\n")


if __name__ == "__main__":
    main()
