"""Laws of users' means, and the moments of a mean that is shrunk and clipped: without simulation.

A user of m samples has the mean xbar, shrinks its distance from a public center by
`a = sqrt(min(m, cap) / cap)` and clips it to a window. Two-point laws make the clip bias largest;
they are what the risk is computed for. Everything here is public; nothing sees data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from meanstream.operators.records import Floats
from meanstream.operators.rounds.binomial import binomial_probability
from meanstream.operators.rounds.user_sizes import SizeDistribution

MEANS = (0.0, 0.5, 0.85)
"""Means of the two-point laws on {-1, 1} over which the risk is a maximum."""

FINE = (10, 20)
"""Up to the first size the binomial law is enumerated; larger sizes make as many groups as the
second number says."""

COARSE = (4, 8)
"""The same for searches."""

FAR = (0.15, 0.4, 1.0, 1.9)
"""How far from all others a group may lie, where nothing is declared of tails. A window w loses
most to a group at 2 w: its bias is then between_users**2 / (4 w)."""

_SMOOTH = 1e-9
"""Standard deviation that stands for an atom in the formulas of the normal law."""


@dataclass(frozen=True, slots=True, eq=False)
class NormalLaw:
    """Law of a user's mean around the population's mean: a mixture of (nearly) normal components.

    Attributes
    ----------
    size : float array (J,)
        Number of samples of the users of each component.
    offset, stddev, skewness : float array (J,)
        Center (relative to the population's mean), standard deviation and skewness of each
        component.
    weight : float array (J,)
        Share of the users; adds to 1.
    """

    size: Floats
    offset: Floats
    stddev: Floats
    skewness: Floats
    weight: Floats

    @property
    def second_moment(self) -> float:
        """Mean squared distance of users' means from the population's."""
        return float(self.weight @ (self.offset**2 + self.stddev**2))


def plan_risk_sizes(sizes: SizeDistribution, exact: int, most: int) -> tuple[Floats, Floats]:
    """Replace a size distribution by few sizes with the same mean square root in each group.

    Parameters
    ----------
    sizes : SizeDistribution
        Public.
    exact : int
        Sizes up to this one stand alone.
    most : int
        Groups above, evenly spaced in the logarithm of the size.

    Returns
    -------
    size, probability : float arrays (J,)

    Examples
    --------
    >>> size, probability = plan_risk_sizes(SizeDistribution.parse("uniform:1,199"), exact=10, most=4)
    >>> size[-4:].round(), probability[-4:].round(2)
    (array([ 16.,  33.,  70., 146.]), array([0.06, 0.12, 0.25, 0.52]))
    """
    support = np.asarray(sizes.support, dtype=np.float64)
    probability = np.asarray(sizes.probability, dtype=np.float64)
    if len(support) <= exact + most:
        return support, probability

    low = max(support[0], exact + 0.5)
    high = support[-1] * (1 + 1e-9)
    group = np.where(support <= exact, support, 0.0)
    place = np.floor(most * np.log(np.maximum(support / low, 1.0)) / math.log(high / low))
    group = np.where(support <= exact, group, exact + 1 + np.minimum(place, most - 1))
    _, index = np.unique(group, return_inverse=True)
    share: Floats = np.bincount(index, probability).astype(np.float64)
    root = np.bincount(index, probability * np.sqrt(support))
    kept = share > 0
    size = (root[kept] / share[kept]) ** 2

    return np.asarray(np.where(size < exact + 0.5, np.rint(size), size)), share[kept]


def plan_risk_laws(
    sizes: SizeDistribution,
    between_users: float,
    detail: tuple[int, int] = FINE,
    *,
    far: bool = False,
) -> list[NormalLaw]:
    """Return the laws over which the risk is a maximum.

    Two-point laws, no spread at all, and skewed user means.

    Parameters
    ----------
    sizes : SizeDistribution
        Public.
    between_users : float
        Declared bound on the standard deviation of users' own means, on [-1, 1]; 0 for users that
        are alike.
    detail : (int, int)
        `FINE` or `COARSE`.
    """
    size, probability = plan_risk_sizes(sizes, *detail)
    laws = [_two_point(size, probability, theta, between_users, detail[0]) for theta in MEANS]
    alike = np.zeros_like(size)
    laws.append(
        NormalLaw(size, alike, np.full_like(size, max(between_users, _SMOOTH)), alike, probability)
    )

    if between_users > 0:
        laws.append(_exponential(size, probability, between_users))
        if far:
            laws.extend(
                _far_group(size, probability, between_users, d)
                for d in FAR
                if between_users < 0.4 * d
            )

    return laws


def plan_risk_skewed_law(sizes: SizeDistribution, between_users: float) -> NormalLaw:
    """Return the law of users' means that clipping biases most among those here.

    An exponential tail on one side.
    """
    return _exponential(*plan_risk_sizes(sizes, *FINE), between_users)


def _two_point(
    size: Floats, probability: Floats, theta: float, between_users: float, exact: int
) -> NormalLaw:
    columns = []
    for m, share in zip(size, probability, strict=True):
        if m <= exact and m == int(m):
            k = np.arange(int(m) + 1)
            weight = share * binomial_probability(k, int(m), 0.5 * (1 + theta))
            atom = np.full(len(k), max(between_users, _SMOOTH))
            columns.append(
                [np.full(len(k), m), 2 * k / m - 1 - theta, atom, np.zeros(len(k)), weight]
            )
        else:
            stddev = math.sqrt((1 - theta**2) / m + between_users**2)
            third = -2 * theta * (1 - theta**2) / m**2
            columns.append([np.array([x]) for x in (m, 0.0, stddev, third / stddev**3, share)])

    return NormalLaw(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _far_group(
    size: Floats, probability: Floats, between_users: float, distance: float
) -> NormalLaw:
    """All alike but a group this far from the others, as large as the spread allows.

    `p (1 - p) distance**2`.
    """
    share = 0.5 - math.sqrt(0.25 - (between_users / distance) ** 2)
    m = np.tile(size, 2)
    offset = np.repeat([-share * distance, (1.0 - share) * distance], len(size))
    weight = np.concatenate([(1.0 - share) * probability, share * probability])

    return NormalLaw(m, offset, np.sqrt(1.0 / m), np.zeros_like(m), weight)


def _exponential(
    size: Floats, probability: Floats, between_users: float, nodes: int = 12
) -> NormalLaw:
    """Users' means spread as `between_users * (Exp(1) - 1)`.

    Slices of equal probability, each with its own spread.
    """
    edge = -np.log1p(-np.arange(nodes) / nodes)
    # E[x; x > t] = (t + 1) exp(-t) and E[x^2; x > t] = (t^2 + 2 t + 2) exp(-t)
    first = -np.diff(np.append((edge + 1) * np.exp(-edge), 0.0)) * nodes
    second = -np.diff(np.append((edge**2 + 2 * edge + 2) * np.exp(-edge), 0.0)) * nodes
    offset = between_users * (first - 1)
    spread = between_users**2 * (second - first**2)
    m = np.repeat(size, nodes)

    return NormalLaw(
        m,
        np.tile(offset, len(size)),
        np.sqrt(1 / m + np.tile(spread, len(size))),
        np.zeros_like(m),
        np.repeat(probability, nodes) / nodes,
    )


def plan_risk_clip_moments(
    law: NormalLaw, cap: float, window: Floats, error: Floats
) -> tuple[Floats, Floats]:
    """Mean and second moment of a clipped and shrunk distance from the center.

    Parameters
    ----------
    law : Law
        Of users' means.
    cap : float
        Size from which on users are not shrunk.
    window : float array (C,)
        Where distances are cut.
    error : float array (K,)
        Center minus the population's mean.

    Returns
    -------
    mean, second : float arrays (C, K)

    Notes
    -----
    Closed forms of the normal law; the mean has the Edgeworth term of the skewness, which is what skewed laws bias. The
    second moment only sets the noise's share that depends on the data, where the term is negligible.
    """
    shrink = np.sqrt(np.minimum(law.size, cap) / cap)
    stddev = shrink * law.stddev
    mu = shrink * (law.offset - error[:, None])
    w = window[:, None, None]
    low = (-w - mu) / stddev
    high = (w - mu) / stddev
    below = ndtr(low)
    upto = ndtr(high)

    at_low = _density(low)
    at_high = _density(high)
    inside = upto - below
    edges = at_low - at_high
    bend = low * at_low - high * at_high
    mean = w * (1 - upto - below) + mu * inside + stddev * (edges + law.skewness / 6 * bend)
    second = (
        w**2 * (1 - inside)
        + (mu**2 + stddev**2) * inside
        + stddev * (2 * mu * edges + stddev * bend)
    )

    return mean @ law.weight, second @ law.weight


def _density(z: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * z * z) * (1 / math.sqrt(2 * math.pi)))
