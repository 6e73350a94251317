"""Kent, Berrett and Yu's univariate mean: a one-hot vote for the bin of the mean, then clipped means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from operators.channels import best_channel, make_channel
from operators.clip_round import ClipRound
from operators.estimator_base import COMMON_OPTIONS, Settings
from operators.localization import FINEST, Bins, Window
from operators.mechanism import Mechanism
from operators.records import Floats, Ints
from operators.round_records import Summaries
from operators.rounds import Round
from operators.validation import require, require_positive
from operators.vote_round import VoteRound
from operators.votes import make_votes

if TYPE_CHECKING:
    from operators.sizes import SizeDistribution

REACH = 2.0
"""The window exceeds the elected bin by so many half-widths on both sides."""
CONSTANTS = {"paper": math.sqrt(2.0), "tuned": 0.5}


class Kent:
    """Univariate user-level mean for users with (at least) one number T of samples.

    Released to the statistician: from each user either a randomized one-hot row of bits (a vote for the bin of its
    mean) or one integer (its clipped and noised mean). Answers the mean over the users with at least T samples.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    sizes : SizeDistribution
        Law of a user's number of samples (public).
    mode : {"tuned", "paper"}
        "paper": Laplace noise and C = sqrt(2), as in the theory. "tuned": the best channel and C = 0.5.
    level : float
        Nominal coverage of the interval.
    threshold : {"min", "median"} or int
        The number T: smallest or median size, or a number. A user with fewer samples sends the zero vote, or reports
        the center of the window; the answer is corrected for the expected share of such users. (Where sizes are public
        one would not ask these users, and pass the others' number and sizes; silence tells that a size is small.)
    constant : float, optional
        C of the bins' half-width `C sqrt(log(users T epsilon**2) / T)` (default: by mode).

    Notes
    -----
    **Privacy.** User-level, local, epsilon; nothing is assumed of the data. A user takes part in one stage and sends
    one report. Votes: changing everything a user has moves its one vote, two bits, each randomized at epsilon / 2. Bins
    are half-open, so that a mean on an edge is one vote. Clipped means: see `ClipRound`. That a user took part is
    public.

    **The interval is honest only if users are alike**: where their means differ by more than about `1 / sqrt(T)`, they
    are clipped at windows that are too narrow for them, and this bias is not in the interval.

    The cap `T* = exp(n epsilon**2 / K)` of Algorithm 3 is not used: with the K of its proof it is 1 in every
    experiment, and the authors leave it out of theirs. Windows are cut at -1 and 1, as the noise is.

    Raises
    ------
    ValueError
        If an option is out of range, or `sizes` is not given.

    Examples
    --------
    >>> from operators.sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("two:100000,1000000,0.5")
    >>> described = Kent(epsilon=22 / 35, users=10_000, sizes=sizes, mode="paper").describe()
    >>> described["effective_size"], described["bins"], round(described["predicted_stderr"], 4)
    (100000, 51, 0.0038)

    References
    ----------
    A. Kent, T. Berrett, Y. Yu: Rate optimality and phase transition for user-level local differential privacy,
    Algorithms 2 and 3, Section A.2.
    """

    name = "kent"
    trust = "local"
    privacy_unit = "user"
    options = COMMON_OPTIONS | {"threshold", "constant"}

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        threshold: str | int = "min",
        constant: float | None = None,
    ) -> None:
        self._settings = Settings(method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level)
        self.mode, self.epsilon = mode, epsilon
        self.sizes = self._settings.known_sizes
        self.threshold = threshold_size(threshold, self.sizes)
        self.constant = CONSTANTS[mode] if constant is None else constant
        require_positive(constant=self.constant)
        # Where the logarithm is below 1 nothing can be localized; it must not become negative.
        log = max(math.log(users * self.threshold * epsilon**2), 1.0)
        self.bins = Bins(max(self.constant * math.sqrt(log / self.threshold), FINEST))
        self.gain = self.sizes.tail(self.threshold)
        """Share of the users with enough samples."""
        votes = make_votes("sue", epsilon, self.bins.count)
        self._vote = VoteRound(self._settings, self.bins, votes, self.ballot, reach=REACH)
        clip = ClipRound(self._settings, self.own_mean, self.channel, gain=self.gain)
        self.rounds: tuple[Round, ...] = (self._vote, clip)
        self.shares = (0.5, 0.5)

    def ballot(self, summaries: Summaries) -> Ints:
        """Private: the bin of each user's mean; -1, the zero row, below the threshold."""
        return np.where(summaries.count >= self.threshold, self.bins.which(summaries.mean), -1)

    def own_mean(self, summaries: Summaries, window: Window) -> Floats:
        """Private: each user's mean; the center of the window below the threshold."""
        return np.where(summaries.count >= self.threshold, summaries.mean, window.center)

    def channel(self, window: Window) -> Mechanism:
        """Public: what randomizes a clipped mean, on the window scaled to [-1, 1]."""
        if self._settings.tuned:
            return best_channel(self.epsilon, min(1.0 / self.threshold / window.half_width**2, 1.0))
        return make_channel("laplace", self.epsilon)

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen, and the predicted standard error on [-1, 1]."""
        return self._settings.describe() | {
            "effective_size": self.threshold,
            "constant": self.constant,
            "bins": self.bins.count,
            "half_width": self.bins.half_width,
            "gain": self.gain,
            "shares": list(self.shares),
            "predicted_stderr": self._predicted_stderr(),
        }

    def _predicted_stderr(self) -> float:
        """Predict for data of variance 1 and mean 0: noise in the usual window, and windows elsewhere now and then."""
        window = self.bins.window(self.bins.count // 2, REACH)
        c0, c1 = self.channel(window).moments
        users = max(0.5 * self._settings.users, 1.0)
        risk = (window.half_width**2 * c0 + c1 / self.threshold) / (users * self.gain**2)
        fails = self._vote.chance_of_failure(users, self.gain, right=1, spared=3)
        # A bin elected by chance is anywhere on [-1, 1].
        return math.sqrt((1.0 - fails) * risk + fails / 3.0)


def threshold_size(threshold: str | int, sizes: SizeDistribution) -> int:
    """Turn a threshold into a number of samples that some users have.

    Examples
    --------
    >>> from operators.sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("two:10,100,0.6")
    >>> [threshold_size(threshold, sizes) for threshold in ("min", "median", 50)]
    [10, 100, 50]
    """
    if threshold == "min":
        return int(sizes.least)
    if threshold == "median":
        middle = int(np.searchsorted(np.cumsum(sizes.probability), 0.5))
        return int(sizes.support[min(middle, len(sizes.support) - 1)])
    rule = "be min, median or a number of samples"
    try:
        number = int(threshold)
    except ValueError:
        require(False, "threshold", rule, threshold)
        raise
    require(number >= 1 and number == float(threshold), "threshold", rule, threshold)
    rule = f"be a size that some users have (at most {sizes.greatest})"
    require(sizes.tail(number) > 0.0, "threshold", rule, number)
    return number
