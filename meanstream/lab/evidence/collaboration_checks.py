"""Checks of collaborations.

What each keeps to, ours and other people's; see `meanstream.testing`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np

from meanstream.lab.evidence.estimator_checks import hold
from meanstream.operators.collaboration.registry import Collaboration
from meanstream.operators.records import Floats, Ints, OwnMeans, ReleaseColumns

AGENTS = 60
DRAWS = 10
LEAST_COVER = 0.9
"""Of intervals of level .95, in each population: over 600 of them good ones stay above it by five
standard errors."""
REASONS = {
    "james_stein": "its intervals take the estimated spread of means as known, which is least where means are equal"
}
"""Why an interval of the registry covers less; another collaboration says so as `covers_less`."""
Columns = TypeVar("Columns", OwnMeans, ReleaseColumns)


@dataclass(frozen=True)
class CollaborationTrial:
    """A collaboration of values from 0 to 1 to check, and agents of two classes for it."""

    collaboration: Collaboration
    releases: ReleaseColumns
    own: OwnMeans
    variance: Floats

    @classmethod
    def of(cls, collaboration: Collaboration) -> CollaborationTrial:
        """Make up the agents: half of them around 0.2, the others around 0.8."""
        rng = np.random.default_rng(0)
        mean = rng.choice([0.2, 0.8], AGENTS) + rng.normal(0, 0.1, AGENTS)
        agent = np.arange(AGENTS)
        ones = np.ones(AGENTS, np.int64)
        own = OwnMeans(agent=agent, count=25 * ones, mean=mean, variance=np.full(AGENTS, 0.01))
        noise = np.full(AGENTS, 0.01)
        releases = ReleaseColumns(
            agent=agent, index=ones, count=100 * ones, total=ones,
            mean=mean + rng.normal(0, 0.1, AGENTS), noise_variance=noise,
        )  # fmt: skip

        return cls(collaboration, releases, own, own.variance + noise)


def check_collaboration(collaboration: Collaboration) -> None:
    """Check a collaboration for values from 0 to 1 as the tests of Meanstream check its own.

    Raises
    ------
    AssertionError
        Saying what does not hold.

    Notes
    -----
    **Privacy.** A collaboration reads releases and each agent's own mean; there is nothing to check of it here.

    Examples
    --------
    >>> from meanstream.operators.collaboration.alone import LearningAlone
    >>> check_collaboration(LearningAlone())
    """
    trial = CollaborationTrial.of(collaboration)
    for check in COLLABORATION_CHECKS:
        check(trial)


def collaboration_answers(trial: CollaborationTrial) -> None:
    """Check that each agent gets finite numbers, inside an interval that grows with its level."""
    fitted = trial.collaboration.fit(trial.releases, trial.variance)
    answer, wider = (fitted.estimate(trial.own, level=level) for level in (0.9, 0.99))
    hold(answer.level == 0.9, "an answer must have the level of the question")

    for name in (one.name for one in fields(answer) if one.name not in ("level", "moved")):
        column = getattr(answer, name)
        ok = column.shape == (AGENTS,) and np.isfinite(column).all()
        hold(ok, f"{name} must have a finite number for each agent")

    inside = (
        (answer.lower < answer.value) & (answer.value < answer.upper) & (answer.class_size >= 1)
    )
    hold(inside.all(), "a value must lie inside its interval, of a class of at least one")
    member = (answer.membership > 0) & (answer.membership <= 1)
    hold(member.all(), "membership must be above 0 and at most 1")
    grown = wider.upper - wider.lower > answer.upper - answer.lower
    hold(grown.all(), "an interval of a higher level must be wider")


def collaboration_without_releases(trial: CollaborationTrial) -> None:
    """Check that everyone learns alone where no one has released."""
    nobody = _take(trial.releases, np.zeros(0, np.int64))
    answer = trial.collaboration.fit(nobody, np.zeros(0)).estimate(trial.own)
    alone = np.allclose(answer.value, trial.own.mean, rtol=1e-12) and bool(
        (answer.class_size == 1).all()
    )
    half = np.allclose(
        answer.upper - answer.value, 1.959964 * np.sqrt(trial.own.variance), rtol=1e-6
    )
    hold(alone and half, "without releases each agent must get its own mean and a normal interval")


def collaboration_knows_no_order(trial: CollaborationTrial) -> None:
    """Check that the order of releases and of agents changes nothing, and that agents are answered one by one alike."""
    rng = np.random.default_rng(1)
    expected = trial.collaboration.fit(trial.releases, trial.variance).estimate(trial.own)
    shuffled = rng.permutation(AGENTS)
    some = rng.permutation(AGENTS)[:20]
    fitted = trial.collaboration.fit(_take(trial.releases, shuffled), trial.variance[shuffled])
    answer = fitted.estimate(_take(trial.own, some))
    same = (
        np.allclose(getattr(answer, one), getattr(expected, one)[some], rtol=1e-9)
        for one in ("value", "upper")
    )
    hold(all(same), "answers must not depend on the order of releases, or on who else is answered")


def collaboration_leaves_out_unknown(trial: CollaborationTrial) -> None:
    """Check an agent without a release, and a release of infinite variance, which must count as none."""
    others = np.arange(1, AGENTS)
    fitted = trial.collaboration.fit(_take(trial.releases, others), trial.variance[others])
    expected = fitted.estimate(trial.own)
    hold(np.isfinite(expected.value[0]), "an agent without a release must get an answer")
    unknown = np.where(np.arange(AGENTS) == 0, np.inf, trial.variance)
    answer = trial.collaboration.fit(trial.releases, unknown).estimate(trial.own)
    hold(
        np.allclose(answer.value, expected.value, rtol=1e-9),
        "infinite variance must count as no release",
    )


def collaboration_describes_itself(trial: CollaborationTrial) -> None:
    """Check the public description."""
    described = trial.collaboration.fit(trial.releases, trial.variance).describe()
    hold(json.loads(json.dumps(described)) == described, "describe() must give plain data")
    missing = {"method", "n_agents", "n_components", "components"} - set(described)
    hold(not missing, f"describe() must say {', '.join(sorted(missing))}")
    counted = len(described["components"]) == described["n_components"]
    hold(counted, "describe() must list as many components as it counts")


def collaboration_summaries_merge(trial: CollaborationTrial) -> None:
    """Check that summaries of parts merge, in any order, into one that is fitted like that of all."""
    made = trial.collaboration
    parts = [np.arange(0, 20), np.arange(20, 50), np.arange(50, AGENTS)]
    answers = []
    for order in ((0, 1, 2), (2, 0, 1)):
        merged = made.summarize(_take(trial.releases, parts[order[0]]))
        for part in order[1:]:
            merged.merge(made.summarize(_take(trial.releases, parts[part])))

        hold(merged.n == AGENTS, f"a merged summary must count {AGENTS} releases, got {merged.n}")
        answers.append(made.fit_summary(merged, 0.25).estimate(trial.own).value)

    answers.append(made.fit_summary(made.summarize(trial.releases), 0.25).estimate(trial.own).value)
    same = all((one == answers[0]).all() for one in answers)
    hold(same, "summaries of parts must merge to the same answers, to the last bit")


def collaboration_intervals_cover(trial: CollaborationTrial) -> None:
    """Check that intervals hold in populations with classes, without, and in between.

    A collaboration whose intervals hold under a condition says which, in words, as its attribute
    `covers_less`.
    """
    made = trial.collaboration
    reason = getattr(made, "covers_less", None) or REASONS.get(made.name)
    covers = {name: _cover(made, name) for name in _POPULATIONS}
    worst = min(covers, key=lambda name: covers[name])
    told = f"of level 0.95 must cover at least {LEAST_COVER} of the means, got {covers[worst]:.2f}"
    hold(
        covers[worst] >= LEAST_COVER or bool(reason),
        f"intervals {told} with {worst}: else say why as its attribute covers_less",
    )


_POPULATIONS: dict[str, Callable[[np.random.Generator], Floats]] = {
    "two classes": lambda rng: rng.choice([0.2, 0.8], AGENTS),
    "two near classes": lambda rng: rng.choice([0.4, 0.6], AGENTS),
    "no classes": lambda rng: np.clip(rng.normal(0.5, 0.1, AGENTS), 0.0, 1.0),
    "one mean": lambda rng: np.full(AGENTS, 0.4),  # noqa: ARG005 - nothing is drawn
}


def _cover(collaboration: Collaboration, population: str) -> float:
    """Count the share of means that lie in their intervals."""
    agent = np.arange(AGENTS)
    ones = np.ones(AGENTS, np.int64)
    variance = np.full(AGENTS, 0.01)
    covered = []

    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        truth = _POPULATIONS[population](rng)
        mean = truth + rng.normal(0, 0.1, AGENTS)
        own = OwnMeans(agent=agent, count=25 * ones, mean=mean, variance=variance)
        releases = ReleaseColumns(
            agent=agent, index=ones, count=25 * ones, total=ones,
            mean=mean + rng.normal(0, 0.1, AGENTS), noise_variance=variance,
        )  # fmt: skip
        answer = collaboration.fit(releases, 2 * variance).estimate(own, level=0.95)
        covered.append(((answer.lower <= truth) & (truth <= answer.upper)).mean())

    return float(np.mean(covered))


def _take(columns: Columns, rows: Ints) -> Columns:
    whole = {one.name: getattr(columns, one.name) for one in fields(columns)}
    known = {name: column[rows] for name, column in whole.items() if column is not None}
    return replace(columns, **known)


COLLABORATION_CHECKS: tuple[Callable[[CollaborationTrial], None], ...] = (
    collaboration_answers,
    collaboration_without_releases,
    collaboration_knows_no_order,
    collaboration_leaves_out_unknown,
    collaboration_describes_itself,
    collaboration_summaries_merge,
    collaboration_intervals_cover,
)
"""What `check_collaboration` runs."""
