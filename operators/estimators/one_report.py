"""What estimators share whose users all report once, on the declared bounds, through one channel."""

from __future__ import annotations

from collections.abc import Callable

from meanstream.operators.records import Floats
from meanstream.operators.rounds.base import Settings
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.clip_stage import ClipRound
from meanstream.operators.rounds.estimator_traits import BOUNDS, EstimatorTraits
from meanstream.operators.rounds.localization import ClipWindow
from meanstream.operators.rounds.round_records import Summaries


def report_own_mean(summaries: Summaries, window: ClipWindow) -> Floats:  # noqa: ARG001 - a number for any window
    """Private: each user's mean."""
    return summaries.mean


def report_first_sample(summaries: Summaries, window: ClipWindow) -> Floats:  # noqa: ARG001 - a number for any window
    """Private: each user's earliest sample."""
    return summaries.first_value


class OneReport(EstimatorTraits):
    """Base of estimators whose users all report once: one stage, one window, one channel.

    Notes
    -----
    **Privacy.** That of the channel, whose epsilon is the estimator's.
    """

    assumes = BOUNDS
    of_a_paper = False
    trust = "local"

    def _report_once(
        self,
        settings: Settings,
        channel: Mechanism,
        summary: Callable[[Summaries, ClipWindow], Floats] = report_own_mean,
        *,
        any_law: bool = False,
    ) -> None:
        """Make the stage in which everyone is requested a summary of its samples.

        See `ClipRound` for the interval.
        """
        self._settings = settings
        self._channel = channel
        self.mode = settings.mode
        self.epsilon = settings.epsilon
        self.rounds = (ClipRound(settings, summary, self.channel, any_law=any_law),)
        self.shares = (1.0,)

    def channel(self, window: ClipWindow) -> Mechanism:  # noqa: ARG002 - there is one window
        """Public: what randomizes a report."""
        return self._channel
