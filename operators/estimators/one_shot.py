"""One shot: every user reports its own mean once, unbiased on [-1, 1].

No assumption on the users.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from meanstream.operators.estimators.one_report import OneReport
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.channels.registry import best_channel
from meanstream.operators.validation import require

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

USUAL_SQUARE = 1.0 / 3.0
"""Mean square of a true mean that may be anywhere on [-1, 1]."""

NOTHING_ASSUMED = "none: every user reports once on the declared bounds"

MOST_USUAL = 0.5
"""Mean square of users' means beyond which no one is prepared for: a channel for it costs at most
1.5 times the best one's variance where it is another, but one for 1 (values at the ends only) 13
times at epsilon 4, 74 times at 8."""


class OneShot(OneReport):
    """Every user sends one unbiased report of its mean through the best channel.

    Released to the statistician: one integer from each user. Answers the mean over users, whatever
    their number of samples and however they differ: nothing is clipped that the declared bounds do
    not clip, so that the interval needs no assumption.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    sizes : SizeDistribution, optional
        Law of a user's number of samples (public); only helps to choose the channel and to predict.
    mode : {"tuned", "paper"}
        The same in both: no paper has it.
    level : float
        Nominal coverage of the interval.
    second_moment : float, optional
        Expected mean square of the users' means, in [0, 1] and public, by which the channel is
        chosen (default: that of data of the largest variance around a mean anywhere on [-1, 1], at
        most a half). A wrong one costs accuracy, nothing else.

    Notes
    -----
    **Privacy.** User-level, local, epsilon, for one report; see the channel. That a user took part is public.

    The interval holds for any law of the users, for few of them and for groups too rare to be among
    them (`meanstream.operators.rounds.unseen`).

    Raises
    ------
    ValueError
        If an option is out of range.

    Examples
    --------
    >>> described = OneShot(epsilon=0.5, users=10_000).describe()
    >>> described["channel"], round(described["predicted_stderr"], 4)
    ('one_bit', 0.0408)
    """

    name = "one_shot"
    candidate = True
    taken_for = "no search"
    options = COMMON_OPTIONS | {"second_moment"}
    edition = 2

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        second_moment: float | None = None,
    ) -> None:
        settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        usual = USUAL_SQUARE + (1.0 - USUAL_SQUARE) * min(settings.averaging, 1.0)
        self.second_moment = min(usual, MOST_USUAL) if second_moment is None else second_moment

        require(
            0.0 <= self.second_moment <= 1.0,
            "second_moment",
            "lie between 0 and 1",
            self.second_moment,
        )
        self._report_once(settings, best_channel(epsilon, self.second_moment), any_law=True)

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen, and the predicted standard error on [-1, 1]."""
        return self._settings.describe() | {
            "assumption": NOTHING_ASSUMED,
            "channel": self._channel.name,
            "second_moment": self.second_moment,
            "shares": [1.0],
            "predicted_stderr": math.sqrt(self.predicted_mse()),
        }

    def predicted_mse(self, between_users: float = 0.0) -> float:
        """Predict the mean squared error on [-1, 1] if users' own means have this standard deviation around 0.

        Their samples are taken to have the largest variance.
        """
        c0, c1 = self._channel.moments
        return (
            c0 + c1 * min(self._settings.averaging + between_users**2, 1.0)
        ) / self._settings.users
