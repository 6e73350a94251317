"""Public attributes of the owners of real sets.

What everybody can look up of an aircraft or a flight.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks.real.sets import OWNERS, VALUES
from meanstream.lab.demo.flights import flights_file
from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
from meanstream.streaming.agents.declared_covariates import covariates_of_table

PLANES = ("year", "type", "manufacturer", "model", "engines", "seats", "engine")
SCHEDULE = ("carrier", "origin", "dest", "distance", "hour")


def attributes_of_set(name: str) -> AgentCovariates | None:
    """Give the attributes of a set's owners, who are named by their numbers.

    None where there are none.
    """
    owners, _, what = name.partition(", ")
    read = ATTRIBUTES.get(owners)
    return None if read is None else covariates_of_table(read(what), "owner")


def _flights(
    column: str, keys: tuple[str, ...], more: tuple[str, ...]
) -> tuple[pa.Table, pa.Array]:
    """Read the flights of a set with further columns, and their owners' keys.

    The same rows as the set's.
    """
    with zipfile.ZipFile(flights_file()) as archive, archive.open("flights.csv") as file:
        options = csv.ConvertOptions(
            include_columns=list(dict.fromkeys(["time_hour", column, *keys, *more])),
            null_values=["NA"],
            strings_can_be_null=True,
        )
        table = csv.read_csv(file, convert_options=options)

    table = table.filter(pc.invert(pc.is_null(table[column]))).drop_null()
    text = [pc.cast(table[key], pa.string()) for key in keys]
    return table, pc.binary_join_element_wise(*text, "|")


def _of_planes(what: str) -> pa.Table:
    """Read the register of aircraft, and whose flights an aircraft flies."""
    table, owner = _flights(VALUES[what][0], OWNERS["tail"], ("carrier",))
    names = np.unique(owner.to_numpy(zero_copy_only=False).astype(str))
    planes = csv.read_csv(
        flights_file().parent / "planes.csv",
        convert_options=csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True),
    )
    row = pc.index_in(pa.array(names), planes["tailnum"])
    columns = {column: planes[column].combine_chunks().take(row) for column in PLANES}
    usual = _usual(owner, table["carrier"], names)

    return pa.table({"owner": list(map(str, range(len(names)))), "carrier": usual, **columns})


def _of_flights(what: str) -> pa.Table:
    """Read the schedule: carrier, usual origin and destination, and on average how far and at which hour."""
    table, owner = _flights(VALUES[what][0], OWNERS["flight"], SCHEDULE)
    names, of = np.unique(owner.to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    number = np.bincount(of)
    columns = {column: _usual(owner, table[column], names) for column in SCHEDULE[:3]}
    columns |= {
        column: pa.array(np.bincount(of, table[column].to_numpy()) / number)
        for column in SCHEDULE[3:]
    }

    return pa.table({"owner": list(map(str, range(len(names)))), **columns})


def _usual(owner: pa.Array, column: pa.ChunkedArray, names: np.ndarray) -> pa.Array:
    """Give the most frequent value of each owner; of equally frequent ones the least."""
    counted = (
        pa.table({"owner": owner, "value": column})
        .group_by(["owner", "value"])
        .aggregate([([], "count_all")])
    )
    first = counted.sort_by(
        [("owner", "ascending"), ("count_all", "descending"), ("value", "ascending")]
    )
    who = first["owner"].to_numpy(zero_copy_only=False).astype(str)

    return first["value"].combine_chunks().take(pa.array(np.searchsorted(who, names)))


ATTRIBUTES: dict[str, Callable[[str], pa.Table]] = {"tail": _of_planes, "flight": _of_flights}
