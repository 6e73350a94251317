"""`meanstream report`: one self-contained HTML file of a run or of a result."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands.options import BadOption, ConfigOption, JsonOption, print_json


def report(
    *,
    out: Annotated[Path, typer.Argument(help="The HTML file to write.")],
    store: Annotated[
        Path | None, typer.Option(help="Store of `run agents` or `run rounds`; an engine may be running on it.")
    ] = None,
    result: Annotated[
        Path | None, typer.Option(help="What `simulate ... --json` printed, or the .jsonl of `run rounds --sink`.")
    ] = None,
    config: ConfigOption = None,  # noqa: ARG001 - read before the other options
    as_json: JsonOption = False,
) -> None:
    """Write pictures, what is protected and how, reliability and the commands into one file that refers to no other.

    What it says of a store is computed from releases or reports alone: it may be shown to anybody.

    \b
    Examples:
      meanstream report out.html --store state.db
      meanstream report out.html --result means.jsonl
    """  # noqa: D301 - click reads the escape
    from pipelines.commands.plots import require_matplotlib
    from pipelines.commands.report_parts import Part, as_html, command_line
    from pipelines.commands.report_result import report_of_result
    from pipelines.commands.report_store import report_of_store
    from streaming.store.store import StoreError

    if (store is None) == (result is None):
        raise BadOption("store must be given, or result: one of the two")
    require_matplotlib()
    if not out.parent.is_dir() or out.is_dir():
        raise BadOption(f"out must be a file in an existing folder, got {str(out)!r}")
    try:
        found = report_of_store(store) if store is not None else report_of_result(Path(str(result)))
    except StoreError as error:
        raise BadOption(str(error)) from None
    words = f"report {out.name}"
    typed = command_line(words, {"store": store and store.name, "result": result and result.name})
    found = replace(found, parts=[*found.parts, Part(title="The command that made this report", lines=typed)])
    try:
        out.write_text(as_html(found), encoding="utf-8")
    except OSError as error:
        raise BadOption(f"out must be a file that can be written, got {str(out)!r} ({error.strerror})") from None
    if as_json:
        print_json({"report": str(out), "title": found.title, "parts": [part.title for part in found.parts]})
    else:
        sys.stdout.write(f"{out}\n")
