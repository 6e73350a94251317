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

from typing import Any

import apache_beam as beam
from apache_beam import typehints

from operators.validation import require
from pipelines.beam.rounds.known import WithFindings, together, users_by_shard
from pipelines.beam.rounds.parts import (
    AggregateReports,
    CountedUsers,
    DecodeEstimate,
    EncodeReports,
    RunStages,
    SummarizeUsers,
    answer_stage,
    number_of_stages,
    require_sides,
)
from pipelines.beam.rounds.records import ReportBatch, StageFindings
from pipelines.beam.rounds.stages import EncodeNextStage, StampReports, TellReports, TellResults
from pipelines.beam.rounds.windows import CarryRounds
from pipelines.beam.samples import SHARDS, sample_batch
from pipelines.beam.secret import SecretPlace
from streaming.events import StageResult
from streaming.rounds.settings import RoundsSettings

__all__ = [
    "AggregateReports",
    "AnswerReports",
    "DecodeEstimate",
    "EncodeReports",
    "ReportBatch",
    "ReportLines",
    "ReportRounds",
    "RoundsSettings",
    "RunRounds",
    "SecretPlace",
    "SummarizeUsers",
    "sample_batch",
]


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
        self._stages = number_of_stages(self._settings, max_stages)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Run the stages one after the other."""
        settings = self._settings
        users = pcoll | "Summarize" >> SummarizeUsers(settings, shards=self._shards)
        return users | "Stages" >> RunStages(settings, self._secret, stages=self._stages, shards=self._shards)


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
        What the statistician has published, bounded: all of it is read before a round is released.
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
        require_sides(settings)
        self._settings = settings
        self._secret = secret or SecretPlace()
        self._results = results
        self._shards = shards

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Sum up and encode."""
        settings = self._settings
        users = pcoll | "Summarize" >> SummarizeUsers(settings, shards=self._shards)
        findings = None if settings.users is not None else users | "Count users" >> CountedUsers(settings)
        encode, placing = EncodeNextStage(settings, self._secret), users_by_shard(self._shards)
        report = WithFindings(encode, findings, settings, placing, out=ReportBatch, results=self._results)
        return users | "Encode" >> report


class ReportLines(beam.PTransform):  # type: ignore[misc]
    """Public: `ReportBatch` to the lines of `Report` events, for a topic or a file that others read."""

    def __init__(self, settings: RoundsSettings) -> None:
        super().__init__()
        self._settings = settings

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Write one line per report."""
        return pcoll | "Tell" >> beam.ParDo(TellReports(self._settings)).with_output_types(bytes)


class AnswerReports(beam.PTransform):  # type: ignore[misc]
    """The statistician's side alone: reports to results of stages and estimates; it needs neither samples nor a secret.

    Input: `ReportBatch` of all stages so far, bounded: a report that comes behind the release of its round is dropped
    by the runner. Output: a pair of `StageResult`, for users whose stage comes next, and `WindowEstimate`.

    Parameters
    ----------
    settings : RoundsSettings
        The same as the users'.
    max_stages : int, optional
        As for `RunRounds`.
    """

    def __init__(self, settings: RoundsSettings, *, max_stages: int | None = None) -> None:
        super().__init__()
        require_sides(settings)
        self._settings = settings
        self._stages = number_of_stages(settings, max_stages)

    def expand(self, pcoll: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection]:
        """Tally and decode the stages one after the other."""
        settings = self._settings
        if pcoll.element_type not in (ReportBatch, Any, typehints.Any):
            raise TypeError(f"statistician takes reports only, got {pcoll.element_type}")
        stamped = pcoll | "Stamp" >> beam.ParDo(StampReports(settings)).with_output_types(ReportBatch)
        reports = stamped | "Carry" >> CarryRounds(settings)
        findings: beam.PCollection | None = None
        results, estimates = [], []
        for stage in range(self._stages):
            before = findings
            findings, found = answer_stage(reports, settings, stage, before, last=stage == self._stages - 1)
            tell = WithFindings(TellResults(settings), before, settings, together(StageFindings), out=StageResult)
            results.append(findings | f"Tell {stage}" >> tell)
            estimates.append(found)
        return tuple(results) | "Results" >> beam.Flatten(), tuple(estimates) | "Estimates" >> beam.Flatten()
