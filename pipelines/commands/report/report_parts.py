"""What a report is made of, and how it becomes one HTML file that refers to nothing outside of it."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.streaming.store.source_identity import source_identity_of
from meanstream.streaming.store.state_store import Store

if TYPE_CHECKING:
    from meanstream.streaming.store.store_audit import LedgerReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """A section: a heading, what it says, and perhaps a picture (SVG), a table or preformatted text.

    `aligned` text is in columns, which a narrow window does not break.
    """

    title: str
    text: str = ""
    picture: str | None = None
    table: Sequence[tuple[str, str]] = ()
    lines: str | None = None
    aligned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """A title, what it was made from, and its sections; `facts` say which run it is."""

    title: str
    about: str
    parts: Sequence[ReportPart]
    facts: Sequence[tuple[str, str]] = ()


STYLE = """
:root { color-scheme: light dark; --back: #f4f5f7; --card: #fff; --ink: #1c2330; --quiet: #566074; --line: #dfe3ea;
  --blue: #1a6bc2; --gray: #6b7280; --orange: #b8500f; }
@media (prefers-color-scheme: dark) {
  :root { --back: #11151c; --card: #1a202b; --ink: #e8ecf3; --quiet: #a3adbf; --line: #313a49;
    --blue: #6cb0ff; --gray: #aab2c0; --orange: #ff9d5c; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1000px; padding: 18px 12px; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 17px; margin: 0 0 4px; }
p { margin: 0 0 8px; color: var(--quiet); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px; margin: 12px 0; }
figure { margin: 0; }
svg { display: block; width: 100%; height: auto; }
.narrow { display: none; }
table { border-collapse: collapse; margin-top: 10px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 3px 14px 3px 0; border-top: 1px solid var(--line); overflow-wrap: anywhere; }
th { font-weight: 500; color: var(--quiet); overflow-wrap: normal; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0;
  font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
@media (max-width: 640px) {
  .wide { display: none; }
  .narrow { display: block; }
  section { padding: 12px 10px; }
  pre.facts { white-space: pre; overflow-x: auto; font-size: 12px; }
  th, td { padding-right: 8px; }
}
"""

REPORT_MARK = '<meta name="generator" content="meanstream report">'
"""By which a report of ours is known: a new one may take its place."""


def report_parts_as_html(report: ReportPage) -> str:
    """Write the report; nothing in it is fetched from anywhere."""
    parts = "\n".join(_section(part) for part in report.parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{REPORT_MARK}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(report.title)}</title>\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n<h1>{escape(report.title)}</h1>\n<p>{escape(report.about)}</p>\n{_table(report.facts)}\n{parts}\n</body>\n</html>\n"
    )


def _section(part: ReportPart) -> str:
    pieces = [f"<h2>{escape(part.title)}</h2>"]
    if part.text:
        pieces.append(f"<p>{escape(part.text)}</p>")

    if part.picture is not None:
        pieces.append(f"<figure>{part.picture}</figure>")

    if part.table:
        pieces.append(_table(part.table))

    if part.lines is not None:
        kind = ' class="facts"' if part.aligned else ""
        pieces.append(f"<pre{kind}>{escape(part.lines)}</pre>")

    return "<section>\n" + "\n".join(pieces) + "\n</section>"


def _table(rows: Sequence[tuple[str, str]]) -> str:
    lines = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows
    )

    if lines:
        return f"<table>{lines}</table>"
    return ""


def report_part_command_line(command: str, options: Mapping[str, Any]) -> str:
    """Write a command as it is typed; an option that is None is left out.

    Examples
    --------
    >>> report_part_command_line("run agents", {"lower": 0.0, "schedule": "every:1 d", "users": None, "literal": False})
    "meanstream run agents --lower 0 --schedule 'every:1 d' --no-literal"
    """
    words = ["meanstream", *command.split()]
    for name, value in options.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            words += [f"--{option}", _word(value)]

    return " ".join(shlex.quote(word) for word in words)


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_word, value))

    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def report_part_number(value: float | None) -> str:
    """Write a figure for reading.

    Examples
    --------
    >>> report_part_number(1234567), report_part_number(0.123456), report_part_number(None)
    ('1,234,567', '0.1235', '-')
    """
    if value is None:
        return "-"

    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}"


def report_part_options(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Write a configuration for reading.

    Examples
    --------
    >>> report_part_options({"memory": "forever", "ages": None, "runs": 5})
    [('memory', 'forever'), ('ages', 'null'), ('runs', '5')]
    """
    return [
        (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in config.items()
    ]


def report_made() -> tuple[str, str]:
    """Say when the report was made."""
    return "made", datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%d %H:%M UTC")


def report_run_facts(path: Path, settings: Any) -> list[tuple[str, str]]:
    """Public: say which run a store is of, and when the report was made."""
    with closing(Store.read(path)) as store:
        source = (source_identity_of(store) or {}).get("source") or "none yet"
        name = str((store.settings() or {}).get("name"))

    spent = f"epsilon {settings.epsilon:g}" + (
        f", delta {settings.delta:g}" if settings.delta else ""
    )
    facts = [
        ("deployment", name),
        ("source", str(source)),
        ("privacy", f"{spent} of {settings.unit}"),
    ]

    return [report_made(), *facts, ("version", version("meanstream"))]


def report_part_ledger_table(ledger: LedgerReport) -> list[tuple[str, str]]:
    """Say what verifying the ledger found."""
    return [
        ("rows of the ledger, each compared with its hash chain", report_part_number(ledger.rows)),
        ("agents or users charged", report_part_number(ledger.agents)),
        ("head of the ledger", ledger.head.hex()),
    ]


def report_part_commands(
    kind: str, path: Path, flags: dict[str, Any], more: str = ""
) -> ReportPart:
    """Write the commands of a run, with `more` behind the options of the first."""
    lines = [
        report_part_command_line(f"run {kind}", {"source": "..."} | flags | {"store": path.name})
        + more,
        report_part_command_line("ledger verify", {"store": path.name}),
        report_part_command_line("budget", {"store": path.name}),
    ]
    said = "Where source and sinks are is not in the store."

    return ReportPart(
        title="The commands that made the run, and check it", text=said, lines="\n".join(lines)
    )
