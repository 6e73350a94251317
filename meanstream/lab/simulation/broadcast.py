"""Broadcast: everyone releases one noisy stream that all read.

All runs and agents at once, on seeded noise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from meanstream.lab.papers.colme.consensus import MessagePassing
from meanstream.lab.papers.colme.statistic import (
    statistic_release_covariance,
    statistic_variance_factors,
    weights,
    weights_gain,
)
from meanstream.lab.simulation.agent_population import Simulated
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.lab.simulation.simulation_result import (
    RunErrors,
    SimulationResult,
    Track,
    agreement_component_errors,
    agreement_rejection_errors,
    result_chunks,
)
from meanstream.operators.agents.release_times import Counts, parse_release_times
from meanstream.operators.agents.vote_of_spread import FACTOR, PAIR_SENSITIVITY, spread_vote_bins
from meanstream.operators.collaboration.alone import FittedAlone, half_width_alone
from meanstream.operators.collaboration.own_releases import REMEMBERED
from meanstream.operators.collaboration.registry import (
    Collaboration,
    FittedPopulation,
    make_collaboration,
)
from meanstream.operators.collaboration.variance.pooled_variance import (
    PooledVariance,
    pooled_release_differences,
)
from meanstream.operators.collaboration.variance.variance_posterior import variance_posterior_of_own
from meanstream.operators.counters.optimal import optimal_counter_sampling
from meanstream.operators.counters.registry import counter_noise_variance, make_counter
from meanstream.operators.noise.calibration import Calibration, calibrated_gaussian_stddev
from meanstream.operators.records import (
    VOTE_BINS,
    AgentEstimates,
    Floats,
    Ints,
    OwnMeans,
    OwnSamples,
    ReleaseColumns,
)

SPAN = 1 << 20
"""Grid steps of the width, as in `FixedPoint`."""
BLOCK = 1 << 20
"""Samples drawn at once."""


def simulate_broadcast(config: SimulationConfig, track: Track = iter) -> SimulationResult:
    """Simulate agents that release at given numbers of their own samples and read everyone's latest release.

    The interval of every agent's noise is its own, of half-width `config.half_width` (as in the
    paper); the bounds that the learned prior and the pooled variance are given are the union of
    these intervals. The counter's horizon is the exact number of releases. Answers are computed at
    the checkpoints. Every agent hears everyone, so `lazy` and `eager` tests coincide. For the
    learned prior two agents count as accepted by each other if their most likely components are the
    same.

    Examples
    --------
    >>> config = SimulationConfig.from_options(agents=60, steps=600, runs=2, means="classes:0.2,0.8", seed=1)
    >>> result = simulate_broadcast(config)
    >>> result.mse[0] < 0.3 * result.local[0], result.coverage[0] > 0.9
    (True, True)
    """
    schedule = parse_release_times(config.release_times)
    assert isinstance(schedule, Counts)  # noqa: S101 - for the type checker; config refused it
    chunks = track(result_chunks(config.runs))
    errors = RunErrors.joined([_Run(config, schedule, runs.start).simulate() for runs in chunks])

    return SimulationResult.from_errors(config, errors)


class _Run:
    """One run: the private side (samples, sums), the public side (releases, pool), and the errors."""

    def __init__(self, config: SimulationConfig, schedule: Counts, run: int) -> None:
        self.config = config
        self.simulated = Simulated.draw(config, range(run, run + 1))
        self.truth = self.simulated.population.mean[0]
        self.sample_variance = self.simulated.population.variance[0]
        self.lower = float(self.truth.min()) - config.half_width
        self.upper = float(self.truth.max()) + config.half_width
        self.total = np.zeros(config.agents)
        self.squares = np.zeros(config.agents)  # of deviations from the true mean: nothing cancels
        self.steps = 0

        n_releases = int(schedule.releases_up_to(np.array([config.steps]))[0])
        self.times = schedule.times(max(n_releases, 1))[:n_releases]
        self.releases = _Releases(config, self.times)
        self.pool = PooledVariance(self.lower, self.upper)
        self.votes = _Votes(config, self.upper - self.lower) if config.spread_share else None
        self.collaboration: Collaboration = MessagePassing(significance=config.significance)
        if config.collaboration != MessagePassing.name:
            self.collaboration = make_collaboration(
                config.collaboration,
                lower=self.lower,
                upper=self.upper,
                significance=config.significance,
            )

    def simulate(self) -> RunErrors:
        """Go from release to checkpoint to release."""
        errors = RunErrors.empty(len(self.config.checkpoints), 1)
        due = set(self.times.tolist())
        checkpoints = list(self.config.checkpoints)
        for time in sorted(due | set(checkpoints)):
            self._receive(time)
            if time in due:
                self._release()

            if time in checkpoints:
                self._measure(errors, checkpoints.index(time))

        return errors

    def _receive(self, until: int) -> None:
        block = max(1, BLOCK // self.config.agents)
        while self.steps < until:
            data = self.simulated.samples(min(block, until - self.steps))[:, 0]
            self.total += data.sum(axis=0)
            self.squares += ((data - self.truth) ** 2).sum(axis=0)

            if self.votes is not None:
                self.votes.count(data)

            self.steps += len(data)

    def _release(self) -> None:
        unit = self.simulated.unit_noise(1, self.config.noise)[0, 0]
        pair = self.releases.add(self.total, unit)
        if self.config.variance == "from_releases" and len(pair):
            self.pool.update(pooled_release_differences(pair, self.releases.counter))

        if self.votes is not None and self.votes.due():
            self.pool.count_votes(self.votes.cast(self.simulated), self.votes.noise_variance)

    def _own(self) -> OwnMeans:
        agent = np.arange(self.config.agents)
        count = np.full(self.config.agents, self.steps)
        mean = self.total / self.steps
        variance = self.sample_variance

        if self.config.variance == "from_releases":
            deviations = np.maximum(self.squares - self.steps * (mean - self.truth) ** 2, 0.0)
            own = OwnSamples(agent=agent, count=count, mean=mean, squared_deviations=deviations)
            variance = variance_posterior_of_own(self.pool.posterior(), own)

        return OwnMeans(agent=agent, count=count, mean=mean, variance=variance / self.steps)

    def _measure(self, errors: RunErrors, i: int) -> None:
        population = self.simulated.population
        own = self._own()
        known = self.config.variance == "known"
        sample_variance = self.sample_variance if known else np.full(len(own), self.pool.variance)
        latest, variance = self.releases.latest(sample_variance)
        errors.local[i] = np.mean((own.mean - self.truth) ** 2)
        errors.ideal[i] = np.mean((population.ideal(own.mean[None])[0] - self.truth) ** 2)
        fitted = self._fit(latest, variance)
        answers = fitted.estimate(own, level=self.config.level)

        if population.exact_classes:
            classes = population.label[0]
            best = _true_classes(own, latest, variance, classes, self.config.level)
            errors.oracle[i] = np.mean((best.value - self.truth) ** 2)

            if self.config.collaboration == "tests" and self.config.test == "oracle":
                answers = best
            elif len(latest):
                errors.type1[i], errors.type2[i] = self._agreement(
                    own, latest, variance, answers, classes
                )

        errors.mse[i] = np.mean((answers.value - self.truth) ** 2)
        errors.coverage[i] = np.mean((answers.lower <= self.truth) & (self.truth <= answers.upper))

    def _fit(self, latest: ReleaseColumns, variance: Floats) -> FittedPopulation:
        """Fit to what everyone released, with all that is open of the variance of a sample.

        As a deployment does.
        """
        if len(latest) == 0:
            return FittedAlone()
        if self.config.variance == "known":
            return self.collaboration.fit(latest, variance)

        pool = self.pool.posterior()
        # A weighted statistic varies more than a mean of as many samples: by one factor, as all
        # release at once.
        of_sample = (variance[0] - latest.noise_variance[0]) * latest.count[0]
        pool = replace(pool, variance=pool.variance * (of_sample / pool.median))
        return self.collaboration.fit_summary(self.collaboration.summarize(latest), pool)

    def _agreement(
        self,
        own: OwnMeans,
        latest: ReleaseColumns,
        variance: Floats,
        answers: AgentEstimates,
        classes: Ints,
    ) -> tuple[float, float]:
        if self.config.collaboration == "learned_prior":
            return agreement_component_errors(answers.component, classes)
        return agreement_rejection_errors(
            own, latest.mean, variance, classes, self.config.significance
        )


class _Votes:
    """Everyone's spread votes.

    At the releases at which agents vote, of the pairs since the last vote.
    """

    def __init__(self, config: SimulationConfig, width: float) -> None:
        self._width = width
        self._agents = config.agents
        stddev = calibrated_gaussian_stddev(
            config.epsilon, config.delta, calibration=cast("Calibration", config.calibration)
        )
        self.noise_variance = (stddev * PAIR_SENSITIVITY[2]) ** 2 / config.spread_share
        self._first: Floats | None = None  # samples without a partner
        self._steps = 0
        self._voted = 0
        self._pairs = np.zeros((config.agents, VOTE_BINS), np.int64)
        self._total = np.zeros((config.agents, 2 + VOTE_BINS), np.int64)

    def count(self, data: Floats) -> None:
        """Put samples, shape (steps, agents), into pairs."""
        self._steps += len(data)
        waiting = data if self._first is None else np.concatenate([self._first[None], data])
        even = len(waiting) // 2 * 2
        self._first = waiting[-1].copy() if len(waiting) > even else None
        difference = np.rint(
            np.abs(waiting[0:even:2] - waiting[1:even:2]) / self._width * SPAN
        ).astype(np.int64)
        bins = spread_vote_bins(np.minimum(difference, SPAN), SPAN)
        np.add.at(self._pairs, (np.broadcast_to(np.arange(self._agents), bins.shape), bins), 1)

    def due(self) -> bool:
        """Whether agents vote with the release that they make now."""
        return self._steps >= 2 and self._steps // FACTOR >= self._voted

    def cast(self, simulated: Simulated) -> Ints:
        """Return everyone's votes so far, shape (agents, 2 + VOTE_BINS)."""
        noise = simulated.unit_noise(VOTE_BINS, "gaussian")[:, 0].T * np.sqrt(self.noise_variance)
        self._total[:, 0] += 1
        self._total[:, 1] += self._pairs.sum(axis=1)
        self._total[:, 2:] += self._pairs + np.rint(noise).astype(np.int64)
        self._pairs[:] = 0
        self._voted = self._steps

        return self._total


class _Releases:
    """The linear statistic of everyone's releases, and its variance."""

    def __init__(self, config: SimulationConfig, times: Ints) -> None:
        self.config = config
        self.times = times
        units = 1 / np.sqrt(1 - config.spread_share)
        sampling = optimal_counter_sampling(times, config.epsilon, units=float(units))
        self.counter = make_counter(
            config.counter, horizon=max(len(times), 1), levels=config.levels, sampling=sampling
        )

        self.fresh_variance = counter_noise_variance(
            self.counter,
            epsilon=config.epsilon,
            delta=config.delta,
            sensitivity=2 * config.half_width / np.sqrt(1 - config.spread_share),
            noise=config.noise,
            calibration=config.calibration,
            composition="basic" if config.mode == "paper" else "concentrated",
        )

        self.state = self.counter.init(config.agents)
        self.means: list[Floats] = []
        self.statistic = np.zeros(config.agents)

    def add(self, total: Floats, unit_noise: Floats) -> ReleaseColumns:
        """Release noisy means of these sums.

        Return them with the previous ones, for the pooled variance.
        """
        k = len(self.means) + 1
        agents = np.arange(self.config.agents)
        fresh = unit_noise * np.sqrt(self.fresh_variance)
        noise = self.counter.step(self.state, agents, np.full(len(agents), k), fresh)
        self.means.append((total + noise) / self.times[k - 1])

        if self.config.weights != "gls":
            step = float(weights_gain(self.config.weights, np.array(k)))
            self.statistic = self.statistic + step * (self.means[-1] - self.statistic)

        pieces = range(max(k - 1, 1), k + 1)
        index = np.repeat(np.array(pieces), len(agents))
        mean = np.concatenate([self.means[j - 1] for j in pieces])
        return self._columns(
            np.tile(agents, len(pieces)), index, mean, self.counter.noise_variance(index)
        )

    def latest(self, sample_variance: Floats) -> tuple[ReleaseColumns, Floats]:
        """Everyone's statistic and its total variance; empty before the first release."""
        k = len(self.means)
        agents = np.arange(self.config.agents)

        if k == 0:
            none = np.zeros(0, dtype=np.int64)
            return self._columns(none, none + 1, np.zeros(0), np.zeros(0)), np.zeros(0)

        unknown = self.config.variance == "from_releases" and self.config.weights == "gls"
        largest = self.config.half_width**2
        weight, statistic = self._weights(largest if unknown else float(sample_variance.mean()))
        factors = statistic_variance_factors(self.times[:k], weight, self.counter)
        count = self.times[k - 1].astype(np.float64)
        # As `OwnReleases` has it: what the weights add to the sampling is taken for noise, at the
        # most it can be.
        added = largest * (factors.data - 1 / count) if unknown else 0.0
        noise = factors.noise + added / self.fresh_variance
        total = (
            sample_variance / count if unknown else sample_variance * factors.data
        ) + self.fresh_variance * noise

        return self._columns(
            agents, np.full(len(agents), k), statistic, np.full(len(agents), noise * count**2)
        ), total

    def _weights(self, sample_variance: float) -> tuple[Floats, Floats]:
        k = len(self.means)
        if self.config.weights != "gls":
            return weights(self.config.weights, k), self.statistic
        covariance = statistic_release_covariance(
            self.times[:k],
            sample_variance=sample_variance,
            counter=self.counter,
            fresh_variance=self.fresh_variance,
        )
        old = max(0, k - REMEMBERED) if self.config.variance == "from_releases" else 0
        weight = np.concatenate(
            [np.zeros(old), weights("gls", k - old, covariance=covariance[old:, old:])]
        )

        return weight, weight @ np.array(self.means)

    def _columns(
        self, agent: Ints, index: Ints, mean: Floats, unit_variance: Floats
    ) -> ReleaseColumns:
        """Columns of means that live on no grid.

        A simulation publishes nothing, so `total` is left 0.
        """
        count = self.times[index - 1] if len(index) else index
        return ReleaseColumns(
            agent=agent,
            index=index,
            count=count,
            total=np.zeros_like(agent),
            mean=mean,
            noise_variance=unit_variance * self.fresh_variance / count.astype(np.float64) ** 2,
        )


def _true_classes(
    own: OwnMeans, latest: ReleaseColumns, variance: Floats, classes: Ints, level: float
) -> AgentEstimates:
    """Answer from the same releases with the true classes: eq. (4) over the own class."""
    if len(latest) == 0:
        return FittedAlone().estimate(own, level=level)
    precision = 1 / variance
    information = np.bincount(classes, precision)[classes] - precision + 1 / own.variance
    moment = np.bincount(classes, precision * latest.mean)[classes] - precision * latest.mean
    value = (moment + own.mean / own.variance) / information
    half_width = half_width_alone(1 / information, level)

    return AgentEstimates(
        value=value,
        lower=value - half_width,
        upper=value + half_width,
        level=level,
        effective_class_size=own.variance * information,
        class_size=np.bincount(classes)[classes].astype(np.float64),
        component=classes,
        membership=np.ones(len(own)),
    )
