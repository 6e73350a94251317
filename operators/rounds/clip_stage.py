"""The stage that measures: each user's number, cut to a window, through a channel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats
from meanstream.operators.rounds.base import Settings, round_mean_and_stderr, round_tally_moments
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.localization import ClipWindow
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import LastRound
from meanstream.operators.rounds.unseen import unseen_margin


class ClipRound(LastRound):
    """Last stage: what each user knows of the mean, clipped to the window that an earlier stage found.

    Parameters
    ----------
    settings : Settings
        Of the estimator.
    value : callable
        Private: (Summaries, Window) to each user's number, a float array (n,) on [-1, 1].
    channel : callable
        Public: Window to the channel that is used in it, for values on [-1, 1] that are then scaled
        to the window.
    gain : float
        The expectation of a number in an unclipped window is `center + gain * (mean - center)`.
    any_law : bool
        Whether the interval holds for any users on all of [-1, 1], few ones and rare groups
        included; else it is a normal one.

    Notes
    -----
    **Privacy.** A report is one integer from a channel that is private for any two values of its range, at the
    settings' epsilon; whatever decides the value (samples, their number) is protected alike. The window is public:
    other users found it. The noise follows the width of this window, cut at -1 and 1.
    """

    name = "clip"

    def __init__(
        self,
        settings: Settings,
        value: Callable[[Summaries, ClipWindow], Floats],
        channel: Callable[[ClipWindow], Mechanism],
        *,
        gain: float = 1.0,
        any_law: bool = False,
    ) -> None:
        self.epsilon = settings.epsilon
        self._settings = settings
        self._value = value
        self._channel = channel
        self._gain = gain
        self._any_law = any_law

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one integer per user."""
        window = ClipWindow.of(public)
        values = window.to_unit(self._value(summaries, window))
        return self._channel(window).randomize(values, words)[:, np.newaxis]

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which integers the channel can give."""
        return np.asarray(self._channel(ClipWindow.of(public)).valid(reports[:, 0]), dtype=np.bool_)

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - the same sums in any window
        """Public: sum and sum of squares, exactly."""
        return round_tally_moments(reports[:, 0])

    def decode(self, tally: Tally, public: Public) -> Estimate:
        """Public: undo the scaling to the window and the shrinking to its center."""
        window = ClipWindow.of(public)
        n_users = int(public.get("users", 0)) + tally.n
        found: dict[str, Any] = {"stage": self.name, "users": tally.n, **window.as_public()}
        stages = [*public.get("stages", ()), found]

        if not tally.n:
            return self._settings.no_answer(n_users=n_users, stages=stages)
        channel = self._channel(window)
        found |= {"channel": channel.name, "channel_epsilon": channel.epsilon}
        scale = channel.step * window.half_width

        if tally.n == 1:  # one report has no spread of its own: what the channel may add at worst
            unclipped = self._undo(scale * tally.sums[0], window)
            worst = window.half_width * sum(channel.moments) ** 0.5 / self._gain
            return self._settings.no_answer(
                n_users=n_users, unclipped=unclipped, stderr=worst, stages=stages
            )

        mean, stderr = round_mean_and_stderr(tally)
        # A few reports of few values may all be equal; they never spread less than the noise.
        least = math.sqrt(_least_variance(channel) / tally.n)
        error = window.half_width * max(channel.step * stderr, least) / self._gain
        margin = self._unseen(channel, mean, error, tally.n) if self._any_law else None
        unclipped = self._undo(scale * mean, window)

        return self._settings.answer(
            unclipped, error, n_users=n_users, stages=stages, margin=margin
        )

    def _unseen(self, channel: Mechanism, mean: float, stderr: float, n: int) -> float:
        far = float(channel.variance(np.ones(1))[0])
        return unseen_margin(
            channel.step * mean, n * stderr**2, n, far=far, level=self._settings.level
        )

    def _undo(self, offset: float, window: ClipWindow) -> float:
        """Equation 9 of DAME: the number was shrunk to the center, on average by the gain."""
        return window.center + (window.middle + offset - window.center) / self._gain


def _least_variance(channel: Mechanism) -> float:
    """Variance that the channel adds to a value, at the least."""
    return float(channel.variance(np.linspace(0.0, 1.0, 129)).min())
