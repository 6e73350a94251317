"""Answers for the rows of a frame themselves, not for the long run that they are samples of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import ndtri

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.collaboration.joint_means import JointMeans
from meanstream.operators.records import AgentEstimates, Floats
from meanstream.streaming.agents.public_population import PublicPopulation

Target = Literal["population", "rows"]
MOST_DEVIATIONS = 1 << 10
"""No noise reaches farther than that many of its standard deviations."""


def means_meaning(settings: AgentsSettings, level: float, target: Target = "population") -> str:
    """Sentence on what a group's mean and its interval are of."""
    about = "a group's long-run mean of values"
    errors = "noise and sampling"
    if target == "rows":
        about = "the mean of a group's rows in this frame,"
        errors = "noise, and no sampling"

    return (
        f"`mean` estimates {about} clipped to [{settings.lower:g}, {settings.upper:g}]; "
        f"its {100 * level:g} % interval includes {errors}"
    )


def answers_of_rows(
    people: PublicPopulation, answer: AgentEstimates, settings: AgentsSettings
) -> tuple[AgentEstimates, JointMeans | None]:
    """Public: answers and joint posterior for the means of the released rows.

    Notes
    -----
    **Privacy.** Post-processing of the answers for the population: it spends nothing.

    Given the long-run mean `mu` of a group and its release `R`, the mean of its rows is about
    `R + f (mu - R)` with the variance `f s`, where `s` is the variance of sampling, `n` that of the
    noise, and `f = n / (s + n)`. Where sampling outweighs noise the answer is the release itself,
    with an interval that the law of the noise gives; no interval is longer than that.

    References
    ----------
    Cochran (1977), *Sampling Techniques*: a finite population that is known whole has no sampling
    error.
    """
    release = people.releases.mean
    noise = people.releases.noise_variance
    of_value = noise / np.maximum(people.value_variance, noise)
    value = release + of_value * (answer.value - release)

    normal = float(ndtri(0.5 + answer.level / 2))
    spread = _Spread(
        noise=noise,
        share=noise / np.maximum(people.variance, noise),
        wider=_deviations(settings, answer.level) / normal,
    )
    below = spread.stddev((answer.value - answer.lower) / normal)
    above = spread.stddev((answer.upper - answer.value) / normal)
    answered = replace(
        answer, value=value, lower=value - normal * below, upper=value + normal * above
    )

    joint = people.joint()
    if joint is None:
        return answered, None

    return answered, spread.joint(joint.centered_on(value))


@dataclass(frozen=True, slots=True)
class _Spread:
    """Standard errors of the means of rows, from those of long-run means.

    Variance of the noise, its share of a release's variance, and how much wider than a normal law's
    an interval of the noise is.
    """

    noise: Floats
    share: Floats
    wider: float

    def stddev(self, of_population: Floats) -> Floats:
        """As wide as the law of the noise is, the more the release decides."""
        sampling = self.noise * (1 / self.share - 1)
        variance = np.square(self.share * of_population) + self.share * sampling
        share_left = np.minimum(variance / self.noise, 1.0)

        return np.asarray(np.sqrt(share_left * self.noise) * (1 + (self.wider - 1) * share_left))

    def joint(self, joint: JointMeans) -> JointMeans:
        """The center's part stays shared; what is left of the whole is each group's own."""
        of_center = np.square(joint.weight) * joint.center_variance
        together = self.stddev(np.sqrt(np.square(joint.stddev) + of_center))
        own_variance = np.square(together) - np.square(self.share) * of_center

        return replace(
            joint, stddev=np.sqrt(np.maximum(own_variance, 0.0)), weight=self.share * joint.weight
        )


def _deviations(settings: AgentsSettings, level: float) -> float:
    """Standard deviations of a release's noise that it exceeds with probability `1 - level`."""
    stddev = float(np.sqrt(settings.fresh.variance))
    low = 0
    high = int(np.ceil(MOST_DEVIATIONS * stddev))

    # The least whole number that the noise exceeds on either side with half of that probability.
    while low < high:
        middle = (low + high) // 2
        if float(settings.fresh.cdf(middle)) < 0.5 + level / 2:
            low = middle + 1
        else:
            high = middle

    return low / stddev
