"""`meanstream demo`: a year of real flights becomes one private, personalized mean per aircraft."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.lab.demo.demo_results import (
    MIN_COUNT,
    Answers,
    draw_demo_plot,
    print_demo_table,
    score_demo,
)
from meanstream.lab.demo.flights import (
    LOWER,
    MARK,
    UPPER,
    Truth,
    flights_file,
    hold_back_flights,
    read_flights,
    replayed_flights,
)
from meanstream.pipelines.commands.command_outputs import take_output_folder
from meanstream.pipelines.commands.run.checks import refusing_to_open
from meanstream.pipelines.commands.run.run_agents import run_agents_engine
from meanstream.pipelines.commands.run.run_page import (
    check_page_options,
    showing_page,
    stay_on_page,
)
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import refusing_options

if TYPE_CHECKING:
    import pyarrow as pa

    from meanstream.lab.demo.flights import Truth
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.operators.records import Floats
    from meanstream.streaming.agents.public_population import AnsweredAgents
    from meanstream.streaming.engine.engine_stats import EngineStats
    from meanstream.streaming.metrics.telemetry import Telemetry

    Watcher = Callable[[EngineStats], None]

METHODS = ("learned_prior", "tests")
BATCH = (
    6_000  # some 28 commits over the year, each followed by estimates: the points of the picture
)


def replay_flights(
    *,
    epsilon: float,
    delta: float,
    seed: int,
    out: Path,
    page: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run both methods on the flights, and print and draw what they found.

    `page` is the address of a live page.
    """
    with refusing_options():
        nowhere = Path(os.devnull)  # agents that run in this folder have nothing to do with it
        settings = AgentsOptions(
            lower=LOWER, upper=UPPER, epsilon=epsilon, delta=delta, store=nowhere
        ).settings()
        check_page_options(page, remote=False)

    stream, truth = hold_back_flights(read_flights(flights_file()))
    take_output_folder("out", out, MARK)

    with ExitStack() as opened:
        telemetry = opened.enter_context(_page(page, settings, truth)) if page is not None else None
        watch = None if telemetry is None else telemetry.observe
        result, final = _replay(
            stream, truth, out, watch, epsilon=epsilon, delta=delta, seed=seed, quiet=quiet
        )

        if as_json:
            print_options_json(result)
        else:
            print_demo_table(truth, final, result)

        if telemetry is not None:
            telemetry.finish()
            stay_on_page()


@contextmanager
def _page(address: str, settings: AgentsSettings, truth: Truth) -> Iterator[Telemetry]:
    """Serve a page that knows the true means."""
    from meanstream.streaming.metrics.telemetry import AgentsTelemetry

    telemetry = AgentsTelemetry(settings=settings, truth=MeansOfTruth(truth))
    with ExitStack() as opened:
        with refusing_to_open():
            opened.enter_context(showing_page(address, telemetry, settings))

        yield telemetry


def _replay(
    stream: pa.Table,
    truth: Truth,
    out: Path,
    watch: Watcher | None,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    quiet: bool,
) -> tuple[dict[str, Any], Answers]:
    """Run both methods; give what is said of them, and the default's final answers."""
    estimates = {}
    for method in METHODS:
        if not quiet:
            sys.stderr.write(
                f"{stream.num_rows:,} flights of {len(truth.agent):,} aircraft, {method} ...\n"
            )

        also = watch if method == METHODS[0] else None
        estimates[method] = _run(
            stream, method, out, also, epsilon=epsilon, delta=delta, seed=seed, quiet=quiet
        )

    final = {method: _newest(table, truth) for method, table in estimates.items()}
    scores = {
        method: s
        for method, answers in final.items()
        if (s := score_demo(truth, answers)) is not None
    }

    population = _last_line(out / "learned_prior-population.jsonl")
    result = {
        "epsilon": epsilon,
        "delta": delta,
        "seed": seed,
        "flights": stream.num_rows,
        "aircraft": len(truth.agent),
        "min_samples": MIN_COUNT,
        "squared_error_relative_to_alone": {method: asdict(s) for method, s in scores.items()},
        "population": _population_sentence(population),
        "picture": _picture(estimates, truth, final["learned_prior"], population, out),
    }

    return result, final["learned_prior"]


def _run(
    stream: pa.Table,
    method: str,
    out: Path,
    also: Watcher | None,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    quiet: bool,
) -> pa.Table:
    """Run the engine on the stream with one way to collaborate.

    Return the personal estimates it wrote.
    """
    from pyarrow import json as arrow_json

    with replayed_flights(stream, out, seed) as (source, secret):
        for stale in out.glob(f"{method}-*.jsonl"):
            stale.unlink()

        run_agents_engine(
            AgentsOptions(
                name="demo",  # a seed gives the same noise on every machine
                source=str(source),
                agent="tailnum",
                value="dep_delay",
                time="time_hour",
                lower=LOWER,
                upper=UPPER,
                epsilon=epsilon,
                delta=delta,
                collaboration=method,
                refresh="0s",
                batch_size=BATCH,
                store=secret.with_name("state.db"),
                secret_file=secret,
                sink=str(out / f"{method}-estimates.jsonl"),
                releases=str(out / f"{method}-releases.jsonl"),
                population=str(out / f"{method}-population.jsonl"),
                quiet=quiet,
            ),
            also=also,
        )

    return arrow_json.read_json(out / f"{method}-estimates.jsonl")


def _newest(table: pa.Table, truth: Truth, until: Any = None) -> Answers:
    """Take each aircraft's newest estimate up to a time, in the order of `truth.agent`."""
    import numpy as np

    if until is not None:
        table = table.slice(0, int(np.searchsorted(table["time"].to_numpy(), until, side="right")))

    row = np.full(len(truth.agent), -1)
    row[np.searchsorted(truth.agent, table["agent"].to_numpy().astype(str))] = np.arange(
        table.num_rows
    )

    def pick(column: Any) -> Floats:
        return np.where(row >= 0, np.append(column, np.nan)[row], np.nan)

    ends = {
        n: np.reshape(table[n].combine_chunks().flatten(), (-1, 2))
        for n in ("interval", "local_interval")
    }

    return Answers(
        count=np.nan_to_num(pick(table["n"].to_numpy())).astype(np.int64),
        value=pick(table["value"].to_numpy()),
        lower=pick(ends["interval"][:, 0]),
        upper=pick(ends["interval"][:, 1]),
        local=pick(table["local"].to_numpy()),
        local_lower=pick(ends["local_interval"][:, 0]),
        local_upper=pick(ends["local_interval"][:, 1]),
        gain=pick(table["effective_class_size"].to_numpy()),
    )


def _population_sentence(population: dict[str, Any]) -> str:
    """Say what the releases tell about all aircraft together."""
    fitted = population["fitted"]
    parts = [
        f"{100 * c['weight']:.0f} % around {c['center']:.1f} minutes (standard error {c['center_stddev']:.1f})"
        for c in fitted["components"]
    ]
    groups = "one group" if len(parts) == 1 else f"{len(parts)} groups"

    return (
        f"The releases of {population['agents']:,} aircraft look like {groups}: {', '.join(parts)}; "
        f"means within a group differ by {fitted['spread']:.1f} minutes (standard deviation)."
    )


def _picture(
    estimates: dict[str, pa.Table],
    truth: Truth,
    final: Answers,
    population: dict[str, Any],
    out: Path,
) -> str | None:
    """Draw error against time and the learned prior; None where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        return None
    import numpy as np

    last = estimates["learned_prior"]["time"].to_numpy().max()
    times = np.unique(np.append(estimates["learned_prior"]["time"].to_numpy(), last))
    curves = {
        method: [
            (t, s) for t in times if (s := score_demo(truth, _newest(table, truth, t))) is not None
        ]
        for method, table in estimates.items()
    }

    return str(draw_demo_plot(curves, population["fitted"]["density"], final, out / "demo.png"))


def _last_line(path: Path) -> dict[str, Any]:
    last = path.read_text(encoding="utf-8").splitlines()[-1]
    event: dict[str, Any] = json.loads(last)
    return event


class MeansOfTruth:
    """Keeps every agent's newest estimate and scores it against the truth, as the demo's table does."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._answers = Answers.none(len(truth.agent))

    def errors(self, answered: AnsweredAgents) -> tuple[float, float] | None:
        """Root mean squared errors together and alone.

        None while too few agents have samples enough.
        """
        import numpy as np

        names = np.array(answered.names, self._truth.agent.dtype)
        rows = np.searchsorted(self._truth.agent, names)
        answers = self._answers
        answers.count[rows] = answered.count
        answers.value[rows] = answered.value
        answers.local[rows] = answered.local
        answers.lower[rows], answers.upper[rows] = answered.interval.T

        score = score_demo(self._truth, answers)
        if score is None:
            return None
        return (max(score.mse, 0.0) ** 0.5, max(score.mse_alone, 0.0) ** 0.5)
