"""Public tables of users: one number for each, from a file beside the records."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from meanstream.operators.records import Bools, Floats
from meanstream.operators.validation import closest_valid, printable, require
from meanstream.streaming.agents.declared_covariates import NULLS

_log = logging.getLogger("meanstream.rounds")
_SHOWN = 64


def read_public_table(option: str, place: str, *, user: str | None = None) -> tuple[pa.Table, str]:
    """Read `FILE.csv:COLUMN` or `FILE.parquet:COLUMN`; give the table and the column's name.

    Raises
    ------
    ValueError
        Naming the option, the file, and the rule.
    """
    file, separator, column = place.rpartition(":")
    is_file = file.endswith((".csv", ".csv.gz", ".parquet"))
    rule = (
        "be FILE.csv:COLUMN or FILE.parquet:COLUMN, a public table by user (a column of the "
        "records would show which records a user has)"
    )
    require(bool(separator and column) and is_file, option, rule, place)

    try:
        Path(file).open("rb").close()  # its errors are shorter than Arrow's
        table = parquet.read_table(file) if file.endswith(".parquet") else _csv(file, user)
    except OSError as error:
        raise ValueError(
            f"{option} must name a readable file, got {file!r} ({error.strerror or 'unreadable'})"
        ) from None
    except (pa.ArrowException, UnicodeDecodeError):  # whose texts show values
        raise ValueError(
            f"{option} must name CSV with a header, or Parquet, got {file!r}"
        ) from None

    return table, column


def require_columns(option: str, table: pa.Table, names: Sequence[str]) -> None:
    """Refuse a table without one of the columns, or with two of a name."""
    known = list(table.column_names)
    for name in names:
        if known.count(name) != 1:
            rule = f"be of a table with one column {printable(name)[:_SHOWN]!r}"
            raise ValueError(
                f"{option} must {rule}, got {known.count(name)}{closest_valid(name, known)}"
            )


def public_numbers(
    option: str, table: pa.Table, column: str, *, user: str
) -> tuple[pa.Array, Floats]:
    """Give user and number of each row; NaN where there is no number."""
    require_columns(option, table, (user, column))
    names = table.column(user).cast(pa.string()).combine_chunks()
    return names, public_column(option, table, column)


def public_column(option: str, table: pa.Table, column: str) -> Floats:
    """Give the numbers of a column; NaN where there is none."""
    kind = table.schema.field(column).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        shown = printable(column)[:_SHOWN]
        raise ValueError(f"{option} must be a column of numbers, got {kind} in column {shown!r}")

    numbers = pc.cast(table.column(column), pa.float64(), safe=False).to_numpy()
    return np.asarray(numbers, np.float64)


def require_whole_rows(option: str, column: str, whole: Bools) -> None:
    """Refuse a table of which no row can be used; say how many are left out."""
    if not whole.any():
        shown = printable(column)[:_SHOWN]
        raise ValueError(
            f"{option} must be a number for one user at least, got none in column {shown!r}"
        )
    if not whole.all():
        _log.warning("%s rows of the table of %s are left out", f"{(~whole).sum():,}", option)


def _csv(file: str, user: str | None) -> pa.Table:
    texts = {} if user is None else {user: pa.string()}
    convert = csv.ConvertOptions(
        null_values=list(NULLS), strings_can_be_null=True, column_types=texts
    )
    return csv.read_csv(file, convert_options=convert)
