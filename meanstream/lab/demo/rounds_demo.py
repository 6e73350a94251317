"""`meanstream demo rounds`.

A year of real flights becomes one private mean over aircraft per week.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from meanstream.lab.demo.flights import (
    LOWER,
    MARK,
    UPPER,
    flights_file,
    read_flights,
    replayed_flights,
)
from meanstream.pipelines.commands.command_outputs import (
    save_output_figure,
    take_output_folder,
)
from meanstream.pipelines.commands.run.checks import refusing_to_open
from meanstream.pipelines.commands.run.run_page import (
    check_page_options,
    showing_page,
    stay_on_page,
)
from meanstream.pipelines.commands.run.run_rounds import run_rounds_engine
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import refusing_options
from meanstream.pipelines.options.rounds_options import RoundsOptions
from meanstream.streaming.rounds.rounds_deployment import rounds_default_estimator
from meanstream.streaming.rounds.window_widths import MICROS, Windows

if TYPE_CHECKING:
    import pyarrow as pa

    from meanstream.operators.records import Floats
    from meanstream.streaming.engine.engine_stats import EngineStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """One window: what the round answered, and what no one but the demo knows."""

    start: str
    users: int
    value: float
    lower: float
    upper: float
    true: float


def replay_rounds(
    *,
    epsilon: float,
    window: str,
    seed: int,
    out: Path,
    page: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Answer each window of the flights, and print and draw what was found.

    `page` is the address of a live page.
    """
    with refusing_options():
        estimator = rounds_default_estimator(None, window, alone=True)

    options: dict[str, Any] = {
        "lower": f"{LOWER:g}",
        "upper": f"{UPPER:g}",
        "epsilon": epsilon,
        "window": window,
        "estimator": estimator,
        "name": "rounds",
        "quiet": quiet,
    }

    with refusing_options():
        settings = RoundsOptions(**options).settings()
        check_page_options(page, remote=False)

    flights = read_flights(flights_file())
    take_output_folder("out", out, MARK)
    starts, means = _true_windows(flights, window)
    with ExitStack() as opened:
        telemetry = None
        if page is not None:
            from meanstream.streaming.metrics.telemetry import RoundsTelemetry

            truth = dict(
                zip((datetime.fromtimestamp(s, UTC) for s in starts), means.tolist(), strict=True)
            )
            telemetry = RoundsTelemetry(settings=settings, truth=truth)

            with refusing_to_open():
                opened.enter_context(showing_page(page, telemetry, settings))

        estimates = _run(
            flights, out, options, seed, None if telemetry is None else telemetry.observe
        )
        _show_answers(flights, estimates, means, out, options, as_json=as_json)

        if telemetry is not None:
            telemetry.finish()
            stay_on_page()


def _show_answers(
    flights: pa.Table,
    estimates: list[dict[str, Any]],
    means: Floats,
    out: Path,
    options: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Print the answers next to the truth, and draw them."""
    weeks = [
        Week(
            start=e["start"][:10],
            users=e["users"],
            value=e["value"],
            lower=e["interval"][0],
            upper=e["interval"][1],
            true=float(true),
        )
        for e, true in zip(estimates, means, strict=True)
    ]
    result = _demo_summary(weeks, epsilon=options["epsilon"], window=options["window"]) | {
        "flights": flights.num_rows,
        "picture": _picture(weeks, out / "demo-rounds.png"),
    }

    if as_json:
        print_options_json(result | {"windows": [asdict(week) for week in weeks]})
        return

    _print(weeks, result)


def _demo_summary(weeks: list[Week], *, epsilon: float, window: str) -> dict[str, Any]:
    """Say how far the answers were from the truth, and how wide their intervals.

    Examples
    --------
    >>> week = Week(start="2013-01-03", users=9, value=12.0, lower=8.0, upper=16.0, true=15.0)
    >>> found = _demo_summary([week], epsilon=1.0, window="7d")
    >>> found["covered"], found["median_half_width"], found["root_mean_squared_error"]
    (1, 4.0, 3.0)
    """
    return {
        "epsilon": epsilon,
        "window": window,
        "answered": len(weeks),
        "covered": sum(week.lower <= week.true <= week.upper for week in weeks),
        "median_half_width": median(0.5 * (week.upper - week.lower) for week in weeks),
        "root_mean_squared_error": fmean((week.value - week.true) ** 2 for week in weeks) ** 0.5,
    }


def _run(
    flights: pa.Table,
    out: Path,
    options: dict[str, Any],
    seed: int,
    also: Callable[[EngineStats], None] | None,
) -> list[dict[str, Any]]:
    """Run the engine on the flights; return the estimates that it wrote."""
    with replayed_flights(flights, out, seed) as (source, secret):
        places = {name: str(out / f"{name}.jsonl") for name in ("means", "reports", "stages")}

        for file in places.values():
            Path(file).unlink(missing_ok=True)

        run_rounds_engine(
            RoundsOptions(
                source=str(source),
                user="tailnum",
                value="dep_delay",
                time="time_hour",
                store=secret.with_name("rounds.db"),
                secret_file=secret,
                sink=places["means"],
                reports=places["reports"],
                stages=places["stages"],
                **options,
            ),
            also=also,
        )
        lines = Path(places["means"]).read_text(encoding="utf-8").splitlines()

    return [json.loads(line) for line in lines]


def _true_windows(flights: pa.Table, window: str) -> tuple[list[int], Floats]:
    """Start in seconds, and mean over aircraft of each one's mean delay, clipped, of each window that has a flight."""
    import numpy as np

    seconds = flights["time_hour"].to_numpy().astype("datetime64[s]").astype(np.float64)
    delay = np.clip(flights["dep_delay"].to_numpy().astype(float), LOWER, UPPER)
    assigned = Windows.parse(window).assign(seconds)

    names, user = np.unique(
        flights["tailnum"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True
    )
    starts, window_of = np.unique(assigned.start // MICROS, return_inverse=True)
    cell = window_of * len(names) + user[assigned.sample]
    count = np.bincount(cell, minlength=len(starts) * len(names)).reshape(len(starts), -1)
    total = np.bincount(cell, delay[assigned.sample], minlength=count.size).reshape(count.shape)
    has_flights = count > 0
    means = np.divide(total, count, out=np.zeros_like(total), where=has_flights)

    return starts.tolist(), np.asarray(means.sum(axis=1) / has_flights.sum(axis=1))


def _print(weeks: list[Week], result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"Mean departure delay over aircraft, minutes, each {result['window']} (95 % intervals)"
    )
    for name in ("window from", "aircraft", "private mean", "interval", "true mean (demo only)"):
        table.add_column(name, justify="left" if name == "window from" else "right")

    for week in weeks:
        table.add_row(
            week.start,
            f"{week.users:,}",
            f"{week.value:.1f}",
            f"[{week.lower:.1f}, {week.upper:.1f}]".replace("[", r"\["),
            f"{week.true:.1f}" + (" " if week.lower <= week.true <= week.upper else "!"),
        )

    console = Console(width=110, highlight=False)
    console.print(table)

    for line in _rounds_report_lines(result):
        console.print(line)


def _rounds_report_lines(result: dict[str, Any]) -> list[str]:
    """Sentences below the table."""
    lines = [
        f"{result['covered']} of {result['answered']} intervals hold the true mean; half of them are at most "
        f"{result['median_half_width']:.1f} minutes to either side.",
        f"Root mean squared error {result['root_mean_squared_error']:.1f} minutes.",
        f"Privacy: epsilon {result['epsilon']:g} for everything an aircraft flew within a window, the number of "
        "flights included, even against the statistician; over several windows it adds up. That it flew is public.",
        "The demo's noise is seeded; a real run keeps its key secret.",
    ]

    if result["picture"]:
        lines.append(f"Picture: {result['picture']}")
    else:
        lines.append("No picture: pip install 'meanstream[plot]'.")

    return lines


def _picture(weeks: list[Week], path: Path) -> str | None:
    """Draw answers and truth against time; None where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        return None
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.dates import DateFormatter
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()

    days = np.array([week.start for week in weeks], "datetime64[D]")
    value = np.array([week.value for week in weeks])
    reach = [value - [week.lower for week in weeks], [week.upper for week in weeks] - value]

    axes.errorbar(
        days,
        value,
        yerr=reach,
        fmt="o",
        ms=4,
        lw=1.2,
        color="#1a6bc2",
        label="private mean, 95 % interval",
        zorder=3,
    )

    axes.plot(
        days,
        [week.true for week in weeks],
        color="#c2571a",
        lw=1.4,
        label="true mean (known to the demo only)",
    )

    axes.set_ylabel("mean departure delay over aircraft, minutes")
    axes.xaxis.set_major_formatter(DateFormatter("%b"))  # type: ignore[no-untyped-call]
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_output_figure("out", path, figure, dpi=130)

    return str(path)
