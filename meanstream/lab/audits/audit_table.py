"""The table of an audit, and how it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import RunFailed

if TYPE_CHECKING:
    from meanstream.lab.evidence.audit_record import AuditRow

_HEAD = f"{'mechanism':<32} {'claimed':>8} {'proved':>8} {'ratio':>6} {'ceiling':>8} {'delta':>8}"


def show_audit(
    rows: Iterable[AuditRow],
    *,
    as_json: bool,
    notes: Iterable[str] = (),
    begun: float | None = None,
) -> None:
    """Print what was claimed and proved, a line for each mechanism as it is found.

    End with 1 on a violation.

    `begun` is when the work began (`time.monotonic`), where that was before this.
    """
    begun, found = time.monotonic() if begun is None else begun, []
    if not as_json:
        sys.stdout.write(_HEAD + "\n")

    for row in rows:
        found.append(row)
        if not as_json:
            sys.stdout.write(_line(row))
            sys.stdout.flush()

    violated = [row.name for row in found if row.violated]
    if as_json:
        print_options_json(
            {"rows": [row.as_dict() for row in found], "violated": violated, "notes": list(notes)}
        )
    else:
        for text in dict.fromkeys(f"{row.method}; assumed: {row.assumption}" for row in found):
            names = [
                row.name for row in found if f"{row.method}; assumed: {row.assumption}" == text
            ]
            sys.stdout.write(f"- {', '.join(names)}: {text}\n")

        sys.stdout.writelines(f"- {note}\n" for note in notes)
        sys.stdout.write(
            f"{len(found)} audited in {time.monotonic() - begun:.1f} s, {len(violated)} violated\n"
        )

    if violated:
        raise RunFailed(f"privacy must be as claimed, got less from {', '.join(violated)}")


def _line(row: AuditRow) -> str:
    end = f" VIOLATED{f': {row.fault}' if row.fault else ''}" if row.violated else ""
    return (
        f"{row.name:<32} {row.claimed:>8.4g} {row.proved:>8.4f} {row.ratio:>6.3f} {row.ceiling:>8.4f} "
        f"{row.delta:>8.1g}{end}\n"
    )
