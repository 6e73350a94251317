"""Rounds in a Beam pipeline: users' samples to one private mean per window.

Two lines of a pipeline are enough::

    samples = pipeline | beam.Create([("N14228", 7.0, 1357034400.0), ("N24211", -4.0, 1357037000.0)])
    means = samples | RunRounds("one_shot", lower=-30, upper=120, epsilon=1.0, window="7d")

`RunRounds` is made of parts that can be applied alone: `SummarizeUsers` (private), `EncodeReports` (private to public),
`AggregateReports` and `DecodeEstimate` (public). `ReportRounds` is the users' side alone, `AnswerReports` the
statistician's. Whatever runs them, name the runner: `DirectRunner` may run a pipeline
again on another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton
from apache_beam.transforms.window import GlobalWindows

import pipelines.beam_coders as _coders  # noqa: F401 - coders register themselves
from operators.validation import require
from pipelines.beam_ledger import EnforceBudget
from pipelines.beam_records import ReportBatch, StageFindings, StageTally, UserBatch
from pipelines.beam_secret import SecretPlace
from pipelines.beam_stages import (
    CountUsers,
    DecodeStage,
    DesignFor,
    EncodeNextStage,
    EncodeStage,
    StampReports,
    SumTallies,
    TallyStage,
    TellResults,
)
from pipelines.beam_summarize import JoinBatches, SumBatches
from pipelines.beam_windows import CarryRounds, ForGood, JoinSessions
from streaming.events import StageResult, WindowEstimate
from streaming.rounds.settings import RoundsSettings

POPULATIONS = tuple(10**power for power in range(8))
"""Numbers of users for which an estimator is designed, to see how many stages a pipeline needs, where it is counted."""

SHARDS = 8

_EMPTY: Sequence[StageResult] = ()


class SummarizeUsers(beam.PTransform):  # type: ignore[misc]
    """Private to private: samples to each user's sums per window, in batches of users, once per window.

    Input: samples `(user, value, event time in seconds)`, or batches of them made by `sample_batch`, in the global
    window. Output: `(shard, UserBatch)` in the window that carries the round; late samples and users over their
    budget do not enter and are counted (`late_samples`, `refused_users`).

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
        settings, keyed = self._settings, tuple[int, UserBatch]
        sums = pcoll | "Sum" >> beam.ParDo(SumBatches(settings, self._shards)).with_output_types(keyed)
        session = settings.windows.kind == "session"
        placed = sums | "Place" >> (JoinSessions(settings) if session else CarryRounds(settings, late_panes=True))
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
    """

    def __init__(
        self,
        settings: RoundsSettings,
        secret: SecretPlace,
        *,
        stage: int = 0,
        findings: beam.PCollection | None = None,
    ) -> None:
        super().__init__()
        self._encode = EncodeStage(settings, stage, secret)
        self._findings = findings

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Encode a batch of users at a time."""
        encode = beam.ParDo(self._encode, *_side(self._findings))
        return pcoll | "Encode" >> encode.with_output_types(ReportBatch)


class AggregateReports(beam.PTransform):  # type: ignore[misc]
    """Public: the reports of one stage added up per round, as exact integers."""

    def __init__(self, settings: RoundsSettings, *, stage: int = 0, findings: beam.PCollection | None = None) -> None:
        super().__init__()
        self._tally = TallyStage(settings, stage)
        self._findings = findings if stage else None

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Tally each batch, add up the tallies."""
        tally = beam.ParDo(self._tally, *_side(self._findings))
        return pcoll | "Tally" >> tally.with_output_types(StageTally) | "Add" >> _added_up()


class DecodeEstimate(beam.PTransform):  # type: ignore[misc]
    """Public: tallies of a stage to `StageFindings`, or to `WindowEstimate` after the last stage; both come out."""

    def __init__(
        self, settings: RoundsSettings, *, stage: int = 0, findings: beam.PCollection | None = None, last: bool = False
    ) -> None:
        super().__init__()
        self._decode = DecodeStage(settings, stage, last=last)
        self._findings = findings if stage else None

    def expand(self, pcoll: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection]:
        """Return findings and estimates."""
        both = pcoll | "Decode" >> beam.ParDo(self._decode, *_side(self._findings)).with_output_types(Any)
        return (
            both | "Findings" >> beam.Filter(_is_findings).with_output_types(StageFindings),
            both | "Estimates" >> beam.Filter(_is_estimate).with_output_types(WindowEstimate),
        )


class RunRounds(beam.PTransform):  # type: ignore[misc]
    """Samples to one private mean per window: both sides of a round in one pipeline.

    Input as for `SummarizeUsers`; output: `WindowEstimate`, public, one per window that has samples.

    **Privacy.** Every user has (epsilon, 0) local differential privacy for all samples it sends within one window,
    their number included; that it took part is public. Over all windows a user spends at most `user_budget`, for the
    life of the pipeline.

    Parameters
    ----------
    estimator : str
        A key of `operators.rounds.ESTIMATORS`.
    secret : SecretPlace, optional
        Where workers find the secret; by default in their environment.
    shards : int
        As for `SummarizeUsers`.
    max_stages : int, optional
        How many stages the pipeline is made for, if `users` is not given: the estimator is then designed per window.
        By default as many as it has for 1 to 10 million users.
    **settings
        Those of `RoundsSettings`: lower, upper, epsilon, window, users, user_budget, allowed_lateness...

    Examples
    --------
    >>> RunRounds("one_shot", lower=0, upper=1, epsilon=1.0, window="7d,1d")
    Traceback (most recent call last):
    ValueError: user_budget must be at least 7 for sliding windows '7d,1d' (a sample is in 7 windows, each costs \
epsilon 1), got None
    """

    def __init__(
        self,
        estimator: str | RoundsSettings,
        *,
        secret: SecretPlace | None = None,
        shards: int = SHARDS,
        max_stages: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        if isinstance(estimator, RoundsSettings):
            require(not settings, "settings", "be given once", ", ".join(settings))
            self._settings = estimator
        else:
            self._settings = RoundsSettings(estimator=estimator, **settings)
        self._secret = secret or SecretPlace()
        self._shards = shards
        self._stages = _number_of_stages(self._settings, max_stages)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Run the stages one after the other."""
        settings = self._settings
        users = pcoll | "Summarize" >> SummarizeUsers(settings, shards=self._shards)
        findings = None if settings.users is not None else users | "Count users" >> _CountedUsers(settings)
        estimates = []
        for stage in range(self._stages):
            encode = EncodeReports(settings, self._secret, stage=stage, findings=findings)
            reports = users | f"Encode {stage}" >> encode
            findings, found = _answer(reports, settings, stage, findings, last=stage == self._stages - 1)
            estimates.append(found)
        return estimates[0] if len(estimates) == 1 else tuple(estimates) | "Estimates" >> beam.Flatten()


class ReportRounds(beam.PTransform):  # type: ignore[misc]
    """The users' side alone: samples to reports, and nothing else leaves.

    Input as for `SummarizeUsers`; output: `ReportBatch`, of the first stage, or of the stage after the last result.

    Parameters
    ----------
    settings : RoundsSettings
        The same as the statistician's.
    secret : SecretPlace, optional
        Where workers find the secret; the statistician has none.
    results : PCollection of StageResult, optional
        What the statistician has published, bounded and in the global window.
    shards : int
        As for `SummarizeUsers`.
    """

    def __init__(
        self,
        settings: RoundsSettings,
        *,
        secret: SecretPlace | None = None,
        results: beam.PCollection | None = None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._secret = secret or SecretPlace()
        self._results = results
        self._shards = shards

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Sum up and encode."""
        settings = self._settings
        users = pcoll | "Summarize" >> SummarizeUsers(settings, shards=self._shards)
        findings = None if settings.users is not None else users | "Count users" >> _CountedUsers(settings)
        results = _EMPTY if self._results is None else AsIter(self._results)
        encode = beam.ParDo(EncodeNextStage(settings, self._secret), results, *_side(findings))
        return users | "Encode" >> encode.with_output_types(ReportBatch)


class AnswerReports(beam.PTransform):  # type: ignore[misc]
    """The statistician's side alone: reports to results of stages and estimates; it needs neither samples nor a secret.

    Input: `ReportBatch` of all stages so far. Output: a pair of `StageResult`, for users whose stage comes next, and
    `WindowEstimate`.

    Parameters
    ----------
    settings : RoundsSettings
        The same as the users'.
    max_stages : int, optional
        As for `RunRounds`.
    """

    def __init__(self, settings: RoundsSettings, *, max_stages: int | None = None) -> None:
        super().__init__()
        self._settings = settings
        self._stages = _number_of_stages(settings, max_stages)

    def expand(self, pcoll: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection]:
        """Tally and decode the stages one after the other."""
        settings = self._settings
        stamped = pcoll | "Stamp" >> beam.ParDo(StampReports(settings)).with_output_types(ReportBatch)
        reports = stamped | "Carry" >> CarryRounds(settings)
        findings: beam.PCollection | None = None
        results, estimates = [], []
        for stage in range(self._stages):
            before = findings
            findings, found = _answer(reports, settings, stage, before, last=stage == self._stages - 1)
            tell = beam.ParDo(TellResults(settings), *_side(before)).with_output_types(StageResult)
            results.append(findings | f"Tell {stage}" >> tell)
            estimates.append(found)
        return tuple(results) | "Results" >> beam.Flatten(), tuple(estimates) | "Estimates" >> beam.Flatten()


class _CountedUsers(beam.PTransform):  # type: ignore[misc]
    """Public: how many users each round is designed for; that they took part is public."""

    def __init__(self, settings: RoundsSettings) -> None:
        super().__init__()
        self._settings = settings

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Count, then round down."""
        counts = pcoll | "Count" >> beam.ParDo(CountUsers()).with_output_types(StageTally)
        design = beam.ParDo(DesignFor(self._settings)).with_output_types(StageFindings)
        return counts | "Add" >> _added_up() | "Design" >> design


def _answer(
    reports: beam.PCollection, settings: RoundsSettings, stage: int, findings: beam.PCollection | None, *, last: bool
) -> tuple[beam.PCollection, beam.PCollection]:
    tallies = reports | f"Aggregate {stage}" >> AggregateReports(settings, stage=stage, findings=findings)
    both = tallies | f"Decode {stage}" >> DecodeEstimate(settings, stage=stage, findings=findings, last=last)
    return both[0], both[1]


def _added_up() -> beam.PTransform:
    return beam.CombineGlobally(SumTallies()).without_defaults().with_output_types(StageTally)


def _side(findings: beam.PCollection | None) -> tuple[AsSingleton, ...]:
    """Give what a stage has found as a side input per round; None where it found nothing."""
    return () if findings is None else (AsSingleton(findings, default_value=None),)


def _number_of_stages(settings: RoundsSettings, max_stages: int | None) -> int:
    require(max_stages is None or max_stages >= 1, "max_stages", "be at least 1", max_stages)
    if settings.users is not None:
        return len(settings.estimator_for(settings.users).rounds)
    return max_stages or max(len(settings.estimator_for(users).rounds) for users in POPULATIONS)


def _is_findings(found: StageFindings | WindowEstimate) -> bool:
    return isinstance(found, StageFindings)


def _is_estimate(found: StageFindings | WindowEstimate) -> bool:
    return isinstance(found, WindowEstimate)
