"""`repeating`: one mean per window where windows repeat, from what the last windows' public results showed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

from meanstream.operators.estimators.carried.carried_design import NARROW_MOMENT, carried_design, carried_forecast
from meanstream.operators.estimators.carried.carried_stages import NarrowReports, ReportsOnBounds, VotesForSpread
from meanstream.operators.estimators.carried.carried_state import LATER_REACH, MEMORY, WIDEST, CarriedState
from meanstream.operators.estimators.one_shot import OneShot
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.channels.registry import best_channel
from meanstream.operators.rounds.edition import check_edition
from meanstream.operators.rounds.estimator_traits import TAILS, EstimatorTraits
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Estimate, Public
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require

LEARNING, SPREAD_TOO_WIDE = (0.8, 0.2), (0.97, 0.03)
ASSUMING, HOLDING = (0.6, 0.03, 0.37), (0.75, 0.03, 0.22)
"""Up to the second edition: shares of the users who report on the bounds, vote for the spread, report in the narrow
window: where the interval hangs on what is assumed, and where it holds without."""

STAYS = "that what a window misses is what it was in the windows before, unless reports on the bounds say otherwise"


class Carried(EstimatorTraits):
    """A population's mean in windows that repeat: the last windows' public results say where to ask.

    In every window a share of the users reports on the declared bounds, a few vote for how far from the carried center
    they are, and once their spread is known the others report in a narrow window around it. What narrow reports miss
    (users beyond the window, however far) is measured by the reports on the bounds, window after window, and added. A
    window whose reports contradict what is carried is answered from those on the bounds alone, and the state begins
    anew.

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
    edition : {1, 2, 3}
        Of the design; see `meanstream.operators.rounds.edition`. In the first, intervals assume what `tails` says. From
        the third on no window is predicted to err more than 1.05 times as much as one report of each user (squared).
    tails : {"exponential"}, optional
        Declares that few users lie far from all others, so that no group appears far out: intervals are as narrow as
        the answers are then. Left out, nothing is assumed.

    Notes
    -----
    **Privacy.** Local, pure epsilon per window, of everything a user contributes to it, its number of samples included:
    each user sends one message in one stage, and stages are disjoint. The state is a function of public results.

    Nothing is assumed: an interval reaches as far as the window's own reports on the bounds leave it open, to either
    side, whatever has appeared beyond the window since the last one. That is about as far as with one report of each
    user on the bounds; the answer is nearer to the truth wherever what a window misses stays what it was. Of what
    intervals miss, a tenth is spent on truths between a contradicted answer and the reports that contradict it.

    With `tails` declared (and in the first edition) intervals assume that what a window misses is what it was in the
    windows before, as far as reports on the bounds do not say otherwise (three standard errors, in one window or over
    the recent ones). A group that appears far out from one window to the next, too small for its own reports to be
    told, is then missed for some windows, by the intervals, too.

    Examples
    --------
    >>> first = Carried(epsilon=1.0, users=3000)
    >>> [stage.name for stage in first.rounds], first.shares
    (['on the bounds', 'spread'], (0.9556, 0.0444))
    """

    name = "repeating"
    assumes = "nothing: intervals reach as far as reports on the bounds leave it open"
    of_a_paper = False
    trust = "local"
    newest_edition = 3
    carries = True
    options = COMMON_OPTIONS | {"edition", "tails"}

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
        edition: int = 3,
        tails: str | None = None,
    ) -> None:
        require(tails in (None, *TAILS), "tails", f"be {' or '.join(TAILS)}, or be left out", tails)
        self._edition, self._assuming = check_edition(edition, self.newest_edition), edition == 1 or tails is not None
        self._settings = Settings(method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level)
        require(self._settings.tuned, "mode", "be 'tuned': no paper has a method for windows that repeat", mode)
        self.epsilon, self.mode = epsilon, mode
        self._one_shot = OneShot(epsilon=epsilon, users=users, sizes=sizes, level=level)
        self._carry(self._nothing)

    def carrying(self, state: Public | None) -> Carried:
        """Public: the same for a window into which this is carried, as `carried_after` gave it."""
        other = copy(self)
        other._carry(self._nothing if state is None else CarriedState.of(state))
        return other

    @property
    def _nothing(self) -> CarriedState:
        """What the first window is given."""
        return CarriedState() if self._edition < 3 else CarriedState(reach=LATER_REACH)

    @staticmethod
    def carried_after(estimate: Estimate) -> Public:
        """Public: what the next window is given."""
        state: Public = estimate.stages[-1]["state"]
        return state

    def _carry(self, state: CarriedState) -> None:
        settings, moment, edition = self._settings, self._one_shot.second_moment, self._edition
        self.state = state
        self._bounds = bounds = ReportsOnBounds(settings, state, moment)
        self._design = None
        if edition > 2:
            self._design = carried_design(
                state, bounds.channel({}), settings.users, settings.epsilon, assumes=self._assuming
            )
            self.shares = self._design.shares
        elif state.half_width is None:
            self.shares = LEARNING if state.pays else SPREAD_TOO_WIDE
        else:
            self.shares = ASSUMING if self._assuming else HOLDING
        self.rounds = (bounds, VotesForSpread(settings, state, edition=edition, last=len(self.shares) == 2))
        if len(self.shares) > 2:
            narrow = NarrowReports(settings, state, moment, edition=edition, assumes=self._assuming)
            self.rounds = (*self.rounds, narrow)

    def describe(self) -> dict[str, Any]:
        """Public, plain data: what is carried, and predicted standard errors on [-1, 1]."""
        scale = self.state.scale(self.epsilon)
        mse, one_shot = self._predicted()
        return self._settings.describe() | {
            "assumption": STAYS if self._assuming else self.assumes,
            "shares": list(self.shares),
            "stages": [stage.name for stage in self.rounds],
            "carried": self.state.plain(),
            "spread": None if scale is None else scale.value,
            "predicted_stderr": math.sqrt(mse),
            "one_shot_stderr": math.sqrt(one_shot),
        }

    @property
    def holds(self) -> bool:
        """Whether intervals hold whatever appears far out from one window to the next."""
        return not self._assuming

    def predicted_mse(self, spread: float, windows: int) -> float:
        """Predict the mean squared error on [-1, 1] after so many windows, where users' means have this spread."""
        if self._edition > 2:
            channel = self._bounds.channel({})
            users, epsilon = self._settings.users, self._settings.epsilon
            return carried_forecast(spread, windows, channel, users, epsilon, assumes=self._assuming)
        if CarriedState().reach * spread >= WIDEST:
            return self._one_shot.predicted_mse() / SPREAD_TOO_WIDE[0]
        state = CarriedState(half_width=CarriedState().reach * spread, gain=0.84)
        later = copy(self)
        later._carry(state)
        wide = self._one_shot.predicted_mse() / later.shares[0]
        before = (wide + later._narrow()) * max(1.0 / max(windows - 2, 1), MEMORY / (2.0 - MEMORY))
        return later._combined(wide, before)

    def _predicted(self) -> tuple[float, float]:
        """Predict the squared error of this window, and of one report of each user."""
        if self._design is not None:
            return self._design.mse, self._design.one_shot_mse
        one_shot = self._one_shot.predicted_mse()
        wide = one_shot / self.shares[0]
        if self.state.half_width is None or self.state.missed_variance is None:
            return wide, one_shot
        return self._combined(wide, self.state.missed_variance), one_shot

    def _combined(self, wide: float, before: float) -> float:
        narrow = self._narrow()
        gain = max(before / (before + wide + narrow), MEMORY)
        if self._edition > 1:
            gain = (narrow + before) / (narrow + before + wide)
        return (1.0 - gain) ** 2 * (narrow + before) + gain**2 * wide

    def _narrow(self) -> float:
        c0, c1 = best_channel(self.epsilon, NARROW_MOMENT).moments
        half_width = self.state.half_width or 1.0
        reports = max(self.shares[-1] * self._settings.users, 1.0)
        return (half_width / self.state.gain) ** 2 * (c0 + c1 * NARROW_MOMENT) / reports
