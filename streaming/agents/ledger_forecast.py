"""When the budgets of a running engine end: its ledger followed from next to, a part at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from meanstream.operators.agents.release_times import Counts, Every
from meanstream.operators.counters.base import counter_limit
from meanstream.operators.records import Floats
from meanstream.streaming.agents.budget_forecast import DAY, BudgetForecast, ForecastSummary
from meanstream.streaming.store.state_store import Store, StoreError

PAGE_SECONDS = 15.0
"""Between two looks at a ledger for a page, which asks every second."""
LONG_SECONDS = 0.1
REST = 20
"""After a look that took so long the next one is later, by that many times as long."""
BLOCKS = 64
"""Blocks of a ledger that one look reads, so that anyone who asks is answered soon."""


@dataclass(frozen=True, slots=True, eq=False)
class BudgetOutlook:
    """Public: when budgets end, if all go on as before.

    Attributes
    ----------
    days : array of float
        Of each agent whose end can be told, from the newest release of all to its last one.
    summary : ForecastSummary or None
        The distribution, and the agent that ends first; None where nothing can be told.
    """

    days: Floats
    summary: ForecastSummary | None


class LedgerForecast:
    """Reads what a ledger has got since the last look; from any thread, on a connection of its own.

    Parameters
    ----------
    store : Path
        The store's file; an engine may be writing it.
    horizon : int
        Releases that each agent may make.
    schedule : Counts or Every
        When an agent releases.
    least : float
        Seconds between two looks, at least.
    now : callable
        Seconds of a clock that never goes back.

    Notes
    -----
    **Privacy.** It is made of the times and counts of charged releases alone.
    """

    def __init__(
        self,
        store: Path,
        horizon: int,
        schedule: Counts | Every,
        *,
        least: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._schedule = schedule
        self._least = least
        self._now = now
        self._forecast = BudgetForecast(0, horizon)
        self._lock = threading.Lock()
        self._rows = 0
        self._due = -float("inf")
        self._found: BudgetOutlook | None = None

    def look(self) -> BudgetOutlook | None:
        """Give the newest outlook.

        None while a long ledger is still being read, or there is no store.
        """
        with self._lock:
            began = self._now()
            if began >= self._due:
                whole = self._follow()
                took = self._now() - began
                rest = max(self._least, REST * took if took > LONG_SECONDS else 0.0)
                self._due = self._now() + (rest if whole else 0.0)

            return self._found

    def _follow(self) -> bool:
        """Read on; say whether nothing is left."""
        try:
            with closing(Store.read(self._store)) as store:
                before = self._rows
                rows = store.ledger.head().rows

                for block in islice(store.ledger.verified(before), BLOCKS):
                    agent = np.array(block.rows.agent, np.int64)
                    at = np.array(block.rows.time, np.float64)
                    self._forecast.follow(agent, at, block.rows.output)
                    self._rows += len(agent)

                if self._rows < rows:
                    return False

                if self._rows > before or self._found is None:
                    ends = self._forecast.ends(self._schedule)
                    known = ends[np.isfinite(ends)]
                    summary = self._forecast.summary(ends, store.agents()) if len(known) else None
                    self._found = BudgetOutlook((known - self._forecast.newest) / DAY, summary)
        except StoreError:  # none yet, or not ours to judge
            pass

        return True


def budget_outlook(
    settings: Any, store: Path | None, *, least: float = 0.0
) -> Callable[[], BudgetOutlook | None] | None:
    """Make what says when the budgets of a store of agents end.

    None where there are no such budgets.
    """
    schedule = getattr(settings, "times", None)
    horizon = counter_limit(settings.horizon)
    if store is None or schedule is None or horizon is None:
        return None

    return LedgerForecast(store, horizon, schedule, least=least).look
