"""The registry of private votes."""

from __future__ import annotations

from typing import Any, cast

from meanstream.operators.rounds.votes.base import Votes, VotesBase
from meanstream.operators.rounds.votes.choice_votes import RandomizedResponseVotes, SubsetVotes
from meanstream.operators.rounds.votes.unary_votes import (
    BinaryVotes,
    OptimizedVotes,
    SymmetricVotes,
)
from meanstream.operators.validation import closest_valid, require

__all__ = ["VOTES", "Votes", "make_votes"]

VOTES: dict[str, type[VotesBase]] = {
    "sue": SymmetricVotes,
    "oue": OptimizedVotes,
    "krr": RandomizedResponseVotes,
    "subset": SubsetVotes,
    "binary": BinaryVotes,
}
"""Every kind of vote, by name."""


def make_votes(name: str, epsilon: float, bins: int, **options: Any) -> Votes:
    """Make votes of the registry.

    Parameters
    ----------
    name : str
        A key of `VOTES`. All but "binary" take the bin of each voter; "binary" takes rows of bits.
    epsilon : float
        Privacy of one report.
    bins : int
        Number of bins, 1 to 1000.
    **options
        `bits` for "binary", `zero_row` for "krr" and "subset".

    Examples
    --------
    >>> {name: round(make_votes(name, 1.0, 64).z_score, 3) for name in VOTES}
    {'sue': 0.357, 'oue': 0.346, 'krr': 0.11, 'subset': 0.347, 'binary': 0.118}
    """
    require(name in VOTES, "votes", f"be one of {', '.join(VOTES)}", name)
    build: Any = VOTES[name]
    for option in options:
        if option not in build.options:
            raise ValueError(
                f"{name} takes no option {option!r}{closest_valid(option, sorted(build.options))}"
            )

    return cast(Votes, build(epsilon, bins, **options))
