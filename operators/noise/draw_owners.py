"""Who owns which random bits: every consumer of a keyed source claims its draw numbers here.

A draw is `bits(ids, draw)` under a key. Two consumers that meet one number under one key and one
id share noise, and the difference of what they release is exact. So the numbers of a key stand in
one table, and a claim of a number that has an owner is refused when the module loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meanstream.operators.noise.keyed import MAX_DRAWS
from meanstream.operators.records import VOTE_BINS
from meanstream.operators.validation import require

_MOST_HISTOGRAM_BINS = 64


@dataclass(frozen=True, slots=True)
class DrawOwner:
    """A range of draw numbers under one key that one kind of noise has for itself.

    Attributes
    ----------
    key : str
        Purpose that the key is derived for; keys of two purposes share nothing.
    kind : str
        What is noised, or chosen, with the draws.
    ids : str
        Whose release, which one, and for which reader, that the `NoiseIds` say.
    first, number : int
        The draws: one for each bin, or coordinate, or choice.

    Examples
    --------
    >>> AGENT_VOTES.at(0), AGENT_VOTES.at(10), AGENT_HISTOGRAMS.at(0)
    (1, 11, 12)
    """

    key: str
    kind: str
    ids: str
    first: int
    number: int

    def at(self, place: int = 0) -> int:
        """Give the draw number of a bin; a place outside of what was claimed is refused."""
        require(0 <= place < self.number, "place", f"lie below {self.number} of {self.kind}", place)
        return self.first + place


class DrawOwners:
    """The owners of the draws of each key.

    Examples
    --------
    >>> owners = DrawOwners()
    >>> mean = owners.claim("agents", "mean", "release of an agent", first=0, number=1)
    >>> owners.claim("agents", "votes", "release of an agent", first=0, number=11)
    Traceback (most recent call last):
    ...
    ValueError: first must be a draw that has no owner, got 0 of agents, which mean has
    """

    def __init__(self) -> None:
        self._owners: list[DrawOwner] = []

    def __iter__(self) -> Iterator[DrawOwner]:
        return iter(self._owners)

    def claim(self, key: str, kind: str, ids: str, *, first: int, number: int) -> DrawOwner:
        """Give a range of draws to one kind of noise.

        Raises
        ------
        ValueError
            If a number has an owner already, or is none that a source has.
        """
        require(number >= 1 and 0 <= first <= MAX_DRAWS - number, "first", "be a draw", first)
        for other in self._owners:
            if (
                other.key == key
                and first < other.first + other.number
                and other.first < first + number
            ):
                raise ValueError(
                    "first must be a draw that has no owner, "
                    f"got {first} of {key}, which {other.kind} has"
                )

        owner = DrawOwner(key, kind, ids, first, number)
        self._owners.append(owner)
        return owner


DRAW_OWNERS = DrawOwners()
"""Of all keys of the product."""

_RELEASE = "agent, release"
AGENT_MEANS = DRAW_OWNERS.claim("agents", "means", _RELEASE, first=0, number=1)
AGENT_VOTES = DRAW_OWNERS.claim("agents", "votes", _RELEASE, first=1, number=VOTE_BINS)
AGENT_HISTOGRAMS = DRAW_OWNERS.claim(
    "agents", "histograms", _RELEASE, first=1 + VOTE_BINS, number=_MOST_HISTOGRAM_BINS
)

PRIVATE_MEAN = DRAW_OWNERS.claim("private mean", "means", "stream, release", first=0, number=1)

_PAIR = "agent and reader, release"
PAIR_SUMS = DRAW_OWNERS.claim("pairwise stream", "sums", _PAIR, first=0, number=1)
PAIR_SQUARES = DRAW_OWNERS.claim("pairwise stream", "sums of squares", _PAIR, first=1, number=1)

SITE_SUMS = DRAW_OWNERS.claim("federated", "sums", "site's round", first=0, number=1)
FRAME_ROWS = DRAW_OWNERS.claim("frame rows", "digests", "group, column", first=0, number=1)
PERSON_ROWS = DRAW_OWNERS.claim("whole persons", "digests", "group, column", first=0, number=1)
BOUND_COUNTS = DRAW_OWNERS.claim("learned bounds", "counts", "bin", first=0, number=1)
GROUP_SUMS = DRAW_OWNERS.claim("secret groups", "sums", "group", first=0, number=2)
GROUP_SQUARES = DRAW_OWNERS.claim("secret groups", "squares", "all groups", first=2, number=1)
GROUP_FRAMES = DRAW_OWNERS.claim(
    "secret groups", "digests of a frame", "group, column", first=3, number=1
)

USER_REPORTS = DRAW_OWNERS.claim(
    "round of users", "reports", "user, stage", first=0, number=MAX_DRAWS
)
"""Numbered by the estimator, whose stage has them all."""
CURATOR_SUMS = DRAW_OWNERS.claim(
    "round of a curator", "sums", "round, stage", first=0, number=MAX_DRAWS
)
"""Likewise."""
