"""The vote for categories with the smallest error, from epsilon and the number of categories alone."""

from __future__ import annotations

from meanstream.operators.rounds.votes.registry import make_votes

UNARY = ("oue", "sue")
CHOICES = ("krr", "subset")

DEARER = 1.02
"""A vote for a set draws twice the random bits of a row of bits: it must gain more than this in
variance."""


def category_vote_variance(votes: str, epsilon: float, categories: int) -> float:
    """Predict the variance of all shares together, times the number of users, where all shares are equal.

    Examples
    --------
    >>> [round(category_vote_variance(votes, 1.0, 10), 1) for votes in ("oue", "sue", "krr", "subset")]
    [38.7, 40.1, 41.9, 30.0]
    """
    own = {"zero_row": False} if votes in CHOICES else {}
    made = make_votes(votes, epsilon, categories, **own)
    return categories * float(made.share_variance(1.0 / categories, 1.0))


def best_category_votes(epsilon: float, categories: int) -> str:
    """Choose how users vote; public facts decide.

    Examples
    --------
    >>> [best_category_votes(epsilon, k) for epsilon, k in ((1.0, 3), (1.0, 10), (1.0, 250), (4.0, 10))]
    ['krr', 'subset', 'oue', 'krr']
    """
    found = {}
    for votes in (*UNARY, *CHOICES):
        try:
            found[votes] = category_vote_variance(votes, epsilon, categories)
        except ValueError:  # epsilon is too small for so many categories
            continue

    best = min(found, key=found.__getitem__)
    if best != "subset":
        return best
    cheap = min((votes for votes in found if votes != "subset"), key=found.__getitem__)

    if found[cheap] <= DEARER * found[best]:
        return cheap
    return best
