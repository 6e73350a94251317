"""The law of the noise from public releases alone: its scale cannot be smaller than what was promised.

Whoever reads releases knows neither samples nor noise. But the mechanism's filter turns an agent's sums into increments
with fresh, independent noise, whose law is known; what an agent's mean explains is taken off, and samples can only add
to what is left. So what is left bounds the noise from above, hence epsilon from below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaincinv

from meanstream.operators.agents.histogram import SAMPLE_SENSITIVITY
from meanstream.operators.agents.settings import AgentsSettings
from meanstream.operators.agents.spread_vote import PAIR_SENSITIVITY
from meanstream.operators.audit.counters import counter_response
from meanstream.operators.audit.one_run import ALARM_ERROR, CONFIDENCE
from meanstream.operators.audit.record import AuditRow
from meanstream.operators.noise.calibration import calibrated_analytic_stddev
from meanstream.operators.noise.group import group_epsilon
from meanstream.operators.noise.keyed import GaussianNoise, LaplaceNoise
from meanstream.operators.records import VOTE_BINS, Floats, Ints, ReleaseColumns

MOST_RELEASES = 16
"""Of an agent, from its first: later ones comprise so many samples that these hide the noise."""
LEAST_FREEDOM = 1000
"""Degrees of freedom below which nothing is said of the scale."""
LEAST_NOISE = 1.0
"""Deviation, in units of the integers that are released: with less, rounding adds another variance than a twelfth."""
LAPLACE_SQUARES = 0.4
"""A square of a Laplace draw tells as little of the scale as so many of Gaussian ones: its variance is 5 to 2."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """Noised counts by bins that add up to a public number: how many bins, their noise, what moves them, of what."""

    bins: int
    noise: GaussianNoise
    sensitivity: float
    of: str


def _counted(settings: AgentsSettings) -> dict[str, _Counted]:
    """Give what settings have of them."""
    vote, histogram, found = settings.vote, settings.histogram, {}
    if vote is not None:
        found["votes"] = _Counted(VOTE_BINS, vote.noise, PAIR_SENSITIVITY, "pairs")
    if histogram is not None:
        found["histograms"] = _Counted(histogram.bins, histogram.noise, SAMPLE_SENSITIVITY, "samples")
    return found


class NoiseLaw:
    """Adds up, agent by agent, how large what is left of the releases is, in units of the declared noise.

    Parameters
    ----------
    settings : AgentsSettings
        What was declared.

    Examples
    --------
    >>> from meanstream.operators.agents.agents import Agents
    >>> from meanstream.operators.noise.keyed import KeyedNoise
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, horizon=3)
    >>> key = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
    >>> agents = Agents(settings, KeyedNoise(key, deployment="doc", purpose="agents"))
    >>> agents.add_agents([f"agent {i}" for i in range(2000)])
    >>> samples = np.repeat(np.arange(2000), 20), np.random.default_rng(1).beta(2, 2, 40_000), np.zeros(40_000)
    >>> law = NoiseLaw(settings)
    >>> law.take(agents.update(*samples).releases)
    >>> law.row("releases").violated
    False
    """

    def __init__(self, settings: AgentsSettings) -> None:
        self._settings = settings
        most = min(settings.horizon, MOST_RELEASES)
        # Releases that forget are no prefix sums: nothing is said of them.
        self._unknown = (
            "its releases forget"
            if settings.remembers.forgets
            else "less than the integers' rounding"
            if settings.fresh.variance < LEAST_NOISE**2
            else None
        )
        self._response = counter_response(settings.mechanism, most)
        self._parts: list[tuple[Ints, Ints, Ints, Floats]] = []
        self._counted = _counted(settings)
        self._counts: dict[str, list[Ints]] = {kind: [] for kind in self._counted}

    def take(self, releases: ReleaseColumns) -> None:
        """Take releases, in any order, each id once."""
        for kind, counts in self._counts.items():
            said = releases.votes if kind == "votes" else releases.histogram
            counts.append(np.column_stack([releases.agent, said[:, 0], said[:, 2:].sum(axis=1) - said[:, 1]]))
        if self._unknown is not None:
            return
        early = (releases.index >= 1) & (releases.index <= len(self._response))
        fields = releases.agent, releases.index, releases.count, releases.total.astype(np.float64)
        self._parts.append(tuple(field[early] for field in fields))  # type: ignore[arg-type]

    def row(self, name: str) -> AuditRow:
        """Say what the releases prove."""
        left, freedom = self._left()
        settings = self._settings
        laplace = isinstance(settings.fresh, LaplaceNoise)
        claim = settings.epsilon if laplace else 1.0 / calibrated_analytic_stddev(settings.epsilon, settings.delta)
        ratio = left / max(freedom, 1)
        squares = freedom * (LAPLACE_SQUARES if laplace else 1.0)

        def epsilon(share: float, error: float) -> float:
            scale = _most_scale(share, squares, error)
            return claim / scale if laplace else group_epsilon(claim / scale, settings.delta)

        enough = freedom >= LEAST_FREEDOM
        why = self._unknown or "too few releases"
        told = f"{math.sqrt(ratio):.4f} of the declared one" if enough else f"unknown: {why}"
        return AuditRow(
            name=name,
            claimed=settings.epsilon,
            delta=0.0 if laplace else settings.delta,
            proved=epsilon(ratio, 1.0 - CONFIDENCE) if enough else 0.0,
            ceiling=epsilon(1.0, 1.0 - CONFIDENCE) if enough else 0.0,
            alarm=epsilon(ratio, ALARM_ERROR) if enough else 0.0,
            method=f"scale of the noise {'at most ' if enough else ''}{told}, {freedom:,} degrees of freedom",
            assumption="samples only add to what is seen of the noise; that of votes is off by as much",
        )

    def rows_of_counts(self, name: str) -> Iterator[AuditRow]:
        """Say what votes and histograms prove, where there are some; each row has the name and what it is of."""
        for kind in self._counted:
            yield self.row_of_counts(kind, f"{name}.{kind}")

    def row_of_counts(self, kind: str, name: str) -> AuditRow:
        """Say what "votes" or "histograms" prove.

        Every pair, or sample, is in one bin, and how many there are is public: what the bins add up to beyond that is
        noise, whatever the samples are.
        """
        settings, counted = self._settings, self._counted[kind]
        rounds = counted.noise.stddev < LEAST_NOISE
        left, freedom = (0.0, 0) if rounds else self._left_of_counts(kind)
        ratio = left / max(freedom, 1)
        mu = counted.sensitivity * (settings.per_person or 1) / counted.noise.stddev

        def epsilon(share: float, error: float) -> float:
            return group_epsilon(mu / _most_scale(share, freedom, error), settings.delta)

        enough = freedom >= LEAST_FREEDOM
        why = "less than the integers' rounding" if rounds else f"too few {kind}"
        told = f"{math.sqrt(ratio):.4f} of the declared one" if enough else f"unknown: {why}"
        return AuditRow(
            name=name,
            claimed=group_epsilon(mu, settings.delta),
            delta=settings.delta,
            proved=epsilon(ratio, 1.0 - CONFIDENCE) if enough else 0.0,
            ceiling=epsilon(1.0, 1.0 - CONFIDENCE) if enough else 0.0,
            alarm=epsilon(ratio, ALARM_ERROR) if enough else 0.0,
            method=f"scale of the noise in {kind} {told}, {freedom:,} degrees of freedom",
            assumption=f"none of the samples: bins add up to the public number of {counted.of}",
        )

    def _left_of_counts(self, kind: str) -> tuple[float, int]:
        """Sum of squares of what bins add up to beyond what they count, in variances of that, and its freedom."""
        counts = np.unique(np.concatenate([np.zeros((0, 3), np.int64), *self._counts[kind]]), axis=0)
        agent, number, beyond = counts[counts[:, 1] > 0].T
        same = np.diff(agent, prepend=-1) == 0
        new = np.where(same, np.diff(number, prepend=0), number)
        noise = np.where(same, np.diff(beyond, prepend=0), beyond).astype(np.float64)
        some = new > 0
        of_one = self._counted[kind].bins * (self._counted[kind].noise.variance + 1 / 12)
        return float((noise[some] ** 2 / new[some]).sum()) / of_one, int(some.sum())

    def _left(self) -> tuple[float, int]:
        """Sum of squares beyond each agent's mean, in variances of a draw, and its degrees of freedom."""
        if not self._parts:
            return 0.0, 0
        agent, index, count, total = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        n, most = int(agent.max(initial=-1)) + 1, len(self._response)
        counts, totals = np.zeros((n, most), np.int64), np.full((n, most), np.nan)
        counts[agent, index - 1], totals[agent, index - 1] = count, total
        # What comes after a gap is not used, nor increments whose samples could vary more than the noise.
        added = np.diff(counts, axis=1, prepend=0)
        usable = ~np.isnan(totals) & (added <= max(2.0, self._settings.fresh.variance / self._settings.grid.span**2))
        lengths = np.where(usable.all(axis=1), most, np.argmin(usable, axis=1))
        left, freedom = 0.0, 0
        for length in range(2, most + 1):
            rows = lengths == length
            if rows.any():
                filtered = self._response[:length, :length]
                seen = solve_triangular(filtered, totals[rows, :length].T, lower=True).T
                size = solve_triangular(filtered, counts[rows, :length].T.astype(np.float64), lower=True).T
                fitted = (seen * size).sum(axis=1) ** 2 / (size**2).sum(axis=1)
                left += float(((seen**2).sum(axis=1) - fitted).sum())
                freedom += int(rows.sum()) * (length - 1)
        return left / self._settings.fresh.variance, freedom


def _most_scale(share: float, squares: float, error: float) -> float:
    """Bound a scale from above by the mean of so many squares of normal draws; wrong with probability `error`."""
    return math.sqrt(max(share * 0.5 * squares / float(gammaincinv(0.5 * squares, error)), 1e-12))
