"""Coverage, error and length of intervals where samples depend on each other, by number of samples, against the goals.

`python benchmarks/dependent.py [--runs 5] [--seed 1] [--agents 400] [--table docs/how-to/read-an-interval.md]`

Agents are those that the engine hosts, at epsilon 1. A goal counts as missed where the figure is
beyond it by more than two standard errors over runs; the program then exits with 1. The last two
rows are known limits and have no goal.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from meanstream.lab.simulation.drift.dependence_laws import (
    DependenceConfig,
    DependenceResult,
    simulate_dependence,
)

PROCESSES = {
    "none": "independent samples",
    "ar:0.3": "AR(1), correlation 0.3",
    "ar:0.5": "AR(1), correlation 0.5",
    "ar:0.9": "AR(1), correlation 0.9",
    "bursts:5": "each value sent 5 times",
    "ma:3": "moving sums of 4",
    "markov:0.5": "yes/no, Markov, 0.5",
    "half-ar:0.9": "AR(1) 0.9, half of the agents",
    "heavy-ar:0.5": "AR(1) 0.5, Student t3",
    "ar:-0.5": "AR(1), correlation -0.5",
    "cycle:144": "a daily cycle of 144 samples",
    "shocks:0.25": "shocks that all agents share",
}
LIMITS = frozenset({"cycle:144", "shocks:0.25"})
"""Known limits: an interval of less than some periods of a cycle or of common shocks cannot know of
them."""
COVERAGE = {150: 0.92, 500: 0.94}
"""Least coverage from so many samples on."""
ERROR = 1.02
ERROR_NEGATIVE = 1.05
"""Most squared error relative to own means; the second for negative correlations, from 500 samples
on."""
INDEPENDENT_LENGTH = {60: 1.03, 150: 1.01}
"""Most length, of independent samples, relative to intervals that take samples for independent."""
KNOWN_LENGTH = 1.25
KNOWN_FROM = 500
"""Most length, of AR(1) samples, relative to intervals that know the long-run variance."""
BEGIN = "<!-- table: dependent samples -->"
END = "<!-- end of table: dependent samples -->"


def main() -> None:
    """Measure, print, and write the table into a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, default=400)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    lines = []

    missed = []
    for name, title in PROCESSES.items():
        found = simulate_dependence(
            DependenceConfig(
                dependence=name, runs=options.runs, seed=options.seed, agents=options.agents
            )
        )
        lines.append(row(title, found))
        print(lines[-1], flush=True)
        missed += [] if name in LIMITS else list(missed_goals(name, found))

    print("\n".join(missed) or "every goal is met")
    if options.table is not None:
        write(
            options.table,
            lines,
            f"--runs {options.runs} --seed {options.seed} --agents {options.agents}",
        )

    raise SystemExit(bool(missed))


def row(title: str, found: DependenceResult) -> str:
    """Lay out one row of the table."""
    columns = (found.coverage, found.ratio, found.independent_width, found.ideal_width)
    cells = (" / ".join(f"{value:.2f}" for value in column) for column in columns)
    return f"| {title} | {' | '.join(cells)} |"


def missed_goals(name: str, found: DependenceResult) -> list[str]:
    """Say which goals are missed by more than two standard errors."""
    missed = []
    for place, count in enumerate(found.checkpoints):
        coverage = found.coverage[place]
        error = found.ratio[place]
        least = max((goal for first, goal in COVERAGE.items() if count >= first), default=0.0)
        if coverage + 2 * found.coverage_stderr[place] < least:
            missed.append(f"{name}, {count} samples: coverage {coverage:.3f}, goal {least}")
        negative = ":-" in name
        most = ERROR_NEGATIVE if negative else ERROR
        if error - 2 * found.ratio_stderr[place] > most and not (negative and count < KNOWN_FROM):
            missed.append(f"{name}, {count} samples: error {error:.3f} of alone, goal {most}")

        limit = min(
            (goal for first, goal in INDEPENDENT_LENGTH.items() if count >= first), default=9.0
        )

        if name == "none" and found.independent_width[place] > limit:
            missed.append(
                f"{name}, {count} samples: length {found.independent_width[place]:.3f}, goal {limit}"
            )

        known = found.ideal_width[place]
        if name.startswith("ar:") and count >= KNOWN_FROM and known > KNOWN_LENGTH:
            missed.append(
                f"{name}, {count} samples: length {known:.3f} of known, goal {KNOWN_LENGTH}"
            )

    return missed


def write(page: Path, lines: list[str], how: str) -> None:
    """Put the table into its place in a page."""
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    head = [
        f"Made by `python benchmarks/dependent.py {how} --table {page}`.",
        "Cells are after 60 / 150 / 500 / 1500 samples.",
        "",
        "| samples | coverage of 95 % intervals | squared error, to own means | length, to assuming independence | "
        "length, to knowing the variance |",
        "|---|---|---|---|---|",
    ]

    page.write_text(before + BEGIN + "\n" + "\n".join([*head, *lines]) + "\n" + END + after)


if __name__ == "__main__":
    main()
