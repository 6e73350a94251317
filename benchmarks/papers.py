"""Every algorithm, theorem, figure and table of the five documents, with its command.

Print the table: python benchmarks/papers.py. Run every command too, with small sizes: python
benchmarks/papers.py --run

The items stand in papers.csv.
"""

from __future__ import annotations

import csv
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_suffix(".csv")
OWN_FILE = "stops.csv"


@dataclass(frozen=True, slots=True)
class Item:
    """What a document has, and a command for it; without one, what is missing."""

    paper: str
    what: str
    command: str
    note: str


def items() -> list[Item]:
    """Read what the documents have."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [Item(*row) for row in list(csv.reader(file))[1:]]


def write_own_file(folder: Path) -> Path:
    """Make up the file of somebody's own: 60 officers with 15 stops each."""
    numbers = [(i, (i * i + i // 60) % 7) for i in range(900)]
    rows = [f"o{i % 60},{'abcd'[k % 4]},{'no' if k else 'yes'}" for i, k in numbers]
    path = folder / OWN_FILE
    path.write_text("\n".join(["officer,race,searched", *rows]) + "\n", encoding="utf-8")
    return path


def ran(command: str, folder: Path) -> str:
    """Run a command; give its last line if it failed, else nothing."""
    words = [
        sys.executable,
        "-m",
        "meanstream.pipelines.commands.main",
        *shlex.split(command.replace(";", r"\;")),
    ]
    words += ["--out", str(folder)] if command.startswith("reproduce") else []
    words = [str(write_own_file(folder)) if word == OWN_FILE else word for word in words]
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=False)

    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]


def main() -> int:
    """Print the table; with `--run`, whether each command runs."""
    run = "--run" in sys.argv[1:]
    failed = 0
    known: dict[str, str] = {}
    print("| document | item | command | " + ("runs | " if run else "") + "note |")
    print("|---|---|---|" + ("---|" if run else "") + "---|")

    with tempfile.TemporaryDirectory() as folder:
        for item in items():
            if run and item.command and item.command not in known:
                known[item.command] = ran(item.command, Path(folder))
            said = known.get(item.command, "")
            failed += bool(said)
            column = f"{(said or 'yes') if item.command else '-'} | " if run else ""
            shown = f"`meanstream {item.command}`" if item.command else "-"
            print(f"| {item.paper} | {item.what} | {shown} | {column}{item.note} |", flush=True)

    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
