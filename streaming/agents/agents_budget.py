"""What every agent has spent of its budget, read from a store."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from meanstream.operators.agents.release_times import Counts, Every, parse_release_times
from meanstream.operators.counters.base import counter_limit
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import printable
from meanstream.streaming.agents.move_agents import departed_agents
from meanstream.streaming.events.times import iso_time
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_audit import audited_rows
from meanstream.streaming.store.store_identity import OF_AGENTS, require_store_kind

DAY = 86_400.0
FAR = 200 * 365.25
"""Days from which on an end is too far away to be named."""


@dataclass(frozen=True, slots=True)
class ForecastSummary:
    """Public: the distribution over the agents whose end can be told.

    Attributes
    ----------
    agents : int
        How many these are.
    first, first_ends : str
        The agent that ends first, and the event time of its last release.
    days : tuple of float
        From the newest release of the store until a tenth, half, and nine tenths of them have
        ended.
    first_days : float
        The same for the first.
    """

    agents: int
    first: str
    first_ends: str | None
    first_days: float
    days: tuple[float, float, float]


def days_text(days: float) -> str:  # noqa: PLR0911
    """Write a time to come as people do.

    Examples
    --------
    >>> [days_text(days) for days in (0.01, 0.3, 1.5, 12.4, 900.0, 16_400.0, 1e9)]
    ['less than an hour', '7 hours', '36 hours', '12 days', '2.5 years', '45 years', 'more than 200 years']
    """
    if days < 1 / 24:
        return "less than an hour"

    if days < 2:
        hours = round(24 * days)

        if hours == 1:
            return "an hour"
        return f"{hours} hours"

    if days < 730:
        return f"{days:.0f} days"
    if days >= FAR:
        return "more than 200 years"

    years = days / 365.25

    if years < 10:
        return f"{years:.1f} years"
    return f"{years:.0f} years"


def budget_forecast_text(forecast: ForecastSummary) -> str:
    """Public: say in a sentence which agent ends first, and when how many have."""
    if forecast.first_days >= FAR:
        return f"At this rate no budget ends within 200 years (of {forecast.agents:,} agents with a rate)."
    low, half, high = map(days_text, forecast.days)
    day = "" if forecast.first_ends is None else f" ({forecast.first_ends.partition('T')[0]})"

    return (
        f"At this rate {printable(forecast.first)} ends first, {days_text(forecast.first_days)} after the newest "
        f"release{day}; of {forecast.agents:,} agents 10 % within {low}, half within {half}, 90 % within {high}."
    )


class _Count(msgspec.Struct):
    n: int


_COUNT = msgspec.json.Decoder(_Count)


class BudgetForecast:
    """Follows the releases of a ledger, and says when each agent makes the last one of its horizon.

    An agent is taken to go on as between its first and its newest release: as many samples per
    second of event time, or, with `every:`, as many releases. One that has released once has no
    rate yet.

    Parameters
    ----------
    n_agents : int
        Agents of the store.
    horizon : int
        Releases that each may make.

    Notes
    -----
    **Privacy.** It is made of the times and counts of releases alone.

    Examples
    --------
    >>> from meanstream.operators.agents.release_times import parse_release_times
    >>> forecast = BudgetForecast(1, 4)
    >>> forecast.follow(np.array([0, 0]), np.array([0.0, 10.0]), [b'{"n":10}', b'{"n":20}'])
    >>> forecast.ends(parse_release_times("geometric:10,2")).tolist()
    [70.0]
    """

    def __init__(self, n_agents: int, horizon: int) -> None:
        self._horizon = horizon
        self._spent = np.zeros(n_agents, np.int64)
        self._times = np.full((n_agents, 2), math.nan)  # of the first and the newest release
        self._lines = np.full((n_agents, 2), b"", object)  # likewise
        self.newest = -math.inf

    def follow(self, agent: Ints, time: Floats, output: Sequence[bytes]) -> None:
        """Take the next releases of the ledger; agents may be new."""
        if not len(agent):
            return
        lines = np.array(output, object)
        self._grow(int(agent.max()) + 1)
        who, first = np.unique(agent, return_index=True)
        newest = len(agent) - 1 - np.unique(agent[::-1], return_index=True)[1]
        fresh = self._spent[who] == 0

        for column, values in ((self._times, time), (self._lines, lines)):
            column[who[fresh], 0] = values[first[fresh]]
            column[who, 1] = values[newest]

        self._spent += np.bincount(agent, minlength=len(self._spent))
        self.newest = max(self.newest, float(time.max(initial=-math.inf)))

    def _grow(self, n_agents: int) -> None:
        more = n_agents - len(self._spent)
        if more > 0:
            more += n_agents  # seldom
            self._spent = np.concatenate([self._spent, np.zeros(more, np.int64)])
            self._times = np.concatenate([self._times, np.full((more, 2), math.nan)])
            self._lines = np.concatenate([self._lines, np.full((more, 2), b"", object)])

    def ends(self, schedule: Counts | Every) -> Floats:
        """Give the event time of each agent's last release.

        NaN where it was made, or there is no rate.
        """
        goes_on = (self._spent > 1) & (self._spent < self._horizon)
        ends = np.full(len(self._spent), math.nan)
        agents = np.flatnonzero(goes_on)
        elapsed = self._times[agents, 1] - self._times[agents, 0]

        if isinstance(schedule, Every):
            share = (self._horizon - self._spent[agents]) / (self._spent[agents] - 1)
        else:
            counts = np.array(
                [[_COUNT.decode(line).n for line in self._lines[i]] for i in agents], np.float64
            ).reshape(-1, 2)
            last = float(schedule.times(self._horizon)[-1])

            with np.errstate(divide="ignore", invalid="ignore"):
                share = (last - counts[:, 1]) / (counts[:, 1] - counts[:, 0])

        has_end = np.isfinite(share) & (elapsed > 0)
        ends[agents[has_end]] = self._times[agents, 1][has_end] + share[has_end] * elapsed[has_end]
        return ends

    def summary(self, ends: Floats, names: Sequence[str]) -> ForecastSummary | None:
        """Say which agent ends first, and when how many have; None where nothing can be told."""
        with_end = np.flatnonzero(np.isfinite(ends))
        if not len(with_end):
            return None
        days = (ends[with_end] - self.newest) / DAY
        first = int(np.argmin(days))
        low, half, high = np.quantile(days, (0.1, 0.5, 0.9)).tolist()
        end = float(ends[with_end[first]])

        return ForecastSummary(
            len(with_end),
            names[with_end[first]],
            iso_time(end),
            float(days[first]),
            (low, half, high),
        )


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
                    times = np.array(block.rows.time, np.float64)
                    self._forecast.follow(agent, times, block.rows.output)
                    self._rows += len(agent)

                if self._rows < rows:
                    return False

                if self._rows > before or self._found is None:
                    ends = self._forecast.ends(self._schedule)
                    known_ends = ends[np.isfinite(ends)]
                    summary = (
                        self._forecast.summary(ends, store.agents()) if len(known_ends) else None
                    )
                    self._found = BudgetOutlook((known_ends - self._forecast.newest) / DAY, summary)
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


@dataclass(frozen=True, slots=True)
class AgentBudget:
    """Public: one agent's releases made and left.

    Every one of its samples is protected at (epsilon, delta).

    `epsilon` and `delta` hold for all releases of the horizon together, so they do not grow as it
    is spent. Where releases have no end, `remaining` and `horizon` are None.
    """

    agent: str
    spent: int
    remaining: int | None
    horizon: int | None
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class BudgetSummary:
    """Public: all agents of a store together.

    Attributes
    ----------
    agents : int
        Agents with at least one sample.
    spent_max : int
        Releases of the agent that made most.
    horizon : int
        Releases that each may make; None where there is no end.
    at_horizon : int
        Agents that made all of them.
    refused : int or None
        Releases that were refused, ever; None as of a time, because a refusal is no row of the
        ledger.
    """

    agents: int
    spent_max: int
    horizon: int | None
    at_horizon: int
    refused: int | None


@dataclass(frozen=True, slots=True)
class Budgets:
    """Public: the budget of every agent that lives in a store, in the order in which they appeared."""

    agents: list[AgentBudget]
    summary: BudgetSummary
    ends: list[float | None] | None = None
    forecast: ForecastSummary | None = None
    """With `foretell`: event time of each agent's last release, None where it is not known; and all
    agents together."""


def budgets_of_shards(shards: Sequence[Budgets]) -> Budgets:
    """Add up the budgets of the stores of one deployment, each of which has agents of its own.

    When all of them end is known of each agent, and not of all together.
    """
    summaries = [shard.summary for shard in shards]
    refused = [summary.refused for summary in summaries]
    whole = BudgetSummary(
        agents=sum(summary.agents for summary in summaries),
        spent_max=max(summary.spent_max for summary in summaries),
        horizon=summaries[0].horizon,
        at_horizon=sum(summary.at_horizon for summary in summaries),
        refused=None if None in refused else sum(filter(None, refused)),
    )

    return Budgets(
        agents=[agent for shard in shards for agent in shard.agents],
        summary=whole,
        ends=[end for shard in shards for end in shard.ends or [None] * len(shard.agents)],
    )


def agents_budgets(store: Path, *, as_of: float | None = None, foretell: bool = False) -> Budgets:
    """Count what every agent has spent; an engine may be running on the store.

    Every row of the ledger is checked.
    """
    with Store.read(store) as opened:
        names = opened.agents()
        nothing = {"horizon": 0, "epsilon": 0.0, "delta": 0.0}
        settings = opened.settings() or nothing
        require_store_kind(store, settings, OF_AGENTS)
        horizon = counter_limit(int(settings["horizon"]))

        # When budgets end is read off the same rows.
        forecast = None
        if foretell and horizon is not None and settings is not nothing:
            forecast = BudgetForecast(len(names), horizon)

        until = math.inf if as_of is None else as_of
        spent = budget_charged_until(opened, len(names), until, forecast)
        lives_here = ~departed_agents(opened)
        refused = opened.ledger.head().refused if as_of is None else None

    epsilon = float(settings["epsilon"])
    delta = float(settings["delta"])
    agents = []
    for number in np.flatnonzero(lives_here).tolist():
        used = int(spent[number])
        left = None if horizon is None else horizon - used
        agents.append(AgentBudget(names[number], used, left, horizon, epsilon, delta))

    spent = spent[lives_here]
    summary = BudgetSummary(
        agents=len(agents),
        spent_max=int(spent.max(initial=0)),
        horizon=horizon,
        at_horizon=0 if horizon is None else int(np.count_nonzero(spent >= horizon)),
        refused=refused,
    )
    if forecast is None:
        return Budgets(agents, summary)

    # Of agents that live elsewhere nothing is foretold here.
    ends = forecast.ends(parse_release_times(str(settings["schedule"])))
    ends[~lives_here] = math.nan
    known_ends = [end if math.isfinite(end) else None for end in ends[lives_here].tolist()]

    return Budgets(agents, summary, known_ends, forecast.summary(ends, names))


def budget_charged_until(
    store: Store, n_agents: int, until: float, forecast: BudgetForecast | None = None
) -> Ints:
    """Count the rows of each agent up to an event time, to the microsecond as in the releases."""
    spent = np.zeros(n_agents, np.int64)
    for block in audited_rows(store):
        counted = np.rint(np.array(block.rows.time) * 1e6) <= np.rint(until * 1e6)
        agent = np.array(block.rows.agent, np.int64)[counted]
        spent += np.bincount(agent, minlength=n_agents)

        if forecast is not None:
            lines = [
                line
                for line, counts in zip(block.rows.output, counted.tolist(), strict=True)
                if counts
            ]
            forecast.follow(agent, np.array(block.rows.time, np.float64)[counted], lines)

    return spent
