"""`meanstream reproduce colme` and `ladder`: figures of Yakimenka et al. next to what they print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from meanstream.lab.reproduce.figure_runner import (
    Result,
    Say,
    SeedOption,
    number_text,
    paper_data,
    reproduce_figure,
)
from meanstream.lab.reproduce.findings import finding_of
from meanstream.pipelines.options.base import JsonOption
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.lab.simulation.config import SimulationConfig

STEPS = 30_000
REFERENCE_STEPS = (1_000, 2_000, 5_000, 10_000, 30_000)
LADDER_STEPS = (200, 500, 1_000, 5_000, 30_000)
LADDER = "ladder"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColmeCurve:
    """One curve: its options beyond mode paper, its points, and values at the last `REFERENCE_STEPS`."""

    label: str
    color: str
    options: dict[str, Any] = field(default_factory=dict)
    line: str = "-"
    points: int = 120
    reference: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColmePanel:
    """One set of axes: simulated curves, or those of Proposition 3."""

    title: str
    curves: tuple[str, ...]
    agents: int = 200
    theory: bool = False
    steps: int = STEPS
    measure: str = "mse"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColmeFigure:
    """Panels from left to right, the runs of the paper, and the seconds that one run takes on one core."""

    runs: int
    seconds: float
    panels: tuple[ColmePanel, ...]
    note: str
    title: str = "Yakimenka et al., Fig. {figure}"


@dataclass(frozen=True, slots=True)
class ColmePaper:
    """All curves and figures by name."""

    curves: dict[str, ColmeCurve]
    figures: dict[str, ColmeFigure]


@cache
def colme_paper() -> ColmePaper:
    """Read the figures."""
    return paper_data("colme", ColmePaper)


def reproduce_colme(
    figure: Annotated[str, cli_option("Figure: 2, 3, 4 or partners.", INPUT)] = "2",
    runs: Annotated[
        int | None, cli_option("Independent repetitions (default: the paper's).", INPUT)
    ] = None,
    seed: SeedOption = 1,
    out: Annotated[Path, cli_option("Folder for colme-figure-N.png.", OUTPUT)] = Path(),
    json: JsonOption = False,
) -> None:
    """Reproduce figures 2 to 4 of "Differentially-private collaborative online personalized mean estimation".

    `partners` is not in the paper: few partners, lost answers, consensus and message passing.
    Runs the simulations, writes a PNG like the paper's, and prints our numbers next to reference
    values.

    \b
    Example:
      meanstream reproduce colme --figure 2 --out figures
    """  # noqa: D301 - click reads the escape
    known = [name for name in colme_paper().figures if name != LADDER]
    if figure not in known:
        raise BadOption(f"figure must be one of {', '.join(known)}, got {figure!r}")

    _reproduce(figure, runs, seed, out / f"colme-figure-{figure}.png", as_json=json)


def reproduce_ladder(
    runs: Annotated[int | None, cli_option("Independent repetitions (default: 20).", INPUT)] = None,
    seed: SeedOption = 1,
    out: Annotated[Path, cli_option("Folder for ladder.png.", OUTPUT)] = Path(),
    json: JsonOption = False,
) -> None:
    """Measure what each step from the paper's algorithm to Meanstream's default gains, in the setting of Fig. 2.

    The steps: one stream for all, the optimal counter, all releases, and the learned prior. Prints squared errors,
    and what remains of them after each step; draws them by time.

    \b
    Example:
      meanstream reproduce ladder --runs 5 --out figures
    """  # noqa: D301 - click reads the escape
    _reproduce(LADDER, runs, seed, out / "ladder.png", as_json=json)


def _reproduce(name: str, runs: int | None, seed: int, picture: Path, *, as_json: bool) -> None:
    from meanstream.pipelines.commands.plots import draw_plot

    figure = colme_paper().figures[name]
    runs = figure.runs if runs is None else runs
    panel = figure.panels[0]
    with refusing_options():
        _configuration(panel, colme_paper().curves[panel.curves[0]], runs, seed)

    reproduce_figure(
        picture,
        lambda say: _measure(name, runs, seed, say),
        draw_plot,
        ladder_lines if name == LADDER else colme_lines,
        as_json=as_json,
        name=name,
        seconds=figure.seconds * runs,
    )


def _measure(name: str, runs: int, seed: int, say: Say) -> Result:
    """Run every panel; panels that share a curve share its simulation."""
    figure = colme_paper().figures[name]
    panels = []
    for panel in figure.panels:
        curves = []
        for curve in (colme_paper().curves[key] for key in panel.curves):
            say(f"{name}: {panel.title}: {curve.label}")
            config = _configuration(panel, curve, runs, seed)
            known = dict(zip(REFERENCE_STEPS[::-1], curve.reference[::-1], strict=False))
            curves.append({
                "label": curve.label,
                "options": curve.options,
                "color": curve.color,
                "line": curve.line,
                "reference": [
                    {"step": step, "mse": known[step]} for step in REFERENCE_STEPS if step in known
                ],
                **(_expected(config) if panel.theory else _simulated(config)),
            })  # fmt: skip

        shown = {name: getattr(panel, name) for name in ("title", "agents", "steps", "measure")}
        panels.append(shown | {"curves": curves})

    return {
        "figure": name,
        "title": figure.title.format(figure=name),
        "runs": runs,
        "seed": seed,
        "note": figure.note + finding_of(f"colme {name}", panels),
        "panels": panels,
    }


def _configuration(panel: ColmePanel, curve: ColmeCurve, runs: int, seed: int) -> SimulationConfig:
    import numpy as np

    from meanstream.lab.simulation.config import SimulationConfig

    # Log-spaced steps, with those that are printed.
    spaced = np.unique(np.geomspace(1, STEPS, curve.points).round().astype(int)).tolist()
    checkpoints = tuple(sorted({*spaced, *REFERENCE_STEPS, *LADDER_STEPS}))
    options = {"mode": "paper", "agents": panel.agents, "checkpoints": checkpoints, **curve.options}

    return SimulationConfig.from_options(steps=STEPS, runs=runs, seed=seed, **options)


@lru_cache(maxsize=8)
def _simulated(config: SimulationConfig) -> Result:
    from meanstream.lab.simulation.simulate_agents import simulate

    result = simulate(config)
    shown = ("checkpoints", "mse", "stderr", "local", "ideal", "oracle", "coverage", "type1")
    return {name: getattr(result, name) for name in shown}


def _expected(config: SimulationConfig) -> Result:
    from meanstream.lab.simulate.theory_command import theory_facts

    table = theory_facts(config)
    shown = {"checkpoints": "checkpoints", "mse": "oracle", "local": "local", "ideal": "ideal"}
    return {name: table[column] for name, column in shown.items()}


def colme_lines(result: Result) -> Iterator[str]:
    """Lay out our errors next to the reference."""
    yield f"figure {result['figure']}, {result['runs']} runs; mean squared error (standard error)"
    for panel in result["panels"]:
        yield f"\n{panel['title']}"
        of_errors = panel["measure"] == "mse"
        for curve in panel["curves"]:
            ours = _by_step(curve, panel["measure"])
            error = _by_step(curve, "stderr") if of_errors else {}
            known = {entry["step"]: entry["mse"] for entry in curve["reference"] if of_errors}
            cells = [
                f"{step}: {number_text(ours[step], '{:.3g}') or '-'}"
                + number_text(error.get(step), " ({:.0e})")
                + number_text(known.get(step), " (reference {:.3g})")
                for step in REFERENCE_STEPS
            ]
            yield f"  {curve['label']:<38}" + "   ".join(cells)


def ladder_lines(result: Result) -> Iterator[str]:
    """Lay out the squared errors, and what each step leaves of those of the step before it."""
    yield (
        f"squared error by number of samples of each agent, {result['runs']} runs, seed {result['seed']}; in brackets "
        "relative to the step before"
    )
    yield f"{'':<32}" + "".join(f"{step:>18,}" for step in LADDER_STEPS)
    curves = result["panels"][0]["curves"]
    errors = [_by_step(curve, "mse") for curve in curves]

    for curve, before, ours in zip(curves, [None, *errors], errors, strict=False):
        cells = (
            f"{ours[step]:.2e}" + (f" ({ours[step] / before[step]:.2f})" if before else "")
            for step in LADDER_STEPS
        )
        yield f"{curve['label']:<32}" + "".join(f"{cell:>18}" for cell in cells)

    left = (f"({errors[-1][step] / errors[0][step]:.2f})" for step in LADDER_STEPS)
    yield f"{'all steps':<32}" + "".join(f"{cell:>18}" for cell in left)


def _by_step(curve: Result, measure: str) -> dict[int, float]:
    """Give a measure by checkpoint; nothing where it was not measured."""
    return dict(zip(curve["checkpoints"], curve.get(measure) or (), strict=False))
