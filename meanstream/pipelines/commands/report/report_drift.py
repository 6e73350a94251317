"""The report of `simulate agents --change --json`: errors and coverage by the samples since a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meanstream.pipelines.commands.report.report_parts import (
    ReportPage,
    ReportPart,
    report_made,
    report_part_command_line,
    report_part_number,
    report_part_options,
)

PARTS = {"changed": "agents that moved", "unchanged": "the others"}
_NOT_OPTIONS = ("lower", "upper", "ages")


def is_drift_result(found: dict[str, Any]) -> bool:
    """Tell it by its fields."""
    return {"ages", "changed", "unchanged"} <= found.keys() and isinstance(found.get("config"), dict)


def report_of_drift(path: Path, result: dict[str, Any]) -> ReportPage:
    """Draw a result, and say how it was made."""
    from meanstream.pipelines.commands.report.report_charts import drift_chart

    config, measured = result["config"], {title: result[part] for part, title in PARTS.items() if result[part]}
    table = [
        (f"{title}, {age:,} samples later", f"{report_part_number(error)}, {report_part_number(share)} covered")
        for title, part in measured.items()
        for age, error, share in zip(result["ages"], part["mse"], part["coverage"], strict=True)
    ]
    privacy = [
        ("protected", "one sample, over all releases of its agent; a person with many samples is protected less"),
        ("epsilon", report_part_number(float(config["epsilon"]))),
        ("delta", report_part_number(float(config["delta"]))),
    ]
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
            ReportPart(title="Error since the change", text=said, picture=drift_chart(result, PARTS, "mse")),
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
