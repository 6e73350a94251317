"""Kent, Berrett and Yu's univariate mean: a vote for the bin of the mean, then clipped means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from meanstream.lab.papers.kent.vote_stage import PairVoteRound, VoteRound
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import best_channel, make_channel
from meanstream.operators.rounds.clip_stage import ClipRound
from meanstream.operators.rounds.estimator_traits import EstimatorTraits
from meanstream.operators.rounds.localization import FINEST, Bins, ClipWindow
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.votes.registry import make_votes
from meanstream.operators.validation import require, require_positive

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

VOTES = ("one_hot", "three_hot")
REACH = {"one_hot": 2.0, "three_hot": 5.0, "pair": 1.0}
"""The window exceeds the elected bin, or pair of bins, by that many half-widths on both sides."""
CONSTANTS = {"one_hot": math.sqrt(2.0), "three_hot": 2.0}
"""C of the paper's theory; `kent_univariate_constant` is what its experiments use."""
FACTORS = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0)
VOTERS = (0.2, 0.35, 0.5, 0.65)
"""What mode "tuned" chooses from: multiples of the constant, and shares of the users who vote."""
K_OF_THE_PROOF = 8535.0
"""The least K of the cap `T* = exp(users epsilon**2 / K)` for which (106) holds."""


class Kent(EstimatorTraits):
    """Univariate user-level mean for users with (at least) one number T of samples.

    Released to the statistician: from each user either a randomized one-hot row of bits (a vote for
    the bin of its mean) or one integer (its clipped and noised mean). Answers the mean over the
    users with at least T samples.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    sizes : SizeDistribution
        Law of a user's number of samples (public).
    mode : {"tuned", "paper"}
        "paper": Laplace noise, the bin with the most votes, and C as in the theory. "tuned": the
        best channel, the two bins side by side with the most votes, and C as in the paper's
        experiments (`kent_univariate_constant`) or larger where votes could not tell that many bins
        apart; C and the share of voters have the least predicted error.
    level : float
        Nominal coverage of the interval.
    threshold : {"min", "median"} or int
        The number T: smallest or median size, or a number. A user with fewer samples sends the zero
        vote, or reports the center of the window; the answer is corrected for the expected share of
        such users. (Where sizes are public one would not ask these users, and pass the others'
        number and sizes; silence tells that a size is small.)
    constant : float, optional
        C of the bins' half-width `C sqrt(log(users T epsilon**2) / T)` (default: by mode).
    votes : {"one_hot", "three_hot"}, optional
        "one_hot": a vote for the bin of the mean; each of two bits that can differ is randomized at
        epsilon / 2. "three_hot": also for the two bins next to it, each bit at epsilon / 6 (or one
        part for every bin, if there are fewer), and a window wider by 6 half-widths. Default:
        "one_hot", but "three_hot" in mode "paper" above epsilon 1, which is Algorithm 10 as
        printed; its error there is 3.5 to 4.5 times that of one-hot votes.
    half_width : float, optional
        Half the width of a bin, instead of the constant's.
    variance : float, default 1
        Public bound on the variance of one sample. In mode "tuned", bins are narrower by its root.
        It decides windows, the channel and the prediction, not the privacy.
    cap : float, optional
        K of the cap `T* = exp(users epsilon**2 / K)` on the T of the bins (Algorithm 3; Algorithm
        11 above epsilon 1).

    Notes
    -----
    **Privacy.** User-level, local, epsilon; nothing is assumed of the data. A user takes part in one stage and sends
    one report. Votes: changing everything a user has moves its one vote, two bits, each randomized at epsilon / 2 (six
    bits at epsilon / 6 for three-hot votes). Bins are half-open, so that a mean on an edge is one vote. Clipped means:
    see `ClipRound`. That a user took part is public.

    **The interval is honest only if users are alike**: where their means differ by more than about `1 / sqrt(T)`, they
    are clipped at windows that are too narrow for them, and this bias is not in the interval.

    The cap T* of Algorithm 3 is not used unless `cap` is given: with the K of its proof it is about
    1 in every experiment, and the authors leave it out of theirs. Where their rule would have cut
    T, `describe` warns. Windows are cut at -1 and 1, as the noise is.

    Raises
    ------
    ValueError
        If an option is out of range, or `sizes` is not given.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("two:100000,1000000,0.5")
    >>> described = Kent(epsilon=22 / 35, users=10_000, sizes=sizes, mode="paper").describe()
    >>> described["effective_size"], described["bins"], round(described["predicted_stderr"], 4)
    (100000, 51, 0.0038)

    References
    ----------
    A. Kent, T. Berrett, Y. Yu: Rate optimality and phase transition for user-level local differential privacy,
    Algorithms 2, 3, 10 and 11, Section A.2.
    """

    name = "kent"
    candidate = True
    trust = "local"
    options = COMMON_OPTIONS | {"threshold", "constant", "votes", "half_width", "variance", "cap"}

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
        votes: str | None = None,
        half_width: float | None = None,
        variance: float = 1.0,
        cap: float | None = None,
    ) -> None:
        self._settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        self.mode = mode
        self.epsilon = epsilon
        self.sizes = self._settings.known_sizes
        self.threshold = kent_univariate_threshold_size(threshold, self.sizes)
        self.votes = _default_votes(mode, epsilon) if votes is None else votes
        require(self.votes in VOTES, "votes", f"be one of {', '.join(VOTES)}", votes)
        require_positive(variance=variance)
        require(variance <= 1.0, "variance", "be at most 1, the largest on [-1, 1]", variance)

        self.variance = variance
        self.capped = (
            self.threshold
            if cap is None
            else kent_univariate_capped_size(self.threshold, users, epsilon, cap)
        )

        self.gain = self.sizes.tail(self.threshold)
        """Share of the users with enough samples."""
        self._choose(constant, half_width)
        self._vote = self._vote_round()
        clip = ClipRound(self._settings, self.own_mean, self.channel, gain=self.gain)
        self.rounds: tuple[Round, ...] = (self._vote, clip)

    def _choose(self, constant: float | None, half_width: float | None) -> None:
        """Choose bins, and the share of voters.

        The paper's, or those with the least predicted error.
        """
        tuned = self._settings.tuned
        if constant is not None:
            constants = [constant]
        elif tuned and half_width is None:
            constants = [kent_univariate_constant(self.epsilon) * factor for factor in FACTORS]
        else:
            constants = [kent_univariate_constant(self.epsilon) if tuned else CONSTANTS[self.votes]]

        require_positive(constant=constants[0])
        best = math.inf
        for self.constant in constants:
            self.bins = Bins(max(self._half_width() if half_width is None else half_width, FINEST))
            self._vote = self._vote_round()

            for voters in VOTERS if tuned else (0.5,):
                self.shares = (voters, 1.0 - voters)
                if (predicted := self._predicted_stderr()) < best:
                    best = predicted
                    chosen = (self.constant, self.bins, self.shares)

        self.constant, self.bins, self.shares = chosen

    def _half_width(self) -> float:
        """Equations 30 and 101; a variance below 1 narrows the bins of mode "tuned"."""
        tuned = self._settings.tuned
        signal = 1.0 if self.votes == "three_hot" and not tuned else self.epsilon**2
        # Where the logarithm is below 1 nothing can be localized; it must not become negative.
        log = max(math.log(self._settings.users * self.capped * signal), 1.0)
        return self.constant * math.sqrt(log / self.capped * (self.variance if tuned else 1.0))

    def _vote_round(self) -> VoteRound:
        if self.votes == "three_hot":
            noise = make_votes("binary", self.epsilon, self.bins.count)
            return VoteRound(
                self._settings, self.bins, noise, self.neighbors, reach=REACH["three_hot"]
            )

        noise = make_votes("sue", self.epsilon, self.bins.count)
        if self._settings.tuned:
            return PairVoteRound(self._settings, self.bins, noise, self.ballot, reach=REACH["pair"])
        return VoteRound(self._settings, self.bins, noise, self.ballot, reach=REACH["one_hot"])

    def ballot(self, summaries: Summaries) -> Ints:
        """Private: the bin of each user's mean; -1, the zero row, below the threshold."""
        return np.where(summaries.count >= self.threshold, self.bins.which(summaries.mean), -1)

    def neighbors(self, summaries: Summaries) -> Bools:
        """Private: the bin of each user's mean and those next to it.

        The zero row below the threshold.
        """
        return (
            self.bins.neighborhoods(summaries.mean)
            & (summaries.count >= self.threshold)[:, np.newaxis]
        )

    def own_mean(self, summaries: Summaries, window: ClipWindow) -> Floats:
        """Private: each user's mean; the center of the window below the threshold."""
        return np.where(summaries.count >= self.threshold, summaries.mean, window.center)

    def channel(self, window: ClipWindow) -> Mechanism:
        """Public: what randomizes a clipped mean, on the window scaled to [-1, 1]."""
        if self._settings.tuned:
            return best_channel(
                self.epsilon, min(self.variance / self.threshold / window.half_width**2, 1.0)
            )

        return make_channel("laplace", self.epsilon)

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen, and the predicted standard error on [-1, 1]."""
        rule = kent_univariate_capped_size(
            self.threshold, self._settings.users, self.epsilon, K_OF_THE_PROOF
        )
        warnings = []

        if self.capped == self.threshold > rule:
            warnings.append(
                f"bins are made for T = {self.threshold}; the proof caps it at {rule}, which is unusable"
            )

        return self._settings.describe() | {
            "effective_size": self.threshold,
            "constant": self.constant,
            "votes": self.votes,
            "bins": self.bins.count,
            "half_width": self.bins.half_width,
            "gain": self.gain,
            "shares": list(self.shares),
            "warnings": warnings,
            "predicted_stderr": self._predicted_stderr(),
        }

    def _predicted_stderr(self) -> float:
        """Predict for mean 0 and the variance given.

        Noise in the usual window, and windows elsewhere now and then.
        """
        window = self._vote.usual_window()
        c0, c1 = self.channel(window).moments
        voters, users = (max(share * self._settings.users, 1.0) for share in self.shares)
        risk = (window.half_width**2 * c0 + c1 * self.variance / self.threshold) / (
            users * self.gain**2
        )

        # Users' means spread around theta: some vote for another bin.
        reach = self.bins.half_width * (3.0 if self.votes == "three_hot" else 1.0)
        agree = 2.0 * float(ndtr(reach * math.sqrt(self.threshold / self.variance))) - 1.0
        right = 3 if self.votes == "three_hot" else 1
        fails = self._vote.chance_of_failure(
            voters, self.gain * agree, right=right, spared=right + 2
        )

        # A bin elected by chance is anywhere on [-1, 1].
        return math.sqrt((1.0 - fails) * risk + fails / 3.0)


def _default_votes(mode: str, epsilon: float) -> str:
    """Algorithm 10 as printed in mode "paper".

    One-hot votes otherwise, which are better at every epsilon.
    """
    if mode == "paper" and epsilon > 1.0:
        return "three_hot"
    return "one_hot"


def kent_univariate_constant(epsilon: float) -> float:
    """Constant C of the paper's experiments.

    0.5 up to epsilon 1 and 0.25 from 2 on, their product between.

    Examples
    --------
    >>> [kent_univariate_constant(epsilon) for epsilon in (0.5, 1.0, 1.6, 2.0, 4.0)]
    [0.5, 0.5, 0.3125, 0.25, 0.25]
    """
    return min(max(0.5 / epsilon, 0.25), 0.5)


def kent_univariate_capped_size(size: int, users: int, epsilon: float, cap: float) -> int:
    """Compute T* of Algorithms 3 and 11: an integer, at least 1.

    Examples
    --------
    >>> kent_univariate_capped_size(1000, 500, 1.0, K_OF_THE_PROOF), kent_univariate_capped_size(1000, 500, 1.0, 100.0)
    (1, 148)
    """
    require_positive(cap=cap)
    exponent = users * min(epsilon, epsilon**2) / cap

    if exponent >= math.log(size):
        return size
    return max(math.floor(math.exp(exponent)), 1)


def kent_univariate_threshold_size(threshold: str | int, sizes: SizeDistribution) -> int:
    """Turn a threshold into a number of samples that some users have.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("two:10,100,0.6")
    >>> [kent_univariate_threshold_size(threshold, sizes) for threshold in ("min", "median", 50)]
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
