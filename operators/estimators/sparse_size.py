"""What both means of sparse vectors share, and the choice between them."""

from __future__ import annotations

import math

from meanstream.operators.validation import require


def recommended_sparse(
    *, epsilon: float, users: int, dimension: int, samples: int, constant: float = 1.0
) -> str:
    """Name the estimator of sparse means that the paper recommends: Section 4.1's rule.

    Parameters
    ----------
    epsilon : float
    users, dimension : int
    samples : int
        Number T of samples of each user.
    constant : float, default 1
        The paper leaves it open.

    Examples
    --------
    >>> [recommended_sparse(epsilon=1.0, users=users, dimension=100, samples=100) for users in (500, 10_000)]
    ['kent.sparse_select', 'kent.sparse_threshold']
    """
    signal = users * epsilon**2
    needed = constant * dimension * max(math.log(dimension * signal * samples), 1.0)

    if signal < needed:
        return "kent.sparse_select"
    return "kent.sparse_threshold"


def require_sparsity(sparsity: int, dimension: int) -> None:
    """Refuse more coordinates than there are."""
    require(
        1 <= sparsity <= dimension,
        "sparsity",
        f"lie between 1 and dimension, {dimension}",
        sparsity,
    )
