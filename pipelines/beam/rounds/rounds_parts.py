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
from meanstream.pipelines.beam.rounds.budget_of_users import SLOTS
from meanstream.pipelines.beam.rounds.carried_windows import RunCarried
from meanstream.pipelines.beam.rounds.curator_step import RunReleases
from meanstream.pipelines.beam.rounds.join_results import JoinUsers
from meanstream.pipelines.beam.rounds.known_results import (
    WithFindings,
    known_at_one_worker,
    known_reports_by_shard,
    known_round_key,
    known_shards,
    known_users_by_shard,
)
from meanstream.pipelines.beam.rounds.rounds_elements import (
    ForRound,
    ReportBatch,
    StageFindings,
    StageTally,
)
from meanstream.pipelines.beam.rounds.stages_on_beam import (
    CountUsers,
    DecodeStage,
    DesignFor,
    EncodeStage,
    SumTallies,
    TallyStage,
)
from meanstream.pipelines.beam.rounds.summaries_on_beam import SumBatches
from meanstream.pipelines.beam.worker.beam_steps import discreet_step
from meanstream.pipelines.beam.worker.transform_arguments import as_kind
from meanstream.pipelines.beam.worker.transform_outputs import typed_outputs
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation, require_beam_secret_named
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.wire import PrivateDeadLetter
from meanstream.streaming.rounds.rounds_curator import NO_SIDES
from meanstream.streaming.rounds.rounds_settings import NO_ORDER, RoundsSettings

POPULATIONS = tuple(10**power for power in range(8))
"""Numbers of users for which an estimator is designed, to see how many stages a pipeline needs,
where it is counted."""


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
        self._shards = known_shards(settings, shards)

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


class EncodeReports(beam.PTransform):  # type: ignore[misc]
    """Private to public: the reports of one stage, at most one per user and round.

    **Privacy.** Reports are made of bits that are a function of (secret, round, stage, user, samples): a bundle that is
    executed again makes the same reports.

    Parameters
    ----------
    settings : RoundsSettings
        What the parties agreed on.
    secret : SecretLocation
        Where workers find the secret.
    stage : int
        From 0.
    findings : PCollection of StageFindings, optional
        What the stage before found; before the first, from `count_users` unless `settings.users` is
        given.
    shards : int
        As for `SummarizeUsers`.
    """

    def __init__(
        self,
        settings: RoundsSettings,
        secret: SecretLocation,
        *,
        stage: int = 0,
        findings: beam.PCollection | None = None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__()
        require_rounds_parts(settings)
        encode = EncodeStage(settings, stage, secret)
        self._encode = WithFindings(
            encode, findings, settings, known_users_by_shard(shards), out=ReportBatch
        )

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Encode a batch of users at a time."""
        return pcoll | "Encode" >> self._encode


class AggregateReports(beam.PTransform):  # type: ignore[misc]
    """Public: the reports of one stage added up per round, as exact integers.

    Parameters as for `EncodeReports`.
    """

    def __init__(
        self,
        settings: RoundsSettings,
        *,
        stage: int = 0,
        findings: beam.PCollection | None = None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__()
        tally = TallyStage(settings, stage)
        known = findings if stage else None
        self._tally = WithFindings(
            tally, known, settings, known_reports_by_shard(shards), out=StageTally
        )

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Tally each batch, add up the tallies."""
        return pcoll | "Tally" >> self._tally | "Add" >> _AddUp()


class DecodeEstimate(beam.PTransform):  # type: ignore[misc]
    """Public: tallies of a stage to `StageFindings`, or to `WindowEstimate` after the last stage.

    Both come out.
    """

    def __init__(
        self,
        settings: RoundsSettings,
        *,
        stage: int = 0,
        findings: beam.PCollection | None = None,
        last: bool = False,
    ) -> None:
        super().__init__()
        decode = DecodeStage(settings, stage, last=last)
        known = findings if stage else None
        self._decode = WithFindings(decode, known, settings, known_at_one_worker(StageTally))

    def expand(self, pcoll: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection]:
        """Return findings and estimates."""
        findings, estimates = pcoll | "Decode" >> self._decode
        return findings, estimates


class RunStages(beam.PTransform):  # type: ignore[misc]
    """Private to public: users' sums per window, from `JoinUsers`, to one `WindowEstimate` per window."""

    def __init__(
        self,
        settings: RoundsSettings,
        secret: SecretLocation,
        *,
        stages: int | None = None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__()
        self._shards = shards
        self._settings = settings
        self._secret = secret
        self._stages = rounds_part_stages(settings, stages)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Run the stages one after the other."""
        settings = self._settings
        if settings.carries:
            return pcoll | "Windows in order" >> RunCarried(settings, self._secret)
        findings = (
            None if settings.users is not None else pcoll | "Count users" >> CountedUsers(settings)
        )

        if settings.central:
            curate = RunReleases(
                settings,
                self._secret,
                releases=self._stages,
                findings=findings,
                shards=self._shards,
            )

            return pcoll | "Curate" >> curate

        estimates = []
        last = self._stages - 1
        shards = self._shards
        for stage in range(self._stages):
            encode = EncodeReports(
                settings, self._secret, stage=stage, findings=findings, shards=shards
            )
            reports = pcoll | f"Encode {stage}" >> encode
            findings, found = rounds_part_answers(
                reports, settings, stage, findings, last=stage == last, shards=shards
            )
            estimates.append(found)

        return (
            estimates[0]
            if len(estimates) == 1
            else tuple(estimates) | "Estimates" >> beam.Flatten()
        )


class CountedUsers(beam.PTransform):  # type: ignore[misc]
    """Public: how many users each round is designed for; that they took part is public."""

    def __init__(self, settings: RoundsSettings) -> None:
        super().__init__()
        self._settings = settings

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Count, then round down."""
        counts = pcoll | "Count" >> beam.ParDo(CountUsers()).with_output_types(StageTally)
        design = beam.ParDo(DesignFor(self._settings)).with_output_types(StageFindings)
        return counts | "Add" >> _AddUp() | "Design" >> design


def rounds_part_answers(
    reports: beam.PCollection,
    settings: RoundsSettings,
    stage: int,
    findings: beam.PCollection | None,
    *,
    last: bool,
    shards: int = SHARDS,
) -> tuple[beam.PCollection, beam.PCollection]:
    """Public: reports of a stage to its findings and to estimates."""
    aggregate = AggregateReports(settings, stage=stage, findings=findings, shards=shards)
    tallies = reports | f"Aggregate {stage}" >> aggregate
    both = tallies | f"Decode {stage}" >> DecodeEstimate(
        settings, stage=stage, findings=findings, last=last
    )

    return both[0], both[1]


class _AddUp(beam.PTransform):  # type: ignore[misc]
    """Public: the tallies of each round added up, at a key of its own."""

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Key, add, and take the key off."""
        keyed = pcoll | "Key" >> beam.Map(_by_round).with_output_types(tuple[int, StageTally])
        return (
            keyed
            | "Sum" >> beam.CombinePerKey(SumTallies())
            | "Rounds" >> beam.Values().with_output_types(StageTally)
        )


@discreet_step
def _by_round(tally: StageTally) -> tuple[int, StageTally]:
    return known_round_key(tally.window), tally


def rounds_part_stages(settings: RoundsSettings, max_stages: int | None) -> int:
    """Say how many stages a pipeline needs."""
    require_beam_secret_named(settings)
    settings.require_user_privacy()
    require(max_stages is None or max_stages >= 1, "max_stages", "be at least 1", max_stages)
    populations = POPULATIONS if settings.users is None else (settings.users,)
    designed = [settings.estimator_for(users) for users in populations]
    needed = max(len(estimator.rounds) for estimator in designed)

    return needed if settings.users is not None else max_stages or needed


def require_rounds_parts(settings: RoundsSettings) -> None:
    """Refuse to split a round into two sides where a trusted curator sees the samples, or users are not protected."""
    require_beam_secret_named(settings)
    settings.require_user_privacy()
    settings.require_nothing_carried("on two sides", NO_ORDER)
    require(not settings.central, "estimator", f"be local here: {NO_SIDES}", settings.estimator)
