"""What the flights' demonstration shows: scores of private means, as a table and as a picture."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.lab.demo.flights import Truth
from meanstream.pipelines.commands.command_outputs import save_output_figure

if TYPE_CHECKING:
    import numpy as np

    from meanstream.operators.records import Floats, Ints

MIN_COUNT = 20
"""Aircraft with fewer flights in either half are left out of the score."""

MIN_AIRCRAFT = 100
"""A ratio over fewer aircraft says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What each aircraft of the truth knew at one time.

    Its newest estimate; NaN and 0 where it had none.
    """

    count: Ints
    value: Floats
    lower: Floats
    upper: Floats
    local: Floats
    local_lower: Floats
    local_upper: Floats
    gain: Floats

    @classmethod
    def none(cls, aircraft: int) -> Answers:
        """Begin without estimates."""
        import numpy as np

        names = [name for name in cls.__slots__ if name != "count"]
        unknown = {name: np.full(aircraft, np.nan) for name in names}
        return cls(count=np.zeros(aircraft, np.int64), **unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Mean squared error relative to learning alone, its standard error, and how many aircraft it is over."""

    ratio: float
    stderr: float
    aircraft: int
    mse: float
    mse_alone: float
    coverage: float


def score_demo(truth: Truth, answers: Answers) -> Score | None:
    """Score estimates in the order of `truth.agent`; NaN where an aircraft has none.

    The truth is itself a mean of finitely many flights: its sampling variance is taken off both
    squared errors. An interval covers if the held-back mean lies in it after both are widened by
    that variance. None if there are too few aircraft to tell.
    """
    import numpy as np

    used = (truth.count >= MIN_COUNT) & (answers.count >= MIN_COUNT) & np.isfinite(answers.value)
    if used.sum() < MIN_AIRCRAFT:
        return None
    noise = truth.variance_of_mean[used]
    together = (answers.value[used] - truth.mean[used]) ** 2 - noise
    alone = (answers.local[used] - truth.mean[used]) ** 2 - noise
    ratio = float(together.sum() / alone.sum())
    # Delta method for a ratio of means over independent aircraft.
    stderr = float(np.std(together - ratio * alone, ddof=1) / np.sqrt(used.sum()) / alone.mean())
    center = (answers.lower[used] + answers.upper[used]) / 2
    half = (answers.upper[used] - answers.lower[used]) / 2
    widened = np.sqrt(half**2 + 1.96**2 * noise)
    coverage = float(np.mean(np.abs(truth.mean[used] - center) <= widened))

    return Score(
        ratio=ratio,
        stderr=stderr,
        aircraft=int(used.sum()),
        mse=float(together.mean()),
        mse_alone=float(alone.mean()),
        coverage=coverage,
    )


ROWS = 5


def print_demo_table(truth: Truth, answers: Answers, result: dict[str, Any]) -> None:
    """Print the table and the sentences below it."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Mean departure delay of an aircraft, minutes (95 % intervals)")
    for name in (
        "aircraft",
        "flights",
        "alone",
        "private, collaborative",
        "pulled to the group",
        "held-back mean",
    ):
        table.add_column(name, justify="left" if name == "aircraft" else "right")

    for i in _drawn(truth, answers, result["seed"]):
        table.add_row(
            str(truth.agent[i]),
            str(answers.count[i]),
            _with_interval(answers.local[i], answers.local_lower[i], answers.local_upper[i]),
            _with_interval(answers.value[i], answers.lower[i], answers.upper[i]),
            f"{100 * (1 - 1 / max(answers.gain[i], 1.0)):.0f} %",
            f"{truth.mean[i]:.1f}",
        )

    console = Console(width=110, highlight=False)
    console.print(table)

    for line in _report_lines(result):
        console.print(line)


def _report_lines(result: dict[str, Any]) -> list[str]:
    """Sentences below the table."""
    enough = f"aircraft with at least {MIN_COUNT} flights in each half"
    lines = [
        f"Rows: the {ROWS} smallest SHA-256 of '{result['seed']} AIRCRAFT', of the {enough}.",
        f"Squared error on the held-back flights, relative to learning alone, over all {enough}:",
    ]

    for method, s in result["squared_error_relative_to_alone"].items():
        lines.append(
            f"  {method:<14} {s['ratio']:.2f} (standard error {s['stderr']:.2f}; {s['aircraft']:,} aircraft); "
            f"intervals cover {100 * s['coverage']:.0f} %"
        )

    lines.append(result["population"])
    lines.append(
        f"Privacy: ({result['epsilon']:g}, {result['delta']:g}) for each flight's delay, over the year, against "
        "everyone else together; an aircraft's flights together are protected less. Times of flights are public. The "
        "demo's noise is seeded; a real run keeps its key secret."
    )

    picture = result["picture"]
    lines.append(
        f"Picture: {picture}"
        if picture
        else "No picture: pip install 'meanstream[plot]' draws one."
    )

    return lines


def _with_interval(value: float, lower: float, upper: float) -> str:
    return f"{value:.1f} [{lower:.1f}, {upper:.1f}]"


def _drawn(truth: Truth, answers: Answers, seed: int) -> list[int]:
    """Draw scored aircraft by a hash of seed and name, which knows no result.

    Those with few flights first.
    """
    import numpy as np

    scored = np.flatnonzero(
        (truth.count >= MIN_COUNT) & (answers.count >= MIN_COUNT) & np.isfinite(answers.value)
    )
    by_hash = sorted(
        scored.tolist(), key=lambda i: hashlib.sha256(f"{seed} {truth.agent[i]}".encode()).digest()
    )

    return sorted(by_hash[:ROWS], key=lambda i: (answers.count[i], truth.agent[i]))


COLORS = {"alone": "#666666", "tests": "#c2571a", "learned_prior": "#1a6bc2"}
LABELS = {"tests": "same-mean tests (paper)", "learned_prior": "learned prior (default)"}
SHOWN = 12


def draw_demo_plot(
    curves: dict[str, list[tuple[np.datetime64, Score]]],
    density: dict[str, Any],
    answers: Answers,
    path: Path,
) -> Path:
    """Draw both panels to a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _errors(left, curves)
    _prior(right, density, answers)
    save_output_figure("out", path, figure, dpi=130)

    return path


def _errors(axes: Any, curves: dict[str, list[tuple[np.datetime64, Score]]]) -> None:
    """Draw the root mean squared error of what aircraft knew at each time."""
    from matplotlib.dates import DateFormatter

    some = next(iter(curves.values()))
    axes.plot(
        [t for t, _ in some],
        _root([s.mse_alone for _, s in some]),
        color=COLORS["alone"],
        label="alone",
    )

    for method, points in curves.items():
        axes.plot(
            [t for t, _ in points],
            _root([s.mse for _, s in points]),
            color=COLORS[method],
            label=LABELS[method],
        )

    axes.set_ylim(bottom=0)
    axes.set_ylabel("root mean squared error on held-back flights, minutes")
    axes.set_title(
        f"Aircraft with at least 20 flights so far ({some[0][1].aircraft} to {some[-1][1].aircraft})"
    )
    axes.xaxis.set_major_formatter(DateFormatter("%b"))  # type: ignore[no-untyped-call]
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def _root(squares: list[float]) -> list[float]:
    """Root; a difference of squares can be negative while there are few aircraft."""
    return [max(s, 0.0) ** 0.5 for s in squares]


def _prior(axes: Any, density: dict[str, Any], answers: Answers) -> None:
    """Draw the fitted density; below it some aircraft alone (gray) and in collaboration (blue)."""
    import numpy as np

    value = np.asarray(density["value"])
    height = np.asarray(density["density"])
    axes.fill_between(value, height, color=COLORS["learned_prior"], alpha=0.2, lw=0)
    axes.plot(value, height, color=COLORS["learned_prior"])
    known = np.flatnonzero(answers.count >= 5)
    ordered = known[np.argsort(answers.local[known])]
    shown = ordered[(np.linspace(0.02, 0.98, SHOWN) * (len(ordered) - 1)).astype(int)]
    top = height.max()

    for i, a in enumerate(shown):
        y = -top * (i + 1) * 0.07
        axes.plot(
            [answers.local_lower[a], answers.local_upper[a]],
            [y, y],
            color=COLORS["alone"],
            lw=1,
            alpha=0.6,
        )
        axes.plot(answers.local[a], y, "o", color=COLORS["alone"], ms=3)

        y -= top * 0.025
        axes.plot(
            [answers.lower[a], answers.upper[a]], [y, y], color=COLORS["learned_prior"], lw=1.6
        )
        axes.plot(answers.value[a], y, "o", color=COLORS["learned_prior"], ms=3)

    axes.axhline(0, color="black", lw=0.6)
    axes.set_yticks([])
    axes.set_xlim(-25, 65)
    axes.set_xlabel("mean departure delay, minutes")
    axes.set_title("Learned prior; aircraft alone (gray) and together (blue)")
