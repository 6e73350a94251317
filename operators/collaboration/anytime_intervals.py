"""Private: intervals that hold at every moment of a stream together, however often and whenever one looks."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.special import gammaln, ndtri

from meanstream.operators.agents.own_blocks import EARLY, EARLY_GROWTH, early_samples
from meanstream.operators.records import AgentEstimates, Floats, Ints, OwnMeans
from meanstream.operators.validation import require

Coverage = Literal["pointwise", "anytime"]
COVERAGES = ("pointwise", "anytime")
"""Of one moment that is chosen beforehand, or of all moments together."""
LENGTH = 6
"""Samples that count as one degree of freedom of a width: how they depend on each other is learned
from them, too."""
BOUNDS_WEIGHT = 0.1
"""Weight of the law that knows the bounds only."""
EARLY_WEIGHTS = np.array([0.55, 0.2, 0.08, 0.04, 0.02, 0.005])
"""Weights of the laws about the mean of the first 64, 512, 4096, ... samples. The last is for all
further ones."""
EARLY_DEGREES = 4.0
EARLY_SCALE = 1.2
"""Of those laws: Student's t, so much wider than what these samples leave open."""
RELEASED_DEGREES = 30
"""Of answers from releases: everyone's releases say how samples vary."""
_STEPS = 6
_LARGEST = 60.0


def valid_coverage(coverage: str, memory: str = "forever") -> Coverage:
    """Return what intervals promise.

    Examples
    --------
    >>> valid_coverage("anytime")
    'anytime'
    """
    require(coverage in COVERAGES, "coverage", f"be {' or '.join(COVERAGES)}", coverage)
    rule = "be pointwise with a memory: a mean that moves is not one number that all intervals could hold"
    require(coverage == "pointwise" or memory == "forever", "coverage", rule, coverage)

    if coverage == "anytime":
        return "anytime"
    return "pointwise"


def anytime_intervals(
    answer: AgentEstimates, own: OwnMeans, *, lower: float, upper: float
) -> AgentEstimates:
    """Private: answers whose intervals hold at all moments together.

    Each is addressed to its agent only.

    Parameters
    ----------
    answer : AgentEstimates
        With intervals of one moment.
    own : OwnMeans
        Of the same agents.
    lower, upper : float
        Declared bounds of a sample, in the value's unit.

    Notes
    -----
    With the posterior density p of a mean, and any density r that was fixed before, the average of r(mean) / p(mean) is
    1 at every moment and does not rise. By Ville's inequality it ever exceeds 1 / (1 - level) with a probability of
    1 - level at most. So {m : r(m) / p(m) < 1 / (1 - level)} holds at all moments together (prior-posterior ratio).

    The posterior is Student's t about the value, with a scale for each side from the given interval
    and a degree of freedom for six samples. r mixes the uniform law over the bounds with laws about
    the mean of an agent's first 64, 512, ... samples. Each of these laws is used for eight times as
    many samples as the one before. They are functions of the sequence of samples alone, and kept
    sums of blocks have them: restarts and refreshes change no bit. An answer from releases has the
    uniform law alone.

    **Privacy.** It reads an agent's own samples and the bounds, for the answer of this agent.

    References
    ----------
    Waudby-Smith, Ramdas (2020), "Confidence sequences for sampling without replacement", section 2.

    Examples
    --------
    >>> from meanstream.operators.collaboration.alone import FittedAlone
    >>> own = OwnMeans(agent=np.array([0]), count=np.array([400]), mean=np.array([0.5]), variance=np.array([0.0001]),
    ...                early_mean=np.array([0.52]))
    >>> anytime_intervals(FittedAlone().estimate(own), own, lower=0.0, upper=1.0).upper.round(3).tolist()
    [0.532]
    """
    normal = float(ndtri(0.5 + 0.5 * answer.level))
    least = 1e-12 * (upper - lower)
    stated = np.minimum(
        [answer.value - answer.lower, answer.upper - answer.value], 10 * (upper - lower)
    )
    sides = np.maximum(stated / normal, least)

    released = own.noise_variance > 0  # there is no other law then
    degrees = np.where(released, RELEASED_DEGREES, own.count / LENGTH)
    middle = sides.mean(axis=0)
    needed = -np.log1p(-answer.level) + _log_peak(degrees)
    reach = np.log((upper - lower) / (np.where(released, 1.0, BOUNDS_WEIGHT) * middle)) + needed
    length = sides * np.maximum(_distance(reach, degrees), normal)
    has_early = np.flatnonzero(np.isfinite(own.early_mean) & (own.count >= EARLY))

    if len(has_early):
        length[:, has_early] = _about_early(
            answer.value[has_early],
            own,
            has_early,
            length[:, has_early],
            sides=sides[:, has_early],
            needed=needed[has_early],
            normal=normal,
        )

    length = np.maximum(length, stated)
    share = length.sum(axis=0) / np.maximum(stated.sum(axis=0), least)
    noise = None if answer.noise_half_width is None else answer.noise_half_width * share
    return replace(
        answer,
        lower=answer.value - length[0],
        upper=answer.value + length[1],
        noise_half_width=noise,
    )


def _about_early(
    value: Floats,
    own: OwnMeans,
    which: Ints,
    length: Floats,
    *,
    sides: Floats,
    needed: Floats,
    normal: float,
) -> Floats:
    """Shorten sides by what the law about the mean of the first samples rules out.

    Every step is at or beyond the end: a shorter side makes the law denser there, and that makes
    the side shorter.
    """
    count = own.count[which]
    early = early_samples(count)
    degrees = count / LENGTH
    law = np.rint(np.log(early / EARLY) / np.log(EARLY_GROWTH)).astype(np.int64)
    weight = EARLY_WEIGHTS[np.minimum(law, len(EARLY_WEIGHTS) - 1)]

    scale = np.maximum(
        EARLY_SCALE * np.sqrt(np.minimum(own.variance[which], 1e300) * count / early),
        sides.min(axis=0),
    )
    needed = (
        needed + np.log(scale / (weight * sides.mean(axis=0))) - _log_peak(np.array(EARLY_DEGREES))
    )

    sign = np.array([[-1.0], [1.0]])
    away = value - own.early_mean[which]
    nearest = np.abs(
        away + sign * np.minimum(normal * sides, length)
    )  # the law may be least dense there
    least = length

    for _ in range(_STEPS):
        square = (np.maximum(np.abs(away + sign * least), nearest) / scale) ** 2
        reach = needed + 0.5 * (EARLY_DEGREES + 1) * np.log1p(square / EARLY_DEGREES)
        least = np.minimum(least, sides * _distance(reach, degrees))

    return least


def _log_peak(degrees: Floats) -> Floats:
    """Logarithm of Student's density at its center."""
    return gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - 0.5 * np.log(degrees * np.pi)


def _distance(fall: Floats, degrees: Floats) -> Floats:
    """Distance from its center at which the logarithm of Student's density has fallen by so much."""
    power = np.minimum(2 * np.maximum(fall, 0.0) / (degrees + 1), _LARGEST)
    return np.sqrt(degrees * np.expm1(power))
