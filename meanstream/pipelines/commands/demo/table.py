"""The demo's closing report: some aircraft, the score, the population."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meanstream.pipelines.commands.demo.flights import Truth
from meanstream.pipelines.commands.demo.score import MIN_COUNT

if TYPE_CHECKING:
    from meanstream.operators.records import Ints
    from meanstream.pipelines.commands.demo.agents import Answers

ROWS = 5


def print_demo_table(truth: Truth, answers: Answers, result: dict[str, Any]) -> None:
    """Print the table and the sentences below it."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Mean departure delay of an aircraft, minutes (95 % intervals)")
    for name in ("aircraft", "flights", "alone", "private, collaborative", "pulled to the group", "held-back mean"):
        table.add_column(name, justify="left" if name == "aircraft" else "right")
    for title, rows in (("most gain", _most_gain(answers)), ("typical", _typical(answers))):
        table.add_section()
        table.add_row(f"[bold]{title}[/bold]")
        for i in rows:
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
    lines = [
        f"Squared error on the held-back flights, relative to learning alone, over the aircraft with at least "
        f"{MIN_COUNT} flights in each half:"
    ]
    for method, s in result["squared_error_relative_to_alone"].items():
        lines.append(
            f"  {method:<14} {s['ratio']:.2f} (standard error {s['stderr']:.2f}; {s['aircraft']:,} aircraft); "
            f"intervals cover {100 * s['coverage']:.0f} %"
        )
    lines.append(result["population"])
    lines.append(
        f"Privacy: ({result['epsilon']:g}, {result['delta']:g}) for each flight's delay, over the year, against "
        "everybody else together; an aircraft's flights together are protected less. Who flew when is public. The "
        "demo's noise is seeded; a real run keeps its key secret."
    )
    picture = result["picture"]
    lines.append(f"Picture: {picture}" if picture else "No picture: pip install 'meanstream[plot]' draws one.")
    return lines


def _with_interval(value: float, lower: float, upper: float) -> str:
    return f"{value:.1f} [{lower:.1f}, {upper:.1f}]"


def _most_gain(answers: Answers) -> Ints:
    """Aircraft with enough flights whose interval shrank most."""
    import numpy as np

    eligible = np.flatnonzero(answers.count >= MIN_COUNT)
    best: Ints = eligible[np.argsort(-answers.gain[eligible], kind="stable")][:ROWS]
    return best


def _typical(answers: Answers) -> Ints:
    """Aircraft from few to many flights: the quantiles .1, .3, .5, .7, .9 of their number."""
    import numpy as np

    known = np.flatnonzero(answers.count > 0)
    ordered = known[np.argsort(answers.count[known], kind="stable")]
    typical: Ints = ordered[(np.linspace(0.1, 0.9, ROWS) * (len(ordered) - 1)).astype(int)]
    return typical
