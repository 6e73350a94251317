"""Groups whose own releases say next to nothing: what large groups show holds for them, and no
more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanstream.operators.collaboration.prior.prior_by_count import PriorByCount
from meanstream.operators.collaboration.registry import answers_from_releases, make_collaboration
from meanstream.operators.records import AgentEstimates, Floats, ReleaseColumns

LOWER, UPPER, CENTER, STDDEV = 0.0, 60.0, 6.0, 4.0
NOISE = 4.2 * UPPER
"""Of the sum of a group's values, at about epsilon 1."""


@dataclass(frozen=True)
class Frame:
    """Groups of Zipf sizes, nearly all of a few rows, and what they release."""

    truth: Floats
    releases: ReleaseColumns
    variance: Floats

    @classmethod
    def draw(cls, spread: float, *, slope: float = 0.0, groups: int = 800, seed: int = 1) -> Frame:
        rng = np.random.default_rng(seed)
        count = np.minimum((1 - rng.random(groups)) ** (-1 / 0.7), 3000).astype(np.int64)
        truth = CENTER + slope * np.log10(count) + spread * rng.normal(size=groups)
        noise, ones = (NOISE / count) ** 2, np.ones(groups, np.int64)
        variance = noise + STDDEV**2 / count
        mean = truth + rng.normal(size=groups) * np.sqrt(variance)
        releases = ReleaseColumns(
            agent=np.arange(groups),
            index=ones,
            count=count,
            total=ones,
            mean=mean,
            noise_variance=noise,
        )
        return cls(truth, releases, variance)

    def answers(self, method: str, *, strangers: bool = False) -> AgentEstimates:
        made = make_collaboration(method, lower=LOWER, upper=UPPER, strangers=strangers)
        fitted = made.fit_summary(made.summarize(self.releases), STDDEV**2)
        return answers_from_releases(fitted, self.releases, self.variance)

    def error(self, answer: AgentEstimates) -> float:
        return float(np.mean((answer.value - self.truth) ** 2))


def test_small_groups_are_answered_as_well_as_without_counts() -> None:
    """Errors of the default were 8 times those of `pooled_prior` here, and intervals ended at both
    bounds."""
    frame = Frame.draw(1.0)
    ours, plain = frame.answers("learned_prior"), frame.answers("pooled_prior")
    assert frame.error(ours) < 1.2 * frame.error(plain)
    assert np.median(ours.upper - ours.lower) < 0.4 * (UPPER - LOWER)
    assert np.mean((ours.lower <= frame.truth) & (frame.truth <= ours.upper)) > 0.93


def test_no_group_is_answered_at_a_bound_that_noise_carries_it_beyond() -> None:
    """One release in two thousand is 3.5 standard errors off: an answer must not follow it to the
    bound."""
    frame = Frame.draw(1.0)
    far = frame.releases.mean.copy()
    smallest = int(frame.releases.count.argmin())
    far[smallest] = CENTER + 5 * np.sqrt(frame.variance[smallest])
    releases = ReleaseColumns(
        agent=frame.releases.agent, index=frame.releases.index, count=frame.releases.count, total=frame.releases.total,
        mean=far, noise_variance=frame.releases.noise_variance,
    )  # fmt: skip
    answer = Frame(frame.truth, releases, frame.variance).answers("learned_prior")
    assert abs(answer.value[smallest] - CENTER) < 6
    assert ((answer.value > LOWER) & (answer.value < UPPER)).all()


def test_counts_of_strangers_are_not_believed_and_own_ones_are() -> None:
    """Where few large groups show the means, something of what they say is lost on those who do not
    believe their counts."""
    frame = Frame.draw(1.0)
    believed, doubted = (
        frame.answers("learned_prior"),
        frame.answers("learned_prior", strangers=True),
    )
    assert frame.error(doubted) > 1.01 * frame.error(believed)
    assert PriorByCount(LOWER, UPPER).trimmed > 0
