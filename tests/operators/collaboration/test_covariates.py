"""Public covariates: integer sums, evidence against a dense computation, offsets, mixture,
guards."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from meanstream.operators.collaboration.covariates import effect_models
from meanstream.operators.collaboration.covariates.covariate_design import (
    STEPS,
    Category,
    CovariateDesign,
    SampleCount,
    categories_of,
    number_of,
)
from meanstream.operators.collaboration.covariates.covariate_releases import CovariateReleases
from meanstream.operators.collaboration.covariates.covariate_sums import CovariateSums
from meanstream.operators.collaboration.covariates.learned_effects import (
    believed_count,
    learn_effects,
)
from meanstream.operators.collaboration.registry import answers_from_releases, make_collaboration
from meanstream.operators.records import Floats, Ints, OwnMeans, ReleaseColumns

N = 300


class Made:
    """Agents with two categories and a number; the first category and the number have effects."""

    def __init__(self, seed: int = 1, n: int = N, *, effect: float = 0.05) -> None:
        rng = np.random.default_rng(seed)
        given = [rng.integers(0, 7, n), rng.integers(0, 4, n)]
        columns = [(f"c{i}", [f"l{j}" for j in range(7)], codes) for i, codes in enumerate(given)]
        categories = categories_of(columns)
        number = rng.normal(size=n)
        number[:9] = np.nan
        one = number_of("x", number)
        self.design = CovariateDesign((*(category for category, _ in categories), one))
        self.codes = np.stack([*(codes for _, codes in categories), one.codes(number)], axis=1)
        self.count = np.exp(rng.uniform(np.log(5), np.log(2000), n)).astype(np.int64)
        self.believed = np.minimum(self.count, believed_count(self.count))
        self.noise = (4 / self.count) ** 2
        # In the middle of its class, and on the grid: what the sums round is round already.
        exact = 0.04 / self.count + self.noise
        self.variance = 2.0 ** ((np.floor(4 * np.log2(exact)) + 0.5) / 4)
        means = rng.normal(0, effect, 7)[given[0]] + 0.6 * effect * np.nan_to_num(number)
        self.truth = np.clip(0.5 + means + rng.normal(0, 0.02, n), 0, 1)
        self.mean = (
            np.rint((self.truth + rng.normal(size=n) * np.sqrt(self.variance)) * 2**20) / 2**20
        )
        self.own = self.truth + rng.normal(size=n) * np.sqrt(0.04 / self.count)

    def learned(self) -> Any:
        return learn_effects(
            self.design,
            self.codes,
            count=self.count,
            mean=self.mean,
            variance=self.variance,
            lower=0.0,
            upper=1.0,
        )

    def releases(self) -> ReleaseColumns:
        one = np.ones(len(self.count), np.int64)
        return ReleaseColumns(
            agent=np.arange(len(one)), index=one, count=self.count, total=one, mean=self.mean,
            noise_variance=self.noise, covariates=self.codes,
        )  # fmt: skip

    def means(self) -> OwnMeans:
        return OwnMeans(
            agent=np.arange(len(self.count)), count=self.count, mean=self.own, variance=0.04 / self.count,
            covariates=self.codes,
        )  # fmt: skip


def dense(made: Made) -> tuple[Floats, Floats, list[float]]:
    """Give offsets, their variances, and the probability of each attribute, by a regression of the
    agents."""
    attributes = [*made.design.attributes, SampleCount()]
    parts = []
    for attribute, code in zip(
        attributes, [*made.codes.T, SampleCount.codes(made.believed)], strict=True
    ):
        if isinstance(attribute, Category):
            parts.append(np.eye(attribute.size)[code])
            continue
        known = code != STEPS
        x = np.where(known, code - attribute.center_of(code), 0.0) / code[known].std()
        parts.append(np.stack([x, ~known], axis=1)[:, : attribute.n_columns])
    owner = np.repeat(np.arange(len(parts)), [p.shape[1] for p in parts])
    x, y, log_weight, found = np.concatenate(parts, axis=1), made.mean - 0.5, [], []
    for groups, prior in effect_models._prior(len(attributes)).items():
        some = np.isin(owner, groups)
        own = np.column_stack([np.ones(len(y)), x[:, some]])
        effects = effect_models.EFFECTS if groups else effect_models.EFFECTS[:1]
        for effect in effects:
            for spread in effect_models.SPREADS:
                weight, ridge = (
                    1 / (made.variance + spread),
                    np.append(0, np.full(some.sum(), 1 / effect)),
                )
                system, right = (own.T * weight) @ own + np.diag(ridge), own.T @ (weight * y)
                solved = np.linalg.solve(system, right)
                evidence = 0.5 * (np.log(weight).sum() - y @ (weight * y) + right @ solved)
                evidence += 0.5 * (np.log(ridge[1:]).sum() - np.linalg.slogdet(system)[1])
                log_weight.append(evidence + np.log(prior / len(effects)))
                found.append((groups, spread, some, solved[1:], np.linalg.inv(system)[1:, 1:]))
    share = np.exp(np.array(log_weight) - max(log_weight))
    share /= share.sum()
    mean, covariance = np.zeros(len(owner)), np.zeros((len(owner), len(owner)))
    for p, (_, _, some, solved, _) in zip(share, found, strict=True):
        mean[some] += p * solved
    for p, (_, _, some, solved, inverse) in zip(share, found, strict=True):
        full = np.zeros(len(owner))
        full[some] = solved
        covariance += p * np.outer(full - mean, full - mean)
        covariance[np.ix_(some, some)] += p * inverse
    weight = 1 / (made.variance + sum(p * m[1] for p, m in zip(share, found, strict=True)))
    away = x - weight @ x / weight.sum()
    probability = [
        float(sum(p for p, m in zip(share, found, strict=True) if g in m[0]))
        for g in range(len(parts))
    ]
    return away @ mean, np.einsum("nc,cd,nd->n", away, covariance, away), probability


def test_the_evidence_is_that_of_a_dense_regression() -> None:
    made = Made()
    learned, (offset, doubt, probability) = made.learned(), dense(made)
    assert [one["probability"] for one in learned.described] == pytest.approx(probability, abs=1e-9)
    assert learned.doubts(made.codes, made.count) == pytest.approx(
        doubt, rel=5e-3
    )  # less what models without weight add
    assert learned.offsets(made.codes, made.count) == pytest.approx(
        offset, abs=1e-4 * np.ptp(offset)
    )
    assert np.ptp(offset) > 0.1


def test_sums_are_the_same_to_the_last_bit_in_any_order() -> None:
    made = Made()
    order = np.random.default_rng(1).permutation(N)
    parts, attributes = (
        [*made.codes.T, SampleCount.codes(made.believed)],
        [*made.design.attributes, SampleCount()],
    )
    one = CovariateSums.of(attributes, parts, made.mean, made.variance)
    other = CovariateSums.of(
        attributes, [part[order] for part in parts], made.mean[order], made.variance[order]
    )
    for field in fields(CovariateSums):
        a, b = getattr(one, field.name), getattr(other, field.name)
        pairs = (
            zip(a, b, strict=True)
            if isinstance(a, list)
            else [(a[k], b[k]) for k in a]
            if isinstance(a, dict)
            else [(a, b)]
        )
        assert all(np.array_equal(x, y) for x, y in pairs), field.name


def test_a_number_that_goes_with_a_category_counts_once() -> None:
    """A town has one distance from the sea, nearly: effects of towns leave out what the distance
    explains."""
    rng = np.random.default_rng(4)
    town = rng.integers(0, 40, 2000)
    away = rng.uniform(0, 1, 40)[town] + rng.normal(0, 0.004, 2000)
    truth = 0.1 + 0.8 * away + rng.normal(0, 0.002, 2000)
    (category, codes), number = (
        categories_of([("town", [str(i) for i in range(40)], town)])[0],
        number_of("away", away),
    )
    learned = learn_effects(
        CovariateDesign((category, number)), np.stack([codes, number.codes(away)], axis=1),
        count=np.full(2000, 100), mean=truth + rng.normal(0, 0.02, 2000),
        variance=np.full(2000, 4e-4), lower=0.0, upper=1.0,
    )  # fmt: skip
    offset = learned.offsets(np.stack([codes, number.codes(away)], axis=1), np.full(2000, 100))
    left = truth - offset
    assert np.std(left) < 0.006


def test_an_offset_that_is_hardly_known_does_not_replace_an_own_mean() -> None:
    """Three releases of each town say less of it than an agent's own samples do, though agents of a
    town are alike."""
    rng = np.random.default_rng(8)
    town = np.repeat(np.arange(100), 3)
    (category, codes) = categories_of([("town", [str(i) for i in range(100)], town)])[0]
    truth, one = rng.normal(0.5, 0.1, 100)[town], np.ones(300, np.int64)
    releases = ReleaseColumns(
        agent=np.arange(300), index=one, count=100 * one, total=one, mean=truth + rng.normal(0, 0.05, 300),
        noise_variance=np.full(300, 24e-4), covariates=codes[:, None],
    )  # fmt: skip
    way = make_collaboration(
        "learned_prior", lower=0.0, upper=1.0, covariates=CovariateDesign((category,))
    )
    fitted = way.fit_summary(way.summarize(releases), 0.01)
    own = OwnMeans(
        agent=np.arange(300), count=100 * one, mean=truth + rng.normal(0, 0.01, 300), variance=np.full(300, 1e-4),
        covariates=codes[:, None],
    )  # fmt: skip
    answer = fitted.estimate(own)
    assert float(((answer.value - truth) ** 2).sum()) < 1.02 * float(
        ((own.mean - truth) ** 2).sum()
    )
    assert np.mean((answer.lower <= truth) & (truth <= answer.upper)) > 0.92


def test_samples_that_vary_much_do_not_make_an_agent_a_stranger_to_its_attributes() -> None:
    """Six strays in two thousand make the others a class, but of which class an agent is its
    attribute says."""
    rng, one, n = np.random.default_rng(3), np.ones(2000, np.int64), 2000
    region = np.arange(n) % 2
    ((category, codes),) = categories_of([("region", ["north", "south"], region)])
    truth = np.where(np.arange(n) < 6, 0.95, np.array([0.3, 0.6])[region])
    releases = ReleaseColumns(
        agent=np.arange(n), index=one, count=100 * one, total=one, mean=truth + rng.normal(0, 0.03, n),
        noise_variance=np.full(n, 8e-4), covariates=codes[:, None],
    )  # fmt: skip
    design = CovariateDesign((category,))
    way = make_collaboration(
        "learned_prior", lower=0.0, upper=1.0, covariates=design, strangers=False
    )
    own = OwnMeans(
        agent=np.arange(2), count=np.full(2, 100), mean=np.array([0.38, 0.52]), variance=np.full(2, 25e-4),
        covariates=codes[:2, None],
    )  # fmt: skip
    assert way.fit_summary(way.summarize(releases), 0.01).estimate(own).value == pytest.approx(
        [0.3, 0.6], abs=0.02
    )


def test_releases_give_the_same_population_however_they_were_split() -> None:
    made = Made()
    way = make_collaboration("pooled_prior", lower=0.0, upper=1.0, covariates=made.design)
    whole = way.summarize(made.releases())
    parts = way.summarize(made.releases().take(np.arange(200, N)))
    parts.merge(way.summarize(made.releases().take(np.arange(200))))
    parts.merge(way.summarize(made.releases().take(np.arange(50))))
    parts.subtract(way.summarize(made.releases().take(np.arange(50))))
    again = CovariateReleases.restore(parts.snapshot())
    answers = [way.fit_summary(one, 0.04).estimate(made.means()) for one in (whole, parts, again)]
    for other in answers[1:]:
        assert np.array_equal(answers[0].value, other.value)
        assert np.array_equal(answers[0].upper, other.upper)
    with pytest.raises(ValueError, match="releases must have been added"):
        parts.subtract(way.summarize(replace(made.releases(), mean=made.mean + 1)))


def test_effects_halve_the_error_and_are_described() -> None:
    # The ratio of both errors is .45 with a standard deviation of .05 over seeds: a false alarm in
    # 1e6 runs.
    ratios, covered = [], []
    for seed in range(2):
        made = Made(seed, 200)
        plain = make_collaboration("learned_prior", lower=0.0, upper=1.0)
        way = make_collaboration("learned_prior", lower=0.0, upper=1.0, covariates=made.design)
        errors = []
        for one in (plain, way):
            fitted = one.fit_summary(one.summarize(made.releases()), 0.04)
            answer = fitted.estimate(made.means())
            errors.append(float(((answer.value - made.truth) ** 2).sum()))
        ratios.append(errors[1] / errors[0])
        covered.append(float(((answer.lower <= made.truth) & (made.truth <= answer.upper)).mean()))
        assert answer.moved is not None
        assert np.abs(answer.moved).max() > 0.01
        learned = fitted.describe()["covariates"]
        assert learned["explained"] > 0.6
        assert [one["probability"] > 0.9 for one in learned["attributes"]][0::2] == [True, True]
    assert np.mean(ratios) < 0.7
    assert np.mean(covered) > 0.93


def test_answers_do_not_depend_on_who_else_is_answered() -> None:
    made = Made()
    way = make_collaboration("learned_prior", lower=0.0, upper=1.0, covariates=made.design)
    fitted = way.fit_summary(way.summarize(made.releases()), 0.04)
    whole, own = fitted.estimate(made.means()), made.means()
    for row in (0, 17):
        alone = fitted.estimate(
            OwnMeans(
                **{
                    n: getattr(own, n)[row : row + 1]
                    for n in ("agent", "count", "mean", "variance", "covariates")
                }
            )
        )
        assert (alone.value[0], alone.lower[0], alone.upper[0]) == (
            whole.value[row],
            whole.lower[row],
            whole.upper[row],
        )


def codes_of(n: int, kind: str, rng: np.random.Generator) -> tuple[CovariateDesign, Any]:
    """Make an attribute that breaks what is careless."""
    if kind in ("1,000 levels", "two of 1,000 levels"):
        given = [
            (f"c{i}", [f"l{j:04}" for j in range(1000)], rng.integers(0, 1000, n))
            for i in range(1 + ("two" in kind))
        ]
    elif kind == "one level":
        given = [("c", ["a"], np.zeros(n, np.int64))]
    elif kind == "all missing":
        given = [("c", [], np.full(n, -1))]
    elif kind == "collinear":
        level = rng.integers(0, 5, n)
        given = [(name, list("abcde"), level) for name in ("c", "d", "e")]
    else:
        given = [("c", ["x" * 2**20, "y" * 2**20], rng.integers(0, 2, n))]
    found = categories_of(given)
    numbers = {
        "constant": np.full(n, 7.0),
        "huge": np.where(rng.random(n) < 0.01, 1e300, rng.normal(size=n)),
        "none": np.full(n, np.nan),
        "spread": rng.choice([-1.7e308, 1.7e308], n),
        "infinite": np.full(n, np.inf),
    }
    made = [(number_of(name, values), values) for name, values in numbers.items()]
    design = CovariateDesign((*(one for one, _ in found), *(one for one, _ in made)))
    return design, np.stack([*(c for _, c in found), *(one.codes(v) for one, v in made)], axis=1)


@pytest.mark.parametrize(
    "kind",
    [
        "1,000 levels",
        pytest.param("two of 1,000 levels", marks=pytest.mark.full),
        "one level",
        "all missing",
        "collinear",
        "names of 1 MiB",
    ],
)
def test_hostile_attributes_do_no_harm(kind: str) -> None:
    made, rng = Made(3, 1200 if "levels" in kind else N), np.random.default_rng(5)
    design, codes = codes_of(len(made.count), kind, rng)
    way = make_collaboration("pooled_prior", lower=0.0, upper=1.0, covariates=design)
    began = time.process_time()
    fitted = way.fit_summary(way.summarize(replace(made.releases(), covariates=codes)), 0.04)
    assert time.process_time() - began < 20
    answer = fitted.estimate(replace(made.means(), covariates=codes))
    plain = make_collaboration("pooled_prior", lower=0.0, upper=1.0)
    without = plain.fit_summary(plain.summarize(made.releases()), 0.04).estimate(made.means())
    alone = float(((made.own - made.truth) ** 2).sum())
    more = float(
        ((answer.value - made.truth) ** 2).sum() - ((without.value - made.truth) ** 2).sum()
    )
    assert more < 0.05 * alone
    assert np.isfinite([answer.value, answer.lower, answer.upper]).all()
    assert len(str(fitted.describe()["covariates"])) < 20_000


def test_rare_levels_are_joined_and_many_are_cut() -> None:
    rng = np.random.default_rng(0)
    levels = [f"l{i}" for i in range(3000)]
    many = np.repeat(np.arange(3000), np.where(np.arange(3000) < 1200, 4, 2))
    (large, codes), (small, _), (third, _) = categories_of(
        [("a", levels, many), ("b", levels[:400], rng.integers(0, 400, len(many))),
         ("c", levels[:10], rng.integers(0, 10, len(many)))]
    )  # fmt: skip
    assert (len(large.levels), len(third.levels)) == (1000, 10)
    assert len(small.levels) <= 118
    assert (np.bincount(codes)[:1000] == 4).all()
    assert codes.max() == large.other


@pytest.mark.parametrize(
    "values", [[0.0] * 95 + [1.0] * 5, [1.0, 2.0, 3.0], [-1e300, 0.0, 1e300], []]
)
def test_numbers_are_scaled_by_what_most_have(values: list[float]) -> None:
    one = number_of("x", np.array(values, np.float64))
    assert np.isfinite([one.center, one.scale]).all()
    assert one.scale > 0
    codes = one.codes(np.array([*values, np.nan]))
    assert codes[-1] == one.missing
    assert ((codes >= 0) & (codes <= STEPS)).all()


def test_covariates_of_unseen_levels_are_doubted() -> None:
    made = Made()
    design = CovariateDesign(
        (Category(name="c", levels=tuple("abcdefgh")), *made.design.attributes[1:])
    )
    learned = learn_effects(
        design,
        made.codes,
        count=made.count,
        mean=made.mean,
        variance=made.variance,
        lower=0.0,
        upper=1.0,
    )
    unseen = made.codes.copy()
    unseen[:, 0] = 7
    assert np.median(learned.doubts(unseen, made.count)) > 5 * np.median(
        learned.doubts(made.codes, made.count)
    )


def test_useless_attributes_are_not_believed() -> None:
    explained = []
    for seed in range(9):
        made = Made(seed, effect=0.0)
        explained.append(made.learned().explained)
    assert np.median(explained) < 0.3


def test_releases_alone_are_answered_with_covariates() -> None:
    made = Made()
    way = make_collaboration("pooled_prior", lower=0.0, upper=1.0, covariates=made.design)
    fitted = way.fit_summary(way.summarize(made.releases()), 0.04)
    answer = answers_from_releases(fitted, made.releases(), made.variance)
    error = float(((np.clip(answer.value, 0, 1) - made.truth) ** 2).mean())
    assert error < 0.5 * float(np.var(made.truth))


def test_codes_must_be_of_the_agents() -> None:
    made = Made()
    way = make_collaboration("learned_prior", lower=0.0, upper=1.0, covariates=made.design)
    with pytest.raises(ValueError, match="covariates must have shape"):
        way.fit_summary(way.summarize(replace(made.releases(), covariates=made.codes[:, :1])), 0.04)
    with pytest.raises(ValueError, match="covariates must go with the collaboration"):
        make_collaboration("none", lower=0.0, upper=1.0, covariates=made.design)


def test_strangers_do_not_move_the_effects() -> None:
    made = Made(effect=0.0)
    honest = made.learned().offsets(made.codes, made.count)
    count: Ints = made.count.copy()
    made.variance[:3], count[:3], made.mean[:3] = 1e-12, 10**7, 1.0
    way = make_collaboration("pooled_prior", lower=0.0, upper=1.0, covariates=made.design)
    lying = replace(
        made.releases(), noise_variance=np.where(np.arange(N) < 3, 1e-12, made.noise), count=count
    )
    offset = way.fit_summary(way.summarize(lying), 0.04).effects.offsets(made.codes, made.count)
    assert np.abs(offset - honest).mean() < 0.02
