"""Real streams in periods: flights by month, careers of baseball by year."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.real.sets import baseball_tries, real_sets
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
    tries = baseball_tries(event, YEARS, seed=2006, league=LEAGUE)
    return DriftSet(
        name=f"baseball, {event}",
        owner=tries.owner,
        period=tries.season - YEARS.start,
        value=tries.ones,
        lower=0.0,
        upper=1.0,
    )
