"""Public attributes of agents in a file: CSV or Parquet, one row per agent."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet

from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
from meanstream.streaming.agents.declared_covariates import covariates_of_table

NULLS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""Cells that hold no value."""


def read_covariates_file(place: str, key: str) -> AgentCovariates:
    """Read declared attributes."""
    path = Path(place)
    try:
        found = path.stat()
    except OSError as error:
        raise ValueError(
            f"covariates must be a readable file, got {place!r} ({error.strerror})"
        ) from None

    return _read(str(path.resolve()), key, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=2)
def _read(path: str, key: str, _modified: int, _size: int) -> AgentCovariates:
    try:
        table = parquet.read_table(path) if path.endswith(".parquet") else _csv(path, key)
        _ = table.column_names  # which are no UTF-8, perhaps
    except OSError as error:
        raise ValueError(
            f"covariates must be a readable file, got {path!r} ({error.strerror or 'unreadable'})"
        ) from None
    except (pa.ArrowException, UnicodeDecodeError):  # whose texts show values
        raise ValueError(
            f"covariates must be CSV with a header, or Parquet (.parquet), got {path!r}"
        ) from None

    return replace(covariates_of_table(table, key), place=(path, key))


def _csv(path: str, key: str) -> pa.Table:
    options = csv.ConvertOptions(
        null_values=list(NULLS), strings_can_be_null=True, column_types={key: pa.string()}
    )
    return csv.read_csv(path, convert_options=options)
