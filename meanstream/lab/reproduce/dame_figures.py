"""`meanstream reproduce dame`: figure 1 of the paper, next to reference values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from meanstream.lab.reproduce.figure_runner import (
    Result,
    Say,
    SeedOption,
    draw_panels,
    number_text,
    paper_data,
    reproduce_figure,
    shown_curve,
)
from meanstream.lab.reproduce.findings import finding_of
from meanstream.pipelines.options.base import JsonOption
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

USERS = 10_000
EPSILON = 22 / 35
SMALL = 100_000
LARGE = 1_000_000
RUNS = 400
SHARES = tuple(i / 9 for i in range(10))
"""Ten shares of users with the large size."""
INFORMATION = 500.0
"""Users times epsilon squared, where the bounds are along a parameter of the sizes."""
GRID = 100
"""Points of a curve of Fig. 1a, as in the paper."""
SECONDS = {"1a": 1.0, "1b": 0.3}
"""Of a figure, and of one run of it, on one core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """One curve of Fig. 1b: an estimator with its options, and reference values by position in `SHARES`."""

    label: str
    estimator: str
    color: str
    options: dict[str, Any] = field(default_factory=dict)
    only_large: bool = False
    line: str = "-"
    reference: dict[int, float] = field(default_factory=dict)

    def configuration(self, share: float) -> dict[str, Any]:
        """Options of `RoundsConfig` for one point, without runs and seed."""
        # The threshold of these schemes is the median size: the large one where most users have it.
        drops = self.only_large and share > 0.5
        return {
            "estimator": self.estimator,
            "users": USERS,
            "epsilon": EPSILON,
            "sizes": f"two:{SMALL},{LARGE},{share!r}",
            "data": "rademacher:0",
            "mode": "paper",
            "least_size": LARGE if drops else 1,
            "options": self.options,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """One panel of Fig. 1a: a law of sizes, and reference values of both bounds along its axis."""

    title: str
    family: str
    axis: str
    along_information: bool = False
    upper: dict[float, float] = field(default_factory=dict)
    lower: dict[float, float] = field(default_factory=dict)

    def sizes(self, place: float) -> str:
        """Law of the sizes at a place of the axis."""
        if self.family.startswith("uniform"):
            return self.family.format(round(2 * place - 1))
        return self.family.format(place / 1000 if self.family.startswith("binomial") else place)


@dataclass(frozen=True, slots=True)
class DamePaper:
    """Both parts of the figure, and what is to be known of them."""

    errors: tuple[Estimated, ...]
    bounds: tuple[Bounds, ...]
    notes: dict[str, str]


@cache
def dame_paper() -> DamePaper:
    """Read the figure."""
    return paper_data("dame", DamePaper)


def reproduce_dame(
    figure: Annotated[str, cli_option("Figure: 1a or 1b.", INPUT)] = "1b",
    runs: Annotated[
        int, cli_option("Figure 1b: independent repetitions of each point.", INPUT)
    ] = RUNS,
    seed: SeedOption = 1,
    out: Annotated[Path, cli_option("Folder for dame-figure-N.png.", OUTPUT)] = Path(),
    json: JsonOption = False,
) -> None:
    """Reproduce figure 1a or 1b of "Distribution-aware mean estimation under user-level local differential privacy".

    Computes the bounds (1a) or runs the simulations (1b), writes a PNG, and prints our numbers next
    to reference values.

    \b
    Example:
      meanstream reproduce dame --figure 1b --runs 100 --out figures
    """  # noqa: D301 - click reads the escape
    if figure not in SECONDS:
        raise BadOption(f"figure must be one of {', '.join(SECONDS)}, got {figure!r}")

    with refusing_options():
        _configuration(dame_paper().errors[0], SHARES[0], runs, seed)

    simulated = figure == "1b"
    note = dame_paper().notes[figure]

    def measure(say: Say) -> Result:
        panel = {"quantity": "mean squared error", "log": [not simulated, True], "names": []}
        panels = _errors(runs, seed, say) if simulated else _bounds()
        return {
            "figure": figure,
            "runs": runs if simulated else None,
            "seed": seed,
            "panels": [panel | own for own in panels],
            "note": note
            + finding_of(f"dame {figure}", panels)
            + (dame_order(panels[0]["curves"]) if simulated else ""),
        }

    reproduce_figure(
        out / f"dame-figure-{figure}.png",
        measure,
        partial(draw_panels, title=f"Pla, Richard, Vono, Fig. {figure}"),
        dame_lines,
        as_json=json,
        name=figure,
        seconds=SECONDS[figure] * (runs if simulated else 1),
    )


def dame_order(curves: list[Result]) -> str:
    """Say how DAME's error compares with the least of the others, which the paper says is larger.

    Examples
    --------
    >>> curves = [{"label": "DAME", "x": [0.5], "y": [4e-5], "stderr": [3e-6]},
    ...           {"label": "Kent et al., T = min", "x": [0.5], "y": [1e-5], "stderr": [1e-6]}]
    >>> dame_order(curves)
    ' Share 0.50: DAME 4e-05 (s.e. 3e-06), Kent et al., T = min 1e-05 (s.e. 1e-06): 4 times.'
    """
    dame, *others = curves
    text = ""

    for point in {len(dame["x"]) // 2, len(dame["x"]) - 2} if len(dame["x"]) > 2 else {0}:
        share = dame["x"][point]
        errors = [
            (curve["y"][index], curve["stderr"][index], curve["label"])
            for curve in others
            for index, x in enumerate(curve["x"])
            if x == share
        ]
        least, stderr, label = min(errors, key=lambda error: error[0])
        ours = dame["y"][point]
        text += (
            f" Share {share:.2f}: DAME {ours:.2g}{_give(dame['stderr'][point])}, {label} "
            f"{least:.2g}{_give(stderr)}: {ours / least:.3g} times."
        )

    return text


def _errors(runs: int, seed: int, say: Say) -> list[Result]:
    """Simulate the one panel of Fig. 1b."""
    from meanstream.lab.simulation.simulated_rounds import simulate_rounds

    curves = []
    for estimated in dame_paper().errors:
        say(f"figure 1b: {estimated.label}")
        # Forcing a size that no one has is no estimator.
        forced = "effective_size" in estimated.options
        shares = [share for share in SHARES if share > 0 or not forced]
        results = [
            simulate_rounds(_configuration(estimated, share, runs, seed)) for share in shares
        ]
        stderr = [result.stderr for result in results]
        curve = shown_curve(
            estimated.label,
            estimated.color,
            estimated.line,
            shares,
            [result.mse for result in results],
            bar=[None if error is None else 2.0 * error for error in stderr],
            reference={SHARES[place]: y for place, y in estimated.reference.items()},
        )
        predicted = [result.predicted_mse for result in results]
        curves.append(curve | {"stderr": stderr, "predicted": predicted})

    axis = "share of users with the larger size"
    return [{"title": "sizes 1e5 and 1e6", "axis": axis, "curves": curves}]


def _configuration(estimated: Estimated, share: float, runs: int, seed: int) -> Any:
    from meanstream.lab.simulation.simulated_rounds import RoundsConfig

    return RoundsConfig(**estimated.configuration(share), runs=runs, seed=seed)


def _bounds() -> list[Result]:
    """Compute the panels of Fig. 1a."""
    return [
        {"title": panel.title, "axis": panel.axis, "curves": _bound_curves(panel)}
        for panel in dame_paper().bounds
    ]


def _bound_curves(panel: Bounds) -> list[Result]:
    import numpy as np

    from meanstream.lab.papers.dame.dame_bounds import (
        C3,
        C3_PRINTED,
        C5,
        dame_bounds_lower,
        dame_bounds_upper,
    )
    from meanstream.operators.rounds.user_sizes import SizeDistribution

    start, end = (INFORMATION, 1e6) if panel.along_information else (2, 900)
    x = sorted({*np.geomspace(start, end, GRID).round().tolist(), *panel.upper, *panel.lower})
    sizes = [SizeDistribution.parse(panel.sizes(place)) for place in x]
    # Only users * epsilon**2 matters: one user whose epsilon is its root stands for them.
    roots = [place**0.5 if panel.along_information else INFORMATION**0.5 for place in x]
    points = list(zip(sizes, roots, strict=True))

    uppers: tuple[tuple[str, str, float, float, dict[float, float]], ...] = (
        ("upper bound", "-", C3, C5, {}),
        ("upper bound, c3 as printed", "--", C3_PRINTED, C5, panel.upper),
        ("upper bound's shape (c3 = c5 = 1)", ":", 1.0, 1.0, {}),
    )
    curves = []
    for label, line, c3, c5, reference in uppers:
        y = [dame_bounds_upper(m, users=1, epsilon=root, c3=c3, c5=c5) for m, root in points]
        curves.append(shown_curve(label, "tab:orange", line, x, y, reference=reference))

    y = [dame_bounds_lower(m, users=1, epsilon=root) for m, root in points]
    return [*curves, shown_curve("lower bound", "tab:blue", "-", x, y, reference=panel.lower)]


def dame_lines(result: Result) -> Iterator[str]:
    """Lay out our numbers next to the reference."""
    yield f"figure {result['figure']}{number_text(result['runs'], ', {} runs')}"
    for panel in result["panels"]:
        yield f"\n{panel['title']} ({panel['axis']})"
        for curve in panel["curves"]:
            known = {entry["x"]: entry["y"] for entry in curve["reference"]}
            stderr = curve.get("stderr") or [None] * len(curve["x"])
            points = list(zip(curve["x"], curve["y"], stderr, strict=True))
            shown = [point for point in points if point[0] in known or not known]
            step = 1 if known else max(len(shown) // 5, 1)
            cells = [
                f"{x:.3g}: {y:.3g}{_give(error)}{number_text(known.get(x), ' (reference {:.3g})')}"
                for x, y, error in shown[::step]
            ]
            yield f"  {curve['label']:<34}" + "   ".join(cells)


def _give(stderr: float | None) -> str:
    return number_text(stderr, " (s.e. {:.1g})")
