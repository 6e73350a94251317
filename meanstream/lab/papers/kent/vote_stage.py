"""The stage that localizes: users vote for the bin of their mean.

The bin with the most votes, or the two bins side by side, make the window.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import numpy as np

from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Ints
from meanstream.operators.rounds.base import Settings, round_wrong_bin_chance
from meanstream.operators.rounds.localization import Bins, ClipWindow
from meanstream.operators.rounds.round_records import Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    Count,
    Number,
    StageFound,
    Told,
    result_row,
)
from meanstream.operators.rounds.votes.registry import Votes

OneTold = Annotated[Told, msgspec.Meta(min_length=1, max_length=1)]
"""What the first stage tells of itself."""


class Elected(StageFound, frozen=True, kw_only=True):
    """Public: the window of the elected bin, and how many voted."""

    users: Count
    lower: Number
    upper: Number
    center: Number
    stages: OneTold


class VotingStage:
    """A stage in which each user sends one randomized row of votes."""

    votes: Votes

    def valid(self, reports: Reports, public: Public) -> Bools:  # noqa: ARG002 - whatever was before
        """Public: tell which rows a voter can have sent."""
        return self.votes.valid(reports)

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - whatever was before
        """Public: count the ones for each bin."""
        if not len(reports):
            return Tally()
        return Tally(len(reports), tuple(self.votes.counts(reports)))


class VoteRound(VotingStage):
    """First stage: randomized votes for bins of [-1, 1].

    Parameters
    ----------
    settings : Settings
        Of the estimator.
    bins : Bins
    votes : Votes
        How a ballot is randomized, at the settings' epsilon.
    ballot : callable
        Private: each user's row for `votes.randomize`. Users with too few samples give the zero
        row.
    reach : float
        By how many half-widths the window exceeds the elected bin on both sides.

    Notes
    -----
    **Privacy.** Every user sends a row of full length, also those with too few samples: the randomized zero row.
    Anyone who kept silent would tell that its number of samples is small.
    """

    name = "vote"

    def __init__(
        self,
        settings: Settings,
        bins: Bins,
        votes: Votes,
        ballot: Callable[[Summaries], Ints | Bools],
        *,
        reach: float,
    ) -> None:
        self.epsilon = settings.epsilon
        self.bins = bins
        self.votes = votes
        self._ballot = ballot
        self._reach = reach

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:  # noqa: ARG002 - the first
        """Private to public: one randomized row per user."""
        return self.votes.randomize(self._ballot(summaries), words)

    def decode(self, tally: Tally, public: Public) -> Public:  # noqa: ARG002 - the first stage
        """Public: the window around the bin with the most votes; of equal ones, the first."""
        facts: dict[str, Any] = {"stage": self.name, "users": tally.n, "bins": self.bins.count}
        window = ClipWindow()

        if tally.n:
            elected = int(np.argmax(tally.sums))
            window = self.bins.window(elected, self._reach)
            facts |= {"bin": elected, "votes": tally.sums[elected]}  # randomized zeros vote too

        told = [facts | window.as_public()]
        return Elected(users=tally.n, **window.as_public(), stages=told).plain()

    def check(self, found: Public, public: Public) -> None:  # noqa: ARG002 - the first stage
        """Public: refuse what is no window of this vote: they are few, and all known."""
        now = Elected.of(found)
        names = ("lower", "upper", "center")
        result_row([now.lower, now.upper, now.center], names, self._windows)

    @cached_property
    def _windows(self) -> list[tuple[float, ...]]:
        """Public: every window that can be elected."""
        return [
            (window.lower, window.upper, window.center)
            for window in (*self.windows(), ClipWindow())
        ]

    def windows(self) -> list[ClipWindow]:
        """Public: the windows of all bins."""
        return [self.bins.window(bin_number, self._reach) for bin_number in range(self.bins.count)]

    def usual_window(self) -> ClipWindow:
        """Public: the window if the mean is 0."""
        return self.bins.window(self.bins.count // 2, self._reach)

    def chance_of_failure(self, voters: float, share: float, *, right: int, spared: int) -> float:
        """Predict how often a bin is elected whose window misses the mean.

        Parameters
        ----------
        voters : float
            Users of this stage.
        share : float
            Share of them with enough samples.
        right : int
            Number of bins that get the votes of all of these.
        spared : int
            Number of bins whose window would still hold the mean.
        """
        noise = float(np.sqrt(self.votes.share_variance(0.0, max(voters, 1.0))))
        return round_wrong_bin_chance(share / noise, right=right, wrong=self.bins.count - spared)


class PairVoteRound(VoteRound):
    """Votes of `VoteRound`; the two bins side by side with the most votes make the window.

    Notes
    -----
    **Privacy.** That of `VoteRound`: only how the counts are read differs.

    A mean on the edge of two bins splits its votes, but not those of their pair. The middle of the
    pair, an edge, lies within a half-width of the mean; a window of 3 half-widths around it leaves
    2 for the spread of users' means, as the window of the single bin does.
    """

    def decode(self, tally: Tally, public: Public) -> Public:  # noqa: ARG002 - the first stage
        """Public: the window around the pair with the most votes; of equal ones, the first."""
        facts: dict[str, Any] = {"stage": self.name, "users": tally.n, "bins": self.bins.count}
        window = ClipWindow()

        if tally.n:
            counts = pair_vote_counts(tally)
            elected = int(np.argmax(counts))
            window = _pair_window(self.bins, elected, self._reach)
            facts |= {"bin": elected, "votes": counts[elected]}  # randomized zeros vote too

        told = [facts | window.as_public()]
        return Elected(users=tally.n, **window.as_public(), stages=told).plain()

    def windows(self) -> list[ClipWindow]:
        """Public: the windows of all pairs."""
        return [
            _pair_window(self.bins, bin_number, self._reach)
            for bin_number in range(max(self.bins.count - 1, 1))
        ]

    def usual_window(self) -> ClipWindow:
        """Public: the window if the mean is 0."""
        return _pair_window(self.bins, max(self.bins.count // 2 - 1, 0), self._reach)

    def chance_of_failure(self, voters: float, share: float, *, right: int, spared: int) -> float:
        """Predict as `VoteRound` does; the counts of two bins carry the noise of two."""
        noise = float(np.sqrt(2.0 * self.votes.share_variance(0.0, max(voters, 1.0))))
        return round_wrong_bin_chance(
            share / noise, right=right, wrong=self.bins.count - 1 - spared
        )


def pair_vote_counts(tally: Tally) -> tuple[int, ...]:
    """Votes of each bin and the one above it together; of the only bin, if there is one."""
    counts = tally.sums
    if len(counts) == 1:
        return counts
    return tuple(a + b for a, b in pairwise(counts))


def _pair_window(bins: Bins, lower: int, reach: float) -> ClipWindow:
    """Widen a pair of bins by `reach` half-widths on both sides, within [-1, 1].

    Examples
    --------
    >>> window = _pair_window(Bins(0.1), 4, 1.0)
    >>> [round(x, 2) for x in (window.lower, window.upper, window.center)]
    [-0.3, 0.3, 0.0]
    """
    start, middle = bins.edges(lower)
    _, end = bins.edges(min(lower + 1, bins.count - 1))
    wider = reach * bins.half_width
    center = middle if bins.count > 1 else 0.5 * (start + end)

    return ClipWindow(max(start - wider, -1.0), min(end + wider, 1.0), center)
