"""Which share of a window's users each stage asks, where windows repeat.

Never much worse than one report of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from meanstream.operators.estimators.adaptive.adaptive_scale import (
    fit_scale,
    scale_half_normal_shares,
    scale_votes,
)
from meanstream.operators.estimators.carried.carried_state import (
    EDGES,
    MEMORY,
    REACH,
    WIDEST,
    CarriedState,
    Habits,
)
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import best_channel

NARROW_MOMENT = 0.3
"""Mean square of narrow reports, in half-widths of their window, that their channel is chosen
for."""

MOST_COST = 1.03
MOST_COST_ASSUMING = 1.05
"""Most that a window's predicted squared error may be, relative to one report of each user on the
bounds, where nothing is assumed and where tails are declared."""

LEAST_GAIN = 0.97
"""What a narrow window must come to in the long run, likewise, to be begun with."""

MOST_VOTERS = 0.045
FEWEST_VOTERS = 2.0
MOST_COST_PREDICTED = 1.2
MOST_VOTERS_PREDICTED = 0.15
"""The same two while a forecast is in use: its gain pays for learning what it leaves sooner."""

WATCHING = 0.03
"""Most of the users who vote for the spread while it is not known, and once it is."""

NARROW = 0.3
NARROW_ASSUMING = 0.37
"""Share of the users who report in the narrow window, where intervals hold whatever appears, and
where they assume."""

PARTS = (1.0, 0.7, 0.5, 0.35, 0.2)
"""Of that share, the largest that does not cost too much."""

SURE = 0.25
"""Standard error of the spread's logarithm from which on windows are narrow."""

USUAL_SQUARE = 1.0 / 3.0
"""Mean square of users' means, and their variance, before anything is known: anywhere on [-1,
1]."""


@dataclass(frozen=True, slots=True)
class CarriedDesign:
    """Public: shares of a window's users, and what its squared error is predicted to be.

    Attributes
    ----------
    shares : tuple of float
        Who report on the bounds, who vote for the spread, who report in the narrow window: the last
        is left out where no one does.
    mse, one_shot_mse : float
        Predicted for this window, and for one report of each user on the bounds, on [-1, 1];
        towards the mean of these users.
    """

    shares: tuple[float, ...]
    mse: float
    one_shot_mse: float


def carried_design(
    state: CarriedState,
    channel: Mechanism,
    users: int,
    epsilon: float,
    *,
    assumes: bool,
    predicted: bool = False,
) -> CarriedDesign:
    """Choose the shares by predicted squared error.

    At most `MOST_COST` (or `MOST_COST_ASSUMING`) times that of one report of each user.

    Parameters
    ----------
    state : CarriedState
        What is carried into the window.
    channel : Mechanism
        Of reports on the bounds.
    users : int
        How many take part.
    epsilon : float
        Of one report.
    assumes : bool
        Whether intervals assume that what a window misses stays what it was.
    predicted : bool
        Whether users report what a forecast leaves.

    Notes
    -----
    Reports on the bounds err by their noise, and by who of the users sends them; the mean over all of a window's users
    is what they are to tell. While the spread is not known, as many users vote for it as that allows, and no more than
    tell it in one window. The first narrow window has no votes, and as few narrow reports: it only measures what they
    miss. From then on they have their whole share, as long as surprises do not make that too dear, and else a part.
    """
    most_cost = MOST_COST_PREDICTED if predicted else _most_cost(assumes)
    most_voters = MOST_VOTERS_PREDICTED if predicted else MOST_VOTERS
    told = _Predicted.of(state, channel, users, epsilon, most_cost)
    if state.half_width is None or not told.pays(assumes=assumes):
        learning = state.half_width is None and state.pays
        voters = told.voters(most_voters, 1.0) if learning else told.voters(WATCHING, 0.25)
        return CarriedDesign((1.0 - voters, voters), told.on_bounds(1.0 - voters), told.one_shot)

    few = told.voters(most_voters, math.inf)
    if state.missed_variance is None:
        return CarriedDesign((1.0 - few, 0.0, few), told.on_bounds(1.0 - few), told.one_shot)

    for part in PARTS:
        shares = told.part(part, assumes=assumes)
        error = told.combined(shares, state.sure_drift(told.both(shares)))
        if error <= told.most_cost * told.one_shot:
            break

    return CarriedDesign(shares, error, told.one_shot)


def carried_forecast(
    spread: float, windows: int, channel: Mechanism, users: int, epsilon: float, *, assumes: bool
) -> float:
    """Predict the squared error on [-1, 1] after that many windows, where users' means have this spread around 0."""
    unit = REACH * spread / math.erf(REACH / math.sqrt(2.0))
    cost = _most_cost(assumes)
    told = _Predicted(users, epsilon, _own_noise(channel, spread**2), spread**2, unit, cost)
    usual = _own_noise(channel, USUAL_SQUARE)
    first = _Predicted(users, epsilon, usual, USUAL_SQUARE, 1.0, cost).voters(MOST_VOTERS, 1.0)
    learning = math.ceil(_voters_wanted(epsilon) / (first * users)) if first else math.inf

    if REACH * spread >= WIDEST or not told.pays(assumes=assumes):
        return told.on_bounds(1.0 - told.voters(WATCHING, 0.25))
    if windows < learning + 2:
        return told.on_bounds(1.0 - first)

    whole = told.part(1.0, assumes=assumes)
    return told.combined(
        whole, told.both(whole) * max(1.0 / (windows - learning - 1), MEMORY / (2.0 - MEMORY))
    )


def carried_habits(epsilon: float, *, predicted: bool = False) -> Habits:
    """Tell how narrow windows are chosen: they stay, as their beginnings are dear."""
    return Habits(
        kept=(0.4, 1.65),
        room=4.0,
        sure=SURE,
        most_votes=8.0 * _voters_wanted(epsilon),
        predicted=predicted,
    )


@lru_cache(maxsize=256)
def _voters_wanted(epsilon: float) -> float:
    """Tell how many votes tell the spread, whatever it is.

    Examples
    --------
    >>> [round(_voters_wanted(epsilon)) for epsilon in (0.5, 1.0, 4.0)]
    [983, 234, 16]
    """
    votes = scale_votes(epsilon, len(EDGES) + 1)
    wanted = []
    for spread in (0.05, 0.1, 0.2, 0.3):
        shares = scale_half_normal_shares(EDGES, np.array([spread]))[0]
        error = fit_scale(shares, EDGES, votes.share_variance(shares, 10_000)).log_stderr
        wanted.append(10_000.0 * (error / SURE) ** 2)

    return max(wanted)


@dataclass(frozen=True, slots=True)
class _Predicted:
    """Squared errors by shares, on [-1, 1], towards the mean of a window's users."""

    users: int
    epsilon: float
    noise: float
    variance: float
    unit: float
    most_cost: float

    @classmethod
    def of(
        cls,
        state: CarriedState,
        channel: Mechanism,
        users: int,
        epsilon: float,
        most_cost: float,
    ) -> _Predicted:
        """Predict upon what is carried.

        Before the spread is known, users' means may lie anywhere.
        """
        known = state.scale(epsilon)
        variance = (
            USUAL_SQUARE if known is None or known.log_stderr > SURE else min(known.value, 1.0) ** 2
        )
        square = min(variance + state.center**2, 1.0)

        return cls(
            users,
            epsilon,
            _own_noise(channel, square),
            variance,
            (state.half_width or 1.0) / state.gain,
            most_cost,
        )

    @property
    def one_shot(self) -> float:
        """Of one report of each user on the bounds."""
        return self.noise / self.users

    def on_bounds(self, share: float) -> float:
        """Of this share of them."""
        return (self.noise + self.variance * (1.0 - share)) / (share * self.users)

    def narrow(self, share: float) -> float:
        """Of narrow reports of this share."""
        noise = self.unit**2 * _own_noise(best_channel(self.epsilon, NARROW_MOMENT), NARROW_MOMENT)
        return (noise + self.variance * (1.0 - share)) / (share * self.users)

    def both(self, shares: tuple[float, ...]) -> float:
        """Of the difference of the two, which tells what narrow reports miss."""
        return self.on_bounds(shares[0]) + self.narrow(shares[-1])

    def combined(self, shares: tuple[float, ...], before: float) -> float:
        """Of the answer from both, where what narrow reports miss is known but for this."""
        wide = self.on_bounds(shares[0])
        narrow = self.narrow(shares[-1]) + before
        return wide * narrow / (wide + narrow)

    def voters(self, most: float, times: float) -> float:
        """Share of the users who do something else than report on the bounds, within what that may cost."""
        dear = (self.most_cost - 1.0) / (self.most_cost + self.variance / self.noise)
        share = min(most, dear, times * _voters_wanted(self.epsilon) / self.users)

        if share * self.users >= FEWEST_VOTERS:
            return round(share, 4)
        return 0.0

    def part(self, part: float, *, assumes: bool) -> tuple[float, float, float]:
        """Shares of a window with this part of the narrow reports and votes that it has in the long run."""
        watching = round(part * self.voters(WATCHING, 0.25), 4)
        narrow = round(part * (NARROW_ASSUMING if assumes else NARROW), 4)
        return 1.0 - watching - narrow, watching, narrow

    def pays(self, *, assumes: bool) -> bool:
        """Tell whether narrow reports will, in the long run."""
        shares = self.part(1.0, assumes=assumes)
        return (
            self.combined(shares, self.both(shares) * MEMORY / (2.0 - MEMORY))
            <= LEAST_GAIN * self.one_shot
        )


def _most_cost(assumes: bool) -> float:
    """Give what a window may cost."""
    return MOST_COST_ASSUMING if assumes else MOST_COST


def _own_noise(channel: Mechanism, square: float) -> float:
    """Variance that a channel adds to values of this mean square."""
    c0, c1 = channel.moments
    return max(c0 + (c1 - 1.0) * square, 1e-9)
