"""Shares of categories on data of one's own, by the schemes of Kent, Berrett and Yu's Fig. 4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meanstream.lab.simulation.simulated_rounds import (
    simulate_round_stages,
    simulated_rounds_stderr,
)
from meanstream.lab.simulation.vector_laws import vector_law_summaries
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.round_protocol import Estimator, assign_protocol_stages
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require

SCHEMES = ("user level", "one item", "semi-user level", "full item level")
LEAST_USERS = 40


@dataclass(frozen=True, slots=True)
class OwnShares:
    """Private: how many samples of each category every user has.

    More than `samples` may be drawn from none.

    Attributes
    ----------
    count : int array (users, categories)
    """

    count: Ints

    @classmethod
    def of(cls, user: Ints, category: Ints, *, least: int) -> OwnShares:
        """Count, and keep the users with that many samples.

        Examples
        --------
        >>> OwnShares.of(np.repeat([0, 1], 41 * 3), np.tile([0, 1, 1], 82), least=3).count
        Traceback (most recent call last):
        ValueError: users must be at least 40 with 3 samples or more, got 2
        """
        counts = np.zeros(
            (int(user.max(initial=-1)) + 1, int(category.max(initial=-1)) + 1), np.int64
        )
        np.add.at(counts, (user, category), 1)
        kept = counts[counts.sum(axis=1) >= least]
        rule = f"be at least {LEAST_USERS} with {least} samples or more"
        require(len(kept) >= LEAST_USERS, "users", rule, len(kept))

        return cls(kept)

    @property
    def truth(self) -> Floats:
        """Mean over users of each user's own shares."""
        return np.asarray((self.count / self.count.sum(axis=1, keepdims=True)).mean(axis=0))

    def drawn(self, samples: int, rng: np.random.Generator) -> Ints:
        """Draw that many samples of each user, without putting any back."""
        return np.array(
            [rng.multivariate_hypergeometric(row, samples) for row in self.count], np.int64
        )


def own_share_errors(
    data: OwnShares, *, epsilon: float, constant: float, samples: int, runs: int, seed: int
) -> dict[str, tuple[float, float | None]]:
    """Measure the mean squared error of each scheme, with its standard error.

    That of the item levels is exact.

    Parameters
    ----------
    data : OwnShares
    epsilon : float
        Of a user; at the full item level of each sample.
    constant : float
        C of the user level's bins.
    samples : int
        T, which every user has.
    runs, seed : int
        Run r depends on (seed, r) only.

    Notes
    -----
    User level: Algorithm 4 on one-hot vectors. One item: symmetric unary encoding of one sample. Semi-user level:
    Duchi's report from the l2 ball (their equation 25) of each user's own shares. Full item level: users are split
    between the categories, and each sample gets Laplace noise.
    """
    users, k = data.count.shape
    law = SizeDistribution.parse(f"point:{samples}")
    options = {"dimension": k, "votes": "one_hot", "constant": constant}
    level = build_estimator(
        "kent.linf", epsilon=epsilon, users=users, sizes=law, mode="paper", **options
    )

    item = build_estimator(
        "category_shares", epsilon=epsilon, users=users, categories=k, votes="sue"
    )
    by_users = []
    by_items = []
    semi = []

    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        counts = data.drawn(samples, rng)
        own = counts / samples
        held = vector_law_summaries(2.0 * own - 1.0, np.full(users, samples), rng)
        by_users.append(_error(level, held, data.truth, rng, run))
        one_hot = Summaries(
            user=held.user, count=held.count, total=counts, first=np.minimum(counts, 1), span=1
        )
        by_items.append(_error(item, one_hot, data.truth, rng, run))
        noise = (_ball_reach(k, epsilon) ** 2 - (own**2).sum(axis=1).mean()) / users
        semi.append(noise + ((own.mean(axis=0) - data.truth) ** 2).sum())

    full = _item_level_error(data, epsilon, samples)
    found: Sequence[Sequence[float]] = (by_users, by_items, semi, [full])
    return {
        scheme: (float(np.mean(errors)), simulated_rounds_stderr(np.array(errors)))
        for scheme, errors in zip(SCHEMES, found, strict=True)
    }


def _error(
    estimator: Estimator, held: Summaries, truth: Floats, rng: np.random.Generator, run: int
) -> float:
    stage = assign_protocol_stages(estimator.shares, held.user, b"own data %d" % run)
    found = simulate_round_stages(estimator, held, stage, rng)
    return float(((0.5 * (found.unclipped + 1.0) - truth) ** 2).sum())


def _item_level_error(data: OwnShares, epsilon: float, samples: int) -> float:
    """Add up the noise of samples, their spread within users, and that between the users of a group, who are some."""
    users, k = data.count.shape
    own = data.count / data.count.sum(axis=1, keepdims=True)
    within = (own * (1.0 - own)).mean(axis=0).sum()
    between = own.var(axis=0).sum() * (1.0 - 1.0 / k)

    return float(k * ((2.0 * k / epsilon**2 + within) / samples + between) / users)


def _ball_reach(dimension: int, epsilon: float) -> float:
    """Compute the length of Duchi's report from the unit ball, their equation 25."""
    half = math.lgamma((dimension + 1) / 2) - math.lgamma(dimension / 2 + 1)
    return 0.5 * math.sqrt(math.pi) * dimension * math.exp(half) / math.tanh(epsilon / 2)
