"""Print pages anew: run the blocks of README and docs, and write what they print below them.

`python -m tests.print_pages [PAGE ...]`, by default all pages that need no server.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.code_blocks import PAGES, Block, PageRun, blocks_of, needs_broker

ELIDED = "..."


class PrintedAnew(PageRun):
    """A run of a page that notes what differs from it, instead of failing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.changes: list[tuple[Block, str, str]] = []

    def _compare(self, block: Block, printed: str, shown: str) -> None:
        try:
            super()._compare(block, printed, shown)
        except AssertionError:
            self.changes.append((block, shown, as_elided(printed, shown)))
        else:
            # Where numbers vary, those of this run take the place of those of another version.
            if block.vary and printed != shown:
                self.changes.append((block, shown, as_elided(printed, shown)))


def as_elided(printed: str, shown: str) -> str:
    """What a block printed, with the lines left out that the page leaves out.

    Examples
    --------
    >>> as_elided("a\\nb\\nc\\nd\\n", "1\\n...\\n4\\n")
    'a\\n...\\nd\\n'
    """
    lines = [line.rstrip() for line in printed.splitlines()]
    wanted = shown.splitlines()
    if ELIDED in wanted:
        head = wanted.index(ELIDED)
        tail = len(wanted) - head - 1
        lines = [*lines[:head], ELIDED, *lines[len(lines) - tail :]]

    return "".join(f"{line}\n" for line in lines)


def print_page(page: Path) -> int:
    """Run a page in an empty folder, write it anew, and return the number of blocks that changed."""
    kept = dict(os.environ)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "page"
        folder.mkdir()
        run = PrintedAnew(folder)
        for block in blocks_of(page):
            if block.what != "not run":
                run.run(block)

    os.environ.clear()
    os.environ.update(kept)

    text = page.read_text(encoding="utf-8")
    for block, shown, printed in run.changes:
        lines = text.splitlines(keepends=True)
        before = "".join(lines[: block.line])
        after = "".join(lines[block.line :])
        text = before + after.replace(shown, printed, 1)

    page.write_text(text, encoding="utf-8")
    return len(run.changes)


if __name__ == "__main__":
    asked = [Path(name).resolve() for name in sys.argv[1:]] or PAGES
    for each in asked:
        if not needs_broker(each) and any(block.runs for block in blocks_of(each)):
            try:
                print(each.name, print_page(each), flush=True)  # noqa: T201
            except AssertionError as error:
                print(each.name, "failed:", str(error)[:500], flush=True)  # noqa: T201
