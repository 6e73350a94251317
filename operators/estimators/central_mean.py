"""The mean over users by a trusted curator: each user's own mean, added up exactly, noised once."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtri

from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.noise.window_budget import WindowBudget
from meanstream.operators.rounds.base import Settings
from meanstream.operators.rounds.central_rounds import Rows, central_gaussian, central_noised
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

    With `stddev` the noise is Gaussian, of standard deviation `STEPS * stddev / sqrt(part)` each,
    and parts add to 1: a user moves both sums together by at most `1 / stddev` standard deviations.
    """

    epsilon: float
    parts: tuple[float, float]
    """Of epsilon; with `stddev`, shares of the squared shift of a Gaussian."""
    settings: Settings
    cohort: int = 0
    payers: str = "users"
    name: str = "mean"
    delta: float = 0.0
    stddev: float | None = None

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
        measures = self.parts[1] > 0
        noised = self._noised(total, 0, words)
        measured = self._noised(squares, 1, words) if measures else None

        if not n:
            return self.settings.no_answer(n_users=0)
        mean = 2.0 * noised / STEPS / n - 1.0
        inside = min(max(mean, -1.0), 1.0)
        variance = 1.0 - inside**2

        if measured is not None:
            seen = measured / STEPS / n - inside**2
            variance = min(max(seen, 0.0) + self.noise_stddev(1, n), variance)

        level = self.settings.level
        sampling = unseen_margin(inside, variance, n, far=0.0, level=level)
        noise, farthest, shown = self._noise_of_mean(n)

        return self.settings.answer(
            mean,
            math.hypot(math.sqrt(variance / n), noise),
            n_users=n,
            stages=({"round": self.name, **shown, "stddev_of_users": math.sqrt(variance)},),
            margin=math.hypot(sampling, farthest),
        )

    def _noise_of_mean(self, users: int) -> tuple[float, float, dict[str, float]]:
        """Standard deviation of the mean's noise, its quantile at the level, and how it is shown.

        A Laplace error is shown by its scale, a Gaussian one by its standard deviation.
        """
        level = self.settings.level
        if self.stddev is None:
            scale = 2.0 / (self.parts[0] * users)
            farthest = -math.log(1.0 - level) * scale
            return math.sqrt(2.0) * scale, farthest, {"noise": scale}

        noise = 2.0 * self.noise_stddev(0, users)
        return noise, float(ndtri(0.5 * (1.0 + level))) * noise, {"noise_stddev": noise}

    def noise_stddev(self, number: int, users: int = 1) -> float:
        """Standard deviation of the noise of a sum over that many users, per user."""
        part = self.parts[number]
        if self.stddev is None:
            return math.sqrt(2.0) / (part * users)
        return self.stddev / math.sqrt(part) / users

    def _noised(self, total: int, number: int, words: RandomWords) -> int:
        """Noise one of the sums."""
        if self.stddev is None:
            return central_noised(total, STEPS, self.parts[number], words, number)
        return central_gaussian(total, STEPS, self.noise_stddev(number), words, number)


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
    (1, 1e-6), so that there is no choice. Over many windows of a user there is: see `over_windows`.

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
    takes_gaussian_noise = True
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

    def over_windows(self, budget: WindowBudget) -> Self:
        """Give the same with Gaussian noise that keeps a budget for all windows of a user together.

        Its epsilon and delta are then those of all these windows.

        Notes
        -----
        **Privacy.** In each of W windows a user moves both sums by at most `1 / stddev` standard
        deviations, with `stddev = sqrt(W) s` and s that of one Gaussian sum at (epsilon, delta): in
        all windows together by `1 / s`.
        """
        stddev = budget.gaussian_stddev
        if stddev is None:
            raise ValueError(f"delta must be positive for Gaussian noise, got {budget.delta!r}")

        # The spread is measured where Laplace noise as wide as this would have measured it.
        as_laplace = math.sqrt(2.0) / stddev
        spread = SPREAD_SHARE if self._settings.users * as_laplace >= SPREAD_PAYS else 0.0

        over = copy.copy(self)
        over.epsilon = budget.epsilon
        over.delta = budget.delta
        over._settings = replace(self._settings, epsilon=budget.epsilon)
        over.rounds = (
            NoisyMean(
                epsilon=budget.epsilon,
                delta=budget.delta,
                parts=(1.0 - spread, spread),
                settings=over._settings,
                stddev=stddev,
            ),
        )

        return over

    def worst_mse(self) -> float:
        """Predict the mean squared error where users differ as much as they can.

        Half of them at either end.
        """
        return 1.0 / self._settings.users + self._noise_stddev**2

    def describe(self) -> dict[str, Any]:
        """Parameters chosen, and the error predicted for values at the ends and users alike."""
        sizes = self._settings.sizes
        averaging = 1.0 if sizes is None else float((sizes.probability / sizes.support).sum())
        privacy = self._noise_stddev
        stddev = self.rounds[0].stddev
        gaussian = {} if stddev is None else {"noise": "gaussian", "stddev": stddev}
        return self._settings.describe() | {
            "replaced": "all of its samples, their number included",
            "spend": {"users": [self.epsilon, self.delta]},
            "privacy_stderr": privacy,
            "predicted_stderr": math.hypot(math.sqrt(averaging / self._settings.users), privacy),
            **gaussian,
        }

    @property
    def _noise_stddev(self) -> float:
        return 2.0 * self.rounds[0].noise_stddev(0, self._settings.users)
