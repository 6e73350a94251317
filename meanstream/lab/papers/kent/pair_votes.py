"""One-hot votes that are counted in pairs of bins side by side."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from meanstream.lab.papers.kent.vote_stage import Elected, VoteRound
from meanstream.operators.rounds.base import round_wrong_bin_chance
from meanstream.operators.rounds.localization import Bins, ClipWindow
from meanstream.operators.rounds.round_records import Public, Tally


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
        found: dict[str, Any] = {"stage": self.name, "users": tally.n, "bins": self.bins.count}
        window = ClipWindow()

        if tally.n:
            counts = pair_vote_counts(tally)
            elected = int(np.argmax(counts))
            window = _pair_window(self.bins, elected, self._reach)
            found |= {"bin": elected, "votes": counts[elected]}  # randomized zeros vote too

        told = [found | window.as_public()]
        return Elected(users=tally.n, **window.as_public(), stages=told).plain()

    def windows(self) -> list[ClipWindow]:
        """Public: the windows of all pairs."""
        return [
            _pair_window(self.bins, which, self._reach)
            for which in range(max(self.bins.count - 1, 1))
        ]

    def usual_window(self) -> ClipWindow:
        """Public: the window if the mean is 0."""
        return _pair_window(self.bins, max(self.bins.count // 2 - 1, 0), self._reach)

    def chance_of_failure(self, voters: float, share: float, *, right: int, spared: int) -> float:
        """Predict as `VoteRound` does; the counts of two bins carry the noise of two."""
        noise = float(np.sqrt(2.0 * self._votes.share_variance(0.0, max(voters, 1.0))))
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
