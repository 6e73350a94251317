"""The schemes of Kent, Berrett and Yu's figures beside their estimators.

Item levels of sparse vectors (Duchi's report from the cube, and the best threshold in hindsight),
shares of categories on data of one's own (Fig. 4), and the phase transition of the univariate mean
(Fig. 5). The estimator itself has at most 1000 bins, since every bin is a bit of every report. For
Fig. 5 only sums of reports are drawn, so bins may be as narrow as the paper's, 0.0005.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from meanstream.lab.papers.kent.univariate import REACH
from meanstream.lab.simulation.simulated_rounds import (
    simulate_round_stages,
    simulated_rounds_stderr,
)
from meanstream.lab.simulation.vector_laws import SHIFT, vector_law_summaries
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.round_protocol import Estimator, assign_protocol_stages
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require, require_least

SCHEMES = ("user level", "one item", "semi-user level", "full item level")
LEAST_USERS = 40
_NODES = np.linspace(-9.0, 9.0, 1801)
_WEIGHTS = np.exp(-0.5 * _NODES**2)
_WEIGHTS /= _WEIGHTS.sum()


def item_level_reach(dimension: int, epsilon: float) -> float:
    """Compute B of Duchi's report, a corner of [-B, B]^d whose mean is the sample, at epsilon.

    Examples
    --------
    >>> round(item_level_reach(1, 1.0), 4), round(item_level_reach(100, 1.0), 1)
    (2.164, 29.4)

    References
    ----------
    Duchi, Jordan, Wainwright: Minimax optimal procedures for locally private estimation, JASA 2018, equation 26.
    """
    d = dimension

    def log_choose(n: int, k: int) -> float:
        return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))

    half = (d - 1) * math.log(2.0)
    if d % 2:
        log_c = half - log_choose(d - 1, (d - 1) // 2)
    else:
        log_c = float(np.logaddexp(half, log_choose(d, d // 2) - math.log(2.0))) - log_choose(
            d - 1, d // 2
        )

    return math.exp(log_c) / math.tanh(epsilon / 2.0)


def item_level_sparse_error(
    dimension: int, epsilon: float, reports: float, signal: Floats
) -> float:
    """Compute the mean squared error of the mean of reports after the best soft or hard threshold in hindsight.

    Parameters
    ----------
    dimension : int
    epsilon : float
        Of each sample.
    reports : float
        Number of samples in all.
    signal : float array
        Means that are not 0; the other coordinates are.

    Notes
    -----
    A vector of even dimension may be given one more coordinate, which is 0: its report is then shorter.

    The mean of so many reports is taken as normal. The threshold is the best one for this very
    signal, which nobody knows: a real procedure errs more.

    Examples
    --------
    >>> [round(item_level_sparse_error(d, 4.0, 10 * d * math.log(d), np.full(4, 0.5)), 2) for d in (100, 3000)]
    [0.58, 0.69]
    """
    reach = min(item_level_reach(dimension, epsilon), item_level_reach(dimension + 1, epsilon))
    stddev = reach / math.sqrt(reports)
    best = math.inf
    for threshold in np.append(np.linspace(0.0, 6.0, 241), np.inf) * stddev:
        for soft in (True, False):
            of_signal = sum(_risk(float(mean), stddev, threshold, soft=soft) for mean in signal)
            best = min(
                best,
                of_signal + (dimension - len(signal)) * _risk(0.0, stddev, threshold, soft=soft),
            )

    return best


def _risk(mean: float, stddev: float, threshold: float, *, soft: bool) -> float:
    """Integrate the squared error of one thresholded normal number."""
    x = mean + stddev * _NODES
    kept = np.abs(x) > threshold
    estimate = np.where(
        kept, x - np.sign(x) * (threshold if soft and math.isfinite(threshold) else 0.0), 0.0
    )

    return float(_WEIGHTS @ (estimate - mean) ** 2)


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
        noise = (ball_reach(k, epsilon) ** 2 - (own**2).sum(axis=1).mean()) / users
        semi.append(noise + ((own.mean(axis=0) - data.truth) ** 2).sum())

    full = _item_level_error(data, epsilon, samples)
    errors_of_schemes: Sequence[Sequence[float]] = (by_users, by_items, semi, [full])
    return {
        scheme: (float(np.mean(errors)), simulated_rounds_stderr(np.array(errors)))
        for scheme, errors in zip(SCHEMES, errors_of_schemes, strict=True)
    }


def own_mean_errors(
    data: OwnShares, *, epsilon: float, constant: float, samples: int, runs: int, seed: int
) -> dict[str, tuple[float, float | None]]:
    """Measure the mean squared error of the share of one of two categories, by scheme.

    Parameters and Notes are those of `own_share_errors`, but there is one mean: the user level is
    Algorithms 2 and 3, one item is randomized response, and the other two have Laplace noise. All
    but the user level are exact.
    """
    users = len(data.count)
    law = SizeDistribution.parse(f"point:{samples}")
    options = {"votes": "one_hot", "constant": constant, "mode": "paper"}
    level = build_estimator("kent", epsilon=epsilon, users=users, sizes=law, **options)
    by_users = []

    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        own = data.drawn(samples, rng)[:, 0] / samples
        held = vector_law_summaries(2.0 * own - 1.0, np.full(users, samples), rng)
        by_users.append(_error(level, held, data.truth[:1], rng, run))

    user_level = (float(np.mean(by_users)), simulated_rounds_stderr(np.array(by_users)))
    return {"user level": user_level} | {
        scheme: (error, None)
        for scheme, error in _exact_mean_errors(data, epsilon, samples).items()
    }


def _exact_mean_errors(data: OwnShares, epsilon: float, samples: int) -> dict[str, float]:
    """Compute the mean squared error of the share of the first category, of all other schemes."""
    users = len(data.count)

    # Samples of a user are drawn without putting any back.
    number = data.count.sum(axis=1)
    own = data.count[:, 0] / number
    within = own * (1.0 - own) / samples * (number - samples) / np.maximum(number - 1, 1)
    sampling = float(within.sum()) / users**2
    laplace = 2.0 / epsilon**2

    # A report of one item is true with this probability.
    true = 1.0 / (1.0 + math.exp(-epsilon))
    shown = own * true + (1.0 - own) * (1.0 - true)
    by_items = float((shown * (1.0 - shown)).sum()) / (2.0 * true - 1.0) ** 2 / users**2

    return {
        "one item": by_items,
        "semi-user level": sampling + laplace / users,
        "full item level": sampling + laplace / users / samples,
    }


def _error(
    estimator: Estimator, held: Summaries, truth: Floats, rng: np.random.Generator, run: int
) -> float:
    stage = assign_protocol_stages(estimator.shares, held.user, b"own data %d" % run)
    estimate = simulate_round_stages(estimator, held, stage, rng)
    return float(((0.5 * (np.asarray(estimate.unclipped) + 1.0) - truth) ** 2).sum())


def _item_level_error(data: OwnShares, epsilon: float, samples: int) -> float:
    """Add up the noise of samples, their spread within users, and that between the users of a group, who are some."""
    users, k = data.count.shape
    own = data.count / data.count.sum(axis=1, keepdims=True)
    within = (own * (1.0 - own)).mean(axis=0).sum()
    between = own.var(axis=0).sum() * (1.0 - 1.0 / k)

    return float(k * ((2.0 * k / epsilon**2 + within) / samples + between) / users)


def ball_reach(dimension: int, epsilon: float) -> float:
    """Compute the length of Duchi's report from the unit ball, their equation 25.

    It is that of every report: so one item of a user errs as the user's own mean does.
    """
    half = math.lgamma((dimension + 1) / 2) - math.lgamma(dimension / 2 + 1)
    return 0.5 * math.sqrt(math.pi) * dimension * math.exp(half) / math.tanh(epsilon / 2)


@dataclass(frozen=True, slots=True)
class PhaseError:
    """Mean squared error over the runs, and its standard error."""

    mse: float
    stderr: float


def phase_transition_error(
    *, users: int, samples: int, epsilon: float, half_width: float, runs: int, seed: int
) -> PhaseError:
    """Simulate Algorithms 2 and 3 with one-hot votes, for signs shifted by a uniform number.

    Parameters
    ----------
    users, samples : int
        n users, half of whom vote, with T samples each.
    epsilon : float
    half_width : float
        Of a bin.
    runs, seed : int

    Examples
    --------
    >>> ask = {"users": 100, "samples": 10_000, "half_width": 0.02, "runs": 200, "seed": 1}
    >>> [f"{phase_transition_error(epsilon=epsilon, **ask).mse:.0e}" for epsilon in (1.0, 4.0)]
    ['1e-01', '4e-05']

    References
    ----------
    Kent, Berrett, Yu, Section A.1 and Fig. 5.
    """
    require_least(2, users=users)
    draw = np.random.default_rng(
        [seed, users, samples, round(1e6 * epsilon), round(1e9 * half_width)]
    )
    shift = draw.uniform(-SHIFT, SHIFT, runs)
    means = (2.0 * draw.binomial(samples, 0.5, (runs, users)) - samples) / samples + shift[:, None]
    voters = means[:, : users // 2]
    others = means[:, users // 2 :]

    elected = _elected(voters, epsilon, half_width, draw)
    low = -1.0 + 2.0 * half_width * elected
    reach = REACH["one_hot"] * half_width
    left = np.maximum(low - reach, -1.0)
    right = np.minimum(low + 2.0 * half_width + reach, 1.0)
    clipped = np.clip(others, left[:, None], right[:, None]).mean(axis=1)
    scale = (right - left) / epsilon
    noise = draw.laplace(0.0, 1.0, others.shape).mean(axis=1) * scale
    squares = (clipped + noise - shift) ** 2

    return PhaseError(float(squares.mean()), float(squares.std() / math.sqrt(runs)))


def _elected(voters: Floats, epsilon: float, half_width: float, draw: np.random.Generator) -> Ints:
    """Draw the bin with the most of the randomized votes, in each run."""
    runs, n = voters.shape
    bins = math.ceil(1.0 / half_width - 1e-9)
    bin_of_voter = np.clip(
        np.floor((voters + 1.0) / (2.0 * half_width)).astype(np.int64), 0, bins - 1
    )
    votes = np.bincount(
        (np.arange(runs)[:, None] * bins + bin_of_voter).ravel(), minlength=runs * bins
    )
    kept_chance = 1.0 / (1.0 + math.exp(-epsilon / 2.0))
    noised = draw.binomial(votes, kept_chance) + draw.binomial(n - votes, 1.0 - kept_chance)

    return np.asarray(noised.reshape(runs, bins).argmax(axis=1), np.int64)
