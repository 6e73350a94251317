"""Consensus on a graph of partners: each agent hears a few others, and their class all the same.

Everyone publishes one noisy stream. Partners whose releases pass the test of equal means mix what
they have, again and again, so that an agent's answer rests on its whole class and not on the few of
it that it hears. All of it reads releases only: it spends nothing.

| letter | meaning |
|---|---|
| `T`, `V` | released means and their variances |
| `W` | mixing matrix on accepted edges; its rows add up to 1 |
| `y` | what is left after eight steps of mixing, without one's own release |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtri

from meanstream.lab.papers.colme.same_mean_tests import ClassSums, interval_of_members
from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.collaboration.covariates.covariate_releases import CovariateReleases
from meanstream.operators.collaboration.variance.pooled_variance import pooled_variance
from meanstream.operators.collaboration.variance.variance_posterior import (
    VariancePosterior,
    variance_posterior_typical,
)
from meanstream.operators.records import (
    AgentEstimates,
    Floats,
    Ints,
    OwnMeans,
    ReleaseColumns,
    Words,
)
from meanstream.operators.validation import require, require_between

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FITS = 3.3
"""Standard errors by which an own mean may differ from what its class says: with 2.7, those of the
test, one agent in 150 would leave its class by chance, and these make up most of the error."""
STEPS = 8
"""Mixing steps between two releases."""
HOPS = 3
"""Edges that a release is handed on over by message passing."""
EXACT = 1_000
"""Agents for whom the weights after all steps are computed; among more they are estimated."""
PROBES = 256
_TOGETHER = 32
"""Probes of the weights, and how many are mixed at once."""
_LEAST_REST = 1e-6


class PartnerEdges(NamedTuple):
    """Public: pairs of places, each pair once."""

    one: Ints
    other: Ints


def partner_edges(agent: Ints, partners: int) -> PartnerEdges:
    """Give who hears whom: each agent and some with lower numbers, by a public hash of the numbers.

    An edge does not depend on how many agents there are, so that it stays when others come.

    Parameters
    ----------
    agent : int array, shape (n,)
        Different numbers, ascending. Edges to others do not count.
    partners : int
        Agents with lower numbers that each picks.

    Examples
    --------
    >>> edges = partner_edges(np.arange(300), 10)
    >>> degree = np.bincount(np.concatenate(edges), minlength=300)
    >>> int(degree.min()), round(float(degree.mean()))
    (9, 18)
    """
    # Agent 0 has nobody before it to pick.
    later = agent[agent > 0].astype(np.uint64)
    pick = np.arange(partners, dtype=np.uint64)
    drawn = _scrambled(later[:, np.newaxis] << np.uint64(16) | pick) % later[:, np.newaxis]
    one = np.repeat(later, partners).astype(np.int64)
    pairs = np.unique(np.stack([one, drawn.ravel().astype(np.int64)]), axis=1)

    places = np.searchsorted(agent, pairs)
    there = (agent[np.minimum(places, len(agent) - 1)] == pairs).all(axis=0)
    return PartnerEdges(*places[:, there])


@dataclass(frozen=True, slots=True)
class Consensus:
    """Average oneself with a class that partners of partners reach.

    Released: nothing new; `fit` reads public releases. An answer mixes in the agent's own raw mean
    and goes to that agent only.

    Parameters
    ----------
    significance : float
        Two partners with t samples or more mix if their releases pass the test of equal means at
        `significance / ln(t + 1)`.
    partners : int
        Agents that each picks; it hears twice as many on average, as others pick it.

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing. Who hears whom follows from
    public numbers.

    With degrees d on accepted edges `W_ab = 1 / (max(d_a, d_b) + 1)`, and `W_aa` is the rest. After
    eight steps agent a has `sum_b (W^8)_ab T_b`; what its own release adds is taken out, since its
    raw mean says that better. Value and interval weigh both by their inverse variances. The
    interval adds what accepted partners differ by, as that of the tests does (`class_interval`).

    Each message is one number, to twenty partners. Until the tests tell classes apart, and where
    agents do not fall into classes, it errs more than learning alone; `learned_prior` does not.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat([0.2, 0.8], 50)
    >>> one, agent = np.ones(100, dtype=np.int64), np.arange(100)
    >>> releases = ReleaseColumns(agent=agent, index=one, count=100 * one, total=one,
    ...                           mean=truth + rng.normal(0, 0.07, 100),
    ...                           noise_variance=np.full(100, 0.0024))
    >>> own = OwnMeans(agent=agent, count=100 * one, mean=truth + rng.normal(0, 0.05, 100),
    ...                variance=np.full(100, 0.0025))
    >>> answer = Consensus().fit(releases, np.full(100, 0.0049)).estimate(own)
    >>> round(float(np.mean((answer.value - truth) ** 2) / np.mean((own.mean - truth) ** 2)), 2)
    0.03

    References
    ----------
    Yakimenka et al., arXiv 2511.04702, for consensus after the tests of their first paper. Xiao,
    Boyd (2004), "Fast linear iterations for distributed averaging", for the weights.
    """

    significance: float = 0.05
    partners: int = 10
    name: ClassVar[str] = "consensus"

    def __post_init__(self) -> None:
        require_between(0, 1, significance=self.significance)
        require(1 <= self.partners < 1 << 16, "partners", "lie in 1..65535", self.partners)

    def fit(self, releases: ReleaseColumns, variance: Floats) -> FittedConsensus:
        """Mix the newest release of every agent on the graph.

        Parameters
        ----------
        releases : ReleaseColumns
            At most one release per agent. Those of unknown (infinite) variance are left out.
        variance : float array, shape (len(releases),)
            Total variance of each released mean.
        """
        require(
            len(variance) == len(releases),
            "variance",
            f"have {len(releases)} entries",
            len(variance),
        )
        usable = np.flatnonzero(np.isfinite(releases.mean) & np.isfinite(variance) & (variance > 0))
        order = usable[np.argsort(releases.agent[usable], kind="stable")]
        agent = releases.agent[order]
        mean = releases.mean[order]
        total = variance[order]

        # Centered values lose no digits to a large common offset.
        center = float(np.average(mean, weights=1 / total)) if len(mean) else 0.0
        mean = mean - center
        edges = self._accepted(
            partner_edges(agent, self.partners), mean, total, releases.count[order]
        )
        others = self._mixed(edges, mean, total, releases.noise_variance[order])

        return FittedConsensus(
            significance=self.significance,
            center=center,
            agent=agent,
            others=others,
            sums=_sums_over_partners(edges, mean, total),
        )

    def _mixed(self, edges: PartnerEdges, mean: Floats, variance: Floats, noise: Floats) -> Floats:
        """Return what each agent hears, as `FittedConsensus.others` has it."""
        return _mixed(edges, mean, variance, noise)

    def summarize(self, releases: ReleaseColumns) -> CovariateReleases:
        """Take the newest releases of some agents."""
        return CovariateReleases.of(releases)

    def fit_summary(
        self, summary: CovariateReleases, sample_variance: VariancePosterior | float
    ) -> FittedConsensus:
        """Fit to all agents' releases, given the variance of one sample."""
        # In one order, whoever's releases were added first.
        releases = summary.columns().take(np.argsort(summary.agent, kind="stable"))
        return self.fit(
            releases, pooled_variance(releases, variance_posterior_typical(sample_variance))
        )

    def _accepted(
        self, edges: PartnerEdges, mean: Floats, variance: Floats, count: Ints
    ) -> PartnerEdges:
        """Keep the edges whose ends pass the test of equal means."""
        samples = np.minimum(count[edges.one], count[edges.other])
        quantile = _quantile(self.significance, samples)
        apart = np.abs(mean[edges.one] - mean[edges.other])
        passed = apart < quantile * np.sqrt(variance[edges.one] + variance[edges.other])
        return PartnerEdges(edges.one[passed], edges.other[passed])


@dataclass(frozen=True, slots=True)
class MessagePassing(Consensus):
    """Average oneself with the releases that partners hand on, up to three edges away.

    Released: nothing new, as with `Consensus`. A message holds the releases of all whom its sender
    has heard of: many numbers, where consensus needs one.

    References
    ----------
    Galante, Neglia, Leonardi, "Scalable decentralized algorithms for online personalized mean
    estimation", arXiv 2402.12812: B-ColME.
    """

    name: ClassVar[str] = "message_passing"

    def _mixed(self, edges: PartnerEdges, mean: Floats, variance: Floats, noise: Floats) -> Floats:
        n = len(mean)

        # Who is within reach of whom, each of itself too.
        links: Any = _mixing_matrix(edges, n).astype(np.bool_)
        reached = links
        for _ in range(HOPS - 1):
            reached = reached @ links

        # By inverse variances, without one's own release.
        weights = reached.toarray() / variance
        np.fill_diagonal(weights, 0.0)
        precision = weights.sum(axis=1)
        heard = precision > 0
        weights /= np.where(heard, precision, 1.0)[:, np.newaxis]
        number = (weights**2).sum(axis=1)

        return np.stack([
            weights @ mean,
            np.where(heard, 1.0 / np.where(heard, precision, 1.0), np.inf),
            weights**2 @ noise,
            np.where(heard, 1.0 / np.where(heard, number, 1.0), 0.0),
        ])  # fmt: skip


class _Heard(NamedTuple):
    """Private: what each agent hears of its class, which its own mean decides; one entry each.

    Mean, inverse variance, the part of the variance that is privacy noise, how many releases it is
    worth, and `FittedConsensus.sums`. Zeros, and the own mean, where it hears nothing.
    """

    mean: Floats
    weight: Floats
    noise: Floats
    worth: Floats
    sums: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedConsensus:
    """Public: what each agent's class says without it, by the agent's number.

    Attributes
    ----------
    agent : int array, shape (n,)
    others : float array, shape (4, n)
        Mean of the others less the center, its variance (infinite without others), the part of it
        that is privacy noise, and how many releases it is worth.
    sums : float array, shape (5, n)
        Over accepted partners: 1/V, T/V, 1, 1/V^2 and T^2/V.
    """

    significance: float
    center: float
    agent: Ints
    others: Floats
    sums: Floats

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each agent's mean over its class, for that agent only."""
        mean = own.mean - self.center
        heard = self._heard(own, mean)
        own_precision = 1 / np.maximum(own.variance, 1e-300)
        total = own_precision + heard.weight
        alone = total <= 0

        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.where(
                alone, mean, (own_precision * mean + heard.weight * heard.mean) / total
            )
            share = np.where(alone, 0.0, heard.weight / total)
            gain = np.where(np.isfinite(own.variance), own.variance * total, 1.0)
            lower, upper = interval_of_members(
                value,
                mean,
                own.variance,
                weight=heard.weight,
                differ=share**2 * self._differ(own, mean, heard),
                level=level,
            )

        return AgentEstimates(
            value=value + self.center,
            lower=lower + self.center,
            upper=upper + self.center,
            level=level,
            effective_class_size=gain,
            class_size=1.0 + heard.worth,
            component=np.full(len(own), -1, dtype=np.int64),
            membership=np.ones(len(own)),
            noise_half_width=half_width_alone(share**2 * heard.noise, level),
        )

    def _heard(self, own: OwnMeans, mean: Floats) -> _Heard:
        """Give what each agent's class says; nothing to those whose own mean it does not fit."""
        others, variance, noise, worth, *sums = self._rows(own)

        # A class that does not fit: releases were too noisy to show it.
        fits = np.abs(mean - others) < FITS * np.sqrt(own.variance + variance)
        heard = np.isfinite(variance) & fits

        return _Heard(
            mean=np.where(heard, others, mean),
            weight=np.where(heard, 1 / variance, 0.0),
            noise=np.where(heard, noise, 0.0),
            worth=np.where(heard, worth, 0.0),
            sums=np.where(heard, sums, 0.0),
        )

    def _differ(self, own: OwnMeans, mean: Floats, heard: _Heard) -> Floats:
        """Bound the variance of what accepted partners differ by."""
        precision, moment, number, squares, spread = heard.sums
        about_own = np.maximum(spread - 2 * mean * moment + mean**2 * precision, 0.0)
        partners = ClassSums(precision, moment, number, squares, about_own)
        own_precision = 1 / np.maximum(own.variance, 1e-300)
        return partners.between(mean, own_precision, _quantile(self.significance, own.count))

    def describe(self) -> dict[str, Any]:
        """Public: how many releases were mixed; consensus fits no population model."""
        return {
            "method": Consensus.name,
            "n_agents": len(self.agent),
            "n_components": 0,
            "components": [],
            "significance": self.significance,
        }

    def _rows(self, own: OwnMeans) -> Floats:
        """Give `others` and `sums` of some agents; who has not released hears no one."""
        rows = np.zeros((9, len(own)))
        rows[1] = np.inf
        if len(self.agent):
            place = np.minimum(np.searchsorted(self.agent, own.agent), len(self.agent) - 1)
            there = self.agent[place] == own.agent
            rows[:4, there] = self.others[:, place[there]]
            rows[4:, there] = self.sums[:, place[there]]

        return rows


def _quantile(significance: float, samples: Ints) -> Floats:
    """Differences of so many standard errors pass the test."""
    return np.asarray(-ndtri(0.5 * significance / np.log(samples + 1.0)))


def _mixed(edges: PartnerEdges, mean: Floats, variance: Floats, noise: Floats) -> Floats:
    """Mix releases on accepted edges, and take each agent's own out again."""
    n = len(mean)
    if not n:
        return np.zeros((4, 0))

    mixing = _mixing_matrix(edges, n)
    mixed = _steps(mixing, mean[:, np.newaxis])[:, 0]
    own, squares = _weights_of_releases(mixing, np.stack([variance, noise, np.ones(n)]))

    # Who hears no one keeps all of its weight.
    rest = np.maximum(1.0 - own, 0.0)
    heard = (np.bincount(np.concatenate(edges), minlength=n) > 0) & (rest > _LEAST_REST)
    of_rest = np.where(heard, rest, 1.0)

    squares -= own**2 * np.stack([variance, noise, np.ones(n)])
    of_others, of_noise, concentration = np.maximum(squares, 0.0) / of_rest**2
    least = float(np.min(variance)) / n

    return np.stack(
        [
            np.where(heard, (mixed - own * mean) / of_rest, 0.0),
            np.where(heard, np.maximum(of_others, least), np.inf),
            np.where(heard, of_noise, 0.0),
            np.where(heard, 1.0 / np.maximum(concentration, 1.0 / n), 0.0),
        ]
    )


def consensus_worth(label: Ints, partners: int = 10) -> Floats:
    """Count how many equal releases each agent's class is worth to it, if classes are known.

    Parameters
    ----------
    label : int array, shape (n,)
        Class of each agent.
    partners : int
        Agents with lower numbers that each picks.

    Examples
    --------
    >>> worth = consensus_worth(np.arange(300) % 3)
    >>> round(float(np.mean(worth))), round(float(worth.max()))
    (70, 96)
    """
    n = len(label)
    edges = partner_edges(np.arange(n), partners)

    same = label[edges.one] == label[edges.other]
    of_class = PartnerEdges(edges.one[same], edges.other[same])
    _, variance, _, _ = _mixed(of_class, np.zeros(n), np.ones(n), np.zeros(n))

    return np.asarray(1 / variance)


def hashed_classes(agents: int, classes: int, placement: int) -> Ints:
    """Place agents in equally likely classes, by a public hash that no edge depends on."""
    agent = np.arange(agents, dtype=np.uint64)
    word = agent << np.uint64(16) | np.uint64(1 << 15 | placement)
    return np.asarray(_scrambled(word) % np.uint64(classes), np.int64)


def _mixing_matrix(edges: PartnerEdges, n: int) -> csr_array:
    """Metropolis weights: a row and a column add up to 1."""
    from scipy.sparse import coo_array

    degree = np.bincount(np.concatenate(edges), minlength=n)
    weight = 1.0 / (np.maximum(degree[edges.one], degree[edges.other]) + 1.0)
    left = np.bincount(np.concatenate(edges), np.tile(weight, 2), minlength=n)
    here = np.arange(n)

    return coo_array(
        (
            np.concatenate([weight, weight, 1.0 - left]),
            (
                np.concatenate([edges.one, edges.other, here]),
                np.concatenate([edges.other, edges.one, here]),
            ),
        ),
        shape=(n, n),
    ).tocsr()


def _steps(mixing: csr_array, columns: Floats) -> Floats:
    for _ in range(STEPS):
        columns = mixing @ columns
    return columns


def _weights_of_releases(mixing: csr_array, variances: Floats) -> tuple[Floats, Floats]:
    """Each agent's own weight after all steps, and `sum_b (W^8)_ab^2 v_b` for several v.

    Among many agents both are estimated from random signs: `z (W z)` has the mean of the diagonal,
    and the square of `W (z sqrt(v))` that of the sum. The signs are a public hash of places, hence
    the same at each refresh.
    """
    n = mixing.shape[0]
    if n <= EXACT:
        weights = _steps(mixing, np.eye(n))
        return np.diagonal(weights).copy(), variances @ (weights**2).T

    own = np.zeros(n)
    squares = np.zeros((len(variances), n))
    place = np.arange(n, dtype=np.uint64)[:, np.newaxis]
    for first in range(0, PROBES, _TOGETHER):
        probe = np.arange(first, first + _TOGETHER, dtype=np.uint64)
        bit = _scrambled(place << np.uint64(16) | probe) & np.uint64(1)
        sign = 1.0 - 2.0 * bit.astype(np.float64)
        own += (sign * _steps(mixing, sign)).sum(axis=1)

        for kind, variance in enumerate(variances):
            mixed = _steps(mixing, sign * np.sqrt(variance)[:, np.newaxis])
            squares[kind] += np.square(mixed).sum(axis=1)

    return np.clip(own / PROBES, 0.0, 1.0), squares / PROBES


def _sums_over_partners(edges: PartnerEdges, mean: Floats, variance: Floats) -> Floats:
    """Sums over accepted partners as `FittedConsensus` has them, shape (5, n)."""
    ends = np.concatenate(edges)
    others = np.concatenate([edges.other, edges.one])
    precision = 1 / variance[others]
    of_each = (
        precision,
        precision * mean[others],
        np.ones(len(others)),
        precision**2,
        precision * mean[others] ** 2,
    )
    return np.stack([np.bincount(ends, column, minlength=len(mean)) for column in of_each])


def _scrambled(word: Words) -> Words:
    """Finalizer of SplitMix64: every bit of the input changes about half of the output's."""
    word = (word + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(word ^ (word >> np.uint64(31)), np.uint64)
