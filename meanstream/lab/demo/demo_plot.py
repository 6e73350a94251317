"""The demo's picture: error against time, and the learned prior with some aircraft on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.pipelines.commands.command_outputs import save_output_figure

if TYPE_CHECKING:
    import numpy as np

    from meanstream.lab.demo.demo_score import Answers, Score

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
