"""Groups within groups: messages in the tree against dense algebra, the goals on made-up trees, and
trees that have nothing to learn.

Every population is drawn with a fixed seed and known truth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from meanstream.operators.collaboration.levels.group_tree import GroupTree, Message
from meanstream.operators.collaboration.levels.level_posteriors import (
    LEAF_POWER,
    LevelSpreads,
    learn_level_spreads,
    level_posteriors,
    prior_of_the_whole,
)
from meanstream.operators.collaboration.levels.prior_of_levels import FittedLevels, PriorOfLevels
from meanstream.operators.collaboration.prior.prior_by_count import FittedByCount, PriorByCount
from meanstream.operators.collaboration.registry import (
    estimate_with_two_variances,
    means_of_releases,
)
from meanstream.operators.records import AgentEstimates, Floats, Ints, OwnMeans, ReleaseColumns

STDDEV = 0.15
WHOLE = prior_of_the_whole(0.0, 1.0)


def small_tree() -> tuple[GroupTree, list[Ints]]:
    """Three countries, of which one has a single state and one state a single county."""
    state = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 4])
    country = np.array([0, 0, 1, 1, 2])[state]
    groups = [country, state, np.arange(12)]
    return GroupTree.of(("country", "state", "county"), groups), groups


def small_leaves() -> tuple[Message, Ints]:
    rng = np.random.default_rng(3)
    return Message(rng.uniform(0, 1, 12), rng.uniform(0.002, 0.05, 12)), rng.integers(1, 40, 12)


def covariance(groups: list[Ints], spread: Floats) -> Floats:
    """Covariance of the leaves' means before any release."""
    alike = [np.equal.outer(group, group) for group in groups]
    squares = [square * same for square, same in zip(spread**2, alike, strict=True)]
    return np.asarray(WHOLE.variance[0] + np.sum(squares, axis=0), np.float64)


@pytest.mark.parametrize("spread", [(0.1, 0.05, 0.03), (0.0, 0.2, 0.1), (0.3, 0.0, 0.01)])
def test_posteriors_are_those_of_dense_algebra(spread: tuple[float, ...]) -> None:
    """Of parents given all other leaves, and of the rows of each group given all."""
    tree, groups = small_tree()
    leaves, rows = small_leaves()
    spreads = LevelSpreads(spread=np.array([spread]), probability=np.ones(1))
    posteriors = level_posteriors(tree, leaves, rows, spreads, WHOLE)
    before = covariance(groups, np.array(spread))
    seen = before + np.diag(leaves.variance)

    # A parent's mean has the covariance with the leaves that a leaf's has, without its own part.
    parents = covariance(groups[:-1], np.array(spread[:-1]))
    for leaf in range(12):
        others = np.arange(12) != leaf
        weight = np.linalg.solve(seen[np.ix_(others, others)], parents[leaf, others])
        mean = 0.5 + weight @ (leaves.mean[others] - 0.5)
        assert posteriors.parents.mean[leaf] == pytest.approx(mean, abs=1e-12)
        left = parents[leaf, leaf] - weight @ parents[leaf, others]
        assert posteriors.parents.variance[leaf] == pytest.approx(left, abs=1e-12)

    after = before - before @ np.linalg.solve(seen, before)
    assert posteriors.center == pytest.approx(
        0.5 + WHOLE.variance[0] * np.linalg.solve(seen, leaves.mean - 0.5).sum(), abs=1e-12
    )

    for variance, group in zip(
        posteriors.group_variances, [np.zeros(12, np.int64), *groups[:-1]], strict=True
    ):
        share = np.equal.outer(np.arange(group.max() + 1), group) * rows
        share = share / share.sum(axis=1, keepdims=True)
        expected = np.einsum("gl,lm,gm->g", share, after, share)
        assert variance == pytest.approx(expected, abs=1e-12)


def test_sets_of_spreads_have_the_probabilities_of_dense_algebra() -> None:
    tree, groups = small_tree()
    leaves, _ = small_leaves()
    spreads = learn_level_spreads(tree, leaves, lower=0.0, upper=1.0)
    log_weight = []
    for spread in spreads.spread:
        seen = covariance(groups, spread) + np.diag(leaves.variance)
        away = leaves.mean - 0.5
        evidence = -0.5 * (np.linalg.slogdet(seen)[1] + away @ np.linalg.solve(seen, away))
        log_weight.append(evidence + LEAF_POWER * np.log(spread[-1]))

    # What is flat on higher levels: half at 0, the rest by the spread itself.
    assert len(spreads.probability) > 20
    total = 0.5 * np.geomspace(0.002, 0.5, 24).sum()
    higher = np.where(spreads.spread[:, :-1] > 0, 0.25 * spreads.spread[:, :-1] / total, 0.5)
    log_weight = np.array(log_weight) + np.log(higher).sum(axis=1)
    expected = np.exp(log_weight - log_weight.max())
    assert spreads.probability == pytest.approx(expected / expected.sum(), abs=1e-9)


@dataclass(frozen=True)
class World:
    truth: Floats
    releases: ReleaseColumns
    tree: GroupTree

    @property
    def own(self) -> OwnMeans:
        releases = self.releases
        return means_of_releases(releases, STDDEV**2 / releases.count + releases.noise_variance)

    def flat(self) -> FittedByCount:
        prior = PriorByCount(0.0, 1.0, trimmed=0.0)
        fitted = prior.fit_summary(prior.summarize(self.releases), STDDEV**2)
        assert isinstance(fitted, FittedByCount)
        return fitted

    def nested(self) -> FittedLevels:
        prior = PriorOfLevels(0.0, 1.0, self.tree)
        return prior.fit(self.releases, STDDEV**2, self.own.variance, without=self.flat())

    def error(self, answer: AgentEstimates) -> float:
        return float(np.square(answer.value - self.truth).mean())

    def coverage(self, answer: AgentEstimates) -> float:
        return float(((answer.lower <= self.truth) & (self.truth <= answer.upper)).mean())


def world(
    seed: int,
    states: int = 50,
    counties: int = 60,
    *,
    spread: tuple[float, float] = (0.1, 0.05),
    rows: int = 10,
    epsilon: float = 1.0,
) -> World:
    """Counties in states, each with a release of Laplace noise."""
    rng = np.random.default_rng(seed)
    n = states * counties
    state = np.repeat(np.arange(states), counties)
    truth = 0.5 + rng.normal(0, spread[0], states)[state] + rng.normal(0, spread[1], n)
    truth = np.clip(truth, 0, 1)
    scale = 1 / (epsilon * rows)
    mean = truth + rng.normal(0, STDDEV / np.sqrt(rows), n) + rng.laplace(0, scale, n)

    one = np.ones(n, np.int64)
    releases = ReleaseColumns(
        agent=np.arange(n),
        index=one,
        count=rows * one,
        total=one,
        mean=mean,
        noise_variance=np.full(n, 2 * scale**2),
        noise_terms=one,
    )

    return World(truth, releases, GroupTree.of(("state", "county"), [state, np.arange(n)]))


def test_leaves_are_better_where_levels_matter_and_covered() -> None:
    """50 x 60 groups of 10 rows, 12 seeds: .35 of the error of one prior for all.

    The coverage of a seed has a standard deviation of .02: 12 of them one of .006, five of which
    are allowed; by chance less than one in a million.
    """
    worlds = [world(seed) for seed in range(12)]
    nested = [each.nested().estimate(each.own) for each in worlds]
    flat = [each.flat().estimate(each.own) for each in worlds]
    errors = [
        sum(each.error(answer) for each, answer in zip(worlds, answers, strict=True))
        for answers in (flat, nested)
    ]
    assert errors[1] < 0.5 * errors[0]

    coverage = np.mean([e.coverage(a) for e, a in zip(worlds, nested, strict=True)])
    assert 0.93 < coverage < 0.985


@pytest.mark.parametrize(
    ("shape", "spread", "seeds"),
    [((50, 60), (0.0, 0.05), 6), ((300, 2), (0.0, 0.1), 6), ((5, 40), (0.0, 0.05), 10)],
)
def test_leaves_are_as_before_where_levels_do_not_matter(
    shape: tuple[int, int], spread: tuple[float, float], seeds: int
) -> None:
    flat = nested = 0.0
    for seed in range(seeds):
        each = world(seed, *shape, spread=spread, epsilon=3.0)
        flat += each.error(each.flat().estimate(each.own))
        nested += each.error(each.nested().estimate(each.own))

    assert nested < 1.02 * flat


def test_groups_of_a_level_are_covered() -> None:
    """The mean of the rows of 50 states in 12 seeds: 600 intervals, with a standard error of .009.

    Errors of the states of a seed are nearly independent. Four standard errors: by chance in one of
    10,000 choices of seeds.
    """
    hits = []
    for seed in range(12):
        each = world(seed)
        fitted = each.nested()
        value = each.tree.sums(1, fitted.estimate(each.own).value) / 60
        truth = each.tree.sums(1, each.truth) / 60
        half_width = 1.96 * np.sqrt(fitted.group_variances[1])
        hits.append(np.abs(value - truth) <= half_width)

    assert abs(np.mean(hits) - 0.95) < 0.036


def test_what_was_learned_is_described() -> None:
    fitted = world(1).nested()
    state, county = fitted.describe()["levels"]
    assert (state["name"], state["groups"], county["groups"]) == ("state", 50, 3000)
    assert state["probability"] > 0.999
    assert state["spread"] == pytest.approx(0.1, abs=0.03)
    assert state["explained"] + county["explained"] == pytest.approx(1)
    assert fitted.describe()["method"] == "learned_prior"
    assert fitted.share > 0.999


def test_the_order_of_leaves_does_not_matter() -> None:
    each = world(2, 20, 10)
    order = np.random.default_rng(0).permutation(200)
    shuffled = each.releases.take(order)
    shuffled = replace(shuffled, agent=np.arange(200))
    groups = [each.tree.ancestors(0)[order], np.arange(200)]
    other = World(each.truth[order], shuffled, GroupTree.of(each.tree.names, groups))
    answer, moved = (w.nested().estimate(w.own) for w in (each, other))
    for name in ("value", "lower", "upper"):
        assert getattr(moved, name) == pytest.approx(getattr(answer, name)[order], abs=1e-9)


def test_a_leaf_is_answered_alike_among_whatever_others() -> None:
    each = world(4, 20, 10)
    fitted = each.nested()
    every = fitted.estimate(each.own)
    some = np.array([3, 77, 150])
    own = means_of_releases(each.releases.take(some), each.own.variance[some])
    for name in ("value", "lower", "upper", "effective_class_size"):
        assert np.array_equal(getattr(fitted.estimate(own), name), getattr(every, name)[some])

    longer = replace(own, variance=2 * own.variance)
    two = estimate_with_two_variances(fitted, longer)
    assert np.array_equal(two.value, fitted.estimate(own).value)
    assert (two.upper > fitted.estimate(own).upper).all()


@pytest.mark.parametrize(("states", "counties"), [(1, 30), (30, 1), (1, 2), (2, 1)])
def test_a_level_without_a_spread_of_its_own_changes_next_to_nothing(
    states: int, counties: int
) -> None:
    each = world(5, states, counties, epsilon=3.0)
    fitted = each.nested()
    assert fitted.learned()["levels"][0]["probability"] == 0
    flat = each.flat().estimate(each.own)
    answer = fitted.estimate(each.own)
    assert answer.value == pytest.approx(flat.value, abs=0.05)
    assert np.isfinite([answer.lower, answer.upper]).all()
    assert all((variance > 0).all() for variance in fitted.group_variances)


@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e6])
def test_equal_releases_and_no_noise_or_all_noise_give_numbers(noise: float) -> None:
    each = world(6, 4, 5)
    n = len(each.truth)
    releases = replace(each.releases, mean=np.full(n, 0.25), noise_variance=np.full(n, noise))
    answer = World(each.truth, releases, each.tree).nested().estimate(each.own)
    assert np.isfinite([answer.value, answer.lower, answer.upper]).all()
    assert (answer.lower <= answer.value).all()


def test_five_levels_are_found_in_one_pass_each() -> None:
    """Two of five levels have a spread; the others have none, and are not made up."""
    rng = np.random.default_rng(8)
    groups = [np.arange(4 * 4**level).repeat(4 ** (4 - level)) for level in range(5)]
    truth = 0.5 + rng.normal(0, 0.1, 16)[groups[1]] + rng.normal(0, 0.03, 1024)
    tree = GroupTree.of(tuple("abcde"), groups)
    leaves = Message(truth + rng.normal(0, 0.02, 1024), np.full(1024, 0.0004))
    spreads = learn_level_spreads(tree, leaves, lower=0.0, upper=1.0)
    assert tree.sizes == (4, 16, 64, 256, 1024)
    assert spreads.differs[1] > 0.99
    assert (spreads.differs[[2, 3]] < 0.2).all()
    assert np.sqrt(spreads.variance[4]) == pytest.approx(0.03, rel=0.2)
