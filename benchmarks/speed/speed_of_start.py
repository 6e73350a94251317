"""What a command takes from its start to its end where it has hardly anything to do, in seconds of the processor.

    python benchmarks/speed/speed_of_start.py
    python benchmarks/speed/speed_of_start.py --repeats 20

Prints JSON: the least of interleaved runs of `import meanstream`, of two helps, and of an engine on
a file of one event. Beside them is a Python that only imports the libraries that this engine needs.
Of an installed pandas pyarrow imports all with its first array: `without_pandas` is the same engine
where it is not installed, as in the image.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARIES = "import numpy, scipy.special, pyarrow.compute, pydantic, typer, msgspec, sqlite3"
MAIN = "from meanstream.pipelines.commands.main import main; main()"
RUN = [
    "run",
    "agents",
    "--lower",
    "0",
    "--upper",
    "1",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--quiet",
]


def main() -> None:
    """Run each command as often, in turn, and print the least times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "one.csv").write_text("agent,value,time\na,0.5,1700000000\n")
        (place / "none").mkdir()
        (place / "none" / "pandas.py").write_text("raise ImportError('none')\n")

        commands = {
            "python": ["pass"],
            "libraries": [LIBRARIES],
            "import_meanstream": ["import meanstream"],
            "help": [MAIN, "--help"],
            "run_agents_help": [MAIN, "run", "agents", "--help"],
            "one_event": [MAIN, *RUN, "--source", str(place / "one.csv")],
            "one_event_without_pandas": [MAIN, *RUN, "--source", str(place / "one.csv")],
        }

        best = dict.fromkeys(commands, float("inf"))
        for _ in range(options.repeats):
            for name, typed in commands.items():
                best[name] = min(
                    best[name], seconds(typed, place, pandas=not name.endswith("without_pandas"))
                )

    json.dump(
        {"seconds": {name: round(value, 3) for name, value in best.items()}}, sys.stdout, indent=1
    )
    print()


def seconds(typed: list[str], place: Path, *, pandas: bool) -> float:
    """Run a program in a new folder; give what it took of the processor."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    given |= {"PYTHONPYCACHEPREFIX": str(place / "bytecode"), "OPENBLAS_NUM_THREADS": "1"}
    paths = [*([] if pandas else [str(place / "none")]), str(Path(__file__).parents[2])]

    with (
        tempfile.TemporaryDirectory(dir=place) as folder,
        subprocess.Popen(
            [sys.executable, "-c", *typed],
            cwd=folder,
            env=given | {"PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.DEVNULL,
        ) as process,
    ):
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)

    if process.returncode:
        sys.exit(f"a program ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
