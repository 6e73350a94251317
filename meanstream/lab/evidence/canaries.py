"""Agents as canaries.

Samples at a bound by coins of their own, and the most powerful score of all that is released.

Anything that hosts agents can be given these samples; `scores` reads what came out. The adversary
knows everything but one coin: all other samples, the settings, and the releases of this agent,
means, votes and histograms together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from meanstream.lab.evidence.counters_audit import counter_columns, counter_response
from meanstream.lab.evidence.noise_draws import CountDraws, NoiseDraws
from meanstream.lab.evidence.one_run import CONFIDENCE
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.half_life_memory import DecayedSums, KeptSums, effective_counts
from meanstream.operators.agents.own_histogram import SampleHistogram
from meanstream.operators.agents.vote_of_spread import FACTOR, SpreadVote
from meanstream.operators.counters.windowed import Sliding
from meanstream.operators.noise.calibration import calibrated_analytic_stddev
from meanstream.operators.noise.distributions import LaplaceNoise
from meanstream.operators.records import VOTE_BINS, Bools, Floats, Ints, Words
from meanstream.operators.validation import require, require_least

MOST_CANARIES = 9
"""Coins of one agent; the votes and histograms of its later samples come after many releases."""
BEYOND = 2
"""Releases that are requested past the horizon."""
MOST_RELEASES = 200
"""Of an agent, from its first: where there are more, what a sample changes in later ones is left
out."""
_CALIBRATED = ("mechanism", "fresh", "vote", "histogram")
COUNTED = ("votes", "histograms")
"""What is counted in bins, each of which has noise of its own."""
_LEAST_CHANCE = 1e-300
"""Of a draw, where it is farther out than noise can be."""
ENOUGH = 0.9999
"""Of the squared norm of a column without end: so much is in the releases that are requested."""


def compressed(settings: AgentsSettings, name: str | None = None) -> AgentsSettings:
    """Return the same mechanism with a release each second of event time.

    The calibration depends on the number of releases alone, so an audit need not wait for a
    schedule. The counter is kept as it is: `optimal` is made for a schedule, and that of a memory
    for the decays between releases. Sums that forget do not begin again here: whether they do is a
    function of the noised sums, which are audited.
    """
    memory = "half-life:8s" if settings.remembers.forgets else settings.memory
    if isinstance(settings.mechanism, Sliding):
        memory = f"window:{settings.mechanism.window}s"

    audited = replace(
        settings, schedule="every:1s", memory=memory, name=settings.name if name is None else name
    )
    audited.__dict__.update(
        {name_of_law: getattr(settings, name_of_law) for name_of_law in _CALIBRATED}
    )

    if isinstance(audited.kept, KeptSums):
        sums = DecayedSums(audited.kept.sums.counter, audited.kept.sums.fresh)
        audited.__dict__["kept"] = KeptSums(sums, audited.kept.times, audited.grid, audited.vote)
    elif audited.kept is not None:
        audited.__dict__["kept"] = replace(
            audited.kept, sums=replace(audited.kept.sums, tests=False)
        )

    return audited


def put_calibration(settings: AgentsSettings, calibrated: AgentsSettings) -> None:
    """Put what `compressed` has kept in place of what these settings would make of their own schedule."""
    settings.__dict__.update({name: getattr(calibrated, name) for name in (*_CALIBRATED, "kept")})


def _audited_releases(settings: AgentsSettings) -> int:
    """Count the releases of an agent that an audit asks for.

    All of its horizon, if these are not too many.

    Examples
    --------
    >>> given = {"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6}
    >>> more = {}, {"horizon": 10_000}, {"memory": "half-life:100"}
    >>> [_audited_releases(AgentsSettings(**given, **one)) for one in more]
    [40, 200, 38]
    """
    if settings.most_releases is not None:
        return min(settings.horizon, MOST_RELEASES)
    squares = np.cumsum(counter_columns(settings.mechanism, MOST_RELEASES)[:, 0] ** 2)
    return int(np.searchsorted(squares, ENOUGH * squares[-1])) + 1


@dataclass(slots=True)
class CanaryOutputs:
    """Public: what came out about n agents.

    Attributes
    ----------
    totals : float array (n, horizon)
        Published sums in grid units, the mean of all values that one release id had; NaN where
        there is none.
    votes : int array (n, m, 2 + bins)
        Votes so far, with the first m releases; empty without votes.
    histogram : int array (n, m, 2 + bins)
        Histograms so far, likewise.
    beyond : int
        Releases past the horizon.
    changed : int
        Releases whose id had another value before.
    """

    totals: Floats
    votes: Ints
    histogram: Ints
    beyond: int = 0
    changed: int = 0
    seen: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.seen = np.zeros(self.totals.shape, np.int64)

    @classmethod
    def none(cls, agents: int, settings: AgentsSettings) -> CanaryOutputs:
        """Begin without any release."""
        releases = _audited_releases(settings)
        counted = min(releases, MOST_CANARIES)
        histogram = settings.histogram
        totals = np.full((agents, releases), np.nan)
        votes = np.zeros((agents, 0 if settings.vote is None else counted, 2 + VOTE_BINS), np.int64)
        shape = (agents, 0, 0) if histogram is None else (agents, counted, 2 + histogram.bins)

        return cls(totals, votes, np.zeros(shape, np.int64))

    def take(self, agent: Ints, index: Ints, total: Ints, votes: Ints, histogram: Ints) -> None:
        """Take releases, each agent at most once in a call; a release may come again."""
        inside = (index >= 1) & (index <= self.totals.shape[1])
        self.beyond += int((~inside).sum())
        agent, column, total = agent[inside], index[inside] - 1, total[inside].astype(np.float64)
        before = self.totals[agent, column]
        seen = self.seen[agent, column]
        self.changed += int((np.abs(before - total) > 1e-6 * np.abs(total) + 0.5).sum())
        self.totals[agent, column] = np.where(
            seen == 0, total, before + (total - before) / (seen + 1)
        )
        self.seen[agent, column] += 1

        for counts, new_counts in ((self.votes, votes), (self.histogram, histogram)):
            early = column < counts.shape[1]
            counts[agent[early], column[early]] = new_counts[inside][early]

    def chosen(self, which: Bools | Ints | slice) -> CanaryOutputs:
        """Give what came out about some agents; their faults stay where they were counted."""
        return CanaryOutputs(self.totals[which], self.votes[which], self.histogram[which])


@dataclass(frozen=True)
class Canaries:
    """The samples of an audit, and the score of each coin.

    Parameters
    ----------
    settings : AgentsSettings
        From `compressed`.
    agents : int
        How many.
    coins_each : int, optional
        Coins of each agent: its first samples. By default as many as prove most; later ones are
        protected a little more than the first one, and all of them share one run.
    known : float
        Where the other samples of the first second lie between the bounds. With 1/2 in another life
        no sum is one that was released before: equal inputs have equal noise, and may.
    alone : bool
        Whether each agent is a host of its own. Agents of one host vote together: of so few draws
        nothing is told, and their votes are left out.

    Notes
    -----
    In each second every agent has two samples: one by its coin and one at the lower bound. With `per_person` K there
    are 2 K, in turn of the person and of others. A coin's sample lies a width outside of the bounds, on either side,
    which counts as the bound itself.

    Examples
    --------
    >>> given = {"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6, "noise": "gaussian"}
    >>> settings = compressed(AgentsSettings(**given))
    >>> canaries = Canaries(settings, 100_000)
    >>> canaries.coins_each, round(canaries.reach, 3)
    (9, 1.0)
    """

    settings: AgentsSettings
    agents: int
    coins_each: int | None = None
    known: float = 0.0
    alone: bool = True

    def __post_init__(self) -> None:
        require_least(1, canaries=self.agents)
        most = min(MOST_CANARIES, self.releases)
        if self.coins_each is None:
            object.__setattr__(self, "coins_each", self._best_number(most))

        require(1 <= self.number <= most, "coins_each", f"lie in 1..{most}", self.number)

    @property
    def number(self) -> int:
        """Coins of each agent."""
        return self.coins_each or 1

    @property
    def vote(self) -> SpreadVote | None:
        """Law of the votes that are an agent's own, if there are such."""
        if self.alone:
            return self.settings.vote
        return None

    @property
    def per_second(self) -> int:
        """Samples of each agent in a second: of its person, and of someone else, in turn."""
        return 2 * (self.settings.per_person or 1)

    @cached_property
    def releases(self) -> int:
        """How many releases of an agent are requested, and looked at."""
        return _audited_releases(self.settings)

    @property
    def seconds(self) -> int:
        """How long the stream is.

        More than the budget allows, where it has an end that an audit comes to.
        """
        return self.releases + (BEYOND if self.releases == self.settings.most_releases else 0)

    def values(self, second: int, coins: Ints) -> Floats:
        """Give the samples of agents in a second, by their coins, shape (n, per_second)."""
        lower = self.settings.lower
        upper = self.settings.upper
        samples = np.full((len(coins), self.per_second), lower)
        if second == 0:
            samples[:] += self.known * (upper - lower)

        if second < self.number:
            low = lower - (upper - lower)
            high = upper + (upper - lower)
            samples[:, ::2] = np.where(coins[:, second, np.newaxis] == 1, high, low)

        return samples

    @cached_property
    def filters(self) -> Floats:
        """What each coin moves the noised vector by, a row each, shape (coins, horizon)."""
        return np.asarray(self._moved(self.number).T)

    def _moved(self, number: int) -> Floats:
        """What each of the first coins moves the noised vector by, a column each."""
        units = self.settings.grid.span * (self.settings.per_person or 1)
        return counter_columns(self.settings.mechanism, self.releases)[:, :number] * units

    @cached_property
    def own_mu(self) -> Floats:
        """Gaussian-DP parameter of each coin."""
        return self._own_mu(self.number)

    @cached_property
    def claimed_mu(self) -> float:
        """Gaussian-DP parameter that the promised epsilon and delta are worth, whatever the code makes of them."""
        return 1.0 / calibrated_analytic_stddev(self.settings.epsilon, self.settings.delta)

    @property
    def reach(self) -> float:
        """Mean of `own_mu`, as a share of what is claimed."""
        return float(self.own_mu.mean()) / self.claimed_mu

    def _own_mu(self, number: int) -> Floats:
        settings = self.settings
        units = settings.per_person or 1
        squares = (self._moved(number) ** 2).sum(0) / settings.fresh.variance

        for coin, cast in enumerate(self._casts[:number]):
            for counts in (self.vote, settings.histogram):
                if counts is not None and cast is not None:
                    squares[coin] += 2 * units**2 / counts.noise.variance

        return np.asarray(np.sqrt(squares))

    @cached_property
    def _casts(self) -> list[int | None]:
        """With which release (from 0) the samples of each second are counted.

        None after the horizon.
        """
        casts: list[int | None] = [None] * MOST_CANARIES
        voted = 0
        begun = 0
        for release in range(min(self.releases, MOST_CANARIES)):
            count = self.per_second * (release + 1)
            if count // FACTOR >= voted:  # as `SpreadVote.due` and `SampleHistogram.due`
                casts[begun : release + 1] = [release] * (release + 1 - begun)
                voted = count
                begun = release + 1

        return casts

    def _best_number(self, most: int) -> int:
        if self.settings.pure:
            return 1
        own = self._own_mu(most)
        number = np.arange(1, most + 1)
        bound = np.cumsum(own) / number + 2 * ndtri(1 - CONFIDENCE) / np.sqrt(self.agents * number)

        return int(number[np.argmax(bound)])

    def noise_left(self, outputs: CanaryOutputs, coins: Ints) -> Floats:
        """Take off all that is known.

        The fresh draws, if the mechanism is what it says; shape (agents, releases).
        """
        sums = outputs.totals.T * self._unscaled[:, np.newaxis]
        fresh = solve_triangular(self._response, sums, lower=True, check_finite=False)
        return np.asarray(
            fresh.T - coins.astype(np.float64) @ self.filters - self.known * self.filters[0]
        )

    @cached_property
    def _response(self) -> Floats:
        return counter_response(self.settings.mechanism, self.releases)

    @cached_property
    def _unscaled(self) -> Floats:
        """What turns a published sum into the noised one.

        1, or what it was scaled by to an effective count.
        """
        if not self.settings.remembers.forgets:
            return np.ones(self.releases)
        of_each = self.settings.mechanism.workload(self.releases)
        weight = self.per_second * of_each.sum(axis=1)

        return np.asarray(
            weight / effective_counts(weight, self.per_second * (of_each**2).sum(axis=1))
        )

    def exact_totals(self, coins: Ints) -> Ints:
        """Private but for an audit: the sums that releases are made of, by the coins, shape (n, releases)."""
        units = self.settings.per_person or 1
        steps = np.zeros((len(coins), self.releases), np.int64)
        steps[:, : self.number] = units * self.settings.grid.span * coins

        return np.cumsum(steps, axis=1)

    def mean_draws(self, noise: Floats) -> NoiseDraws:
        """Give the draws of means, from `noise_left`; only rounding may move them."""
        inverse = np.abs(np.linalg.inv(self._response))
        stddev = math.sqrt(self.settings.fresh.variance)
        bound = np.broadcast_to(0.5 * inverse @ np.abs(self._unscaled) / stddev, noise.shape)
        seen = noise / stddev

        return NoiseDraws(seen, seen, bound, np.ones(seen.shape, np.bool_), seen)

    def count_draws(self, kind: str, outputs: CanaryOutputs, coins: Ints) -> CountDraws | None:
        """Give the draws of bins of "votes" or "histograms" with the first releases, shape (n, times, bins)."""
        counts = self._counts_of(kind)
        releases = sorted({release for release in self._casts if release is not None})
        if counts is None or not releases:
            return None

        noise = [self._noise_of_bins(kind, outputs, coins, release) for release in releases]
        shown = np.stack(noise, axis=1)
        stddev = math.sqrt(counts.noise.variance)
        seen = shown / stddev
        bound = np.full(seen.shape, 0.5 / stddev)
        usable = np.ones(seen.shape, np.bool_)
        index = np.tile(np.array(releases) + 1, (len(coins), 1))

        return CountDraws(NoiseDraws(seen, seen, bound, usable, seen), index)

    def persons(self, second: int) -> Words | None:
        """Give whose samples these are, of one agent.

        One person's every second one, and a new person each between.
        """
        if self.settings.per_person is None:
            return None
        number = np.arange(self.per_second, dtype=np.uint64) + np.uint64(
            1 + second * (self.per_second + 1)
        )
        number[::2] = number[0]

        return number

    def complete(self, outputs: CanaryOutputs) -> Bools:
        """Tell which agents made all releases."""
        return np.asarray(~np.isnan(outputs.totals).any(axis=1))

    def scores(self, outputs: CanaryOutputs, coins: Ints) -> Floats:
        """Score each coin: +-1 by the coin, times the standardized filter's output minus its middle.

        Shape (agents, coins); the mean is half of `own_mu` and the deviation 1, if the mechanism is
        what it says.
        """
        sign = 2.0 * coins - 1.0
        evidence = (
            sign * (self.noise_left(outputs, coins) @ self.filters.T) / self.settings.fresh.variance
        )

        for kind in COUNTED:
            counts = self._counts_of(kind)
            if counts is not None:
                noise = self._noise_of_counts(kind, outputs, coins)
                evidence += sign * noise / counts.noise.variance

        return np.asarray(evidence / self.own_mu + 0.5 * self.own_mu)

    def _counts_of(self, kind: str) -> SpreadVote | SampleHistogram | None:
        """Give the law of what is counted in bins."""
        return self.vote if kind == "votes" else self.settings.histogram

    def _noise_of_bins(
        self, kind: str, outputs: CanaryOutputs, coins: Ints, release: int
    ) -> Floats:
        """Give the noise of all bins of a count: what came out with a release, less the samples.

        All samples are at a bound: those of coins that fell on 1 are in the last bin, the others in
        the first.
        """
        units = self.settings.per_person or 1
        votes = kind == "votes"
        counts = outputs.votes if votes else outputs.histogram
        counted_in_second = units if votes else self.per_second
        begun = self._casts.index(release)

        noise = np.diff(counts, axis=1, prepend=0)[:, release, 2:].astype(np.float64)
        ones = units * coins[:, begun : min(release + 1, self.number)].sum(axis=1)
        noise[:, -1] -= ones
        noise[:, 0] -= counted_in_second * (release + 1 - begun) - ones

        return noise

    def contrasts(self, noise: Floats, other: Floats, coins: Ints) -> tuple[Floats, float]:
        """Score each agent's first coin against noise that should be independent, and tell the mu of such a score.

        Where two noises are one, their difference shows the coin for certain.
        """
        moved = self.filters[0]
        spread = math.sqrt(2.0 * self.settings.fresh.variance)
        length = float(np.linalg.norm(moved))
        score = (2.0 * coins[:, 0] - 1.0) * ((noise - other) @ moved) / (spread * length)

        return np.asarray(score + 0.5 * length / spread), length / spread

    def release_contrasts(self, noise: Floats, coins: Ints) -> tuple[Floats, float]:
        """Score each agent's first coin by the first release against the next, as `contrasts` does."""
        moved = float(self.filters[0, 0] - self.filters[0, 1])
        spread = math.sqrt(2.0 * self.settings.fresh.variance)
        score = (
            (2.0 * coins[:, 0] - 1.0)
            * (noise[:, 0] - noise[:, 1])
            * math.copysign(1.0, moved)
            / spread
        )

        return np.asarray(score + 0.5 * abs(moved) / spread), abs(moved) / spread

    def bin_contrasts(self, kind: str, outputs: CanaryOutputs, coins: Ints) -> tuple[Floats, float]:
        """Score each agent's first coin by the bin of it against another bin of "votes" or "histograms".

        Which other bin it is goes round from agent to agent. Where two bins have one noise, their
        difference shows the coin for certain. The mu is that of the first bin and the last, which a
        coin moves both.
        """
        counts = self._counts_of(kind)
        release = self._casts[0]
        if counts is None or release is None:
            return np.zeros(0), 0.0

        units = self.settings.per_person or 1
        bins = self._noise_of_bins(kind, outputs, coins, release)
        other = np.arange(len(coins)) % (bins.shape[1] - 1)
        spread = math.sqrt(2.0 * counts.noise.variance)
        moved = units * np.where(other == 0, 2.0, 1.0)
        noise = bins[:, -1] - bins[np.arange(len(coins)), other]

        return ((2.0 * coins[:, 0] - 1.0) * noise + 0.5 * moved) / spread, 2.0 * units / spread

    def likelihoods(self, outputs: CanaryOutputs, coins: Ints) -> Floats:
        """Give the log-likelihood ratio of each agent's first coin, for noise of integers."""
        noise = self.noise_left(outputs, coins)
        fresh = self.settings.fresh
        moved = np.rint(self.filters[0])
        shown = np.rint(noise) + coins[:, :1] * moved

        def log_chance(draws: Floats) -> Floats:
            return np.asarray(np.log(np.maximum(fresh.pmf(draws), _LEAST_CHANCE)))

        ratio = (log_chance(shown - moved) - log_chance(shown)).sum(axis=1)
        for kind in COUNTED:
            ratio = ratio + self._likelihood_of_counts(kind, outputs, coins)

        return np.asarray(ratio)

    def _likelihood_of_counts(self, kind: str, outputs: CanaryOutputs, coins: Ints) -> Floats:
        """Give what "votes" or "histograms" add to the log-likelihood ratio of each agent's first coin."""
        counts = self._counts_of(kind)
        release = self._casts[0]
        if counts is None or release is None or not isinstance(counts.noise, LaplaceNoise):
            return np.zeros(len(coins))

        # With the first coin's samples put back.
        units = self.settings.per_person or 1
        bins = self._noise_of_bins(kind, outputs, coins, release)
        last = bins[:, -1] + units * coins[:, 0]
        first = bins[:, 0] - units * coins[:, 0]
        ratio = np.abs(last) - np.abs(last - units) + np.abs(first) - np.abs(first + units)

        return np.asarray(ratio / counts.noise.scale)

    def _noise_of_counts(self, kind: str, outputs: CanaryOutputs, coins: Ints) -> Floats:
        """Give the noise of the counts that each coin is in, along the difference that the coin makes.

        A coin decides whether samples, or pairs, are in the last bin or in the first.
        """
        differences = np.zeros(coins.shape)
        for coin, release in enumerate(self._casts[: self.number]):
            if release is not None:
                bins = self._noise_of_bins(kind, outputs, coins, release)
                differences[:, coin] = (self.settings.per_person or 1) * (bins[:, -1] - bins[:, 0])

        return differences
