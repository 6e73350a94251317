"""`meanstream.private_means` of 1e7 rows and 1e5 groups on one core, beside what the frame's own library takes.

    python benchmarks/speed/speed_of_private_means.py python
    benchmarks/speed/speed_of_private_means.py --rows 1000000 --groups 500000 --libraries polars
    python benchmarks/speed/speed_of_private_means.py --persons 1000000

Prints JSON: seconds of the processor (best of `--repeats`) for frames of each library, with groups
named by integers, by text and by two columns. Beside them are the seconds of a group-by mean in
pyarrow and in the frame's own library, which are neither private nor have intervals, and on Linux
the peak of memory as a multiple of the input columns. Goals: at most 4 s for 1e7 rows and 1e5
groups, in less than 3 times the memory of the input.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402 - after the number of threads
import pyarrow as pa  # noqa: E402

import meanstream  # noqa: E402

GOAL = 4.0
GOAL_OF_MEMORY = 3.0


def main() -> None:
    """Time every kind of frame."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--libraries", default="pyarrow,polars,pandas")
    parser.add_argument(
        "--persons", type=int, default=0, help="count at most 2 rows of each of so many persons"
    )

    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    rows = []

    for names, table in tables(options).items():
        by = [name for name in table.column_names if name.startswith("g")]
        plain = seconds(
            lambda table=table, by=by: table.group_by(by).aggregate([("v", "mean")]),
            options.repeats,
        )

        for library in options.libraries.split(","):
            frame = as_frame(table, library)
            own = seconds(lambda frame=frame, by=by: group_by(frame, by), options.repeats)
            taken = seconds(lambda frame=frame, by=by: released(frame, by), options.repeats)
            measured = {
                "seconds": taken,
                "group_by_of_pyarrow": plain,
                "group_by_of_its_library": own,
            }
            peak = peak_of_memory(lambda frame=frame, by=by: released(frame, by), table.nbytes)

            rows.append(
                {"library": library, "groups_named_by": names}
                | measured
                | {"peak_over_input": peak}
            )

    goals = {"goal_seconds": GOAL, "goal_peak_over_input": GOAL_OF_MEMORY}
    json.dump(
        {"rows": options.rows, "groups": options.groups} | goals | {"measured": rows},
        sys.stdout,
        indent=1,
    )
    print()


def tables(options: argparse.Namespace) -> dict[str, pa.Table]:
    """Make the rows, by how their groups are named."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, options.groups, options.rows)
    value = rng.normal(10, 5, options.rows)
    texts = pa.array([f"group {i}" for i in range(options.groups)])
    rest = {"v": value}
    if options.persons:
        rest["p"] = rng.integers(0, options.persons, options.rows)

    return {
        "integers": pa.table({"g": group} | rest),
        "text": pa.table({"g": texts.take(pa.array(group))} | rest),
        "two columns": pa.table({"g": group, "g2": group % 10} | rest),
    }


def as_frame(table: pa.Table, library: str) -> Any:
    """Give the table as a frame of a library."""
    if library == "polars":
        import polars as pl  # noqa: PLC0415 - for those who have it

        return pl.from_arrow(table)

    return table.to_pandas() if library == "pandas" else table


def group_by(frame: Any, by: list[str]) -> Any:
    """Ask the frame's own library for every group's mean."""
    if isinstance(frame, pa.Table):
        return frame.group_by(by).aggregate([("v", "mean")])
    if hasattr(frame, "group_by"):
        import polars as pl  # noqa: PLC0415 - for those who have it

        return frame.group_by(by).agg(pl.col("v").mean())

    return frame.groupby(by)["v"].mean()


def released(frame: Any, by: list[str]) -> Any:
    """Ask for every group's mean."""
    person = (
        {"person": "p", "per_person": 2}
        if "p" in [*getattr(frame, "column_names", frame.columns)]
        else {}
    )
    private = {"lower": -30, "upper": 120, "epsilon": 1, "delta": 1e-6}

    return meanstream.private_means(frame, by=by, value="v", **private, **person).to_frame()


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Best time of the processor of some calls, after one of a few rows has loaded what is needed."""
    released(pa.table({"g": [1, 2], "v": [1.0, 2.0]}), ["g"])
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        call()
        times.append(time.process_time() - begun)

    return round(min(times), 2)


def peak_of_memory(call: Callable[[], Any], octets: int) -> float | None:
    """Give the memory that a call takes at most beyond what is held, as a multiple of its input.

    None off Linux.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    gc.collect()
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is held now
    before = memory_of(status, "VmHWM")
    call()

    return round((memory_of(status, "VmHWM") - before) / octets, 2)


def memory_of(status: Path, name: str) -> int:
    """Read a line of the kernel's figures, in bytes."""
    return (
        next(
            int(line.split()[1])
            for line in status.read_text().splitlines()
            if line.startswith(name)
        )
        * 1024
    )


if __name__ == "__main__":
    main()
