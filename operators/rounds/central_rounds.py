"""Central rounds: a trusted curator sees the samples, adds up exact integers, and noises each sum once.

A central estimator is a list of releases. Each asks one cohort of the users, adds up what `encode`
makes of their samples (private, exact, linear: any host may add in any order, on any number of
workers), and draws its noise when everything is added up: `release` is the only method that is
random, and the only one whose result may leave.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np

from meanstream.operators.noise.distributions import (
    TAIL_DELTA,
    GaussianNoise,
    LaplaceNoise,
    NoiseDistribution,
)
from meanstream.operators.noise.draw_owners import CURATOR_SUMS
from meanstream.operators.noise.keyed import NoiseIds, NoiseSource, keyed_owner_words
from meanstream.operators.noise.numerics import (
    LARGEST_SHARE,
    refuse_small_epsilon,
    small_numeric_slack,
)
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.noise.window_budget import WindowBudget
from meanstream.operators.records import Ints, Words
from meanstream.operators.rounds.round_protocol import Estimator
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries, Tally

LARGEST_SENSITIVITY = 2**22
"""Of any sum that a release noises, in grid units."""

Rows = Ints
"""Private: rows of exact integers, shape (users asked, width of the release). They never leave the
curator."""


class CentralRound(Protocol):
    """One release: what the curator adds up, and how the sum is noised.

    Notes
    -----
    **Privacy.** `release` is (epsilon, delta)-differentially private towards the replacement of everything that one
    user of the cohort holds; that the user took part is public. Users of other cohorts have no part in it at all.
    """

    name: str
    cohort: int
    """Which of the estimator's cohorts is queried."""
    payers: str
    """Name of the users who pay for this release; releases of other payers use nothing of theirs
    that is private."""
    epsilon: float
    delta: float

    def encode(self, summaries: Summaries, public: Public) -> Rows:
        """Private: exact integers, at most one row per user, each a function of that user's samples alone."""
        ...

    def tally(self, rows: Rows, public: Public) -> Tally:
        """Private: add up rows. No noise, so that a combiner may run it any number of times."""
        ...

    def release(self, tally: Tally, public: Public, words: RandomWords) -> Public | Estimate:
        """Private to public: noise the sums, once; the estimate, after the last release.

        There may be no row at all.
        """
        ...


class CentralEstimator(Protocol):
    """A population's mean by a trusted curator; `trust` is "central". Built by `build_estimator`.

    Attributes
    ----------
    protects_sizes : bool
        Whether a user's number of samples is protected as its values are; else only these are, and
        sizes are public.
    shares : sequence of float
        Share of the users in each *cohort*; `assign_protocol_stages` splits the users by it.
        Several releases may ask one cohort.
    epsilon, delta : float
        Those of the dearest payers: releases of the same payers add up, different payers have no
        user in common.
    """

    name: str
    mode: str
    epsilon: float
    delta: float
    trust: str
    protects_sizes: bool
    rounds: Sequence[CentralRound]
    shares: Sequence[float]

    def describe(self) -> dict[str, Any]:
        """Public, plain data.

        Parameters chosen, and the predicted standard error on [-1, 1] as `predicted_stderr`.
        """
        ...


def is_central(estimator: Estimator | CentralEstimator) -> TypeGuard[CentralEstimator]:
    """Tell which loop runs an estimator of the registry: `run_central`, or `run_protocol`."""
    return estimator.trust == "central"


def run_central(
    estimator: CentralEstimator, summaries: Summaries, cohort: Ints, words: Sequence[RandomWords]
) -> Estimate:
    """Run all releases at once, in memory.

    Parameters
    ----------
    estimator : CentralEstimator
        From `build_estimator`, with `trust` "central".
    summaries : Summaries
        Private: everyone's samples of the window.
    cohort : int array (n,)
        Which cohort each user is in, from `assign_protocol_stages(estimator.shares, ...)`.
    words : sequence of RandomWords
        Random bits of each release, one row per draw: `ReleaseWords` in production.

    Returns
    -------
    Estimate
        On [-1, 1].
    """
    public: Public = {}
    for step, bits in zip(estimator.rounds, words, strict=True):
        rows = step.encode(summaries.take(cohort == step.cohort), public)
        found = step.release(step.tally(rows, public), public, bits)
        if isinstance(found, Estimate):
            return found

        public = found

    raise TypeError(f"{estimator.name}: the last release gave no estimate")


def central_spend(rounds: Sequence[CentralRound]) -> dict[str, tuple[float, float]]:
    """Return the epsilon and delta that users pay, by payers.

    The sum over the releases that they pay for.
    """
    spent: dict[str, tuple[float, float]] = {}
    for step in rounds:
        epsilon, delta = spent.get(step.payers, (0.0, 0.0))
        spent[step.payers] = (epsilon + step.epsilon, delta + step.delta)

    return spent


def central_numeric_cost(
    estimator: CentralEstimator, budget: WindowBudget | None = None
) -> tuple[float, float]:
    """Bound what float64 and cut tails add to epsilon and delta of those who pay for all releases.

    With a budget for several windows: over all of them.

    Notes
    -----
    **Privacy.** Each part of a release is one draw of discrete Laplace noise, of scale `sensitivity / epsilon` of the
    part, for sensitivities of at most `LARGEST_SENSITIVITY`; of a vote only the draw of the candidate that wins counts.
    Windows that share a budget draw noise that is as wide as the budget says, in each of them.
    """
    if budget is not None:
        return _numeric_cost_of_windows(estimator, budget)

    parts = [
        part
        for step in estimator.rounds
        for part in getattr(step, "parts", (step.epsilon,))
        if part > 0
    ]

    def cost_at(epsilon: float) -> float:
        larger = epsilon / estimator.epsilon
        scales = [LARGEST_SENSITIVITY / (part * larger) for part in parts]
        return sum(LaplaceNoise(scale).epsilon_slack for scale in scales)

    cost = cost_at(estimator.epsilon)
    if cost > LARGEST_SHARE * estimator.epsilon:
        refuse_small_epsilon(
            estimator.epsilon, lambda epsilon: cost_at(epsilon) <= LARGEST_SHARE * epsilon
        )

    return cost, len(parts) * TAIL_DELTA


def _numeric_cost_of_windows(
    estimator: CentralEstimator, budget: WindowBudget
) -> tuple[float, float]:
    """Bound the same over all windows of a user that share a budget."""
    noises = [noise for step in estimator.rounds for noise in _noises_of(step)]
    draws = budget.windows * len(noises)
    widest = max(noises, key=lambda noise: noise.epsilon_slack)
    cost = small_numeric_slack(widest, epsilon=budget.epsilon, delta=budget.delta, draws=draws)

    if cost is None:
        rule = f"be fewer for epsilon {budget.epsilon:g}, to which float64 would add a hundredth"
        raise ValueError(f"user_windows must {rule}, got {budget.windows!r}")
    return cost, draws * TAIL_DELTA


def _noises_of(step: CentralRound) -> list[NoiseDistribution]:
    """List the draws of a release in one window, each for the largest sensitivity that there is."""
    parts = [part for part in getattr(step, "parts", (step.epsilon,)) if part > 0]
    stddev = getattr(step, "stddev", None)

    if stddev is None:
        return [LaplaceNoise(LARGEST_SENSITIVITY / part) for part in parts]
    return [GaussianNoise(LARGEST_SENSITIVITY * stddev / part**0.5) for part in parts]


class ReleaseWords:
    """Random bits of one release of one round: the owner of the noise is the round.

    Parameters
    ----------
    noise : NoiseSource
        Keyed noise (`meanstream.operators.noise.keyed.KeyedNoise`).
    round_id : str
        Name of the round, such as the estimator and the window; another one for every window.
    stage : int
        Number of the release within the round.
    tally : Tally
        Private: what is about to be noised; part of the key, so that no two different sums share
        their noise.

    Notes
    -----
    **Privacy.** The same secret, round, release and sums give the same noise: a retry repeats what was released.

    Examples
    --------
    >>> from meanstream.operators.noise.keyed import KeyedNoise
    >>> noise = KeyedNoise(bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="docs", purpose="rounds")
    >>> first = ReleaseWords(noise, "2013-01-07", 0, Tally(3, (14,)))
    >>> again = ReleaseWords(noise, "2013-01-07", 0, Tally(3, (14,)))
    >>> bool((first(0) == again(0)).all())
    True
    """

    def __init__(self, noise: NoiseSource, round_id: str, stage: int, tally: Tally) -> None:
        digest = hashlib.blake2b(repr((tally.n, tally.sums)).encode(), digest_size=16).digest()
        halves = np.frombuffer(digest, dtype="<i8").astype(np.int64)
        version = noise.version_of(halves[:1], halves[1:])
        self._noise = noise
        self._ids = NoiseIds(keyed_owner_words([round_id]), np.array([stage], np.int64), version)

    def __call__(self, draw: int) -> Words:
        """128 bits, as a uint64 array (1, 2)."""
        return self._noise.bits(self._ids, CURATOR_SUMS.at(draw))


def central_noised(
    total: int, sensitivity: int, epsilon: float, words: RandomWords, draw: int
) -> int:
    """Noise an exact sum: integer plus discrete Laplace of scale `sensitivity / epsilon`.

    **Privacy.** epsilon-differentially private if no neighboring input changes the sum by more than `sensitivity`.
    """
    return total + int(LaplaceNoise(sensitivity / epsilon).sample(words(draw))[0])


def central_gaussian(
    total: int, sensitivity: int, stddev: float, words: RandomWords, draw: int
) -> int:
    """Noise an exact sum: integer plus Gaussian noise of `sensitivity * stddev`, rounded.

    **Privacy.** If no neighboring input changes the sum by more than `sensitivity`: the Gaussian
    mechanism whose mean moves by at most `1 / stddev` standard deviations.
    """
    noise = GaussianNoise(sensitivity * stddev).sample(words(draw))
    return total + int(np.rint(noise)[0])


def central_noisy_argmax(
    scores: Ints, sensitivity: int, epsilon: float, words: RandomWords, first_draw: int = 0
) -> int:
    """Return the index of the largest noised score, the first of equals.

    Parameters
    ----------
    scores : int array (candidates,)
        Private: how good each public candidate is.
    sensitivity : int
        By how much one user can change a score.
    epsilon : float
        Privacy of the answer.
    words : RandomWords
        Draws `first_draw` to `first_draw + candidates - 1` are used.
    first_draw : int, default 0
        Number of the first draw.

    Notes
    -----
    **Privacy.** epsilon-differentially private: every score gets discrete Laplace noise of scale
    `2 * sensitivity / epsilon`. Given the other noises, a candidate wins if its own noise reaches a threshold, which a
    neighbor moves by at most `2 * sensitivity`. Integers only, where the exponential mechanism, as accurate up to a
    constant, would need exact powers.

    References
    ----------
    C. Dwork, A. Roth, The Algorithmic Foundations of Differential Privacy, 2014, Claim 3.9 (report noisy max).
    """
    bits = np.concatenate([words(first_draw + number) for number in range(len(scores))])
    return int(np.argmax(scores + LaplaceNoise(2 * sensitivity / epsilon).sample(bits)))
