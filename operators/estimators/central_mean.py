"""The mean over users by a trusted curator: each user's own mean, added up exactly, noised once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.rounds.base import Settings
from meanstream.operators.rounds.central_rounds import Rows, central_noised
from meanstream.operators.rounds.estimator_traits import EstimatorTraits
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries, Tally
from meanstream.operators.rounds.unseen import unseen_margin
from meanstream.operators.rounds.user_sizes import SizeDistribution

STEPS = 2**20
"""Of [0, 1], on which means and squares are held as integers."""

SPREAD_SHARE = 0.1
SPREAD_PAYS = 200.0
"""This part of epsilon measures the spread of users' means if users times epsilon are this many;
else the interval takes the largest possible spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyMean:
    """Adds up each user's own mean, and how far it lies from the middle, squared.

    Both sums are noised once.

    Notes
    -----
    **Privacy.** A user's part of each sum lies in `0..STEPS` whatever it holds, its number of samples included, so that
    replacing it changes the sum by at most `STEPS`: discrete Laplace noise of scale `STEPS / part` each. How many users
    there are is public.
    """

    epsilon: float
    parts: tuple[float, float]
    settings: Settings
    cohort: int = 0
    payers: str = "users"
    name: str = "mean"
    delta: float = 0.0

    def encode(self, summaries: Summaries, public: Public) -> Rows:  # noqa: ARG002 - the only release
        """Two integers in `0..STEPS` per user."""
        place = summaries.mean
        return np.rint(STEPS * np.stack([0.5 * (place + 1.0), place**2], axis=1)).astype(np.int64)

    def tally(self, rows: Rows, public: Public) -> Tally:  # noqa: ARG002 - the only release
        """Add them up."""
        return Tally(len(rows), tuple(rows.sum(axis=0).tolist()))

    def release(self, tally: Tally, public: Public, words: RandomWords) -> Estimate:  # noqa: ARG002 - the only release
        """Answer with the noised mean.

        The interval knows of the noise, of the spread and of users no one has seen.
        """
        n = tally.n
        (total, squares) = tally.sums or (0, 0)
        first, second = self.parts
        noised = central_noised(total, STEPS, first, words, 0)
        measured = central_noised(squares, STEPS, second, words, 1) if second else None

        if not n:
            return self.settings.no_answer(n_users=0)
        mean = 2.0 * noised / STEPS / n - 1.0
        inside = min(max(mean, -1.0), 1.0)
        variance = 1.0 - inside**2

        if measured is not None:
            seen = measured / STEPS / n - inside**2
            variance = min(max(seen, 0.0) + math.sqrt(2.0) / (second * n), variance)

        noise = 2.0 / (first * n)
        level = self.settings.level
        sampling = unseen_margin(inside, variance, n, far=0.0, level=level)
        return self.settings.answer(
            mean,
            math.hypot(math.sqrt(variance / n), math.sqrt(2.0) * noise),
            n_users=n,
            stages=({"round": self.name, "noise": noise, "stddev_of_users": math.sqrt(variance)},),
            margin=math.hypot(sampling, -math.log(1.0 - level) * noise),
        )


class CentralMean(EstimatorTraits):
    """`central.mean`: the mean over users, each of whom counts once, by a trusted curator.

    Pure epsilon.

    Released to everyone: one noised sum of users' own means, and where there are users enough one
    of their squares.

    Parameters
    ----------
    epsilon : float
        Privacy of everything that one user holds, its number of samples included.
    users : int
        How many users take part (public).
    sizes : SizeDistribution, optional
        For `predicted_stderr` only; nothing is assumed of it.
    mode : {"tuned", "paper"}
        The same in both: no paper has it.
    level : float, default 0.95
        Nominal coverage of the interval.

    Notes
    -----
    **Privacy.** (epsilon, 0) towards replacing everything that one user holds, against everyone but the curator. One
    number is noised: Laplace noise of pure epsilon has a third of the standard deviation of Gaussian noise at
    (1, 1e-6), so that there is no choice.

    Nothing is assumed of the users: the interval holds for few of them, for rare groups far out,
    and where sizes go with means, which the estimators of `cummings` weigh.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Examples
    --------
    >>> round(CentralMean(epsilon=1.0, users=10_000).describe()["predicted_stderr"], 4)
    0.01
    """

    options: ClassVar[frozenset[str]] = frozenset({"sizes", "mode", "level"})
    name = "central.mean"
    assumes = "nothing about users; a trusted curator, who sees every sample"
    of_a_paper = False
    candidate = True
    taken_for = "curator"
    trust = "central"
    protects_sizes = True
    delta = 0.0
    shares: tuple[float, ...] = (1.0,)

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
    ) -> None:
        settings = Settings(
            method=self.name,
            epsilon=epsilon,
            users=users,
            sizes=sizes,
            mode=mode,
            level=level,
            trust="central",
        )

        self.epsilon = epsilon
        self.mode = mode
        self._settings = settings
        spread = SPREAD_SHARE * epsilon if users * epsilon >= SPREAD_PAYS else 0.0
        self.rounds = (
            NoisyMean(epsilon=epsilon, parts=(epsilon - spread, spread), settings=settings),
        )

    def worst_mse(self) -> float:
        """Predict the mean squared error where users differ as much as they can.

        Half of them at either end.
        """
        return 1.0 / self._settings.users + 2.0 * self._noise**2

    def describe(self) -> dict[str, Any]:
        """Parameters chosen, and the error predicted for values at the ends and users alike."""
        sizes = self._settings.sizes
        averaging = 1.0 if sizes is None else float((sizes.probability / sizes.support).sum())
        privacy = math.sqrt(2.0) * self._noise
        return self._settings.describe() | {
            "replaced": "all of its samples, their number included",
            "spend": {"users": [self.epsilon, 0.0]},
            "privacy_stderr": privacy,
            "predicted_stderr": math.hypot(math.sqrt(averaging / self._settings.users), privacy),
        }

    @property
    def _noise(self) -> float:
        return 2.0 / (self.rounds[0].parts[0] * self._settings.users)
