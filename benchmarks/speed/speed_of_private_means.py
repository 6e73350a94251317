"""`meanstream.private_means` of 1e7 rows and 1e5 groups on one core, beside what the frame's own library takes.

    python benchmarks/speed/speed_of_private_means.py
    python benchmarks/speed/speed_of_private_means.py --rows 1000000 --groups 10000 --libraries polars

Prints JSON: seconds of the processor (best of `--repeats`) for frames of each library, with groups named by integers
and by text, and beside them the seconds of a group-by mean in pyarrow, which is neither private nor has intervals.
Goal: at most 4 s for 1e7 rows and 1e5 groups.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402 - after the number of threads
import pyarrow as pa  # noqa: E402

import meanstream  # noqa: E402

GOAL = 4.0


def main() -> None:
    """Time every kind of frame."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--libraries", default="pyarrow,polars,pandas")
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    rng = np.random.default_rng(1)
    group, value = rng.integers(0, options.groups, options.rows), rng.normal(10, 5, options.rows)
    texts = pa.array([f"group {i}" for i in range(options.groups)])
    tables = {
        "integers": pa.table({"g": group, "v": value}),
        "text": pa.table({"g": texts.take(pa.array(group)), "v": value}),
    }
    rows = []
    for names, table in tables.items():
        plain = seconds(lambda table=table: table.group_by("g").aggregate([("v", "mean")]), options.repeats)
        for library in options.libraries.split(","):
            frame = as_frame(table, library)
            taken = seconds(lambda frame=frame: released(frame), options.repeats)
            rows.append({"library": library, "groups_named_by": names, "seconds": taken, "plain_group_by": plain})
    json.dump(
        {"rows": options.rows, "groups": options.groups, "goal_seconds": GOAL, "measured": rows}, sys.stdout, indent=1
    )
    print()


def as_frame(table: pa.Table, library: str) -> Any:
    """Give the table as a frame of a library."""
    if library == "polars":
        import polars as pl  # noqa: PLC0415 - for those who have it

        return pl.from_arrow(table)
    return table.to_pandas() if library == "pandas" else table


def released(frame: Any) -> Any:
    """Ask for every group's mean."""
    return meanstream.private_means(frame, by="g", value="v", lower=-30, upper=120, epsilon=1, delta=1e-6).to_frame()


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Best time of the processor of some calls, after one of a few rows has loaded what is needed."""
    released(pa.table({"g": [1, 2], "v": [1.0, 2.0]}))
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        call()
        times.append(time.process_time() - begun)
    return round(min(times), 2)


if __name__ == "__main__":
    main()
