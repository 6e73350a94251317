"""The demo's closing report: some aircraft, the score, the population."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from meanstream.lab.demo.demo_score import MIN_COUNT
from meanstream.lab.demo.flights import Truth

if TYPE_CHECKING:
    from meanstream.lab.demo.demo_score import Answers

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
