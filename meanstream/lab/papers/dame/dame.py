"""DAME: a vote for the bin of the mean, then means that are shrunk towards it, in a window of its width."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from meanstream.lab.papers.dame.dame_bounds import (
    MOST_EPSILON,
    dame_bounds_bin_half_width,
    dame_bounds_effective_size,
)
from meanstream.lab.papers.kent.vote_stage import VoteRound
from meanstream.operators.records import Bools, Floats
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import best_channel, make_channel
from meanstream.operators.rounds.clip_stage import ClipRound
from meanstream.operators.rounds.estimator_traits import ONE_LAW, EstimatorTraits
from meanstream.operators.rounds.localization import FINEST, Bins, ClipWindow
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.votes.registry import make_votes
from meanstream.operators.validation import require

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

REACH = 6.0
"""The window exceeds the elected bin by that many half-widths on both sides."""
UNPROVED = (
    f"as in its paper: {ONE_LAW}. Its theorems end at epsilon 22/35 (H3): above it privacy holds, but no bound on the "
    "error is proved"
)


class Dame(EstimatorTraits):
    """Distribution-aware mean estimation from users with different numbers of samples.

    Released to the statistician: from each user either a randomized row of bits (votes for the bin
    of its mean) or one integer (its clipped and noised mean). Answers the mean over users.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    sizes : SizeDistribution
        Law M of a user's number of samples (public). The answer is unbiased only if it is the right
        one.
    mode : {"tuned", "paper"}
        "paper" is the algorithm as printed, but for the errors that would cost unbiasedness, with
        Laplace noise of the width of the window that is used. "tuned" keeps its two stages and
        takes the best channel, does not shrink where the windows would be all of [-1, 1], and asks
        no votes where there is one bin only.
    level : float
        Nominal coverage of the interval.
    literal : bool
        Mode paper only: noise of scale `14 tau / epsilon` as printed, wider than the window where
        this is cut.
    effective_size : int, optional
        The m~ of the paper (default: searched by the rule of its Theorem 2).

    Notes
    -----
    **Privacy.** User-level, local, epsilon; nothing is assumed of the data. A user takes part in one stage and sends
    one report. Votes: changing everything a user has changes at most 6 bits (three ones), each randomized at
    epsilon / 6. Users with fewer than m~ samples send the randomized zero row. Clipped means: see `ClipRound`. That a
    user took part is public.

    **The interval is honest only if users are alike**: samples of all users must come from one law, and sizes must not
    depend on it. Where users differ by more than about `1 / sqrt(m~)`, means are clipped at windows that are too narrow
    for them, and this bias is not in the interval: use an estimator that takes `between_users`. Nor is the chance that
    the votes elect a wrong bin, which `describe` predicts as `failure_probability`.

    Raises
    ------
    ValueError
        If an option is out of range, or `sizes` is not given.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("two:100000,1000000,0.5")
    >>> dame = Dame(epsilon=22 / 35, users=10_000, sizes=sizes, mode="paper")
    >>> described = dame.describe()
    >>> described["effective_size"], described["bins"], round(described["predicted_stderr"], 4)
    (100000, 65, 0.0069)

    References
    ----------
    C. Pla, H. Richard, M. Vono: Distribution-aware mean estimation under user-level local differential privacy,
    Algorithm 1.
    """

    name = "dame"
    candidate = True
    trust = "local"
    options = COMMON_OPTIONS | {"literal", "effective_size"}

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        literal: bool = False,
        effective_size: int | None = None,
    ) -> None:
        self._settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        self.mode = mode
        self.epsilon = epsilon
        self.sizes = self._settings.known_sizes
        require(
            not (literal and self._settings.tuned), "literal", "be left out in mode tuned", literal
        )
        self.literal = literal
        self.effective_size = self._chosen_size(effective_size)

        self.bins = Bins(
            max(
                dame_bounds_bin_half_width(self.effective_size, users=users, epsilon=epsilon),
                FINEST,
            )
        )

        self.gain = self.sizes.mean_sqrt(self.effective_size) / math.sqrt(self.effective_size)
        """Expected shrinking of a user's offset from the center, A = E sqrt(min(M, m~)) /
        sqrt(m~)."""
        clip = ClipRound(self._settings, self.shrunk, self.channel, gain=self.gain)
        # One bin is all of [-1, 1]: there is nothing to vote for.
        self._vote = None if self._settings.tuned and self.bins.count == 1 else self._vote_round()
        self.rounds: tuple[Round, ...] = (clip,) if self._vote is None else (self._vote, clip)
        self.shares = (1.0,) if self._vote is None else (0.5, 0.5)

        for window in (ClipWindow(), self.bins.window(0, REACH)):
            self.channel(window)  # refused here if no channel has such an epsilon

    def shrunk(self, summaries: Summaries, window: ClipWindow) -> Floats:
        """Private: each user's mean, shrunk towards the center the more the fewer samples it has."""
        weight = np.sqrt(np.minimum(summaries.count, self.effective_size) / self.effective_size)
        return np.asarray(window.center + weight * (summaries.mean - window.center))

    def ballot(self, summaries: Summaries) -> Bools:
        """Private: ones in the bin of each user's mean and next to it.

        No ones below the effective size.
        """
        enough = summaries.count >= self.effective_size
        return np.asarray(self.bins.neighborhoods(summaries.mean) & enough[:, np.newaxis])

    def channel(self, window: ClipWindow) -> Mechanism:
        """Public: what randomizes a clipped mean, on the window scaled to [-1, 1]."""
        if self._settings.tuned:
            return best_channel(self.epsilon, min(self._spread() / window.half_width**2, 1.0))
        if not self.literal:
            return make_channel("laplace", self.epsilon)

        # The printed scale is what a smaller epsilon needs in this window.
        printed = 2.0 * (REACH + 1.0) * self.bins.half_width
        return make_channel("laplace", self.epsilon * min(2.0 * window.half_width / printed, 1.0))

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen, and the predicted standard error on [-1, 1]."""
        beyond = {"assumption": UNPROVED} if self.epsilon > MOST_EPSILON else {}
        return (
            self._settings.describe()
            | beyond
            | {
                "literal": self.literal,
                "effective_size": self.effective_size,
                "bins": self.bins.count,
                "half_width": self.bins.half_width,
                "gain": self.gain,
                "shares": list(self.shares),
                "failure_probability": self._chance_of_failure(),
                "predicted_stderr": self._predicted_stderr(),
            }
        )

    def _chosen_size(self, given: int | None) -> int:
        if given is not None:
            require(
                given >= 1 and given == int(given),
                "effective_size",
                "be an integer, at least 1",
                given,
            )

            return int(given)

        users = self._settings.users
        searched = dame_bounds_effective_size(self.sizes, users=users, epsilon=self.epsilon)
        # Where even the window of a bin in the middle is all of [-1, 1], shrinking costs what
        # nothing wins back.
        useless = (REACH + 1.0) * dame_bounds_bin_half_width(
            searched, users=users, epsilon=self.epsilon
        ) >= 1.0

        if self._settings.tuned and useless:
            return 1
        return searched

    def _vote_round(self) -> VoteRound:
        # Two ballots of three neighbors differ in at most six bits, and in no more than there are
        # bins.
        votes = make_votes("binary", self.epsilon, self.bins.count, bits=min(self.bins.count, 6))
        return VoteRound(self._settings, self.bins, votes, self.ballot, reach=REACH)

    def _spread(self) -> float:
        """Variance of an unclipped number, for samples of variance 1 around the center."""
        sizes = self.sizes
        return float(
            sizes.probability @ (np.minimum(sizes.support, self.effective_size) / sizes.support)
        ) / (self.effective_size)

    def _predicted_stderr(self) -> float:
        """Predict for data of variance 1 and mean 0.

        Noise in the usual window, and windows elsewhere now and then.
        """
        middle = self.bins.count // 2
        window = ClipWindow() if self._vote is None else self.bins.window(middle, REACH)
        c0, c1 = self.channel(window).moments
        variance = window.half_width**2 * c0 + c1 * self._spread()
        users = self._settings.users * self.shares[-1]
        risk = variance / (max(users, 1.0) * self.gain**2)
        fails = self._chance_of_failure()

        # A bin elected by chance is anywhere on [-1, 1].
        return math.sqrt((1.0 - fails) * risk + fails / 3.0)

    def _chance_of_failure(self) -> float:
        """Predict how often the window misses the mean.

        Three bins have all votes, and two next to them will do.
        """
        if self._vote is None:
            return 0.0
        share = self.sizes.tail(self.effective_size)
        return self._vote.chance_of_failure(
            self._settings.users * self.shares[0], share, right=3, spared=7
        )
