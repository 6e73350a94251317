"""Duchi, Jordan and Wainwright's mean.

One report per user on [-1, 1], in the ways in which it has been read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from meanstream.operators.estimators.one_report import (
    OneReport,
    report_first_sample,
    report_own_mean,
)
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.channels.registry import make_channel
from meanstream.operators.validation import require

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

READINGS = ("one_bit", "laplace")
SUMMARIES = {"sample": report_first_sample, "mean": report_own_mean}


class Duchi(OneReport):
    """One sample, or one mean, of each user through one bit or with Laplace noise.

    Released to the statistician: one integer from each user. Answers the mean over users.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    sizes : SizeDistribution, optional
        Law of a user's number of samples (public); only used to predict.
    mode : {"tuned", "paper"}
        The same in both; the improved one is `OneShot`.
    level : float
        Nominal coverage of the interval.
    reading : {"one_bit", "laplace"}
        The report is one of two points, or the value plus Laplace noise of scale `2 / epsilon`
        (their univariate Corollary 1).
    summary : {"sample", "mean"}
        What a user reports: its first sample, or the mean of all. With one bit the error is the
        same.

    Notes
    -----
    **Privacy.** User-level, local, epsilon, for one report; see the channel. That a user took part is public.

    Raises
    ------
    ValueError
        If an option is out of range.

    Examples
    --------
    >>> duchi = Duchi(epsilon=22 / 35, users=10_000, mode="paper")
    >>> round(duchi.describe()["predicted_stderr"] ** 2, 6)
    0.00108

    References
    ----------
    J. Duchi, M. Jordan, M. Wainwright: Minimax optimal procedures for locally private estimation, JASA 2018.
    """

    name = "duchi"
    options = COMMON_OPTIONS | {"reading", "summary"}

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        reading: str = "one_bit",
        summary: str = "sample",
    ) -> None:
        require(reading in READINGS, "reading", f"be one of {', '.join(READINGS)}", reading)
        require(summary in SUMMARIES, "summary", f"be one of {', '.join(SUMMARIES)}", summary)
        settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        self.reading = reading
        self.summary = summary
        self._report_once(settings, make_channel(reading, epsilon), SUMMARIES[summary])

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen, and the predicted standard error on [-1, 1]."""
        averaging = 1.0 if self.summary == "sample" else self._settings.averaging
        c0, c1 = self._channel.moments
        return self._settings.describe() | {
            "reading": self.reading,
            "summary": self.summary,
            "shares": [1.0],
            "predicted_stderr": math.sqrt((c0 + c1 * averaging) / self._settings.users),
        }
