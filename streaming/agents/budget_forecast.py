"""When the agents' budgets end, if they go on sending as before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from meanstream.operators.agents.release_times import Counts, Every
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import printable
from meanstream.streaming.events.times import iso_time

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

        for column, found in ((self._times, time), (self._lines, lines)):
            column[who[fresh], 0] = found[first[fresh]]
            column[who, 1] = found[newest]

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
        at = np.flatnonzero(goes_on)
        elapsed = self._times[at, 1] - self._times[at, 0]

        if isinstance(schedule, Every):
            share = (self._horizon - self._spent[at]) / (self._spent[at] - 1)
        else:
            counts = np.array(
                [[_COUNT.decode(line).n for line in self._lines[i]] for i in at], np.float64
            ).reshape(-1, 2)
            last = float(schedule.times(self._horizon)[-1])

            with np.errstate(divide="ignore", invalid="ignore"):
                share = (last - counts[:, 1]) / (counts[:, 1] - counts[:, 0])

        known = np.isfinite(share) & (elapsed > 0)
        ends[at[known]] = self._times[at, 1][known] + share[known] * elapsed[known]
        return ends

    def summary(self, ends: Floats, names: Sequence[str]) -> ForecastSummary | None:
        """Say which agent ends first, and when how many have; None where nothing can be told."""
        known = np.flatnonzero(np.isfinite(ends))
        if not len(known):
            return None
        days = (ends[known] - self.newest) / DAY
        first = int(np.argmin(days))
        low, half, high = np.quantile(days, (0.1, 0.5, 0.9)).tolist()
        end = float(ends[known[first]])

        return ForecastSummary(
            len(known), names[known[first]], iso_time(end), float(days[first]), (low, half, high)
        )
