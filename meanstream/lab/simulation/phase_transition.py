"""Kent, Berrett and Yu's phase transition.

The error of their univariate mean against T, for bins of any width.

The estimator itself has at most 1000 bins, since every bin is a bit of every report. Here only sums
of reports are drawn, so bins may be as narrow as the paper's, 0.0005.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from meanstream.lab.papers.kent.univariate import REACH
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require

SHIFT = 0.3
"""Means are uniform on [-0.3, 0.3], another one in each run."""


@dataclass(frozen=True, slots=True)
class PhaseError:
    """Mean squared error over the runs, and its standard error."""

    mse: float
    stderr: float


def phase_transition_error(
    *, users: int, samples: int, epsilon: float, half_width: float, runs: int, seed: int
) -> PhaseError:
    """Simulate Algorithms 2 and 3 with one-hot votes, for signs shifted by a uniform number.

    Parameters
    ----------
    users, samples : int
        n users, half of whom vote, with T samples each.
    epsilon : float
    half_width : float
        Of a bin.
    runs, seed : int

    Examples
    --------
    >>> ask = {"users": 100, "samples": 10_000, "half_width": 0.02, "runs": 200, "seed": 1}
    >>> [f"{phase_transition_error(epsilon=epsilon, **ask).mse:.0e}" for epsilon in (1.0, 4.0)]
    ['1e-01', '4e-05']

    References
    ----------
    Kent, Berrett, Yu, Section A.1 and Fig. 5.
    """
    require(users >= 2, "users", "be at least 2", users)
    draw = np.random.default_rng(
        [seed, users, samples, round(1e6 * epsilon), round(1e9 * half_width)]
    )
    shift = draw.uniform(-SHIFT, SHIFT, runs)
    means = (2.0 * draw.binomial(samples, 0.5, (runs, users)) - samples) / samples + shift[:, None]
    voters = means[:, : users // 2]
    others = means[:, users // 2 :]

    elected = _elected(voters, epsilon, half_width, draw)
    low = -1.0 + 2.0 * half_width * elected
    reach = REACH["one_hot"] * half_width
    left = np.maximum(low - reach, -1.0)
    right = np.minimum(low + 2.0 * half_width + reach, 1.0)
    clipped = np.clip(others, left[:, None], right[:, None]).mean(axis=1)
    scale = (right - left) / epsilon
    noise = draw.laplace(0.0, 1.0, others.shape).mean(axis=1) * scale
    squares = (clipped + noise - shift) ** 2

    return PhaseError(float(squares.mean()), float(squares.std() / math.sqrt(runs)))


def _elected(voters: Floats, epsilon: float, half_width: float, draw: np.random.Generator) -> Ints:
    """Draw the bin with the most of the randomized votes, in each run."""
    runs, n = voters.shape
    bins = math.ceil(1.0 / half_width - 1e-9)
    which = np.clip(np.floor((voters + 1.0) / (2.0 * half_width)).astype(np.int64), 0, bins - 1)
    votes = np.bincount((np.arange(runs)[:, None] * bins + which).ravel(), minlength=runs * bins)
    kept = 1.0 / (1.0 + math.exp(-epsilon / 2.0))
    noised = draw.binomial(votes, kept) + draw.binomial(n - votes, 1.0 - kept)

    return np.asarray(noised.reshape(runs, bins).argmax(axis=1), np.int64)
