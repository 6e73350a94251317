"""One round of one window, step by step: users' reports, their tally, what each stage finds.

Both hosts, the users' side alone and the statistician's side alone call these functions with the
same arguments and therefore write the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from meanstream.operators.noise.keyed import KeyedNoise, canonical, canonical_plain
from meanstream.operators.records import Ints, Words
from meanstream.operators.rounds.central_rounds import CentralEstimator, CentralRound, ReleaseWords
from meanstream.operators.rounds.round_protocol import (
    Estimator,
    ReportWords,
    assign_protocol_stages,
    protocol_input_version,
)
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.validation import require
from meanstream.streaming.events.encode import EventLines, encode_columns_as_lines, encode_lines
from meanstream.streaming.events.round_events import (
    Charge,
    Report,
    RoundRefusal,
    StageReports,
    StageResult,
    WindowEstimate,
)
from meanstream.streaming.events.times import time_as_datetime
from meanstream.streaming.rounds.rounds_settings import (
    RoundsSettings,
    settings_round_id,
    settings_round_noise,
)
from meanstream.streaming.rounds.window_widths import MICROS, Window
from meanstream.streaming.sources.categories import category_names

MAX_DESCRIBED = 64
_described: dict[tuple[bytes, bytes, int], dict[str, Any]] = {}
"""What estimators say of themselves, by protocol, what is carried, and number of users."""


@dataclass(frozen=True)
class WindowRound:
    """Public: the round of one window.

    Parameters
    ----------
    settings : RoundsSettings
        What the parties agreed on.
    window : Window
        Which samples it is about.
    users : int
        How many users take part; the estimator is designed for `settings.design_users(users)`.
    carried : dict, optional
        What the last window's public results showed, for an estimator that carries it; see
        `carried_after`.

    Examples
    --------
    >>> settings = RoundsSettings(lower=0, upper=10, epsilon=2.0, window="1d", estimator="one_shot", name="delays")
    >>> this = WindowRound(settings, Window(0, 86_400_000_000), users=3)
    >>> len(this.stages), this.id[:27]
    (1, 'delays/1970-01-01T00:00:00Z')
    """

    settings: RoundsSettings
    window: Window
    users: int
    carried: Public | None = None

    @cached_property
    def id(self) -> str:
        """The round's id."""
        return settings_round_id(self.settings, self.window)

    @cached_property
    def estimator(self) -> Estimator:
        """The estimator, designed for the number of users."""
        designed = self.settings.estimator_for(self.users)
        return designed if self.carried is None else cast(Any, designed).carrying(self.carried)

    def carried_after(self, estimate: Estimate) -> Public | None:
        """Public: what the next window is given; None for an estimator that carries nothing."""
        return (
            canonical_plain(cast(Any, self.estimator).carried_after(estimate))
            if self.settings.carries
            else None
        )

    @cached_property
    def _local(self) -> Estimator:
        """The same, where users protect themselves.

        `curator` has the steps of a trusted curator.
        """
        require(
            self.estimator.trust == "local",
            "estimator",
            "be one of local privacy here",
            self.estimator.name,
        )

        return self.estimator

    @property
    def _shaped_by(self) -> Any:
        """What shapes the design of the estimator, besides the protocol and the users."""
        return self.carried

    @cached_property
    def _design(self) -> dict[str, Any]:
        users = self.settings.design_users(self.users)
        key = (self.settings.protocol_bytes, canonical(self._shaped_by), users)
        if (
            key not in _described
        ):  # a description can take as long as a round, and a host asks for many
            if len(_described) >= MAX_DESCRIBED:
                _described.clear()

            # Rounded, so that hosts whose libraries differ in the last digit of a design still
            # repeat the same noise.
            _described[key] = {
                "estimator": _rounded(canonical_plain(self.estimator.describe())),
                "users": users,
            }

        return _described[key]

    @property
    def stages(self) -> range:
        """Numbers of the stages."""
        return range(len(self.estimator.rounds))

    def stage_of(self, users: Words) -> Ints:
        """Tell which stage asks each user, given by hash (`keyed_owner_words`).

        Public, a function of ids.
        """
        return assign_protocol_stages(self.estimator.shares, users, self.id.encode())

    def stage_noise(self, secret: bytes, stage: int, public: Public) -> KeyedNoise:
        """Keyed noise of one stage.

        **Privacy.** Whatever a stage makes of the random bits depends on the estimator's parameters and on what the
        stages before it found; both are part of the key, so that no two different channels share their noise.
        """
        design = {**self._design, "stage": stage, "public": public}
        return settings_round_noise(secret, self.settings, self.id, design=design)

    def reports(self, secret: bytes, stage: int, public: Public, summaries: Summaries) -> Reports:
        """Private to public: the reports of users that this stage asks, one row per user.

        The same on every call.
        """
        return self.charged_reports(secret, stage, public, summaries)[0]

    def charged_reports(
        self, secret: bytes, stage: int, public: Public, summaries: Summaries
    ) -> tuple[Reports, Ints]:
        """Give `reports` and `versions` of the same users at once.

        Keys and digests are made once for both.
        """
        step = self._local.rounds[stage]
        words = ReportWords(self.stage_noise(secret, stage, public), summaries, stage)
        version = words.version.view(np.int64)
        if not len(summaries):
            return np.zeros((0, 0), np.int64), version

        with np.errstate(all="ignore"):  # a warning would tell of someone's value
            return np.asarray(step.encode(summaries, public, words), np.int64), version

    def versions(self, secret: bytes, stage: int, public: Public, summaries: Summaries) -> Ints:
        """Keyed digest of the exact input of each report, for the ledger, as signed integers."""
        return protocol_input_version(self.stage_noise(secret, stage, public), summaries).view(
            np.int64
        )

    def tally(
        self,
        stage: int,
        public: Public,
        reports: Reports,
        users: Words | None = None,  # noqa: ARG002 - for rounds with a forecast
    ) -> tuple[Tally, int]:
        """Public: add up reports, of users who are given by hash.

        Return with it how many were refused, because no user can have made them.
        """
        if not len(reports):
            return Tally(), 0
        step = self._local.rounds[stage]
        good = step.valid(reports, public)

        return step.tally(reports[good], public), int(np.count_nonzero(~good))

    def decode(self, stage: int, public: Public, tally: Tally) -> Public | Estimate:
        """Public: what the next stage needs, or the estimate on [-1, 1]."""
        result = self._local.rounds[stage].decode(tally, public)
        return self.checked(stage, result)

    def checked(self, stage: int, found: Public | Estimate) -> Public | Estimate:
        """Give what a stage found, as plain data; the last one finds the estimate, and no other."""
        if isinstance(found, Estimate) != (stage == self.stages[-1]):
            raise TypeError(
                f"{self.estimator.name}: the last stage must give the estimate, and no other"
            )

        return found if isinstance(found, Estimate) else canonical_plain(found)


def _rounded(value: Any) -> Any:
    """Cut the floats of plain data to nine digits.

    Examples
    --------
    >>> _rounded({"window": [0.1 + 0.2, 7], "name": "clip"})
    {'window': [0.3, 7], 'name': 'clip'}
    """
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]

    return float(f"{value:.9g}") if isinstance(value, float) else value


def report_event_lines(
    this: WindowRound, stage: int, users: Sequence[str], reports: Reports
) -> EventLines:
    """Write reports as events, in the order of the users."""
    step = this.estimator.rounds[stage]
    constants = {"round_id": this.id, "stage": stage, "epsilon": float(step.epsilon)}
    return encode_columns_as_lines(Report, {"user": list(users), "payload": reports}, constants)


def complete_event_line(this: WindowRound, stage: int, reports: int) -> EventLines:
    """Tell that all reports of a stage are out, that many."""
    start, end = _ends(this)
    users = this.settings.design_users(this.users)
    event = StageReports(
        round_id=this.id, start=start, end=end, stage=stage, users=users, reports=reports
    )

    return encode_lines(StageReports, [event])


def stage_event_line(this: WindowRound, stage: int, tally: Tally, public: Public) -> EventLines:
    """Write what a stage found as an event."""
    start, end = _ends(this)
    event = StageResult(
        round_id=this.id,
        start=start,
        end=end,
        stage=stage,
        users=tally.n,
        public=canonical_plain(public),
    )

    return encode_lines(StageResult, [event])


def estimate_event_line(this: WindowRound, estimate: Estimate, users: int) -> EventLines:
    """Write the answer as an event, in the value's unit."""
    in_unit = estimate.in_unit(*this.settings.ends)
    shared = this.settings.user_windows
    start, end = _ends(this)
    interval = np.stack([in_unit.lower, in_unit.upper], axis=-1).tolist()

    event = WindowEstimate(
        round_id=this.id,
        start=start,
        end=end,
        value=in_unit.value.tolist(),
        interval=tuple(interval) if in_unit.value.ndim == 0 else [tuple(ends) for ends in interval],
        level=in_unit.level,
        stderr=np.asarray(in_unit.stderr).tolist(),
        unclipped=np.asarray(in_unit.unclipped).tolist(),
        users=users,
        epsilon=in_unit.epsilon if shared is None else this.settings.epsilon,
        delta=in_unit.delta if shared is None else this.settings.user_delta,
        user_windows=shared,
        trust=in_unit.trust,  # type: ignore[arg-type]
        method=in_unit.method,
        mode=in_unit.mode,  # type: ignore[arg-type]
        stages=canonical_plain(list(in_unit.stages)),
        values=None
        if this.settings.values is None or in_unit.function is not None
        else list(this.settings.values),
        categories=None
        if this.settings.categories is None
        else category_names(this.settings.categories),
        quantiles=None if this.settings.quantiles is None else list(this.settings.quantiles),
        components=canonical_plain(list(in_unit.components)) or None,
        function=None if in_unit.function is None else canonical_plain(in_unit.function),
    )

    return encode_lines(WindowEstimate, [event])


def refusal_event_lines(this: WindowRound, users: Sequence[str], rounds: Ints) -> EventLines:
    """Tell whose data did not enter, and how many rounds each has paid for."""
    settings = this.settings
    budget = 0.0 if settings.user_budget is None else settings.user_budget
    spent = settings.spent_epsilon(rounds)
    columns: dict[str, Sequence[Any]] = {
        "user": list(users),
        "spent": spent.tolist(),
        "remaining": np.maximum(budget - spent, 0.0).tolist(),
    }

    return encode_columns_as_lines(
        RoundRefusal, columns, {"round_id": this.id, "asked": float(settings.epsilon)}
    )


def _ends(this: WindowRound) -> tuple[Any, Any]:
    return time_as_datetime(this.window.start / MICROS), time_as_datetime(this.window.end / MICROS)


NO_SIDES = "a trusted curator sees every sample, so there is no users' side that protects itself"
"""Why a round with a curator cannot be split into two sides."""


def _curator_of(this: WindowRound) -> CentralEstimator:
    """Give the estimator of a round with a trusted curator."""
    estimator = this.estimator
    require(
        estimator.trust == "central", "estimator", "be one of central trust here", estimator.name
    )

    return cast(CentralEstimator, estimator)


def curator_sum(this: WindowRound, release: int, public: Public, summaries: Summaries) -> Tally:
    """Private: add up what one release asks of some of the users, exactly and without noise, in any order.

    Names of a curator's steps differ from those of local rounds on purpose: what is added up here
    is private until `release` has noised it.
    """
    step: CentralRound = _curator_of(this).rounds[release]
    asked = summaries.take(this.stage_of(summaries.user) == step.cohort)

    if len(asked):
        return step.tally(step.encode(asked, public), public)
    return Tally()


def curator_noise_once(
    this: WindowRound, secret: bytes, release: int, public: Public, tally: Tally
) -> Public | Estimate:
    """Private to public: noise what everyone's samples add up to.

    The estimate on [-1, 1], after the last release.

    Notes
    -----
    **Privacy.** The noise is a function of the secret, the round's id, the protocol, the release, what was released
    before it and the exact sums: a second call repeats what was released, and other sums have other noise.
    """
    noise = this.stage_noise(secret, release, public)
    words = ReleaseWords(noise, this.id, release, tally)
    return this.checked(release, _curator_of(this).rounds[release].release(tally, public, words))


def curator_charge_lines(
    this: WindowRound, users: Sequence[str], number: Ints, answer: EventLines
) -> EventLines:
    """Write what each user is charged for an answer as events, in the order of the users.

    `number` is that of the window among those of each user.
    """
    estimator = _curator_of(this)
    settings = this.settings
    constants = {
        "round_id": this.id,
        "epsilon": float(estimator.epsilon),
        "delta": float(estimator.delta),
        "released": hashlib.sha256(answer.lines[0]).hexdigest(),
    }
    columns: dict[str, Sequence[Any]] = {"user": list(users)}

    # A budget that windows share is charged as a whole, with the first of them.
    if settings.user_windows is not None:
        constants["epsilon"] = settings.epsilon
        constants["delta"] = settings.user_delta
        constants["user_windows"] = settings.user_windows
        columns["window_number"] = number.tolist()

    return encode_columns_as_lines(Charge, columns, constants)
