"""What the agents of a shard were charged, and the releases that were given for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from meanstream.operators.agents.agents import ReleaseBatch
from meanstream.operators.agents.released_change_tests import NOTHING
from meanstream.operators.records import Bools, Ints, ReleaseColumns, Words
from meanstream.pipelines.beam.element_types.packed import (
    packed,
    packed_columns_of,
    packed_narrow,
    unpacked,
)
from meanstream.pipelines.beam.keyed_state.beam_ledger import SpendLedger

_LATEST = tuple(
    one.name
    for one in fields(ReleaseColumns)
    if one.name not in ("agent", "covariates", "noise_terms")
)


class ShardSpend:
    """How many releases each agent of a shard was charged, by its place."""

    def __init__(self) -> None:
        self.rounds: Ints = np.zeros(0, np.int64)

    def spent(self, agent: Ints) -> Ints:
        """Tell how many each of these was charged."""
        return self.rounds[agent]

    def charge(self, agent: Ints) -> None:
        """Charge one release to each of these different agents."""
        self.rounds[agent] += 1


class ReleaseLedger:
    """What each agent of a shard was charged, and the releases that were given for it.

    Charged before they leave.

    The state is two things: how many releases each agent was charged, which says at once whether a
    release is new, and the rows, which are only ever added and are read when one is not.

    Parameters
    ----------
    spend : ShardSpend or SpendLedger
        How much was charged.
    rows : callable
        Reads the rows that were added so far.

    Notes
    -----
    **Privacy.** The same release id with the same input version is the stored release again and
    costs nothing. With another version it would be a second look at the agent's data, and is
    refused.
    """

    def __init__(
        self, spend: ShardSpend | SpendLedger, rows: Callable[[], Iterable[bytes]]
    ) -> None:
        self._spend: Any = spend
        self._rows = rows

    def charge(
        self, batch: ReleaseBatch, words: Words, payer: Any = None
    ) -> tuple[ReleaseBatch, Bools, bytes | None]:
        """Charge releases; give what may leave, which were refused, and the row to add."""
        releases, payer = batch.releases, words if payer is None else payer
        new = releases.index > self._spend.spent(payer)
        refused = np.zeros(len(releases), np.bool_)

        if not new.all():
            batch, refused = self._stored(batch, words, ~new)

        row = None
        if new.any():
            order = np.flatnonzero(new)[np.argsort(releases.index[new], kind="stable")]
            for index in np.unique(releases.index[order]).tolist():
                who = payer[order[releases.index[order] == index]]
                if np.any(self._spend.spent(who) != index - 1):
                    raise ValueError(
                        "release must be its agent's next one in the ledger, got a later one"
                    )

                self._spend.charge(who)

            row = _row(batch, words, new)

        return batch, refused, row

    def _stored(
        self, batch: ReleaseBatch, words: Words, again: Bools
    ) -> tuple[ReleaseBatch, Bools]:
        """Put stored releases in place of those that were charged before.

        Refuse those of another input.
        """
        stored: dict[tuple[int, int, int], tuple[dict[str, np.ndarray], int]] = {}
        for encoded in self._rows():
            _, columns = unpacked(encoded, "charged")
            index = columns["index"].tolist()
            for place, (first, second) in enumerate(columns["words"].tolist()):
                stored[first, second, index[place]] = columns, place

        columns = {name: getattr(batch.releases, name).copy() for name in _LATEST}
        time = batch.time.copy()
        refused = np.zeros(len(again), np.bool_)
        for at in np.flatnonzero(again).tolist():
            found, place = stored[
                int(words[at, 0]), int(words[at, 1]), int(batch.releases.index[at])
            ]
            if found["version"][place] != batch.version[at]:
                refused[at] = True
                continue

            time[at] = found["time"][place]
            for name in _LATEST:
                columns[name][at] = (
                    found[name][place] if name in found else 0
                )  # no votes are not kept

        # What is repeated has the same index, so as many draws.
        releases = ReleaseColumns(
            agent=batch.releases.agent, **columns, noise_terms=batch.releases.noise_terms
        )
        drift = (
            np.where(again, NOTHING, batch.drift) if len(batch.drift) else batch.drift
        )  # it was told with them

        return replace(batch, releases=releases, time=time, drift=drift), refused


def charges_of_rows(rows: Iterable[bytes]) -> SpendLedger:
    """Add up what rows of a ledger say was charged."""
    charges = SpendLedger(b"")
    for encoded in rows:
        _, columns = unpacked(encoded, "charged")
        charges.charge_at_least(columns["words"], columns["index"])

    return charges


def _row(batch: ReleaseBatch, words: Words, new: Bools) -> bytes:
    columns = packed_columns_of(batch.releases.take(new))
    del columns["agent"]
    kept = {"version": batch.version[new], "time": batch.time[new], "words": words[new]}
    return packed("charged", {}, {**packed_narrow(columns), **kept})
