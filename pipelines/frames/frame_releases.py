"""What the groups of a frame have released, and what a result says of it in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import mechanism_facts
from meanstream.operators.records import Bools, Ints, ReleaseColumns
from meanstream.pipelines.frames.budget_shares import epsilon_of_releases
from meanstream.pipelines.frames.frame_columns import FrameSamples
from meanstream.pipelines.frames.groups import look_alikes

TOLD_DELTA = 1e-6
"""At which the cost of several calls is told beside that without a delta."""
CLIPPED = "count as the nearest bound, also a code such as -999 (missing=)"
"""What becomes of values outside the bounds."""
CALLS = (2, 30)
"""Numbers of calls whose joint cost a result states: a second look, and a month of days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCharge:
    """Public: what a call has charged, and where the ledger ends.

    Attributes
    ----------
    made : int
        Releases that this call has charged.
    rows : int
        Releases that the ledger has charged in all.
    head : str
        Last value of the ledger's chain, which stands for all of it.
    store : str
        Name of the store's file.
    """

    made: int
    rows: int
    head: str
    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameReleases:
    """Releases of a frame's groups.

    Attributes
    ----------
    samples : FrameSamples
        Private: the rows, groups in the order of the releases' numbers.
    settings : AgentsSettings
        How the groups released.
    every : list of ReleaseColumns
        Public: all releases so far, in their order.
    counted : array (groups,)
        Public: rows of each group that count.
    charge : LedgerCharge, optional
        What the call has charged; None where no ledger counts.
    forgotten : frozenset of int
        Public: groups that the store has forgotten, whose releases are in no answer.
    pointwise_calls : int
        Public: calls before with the store whose intervals hold each by itself.
    """

    samples: FrameSamples
    settings: AgentsSettings
    every: list[ReleaseColumns]
    counted: Ints
    charge: LedgerCharge | None = None
    forgotten: frozenset[int] = frozenset()
    pointwise_calls: int = 0

    def newest(self) -> ReleaseColumns:
        """Public: each group's newest release, by its number."""
        every = ReleaseColumns.joined(self.every)
        newest_row = np.full(int(every.agent.max(initial=-1)) + 1, -1, np.int64)
        newest_row[every.agent] = np.arange(len(every))
        return every.take(newest_row[newest_row >= 0])

    def is_answered(self, group: Ints) -> Bools:
        """Public: say which groups have an answer: those that are not forgotten."""
        return ~np.isin(group, np.array([*self.forgotten], np.int64))

    def sentences(self, person: str | None) -> tuple[str, ...]:
        """Say what is protected, what was spent and which rows are in no release."""
        notes = [
            _protected(self.settings, person, self.samples, len(self.forgotten)),
            *self._spent(),
            *self._unused(),
            f"Noise by {mechanism_facts(self.settings).said}",
        ]

        return tuple(notes)

    def _spent(self) -> Iterator[str]:
        if self.charge is None:
            yield _calls_add_up(self.settings)
            return

        horizon = self.settings.horizon
        index = np.zeros(0, np.int64)

        if self.every:
            newest = self.newest()
            index = newest.index[self.is_answered(newest.agent)]

        left = horizon - index
        if not len(left):
            return
        low = int(left.min())
        high = int(left.max())
        each = f"{low}" if low == high else f"{low} to {high}"
        made = f"The ledger has charged {self.charge.made:,} releases of {len(left):,} groups in this call"
        yield f"{made}; {each} of {horizon} releases are left for each group"

    def _unused(self) -> Iterator[str]:
        """Say which rows are in no release, and why."""
        settings = self.settings
        samples = self.samples
        released = np.zeros(len(self.counted), np.int64)
        if self.every:
            newest = self.newest()
            released[newest.agent] = newest.count

        waiting = np.where(self.is_answered(np.arange(len(released))), self.counted - released, 0)
        if waiting.any():
            groups = int(np.count_nonzero(waiting))
            said = f"{int(waiting.sum()):,} rows of {groups:,} groups are in no release: these groups have made all "
            said += f"{settings.horizon} of their releases"

            if self.charge is not None:
                both = f"epsilon {settings.epsilon_of_calls(2):.3g} together for a row in both"
                said += f"; a new store begins another budget ({both})"

            yield said

        over = len(samples.group) - int(self.counted.sum())
        if over:
            yield f"{over:,} rows do not count: beyond {settings.per_person} of one person in a group"

        if self.forgotten:
            one = len(self.forgotten) == 1
            left_out = "1 group is" if one else f"{len(self.forgotten):,} groups are"
            yield f"{left_out} left out: the store has forgotten {'it' if one else 'them'}"

        alike = look_alikes(samples.names)
        if alike:
            said = f"{alike:,} names of groups differ from another one only in case or blanks"
            yield f"{said}: each is a group of its own"

        if samples.dropped:
            yield f"{samples.dropped:,} rows with a missing value were left out; which rows have one is public"


def bounds_note(settings: AgentsSettings) -> str:
    """Say what becomes of values beyond the bounds.

    A constant of the settings: how many values there are is private.

    Examples
    --------
    >>> bounds_note(AgentsSettings(lower=0, upper=200, epsilon=1, delta=1e-6))
    'Values outside [0, 200] count as the nearest bound, also a code such as -999 (missing=)'
    """
    return f"Values outside [{settings.lower:g}, {settings.upper:g}] {CLIPPED}"


def _protected(
    settings: AgentsSettings, person: str | None, samples: FrameSamples, forgotten: int
) -> str:
    """Say what is protected.

    A person may have been in each group that is forgotten, whose releases stay public.
    """
    said = f"({settings.epsilon:g}, {settings.delta:g})-differentially private towards "
    if person is None:
        return f"{said}the value of one row; public: which groups there are and how many rows they have"
    said += (
        f"all rows of one person (column {person!r}) in a group, of which at most {settings.per_person} count; public: "
        "which groups there are, how many rows they have and whose these are"
    )
    groups = samples.groups_of_a_person() + forgotten

    if groups < 2:
        return said
    those = "the most here" if not forgotten else f"the most here with the forgotten {forgotten:,}"

    return f"{said}. A person in {groups} groups, {those}, has epsilon {settings.epsilon_over(groups):.3g}"


def _calls_add_up(settings: AgentsSettings) -> str:
    """Say what calls on other frames cost together: a row in all of them is released by each.

    Examples
    --------
    >>> _calls_add_up(AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6)).partition(";")[0]
    'No ledger counts this call: 2 calls on different frames are epsilon 2 together, 30 calls 29.9'
    """
    two, many = (_epsilon_over(settings, calls) for calls in CALLS)
    each = "row" if settings.per_person is None else "person"
    return (
        f"No ledger counts this call: {CALLS[0]} calls on different frames are epsilon {two} together, "
        f"{CALLS[1]} calls {many}; store= charges each {each} once"
    )


def _epsilon_over(settings: AgentsSettings, calls: int) -> str:
    """Say what several calls cost; without a delta at a small one too, if it is less there."""
    epsilon = epsilon_of_releases(settings, calls)
    if settings.delta:
        return f"{epsilon:.3g}"
    less = settings.losses_of_calls(calls).epsilon(TOLD_DELTA)

    if less > 0.99 * epsilon:
        return f"{epsilon:.3g}"
    return f"{epsilon:.3g} ({less:.3g} at delta {TOLD_DELTA:g})"
