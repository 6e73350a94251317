"""`repeating`: one mean per window where windows repeat, from what the last windows' public results showed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

from meanstream.operators.estimators.adaptive.watched_windows import WatchedWindow
from meanstream.operators.estimators.carried.carried_design import (
    SURE,
    carried_design,
    carried_forecast,
    carried_habits,
)
from meanstream.operators.estimators.carried.carried_stages import (
    NarrowReports,
    ReportsOnBounds,
    VotesForSpread,
    WatchedAndCarried,
)
from meanstream.operators.estimators.carried.carried_state import CarriedState
from meanstream.operators.estimators.one_shot import OneShot
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.estimator_traits import TAILS, EstimatorTraits
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Estimate, Public
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require

WORTH_VOTES = 0.2
"""Least part of the variance of users' means that a forecast must explain to be used: less does not
pay for learning again how far what it leaves is spread."""

WORTH_REVISION = 0.25
"""The same for another slope, of what is left."""

LEAST_PART = 0.1
"""Least part of that variance that is taken to be left before users vote again."""

STAYS = "that what a window misses is what it was in the windows before, unless reports on the bounds say otherwise"


class Carried(EstimatorTraits):
    """A population's mean in windows that repeat.

    The last windows' public results say where to ask.

    Where users are many enough for that, each window is answered by itself at first, in a narrow
    window that other users watch (`adaptive.watched_windows`). Otherwise, or once users turn out to
    lie far apart, a share of the users of every window reports on the declared bounds, a few vote
    for how far from the carried center they are, and once their spread is known the others report
    in a narrow window around it. What narrow reports miss (users beyond the window, however far) is
    measured by the reports on the bounds, window after window, and added. A window whose reports contradict what is
    carried is answered from those on the bounds alone, and the state begins again.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part in a window (public).
    sizes : SizeDistribution, optional
        Law of the numbers of samples; only helps to choose channels and to predict.
    mode : str, default "tuned"
        No paper has it.
    level : float, default 0.95
        Nominal coverage of the intervals.
    tails : {"exponential"}, optional
        Declares that few users lie far from all others, so that no group appears far out: intervals
        are as narrow as the answers are then. Left out, nothing is assumed.

    Notes
    -----
    **Privacy.** Local, pure epsilon per window, of everything a user contributes to it, its number of samples included:
    each user sends one message in one stage, and stages are disjoint. The state is a function of public results.

    No window is predicted to have more than 1.03 times the squared error of one report of each
    user; 1.2 times where a forecast is in use and what it leaves is being learned.

    Nothing is assumed: an interval reaches as far as the window's own reports on the bounds leave
    it open, to either side, whatever has appeared beyond the window since the last one. That is
    about as far as with one report of each user on the bounds; the answer is nearer to the truth
    wherever what a window misses stays what it was. Of what intervals miss, a tenth is spent on
    truths between a contradicted answer and the reports that contradict it.

    With `tails` declared intervals assume that what a window misses is what it was in the windows
    before, as far as reports on the bounds do not say otherwise (three standard errors, in one
    window or over the recent ones). A group that appears far out from one window to the next, too
    small for its own reports to be told, is then missed for some windows, by the intervals, too.

    Examples
    --------
    >>> first = Carried(epsilon=1.0, users=3000)
    >>> [stage.name for stage in first.rounds], first.shares
    (['on the bounds', 'spread'], (0.9729, 0.0271))
    """

    name = "repeating"
    assumes = "nothing: intervals reach as far as reports on the bounds leave it open"
    of_a_paper = False
    trust = "local"
    edition = 4
    carries = True
    options = COMMON_OPTIONS | {"tails"}

    rounds: Sequence[Round]
    shares: Sequence[float]

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        tails: str | None = None,
    ) -> None:
        require(tails in (None, *TAILS), "tails", f"be {' or '.join(TAILS)}, or be left out", tails)
        self._assuming = tails is not None
        self._settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )

        require(
            self._settings.tuned,
            "mode",
            "be 'tuned': no paper has a method for windows that repeat",
            mode,
        )
        self.epsilon = epsilon
        self.mode = mode
        self._room = 0.0
        self._one_shot = OneShot(epsilon=epsilon, users=users, sizes=sizes, level=level)
        self._watched = WatchedWindow(self._settings, self._one_shot)
        self._carry(CarriedState())

    def carrying(self, state: Public | None, *, shift: float = 0.0, room: float = 0.0) -> Carried:
        """Public: the same for a window into which this is carried, as `carried_after` gave it.

        With a forecast of users' means, `shift` is how far it moves the center, and `room` how far
        what it leaves may lie beyond the bounds.
        """
        other = copy(self)
        other._room = room
        other._carry(CarriedState.of(state).moved(shift))
        return other

    def with_other_residuals(
        self, state: Public, explained: float, change: float, *, first: bool
    ) -> Public | None:
        """Public: the same state where another part of a forecast is taken off users' means.

        None where that is not worth it.

        Parameters
        ----------
        state : Public
            As `carried_after` gave it.
        explained : float
            Variance of users' means that the other part takes off.
        change : float
            Standard deviation of what is taken off more, or less.
        first : bool
            Whether nothing was taken off before.
        """
        carried = CarriedState.of(state)
        scale = carried.scale(self.epsilon)
        worth = WORTH_VOTES if first else WORTH_REVISION
        if scale is None or explained < worth * scale.value**2:
            return None

        # Where the spread is known, what is left of it is, too, and the window stays narrow.
        left = math.sqrt(max(1.0 - explained / scale.value**2, LEAST_PART))
        part = left if scale.log_stderr <= SURE else None
        room = carried_habits(self.epsilon).room
        return carried.with_other_residuals(part, change, room).plain()

    @property
    def bounds_step(self) -> float:
        """Public: what one unit of a report on the bounds is, on [-1, 1]."""
        if self._watches:
            plan = self._watched.plan
            return plan.channel(plan.start_moment).step
        return self._bounds.channel({}).step

    @staticmethod
    def carried_after(estimate: Estimate) -> Public:
        """Public: what the next window is given."""
        state: Public = estimate.stages[-1]["state"]
        return state

    def _carry(self, state: CarriedState) -> None:
        settings = self._settings
        moment = self._one_shot.second_moment

        # What a forecast leaves has room to lie beyond the bounds wherever it is in use.
        predicted = self._room > 0.0
        habits = carried_habits(settings.epsilon, predicted=predicted)
        self.state = state
        self._bounds = bounds = ReportsOnBounds(settings, state, moment)
        self._design = carried_design(
            state,
            bounds.channel({}),
            settings.users,
            settings.epsilon,
            assumes=self._assuming,
            predicted=predicted,
        )

        # A spread that is known, or is being voted for, is followed.
        untold = state.half_width is None and not state.voters
        self._watches = state.watching and untold and self._watched.worth and not self._assuming
        if self._watches:
            self.shares = self._watched.shares
            last = WatchedAndCarried(self._watched.plan, state, self._room)
            self.rounds = (*self._watched.rounds[:-1], last)
            return

        self.shares = self._design.shares
        votes = VotesForSpread(settings, state, habits, last=len(self.shares) == 2)
        self.rounds = (bounds, votes)

        if len(self.shares) > 2:
            narrow = NarrowReports(settings, state, habits, moment, assumes=self._assuming)
            self.rounds = (bounds, votes, narrow)

    def describe(self) -> dict[str, Any]:
        """Public, plain data: what is carried, and predicted standard errors on [-1, 1]."""
        scale = self.state.scale(self.epsilon)
        carried = {
            "carried": self.state.plain(),
            "spread": None if scale is None else scale.value,
        }
        if self._watches:
            return self._watched.describe() | carried

        return self._settings.describe() | {
            "assumption": STAYS if self._assuming else self.assumes,
            "shares": list(self.shares),
            "stages": [stage.name for stage in self.rounds],
            **carried,
            "predicted_stderr": math.sqrt(self._design.mse),
            "one_shot_stderr": math.sqrt(self._design.one_shot_mse),
        }

    @property
    def holds(self) -> bool:
        """Whether intervals hold whatever appears far out from one window to the next."""
        return not self._assuming

    def predicted_mse(self, spread: float, windows: int) -> float:
        """Predict the mean squared error on [-1, 1] after that many windows, where users' means have this spread."""
        watched = self._watched.predicted_mse(spread)
        if watched is not None and not self._assuming:
            return watched

        channel = self._bounds.channel({})
        users = self._settings.users
        epsilon = self._settings.epsilon
        return carried_forecast(spread, windows, channel, users, epsilon, assumes=self._assuming)
