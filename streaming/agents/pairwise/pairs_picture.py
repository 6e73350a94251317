"""What a page draws of agents that query each other: what their pairs have spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsPicture:
    """Public under round_robin, where who queries whom depends on times alone: budgets of pairs.

    Attributes
    ----------
    releases : int
        Releases of all pairs.
    pairs : int
        Pairs of an agent and a reader that have exchanged one.
    spent : tuple of int
        Number of pairs by their releases: entry k has made k.
    """

    releases: int
    pairs: int
    spent: tuple[int, ...]


def pairs_picture(stream: Any) -> PairsPicture:
    """Draw the pairs of a `PairwiseStream` as they are now."""
    spent = stream.releases_by_pair()
    return PairsPicture(
        releases=int(np.dot(spent, np.arange(len(spent)))),
        pairs=int(spent[1:].sum()),
        spent=tuple(spent.tolist()),
    )
