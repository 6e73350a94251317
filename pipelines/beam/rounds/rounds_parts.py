"""The parts of a round on Beam, each a transform that can be applied alone.

See `rounds.round_transforms`.
"""

from __future__ import annotations

from typing import NamedTuple

import apache_beam as beam

import meanstream.pipelines.beam.rounds.rounds_coders as _coders  # noqa: F401 - coders register themselves
from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.beam_samples import SHARDS
from meanstream.pipelines.beam.element_types.elements import SampleFields
from meanstream.pipelines.beam.input.beam_intake import REJECTED, SampleIntake
from meanstream.pipelines.beam.rounds.answer_rounds import AnswerOnce, AnswerRound, UsersTogether
from meanstream.pipelines.beam.rounds.budget_of_users import SLOTS
from meanstream.pipelines.beam.rounds.carried_windows import AnswerCarried
from meanstream.pipelines.beam.rounds.join_results import JoinUsers
from meanstream.pipelines.beam.rounds.rounds_elements import ForRound
from meanstream.pipelines.beam.rounds.rounds_windows import CarryRounds
from meanstream.pipelines.beam.rounds.summaries_on_beam import SumBatches
from meanstream.pipelines.beam.worker.beam_windows import ForGood
from meanstream.pipelines.beam.worker.transform_arguments import as_kind
from meanstream.pipelines.beam.worker.transform_outputs import typed_outputs
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation, require_beam_secret_named
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.round_events import WindowEstimate
from meanstream.streaming.events.wire import PrivateDeadLetter
from meanstream.streaming.rounds.rounds_settings import NO_ORDER, RoundsSettings
from meanstream.streaming.rounds.window_round import NO_SIDES

SMALL = 4000
"""Fewer users than this are one shard: a group costs a runner more than their sums."""


class Summarized(NamedTuple):
    """What `SummarizeUsers` gives.

    Attributes
    ----------
    users : PCollection of (int, UserBatch)
        Private: sums by shard, in the window that carries the round.
    rejected : PCollection of PrivateDeadLetter
        Private, for the operator of the users' side: elements that were no samples, with the reason
        and nothing of what they said. That a user sent one is protected as its samples are.
    """

    users: beam.PCollection
    rejected: beam.PCollection


class SummarizeUsers(beam.PTransform):  # type: ignore[misc]
    """Private to private.

    Samples to each user's sums per window, in batches of users, once per window.

    Input: samples in the global window, their parts taken by name (`elements.SampleFields`), or
    batches of them made by `sample_batch`. Output: `Summarized`. An element that is no sample goes
    to `rejected` and changes nothing for the others; late samples (`rejected_late`, for the
    operator) and users over their budget (`over_budget`) do not enter and are counted. Samples that
    have ids travel one by one, and of several of a user with one id in a window the first in event
    time counts; the others are `rejected_duplicate`, for the operator.

    Parameters
    ----------
    settings : RoundsSettings
        Bounds, windows, allowed lateness, budget of a user.
    options : EngineOptions, optional
        `max_agents`: how many users are taken. With a `user_budget` these are users that ever
        enter: each of 8 slots, which users fall into by a hash of their names, has room for its
        part of them, and who was taken is never displaced. Without one nothing is known of a user
        beyond its window: each shard takes its part of that many users in a window. Of newcomers
        beyond the room those are taken whose names come first by a hash keyed with the secret, as
        in the engine: no one can make up names that come first, and everything else of a user is
        protected. Samples of others are counted (`rejected_too_many_agents`, for the operator).
        `max_future`: seconds that a sample may lie ahead of the clock. The rest of it is not used.
    fields : SampleFields, optional
        Names of fields, or functions of an element; its agent is the user. Of vectors, `value` is
        one field of all coordinates, or one of each. By default `user`, and the value or values
        that the settings name.
    secret : SecretLocation, optional
        Where workers find the secret, which is part of what state begins with, and keys the hash of
        ids.
    shards : int
        Into how many parts the users are split by hash: the most workers that can share a window's
        users. One where fewer than 4,000 users are declared.
    """

    def __init__(
        self,
        settings: RoundsSettings,
        options: EngineOptions | None = None,
        *,
        fields: SampleFields | None = None,
        secret: SecretLocation | None = None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__()
        told = as_kind("options", options or EngineOptions(), EngineOptions)
        require(1 <= shards <= 2**15, "shards", f"be in 1..{2**15}", shards)
        parts = shards if settings.horizon is None else SLOTS

        most = told.max_agents
        require(
            most >= parts,
            "max_agents",
            f"be at least {parts}, the parts that users fall into",
            most,
        )
        self._max_users = most

        self._settings = settings
        self._secret = secret or SecretLocation()
        self._shards = 1 if settings.users is not None and settings.users < SMALL else shards

        usual = SampleFields(agent="user", value=settings.values or "value")
        self._intake = SampleIntake.of(
            as_kind("fields", fields or usual, SampleFields),
            usual,
            secret=secret,
            max_future=told.max_future,
            coordinates=len(settings.values or ()),
            categories=settings.categories,
            privacy_unit="user",
        )

    def expand(self, pcoll: beam.PCollection) -> Summarized:
        """Sum up, shuffle by shard, join, enforce the budget."""
        settings = self._settings
        total = SumBatches(settings, self._shards, self._intake.taking(pcoll, owner="user"))
        parts = pcoll | "Sum" >> beam.ParDo(total).with_outputs(REJECTED, main="sums")
        sums, rejected = typed_outputs(
            parts, {"sums": tuple[int, ForRound], REJECTED: PrivateDeadLetter}
        )
        join = JoinUsers(settings, self._secret, shards=self._shards, max_users=self._max_users)

        return Summarized(sums | "Join" >> join, rejected)


class RunStages(beam.PTransform):  # type: ignore[misc]
    """Private to public: users' sums per window, from `JoinUsers`, to one `WindowEstimate` per window."""

    def __init__(self, settings: RoundsSettings, secret: SecretLocation) -> None:
        super().__init__()
        require_beam_secret_named(settings)
        settings.require_user_privacy()
        settings.estimator_for(settings.users or 1)
        self._settings = settings
        self._secret = secret

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Bring the users of a round together, and answer it."""
        settings = self._settings
        users = pcoll | UsersTogether(in_order=settings.carries)

        if settings.carries:
            carried = AnswerCarried(settings, self._secret)
            answer = beam.ParDo(carried).with_output_types(WindowEstimate)
            estimates = users | "For good" >> ForGood() | "Answer" >> answer
            return estimates | "Carry" >> CarryRounds(settings)

        kind = AnswerOnce if settings.central else AnswerRound
        answer = beam.ParDo(kind(settings, self._secret)).with_output_types(WindowEstimate)
        return users | "Answer" >> answer


def require_rounds_parts(settings: RoundsSettings) -> None:
    """Refuse to split a round into two sides where a trusted curator sees the samples, or users are not protected."""
    require_beam_secret_named(settings)
    settings.require_user_privacy()
    settings.require_nothing_carried("on two sides", NO_ORDER)
    require(not settings.central, "estimator", f"be local here: {NO_SIDES}", settings.estimator)
