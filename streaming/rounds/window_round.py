"""One round of one window, step by step: users' reports, their tally, what each stage finds.

Both hosts, the users' side alone and the statistician's side alone call these functions with the
same arguments and therefore write the same bytes; `event_lines` writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from meanstream.operators.noise.keyed import KeyedNoise, canonical, canonical_plain
from meanstream.operators.records import Ints, Words
from meanstream.operators.rounds.round_protocol import (
    Estimator,
    ReportWords,
    assign_protocol_stages,
    protocol_input_version,
)
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.validation import require
from meanstream.streaming.rounds.rounds_settings import (
    RoundsSettings,
    settings_round_id,
    settings_round_noise,
)
from meanstream.streaming.rounds.window_widths import Window

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

    @cached_property
    def _design(self) -> dict[str, Any]:
        users = self.settings.design_users(self.users)
        key = (self.settings.protocol_bytes, canonical(self.carried), users)
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

    def tally(self, stage: int, public: Public, reports: Reports) -> tuple[Tally, int]:
        """Public: add up reports.

        Return with it how many were refused, because no user can have made them.
        """
        if not len(reports):
            return Tally(), 0
        step = self._local.rounds[stage]
        good = step.valid(reports, public)

        return step.tally(reports[good], public), int(np.count_nonzero(~good))

    def decode(self, stage: int, public: Public, tally: Tally) -> Public | Estimate:
        """Public: what the next stage needs, or the estimate on [-1, 1]."""
        found = self._local.rounds[stage].decode(tally, public)
        return self.checked(stage, found)

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
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]

    return float(f"{value:.9g}") if isinstance(value, float) else value
