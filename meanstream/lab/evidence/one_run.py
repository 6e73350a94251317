"""Lower bounds on privacy from one run.

Many canaries, each with a coin of its own, and how well the coins are guessed.

One canary is one person (or agent) whose input is one of two neighbors, by a fair coin. Anyone who
reads all that is released scores each canary; how well the scores tell the coins bounds what the
mechanism can promise from below. The noise of the canaries is independent, so one run is as good as
many.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import nctdtrinc, ndtri

from meanstream.lab.evidence.audit_record import AuditRow
from meanstream.lab.evidence.black_box import clopper_pearson_lower
from meanstream.lab.evidence.sequential import sequential_gaussian, sequential_guesses
from meanstream.operators.noise.group_privacy import group_epsilon
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require

CONFIDENCE = 0.95
"""Of a proved bound."""
ALARM_ERROR = 1e-6
"""A violation is told where the bound at this error exceeds the claim: so often a good mechanism is
blamed."""
LEAST_CANARIES = 200
"""Sums of fewer scores are not normal enough for a bound at `ALARM_ERROR`."""
SURE = 0.9
"""Share of epsilon from which on a log-likelihood ratio is sure enough for a sequential test."""
PARTS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Shares of the canaries, the surest ones, whose guesses are counted for pure privacy; the best is
taken."""

_ONE_RUN = "one run"


def gaussian_one_run(
    name: str, score: Floats, *, mu: float, reach: float, claimed: float, delta: float, what: str
) -> AuditRow:
    """Bound mu, hence epsilon at delta, from matched-filter scores.

    Parameters
    ----------
    name : str
        Of what was run.
    score : float array (n,) or (n, k)
        For each canary: +-1 by its coin, times the filter's output minus its middle. Canaries of
        one row share noise; rows are independent.
    mu : float
        Gaussian-DP parameter that is claimed.
    reach : float
        Mean of the canaries' own parts of mu, as a share of it: 1 where each canary is the worst
        one.
    claimed, delta : float
        The promise that mu is worth.
    what : str
        What was run, in words.

    Notes
    -----
    Of scores `+-m / 2 + noise` of deviation s the mean is m / 2 and `2 mean / s` is at most mu: the likelihood ratio
    test of two normal laws at distance mu has just this power. That scores are normal is an assumption; it is tested
    by `guesses_one_run`, which has none, and by the law of the noise (`meanstream audit store`).

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> score = rng.normal(0.25, 1.0, 100_000)  # mu is 1/2
    >>> row = gaussian_one_run("toy", score, mu=0.5, reach=1.0, claimed=2.2, delta=1e-6, what="normal numbers")
    >>> 2.0 < row.proved < 2.3, row.violated
    (True, False)
    """
    rows = np.asarray(score, np.float64).reshape(len(score), -1)
    require(len(rows) >= LEAST_CANARIES, "canaries", f"be at least {LEAST_CANARIES}", len(rows))
    deviation = max(
        math.sqrt(float(((rows - rows.mean()) ** 2).mean())), 1e-9
    )  # 0 where there is no noise
    found = 2.0 * float(rows.mean()) / deviation

    # Canaries of one row are added first: their noise is not independent.
    error = 2.0 * float(rows.mean(axis=1).std()) / deviation / math.sqrt(len(rows))
    surely, alarm = (
        _least_ratio(found, error, len(rows), share) for share in (1.0 - CONFIDENCE, ALARM_ERROR)
    )
    ceiling = _least_ratio(mu * reach, 2.0 / math.sqrt(rows.size), len(rows), 1.0 - CONFIDENCE)
    epsilons = [
        group_epsilon(value, delta) if value > 0 else 0.0 for value in (surely, alarm, ceiling)
    ]

    return AuditRow(
        name=name,
        claimed=claimed,
        delta=delta,
        proved=epsilons[0],
        ceiling=epsilons[2],
        alarm=epsilons[1],
        runs=sequential_gaussian(rows[:, 0], mu, error=ALARM_ERROR),
        method=f"{_ONE_RUN}, matched filter: mu {max(surely, 0.0):.4f} of {mu:.4f} (confidence {CONFIDENCE:g}); {what}",
        assumption="scores are normal; canaries' noise is independent",
    )


def _least_ratio(found: float, error: float, n: int, share: float) -> float:
    """Bound twice a mean over its deviation from below, where n rows tell both.

    Wrong with probability `share`.

    The mean is off by `error`, and the deviation by 1 in sqrt(2 n) of itself, which is most of it
    where mu is large: `found / error` has a noncentral t law.
    """
    if found <= 0.0:
        return found
    t = min(found / max(error, 1e-300), 1e4)  # without noise, `error` is 0
    return found * float(nctdtrinc(n - 1, 1.0 - share, t)) / t


def guesses_one_run(
    name: str,
    score: Floats,
    *,
    mu: float,
    claimed: float,
    delta: float,
    what: str,
    confidence: float = CONFIDENCE,
) -> AuditRow:
    """Bound mu from how many coins are guessed by the sign of the score, whatever the law of the scores.

    Parameters
    ----------
    name, score, mu, claimed, delta, what
        As for `gaussian_one_run`.
    confidence : float
        Of the proved bound.

    Notes
    -----
    A fair coin behind a mu-GDP mechanism is guessed with probability `Phi(mu / 2)` at most. The first canary of each
    row counts only: then guesses are independent, and the number of right ones is binomial.
    """
    first = np.asarray(score, np.float64).reshape(len(score), -1)[:, 0]
    n = len(first)
    right = int((first > 0).sum())
    share = 0.5 * math.erfc(-0.5 * mu / math.sqrt(2.0))
    expected = share + float(ndtri(1.0 - confidence)) * math.sqrt(share * (1.0 - share) / n)
    shares = [clopper_pearson_lower(right, n, error) for error in (1.0 - confidence, ALARM_ERROR)]
    bounds = [2.0 * float(ndtri(value)) for value in (*shares, expected)]
    epsilons = [group_epsilon(value, delta) if value > 0 else 0.0 for value in bounds]

    return AuditRow(
        name=name,
        claimed=claimed,
        delta=delta,
        proved=epsilons[0],
        ceiling=epsilons[2],
        alarm=epsilons[1],
        runs=sequential_guesses(first > 0, share, error=ALARM_ERROR),
        method=f"{_ONE_RUN}, guesses: {right:,} of {n:,} coins right (confidence {confidence:g}); {what}",
        assumption="canaries' noise is independent",
    )


def pure_one_run(
    name: str, reports: Ints, coins: Ints, *, epsilon: float, what: str = "reports"
) -> AuditRow:
    """Bound pure epsilon from reports of two inputs.

    Half of them teach a score, the other half is guessed by it.

    Parameters
    ----------
    name : str
        Of the mechanism.
    reports : int array (n, width)
        One row for each canary.
    coins : int array (n,)
        Which of the two inputs each holds.
    epsilon : float
        What is claimed.
    what : str
        What was run, in words.

    Notes
    -----
    Anyone who guesses a fair coin behind a pure mechanism is right with probability `e**epsilon / (1 + e**epsilon)` at
    most, also if only the surest guesses are made, since these are chosen by the report alone.

    References
    ----------
    T. Steinke, M. Nasr, M. Jagielski, Privacy Auditing with One (1) Training Run, NeurIPS 2023, Theorem 3.1.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> coins = rng.integers(0, 2, 100_000)
    >>> flipped = coins ^ (rng.random(100_000) < 1 / (1 + np.e))
    >>> row = pure_one_run("coin", flipped[:, None], coins, epsilon=1.0)
    >>> 0.9 < row.proved < 1.1, row.violated
    (True, False)
    """
    require(
        len(coins) >= 2 * LEAST_CANARIES,
        "canaries",
        f"be at least {2 * LEAST_CANARIES}",
        len(coins),
    )
    half = len(coins) // 2
    score = _learned_score(reports[:half], coins[:half], reports[half:])

    return pure_guesses(name, score, coins[half:], epsilon=epsilon, what=what)


def pure_guesses(name: str, score: Floats, coins: Ints, *, epsilon: float, what: str) -> AuditRow:
    """Bound pure epsilon from scores that were fixed before these coins were looked at.

    Positive ones stand for 1.
    """
    n = len(score)
    bounds = _bounds(score, coins)
    share = 1.0 / (1.0 + math.exp(-epsilon))
    is_sure = np.abs(score) >= SURE * epsilon
    least = share + float(ndtri((1.0 - CONFIDENCE) / len(PARTS))) * math.sqrt(
        share * (1.0 - share) / n
    )

    return AuditRow(
        name=name,
        claimed=epsilon,
        delta=0.0,
        proved=bounds[0],
        ceiling=_logit(least),
        alarm=bounds[1],
        runs=sequential_guesses(((score > 0) == (coins == 1))[is_sure], share, error=ALARM_ERROR),
        method=f"{_ONE_RUN}, the surest guesses of {n:,} coins (confidence {CONFIDENCE:g}); {what}",
        assumption="canaries' noise is independent",
    )


def _learned_score(reports: Ints, coins: Ints, unseen: Ints) -> Floats:
    """Give log-likelihood ratios of unseen reports, learned from others.

    Each column, in quantiles, and each bit.

    Numbers that share noise tell little each, and all by what tells them from those next to them:
    scores are of neighbors where the others are guessed far better by these.
    """
    every = np.concatenate([reports, unseen])
    half = len(coins)
    alone = np.zeros(len(every))
    beside = np.zeros(len(every))

    for column in every.T:
        place = _quantile_bins(column, half)
        alone += _ratios(place, coins)

        if place.max() > 2:  # votes are packed, a bit for each bin
            for bit in range(63):
                alone += _ratios((column >> bit) & 1, coins)
                beside += _ratios(((column ^ (column >> 1)) >> bit) & 1, coins)

    for column in np.diff(every, axis=1).T:
        beside += _ratios(_quantile_bins(column, half), coins)

    told = [_bounds(score[:half], coins)[1] for score in (alone, beside)]
    return (beside if told[1] > 1.5 * told[0] else alone)[half:]


def _quantile_bins(column: Ints, half: int, parts: int = 64) -> Ints:
    """Put numbers into quantiles of the first ones."""
    edges = np.quantile(
        column[:half], np.linspace(0.0, 1.0, parts + 1)[1:-1], method="inverted_cdf"
    )
    return np.searchsorted(np.unique(edges), column)


def _bounds(score: Floats, coins: Ints) -> list[float]:
    """Bound epsilon by how many of the surest guesses are right, at `CONFIDENCE` and at `ALARM_ERROR`."""
    n = len(score)
    order = np.argsort(-np.abs(score), kind="stable")
    right = np.cumsum(((score > 0) == (coins == 1))[order])
    taken = [max(1, math.ceil(part * n)) for part in PARTS]

    return [
        max(_logit(clopper_pearson_lower(int(right[k - 1]), k, error / len(PARTS))) for k in taken)
        for error in (1.0 - CONFIDENCE, ALARM_ERROR)
    ]


def _ratios(place: Ints, coins: Ints) -> Floats:
    """Log-likelihood ratios by category, learned from those with coins.

    0 where chance may have made them.
    """
    seen = place[: len(coins)]
    n = int(place.max()) + 1
    ones, zeros = (np.bincount(seen[coins == coin], minlength=n) + 1.0 for coin in (1, 0))
    found = np.log(ones / ones.sum()) - np.log(zeros / zeros.sum())

    return np.asarray(
        np.where(np.abs(found) > 4.0 * np.sqrt(1.0 / ones + 1.0 / zeros), found, 0.0)[place]
    )


def _logit(share: float) -> float:
    return (
        0.0 if share <= 0.5 else math.log(share) - math.log1p(-share) if share < 1.0 else math.inf
    )
