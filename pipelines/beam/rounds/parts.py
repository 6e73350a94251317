"""The parts of a round on Beam, each a transform that can be applied alone; see `pipelines.rounds`."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

import pipelines.beam.rounds.coders as _coders  # noqa: F401 - coders register themselves
from operators.validation import require
from pipelines.beam.ledger import EnforceBudget
from pipelines.beam.rounds.curator import RunReleases
from pipelines.beam.rounds.known import WithFindings, reports_by_shard, together, users_by_shard
from pipelines.beam.rounds.records import ForRound, ReportBatch, StageFindings, StageTally, UserBatch
from pipelines.beam.rounds.stages import CountUsers, DecodeStage, DesignFor, EncodeStage, SumTallies, TallyStage
from pipelines.beam.rounds.summarize import JoinBatches, SumBatches
from pipelines.beam.rounds.windows import CarryRounds, JoinSessions
from pipelines.beam.samples import SHARDS
from pipelines.beam.secret import SecretPlace
from pipelines.beam.windows import ForGood
from streaming.rounds.curator import NO_SIDES
from streaming.rounds.settings import RoundsSettings

POPULATIONS = tuple(10**power for power in range(8))
"""Numbers of users for which an estimator is designed, to see how many stages a pipeline needs, where it is counted."""


class SummarizeUsers(beam.PTransform):  # type: ignore[misc]
    """Private to private: samples to each user's sums per window, in batches of users, once per window.

    Input: samples `(user, value, event time in seconds)`, or batches of them made by `sample_batch`, in the global
    window. Output: `(shard, UserBatch)` in the window that carries the round; late samples and users over their
    budget do not enter and are counted (`rejected_late`, `over_budget`). Samples that have ids, from `ReadKafka`,
    `ReadPubSub` or `pipelines.agents.agent_batch`, travel one by one, and of several of a user with one id in a window
    the first in event time counts; the others are counted (`rejected_duplicate`).

    Parameters
    ----------
    settings : RoundsSettings
        Bounds, windows, allowed lateness, budget of a user.
    shards : int
        Into how many parts the users are split by hash: the most workers that can share a window's users.
    """

    def __init__(self, settings: RoundsSettings, *, shards: int = SHARDS) -> None:
        super().__init__()
        require(shards >= 1, "shards", "be at least 1", shards)
        self._settings = settings
        self._shards = shards

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Sum up, shuffle by shard, join, enforce the budget."""
        window_fn = pcoll.windowing.windowfn
        require(isinstance(window_fn, GlobalWindows), "samples", "be in the global window", type(window_fn).__name__)
        settings, keyed = self._settings, tuple[int, ForRound]
        sums = pcoll | "Sum" >> beam.ParDo(SumBatches(settings, self._shards)).with_output_types(keyed)
        return sums | "Join" >> JoinUsers(settings, shards=self._shards)


class JoinUsers(beam.PTransform):  # type: ignore[misc]
    """Private to private: `(shard, ForRound)` with the time of its round to users' sums per window."""

    def __init__(self, settings: RoundsSettings, *, shards: int = SHARDS) -> None:
        super().__init__()
        self._settings = settings
        self._shards = shards

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Shuffle by shard, join, enforce the budget."""
        settings, keyed = self._settings, tuple[int, UserBatch]
        session = settings.windows.kind == "session"
        placed = pcoll | "Place" >> (JoinSessions(settings) if session else CarryRounds(settings, late_panes=True))
        joined = (
            placed
            | "Shuffle" >> beam.GroupByKey()
            | "Join" >> beam.ParDo(JoinBatches(settings, self._shards)).with_output_types(keyed)
        )
        if session:
            joined = joined | "Carry" >> CarryRounds(settings)
        if settings.horizon is None:
            return joined
        return (
            joined
            | "For good" >> ForGood()
            | "Budget" >> beam.ParDo(EnforceBudget(settings)).with_output_types(keyed)
            | "Carry paid" >> CarryRounds(settings)
        )


class EncodeReports(beam.PTransform):  # type: ignore[misc]
    """Private to public: the reports of one stage, at most one per user and round.

    **Privacy.** Reports are made of bits that are a function of (secret, round, stage, user, samples): a bundle that is
    executed again makes the same reports.

    Parameters
    ----------
    settings : RoundsSettings
        What the parties agreed on.
    secret : SecretPlace
        Where workers find the secret.
    stage : int
        From 0.
    findings : PCollection of StageFindings, optional
        What the stage before found; before the first, from `count_users` unless `settings.users` is given.
    shards : int
        As for `SummarizeUsers`.
    """

    def __init__(
        self,
        settings: RoundsSettings,
        secret: SecretPlace,
        *,
        stage: int = 0,
        findings: beam.PCollection | None = None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__()
        require_sides(settings)
        encode = EncodeStage(settings, stage, secret)
        self._encode = WithFindings(encode, findings, settings, users_by_shard(shards), out=ReportBatch)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Encode a batch of users at a time."""
        return pcoll | "Encode" >> self._encode


class AggregateReports(beam.PTransform):  # type: ignore[misc]
    """Public: the reports of one stage added up per round, as exact integers; parameters as for `EncodeReports`."""

    def __init__(
        self,
        settings: RoundsSettings,
        *,
        stage: int = 0,
        findings: beam.PCollection | None = None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__()
        tally, known = TallyStage(settings, stage), findings if stage else None
        self._tally = WithFindings(tally, known, settings, reports_by_shard(shards), out=StageTally)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Tally each batch, add up the tallies."""
        return pcoll | "Tally" >> self._tally | "Add" >> _added_up()


class DecodeEstimate(beam.PTransform):  # type: ignore[misc]
    """Public: tallies of a stage to `StageFindings`, or to `WindowEstimate` after the last stage; both come out."""

    def __init__(
        self, settings: RoundsSettings, *, stage: int = 0, findings: beam.PCollection | None = None, last: bool = False
    ) -> None:
        super().__init__()
        decode, known = DecodeStage(settings, stage, last=last), findings if stage else None
        self._decode = WithFindings(decode, known, settings, together(StageTally))

    def expand(self, pcoll: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection]:
        """Return findings and estimates."""
        findings, estimates = pcoll | "Decode" >> self._decode
        return findings, estimates


class RunStages(beam.PTransform):  # type: ignore[misc]
    """Private to public: users' sums per window, from `JoinUsers`, to one `WindowEstimate` per window."""

    def __init__(
        self, settings: RoundsSettings, secret: SecretPlace, *, stages: int | None = None, shards: int = SHARDS
    ) -> None:
        super().__init__()
        self._shards = shards
        self._settings = settings
        self._secret = secret
        self._stages = number_of_stages(settings, stages)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Run the stages one after the other."""
        settings = self._settings
        findings = None if settings.users is not None else pcoll | "Count users" >> CountedUsers(settings)
        if settings.central:
            curate = RunReleases(settings, self._secret, releases=self._stages, findings=findings, shards=self._shards)
            return pcoll | "Curate" >> curate
        estimates, last, shards = [], self._stages - 1, self._shards
        for stage in range(self._stages):
            encode = EncodeReports(settings, self._secret, stage=stage, findings=findings, shards=shards)
            reports = pcoll | f"Encode {stage}" >> encode
            findings, found = answer_stage(reports, settings, stage, findings, last=stage == last, shards=shards)
            estimates.append(found)
        return estimates[0] if len(estimates) == 1 else tuple(estimates) | "Estimates" >> beam.Flatten()


class CountedUsers(beam.PTransform):  # type: ignore[misc]
    """Public: how many users each round is designed for; that they took part is public."""

    def __init__(self, settings: RoundsSettings) -> None:
        super().__init__()
        self._settings = settings

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Count, then round down."""
        counts = pcoll | "Count" >> beam.ParDo(CountUsers()).with_output_types(StageTally)
        design = beam.ParDo(DesignFor(self._settings)).with_output_types(StageFindings)
        return counts | "Add" >> _added_up() | "Design" >> design


def answer_stage(
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
    both = tallies | f"Decode {stage}" >> DecodeEstimate(settings, stage=stage, findings=findings, last=last)
    return both[0], both[1]


def _added_up() -> beam.PTransform:
    return beam.CombineGlobally(SumTallies()).without_defaults().with_output_types(StageTally)


def number_of_stages(settings: RoundsSettings, max_stages: int | None) -> int:
    """Say how many stages a pipeline needs."""
    settings.require_user_privacy()
    require(max_stages is None or max_stages >= 1, "max_stages", "be at least 1", max_stages)
    populations = POPULATIONS if settings.users is None else (settings.users,)
    designed = [settings.estimator_for(users) for users in populations]
    needed = max(len(estimator.rounds) for estimator in designed)
    return needed if settings.users is not None else max_stages or needed


def require_sides(settings: RoundsSettings) -> None:
    """Refuse to split a round into two sides where a trusted curator sees the samples, or users are not protected."""
    settings.require_user_privacy()
    require(not settings.central, "estimator", f"be local here: {NO_SIDES}", settings.estimator)
