"""Speed of the embedded engine on a CSV file, against reading the file and against a loop over its events.

Prints one JSON object. Run from the repository: `python benchmarks/speed/speed_of_engine.py --events 4000000
--agents 1000`.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import csv as arrow_csv
from river import stats, stream

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.times import iso_times
from meanstream.streaming.open_sink import open_sink
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.store.deployment_store import open_deployment


def write_events(path: Path, events: int, agents: int) -> None:
    """Write samples of agents of Zipf-like activity, in event-time order."""
    rng = np.random.default_rng(7)
    agent = np.minimum((agents * rng.random(events) ** 2).astype(np.int64), agents - 1)
    value = rng.normal(0.5, 0.2, events).round(4)
    when = iso_times(1.7e9 + np.arange(events, dtype=np.float64) * 0.5)

    with path.open("w", encoding="ascii", newline="") as file:
        file.write("agent,value,time\n")
        rows = zip(agent.tolist(), value.tolist(), when, strict=True)
        file.writelines(f"agent-{a:06d},{v},{t}\n" for a, v, t in rows)


def best(work: Callable[[], object], repeat: int) -> tuple[float, float]:
    """Best wall-clock and best processor seconds (of all threads) of several runs."""
    wall = []
    processor = []
    for _ in range(repeat):
        began = time.perf_counter()
        began_processor = time.process_time()
        work()
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - began_processor)

    return min(wall), min(processor)


def run_engine(path: Path, *, sort: bool, estimates: bool) -> None:
    """Run the whole engine: store, ledger, releases written and synced."""
    settings = AgentsSettings(lower=0.0, upper=1.0, epsilon=1.0, delta=1e-6)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        deployment = open_deployment(place / "state.db", settings, environment={})
        source = open_source(str(path), ColumnMapping(), sort=sort, id_key=deployment.id_key)
        sinks = Sinks(
            releases=open_sink(str(place / "releases.jsonl"), trust=Trust.PUBLIC),
            estimates=open_sink(str(place / "estimates.jsonl"), trust=Trust.PRIVATE)
            if estimates
            else None,
        )

        engine = Engine(
            source=source,
            settings=settings,
            noise=deployment.noise,
            store=deployment.store,
            sinks=sinks,
            options=EngineOptions(refresh=None, quorum=1),
        )
        engine.run()

        source.close()
        sinks.close()
        deployment.store.close()


def river_iter_csv(path: Path) -> None:
    """Keep one mean per key, as river's own reader gives the events."""
    means: dict[str, stats.Mean] = {}
    for row, _ in stream.iter_csv(str(path), converters={"value": float}):
        means.setdefault(row["agent"], stats.Mean()).update(row["value"])


def river_csv_reader(path: Path) -> None:
    """Keep one mean per key, from the fastest reader of the standard library."""
    means: dict[str, stats.Mean] = {}
    with path.open(encoding="ascii", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        for agent, value, _ in rows:
            mean = means.get(agent)
            if mean is None:
                mean = means[agent] = stats.Mean()
            mean.update(float(value))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.csv"
        write_events(path, options.events, options.agents)
        took = {
            "engine": best(lambda: run_engine(path, sort=False, estimates=False), options.repeat),
            "engine_sorted_with_estimates": best(
                lambda: run_engine(path, sort=True, estimates=True), options.repeat
            ),
            "pyarrow_read": best(lambda: arrow_csv.read_csv(path), options.repeat),
            "river_iter_csv": best(lambda: river_iter_csv(path), 1),
            "river_csv_reader": best(lambda: river_csv_reader(path), 1),
        }

        megabytes = path.stat().st_size / 1e6

    result: dict[str, Any] = {
        "events": options.events,
        "agents": options.agents,
        "megabytes": round(megabytes, 1),
    }
    engines = [name for name in took if name.startswith("engine")]

    for i, kind in enumerate(("wall", "processor")):
        result[kind] = {
            f"{name}_events_per_second": round(options.events / t[i]) for name, t in took.items()
        }

        for name in engines:
            others = {other: t[i] for other, t in took.items() if other not in engines}
            result[kind] |= {
                f"{name}_to_{other}": round(t / took[name][i], 3) for other, t in others.items()
            }

    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
