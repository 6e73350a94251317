"""Rounds in a Beam pipeline: users' samples to one private mean per window.

Three lines of a pipeline are enough::

    rows = [("N14228", 7.0, 1357034400.0), ("N24211", -4.0, 1357037000.0)]
    run = RunRounds("one_shot", name="delays", lower=-30, upper=120, epsilon=1.0, window="7d")
    means = (pipeline | beam.Create(rows) | run).estimates

`RunRounds` is made of parts that can be applied alone: `SummarizeUsers` (private), on all workers,
and `RunStages` (private to public), at one key for each window. `ReportRounds` is the users' side
alone, `AnswerReports` the statistician's. Whatever runs them, name the runner: `DirectRunner` may
run a pipeline again on another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam import typehints
from apache_beam.transforms.window import WindowFn

from meanstream.operators.estimators.registry import estimator_name
from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.beam_samples import SHARDS, sample_batch
from meanstream.pipelines.beam.element_types.elements import SampleFields
from meanstream.pipelines.beam.input.beam_intake import REJECTED, SampleIntake
from meanstream.pipelines.beam.input.parse_messages import (
    Parsed,
    ParseMessages,
    SampleRow,
    SampleRows,
)
from meanstream.pipelines.beam.rounds.answer_rounds import (
    AnswerCarried,
    AnswerOnce,
    AnswerRound,
    UsersTogether,
)
from meanstream.pipelines.beam.rounds.budget_of_users import SLOTS, JoinUsers
from meanstream.pipelines.beam.rounds.rounds_elements import ForRound, ReportBatch
from meanstream.pipelines.beam.rounds.rounds_windows import CarryRounds
from meanstream.pipelines.beam.rounds.summaries_on_beam import SumBatches
from meanstream.pipelines.beam.rounds.two_sides import (
    ESTIMATES,
    RESULTS,
    AnswerReceived,
    FormatReports,
    ReportNextStage,
    ResultsAsBytes,
    StampReports,
    UsersAsBytes,
)
from meanstream.pipelines.beam.worker.beam_steps import ForGood, typed_outputs
from meanstream.pipelines.beam.worker.transform_arguments import (
    as_kind,
    as_shards,
    as_window,
    require_timers,
    settings_from_parameters,
    shown_settings,
    suggesting_keywords,
)
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation, require_beam_secret_named
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.round_events import StageResult, WindowEstimate
from meanstream.streaming.events.wire import PrivateDeadLetter
from meanstream.streaming.rounds.rounds_settings import NO_ORDER, RoundsSettings
from meanstream.streaming.rounds.window_round import NO_SIDES
from meanstream.streaming.sources.mapping import ColumnMapping

__all__ = [
    "AnswerReports",
    "Answered",
    "ColumnMapping",
    "ParseMessages",
    "Parsed",
    "ReportBatch",
    "ReportLines",
    "ReportRounds",
    "Reported",
    "RoundsSettings",
    "RunRounds",
    "SampleFields",
    "SampleRow",
    "SampleRows",
    "SecretLocation",
    "SummarizeUsers",
    "Summarized",
    "sample_batch",
]


class Answered(NamedTuple):
    """What `RunRounds` gives.

    Attributes
    ----------
    estimates : PCollection of WindowEstimate
        Public: one per window that has samples.
    rejected : PCollection of PrivateDeadLetter
        Private, for the operator of the pipeline: elements that were no samples, with the reason
        and nothing of what they said.
    """

    estimates: beam.PCollection
    rejected: beam.PCollection


class Reported(NamedTuple):
    """What `ReportRounds` gives.

    Attributes
    ----------
    reports : PCollection of ReportBatch
        Public: of the first stage, or of the stage after the last result.
    rejected : PCollection of PrivateDeadLetter
        Private, for the operator of the users' side: elements that were no samples, with the reason
        and nothing of what they said.
    """

    reports: beam.PCollection
    rejected: beam.PCollection


class RunRounds(beam.PTransform):  # type: ignore[misc]
    """Samples to one private mean per window: both sides of a round in one pipeline.

    Input as for `SummarizeUsers`; output: `Answered`.

    **Privacy.** Every user has (epsilon, 0) local differential privacy for all samples it sends
    within one window, their number included; that it took part is public. Over all windows a user
    spends at most `user_budget`, for the life of the pipeline.

    Parameters
    ----------
    estimator : str, class or RoundsSettings
        A key of `meanstream.operators.estimators.registry.ESTIMATORS`, or a class of your own; or
        all settings, whose name is needed here.
    options, fields, secret, shards
        As for `SummarizeUsers`.
    name, lower, upper, epsilon, window
        With the name of an estimator: those of `RoundsSettings`, whose other parameters are then as
        usual. The window may be one of Beam's, too: `FixedWindows`, `SlidingWindows`, `Sessions`.

    Examples
    --------
    >>> RunRounds("one_shot", name="delays", lower=0, upper=1, epsilon=1.0, window="7d,1d")
    Traceback (most recent call last):
    ValueError: user_budget must be at least 7 for sliding windows '7d,1d' (a sample is in 7 windows, each costs \
epsilon 1), got None
    """

    @suggesting_keywords
    def __init__(
        self,
        estimator: str | type[Any] | RoundsSettings,
        options: EngineOptions | None = None,
        *,
        fields: SampleFields | None = None,
        secret: SecretLocation | None = None,
        shards: int = SHARDS,
        name: str | None = None,
        lower: float | None = None,
        upper: float | None = None,
        epsilon: float | None = None,
        window: str | WindowFn | None = None,
    ) -> None:
        super().__init__()
        whole = estimator if isinstance(estimator, RoundsSettings) else None
        parameters = {
            "lower": lower,
            "upper": upper,
            "epsilon": epsilon,
            "window": window,
            "name": name,
        }
        given = settings_from_parameters(whole, parameters, ("lower", "upper", "epsilon", "window"))

        if whole is None:
            given["window"] = as_window(given["window"])

        if isinstance(estimator, RoundsSettings):
            self._settings = estimator
        else:
            self._settings = RoundsSettings(estimator=estimator_name(estimator), **given)

        shards = as_shards(shards)
        self._secret = secret or SecretLocation()
        self._shards = shards
        self._stages = RunStages(self._settings, self._secret)
        self._summarize = SummarizeUsers(
            self._settings, options, fields=fields, secret=secret, shards=shards
        )

    def display_data(self) -> dict[str, Any]:
        """Show the settings, which are public."""
        return shown_settings(self._settings, shards=self._shards)

    def expand(self, pcoll: beam.PCollection) -> Answered:
        """Run the stages one after the other."""
        require_timers(pcoll.pipeline, bounded=pcoll.is_bounded)
        users, rejected = pcoll | "Summarize" >> self._summarize
        return Answered(users | "Stages" >> self._stages, rejected)


class ReportRounds(beam.PTransform):  # type: ignore[misc]
    """The users' side alone: samples to reports, and nothing else leaves.

    Input as for `SummarizeUsers`; output: `Reported`. A pipeline asks a stage of each round: the
    first, or the one after the last result that it is given.

    **Privacy.** Each user reports once in a round, whatever the statistician publishes, as long as
    the pipelines of these rounds read the same samples and have one folder of `pins`. Anyone who
    loses the folder must not run rounds again that were queried before: nothing else tells a new
    pipeline upon what.

    Parameters
    ----------
    settings : RoundsSettings
        The same as the statistician's.
    secret : SecretLocation, optional
        Where workers find the secret; the statistician has none.
    results : PCollection of StageResult, optional
        What the statistician has published, bounded: all of it is read before a round is released.
    pins : str or Path, optional
        Needed with `results`, and only then: absolute path of a folder that is there and that all
        workers share. It holds the first result of each stage that was accepted. Every later
        pipeline of these rounds must be given it: users are queried upon that result, and a
        contradicting one is refused and counted (`results_refused`).
    options, fields, shards
        As for `SummarizeUsers`.
    """

    @suggesting_keywords
    def __init__(
        self,
        settings: RoundsSettings,
        options: EngineOptions | None = None,
        *,
        fields: SampleFields | None = None,
        secret: SecretLocation | None = None,
        results: beam.PCollection | None = None,
        pins: str | Path | None = None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__()
        require_rounds_parts(as_kind("settings", settings, RoundsSettings))
        require(
            (pins is None) == (results is None),
            "pins",
            "be given with results, and only then",
            pins,
        )

        require(pins is None or Path(pins).is_absolute(), "pins", "be an absolute path", pins)
        self._settings = settings
        self._secret = secret or SecretLocation()
        self._results = results
        self._pins = None if pins is None else str(pins)
        self._shards = shards = as_shards(shards)
        self._summarize = SummarizeUsers(
            settings, options, fields=fields, secret=secret, shards=shards
        )

    def expand(self, pcoll: beam.PCollection) -> Reported:
        """Sum up, bring the users of a round together with its results, and encode."""
        settings = self._settings
        keyed_bytes = tuple[int, bytes]
        users, rejected = pcoll | "Summarize" >> self._summarize
        write_users = beam.ParDo(UsersAsBytes()).with_output_types(keyed_bytes)
        parts = [users | "Users" >> UsersTogether() | "As bytes" >> write_users]

        if self._results is not None:
            write_results = beam.ParDo(ResultsAsBytes(settings)).with_output_types(keyed_bytes)
            results = self._results | "Results" >> write_results
            parts.append(results | "Carry results" >> CarryRounds(settings))

        report = ReportNextStage(settings, self._secret, self._pins)
        encode = beam.ParDo(report).with_output_types(ReportBatch)
        rounds = parts | "With results" >> beam.Flatten() | "Of a round" >> beam.GroupByKey()
        return Reported(rounds | "Encode" >> encode, rejected)


class ReportLines(beam.PTransform):  # type: ignore[misc]
    """Public: `ReportBatch` to the lines of `Report` events, for a topic or a file that others read."""

    def __init__(self, settings: RoundsSettings) -> None:
        super().__init__()
        self._settings = settings

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Write one line per report."""
        return pcoll | "Tell" >> beam.ParDo(FormatReports(self._settings)).with_output_types(bytes)


class AnswerReports(beam.PTransform):  # type: ignore[misc]
    """The statistician's side alone.

    Reports to results of stages and estimates; it needs neither samples nor a secret.

    Input: `ReportBatch` of all stages so far, bounded: a report that comes behind the release of
    its round is dropped by the runner. Output: a pair of `StageResult`, for users whose stage comes
    next, and `WindowEstimate`.

    Parameters
    ----------
    settings : RoundsSettings
        The same as the users'.
    """

    def __init__(self, settings: RoundsSettings) -> None:
        super().__init__()
        require_rounds_parts(as_kind("settings", settings, RoundsSettings))
        self._settings = settings

    def expand(self, pcoll: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection]:
        """Tally and decode the stages of a round, one after the other."""
        settings = self._settings
        if pcoll.element_type not in (ReportBatch, Any, typehints.Any):
            raise TypeError(f"statistician takes reports only, got {pcoll.element_type}")
        stamp = beam.ParDo(StampReports(settings)).with_output_types(tuple[int, ReportBatch])
        grouped = (
            pcoll
            | "Stamp" >> stamp
            | "Carry" >> CarryRounds(settings)
            | "Of a round" >> beam.GroupByKey()
        )

        answered = grouped | "Answer" >> beam.ParDo(AnswerReceived(settings)).with_outputs(
            RESULTS, main=ESTIMATES
        )
        results, estimates = typed_outputs(
            answered, {RESULTS: StageResult, ESTIMATES: WindowEstimate}
        )

        return results, estimates


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
