"""Links of pages to files of the repository.

On the site they are names, since the site has no copy of the files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
TAKEN = {
    "CHANGELOG.md": "project/changelog",
    "CONTRIBUTING.md": "project/contributing",
    "SECURITY.md": "trust/limitations",
}
"""Files at the top that the site has as pages."""
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")


def links_for_site(text: str, folder: Path, page: Path | None = None) -> str:
    """Turn links to files outside `docs/` into links to their pages, or into the file's name.

    Parameters
    ----------
    text : str
        Markdown of a page.
    folder : Path
        Where its links begin.
    page : Path, optional
        Folder of the page that shows it, if it is another.
    """
    here = page or folder

    def changed(found: re.Match[str]) -> str:
        words, place, part = found[1], found[2], found[3] or ""
        target = (folder / place).resolve()
        if target.is_relative_to(DOCS) and (target.suffix == ".md" or target.is_file()):
            return f"[{words}]({os.path.relpath(target, here)}{part})"
        name = target.relative_to(ROOT).as_posix()
        if name in TAKEN:
            return f"[{words}]({os.path.relpath(DOCS / f'{TAKEN[name]}.md', here)}{part})"
        return words if name in words.replace("`", "") else f"{words} (`{name}`)"

    return _LINK.sub(changed, text)


def _read(_: Any, name: str, source: list[str]) -> None:
    source[0] = links_for_site(source[0], (DOCS / name).parent)


def setup(app: Any) -> dict[str, Any]:
    """Change each page's links when it is read."""
    app.connect("source-read", _read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
