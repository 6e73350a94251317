"""`meanstream report`: one self-contained HTML file of a run or of a result."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from meanstream.pipelines.commands.command_outputs import require_new_output, save_output
from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options


def report(
    *,
    out: Annotated[
        Path, typer.Argument(help="HTML file to write: a new one, or an earlier report.")
    ],
    store: Annotated[
        Path | None,
        cli_option(
            "Store of `run agents` or `run rounds`, or a folder of shards; it may be running.",
            INPUT,
        ),
    ] = None,
    result: Annotated[
        Path | None,
        cli_option(
            "Output of `simulate` or `audit ... --json`, or the .jsonl of `run rounds --sink`.",
            INPUT,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write charts and the privacy promise into one HTML file.

    Figures of a store come from releases or reports alone, so the file may be public. Agents that
    query each other have no releases for everyone: their report has what readers who pool learn.

    \b
    Examples:
      meanstream report out.html --store state.db
      meanstream report out.html --result means.jsonl
      meanstream report audit.html --result audit.json
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.plots import require_matplotlib_for_plots
    from meanstream.pipelines.commands.report.report_parts import (
        ReportPart,
        report_part_command_line,
        report_parts_as_html,
    )
    from meanstream.pipelines.commands.report.report_result import report_of_result
    from meanstream.pipelines.commands.report.report_store import report_of_store
    from meanstream.streaming.own_paths import stores_at
    from meanstream.streaming.store.state_store import StoreError

    if (store is None) == (result is None):
        raise BadOption("report must have one of --store FILE and --result FILE")
    if store is not None:
        with refusing_options():
            stores_at(store)

    require_matplotlib_for_plots()
    _check_report_path(out, store=store, read={"result": result})

    try:
        page = report_of_store(store) if store is not None else report_of_result(Path(str(result)))
    except StoreError as error:
        raise BadOption(str(error)) from None

    words = f"report {out.name}"
    typed = report_part_command_line(
        words, {"store": store and store.name, "result": result and result.name}
    )
    page = replace(
        page,
        parts=[*page.parts, ReportPart(title="The command that made this report", lines=typed)],
    )
    save_output("out", out, report_parts_as_html(page).encode())

    if as_json:
        print_options_json(
            {
                "report": str(out),
                "title": page.title,
                "parts": [part.title for part in page.parts],
            }
        )
    else:
        sys.stdout.write(f"{out}\n")


def _check_report_path(out: Path, *, store: Path | None, read: dict[str, Path | None]) -> None:
    """Refuse a place that is something else than a new file or an earlier report, before anything is read."""
    from meanstream.pipelines.commands.report.report_parts import REPORT_MARK
    from meanstream.streaming import own_paths

    with refusing_options():
        named = own_paths.own_files_named(read, os.environ)
        own_paths.require_own_paths_apart(
            {"out": out}, named if store is None else named | own_paths.own_files_of_store(store)
        )
        own_paths.require_no_store_file("out", out)

    if not out.parent.is_dir() or out.is_dir():
        raise BadOption(f"out must be a file in an existing folder, got {str(out)!r}")
    require_new_output("out", out, REPORT_MARK.encode(), "an earlier report")
