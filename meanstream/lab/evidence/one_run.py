"""Lower bounds on privacy from one run.

Many canaries, each with a coin of its own, and how well the coins are guessed.

One canary is one person (or agent) whose input is one of two neighbors, by a fair coin. Anyone who
reads all that is released scores each canary; how well the scores tell the coins bounds what the
mechanism can promise from below. The noise of the canaries is independent, so one run is as good as
many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import logsumexp, nctdtrinc, ndtri

from meanstream.lab.evidence.audit_record import AuditRow
from meanstream.operators.noise.group_privacy import group_epsilon
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require_least

Outputs = npt.NDArray[Any]
Event = Callable[[Outputs], Bools]


def audit_epsilon_lower_bound(
    outputs_a: Outputs,
    outputs_b: Outputs,
    events: Sequence[Event],
    *,
    delta: float,
    confidence: float = 1.0 - 1e-6,
) -> float:
    """Lower bound on epsilon from outputs on two neighboring inputs.

    At most the true epsilon with this confidence.

    Parameters
    ----------
    outputs_a, outputs_b : arrays with one independent output per row
        The mechanism run many times on each of two neighboring inputs.
    events : sequence of callables, outputs -> bool array
        Sets of outputs, fixed before looking at these outputs. Each is tried with its complement
        and both ways round.
    delta : float
        The mechanism's delta.
    confidence : float
        Clopper-Pearson intervals with a Bonferroni correction over all events, so that the whole
        statement holds.

    Returns
    -------
    float
        The largest `log((p_A - delta) / p_B)` that the data prove, or 0 if they prove nothing.
    """
    # Two events (itself, its complement), two directions, two interval ends per event.
    error = (1.0 - confidence) / (8 * len(events))
    bound = 0.0
    for event in events:
        hits_a = event(outputs_a)
        hits_b = event(outputs_b)
        for a, b in ((hits_a, hits_b), (hits_b, hits_a), (~hits_a, ~hits_b), (~hits_b, ~hits_a)):
            low = clopper_pearson_lower(int(a.sum()), len(a), error) - delta
            high = _clopper_pearson_upper(int(b.sum()), len(b), error)
            if low > 0:
                bound = max(bound, math.log(low / high))

    return bound


def above(thresholds: npt.ArrayLike) -> list[Event]:
    """Return the events "the output exceeds t".

    The most powerful sets for noise with a monotone likelihood ratio.
    """

    def event(threshold: float) -> Event:
        return lambda outputs: np.asarray(outputs, dtype=np.float64) > threshold

    return [event(float(t)) for t in np.asarray(thresholds).ravel()]


def clopper_pearson_lower(hits: int, n: int, error: float) -> float:
    """Give the lower end of the exact interval of a share, which fails with probability `error`."""
    if hits == 0:
        return 0.0
    return float(stats.beta.ppf(error, hits, n - hits + 1))


def _clopper_pearson_upper(hits: int, n: int, error: float) -> float:
    """Give the upper end of the exact interval of a share, which fails with probability `error`."""
    if hits == n:
        return 1.0
    return float(stats.beta.isf(error, hits + 1, n - hits))


STRENGTHS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Alternatives: that many times the claimed mu."""


def sequential_gaussian(score: Floats, mu: float, *, error: float) -> int | None:
    """Return after how many canaries it is clear that mu is more than claimed; None if it never is.

    Parameters
    ----------
    score : float array (n,)
        As for `gaussian_one_run`, one canary of each row.
    mu : float
        What is claimed.
    error : float
        How often a mechanism that keeps its claim is ever told to break it, however long one looks.

    Notes
    -----
    The e-value is the mean over alternatives of likelihood ratios, of the scores and of the guesses that their signs
    are: fair bets against the claim, whose product exceeds 1 / error with probability `error` at most (Ville). Scores
    that are equal for ever, without noise, show in the guesses.

    References
    ----------
    T. Gonzalez, M. Dulce Rubio, A. Ramdas, M. Ribero, Sequentially Auditing Differential Privacy, 2025.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> sequential_gaussian(rng.normal(0.25, 1.0, 100_000), 0.5, error=1e-6) is None  # mu is 0.5
    True
    >>> sequential_gaussian(rng.normal(0.5, 1.0, 100_000), 0.5, error=1e-6) < 2000  # mu is 1.0
    True
    """
    half = 0.5 * mu
    by_score = [
        np.cumsum((s - 1.0) * half * score - 0.5 * (s * s - 1.0) * half * half) for s in STRENGTHS
    ]
    by_guess = _guess_bets(score > 0, 0.5 * math.erfc(-half / math.sqrt(2.0)))

    return _first_above(np.array([*by_score, *by_guess]), error)


def sequential_guesses(right: Bools, most: float, *, error: float) -> int | None:
    """Return after how many guesses it is clear that more than a share `most` is right.

    None if it never is.

    Examples
    --------
    >>> sequential_guesses(np.ones(50, bool), 0.73, error=1e-6)
    50
    """
    return _first_above(np.array(_guess_bets(right, most)), error)


def _guess_bets(right: Bools, most: float) -> list[Floats]:
    if most > 1.0 - 1e-9:  # who may always be right is never right too often
        return [np.zeros(len(right))]
    # The alternative is right with probability most + (1 - most) part, which may round to 1.
    parts = (0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.95, 1.0 - 1e-9)
    odds = (1.0 - most) / most

    return [
        np.cumsum(np.where(right, math.log1p(odds * extra), math.log1p(-extra))) for extra in parts
    ]


def _first_above(log_bets: Floats, error: float) -> int | None:
    evidence = logsumexp(log_bets, axis=0) - math.log(len(log_bets))
    over = np.flatnonzero(evidence >= -math.log(error))

    if len(over):
        return int(over[0]) + 1
    return None


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
    require_least(LEAST_CANARIES, canaries=len(rows))
    deviation = max(
        math.sqrt(float(((rows - rows.mean()) ** 2).mean())), 1e-9
    )  # 0 where there is no noise
    estimate = 2.0 * float(rows.mean()) / deviation

    # Canaries of one row are added first: their noise is not independent.
    error = 2.0 * float(rows.mean(axis=1).std()) / deviation / math.sqrt(len(rows))
    surely, alarm = (
        _least_ratio(estimate, error, len(rows), share) for share in (1.0 - CONFIDENCE, ALARM_ERROR)
    )
    ceiling = _least_ratio(mu * reach, 2.0 / math.sqrt(rows.size), len(rows), 1.0 - CONFIDENCE)
    return AuditRow(
        name=name,
        claimed=claimed,
        delta=delta,
        **_epsilons(delta, proved=surely, alarm=alarm, ceiling=ceiling),
        runs=sequential_gaussian(rows[:, 0], mu, error=ALARM_ERROR),
        method=f"{_ONE_RUN}, matched filter: mu {max(surely, 0.0):.4f} of {mu:.4f} (confidence {CONFIDENCE:g}); {what}",
        assumption="scores are normal; canaries' noise is independent",
    )


def _epsilons(delta: float, **bounds: float) -> dict[str, Any]:
    """Turn bounds on mu into bounds on epsilon at delta."""
    return {name: group_epsilon(mu, delta) if mu > 0 else 0.0 for name, mu in bounds.items()}


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
    shares = {
        "proved": clopper_pearson_lower(right, n, 1.0 - confidence),
        "alarm": clopper_pearson_lower(right, n, ALARM_ERROR),
        "ceiling": expected,
    }
    bounds = {name: 2.0 * float(ndtri(value)) for name, value in shares.items()}

    return AuditRow(
        name=name,
        claimed=claimed,
        delta=delta,
        **_epsilons(delta, **bounds),
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
    require_least(2 * LEAST_CANARIES, canaries=len(coins))
    half = len(coins) // 2
    score = _learned_score(reports[:half], coins[:half], reports[half:])

    return pure_guesses(name, score, coins[half:], epsilon=epsilon, what=what)


def pure_guesses(name: str, score: Floats, coins: Ints, *, epsilon: float, what: str) -> AuditRow:
    """Bound pure epsilon from scores that were fixed before these coins were looked at.

    Positive ones stand for 1.
    """
    n = len(score)
    bounds = _guess_bounds(score, coins)
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
        category = _quantile_bins(column, half)
        alone += _ratios(category, coins)

        if category.max() > 2:  # votes are packed, a bit for each bin
            for bit in range(63):
                alone += _ratios((column >> bit) & 1, coins)
                beside += _ratios(((column ^ (column >> 1)) >> bit) & 1, coins)

    for column in np.diff(every, axis=1).T:
        beside += _ratios(_quantile_bins(column, half), coins)

    proved = [_guess_bounds(score[:half], coins)[1] for score in (alone, beside)]
    return (beside if proved[1] > 1.5 * proved[0] else alone)[half:]


def _quantile_bins(column: Ints, half: int, parts: int = 64) -> Ints:
    """Put numbers into quantiles of the first ones."""
    edges = np.quantile(
        column[:half], np.linspace(0.0, 1.0, parts + 1)[1:-1], method="inverted_cdf"
    )
    return np.searchsorted(np.unique(edges), column)


def _guess_bounds(score: Floats, coins: Ints) -> list[float]:
    """Bound epsilon by how many of the surest guesses are right, at `CONFIDENCE` and at `ALARM_ERROR`."""
    n = len(score)
    order = np.argsort(-np.abs(score), kind="stable")
    right = np.cumsum(((score > 0) == (coins == 1))[order])
    sizes = [max(1, math.ceil(share * n)) for share in PARTS]

    return [
        max(_logit(clopper_pearson_lower(int(right[k - 1]), k, error / len(PARTS))) for k in sizes)
        for error in (1.0 - CONFIDENCE, ALARM_ERROR)
    ]


def _ratios(place: Ints, coins: Ints) -> Floats:
    """Log-likelihood ratios by category, learned from those with coins.

    0 where chance may have made them.
    """
    seen = place[: len(coins)]
    n = int(place.max()) + 1
    ones, zeros = (np.bincount(seen[coins == coin], minlength=n) + 1.0 for coin in (1, 0))
    ratio = np.log(ones / ones.sum()) - np.log(zeros / zeros.sum())

    return np.asarray(
        np.where(np.abs(ratio) > 4.0 * np.sqrt(1.0 / ones + 1.0 / zeros), ratio, 0.0)[place]
    )


def _logit(share: float) -> float:
    return (
        0.0 if share <= 0.5 else math.log(share) - math.log1p(-share) if share < 1.0 else math.inf
    )
