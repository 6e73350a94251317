"""`meanstream reproduce cummings`: what the curator's estimators achieve, next to reference numbers.

The paper has no figures of its own; these are the comparisons that its theorems make: the ideal
estimator, public sizes (Algorithm 2), private sizes by propose-test-release (Algorithms 3 and 4),
and the ratio that is shipped. Appendix C: truncated weights against halving at the median, where
few users have many samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from meanstream.lab.reproduce.figure_runner import (
    Result,
    RunsOption,
    Say,
    SeedOption,
    draw_panels,
    new_axes,
    number_text,
    paper_data,
    reproduce_figure,
    save_figure,
    shown_curve,
)
from meanstream.lab.reproduce.kent_curves import COLORS
from meanstream.pipelines.options.base import JsonOption
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.lab.simulation.simulated_rounds import RoundsConfig

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
LAWS = {"zipf:1,100": "sizes 1 to 100, Zipf", "uniform:1,100": "sizes 1 to 100, uniform"}
RUNS = 200
SECONDS = 0.5
"""Of one run of all points, on one core."""
USERS = 10_000
AT = 1.0
"""The epsilon of the reference values."""
BASE = 1
"""Ratios are to this curve."""
NOTE = (
    "Errors are on [0, 1] (a quarter of those on [-1, 1]); values 0 and 1, rate 0.3, users' rates 0.04 apart. Epsilon "
    "is that of each release: a user of the ratio pays 3 times as much in mode paper, of propose-test-release 4 times; "
    "curves 'in all' pay epsilon itself. Reference ranges are measured by an own implementation. "
    "The printed propose-test-release (erratum C9) is far above the picture."
)

NUMBERS_OF_USERS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
NOTE_OF_APPENDIX = (
    "n users with one sample each, but for sqrt(n) of them with n samples; users are alike, values 0 and 1, mean 0.5. "
    "Variances are exact, with windows of Bernstein's inequality. Halving at the median is what all prior work does."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One curve: an estimator, how many releases its users pay for, and reference ranges by law of sizes."""

    label: str
    estimator: str
    mode: str
    color: str
    line: str = "-"
    releases: int = 1
    error: tuple[float, float] | None = None
    ratio: tuple[float, float] | None = None


@cache
def compared_estimators() -> tuple[Compared, ...]:
    """Read the curves."""
    return paper_data("cummings", tuple[Compared, ...])


def reproduce_cummings(
    figure: Annotated[
        str, cli_option("Comparison: errors (simulated) or c (appendix C, computed).", INPUT)
    ] = "errors",
    runs: RunsOption = RUNS,
    seed: SeedOption = 1,
    out: Annotated[Path, cli_option("Folder for cummings.png.", OUTPUT)] = Path(),
    json: JsonOption = False,
) -> None:
    """Compare the estimators of "Mean estimation with user-level privacy under data heterogeneity".

    Simulates ten thousand users, writes a PNG, and prints our numbers next to reference ranges. Appendix C compares
    with halving at the median, as prior work does.

    \b
    Example:
      meanstream reproduce cummings --runs 100 --out figures
    """  # noqa: D301 - click reads the escape
    if figure not in ("errors", "c"):
        raise BadOption(f"figure must be errors or c, got {figure!r}")

    with refusing_options():
        cummings_configuration(compared_estimators()[0], next(iter(LAWS)), AT, runs, seed)

    if figure == "c":
        reproduce_figure(
            out / "cummings-appendix-c.png",
            lambda say: _appendix_c(),  # noqa: ARG005 - computed at once
            partial(draw_panels, title="Cummings et al., App. C"),
            _appendix_lines,
            as_json=json,
        )
        return

    reproduce_figure(
        out / "cummings.png",
        partial(_measure, runs, seed),
        _draw,
        _lines,
        as_json=json,
        name="errors",
        seconds=SECONDS * runs,
    )


def cummings_configuration(
    curve: Compared, law: str, epsilon: float, runs: int, seed: int
) -> RoundsConfig:
    """Return the configuration of one point."""
    from meanstream.lab.simulation.simulated_rounds import RoundsConfig

    return RoundsConfig(
        estimator=f"cummings.{curve.estimator}",
        users=USERS,
        epsilon=epsilon * curve.releases,
        sizes=law,
        data="rademacher:-0.4",
        between_users_law="normal:0.08",
        mode=curve.mode,
        runs=runs,
        seed=seed,
    )


def _measure(runs: int, seed: int, say: Say) -> Result:
    """Simulate every point."""
    panels = []
    for law, title in LAWS.items():
        curves = []
        for curve in compared_estimators():
            say(f"{title}: {curve.label}")
            curves.append(_simulated(curve, law, runs, seed))

        for measured in curves:
            pairs = zip(measured["mse"], curves[BASE]["mse"], strict=True)
            measured["ratio"] = [ours / base for ours, base in pairs]

        panels.append({"title": title, "sizes": law, "epsilon": list(EPSILONS), "curves": curves})

    return {"runs": runs, "seed": seed, "users": USERS, "note": NOTE, "panels": panels}


def _simulated(curve: Compared, law: str, runs: int, seed: int) -> Result:
    from meanstream.lab.simulation.simulated_rounds import simulate_rounds

    results = [
        simulate_rounds(cummings_configuration(curve, law, epsilon, runs, seed))
        for epsilon in EPSILONS
    ]
    error = curve.error if law.startswith("zipf") else None

    return {
        "label": curve.label,
        "color": curve.color,
        "line": curve.line,
        "mse": [result.mse / 4.0 for result in results],
        "stderr": [None if result.stderr is None else result.stderr / 4.0 for result in results],
        "coverage": [result.coverage for result in results],
        "reference": {"mse": error, "ratio": curve.ratio, "epsilon": AT},
    }


def _lines(result: Result) -> Iterator[str]:
    """Lay out error and ratio by epsilon, with the reference ranges."""
    yield f"{result['users']} users, {result['runs']} runs; mean squared error +- its own (ratio to Alg. 2)"
    for panel in result["panels"]:
        epsilons = "".join(f"{f'epsilon {epsilon:g}':>22}" for epsilon in panel["epsilon"])
        yield f"\n{panel['title']:<38}{epsilons}"

        for curve in panel["curves"]:
            points = zip(curve["mse"], curve["stderr"], curve["ratio"], strict=True)
            cells = "".join(
                f"{f'{mse:.2g}' + number_text(stderr, '+-{:.0e}') + f' ({ratio:.2f})':>22}"
                for mse, stderr, ratio in points
            )
            yield f"  {curve['label']:<36}{cells}{_reference(curve['reference'])}"


def _reference(reference: Result) -> str:
    known = {name: reference[name] for name in ("mse", "ratio") if reference[name]}
    ranges = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in known.items())

    if not ranges:
        return ""
    return f"   (reference at epsilon {reference['epsilon']:g}: {ranges})"


def _draw(result: Result, path: Path) -> None:
    """Draw errors above and their ratios to Algorithm 2 below, one column per law of sizes."""
    from meanstream.pipelines.commands.plots import legends_below

    panels = result["panels"]
    figure, rows = new_axes(2, len(panels), (5.2 * len(panels), 8.2))
    for column, panel in enumerate(panels):
        for row, measure in enumerate(("mse", "ratio")):
            _draw_panel(rows[row][column], panel, measure)

        rows[0][column].set_title(panel["title"])
        rows[1][column].set_xlabel("epsilon")

    rows[0][0].set_ylabel("mean squared error on [0, 1]")
    rows[1][0].set_ylabel("ratio to Algorithm 2")
    legends_below(figure, rows[0])
    runs = f"{result['users']} users, {result['runs']} runs, seed {result['seed']}"
    save_figure(figure, path, f"Cummings et al.: {runs}")


def _draw_panel(ax: Any, panel: Result, measure: str) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    for number, curve in enumerate(panel["curves"]):
        style = {"color": curve["color"], "lw": 1.4, "label": curve["label"]}
        ax.plot(panel["epsilon"], curve[measure], curve["line"], **style)
        known = curve["reference"][measure]
        if known:
            # Side by side, where ranges of several curves would lie on each other.
            x = curve["reference"]["epsilon"] * 1.04 ** (number - 1)
            ax.plot([x, x], known, color=curve["color"], lw=5, alpha=0.4, solid_capstyle="butt")

    ax.plot([], [], color="0.35", lw=5, alpha=0.4, label="reference ranges")
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(panel["epsilon"], [f"{epsilon:g}" for epsilon in panel["epsilon"]])
    ax.xaxis.set_minor_locator(NullLocator())

    if measure == "ratio":
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(NullLocator())

    ax.grid(visible=True, which="major", alpha=0.3)


def _appendix_c() -> Result:
    """Compute the variance of both, and the slope over the last decade of users."""
    from meanstream.lab.papers.bounds.cummings_theorems import (
        CummingsProblem,
        cummings_halved_variance,
        cummings_ideal_variance,
    )
    from meanstream.operators.rounds.user_sizes import SizeDistribution

    users = NUMBERS_OF_USERS
    laws = [SizeDistribution.parse(f"two:1,{n},{n**-0.5!r}") for n in users]
    curves = []
    for epsilon in (0.5, 4.0):
        problems = [
            CummingsProblem(sizes=sizes, users=n, epsilon=epsilon)
            for sizes, n in zip(laws, users, strict=True)
        ]
        for label, line, variance in (
            ("halving at the median", "--", cummings_halved_variance),
            ("truncated weights", "-", cummings_ideal_variance),
        ):
            y = [variance(problem) for problem in problems]
            slope = math.log(y[-1] / y[-3]) / math.log(users[-1] / users[-3])
            name = f"{label}, epsilon {epsilon:g}"
            curves.append(shown_curve(name, COLORS[epsilon], line, users, y) | {"slope": slope})

    panel = {
        "title": "sqrt(n) users with n samples",
        "axis": "users n",
        "quantity": "variance on [0, 1]",
        "log": [True, True],
        "names": [],
        "curves": curves,
    }
    return {
        "figure": "App. C",
        "authors": "Cummings et al.",
        "panels": [panel],
        "note": NOTE_OF_APPENDIX,
    }


def _appendix_lines(result: Result) -> Iterator[str]:
    """Lay out variances and slopes."""
    yield f"{'users':<42}" + "".join(f"{n:>9.0e}" for n in NUMBERS_OF_USERS[::2]) + "   slope"
    for curve in result["panels"][0]["curves"]:
        cells = "".join(f"{y:>9.1e}" for y in curve["y"][::2])
        yield f"{curve['label']:<42}{cells}{curve['slope']:>8.2f}"
