"""Users' sums of a round joined once, and held to budgets and to the greatest number of users."""

from __future__ import annotations

import apache_beam as beam

import meanstream.pipelines.beam.rounds.rounds_coders as _coders  # noqa: F401 - coders register themselves
from meanstream.pipelines.beam.element_types.beam_samples import SHARDS
from meanstream.pipelines.beam.keyed_state.beam_state import MarkKeys, StateOwner
from meanstream.pipelines.beam.rounds.answer_rounds import round_key
from meanstream.pipelines.beam.rounds.budget_of_users import SLOTS, EnforceBudget, UsersBySlot
from meanstream.pipelines.beam.rounds.rounds_elements import ForRound, UserBatch
from meanstream.pipelines.beam.rounds.rounds_windows import CarryRounds, JoinSessions
from meanstream.pipelines.beam.rounds.summaries_on_beam import JoinBatches
from meanstream.pipelines.beam.worker.beam_windows import ForGood
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.rounds.rounds_deployment import rounds_deployment_identity
from meanstream.streaming.rounds.rounds_settings import RoundsSettings


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
