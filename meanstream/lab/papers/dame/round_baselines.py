"""The naive schemes that user-level methods are compared with: item-level, semi and split."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv

from meanstream.lab.papers.kent.univariate import kent_univariate_threshold_size
from meanstream.operators.estimators.one_report import (
    OneReport,
    report_first_sample,
    report_own_mean,
)
from meanstream.operators.noise.random_bits import RandomWords, clip_random_to_unit
from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings, exact_round_dot
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import make_channel
from meanstream.operators.rounds.estimator_traits import BOUNDS, EstimatorTraits
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import LastRound
from meanstream.operators.validation import require, require_positive

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

HALF = 2**19
MAX_VALUES = 2**24


def summed_laplace(
    count: npt.ArrayLike, scale: float, words: RandomWords, first_draw: int
) -> Floats:
    """Draw sums of `count` independent Laplace variables each.

    The difference of two gamma variables.

    Parameters
    ----------
    count : int array (n,)
        How many variables are added up for each user.
    scale : float
        Of one variable.
    words : RandomWords
    first_draw : int
        Uses this draw.

    Returns
    -------
    float array (n,)

    Examples
    --------
    >>> from meanstream.lab.random_words import SeededWords
    >>> noise = summed_laplace(np.full(10_000, 50), 3.0, SeededWords(np.random.default_rng(1), 10_000), 0)
    >>> round(float(noise.var()) / (50 * 2 * 3.0**2), 1)
    1.0
    """
    bits = words(first_draw)
    positive, negative = gammaincinv(np.asarray(count, np.float64), _uniform(bits.T))
    return np.asarray(scale * (positive - negative))


class SummedLaplaceChannel:
    """The sum of several reports of the same value, each with Laplace noise at a share of epsilon.

    Parameters
    ----------
    epsilon : float
        Privacy of all reports together.
    values : int
        Number of reports.

    Notes
    -----
    **Privacy.** Local, epsilon, for the one integer that is published: `values` reports, each with epsilon / values,
    compose to epsilon; that they are added up and rounded to the grid is post-processing. Inversion in floats is not
    as exact as in the other channels (about 1e-13 of the scale): a scheme to compare with, not to protect people.

    Examples
    --------
    >>> channel = SummedLaplaceChannel(1.0, values=100)
    >>> round(float(channel.variance(0.0)), 1)
    800.0
    """

    name = "summed_laplace"
    draws = 1
    step = 1.0 / HALF

    def __init__(self, epsilon: float, *, values: int) -> None:
        require_positive(epsilon=epsilon)
        require(1 <= values <= MAX_VALUES, "values", f"lie between 1 and {MAX_VALUES}", values)
        self.epsilon = epsilon
        self.values = values
        # The value in grid units changes by at most 2 HALF; each of the reports has this scale.
        self.scale = 2.0 * HALF * values / epsilon

        # A gamma variable's tail beyond the mean by 12 deviations and 64 scales is below 2**-53,
        # where the bits end.
        self.high = HALF + math.ceil(self.scale * (12.0 / math.sqrt(values) + 64.0 / values + 1.0))
        self.low = -self.high
        require(
            self.high < 2**62,
            "epsilon",
            f"be larger for {values} values: reports are 64-bit integers",
            epsilon,
        )

    def randomize(self, x: npt.ArrayLike, words: RandomWords, first_draw: int = 0) -> Ints:
        """Private to public: one integer for each value, which is cut to [-1, 1].

        The mean of its reports.
        """
        value = np.rint(clip_random_to_unit(x) * HALF)
        noise = summed_laplace(
            np.full(len(value), self.values), self.scale / self.values, words, first_draw
        )

        return np.asarray(value + np.rint(noise), dtype=np.int64)

    def valid(self, reports: Ints) -> Bools:
        """Public: tell which integers can be reports."""
        return np.asarray((reports >= self.low) & (reports <= self.high))

    def bias(self, x: npt.ArrayLike) -> Floats:
        """Give the error of rounding to the grid: at most half a step."""
        value = clip_random_to_unit(x)
        return np.asarray(np.rint(value * HALF) * self.step - value)

    def variance(self, x: npt.ArrayLike) -> Floats:
        """Variance of `step * report`: that of the noise, and of its rounding."""
        return np.full(np.shape(x), self._variance)

    @property
    def moments(self) -> tuple[float, float]:
        """Two numbers (c0, c1): the second moment is at most `c0 + c1 * x**2`."""
        return self._variance + 2.0 * self.step, 1.0

    @property
    def _variance(self) -> float:
        return (2.0 * self.scale**2 / self.values + 1.0 / 12.0) * self.step**2

    def spend(self) -> float:
        """Privacy of one report."""
        return self.epsilon


def _uniform(bits: Words) -> Floats:
    """Numbers in (0, 1), never on an end.

    The middles of 2**52 equal parts, so that also the largest is below 1.
    """
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


READINGS = ("one_bit", "laplace")
SUMMARIES = {"sample": report_first_sample, "mean": report_own_mean}


class Duchi(OneReport):
    """One sample, or one mean, of each user through one bit or with Laplace noise.

    Released to the statistician: one integer from each user. Answers the mean over users.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    sizes : SizeDistribution, optional
        Law of a user's number of samples (public); only used to predict.
    mode : {"tuned", "paper"}
        The same in both; the improved one is `OneShot`.
    level : float
        Nominal coverage of the interval.
    reading : {"one_bit", "laplace"}
        The report is one of two points, or the value plus Laplace noise of scale `2 / epsilon`
        (their univariate Corollary 1).
    summary : {"sample", "mean"}
        What a user reports: its first sample, or the mean of all. With one bit the error is the
        same.

    Notes
    -----
    **Privacy.** User-level, local, epsilon, for one report; see the channel. That a user took part is public.

    Raises
    ------
    ValueError
        If an option is out of range.

    Examples
    --------
    >>> duchi = Duchi(epsilon=22 / 35, users=10_000, mode="paper")
    >>> round(duchi.describe()["predicted_stderr"] ** 2, 6)
    0.00108

    References
    ----------
    J. Duchi, M. Jordan, M. Wainwright: Minimax optimal procedures for locally private estimation, JASA 2018.
    """

    name = "duchi"
    options = COMMON_OPTIONS | {"reading", "summary"}

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        reading: str = "one_bit",
        summary: str = "sample",
    ) -> None:
        require(reading in READINGS, "reading", f"be one of {', '.join(READINGS)}", reading)
        require(summary in SUMMARIES, "summary", f"be one of {', '.join(SUMMARIES)}", summary)
        settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        self.reading = reading
        self.summary = summary
        self._report_once(settings, make_channel(reading, epsilon), SUMMARIES[summary])

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen, and the predicted standard error on [-1, 1]."""
        averaging = 1.0 if self.summary == "sample" else self._settings.averaging
        c0, c1 = self._channel.moments
        return self._settings.describe() | {
            "reading": self.reading,
            "summary": self.summary,
            "shares": [1.0],
            "predicted_stderr": math.sqrt((c0 + c1 * averaging) / self._settings.users),
        }


class Semi(OneReport):
    """Every user reports the mean of its samples with Laplace noise for the whole range.

    Released to the statistician: one integer from each user. Answers the mean over users.

    Parameters
    ----------
    epsilon, users, sizes, mode, level
        As in `OneShot`; the same in both modes.

    Notes
    -----
    **Privacy.** User-level, local, epsilon, for one report. (The authors count it as neither user- nor item-level: it
    is private at the level of users, but its noise does not fall with the number of samples.)

    Examples
    --------
    >>> round(Semi(epsilon=1.0, users=1000).describe()["predicted_stderr"], 3)
    0.095

    References
    ----------
    A. Kent, T. Berrett, Y. Yu: Rate optimality and phase transition for user-level local differential privacy,
    Section 6.1.
    """

    name = "semi"
    options = COMMON_OPTIONS

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
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        self._report_once(settings, make_channel("laplace", epsilon))

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen, and the predicted standard error on [-1, 1]."""
        return _described(self._settings, self._channel)


class Split(OneReport):
    """Every user splits its epsilon between T values and reports each with Laplace noise.

    Their mean is what counts.

    Released to the statistician: from each user the sum of its T noised values, one integer.
    Answers the mean over users.

    Parameters
    ----------
    epsilon, users, mode, level
        As in `OneShot`; the same in both modes.
    sizes : SizeDistribution
        Law of a user's number of samples (public).
    threshold : {"min", "median"} or int
        The number T of values, the same for all users.

    Notes
    -----
    **Privacy.** User-level, local: T values, each reported with epsilon / T. T does not depend on the user's number of
    samples, which its noise would tell: every user reports its mean T times (the sum of T samples is the same in
    expectation). Publishing only the sum is post-processing.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> split = Split(epsilon=1.0, users=1000, sizes=SizeDistribution.parse("point:100"))
    >>> round(split.describe()["predicted_stderr"], 3)
    0.894

    References
    ----------
    A. Kent, T. Berrett, Y. Yu, Section 6.1.
    """

    name = "split"
    options = COMMON_OPTIONS | {"threshold"}

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        threshold: str | int = "min",
    ) -> None:
        settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        self.values = kent_univariate_threshold_size(threshold, settings.known_sizes)
        self._report_once(settings, SummedLaplaceChannel(epsilon, values=self.values))

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen, and the predicted standard error on [-1, 1]."""
        return _described(self._settings, self._channel) | {"effective_size": self.values}


class Item(EstimatorTraits):
    """Every sample is reported with Laplace noise of its own.

    A bound on what user-level methods can reach.

    Released to the statistician: from each user the sum of its noised samples, and their number.
    Answers the mean over samples, which is that over users where sizes do not depend on the data.

    Parameters
    ----------
    epsilon : float
        Privacy of **one sample**.
    users, sizes, mode, level
        As in `OneShot`; the same in both modes.

    Notes
    -----
    **Privacy.** Sample-level, not user-level: epsilon protects the value of each single sample, and a user's number of
    samples is public. Anyone who knows that a user has m samples learns its mean with noise of `2 sqrt(2 / m) /
    epsilon`. Here for comparison only.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> item = Item(epsilon=1.0, users=1000, sizes=SizeDistribution.parse("point:100"))
    >>> item.privacy_unit, round(item.describe()["predicted_stderr"], 4)
    ('sample', 0.0095)

    References
    ----------
    A. Kent, T. Berrett, Y. Yu, Section 6.1 ("full item level").
    """

    name = "item"
    assumes = BOUNDS
    of_a_paper = False
    estimand = "mean over samples: larger users weigh more"
    trust = "local"
    privacy_unit = "sample"
    options = COMMON_OPTIONS

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
    ) -> None:
        self._settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        self.mode = mode
        self.epsilon = epsilon
        self.rounds = (_ItemRound(self._settings),)
        self.shares = (1.0,)

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen, and the predicted standard error on [-1, 1]."""
        sizes = self._settings.sizes
        samples = self._settings.users * (1.0 if sizes is None else sizes.mean)
        return self._settings.describe() | {
            "privacy_unit": self.privacy_unit,
            "shares": [1.0],
            "predicted_stderr": math.sqrt((1.0 + 8.0 / self.epsilon**2) / samples),
        }


class _ItemRound(LastRound):
    """The one stage of `Item`.

    Notes
    -----
    **Privacy.** Of one sample, epsilon: the sum of samples that each carry Laplace noise of scale `2 / epsilon`. The
    number of samples is published as it is.
    """

    name = "item"

    def __init__(self, settings: Settings) -> None:
        self.epsilon = settings.epsilon
        self._settings = settings

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:  # noqa: ARG002 - the first
        """Private to public: sum of the user's noised samples in grid units, and their number."""
        noise = summed_laplace(summaries.count, 2.0 * HALF / self.epsilon, words, 0)
        total = np.rint(summaries.mean * summaries.count * HALF + noise)
        return np.stack([total.astype(np.int64), summaries.count], axis=1)

    def valid(self, reports: Reports, public: Public) -> Bools:  # noqa: ARG002 - the first stage
        """Public: tell which rows have samples, and a sum that floats can hold."""
        return np.asarray((reports[:, 1] >= 1) & (np.abs(reports[:, 0]) < 2**60), dtype=np.bool_)

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - the first stage
        """Public: sums of both numbers, their squares and their product, exactly."""
        if not len(reports):
            return Tally()
        total, count = np.ascontiguousarray(reports.T)
        squares = (
            exact_round_dot(total, total),
            exact_round_dot(total, count),
            exact_round_dot(count, count),
        )

        return Tally(len(reports), (int(total.sum()), int(count.sum()), *squares))

    def decode(self, tally: Tally, public: Public) -> Estimate:  # noqa: ARG002 - the first stage
        """Public: the ratio of the two sums; its error from how users' sums leave it."""
        if not tally.n:
            return self._settings.no_answer(n_users=0)
        total, count, total2, product, count2 = tally.sums
        mean = total / (count * HALF)

        if tally.n == 1:
            return self._settings.no_answer(n_users=1, unclipped=mean)
        # n sum (total - ratio count)**2 with ratio = sum total / sum count, times (sum count)**2:
        # exact.
        left = total2 * count**2 - 2 * product * total * count + count2 * total**2
        stderr = math.sqrt(left / count**2 * tally.n / (tally.n - 1)) / (count * HALF)
        least = math.sqrt(8.0 / self.epsilon**2 / count)

        return self._settings.answer(mean, max(stderr, least), n_users=tally.n)


def _described(settings: Settings, channel: Mechanism) -> dict[str, Any]:
    """Describe one report of a user's mean through a channel."""
    c0, c1 = channel.moments
    return settings.describe() | {
        "shares": [1.0],
        "predicted_stderr": math.sqrt((c0 + c1 * settings.averaging) / settings.users),
    }
