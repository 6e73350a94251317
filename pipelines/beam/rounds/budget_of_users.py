"""Over the budget, a user's data does not enter.

The ledger of each slot of users, round after round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from meanstream.operators.agents.admission import TOO_MANY, admission_names
from meanstream.pipelines.beam.element_types.beam_samples import SHARDS, samples_by_shard
from meanstream.pipelines.beam.keyed_state.beam_ledger import SpendLedger
from meanstream.pipelines.beam.keyed_state.beam_state import MarkKeys, StateOwner
from meanstream.pipelines.beam.keyed_state.keyed_steps import Cells
from meanstream.pipelines.beam.rounds.answer_rounds import round_key
from meanstream.pipelines.beam.rounds.round_queue import RoundTurns
from meanstream.pipelines.beam.rounds.rounds_elements import ForRound, UserBatch
from meanstream.pipelines.beam.rounds.rounds_windows import (
    CarryRounds,
    JoinSessions,
    carried_in_window,
)
from meanstream.pipelines.beam.rounds.summaries_on_beam import JoinBatches
from meanstream.pipelines.beam.worker.beam_metrics import metric_counter
from meanstream.pipelines.beam.worker.beam_steps import ForGood, Step
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.rounds.rounds_deployment import rounds_deployment_identity
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.user_places import slot_key, slot_name_hashes

SLOTS = 8
"""Of users' budgets: the most workers that can share them."""


class UsersBySlot(Step):
    """Private: users to the slots of their budgets."""

    def process(self, element: tuple[int, UserBatch]) -> Iterator[tuple[int, UserBatch]]:
        """Split a batch."""
        batch = element[1]
        for slot, places in samples_by_shard(batch.words, SLOTS):
            yield slot, batch.take(places)


class EnforceBudget(RoundTurns):
    """Users of a slot, round after round in the order of time; who cannot pay does not enter.

    Rounds wait until event time has come to their release, so that an earlier round is always
    charged before a later one. Users who do not enter are counted (`over_budget`). Of users who
    never entered before, those enter for whom there is room; samples of the others are counted
    (`rejected_too_many_agents`).

    **Privacy.** The state is keyed by slot, of which there is one number for all pipelines, so that
    a user's state is never in another place; it lives as long as the pipeline, and a user's total
    spend over all rounds stays within `user_budget`.
    """

    VALUES = ("ledger",)

    def __init__(
        self, settings: RoundsSettings, owner: StateOwner, *, most: int | None = None
    ) -> None:
        super().__init__(settings, owner)
        self._most = most  # users of a slot that ever enter

    def setup(self) -> None:
        """Begin to count."""
        super().setup()
        self._places = slot_key(self.owner.load())
        self._refused = metric_counter("over_budget")
        self._beyond = metric_counter("rejected_", TOO_MANY, private=True)

    def turn(self, due: list[UserBatch], cells: Cells) -> Iterator[Any]:
        """Charge and let go all rounds that are due, the earliest first."""
        spend = SpendLedger(cells.ledger.read() or b"")
        for batch in due:
            yield from self._enter(cells.key, batch, spend)

        cells.ledger.write(spend.to_bytes())

    def _enter(self, key: int, batch: UserBatch, spend: SpendLedger) -> Iterator[Any]:
        batch = self._with_room(batch, spend)
        horizon = self._settings.horizon
        pays = (
            np.ones(len(batch), np.bool_) if horizon is None else spend.spent(batch.words) < horizon
        )
        taking = batch if pays.all() else batch.take(pays)
        spend.charge(taking.words)
        self._refused.inc(len(batch) - len(taking))
        yield carried_in_window(self._settings, (key, taking), batch.window)

    def _with_room(self, batch: UserBatch, spend: SpendLedger) -> UserBatch:
        """Leave out newcomers beyond the greatest number of users."""
        if self._most is None or len(spend) + len(batch) <= self._most:
            return batch
        new = spend.spent(batch.words) == 0
        inside = ~new
        names = batch.names.filter(pa.array(new)).to_pylist()
        inside[new] = admission_names(
            slot_name_hashes(names, self._places), self._most - len(spend)
        )
        kept = batch.take(inside)
        self._beyond.inc(batch.n_samples - kept.n_samples)

        return kept


class JoinUsers(beam.PTransform):  # type: ignore[misc]
    """Private to private: `(shard, ForRound)` with the time of its round to users' sums per window.

    Parameters as for `SummarizeUsers`; without `max_users` anyone who made the sums has counted
    their users.
    """

    def __init__(
        self,
        settings: RoundsSettings,
        secret: SecretLocation,
        *,
        shards: int = SHARDS,
        max_users: int | None = None,
    ) -> None:
        super().__init__()
        self._max_users = max_users
        self._settings = settings
        self._shards = shards
        made = {
            **rounds_deployment_identity(settings),
            "shards": shards,
            "slots": SLOTS,
        }  # a user's ledger never moves
        self._owner = StateOwner(settings=made, secret=secret)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Shuffle by shard, join, enforce the budget."""
        settings = self._settings
        keyed = tuple[int, UserBatch]
        session = settings.windows.kind == "session"
        most = self._max_users
        of_window = (
            None if most is None or settings.horizon is not None else -(-most // self._shards)
        )
        of_slot = None if most is None else -(-most // SLOTS)
        join = JoinBatches(settings, self._shards, self._owner, most=of_window)
        budget = EnforceBudget(settings, self._owner, most=of_slot)

        mark = MarkKeys(self._owner, _any_round if session else _of_round)
        marked = pcoll | "Mark" >> beam.ParDo(mark).with_output_types(
            tuple[tuple[int, int], ForRound]
        )
        placed = marked | "Place" >> (
            JoinSessions(settings) if session else CarryRounds(settings, late_panes=True)
        )

        joined = (
            placed
            | "Shuffle" >> beam.GroupByKey()
            | "Join" >> beam.ParDo(join).with_output_types(keyed)
        )

        if session:
            joined = joined | "Carry" >> CarryRounds(settings)

        if settings.horizon is None:
            return joined
        return (
            joined
            | "Slots" >> beam.ParDo(UsersBySlot()).with_output_types(keyed)
            | "For good" >> ForGood()
            | "Budget" >> beam.ParDo(budget).with_output_types(keyed)
            | "Carry paid" >> CarryRounds(settings)
        )


def _of_round(part: ForRound) -> int:
    return round_key(part.window)


def _any_round(_part: ForRound) -> int:
    """Of sessions: nobody knows yet which of them are one."""
    return 0
