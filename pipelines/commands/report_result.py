"""Reports from result files: what `simulate` printed, or the means that a run of rounds wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.commands.options import BadOption
from pipelines.commands.report_parts import Part, Report, command_line, number

KINDS = "what `meanstream simulate agents|rounds --json` printed, or the .jsonl of `run rounds --sink`"


def report_of_result(path: Path) -> Report:
    """Read a result file and report what it says.

    Raises
    ------
    BadOption
        If it is not one of `KINDS`.
    """
    objects = _objects(path)
    first = objects[0]
    if {"value", "interval", "stages", "start"} <= first.keys():
        return _of_windows(path, objects)
    if len(objects) == 1 and "mse" in first and isinstance(first.get("config"), dict):
        return _of_simulation(path, first)
    raise BadOption(f"result must be {KINDS}, got {str(path)!r}")


def window_parts(rows: list[dict[str, Any]]) -> list[Part]:
    """Say what the windows answered: a picture, and figures."""
    from statistics import median

    from pipelines.commands.report_charts import windows_chart

    users = [row["users"] for row in rows]
    table = [
        ("windows", number(len(rows))),
        ("users per window, median", number(median(users))),
        ("from", rows[0]["start"]),
        ("to", rows[-1]["end"]),
        ("estimator", ", ".join(sorted({row["method"] for row in rows}))),
    ]
    if not isinstance(rows[-1]["value"], list):
        widths = [(row["upper"] - row["lower"]) / 2 for row in rows]
        table.append(("half-width of the interval, median", number(median(widths))))
    said = "Each window's private mean over its users, with its interval."
    return [Part(title="Rounds per window", text=said, picture=windows_chart(rows), table=table)]


def _of_windows(path: Path, events: list[dict[str, Any]]) -> Report:
    from pipelines.page.figures import window_row

    rows = [window_row(event, None) for event in sorted(events, key=lambda event: str(event["start"]))]
    newest = events[-1]
    privacy = [
        ("protected", "all that one user sent within a window"),
        ("epsilon", number(float(newest["epsilon"]))),
        ("delta", number(float(newest["delta"]))),
        ("noise added by", "each user" if newest["trust"] == "local" else "a trusted curator"),
        ("coverage of the intervals", number(float(newest["level"]))),
    ]
    return Report(
        title="Meanstream: rounds",
        about=f"From the window estimates in {path.name}, all of which are public.",
        parts=[*window_parts(rows), Part(title="Privacy and reliability", table=privacy)],
    )


def _of_simulation(path: Path, result: dict[str, Any]) -> Report:
    from pipelines.commands.report_charts import errors_chart, simulation_chart

    config = result["config"]
    agents = "checkpoints" in result
    figures = [(name, number(value)) for name, value in result.items() if _figure(value)]
    if agents:
        last = [
            (f"{name} at {result['checkpoints'][-1]:,} samples", number(series[-1])) for name, series in _series(result)
        ]
        parts = [
            Part(
                title="Convergence",
                text="Mean squared error of the agents' estimates against samples per agent, with 95 % of its own "
                "error; beside learning alone (local), all raw data of one's class (ideal) and the same releases with "
                "true classes (oracle).",
                picture=simulation_chart(result),
                table=last,
            )
        ]
    else:
        said = "Mean squared error over simulated windows, with 95 % of its own error, beside what is predicted."
        parts = [Part(title="Error", text=said, picture=errors_chart(result))]
    parts.append(Part(title="Reliability", table=figures))
    parts.append(Part(title="Privacy", table=_privacy(config, agents=agents)))
    parts.append(Part(title="Configuration", table=[(name, _shown(value)) for name, value in config.items()]))
    parts.append(Part(title="The command that made the result", lines=simulation_command(config, agents=agents)))
    return Report(
        title=f"Meanstream: simulation of {'agents' if agents else 'rounds'}",
        about=f"From {path.name}. The noise of a simulation is seeded: it protects nobody.",
        parts=parts,
    )


def simulation_command(config: dict[str, Any], *, agents: bool) -> str:
    """Write the command whose result has this configuration."""
    if agents:
        own = ("significance", "level")  # not options of the command
        options = {name: value for name, value in config.items() if name not in own}
        return command_line("simulate agents", options | {"json": True})
    options = {name: value for name, value in config.items() if name != "options"}
    flags = "".join(f" --option {name}={value}" for name, value in config.get("options", {}).items())
    return command_line("simulate rounds", options) + flags + " --json"


def _privacy(config: dict[str, Any], *, agents: bool) -> list[tuple[str, str]]:
    unit = "one sample, over all releases of its agent" if agents else "one user's samples in a window"
    if config.get("estimator") == "item":
        unit = "one sample"
    rows = [("protected", unit), ("epsilon", number(float(config["epsilon"])))]
    return [*rows, ("delta", number(float(config["delta"])))] if "delta" in config else rows


def _series(result: dict[str, Any]) -> list[tuple[str, list[float]]]:
    names = ("mse", "local", "ideal", "oracle", "coverage", "type1", "type2")
    return [(name, result[name]) for name in names if result.get(name) is not None]


def _figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _objects(path: Path) -> list[dict[str, Any]]:
    """Read one JSON object, or one per line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise BadOption(f"result must be a readable file, got {str(path)!r}") from None
    for pieces in ([text], [line for line in text.splitlines() if line.strip()]):
        try:
            found = [json.loads(piece) for piece in pieces]
        except json.JSONDecodeError:
            continue
        if found and all(isinstance(one, dict) for one in found):
            return found
    raise BadOption(f"result must be {KINDS}, got {str(path)!r}")
