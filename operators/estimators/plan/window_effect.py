"""What a window around a public center costs.

Bias and variance of the estimate, averaged over the center's error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from meanstream.operators.estimators.plan.plan_risk import NormalLaw, plan_risk_clip_moments
from meanstream.operators.records import Floats

LASTING_COST = 1.0
"""By how much more than variance squared bias counts that does not average out over rounds."""


@lru_cache(maxsize=1)
def window_error_nodes() -> tuple[Floats, Floats]:
    """Return nodes and weights for averages over the error of a center that reports made, of variance 1.

    Notes
    -----
    Nineteen in twenty errors are normal; one is drawn from a law of twice the standard deviation, since what a stage
    leaves of a large error of the stage before it makes the tails heavier than normal ones.
    """
    (usual, usual_weight), (large, large_weight) = (
        np.polynomial.hermite_e.hermegauss(k) for k in (5, 3)
    )
    rare = 0.05
    ratio = 2.0
    usual = usual * math.sqrt((1 - rare * ratio**2) / (1 - rare))
    usual_weight = usual_weight / usual_weight.sum() * (1 - rare)
    large_weight = large_weight / large_weight.sum() * rare
    usual_weight[2] += large_weight[1]
    node = np.concatenate([ratio * large[:1], usual, ratio * large[2:]])

    return node, np.concatenate([large_weight[:1], usual_weight, large_weight[2:]])


def window_uniform_nodes(half: float) -> tuple[Floats, Floats]:
    """Return nodes and weights for averages over an error spread evenly over `[-half, half]`."""
    node, weight = np.polynomial.legendre.leggauss(7)
    return half * node, weight / 2


@dataclass(frozen=True, slots=True, eq=False)
class WindowEffect:
    """What clip stages do, for C windows and L laws.

    Attributes
    ----------
    variance : float array (L, C)
        Variance of the estimate from one report.
    bias_squared : float array (L, C)
        Squared bias, averaged over the error of the center.
    lasting : float array (L, C)
        Part of `bias_squared` that is the same in every round: of the mean bias, which skewed laws
        have.
    gain : float array (C,)
        kappa, by which the mean report is divided: halfway between no clipping and the steepest
        clipping.
    second_moment : float array (C,)
        Largest mean square of what is sent, relative to the window; it decides the channel.
    near : float array (C, K)
        Size of the mean report for each error of the center.
    far : float array (C,)
        Size of the mean report when the center is off by `far_error`.
    """

    variance: Floats
    bias_squared: Floats
    lasting: Floats
    gain: Floats
    second_moment: Floats
    near: Floats
    far: Floats

    def cost(self, reports: float) -> Floats:
        """Compute what windows are chosen by.

        The risk, bias that lasts counted `1 + LASTING_COST` times.
        """
        return np.asarray(
            (self.variance / reports + self.bias_squared + LASTING_COST * self.lasting).max(axis=0)
        )

    def risk(self, reports: float, choice: int) -> float:
        """Predicted mean squared error with one of the windows."""
        return float((self.variance / reports + self.bias_squared)[:, choice].max())


def window_effect(
    laws: Sequence[NormalLaw],
    moments: Sequence[tuple[float, float]],
    *,
    cap: float,
    shrunk: float,
    window: Floats,
    error: tuple[Floats, Floats],
    far_error: float = 0.0,
) -> WindowEffect:
    """Compute bias and variance of a clip stage for several windows.

    Parameters
    ----------
    laws : sequence of Law
        Of users' means.
    moments : sequence of (float, float)
        `(c0, c1)` of each channel: second moment of a report is `c0 + c1 g^2`.
    cap : float
        Size from which on users are not shrunk (the papers' m~).
    shrunk : float
        A, the mean over users of the shrinkage.
    window : float array (C,)
        Half-widths.
    error : tuple of float arrays (K,)
        Nodes and weights of the error of the center.
    far_error : float
        An error of the center that must be distinguished from the others.
    """
    node, weight = error
    places = np.append(node, far_error)
    found = [plan_risk_clip_moments(law, cap, window, places) for law in laws]
    mean = np.stack([m for m, _ in found])
    second = np.stack([s for _, s in found])[..., :-1] @ weight / window**2
    size, mean = np.abs(mean) / window[:, None], mean[..., :-1]
    slope = -(mean @ (weight * node)) / (weight @ node**2 * shrunk)
    gain = np.clip(0.5 * (1 + slope.min(axis=0)), 0.05, 1.0)
    off = node + mean / (shrunk * gain)[:, None]
    sent = np.min([c0 + c1 * second for c0, c1 in moments], axis=0)
    unit = (window / (shrunk * gain)) ** 2

    return WindowEffect(
        variance=unit * (sent - (mean**2 @ weight) / window**2),
        bias_squared=off**2 @ weight,
        lasting=(off @ weight) ** 2,
        gain=gain,
        second_moment=second.max(axis=0),
        near=size[..., :-1].max(axis=0),
        far=size[..., -1].min(axis=0),
    )


def window_vote_failure(epsilon: float, voters: float, bins: int, inside: float) -> float:
    """Bound the probability that a pair of bins far from the population's mean wins a one-hot SUE vote.

    Parameters
    ----------
    epsilon : float
        Of one vote.
    voters : float
        Users asked.
    bins : int
        Number of bins.
    inside : float
        Share of the users who vote for the right pair.

    Notes
    -----
    A union bound over pairs that share no bin with the right one, each by the normal law of the difference of two sums
    of two bins.
    """
    keep = 1 / (1 + math.exp(-0.5 * epsilon))
    gap = (2 * keep - 1) * inside
    variance = 4 * keep * (1 - keep) + gap * ((2 * keep - 1) - gap)
    return min(1.0, max(bins - 4, 0) * float(ndtr(-math.sqrt(voters / variance) * gap)))
