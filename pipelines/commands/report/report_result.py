"""Reports from result files.

What `simulate` or `audit` printed, or the means that a run of rounds wrote.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import median
from typing import Any

from meanstream.operators.estimators.registry import ESTIMATORS, estimator_class
from meanstream.pipelines.commands.report.report_charts import (
    audit_chart,
    drift_chart,
    errors_chart,
    simulation_chart,
    stages_chart,
    windows_chart,
)
from meanstream.pipelines.commands.report.report_parts import (
    ReportPage,
    ReportPart,
    report_made,
    report_part_command_line,
    report_part_number,
    report_part_options,
    report_parts_as_html,
)
from meanstream.pipelines.options.option_errors import BadOption
from meanstream.pipelines.page.page_figures import page_figures_of_window

KINDS = "what `meanstream simulate agents|rounds` or `audit` printed with --json, or the .jsonl of `run rounds --sink`"
MOST_BYTES = 1 << 28
"""Of a result: half a million windows; who names more has named something else."""

_NOT_OF_OURS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading a file of someone else's runs into: a field that is missing, of another type, or too
large."""


def report_of_result(path: Path) -> ReportPage:
    """Read a result file and report what it says."""
    try:
        page = _page_of(path, _objects(path))
        _ = None if page is None else report_parts_as_html(page)  # texts that are none show here
    except _NOT_OF_OURS:
        page = None

    if page is None:
        raise BadOption(f"result must be {KINDS}, got {str(path)!r}")
    return page


def _page_of(path: Path, objects: list[dict[str, Any]]) -> ReportPage | None:
    # Each kind of result is known by fields that no other has.
    first = objects[0]
    if {"value", "interval", "stages", "start"} <= first.keys():
        return _of_windows(path, objects)
    if len(objects) == 1 and "mse" in first and isinstance(first.get("config"), dict):
        return _of_simulation(path, first)
    if len(objects) == 1 and is_drift_result(first):
        return report_of_drift(path, first)

    if len(objects) == 1 and is_audit_result(first):
        return report_of_audit(path, first)
    return None


def report_result_windows(rows: list[dict[str, Any]]) -> list[ReportPart]:
    """Say what the windows answered: a picture, and figures."""
    # Of all windows: figures that anyone may read.
    users = [row["users"] for row in rows]
    table = [
        ("windows", report_part_number(len(rows))),
        ("users per window, median", report_part_number(median(users))),
        ("from", rows[0]["start"]),
        ("to", rows[-1]["end"]),
        ("estimator", ", ".join(sorted({row["method"] for row in rows}))),
    ]

    # Intervals of vectors have no single length.
    if not isinstance(rows[-1]["value"], list):
        widths = [(row["upper"] - row["lower"]) / 2 for row in rows]
        table.append(("half-width of the interval, median", report_part_number(median(widths))))

    said = "Each window's private mean over its users, with its interval."
    if "categories" in rows[-1]:
        said = "The private shares of the categories in the newest window: every user counts once."

    if "quantiles" in rows[-1]:
        said = "The private quantiles over users of their own means, in the newest window: every user counts once."

    parts = [
        ReportPart(title="Rounds per window", text=said, picture=windows_chart(rows), table=table)
    ]
    drawn = stages_chart(rows[-1])

    # Only localizing estimators have stages to draw.
    if drawn is not None:
        said = f"The newest window, from {rows[-1]['start']}: the interval of each stage, as those before it chose it."
        parts.append(ReportPart(title="Stages of a round", text=said, picture=drawn))

    return parts


def _of_windows(path: Path, events: list[dict[str, Any]]) -> ReportPage:
    # Windows in the order of time, whatever order the file has.
    made = [report_made(), ("source", path.name)]
    rows = [
        page_figures_of_window(event, None)
        for event in sorted(events, key=lambda event: str(event["start"]))
    ]

    newest = events[-1]
    privacy = [
        (
            "protected",
            "all that one user sent within a window; a user in several windows is protected less",
        ),
        ("epsilon", report_part_number(float(newest["epsilon"]))),
        ("delta", report_part_number(float(newest["delta"]))),
        ("noise added by", "each user" if newest["trust"] == "local" else "a trusted curator"),
        ("coverage of the intervals", report_part_number(float(newest["level"]))),
    ]

    return ReportPage(
        title="Meanstream: rounds",
        about=f"From the window estimates in {path.name}, all of which are public.",
        parts=[
            *report_result_windows(rows),
            ReportPart(title="Privacy and reliability", table=privacy),
        ],
        facts=made,
    )


def _of_simulation(path: Path, result: dict[str, Any]) -> ReportPage:
    config = result["config"]
    agents = "checkpoints" in result

    # Plain numbers of the result are a table; series are drawn.
    figures = [
        (name, report_part_number(value)) for name, value in result.items() if _figure(value)
    ]

    if agents:
        last = [
            (f"{name} at {result['checkpoints'][-1]:,} samples", report_part_number(series[-1]))
            for name, series in _series(result)
        ]
        parts = [
            ReportPart(
                title="Convergence",
                text="Mean squared error of the agents' estimates against samples per agent, with 95 % of its own "
                "error. For comparison: learning alone (local), all raw data of an agent's class (ideal), and the "
                "same releases with "
                "true classes (oracle).",
                picture=simulation_chart(result),
                table=last,
            )
        ]
    else:
        said = "Mean squared error over simulated windows, with 95 % of its own error, and the predicted error."
        parts = [ReportPart(title="Error", text=said, picture=errors_chart(result))]

    parts.append(ReportPart(title="Reliability", table=figures))
    parts.append(ReportPart(title="Privacy", table=_privacy(config, agents=agents)))
    parts.append(ReportPart(title="Configuration", table=report_part_options(config)))
    parts.append(
        ReportPart(
            title="The command that made the result",
            lines=_simulation_command(config, agents=agents),
        )
    )

    return ReportPage(
        title=f"Meanstream: simulation of {'agents' if agents else 'rounds'}",
        about=f"From {path.name}. The noise of a simulation is seeded and protects no one.",
        parts=parts,
        facts=[report_made(), ("source", path.name)],
    )


def _simulation_command(config: dict[str, Any], *, agents: bool) -> str:
    """Write the command whose result has this configuration."""
    # Some settings of a simulation follow from its other options.
    if agents:
        own = ("significance", "level")  # not options of the command
        options = {name: value for name, value in config.items() if name not in own}
        return report_part_command_line("simulate agents", options | {"json": True})

    options = {name: value for name, value in config.items() if name != "options"}
    flags = "".join(
        f" --option {name}={value}" for name, value in config.get("options", {}).items()
    )

    return report_part_command_line("simulate rounds", options) + flags + " --json"


def _privacy(config: dict[str, Any], *, agents: bool) -> list[tuple[str, str]]:
    unit = "one user's samples in a window; a user in several windows is protected less"
    if agents:
        unit = "one sample, over all releases of its agent; a person with many samples is protected less"
    elif _protects_samples(config.get("estimator")):
        unit = "one sample; a user with many samples is protected less"

    rows = [("protected", unit), ("epsilon", report_part_number(float(config["epsilon"])))]

    if "delta" in config:
        return [*rows, ("delta", report_part_number(float(config["delta"])))]
    return rows


def _protects_samples(estimator: Any) -> bool:
    return estimator in ESTIMATORS and estimator_class(estimator).privacy_unit == "sample"


def _series(result: dict[str, Any]) -> list[tuple[str, list[float]]]:
    names = ("mse", "local", "ideal", "oracle", "coverage", "type1", "type2")
    return [(name, result[name]) for name in names if result.get(name) is not None]


def _figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _objects(path: Path) -> list[dict[str, Any]]:
    """Read one JSON object, or one per line."""
    # No more is read than a result can be: files come from anywhere.
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)

        text = data.decode()
    except (OSError, UnicodeDecodeError):
        raise BadOption(f"result must be a readable file, got {str(path)!r}") from None

    if len(data) > MOST_BYTES:
        raise BadOption(f"result must be at most {MOST_BYTES} bytes, got more in {str(path)!r}")

    # One object, or one a line.
    for pieces in ([text], [line for line in text.splitlines() if line.strip()]):
        try:
            objects = [json.loads(piece) for piece in pieces]
            _ = json.dumps(objects, ensure_ascii=False).encode()  # no half of a surrogate pair
        except (ValueError, RecursionError):
            continue

        if objects and all(isinstance(value, dict) for value in objects):
            return objects

    raise BadOption(f"result must be {KINDS}, got {str(path)!r}")


PARTS = {"changed": "agents that moved", "unchanged": "the others"}
_NOT_OPTIONS = ("lower", "upper", "ages")


def is_drift_result(found: dict[str, Any]) -> bool:
    """Tell it by its fields."""
    return {"ages", "changed", "unchanged"} <= found.keys() and isinstance(
        found.get("config"), dict
    )


def report_of_drift(path: Path, result: dict[str, Any]) -> ReportPage:
    """Draw a result, and say how it was made."""
    config = result["config"]

    # Parts that were measured: without changes there may be only one.
    measured = {title: result[part] for part, title in PARTS.items() if result[part]}
    table = [
        (
            f"{title}, {age:,} samples later",
            f"{report_part_number(error)}, {report_part_number(share)} covered",
        )
        for title, part in measured.items()
        for age, error, share in zip(result["ages"], part["mse"], part["coverage"], strict=True)
    ]

    privacy = [
        (
            "protected",
            "one sample, over all releases of its agent; a person with many samples is protected less",
        ),
        ("epsilon", report_part_number(float(config["epsilon"]))),
        ("delta", report_part_number(float(config["delta"]))),
    ]

    # The options from which the same result comes again.
    options = {name: value for name, value in config.items() if name not in _NOT_OPTIONS}
    said = (
        f"Mean squared error of the agents' estimates by the samples of an agent since the change ({config['change']}, "
        f"memory {config['memory']}), with 95 % of its own error."
    )
    covered = "Share of the agents whose mean lies in their 95 % interval."

    return ReportPage(
        title="Meanstream: simulation of means that move",
        about=f"From {path.name}. The noise of a simulation is seeded and protects no one.",
        parts=[
            ReportPart(
                title="Error since the change", text=said, picture=drift_chart(result, PARTS, "mse")
            ),
            ReportPart(
                title="Coverage since the change",
                text=covered,
                picture=drift_chart(result, PARTS, "coverage"),
                table=table,
            ),
            ReportPart(title="Privacy", table=privacy),
            ReportPart(title="Configuration", table=report_part_options(config)),
            ReportPart(
                title="The command that made the result",
                lines=report_part_command_line("simulate agents", options | {"json": True}),
            ),
        ],
        facts=[report_made(), ("source", path.name)],
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
    of_delta = f" at delta {row['delta']:g}" if row["delta"] else ""
    end = f": VIOLATED {row.get('fault') or ''}".rstrip() if row["violated"] else ""

    return row["name"], f"claimed {claimed}{of_delta}, proved {proved}, ceiling {ceiling}{end}"
