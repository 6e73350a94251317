"""Run the product in worlds that differ in what nobody else may learn, and say how much was
compared.

``make noninterference`` is ``python -m tests.noninterference --all``; without ``--all`` the worlds
of every day run, which need no server. Ends with 1 if a byte differs, or a known-bad twin is not
caught.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from tests.noninterference.comparison import TOTALS


def main() -> int:
    """Run the tests of this folder in this process and print the sums of all comparisons."""
    parser = argparse.ArgumentParser(prog="python -m tests.noninterference", description=__doc__)
    parser.add_argument(
        "--all", action="store_true", help="also many agents and users, and topics of a real broker"
    )
    chosen = [] if parser.parse_args().all else ["-m", "not slow and not servers and not full"]
    code = pytest.main(
        [str(Path(__file__).parent), "-q", "-p", "no:cacheprovider", "-o", "timeout=0", *chosen]
    )
    print(
        f"worlds: {TOTALS.worlds:,}\nsurfaces compared: {TOTALS.surfaces:,}\nbytes compared: {TOTALS.bytes:,}\n"
        f"bytes differing: {TOTALS.differing:,}"
    )
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
