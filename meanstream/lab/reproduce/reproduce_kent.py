"""`meanstream reproduce kent`: figures of the paper, next to reference values, and Fig. 4 on a file of one's own."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from meanstream.lab.reproduce.figure_runner import (
    Result,
    RunsOption,
    Say,
    SeedOption,
    draw_panels,
    number_text,
    paper_data,
    reproduce_figure,
    shown_curve,
)
from meanstream.lab.reproduce.findings import finding_of
from meanstream.lab.reproduce.kent_curves import EPSILONS, SPREAD, TUNED, Curve, Panel, Point
from meanstream.lab.reproduce.kent_figures import FIGURES
from meanstream.pipelines.options.base import JsonOption
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.lab.simulation.kent_schemes import OwnShares
    from meanstream.lab.simulation.simulated_rounds import VectorConfig, VectorResult

RUNS = 100
OWN = "4"
"""The figure whose data is a file of one's own."""
PHASE_RUNS = 10
"""Repetitions of a point of Fig. 5 for each of `--runs`: a wrong bin is rare there, and they are
cheap."""
MOST_SHOWN = 30
"""Points of a curve in the text."""
MOST_CATEGORIES = 4
"""Of a file, as the paper has: the most frequent ones, and all others together."""
SHARES_OF_LEAST = (1 / 3, 5 / 12, 1 / 2, 2 / 3, 5 / 6, 1.0)
"""The paper's 100 to 300 samples, relative to the greatest number."""
NOTE_OF_FILE = (
    "On your own file; the paper's data cannot be had. The truth is the mean over users of their "
    "own shares. "
    "The full item level protects single samples only."
)


@dataclass(frozen=True, slots=True)
class KentNote:
    """What is to be known of a figure, and the seconds that one run takes on one core."""

    seconds: float
    note: str


def reproduce_kent(  # noqa: PLR0917 - options of a command
    figure: Annotated[str, cli_option("Figure: 1 to 12; 4 with --file.", INPUT)] = "2",
    runs: RunsOption = RUNS,
    seed: SeedOption = 1,
    file: Annotated[Path | None, cli_option("CSV file of your own, for figure 4.", INPUT)] = None,
    user: Annotated[str | None, cli_option("Column of the user in --file (user).", INPUT)] = None,
    value: Annotated[
        str | None, cli_option("Column of the category in --file (value).", INPUT)
    ] = None,
    samples: Annotated[
        int | None,
        cli_option(
            "Samples of a user in --file, at most (100); users with less are left out.", INPUT
        ),
    ] = None,
    out: Annotated[Path, cli_option("Folder for kent-figure-N.png.", OUTPUT)] = Path(),
    json: JsonOption = False,
) -> None:
    """Reproduce a figure of "Rate optimality and phase transition for user-level local differential privacy".

    Runs the simulations, writes a PNG, and prints our numbers next to reference
    values.

    \b
    Example:
      meanstream reproduce kent --figure 2 --runs 50 --out figures
      meanstream reproduce kent --figure 4 --file stops.csv --user officer --value race
    """  # noqa: D301 - click reads the escape
    if (figure == OWN) != (file is not None):
        raise BadOption(f"file must be given with --figure {OWN}, and only then, got {file}")

    run = partial(
        reproduce_figure,
        out / f"kent-figure-{figure}.png",
        draw=partial(draw_panels, title=f"Kent, Berrett, Yu, Fig. {figure}"),
        lay_out=_lines,
        as_json=json,
    )
    if file is not None:
        columns = (file, user or "user", value or "value")
        run(
            measure=partial(_measure_file, columns, 100 if samples is None else samples, runs, seed)
        )
        return

    for name, option in {"user": user, "value": value, "samples": samples}.items():
        if option is not None:
            raise BadOption(f"{name} must be left out without --file, got {option!r}")

    if figure not in FIGURES:
        known = ", ".join(sorted([*FIGURES, OWN], key=int))
        raise BadOption(f"figure must be one of {known}, got {figure!r}")

    panels = FIGURES[figure]()
    with refusing_options():
        for curve in panels[0].curves:
            if (
                curve.points
                and _alternatives(curve.points[0])[0].get("estimator", "kent") != "kent"
            ):
                kent_configuration(_alternatives(curve.points[0])[0], runs, seed)

    known_of_it = paper_data("kent", dict[str, KentNote])[figure]
    run(
        measure=partial(_measure, figure, panels, known_of_it.note, runs, seed),
        name=figure,
        seconds=known_of_it.seconds * runs,
    )


def _measure(  # noqa: PLR0917 - private
    figure: str, panels: list[Panel], note: str, runs: int, seed: int, say: Say
) -> Result:
    """Simulate every point."""
    measured = Measured(runs, seed)
    shown = []
    for panel in panels:
        say(f"figure {figure}: {panel.title}")
        shown.append(panel.shown([_curve(curve, measured) for curve in panel.curves]))

    # A figure of formulas has no runs.
    simulated = any(curve.points for panel in panels for curve in panel.curves)
    return {
        "figure": figure,
        "runs": runs if simulated else None,
        "seed": seed,
        "deviations": any(curve.is_component for panel in panels for curve in panel.curves),
        "panels": shown,
        "note": note + finding_of(f"kent {figure}", shown),
    }


class Measured:
    """Simulations by their options: curves of the same components share them."""

    def __init__(self, runs: int, seed: int) -> None:
        self._runs = runs
        self._seed = seed
        self._known: dict[str, Any] = {}

    def __call__(self, point: Point) -> Any:
        """Simulate a point, once: one mean, with bins of any width or not, or several numbers."""
        name = json_text.dumps(point, sort_keys=True)
        if name not in self._known:
            self._known[name] = self._simulate(point)

        return self._known[name]

    def _simulate(self, point: Point) -> Any:
        from meanstream.lab.simulation.kent_schemes import phase_transition_error
        from meanstream.lab.simulation.simulated_rounds import (
            RoundsConfig,
            simulate_rounds,
            simulate_vectors,
        )

        if "half_width" in point:
            return phase_transition_error(**point, runs=PHASE_RUNS * self._runs, seed=self._seed)
        if point["estimator"] == "kent":
            config = RoundsConfig(**point, mode="paper", runs=self._runs, seed=self._seed)
            return simulate_rounds(config)

        return simulate_vectors(kent_configuration(point, self._runs, self._seed))


def kent_configuration(point: Point, runs: int, seed: int) -> VectorConfig:
    """Return the configuration of one point."""
    from meanstream.lab.simulation.simulated_rounds import VectorConfig

    return VectorConfig(**point, mode="paper", runs=runs, seed=seed)


def _alternatives(point: Point | Sequence[Point]) -> Sequence[Point]:
    """Give the simulations of a point, of which the one with the least error counts."""
    if isinstance(point, dict):
        return (point,)
    return point


def _curve(curve: Curve, measured: Measured) -> Result:
    points: list[tuple[float, float | None]] = [(y, None) for y in curve.y]
    if curve.points:
        points = [
            shown_point(curve, [measured(one) for one in _alternatives(point)])
            for point in curve.points
        ]

    scaled = list(zip(points, curve.divide or (1.0,) * len(curve.x), strict=True))
    return shown_curve(
        curve.label,
        curve.color,
        curve.line,
        curve.x,
        [y / scale for (y, _), scale in scaled],
        bar=[None if bar is None else bar / scale for (_, bar), scale in scaled],
        reference=curve.reference,
    )


def shown_point(curve: Curve, results: Sequence[VectorResult]) -> tuple[float, float | None]:
    """Give what a curve shows of its simulations, and its bar.

    Two standard errors; one deviation, for a component.
    """
    import numpy as np

    best = min(results, key=lambda result: result.mse)
    if curve.is_component:
        component = int(curve.measure.split()[1])
        return best.mean[component], best.deviation[component]

    if curve.measure == "found":
        signals = np.count_nonzero(best.theta)
        share = (np.array(best.found)[:, :signals] != 0.0).mean(axis=1)
        return float(share.mean()), 2.0 * float(share.std()) / len(share) ** 0.5

    return best.mse, None if best.stderr is None else 2.0 * best.stderr


def _measure_file(
    columns: tuple[Path, str, str], samples: int, runs: int, seed: int, say: Say
) -> Result:
    """Measure Fig. 4 on a file of one's own, by scheme, epsilon and number of samples.

    Two categories are one mean: the left panel, where the paper scales errors by epsilon squared.
    """
    from meanstream.lab.simulation.kent_schemes import own_mean_errors, own_share_errors
    from meanstream.operators.validation import require_least

    del say  # it takes seconds
    panels = []
    with refusing_options():
        require_least(2, samples=samples)
        require_least(1, runs=runs)
        data, names = read_own_shares(*columns, least=samples)
        grid = sorted({max(round(samples * share), 1) for share in SHARES_OF_LEAST})
        one_mean = len(names) == 2
        measure = own_mean_errors if one_mean else own_share_errors
        quantity = "mean squared error of all shares"
        if one_mean:
            quantity = f"mean squared error of the share of {names[0]}, times epsilon^2"

        for epsilon in EPSILONS:
            measure_at = partial(
                measure, data, epsilon=epsilon, constant=TUNED[epsilon], runs=runs, seed=seed
            )
            errors = [measure_at(samples=count) for count in grid]
            panel = Panel(
                title=f"epsilon {epsilon:g}",
                axis="samples per user",
                curves=(),
                quantity=quantity,
                log_x=False,
            )

            scale = epsilon**2 if one_mean else 1.0
            panels.append(panel.shown(_scheme_curves(grid, errors, scale)))

    users = f"{len(data.count):,} users with {samples} samples or more"
    note = f"{users}; categories {', '.join(names)}. {NOTE_OF_FILE}"
    return {
        "figure": OWN,
        "runs": runs,
        "seed": seed,
        "deviations": False,
        "panels": panels,
        "note": note,
    }


def _scheme_curves(
    grid: list[int], errors: list[dict[str, tuple[float, float | None]]], scale: float
) -> list[Result]:
    """Give a curve of scaled errors for each scheme."""
    from meanstream.lab.simulation.kent_schemes import SCHEMES

    curves = []
    for scheme, color in zip(SCHEMES, SPREAD, strict=False):
        means, stderrs = zip(*(error[scheme] for error in errors), strict=True)
        bars = [None if stderr is None else 2.0 * scale * stderr for stderr in stderrs]
        scaled = [scale * mean for mean in means]
        curves.append(shown_curve(scheme, color, "-", grid, scaled, bar=bars))

    return curves


def read_own_shares(
    path: Path, user: str, value: str, *, least: int
) -> tuple[OwnShares, list[str]]:
    """Read two columns of a CSV file; rows without one of them are left out."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute as pc
    from pyarrow import csv

    from meanstream.lab.simulation.kent_schemes import OwnShares
    from meanstream.operators.validation import require

    require(path.is_file(), "file", "be a CSV file", str(path))
    kinds = {user: pa.string(), value: pa.string()}
    convert = csv.ConvertOptions(
        include_columns=[user, value], column_types=kinds, strings_can_be_null=True
    )

    try:
        table = csv.read_csv(path, convert_options=convert).drop_null()
    except (pa.ArrowException, UnicodeDecodeError):  # whose texts show values
        raise ValueError(
            f"file must be a CSV file with columns {user!r} and {value!r}, got {str(path)!r}"
        ) from None

    # The most frequent categories; the others are one.
    counts = pc.value_counts(table[value]).to_pylist()
    counts.sort(key=lambda count: (-count["counts"], count["values"]))
    names = [str(count["values"]) for count in counts]
    require(len(names) >= 2, "value", "be a column of at least 2 categories", value)
    kept = names if len(names) <= MOST_CATEGORIES else names[: MOST_CATEGORIES - 1]

    category = pc.fill_null(pc.index_in(table[value], value_set=pa.array(kept)), len(kept))
    owner = pc.index_in(table[user], value_set=pc.unique(table[user]))
    data = OwnShares.of(
        owner.to_numpy().astype(np.int64), category.to_numpy().astype(np.int64), least=least
    )
    return data, kept if len(names) <= MOST_CATEGORIES else [*kept, "all others"]


def _lines(result: Result) -> Iterator[str]:
    """Lay out our numbers next to the reference."""
    bars = [bar for panel in result["panels"] for curve in panel["curves"] for bar in curve["bar"]]
    measure = "one standard deviation" if result["deviations"] else "two standard errors"
    drawn = f"; +- and bars: {measure}" if any(bar is not None for bar in bars) else ""
    runs = number_text(result["runs"], ", {} runs") or ", of formulas: no runs"
    yield f"figure {result['figure']}{runs}{drawn}"

    for panel in result["panels"]:
        yield f"\n{panel['title']}: {panel['quantity']} ({panel['axis']})"
        for curve in panel["curves"]:
            known = {entry["x"]: entry["y"] for entry in curve["reference"]}
            names = panel["names"] or [f"{x:.3g}" for x in curve["x"]]
            points = list(zip(names, curve["x"], curve["y"], curve["bar"], strict=True))
            cells = [
                f"{name}: {y:.3g}"
                + number_text(bar, " +- {:.1g}")
                + number_text(known.get(x), " (reference {:.3g})")
                for name, x, y, bar in points[:: 1 + len(points) // MOST_SHOWN]
            ]
            yield f"  {curve['label']:<36} " + "   ".join(cells)
