"""What is requested of agents' distributions, and the answers to all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.own_histogram import HistogramColumns
from meanstream.operators.collaboration.shares.shares_posterior import (
    SharesPosterior,
    own_shares,
    released_shares,
)
from meanstream.operators.collaboration.shares.shares_prior import (
    NoisedShares,
    SharesPrior,
    fit_shares_prior,
    sampled_histograms,
)
from meanstream.operators.collaboration.shares.shares_quantiles import BinnedLaw
from meanstream.operators.records import Floats, Ints

CHUNK = 8192
"""Agents that are answered at a time."""


def query_labels(quantiles: Sequence[float], exceeds: Sequence[float]) -> list[str]:
    """Name what agents are told, quantiles first.

    Examples
    --------
    >>> query_labels([0.5, 0.9], [30.0])
    ['quantile 0.5', 'quantile 0.9', 'share above 30']
    """
    return [*(f"quantile {q:g}" for q in quantiles), *(f"share above {t:g}" for t in exceeds)]


@dataclass(frozen=True, slots=True)
class SharesAnswers:
    """Private or public, as what they are made of: each agent's answers, with their intervals.

    Attributes
    ----------
    quantiles : float array (n, questions, 3)
        Value, lower and upper end, in the value's unit.
    exceeds : float array (n, questions, 3)
        Share of the samples above each threshold, lower and upper end.
    """

    quantiles: Floats
    exceeds: Floats


@dataclass(frozen=True, slots=True)
class ShareQueries:
    """Quantiles and exceedances that every agent is told.

    Parameters
    ----------
    settings : AgentsSettings
        With a histogram, whose thresholds are the exceedances.
    quantiles : tuple of float
        Each in (0, 1).
    level : float
        Nominal coverage of the intervals.
    """

    settings: AgentsSettings
    quantiles: tuple[float, ...]
    level: float

    @property
    def law(self) -> BinnedLaw:
        """Where the bins lie."""
        return BinnedLaw(self.settings.lower, self.settings.upper, self.settings.exceeds)

    def noised(self, found: HistogramColumns) -> NoisedShares:
        """Public: histograms with the variance of their noise."""
        assert self.settings.histogram is not None  # noqa: S101 - settings have one
        noise = self.settings.histogram.noise.variance
        return NoisedShares.of(found.counts, found.samples, found.number, noise)

    def fit(self, found: HistogramColumns, key: Ints) -> SharesPrior:
        """Public: learn the prior from the newest histogram of every agent, given the hash of each agent's name.

        The same on every host, in whatever order the agents come.
        """
        return fit_shares_prior(self.noised(found.take(sampled_histograms(key))), self.law.widths)

    def own(self, prior: SharesPrior, cells: Ints) -> SharesAnswers:
        """Private: answer agents by their own samples, counted by cells.

        Each answer for that agent only.
        """
        return self._answers(len(cells), lambda part: own_shares(prior, cells[part]))

    def released(self, prior: SharesPrior, found: HistogramColumns) -> SharesAnswers:
        """Public: answer agents by what they have released."""
        noised = self.noised(found)
        return self._answers(
            len(found.agent), lambda part: released_shares(prior, noised.take(part))
        )

    def _answers(self, n: int, shares: Callable[[slice], SharesPosterior]) -> SharesAnswers:
        quantiles = np.zeros((n, len(self.quantiles), 3))
        exceeds = np.zeros((n, len(self.settings.exceeds), 3))
        for start in range(0, n, CHUNK):
            rows = slice(start, start + CHUNK)
            posterior = shares(rows)
            for i, q in enumerate(self.quantiles):
                quantiles[rows, i] = self.law.quantile(posterior, q, level=self.level)

            for i, threshold in enumerate(self.settings.exceeds):
                exceeds[rows, i] = self.law.exceedance(posterior, threshold, level=self.level)

        return SharesAnswers(quantiles, exceeds)
