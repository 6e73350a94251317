"""The three stages of a mixture.

Which bins hold components, how many users are in each, and where in it they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Annotated

import msgspec
import numpy as np

from meanstream.lab.papers.kent.hash_vote_stage import HashedStage
from meanstream.lab.papers.kent.public_hash import hash_signs
from meanstream.lab.papers.kent.vote_stage import VotingStage, pair_vote_counts
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.localization import Bins
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    Count,
    Error,
    LastRound,
    Number,
    StageFound,
    Told,
    refuse_result,
    result_added,
    result_row,
    result_unchanged,
)
from meanstream.operators.rounds.votes.registry import Votes

Answer = Callable[[Tally, Public, Floats, Floats], Estimate]


class ModesFound(StageFound, frozen=True, kw_only=True):
    """Public: the middles of the components, how many took part, and what stages tell."""

    users: Count
    middles: list[Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)]]
    stages: Told = msgspec.field(default_factory=list)


class WeightsFound(ModesFound, frozen=True, kw_only=True):
    """Public: the same, with the share of users closest to each component, and its error."""

    shares: list[Number]
    share_stderr: list[Error]


class ModeVoteRound(VotingStage):
    """First stage: votes for bins of [-1, 1].

    The bins with the most votes, no two side by side, are the components'.

    Parameters
    ----------
    bins : Bins
    votes : Votes
    ballot : callable
        Private: each user's bin, or -1.
    components : int
    in_pairs : bool
        Count bins in pairs side by side, so that a component at the edge of two bins keeps its
        votes together; its middle then is this edge, and pairs have a bin between them.

    Notes
    -----
    **Privacy.** That of the votes: one randomized row of full length from everyone, one-hot or zero.
    """

    name = "modes"

    def __init__(
        self,
        bins: Bins,
        votes: Votes,
        ballot: Callable[[Summaries], Ints],
        components: int,
        *,
        in_pairs: bool,
    ) -> None:
        self.epsilon = votes.epsilon
        self._in_pairs = in_pairs
        self.bins = bins
        self.votes = votes
        self._ballot = ballot
        self._components = components

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:  # noqa: ARG002 - the first
        """Private to public: one randomized row per user."""
        return self.votes.randomize(self._ballot(summaries), words)

    def decode(self, tally: Tally, public: Public) -> Public:  # noqa: ARG002 - the first stage
        """Public: the middles of the elected bins, in order."""
        counts = Tally(tally.n, tally.sums or (0,) * self.bins.count)
        if self._in_pairs:
            elected = mixture_peaks(pair_vote_counts(counts), self._components, apart=2)
            middles = [self.bins.edges(number)[1] for number in elected]
        else:
            elected = mixture_peaks(counts.sums, self._components, apart=1)
            middles = [float(np.mean(self.bins.edges(number))) for number in elected]

        stage = {"stage": self.name, "users": tally.n, "bins": self.bins.count, "middles": middles}
        return ModesFound(users=tally.n, middles=middles, stages=[stage]).plain()

    def check(self, found: Public, public: Public) -> None:  # noqa: ARG002 - the first stage
        """Public: refuse what are not the middles of bins, or pairs, in order and apart."""
        middles = ModesFound.of(found).middles
        chosen = [result_row([middle], ["middles"], self._middles) for middle in middles]
        apart = 2 if self._in_pairs else 1

        if len(chosen) != self._components or any(b - a <= apart for a, b in pairwise(chosen)):
            refuse_result("middles", "be of bins in order that are not side by side", middles)

    @cached_property
    def _middles(self) -> list[tuple[float]]:
        """Public: every middle that can be elected."""
        if self._in_pairs:
            return [
                (self.bins.edges(bin_number)[1],)
                for bin_number in range(max(self.bins.count - 1, 1))
            ]
        return [
            (float(np.mean(self.bins.edges(bin_number))),) for bin_number in range(self.bins.count)
        ]


class ComponentVoteRound(VotingStage):
    """Second stage: votes for the closest component.

    Notes
    -----
    **Privacy.** That of the votes; the middles come from other users.
    """

    name = "weights"

    def __init__(self, votes: Votes, closest: Callable[[Summaries, Floats], Ints]) -> None:
        self.epsilon = votes.epsilon
        self.votes = votes
        self._closest = closest

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one randomized row per user."""
        return self.votes.randomize(
            self._closest(summaries, np.array(ModesFound.of(public).middles)), words
        )

    def decode(self, tally: Tally, public: Public) -> Public:
        """Public: the share of users closest to each component, unbiased, and its standard error."""
        sums = tally.sums or (0,) * self.votes.bins
        share = self.votes.shares(sums, tally.n)
        stderr = [1.0] * self.votes.bins

        if tally.n:
            stderr = np.sqrt(self.votes.share_variance(np.clip(share, 0.0, 1.0), tally.n)).tolist()

        shares_found = {"shares": share.tolist(), "share_stderr": stderr}
        stage = {"stage": self.name, "users": tally.n, **shares_found}
        known = ModesFound.of(public)
        return WeightsFound(
            middles=known.middles,
            **shares_found,
            users=known.users + tally.n,
            stages=[*known.stages, stage],
        ).plain()

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse other middles, and shares that are no numbers."""
        now = WeightsFound.of(found)
        before = ModesFound.of(public)
        result_unchanged(now.middles, before.middles, "middles")
        result_added(now.stages, before.stages, "stages")

        if now.users < before.users:
            refuse_result("users", f"be at least {before.users}", "fewer")

        if not len(now.shares) == len(now.share_stderr) == self.votes.bins:
            refuse_result("shares", f"be {self.votes.bins}, each with its error", "others")


class ComponentMeanRound(LastRound, HashedStage):
    """Last stage: one number per user, its distance from the closest component times that component's public sign.

    Notes
    -----
    **Privacy.** Local, the channel's epsilon. The number lies in [-1, 1] whatever the data, and so does it with a sign:
    the component is protected with the distance. The seed is public and independent of the data.
    """

    name = "means"

    def __init__(
        self,
        channel: Mechanism,
        offset: Callable[[Summaries, Floats], tuple[Ints, Floats]],
        components: int,
        answer: Answer,
        *,
        seed: str = "",
    ) -> None:
        self.epsilon = channel.epsilon
        self.channel = channel
        self._offset = offset
        self.coordinates = components
        self._answer = answer
        self._key = b"component " + seed.encode()

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: a seed, and one randomized number."""
        seed = self.seeds(summaries)
        component, distance = self._offset(summaries, np.array(WeightsFound.of(public).middles))
        sign = hash_signs(seed, self.coordinates)[np.arange(len(seed)), component]
        return np.stack([seed, self.channel.randomize(sign * distance, words)], axis=1)

    def decode(self, tally: Tally, public: Public) -> Estimate:
        """Public: the distances of each component, averaged over all users."""
        offsets = np.zeros(self.coordinates)
        noise = np.full(self.coordinates, np.inf)

        if tally.n:
            offsets = (
                self.channel.step * np.array([float(number) for number in tally.sums[1:]]) / tally.n
            )
            square = self.channel.step**2 * float(tally.sums[0]) / tally.n
            noise = np.sqrt(np.maximum(square - offsets**2, 0.0) / tally.n)

        return self._answer(tally, public, offsets, noise)


def mixture_peaks(counts: tuple[int, ...], number: int, *, apart: int) -> list[int]:
    """Choose the bins with the most votes, one after the other, without the `apart` next to those chosen; in order.

    Raises
    ------
    ValueError
        If no bin is left for one.

    Examples
    --------
    >>> mixture_peaks((0, 9, 8, 0, 0, 5, 7), 2, apart=1)
    [1, 6]
    """
    left = np.array(counts, dtype=np.float64)
    chosen: list[int] = []
    for _ in range(number):
        best = int(np.argmax(left))
        if left[best] == -np.inf:
            raise ValueError(
                f"components must leave a bin for each of {number}, got {len(counts)} bins"
            )

        chosen.append(best)
        left[max(best - apart, 0) : best + apart + 1] = -np.inf

    return sorted(chosen)
