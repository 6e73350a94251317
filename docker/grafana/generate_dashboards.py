"""Write the dashboards, or see whether those that are there are what would be written.

python docker/grafana/generate_dashboards.py            write docker/grafana/dashboards/*.json
python docker/grafana/generate_dashboards.py --check    exit code 1 if a file differs, is missing or is of no board
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import budget_board
import convergence_board
import flink_board
import operator_of_rounds
import pipeline_board
import rounds_board

FOLDER = Path(__file__).parent / "dashboards"
BOARDS = (
    convergence_board.BOARD,
    rounds_board.BOARD,
    budget_board.BOARD,
    pipeline_board.BOARD,
    flink_board.BOARD,
    operator_of_rounds.BOARD,
)


def main() -> int:
    """Write or check every board."""
    wanted = {f"{board.name}.json": json.dumps(board.json(), indent=1) + "\n" for board in BOARDS}
    if "--check" not in sys.argv[1:]:
        for name, text in wanted.items():
            (FOLDER / name).write_text(text)
        return 0
    there = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    wrong = sorted(
        name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name)
    )
    for name in wrong:
        sys.stderr.write(f"{FOLDER / name} is not what generate_dashboards.py makes\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
