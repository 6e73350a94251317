"""Check the structure of the tree: `python -m tests.lint`, the last step of `make lint`. Every file
is parsed once."""

from __future__ import annotations

import sys

from tests.lint.addresses import check_addresses
from tests.lint.banned_words import check_words
from tests.lint.core_reach import check_core_reach
from tests.lint.draws import check_draws
from tests.lint.imports import check_imports
from tests.lint.prose import check_prose
from tests.lint.public_names import check_names
from tests.lint.texture import check_texture, size_lines

if __name__ == "__main__":
    found = [
        *check_imports(),
        *check_names(),
        *check_prose(),
        *check_draws(),
        *check_words(),
        *check_addresses(),
        *check_core_reach(),
        *check_texture(),
    ]
    summary = f"{len(found)} findings" if found else "Structure: all checks passed"
    print(*size_lines(), *found, summary, sep="\n")  # noqa: T201
    sys.exit(bool(found))
