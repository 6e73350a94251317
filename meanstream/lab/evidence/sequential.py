"""Sequential tests by e-values.

Look after every canary, stop when it is clear, and be wrong as rarely as before.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from meanstream.operators.records import Bools, Floats

STRENGTHS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Alternatives: that many times the claimed mu."""


def sequential_gaussian(score: Floats, mu: float, *, error: float) -> int | None:
    """Return after how many canaries it is clear that mu is more than claimed; None if it never is.

    Parameters
    ----------
    score : float array (n,)
        As for `gaussian_one_run`, one canary of each row.
    mu : float
        What is claimed.
    error : float
        How often a mechanism that keeps its claim is ever told to break it, however long one looks.

    Notes
    -----
    The e-value is the mean over alternatives of likelihood ratios, of the scores and of the guesses that their signs
    are: fair bets against the claim, whose product exceeds 1 / error with probability `error` at most (Ville). Scores
    that are equal for ever, without noise, show in the guesses.

    References
    ----------
    T. Gonzalez, M. Dulce Rubio, A. Ramdas, M. Ribero, Sequentially Auditing Differential Privacy, 2025.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> sequential_gaussian(rng.normal(0.25, 1.0, 100_000), 0.5, error=1e-6) is None  # mu is 0.5
    True
    >>> sequential_gaussian(rng.normal(0.5, 1.0, 100_000), 0.5, error=1e-6) < 2000  # mu is 1.0
    True
    """
    half = 0.5 * mu
    by_score = [
        np.cumsum((s - 1.0) * half * score - 0.5 * (s * s - 1.0) * half * half) for s in STRENGTHS
    ]
    by_guess = _guess_bets(score > 0, 0.5 * math.erfc(-half / math.sqrt(2.0)))

    return _first_above(np.array([*by_score, *by_guess]), error)


def sequential_guesses(right: Bools, most: float, *, error: float) -> int | None:
    """Return after how many guesses it is clear that more than a share `most` is right.

    None if it never is.

    Examples
    --------
    >>> sequential_guesses(np.ones(50, bool), 0.73, error=1e-6)
    50
    """
    return _first_above(np.array(_guess_bets(right, most)), error)


def _guess_bets(right: Bools, most: float) -> list[Floats]:
    if most > 1.0 - 1e-9:  # who may always be right is never right too often
        return [np.zeros(len(right))]
    # The alternative is right with probability most + (1 - most) part, which may round to 1.
    parts = (0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.95, 1.0 - 1e-9)
    odds = (1.0 - most) / most

    return [
        np.cumsum(np.where(right, math.log1p(odds * part), math.log1p(-part))) for part in parts
    ]


def _first_above(log_bets: Floats, error: float) -> int | None:
    evidence = logsumexp(log_bets, axis=0) - math.log(len(log_bets))
    over = np.flatnonzero(evidence >= -math.log(error))

    if len(over):
        return int(over[0]) + 1
    return None
