"""What a page draws of agents that query each other: their classes, and what pairs have spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_CLASSES = 50
"""Classes that are drawn, the largest ones; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPicture:
    """Private: the agents of a class, and the raw means of these, in the value's unit."""

    agents: int
    mean: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsPicture:
    """Private: classes and budgets of agents that query each other.

    Attributes
    ----------
    classes : tuple of ClassPicture
        The largest classes of at least two agents.
    n_classes, alone : int
        Classes of at least two agents, and agents of which no class is known.
    releases : int
        Releases of all pairs.
    pairs : int
        Pairs of an agent and a reader that have exchanged one.
    spent : tuple of int
        Number of pairs by their releases: entry k has made k.
    """

    classes: tuple[ClassPicture, ...]
    n_classes: int
    alone: int
    releases: int
    pairs: int
    spent: tuple[int, ...]


def pairs_picture(stream: Any) -> PairsPicture:
    """Draw the pairs of a `PairwiseStream` as they are now."""
    every = stream.classes()
    found = sorted((one for one in every if len(one) > 1), key=len, reverse=True)
    spent = stream.releases_by_pair()

    return PairsPicture(
        classes=tuple(_picture(stream, of_class) for of_class in found[:MOST_CLASSES]),
        n_classes=len(found),
        alone=len(every) - len(found),
        releases=int(np.dot(spent, np.arange(len(spent)))),
        pairs=int(spent[1:].sum()),
        spent=tuple(spent.tolist()),
    )


def _picture(stream: Any, of_class: Any) -> ClassPicture:
    means = stream.raw_means(of_class)
    return ClassPicture(
        agents=len(of_class),
        mean=float(means.mean()),
        lowest=float(means.min()),
        highest=float(means.max()),
    )
