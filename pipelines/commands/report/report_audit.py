"""A report of what `meanstream audit ... --json` found.

Claimed against proved, next to what could have been proved.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from meanstream.pipelines.commands.report.report_charts import audit_chart
from meanstream.pipelines.commands.report.report_parts import (
    ReportPage,
    ReportPart,
    report_made,
    report_part_number,
)

_NUMBERS = ("claimed", "proved", "ceiling", "delta")
_TEXTS = ("name", "method", "assumption")


def is_audit_result(found: dict[str, Any]) -> bool:
    """Whether an object is what an audit printed."""
    rows = found.get("rows")
    return (
        {"rows", "violated", "notes"} <= found.keys()
        and all(isinstance(found[name], list) for name in ("rows", "violated", "notes"))
        and bool(rows)
        and all(isinstance(row, dict) and _is_row(row) for row in found["rows"])
    )


def _is_row(row: dict[str, Any]) -> bool:
    numbers: list[Any] = [row.get(name) for name in _NUMBERS]
    known = all(
        type(value) in (int, float) and math.isfinite(value) and value >= 0 for value in numbers
    )

    return (
        known
        and row["claimed"] > 0
        and all(isinstance(row.get(name), str) for name in _TEXTS)
        and isinstance(row.get("violated"), bool)
    )


def report_of_audit(path: Path, found: dict[str, Any]) -> ReportPage:
    """Draw an audit, and say how each bound was found.

    Examples
    --------
    >>> row = {"name": "engine", "claimed": 1, "proved": 0.97, "ceiling": 0.98, "delta": 1e-6, "violated": False}
    >>> row |= {"method": "one run", "assumption": "none", "fault": None}
    >>> page = report_of_audit(Path("audit.json"), {"rows": [row], "violated": [], "notes": []})
    >>> [part.title for part in page.parts]
    ['Claimed and proved', 'How each was found']
    """
    rows = found["rows"]
    wrong = [row["name"] for row in rows if row["violated"]]
    verdict = (
        f"{', '.join(wrong)} promise more than they keep."
        if wrong
        else "Nothing promises more than it keeps."
    )

    text = (
        f"{verdict} Proved is a lower bound on the true epsilon, so a smaller claim would be false. The ceiling is the "
        "bound for a mechanism that uses its whole claim; where it is low, a low bound says little. By chance one in "
        "twenty of one run's bounds lies above the truth, and one audit in a million reports a violation."
    )
    drawn = ReportPart(
        title="Claimed and proved", text=text, picture=audit_chart(rows), table=[*map(_line, rows)]
    )
    ways: dict[str, list[str]] = {}

    for row in rows:
        ways.setdefault(f"{row['method']}; assumed: {row['assumption']}", []).append(row["name"])

    how = [(", ".join(names), way) for way, names in ways.items()]
    said = "; ".join(str(note) for note in found["notes"])
    return ReportPage(
        title="Meanstream: audit",
        about=f"From {path.name}, the output of an audit of the running code.",
        parts=[drawn, ReportPart(title="How each was found", text=said, table=how)],
        facts=[report_made(), ("source", path.name)],
    )


def _line(row: dict[str, Any]) -> tuple[str, str]:
    claimed, proved, ceiling = (
        report_part_number(float(row[name])) for name in ("claimed", "proved", "ceiling")
    )
    at = f" at delta {row['delta']:g}" if row["delta"] else ""
    end = f": VIOLATED {row.get('fault') or ''}".rstrip() if row["violated"] else ""

    return row["name"], f"claimed {claimed}{at}, proved {proved}, ceiling {ceiling}{end}"
