"""Shares of categories: every user votes once, for the category of one of its samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv

from meanstream.operators.estimators.category_votes import best_category_votes
from meanstream.operators.noise.random_bits import RandomWords, random_bits_63
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.estimator_traits import BOUNDS, EstimatorTraits
from meanstream.operators.rounds.round_grids import MAX_CATEGORIES
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import LastRound
from meanstream.operators.rounds.votes.registry import Votes, make_votes
from meanstream.operators.validation import require

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

BLOCK = 4096
"""Users whose counts are added up at once: of 256 categories these are 8 MiB."""

VOTED = ("best", "oue", "sue", "subset", "krr")
"""Ways to vote that `CategoryShares` takes."""


class CategoryRound(LastRound):
    """The only stage: every user names the category of one of its samples, drawn at random, through a private vote.

    Notes
    -----
    **Privacy.** A report is one private vote, at the settings' epsilon, whatever decides the category: samples, their
    number, the draw among them. Nobody abstains.
    """

    name = "category"

    def __init__(self, settings: Settings, votes: Votes) -> None:
        self.epsilon = settings.epsilon
        self._settings = settings
        self._votes = votes

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:  # noqa: ARG002 - the first
        """Private to public: one vote per user."""
        return self._votes.randomize(
            one_category_of_each(summaries, random_bits_63(words(0), 0)), words, 1
        )

    def valid(self, reports: Reports, public: Public) -> Bools:  # noqa: ARG002 - the first stage
        """Public: tell which rows a voter can have sent."""
        if reports.shape[1:] != (self._votes.width,):
            return np.zeros(len(reports), np.bool_)
        return self._votes.valid(reports)

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - the first stage
        """Public: count how many reports name each category."""
        if len(reports):
            return Tally(len(reports), tuple(self._votes.counts(reports)))
        return Tally()

    def decode(self, tally: Tally, public: Public) -> Estimate:  # noqa: ARG002 - the first stage
        """Public: shares that add to 1, around unbiased ones with their intervals."""
        k = self._votes.bins
        n = tally.n
        level = self._settings.level
        found: dict[str, Any] = {"stage": self.name, "users": n, "votes": self._votes.name}

        if n == 0:
            even = np.full(k, 1.0 / k)
            ones = np.ones(k)
            return self._estimate(even, even, (np.zeros(k), ones), 0.5 * ones, 0, found)

        unbiased = self._votes.shares(tally.sums, n)
        value = nearest_shares(unbiased)
        lower, upper = (
            self._share(end) for end in named_interval(np.array(tally.sums, np.float64), n, level)
        )
        lower, upper = (
            np.minimum(np.clip(lower, 0.0, 1.0), value),
            np.maximum(np.clip(upper, 0.0, 1.0), value),
        )
        stderr = np.sqrt(self._votes.share_variance(unbiased, n))

        return self._estimate(value, unbiased, (lower, upper), stderr, n, found)

    def _share(self, named: Floats) -> Floats:
        votes: Any = self._votes
        return np.asarray((named - votes.unlikely) / (votes.likely - votes.unlikely))

    def _estimate(  # noqa: PLR0917 - private
        self,
        value: Floats,
        unbiased: Floats,
        ends: tuple[Floats, Floats],
        stderr: Floats,
        n: int,
        found: Any,
    ) -> Estimate:
        """Make the estimate on [-1, 1], as all are; shares lie between bounds of 0 and 1."""
        settings = self._settings
        return Estimate(
            value=np.clip(2.0 * value - 1.0, -1.0, 1.0),
            lower=2.0 * ends[0] - 1.0,
            upper=2.0 * ends[1] - 1.0,
            level=settings.level,
            stderr=2.0 * stderr,
            epsilon=settings.epsilon,
            trust=settings.trust,
            n_users=n,
            method=settings.method,
            mode=settings.mode,
            unclipped=2.0 * unbiased - 1.0,
            stages=(found,),
        )


class CategoryShares(EstimatorTraits):
    """Share of each of some declared categories, from one private vote of every user.

    Released to the statistician: one vote from each user. Answers the shares, which add to 1, with
    an interval for each category; whatever users' numbers of samples, and however users differ.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    categories : int
        How many categories were declared (public), 2 to 256.
    sizes : SizeDistribution, optional
        Law of a user's number of samples (public); of no use here.
    mode : {"tuned", "paper"}
        "paper" always votes with `oue`.
    level : float
        Nominal coverage of each category's interval by itself.
    votes : {"best", "oue", "sue", "subset", "krr"}
        How users vote. "best": the one with the smallest predicted error, from epsilon and the
        number of categories.

    Notes
    -----
    A user with several samples votes for the category of one of them, drawn at random: the answer is the mean over
    users of each user's own shares, so that every user counts once.

    The vote counts give unbiased shares (`unclipped`), which may be negative. The answer is the
    nearest set of shares that are not negative and add to 1 (Euclidean projection), which is never
    farther from the truth. Intervals are exact binomial ones (Clopper and Pearson) for the number
    of reports that name a category: they hold for few users and rare categories. Where needed, an
    interval is widened to hold the answer.

    **Privacy.** User-level, local, pure epsilon, for one report; see the vote. That a user took part is public.

    Raises
    ------
    ValueError
        If an option is out of range.

    References
    ----------
    T. Wang et al., Locally Differentially Private Protocols for Frequency Estimation, USENIX Security 2017;
    M. Ye, A. Barg, Optimal Schemes for Discrete Distribution Estimation under Locally Differential Privacy, 2018.

    Examples
    --------
    >>> shares = CategoryShares(epsilon=1.0, users=10_000, categories=4)
    >>> described = shares.describe()
    >>> described["votes"], round(described["share_stderr"], 4)
    ('krr', 0.0144)
    """

    name = "category_shares"
    answers = "shares"
    estimand = (
        "share of each category, the mean over users of each user's own shares: every user counts once."
        " The predicted error is that of one share, where all are equal"
    )
    assumes = BOUNDS
    of_a_paper = False
    part = "category"
    features_of = "categories"
    trust = "local"
    taken_for = "categories"
    options = COMMON_OPTIONS | {"categories", "votes"}

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        categories: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        votes: str = "best",
    ) -> None:
        settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        require(
            2 <= categories <= MAX_CATEGORIES,
            "categories",
            f"lie between 2 and {MAX_CATEGORIES}",
            categories,
        )
        require(votes in VOTED, "votes", f"be one of {', '.join(VOTED)}", votes)

        if votes == "best":
            votes = best_category_votes(epsilon, categories) if settings.tuned else "oue"

        own = {"zero_row": False} if votes in ("subset", "krr") else {}
        self._settings = settings
        self._votes = make_votes(votes, epsilon, categories, **own)
        self.mode = mode
        self.epsilon = epsilon
        self.rounds = (CategoryRound(settings, self._votes),)
        self.shares = (1.0,)

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen, and predicted errors where all shares are equal.

        `share_stderr` is that of one share; `predicted_stderr` is on [-1, 1], of all categories
        together.
        """
        k = self._votes.bins
        votes: Any = self._votes
        one = float(votes.share_variance(1.0 / k, self._settings.users))

        return self._settings.describe() | {
            "assumption": "none: every user votes once for a declared category",
            "categories": k,
            "votes": votes.name,
            "vote": {"votes": votes.name, "own": votes.likely, "other": votes.unlikely},
            "shares": [1.0],
            "share_stderr": math.sqrt(one),
            "predicted_stderr": 2.0 * math.sqrt(k * one),
        }


def one_category_of_each(summaries: Summaries, number: Any) -> Ints:
    """Private: the category of one sample of each user, drawn at random from all of them.

    Parameters
    ----------
    summaries : Summaries
        With `total` (n, categories): how many samples of a user are of each category, times `span`.
    number : uint64 array (n,)
        Uniform 63-bit integers.

    Notes
    -----
    **Privacy.** Total: users whose counts are all 0 have a category, too, each as likely as the others.

    Examples
    --------
    >>> held = Summaries(user=np.zeros((2, 2), np.uint64), count=np.array([3, 1]), first=np.zeros((2, 2), np.int64),
    ...                  total=np.array([[2, 1], [0, 1]]), span=1)
    >>> [one_category_of_each(held, np.full(2, i, np.uint64)).tolist() for i in range(3)]
    [[0, 1], [0, 1], [1, 1]]
    >>> none = Summaries(user=np.zeros((1, 2), np.uint64), count=np.array([1]), first=np.zeros((1, 2), np.int64),
    ...                  total=np.zeros((1, 2), np.int64), span=1)
    >>> [one_category_of_each(none, np.full(1, i, np.uint64)).tolist() for i in range(3)]
    [[0], [1], [0]]
    """
    found = np.zeros(len(summaries), np.int64)
    for start in range(0, len(found), BLOCK):
        block = slice(start, start + BLOCK)
        up_to = np.cumsum(summaries.total[block] // summaries.span, axis=1, dtype=np.uint64)
        samples = up_to[:, -1]
        chosen = number[block] % np.maximum(samples, np.uint64(1))
        passed = (up_to <= chosen[:, np.newaxis]).sum(axis=1)

        # A user without a valid sample names any category.
        any_category = number[block] % np.uint64(up_to.shape[1])
        found[block] = np.where(samples == 0, any_category.astype(np.int64), passed)

    return found


def nearest_shares(shares: Floats) -> Floats:
    """Give the nearest numbers (least squares) that are not negative and add to 1.

    References
    ----------
    J. Duchi et al., Efficient Projections onto the l1-Ball for Learning in High Dimensions, ICML 2008.

    Examples
    --------
    >>> nearest_shares(np.array([0.7, 0.4, -0.3])).round(3)
    array([0.65, 0.35, 0.  ])
    """
    down = np.sort(shares)[::-1]
    beyond = (np.cumsum(down) - 1.0) / np.arange(1, len(down) + 1)
    return np.asarray(np.maximum(shares - beyond[np.flatnonzero(down > beyond)[-1]], 0.0))


def named_interval(named: Floats, n: int, level: float) -> tuple[Floats, Floats]:
    """Exact interval of a probability of which `named` of `n` trials came true, for each entry.

    References
    ----------
    C. Clopper, E. Pearson, The use of confidence or fiducial limits illustrated in the case of the binomial, 1934.

    Examples
    --------
    >>> low, high = named_interval(np.array([0.0, 5.0]), 10, 0.95)
    >>> low.round(3), high.round(3)
    (array([0.   , 0.187]), array([0.308, 0.813]))
    """
    tail = 0.5 * (1.0 - level)
    failed = n - named
    lower = np.where(named > 0, betaincinv(np.maximum(named, 1.0), failed + 1.0, tail), 0.0)
    upper = np.where(failed > 0, betaincinv(named + 1.0, np.maximum(failed, 1.0), 1.0 - tail), 1.0)

    return lower, upper
