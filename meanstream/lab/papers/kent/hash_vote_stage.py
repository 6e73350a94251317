"""Votes for several coordinates at once, added up with public random signs into one number."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from meanstream.lab.papers.kent.folds import FoldsFound
from meanstream.lab.papers.kent.public_hash import SEED_BITS, hash_seeds, hash_signs, hash_users
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.base import exact_round_dot
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.round_records import Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    refuse_result,
    result_unchanged,
)

_CELLS = 2**22
"""Signs made at once."""


class HashedStage:
    """A stage in which each user sends a public seed, and one number from a channel.

    The number is made of coordinates with the public random signs of the seed.
    """

    channel: Mechanism
    coordinates: int
    _key: bytes

    def seeds(self, summaries: Summaries) -> Ints:
        """Public: the seed of each user, from who it is."""
        return hash_seeds(hash_users(summaries.user, self._key))

    def valid(self, reports: Reports, public: Public) -> Bools:  # noqa: ARG002 - whatever was before
        """Public: tell which rows hold a seed and a number of the channel."""
        good = (reports[:, 0] >= 0) & (reports[:, 0] < 1 << SEED_BITS)
        return np.asarray(good & self.channel.valid(reports[:, 1]), dtype=np.bool_)

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - whatever was before
        """Public: sum of squares of the numbers, then for each coordinate their sum with its signs."""
        if not len(reports):
            return Tally()
        sums = hash_vote_signed_sums(reports[:, 0], reports[:, 1], self.coordinates)
        return Tally(len(reports), (exact_round_dot(reports[:, 1], reports[:, 1]), *sums))


class HashVoteRound(HashedStage):
    """Users mark coordinates; how many marked each is found from one number per user.

    Parameters
    ----------
    marks : callable
        Private: each user's marks, from Summaries to a bool array (n, d).
    coordinates : int
        Number d of coordinates.
    clip : float
        Signed sums are clipped to [-clip, clip].
    channel : Mechanism
        Randomizes the sums, scaled to [-1, 1].
    select : callable
        Public: what the next stages need, from (scores (d,), their standard errors, number of
        reports): `selected`, `voters`, and the `coordinates` that are queried about.
    most : int
        So many coordinates are selected at most.
    seed : str
        Public; another one gives other signs.

    Notes
    -----
    **Privacy.** Local, the channel's epsilon: a report holds a seed, which is public and independent of the data, and
    one number from a channel that is private for any two sums within the clip, whatever the marks.

    Signs of different coordinates are independent, so `sign_j` times the number is the mark of
    coordinate j in expectation (but for the clip) and everything else is noise.

    References
    ----------
    A. Kent, T. Berrett, Y. Yu: Rate optimality and phase transition for user-level local differential privacy,
    Algorithm 6, after M. Zhou et al. (2022).
    """

    name = "select"

    def __init__(
        self,
        marks: Callable[[Summaries], Bools],
        *,
        coordinates: int,
        clip: float,
        channel: Mechanism,
        select: Callable[[Floats, Floats, int], Public],
        most: int,
        seed: str = "",
    ) -> None:
        self.epsilon = channel.epsilon
        self.coordinates = coordinates
        self.clip = clip
        self.channel = channel
        self._marks = marks
        self._select = select
        self._most = most
        self._key = b"signs " + seed.encode()

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:  # noqa: ARG002 - the first
        """Private to public: a seed, and one randomized number."""
        seed = self.seeds(summaries)
        marks = self._marks(summaries)
        signed = np.empty(len(seed))
        for rows in _pieces(len(seed), self.coordinates):
            signed[rows] = (hash_signs(seed[rows], self.coordinates) * marks[rows]).sum(axis=1)

        return np.stack([seed, self.channel.randomize(signed / self.clip, words)], axis=1)

    def decode(self, tally: Tally, public: Public) -> Public:  # noqa: ARG002 - the first stage
        """Public: what is made of the share of users who marked each coordinate."""
        scores = np.zeros(self.coordinates)
        stderr = np.full(self.coordinates, math.inf)
        if tally.n:
            scale = self.channel.step * self.clip / tally.n
            scores = scale * np.array([float(number) for number in tally.sums[1:]])
            stderr[:] = scale * math.sqrt(tally.sums[0])

        selection = self._select(scores, stderr, tally.n)
        stage: dict[str, Any] = {
            "stage": self.name,
            "users": tally.n,
            "coordinates": selection.get("selected", []),
        }

        return FoldsFound(**selection, users=tally.n, stages=[stage]).plain()

    def check(self, found: Public, public: Public) -> None:  # noqa: ARG002 - the first stage
        """Public: refuse what are not some of the coordinates, each once and in order."""
        now = FoldsFound.of(found)
        chosen = now.coordinates or []
        rising = all(before < one for before, one in pairwise(chosen))

        if not 1 <= len(chosen) <= self._most or not rising or chosen[-1] >= self.coordinates:
            rule = f"be 1 to {self._most} of {self.coordinates}, each once and in order"
            refuse_result("coordinates", rule, "others")

        if (
            None in (now.voters, now.users)
            or len(now.stages) != 1
            or now.selected not in (chosen, [])
        ):
            refuse_result("selected", "be the coordinates, or none, with their voters", "others")

        result_unchanged(now.inner, None, "inner")


def hash_vote_signed_sums(seed: Ints, number: Ints, count: int) -> list[int]:
    """Sum of numbers with the signs of their seeds, for each of `count` coordinates, exactly.

    Examples
    --------
    >>> hash_vote_signed_sums(np.array([1, 2]), np.array([10, 1]), 4)
    [11, -11, -9, -9]
    """
    low = number & (2**31 - 1)
    high = number >> 31
    sums = [0] * count
    for rows in _pieces(len(seed), count):
        signs = hash_signs(seed[rows], count).astype(np.int64)
        # Two halves of 31 bits: sums of 2**22 of them stay below 2**63.
        parts = zip((low[rows] @ signs).tolist(), (high[rows] @ signs).tolist(), strict=True)
        sums = [total + (b << 31) + a for total, (a, b) in zip(sums, parts, strict=True)]

    return sums


def _pieces(n: int, count: int) -> list[slice]:
    size = max(_CELLS // count, 1)
    return [slice(start, start + size) for start in range(0, n, size)]
