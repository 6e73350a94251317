"""How agents release.

Bounds, privacy parameters, counter and schedule, checked before anything runs.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, cast

import numpy as np

from meanstream.operators.agents.agent_memory import FOREVER, Memory, memory_for, parse_memory
from meanstream.operators.agents.defaults import (
    AUTO,
    least_noise,
    usual_counter,
    usual_spread_share,
)
from meanstream.operators.agents.half_life_memory import DecayedSums, KeptSums
from meanstream.operators.agents.own_blocks import OwnBlocks
from meanstream.operators.agents.own_histogram import (
    MOST_BINS,
    SAMPLE_SENSITIVITY,
    SampleHistogram,
    histogram_edges,
    histogram_thresholds,
)
from meanstream.operators.agents.release_times import Counts, Every, Steady, parse_release_times
from meanstream.operators.agents.released_change_tests import ReleaseChanges
from meanstream.operators.agents.settings_privacy import agents_numeric_slack, pure_losses
from meanstream.operators.agents.vote_of_spread import (
    BY_CONTENT,
    BY_TIME,
    MOST_VOTES,
    PAIR_SENSITIVITY,
    PAIRS_OF_CONTENT,
    SpreadVote,
)
from meanstream.operators.agents.window_memory import KeptWindow
from meanstream.operators.counters.base import ENDLESS, counter_limit
from meanstream.operators.counters.decayed import Decayed
from meanstream.operators.counters.optimal import Optimal, optimal_counter_sampling
from meanstream.operators.counters.pm2 import Pm2
from meanstream.operators.counters.registry import (
    NOISES,
    PURE,
    Counter,
    FreshNoise,
    counter_noise,
    make_counter,
)
from meanstream.operators.counters.toeplitz import Toeplitz
from meanstream.operators.counters.windowed import Sliding
from meanstream.operators.noise.calibration import Calibration, calibrated_gaussian_stddev
from meanstream.operators.noise.distributions import TAIL_DELTA, StaircaseNoise
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.group_privacy import group_epsilon, odds_of_a_guess
from meanstream.operators.noise.keyed import UNSPELLED, GaussianNoise, LaplaceNoise
from meanstream.operators.noise.loss_distributions import (
    LossDistribution,
    gaussian_losses,
    repeated_losses,
)
from meanstream.operators.records import VOTE_BINS, Floats, Ints
from meanstream.operators.validation import (
    require,
    require_bounds,
    require_epsilon,
    require_name,
    valid_float,
    valid_int,
)

MAX_HORIZON = 1_000_000
SHARE_RULE = "be 0 in paper mode"
USUAL_HORIZON = 40
WIDEST = 1e150
NARROWEST = 1e-140
"""Variances are squares of the width and of its steps, and must be numbers, and more than 0."""
MAX_PER_PERSON = 65_535


@dataclass(frozen=True, kw_only=True)
class AgentsSettings:
    """How agents release.

    Bounds, privacy parameters, counter and schedule; plain values, checked at once.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample, in the value's unit; samples are clipped to them.
    epsilon, delta : float
        What one sample's value costs over the whole life of its agent's stream. Delta is 0 by
        default; Gaussian noise needs more.
    odds : float or str, optional
        Another promise, instead of epsilon: how often a reader of all releases who knows
        everything else guesses one of two extreme values of a sample right, at most; between 0.5
        and 1, or "55%". It becomes the epsilon of the mechanism that is chosen, and for
        Gaussian noise that at delta 1e-6 where none is given.
    counter : str
        Continual-counting mechanism: "pm1" (a draw per increment), "two_level" (and per block of
        them), "pm2" (paper), "toeplitz", or "optimal" (at most 128 releases). The default is the
        one of least noise; for Gaussian noise "optimal" where it can be and `schedule` counts
        samples, else "toeplitz".
    horizon : int
        Greatest number of releases of one agent: its budget.
    schedule : str
        "preferred:FIRST" or "geometric:FIRST,FACTOR" in the agent's own sample count, or
        "every:DURATION" of event time. The default, after 10, 15, 20, 30, 50, 70, 100, ... samples,
        serves agents with 15 samples and, at 40 releases, with 3e7.
    noise, calibration : str
        "auto", "laplace", "staircase" or "gaussian"; "analytic" or "classical" (Gaussian only,
        epsilon <= 1). "auto" becomes the one of least mean variance over the horizon that keeps the
        promise (`operators.agents.defaults`): Gaussian noise only if delta is more than 0.
    levels : int, optional
        Divisor of the budget of "pm2"; by default what the horizon needs.
    mode : str
        "tuned", or "paper" for the papers' basic composition.
    per_person : int, optional
        Greatest number of samples of one person that count within an agent: (epsilon, delta) then
        protects all of them together, and the variance of the noise grows with its square. Without
        it one sample is protected.
    name : str, optional
        Name of the deployment, part of the key of every draw and of every release's id. Where
        releases leave, it is needed: a store makes one, a pipeline is given one.
    spread_share : float
        Part of the budget (of rho, of epsilon where noise is pure) for votes on how much one sample
        varies (`operators.agents.vote_of_spread`); what is left goes into the means. 0 turns votes
        off. For the tuned mode only; there it is 0.1 by default, elsewhere 0.
    memory : str
        "forever", "half-life:SAMPLES" or "window:SAMPLES" in the agent's own samples, for schedules
        of these, which release at least 8 times in each half-life or window then, or
        "half-life:DURATION" or "window:DURATION" of event time, for "every:DURATION"; "auto" is a
        half-life as long as the usual horizon lasts (`memory_for`), and that is what it becomes
        here. An agent's own mean and its releases forget alike. For Gaussian noise and the tuned
        mode.
    histogram_share : float
        Part of the budget (likewise) for a histogram of the samples
        (`operators.agents.own_histogram`), for quantiles and exceedances. 0, the default, turns it
        off. For the tuned mode and memory "forever".
    exceeds : sequence of float
        Thresholds in the value's unit that are edges of the histogram's bins; with
        `histogram_share` only.
    pairs : str
        Which samples a vote compares: "by_time" those that follow each other in event time, or
        "by_content" those of a keyed choice, for frames without times.

    Raises
    ------
    ValueError
        Naming the parameter, the rule and the value.

    Notes
    -----
    **Privacy.** Where K samples of one person change, the increments change by at most `K * span` in the l1 norm. A
    norm is convex, so it is largest where all K lie in one increment: the sensitivity of the counter is exactly K
    times that of one sample, and no spread of them over the stream costs more. A schedule by counts whose first
    increment has fewer than K samples leaves a little of it unused; nothing is saved on that.

    With a memory that forgets (epsilon, delta) is of the stream without end: what a sample changes
    has a limit.

    One value has one spelling: numbers are brought to their types and schedules to one form,
    because all of it is part of the key of the noise.

    Examples
    --------
    >>> settings = {"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6, "counter": "toeplitz"}
    >>> one, ten = (AgentsSettings(**settings, per_person=k) for k in (None, 10))
    >>> round(ten.fresh.variance / one.fresh.variance, 6), round(one.mu, 3) == round(ten.mu, 3)
    (100.0, True)
    >>> settings = AgentsSettings(lower="-30", upper=120, epsilon=1, delta=1e-6, schedule="every:60m")
    >>> settings.lower, settings.schedule
    (-30.0, 'every:1h')
    """

    lower: float
    upper: float
    epsilon: float = cast("float", None)  # a number once it is known, of odds
    delta: float = 0.0
    odds: float | str | None = None
    # A name once it is known which; keys of before there was another default do not name it.
    counter: str = field(default=cast("str", None), metadata={UNSPELLED: Toeplitz.name})
    horizon: int = field(default=cast("int", None), metadata={UNSPELLED: USUAL_HORIZON})
    schedule: str = "preferred:10"
    # A distribution once it is known which; keys of before there was a choice do not name it.
    noise: str = field(default=AUTO, metadata={UNSPELLED: "gaussian"})
    calibration: str = "analytic"
    levels: int | None = None
    mode: str = "tuned"
    per_person: int | None = None
    name: str | None = None
    # A number once it is known who may vote; keys of before there were votes do not name it.
    spread_share: float = field(default=cast("float", None), metadata={UNSPELLED: 0.0})
    memory: str = FOREVER
    histogram_share: float = 0.0
    exceeds: tuple[float, ...] = ()
    pairs: str = field(default=BY_TIME, metadata={UNSPELLED: BY_TIME})

    def __post_init__(self) -> None:
        asked = {one.name: getattr(self, one.name) for one in fields(self)}
        open_counter = asked["noise"] in PURE and asked["counter"] is None
        unknown = asked["noise"] not in NOISES or asked["epsilon"] is None

        if unknown or open_counter or asked["odds"] is not None:
            # What was left open is filled in by the mechanism of least noise.
            self.__dict__.update(least_noise(asked, type(self)).__dict__)
            return

        usual = usual_spread_share(self.mode)
        if cast("float | None", self.spread_share) is None:
            object.__setattr__(self, "spread_share", usual)

        for name in ("lower", "upper", "epsilon", "delta", "spread_share", "histogram_share"):
            object.__setattr__(self, name, valid_float(name, getattr(self, name)))

        self._remember()
        for name in ("levels", "per_person"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, valid_int(name, getattr(self, name)))

        self._check_plain()
        require(usual > 0 or not self.spread_share, "spread_share", SHARE_RULE, self.spread_share)
        self._check_histogram()
        _ = self.numeric_slack  # it checks its own parameters, as the noise and the schedule do
        object.__setattr__(self, "schedule", str(self.times))

        if self.levels is None and self.counter == Pm2.name:
            parts = make_counter(self.counter, horizon=self.horizon).parts
            object.__setattr__(self, "levels", parts)

    def _check_plain(self) -> None:
        """Refuse what is out of range by itself."""
        if self.name is not None:
            require_name(self.name)

        require_bounds(self.lower, self.upper)
        width = self.upper - self.lower
        below = f"below upper ({self.upper!r})"
        require(width <= WIDEST, "lower", f"be at most {WIDEST:g} {below}", self.lower)
        require(width >= NARROWEST, "lower", f"be at least {NARROWEST:g} {below}", self.lower)
        require_epsilon(self.epsilon)
        require(0 <= self.delta < 1, "delta", "lie in [0, 1)", self.delta)
        require(self.mode in ("tuned", "paper"), "mode", "be 'tuned' or 'paper'", self.mode)
        require(
            self.per_person is None or 1 <= self.per_person <= MAX_PER_PERSON,
            "per_person",
            f"lie in 1..{MAX_PER_PERSON}",
            self.per_person,
        )
        require(0 <= self.spread_share < 1, "spread_share", "lie in [0, 1)", self.spread_share)
        pairings = (BY_TIME, BY_CONTENT)
        require(self.pairs in pairings, "pairs", f"be one of {', '.join(pairings)}", self.pairs)

    def _check_histogram(self) -> None:
        """Bring the thresholds to their type, and refuse a histogram where there can be none."""
        share = self.histogram_share
        rest = 1 - self.spread_share
        object.__setattr__(
            self, "exceeds", histogram_thresholds(self.exceeds, self.lower, self.upper)
        )
        require(
            0 <= share < rest,
            "histogram_share",
            f"lie in [0, {rest!r}): what spread_share leaves",
            share,
        )

        require(
            share > 0 or not self.exceeds, "histogram_share", "be more than 0 with exceeds", share
        )
        plain = self.mode == "tuned" and not self.remembers.forgets
        rule = "be 0, without quantiles and exceeds, in paper mode and with a memory that forgets"
        require(plain or not share, "histogram_share", rule, share)

    def _remember(self) -> None:
        """Bring memory, horizon and counter, which go together, to their types."""
        memory = memory_for(self.memory, parse_release_times(self.schedule))
        horizon = cast("int | None", self.horizon)
        given = self.memory
        object.__setattr__(self, "memory", str(memory))

        if memory.forgets:
            other = f"be forever with mode {self.mode} and noise {self.noise}"
            require(self.mode == "tuned" and self.noise == "gaussian", "memory", other, given)
            left_out = f"be left out with memory {given}"
            require(
                horizon in (None, ENDLESS), "horizon", f"{left_out}: releases have no end", horizon
            )

            counter = Sliding.name if memory.kind == "window" else Decayed.name
            require(
                cast("str | None", self.counter) in (None, counter),
                "counter",
                left_out,
                self.counter,
            )
            object.__setattr__(self, "horizon", ENDLESS)
            object.__setattr__(self, "counter", counter)

            return

        horizon = valid_int("horizon", USUAL_HORIZON if horizon is None else horizon)
        object.__setattr__(self, "horizon", horizon)
        require(1 <= horizon <= MAX_HORIZON, "horizon", f"lie in 1..{MAX_HORIZON}", horizon)

        if cast("str | None", self.counter) is None:
            times = parse_release_times(self.schedule)
            object.__setattr__(
                self, "counter", usual_counter(self.mode, self.noise, horizon, times)
            )

    @cached_property
    def remembers(self) -> Memory:
        """How much older samples weigh."""
        return parse_memory(self.memory)

    @property
    def most_releases(self) -> int | None:
        """Releases that an agent may make; None where there is no end."""
        return counter_limit(self.horizon)

    @cached_property
    def grid(self) -> FixedPoint:
        """The fixed-point grid of samples and sums."""
        return FixedPoint(self.lower, self.upper)

    @cached_property
    def mechanism(self) -> Counter:
        """The counter whose linear noise makes the prefix sums private."""
        if self.remembers.forgets:
            return self.remembers.counter(self.times)
        sampling: tuple[float, ...] = ()

        if self.counter == Optimal.name and isinstance(self.times, Counts):
            units = (self.per_person or 1) / self._part(self.means_share)
            sampling = optimal_counter_sampling(
                self.times.times(self.horizon), self.epsilon, units=units
            )

        return make_counter(
            self.counter, horizon=self.horizon, levels=self.levels, sampling=sampling
        )

    @cached_property
    def kept(self) -> KeptSums | KeptWindow | None:
        """The noised sums that forget; None where all is kept."""
        counter = self.mechanism
        fresh = self.fresh
        times = self.times

        if not self.remembers.forgets:
            return None
        assert isinstance(fresh, GaussianNoise)  # noqa: S101 - checked

        if isinstance(counter, Sliding):
            assert isinstance(times, Steady | Every)  # noqa: S101 - those of a memory are
            return KeptWindow.of(
                self.remembers, times, counter=counter, fresh=fresh, grid=self.grid, vote=self.vote
            )

        assert isinstance(counter, Decayed)  # noqa: S101 - of a half-life it is
        sums = DecayedSums(counter, fresh, ReleaseChanges(counter, draw=fresh.variance))
        return KeptSums(sums, times if isinstance(times, Every) else None, self.grid, self.vote)

    @property
    def pure(self) -> bool:
        """Whether the noise is of integers that need no delta."""
        return self.noise in PURE

    @cached_property
    def fresh(self) -> FreshNoise:
        """Distribution of the one fresh draw of a release, in grid units."""
        units = self.per_person or 1
        if self.pure:
            # Parts of epsilon add up: the means get what votes and histogram leave of it. Samples
            # of one person that move together cost a part each, wherever they lie.
            return counter_noise(
                self.mechanism,
                epsilon=self.epsilon * self.means_share / units,
                delta=self.delta,
                sensitivity=self.grid.span,
                noise=self.noise,
            )

        # Gaussian mechanisms compose like orthogonal parts of one: the budget bounds the sum of
        # their squared ratios of sensitivity to noise, and the means get what the votes and the
        # histogram leave of it.
        return counter_noise(
            self.mechanism,
            epsilon=self.epsilon,
            delta=self.delta_of_noise,
            sensitivity=self.grid.span * units / self._part(self.means_share),
            noise=self.noise,
            calibration=self.calibration,
            composition="basic" if self.mode == "paper" else "concentrated",
        )

    def noise_terms(self, index: Ints) -> Ints:
        """Number of the law of the noise in released sums, by the index of the release.

        A number of Laplace draws; 0 for Gaussian noise; of one draw of a steep staircase its own
        (`StaircaseNoise.law`). Two or more of those are nearer to a normal law than to as many
        Laplace draws: 0.

        Examples
        --------
        >>> given = {"lower": 0, "upper": 1, "epsilon": 1}
        >>> index = np.array([1, 40])
        >>> AgentsSettings(**given, noise="laplace").noise_terms(index).tolist()
        [1, 40]
        >>> AgentsSettings(**given).noise_terms(index).tolist()
        [-900, 0]
        """
        index = np.asarray(index, np.int64)
        if not self.pure:
            return np.zeros(index.shape, np.int64)

        draws = np.rint(self.mechanism.noise_variance(np.maximum(index, 1))).astype(np.int64)
        if isinstance(self.fresh, StaircaseNoise) and self.fresh.law != 1:
            return np.where(draws == 1, self.fresh.law, 0)
        return draws

    @cached_property
    def losses(self) -> LossDistribution:
        """Distribution of the privacy loss of one unit over all releases of an agent."""
        if self.mu is None:
            return pure_losses(self, 1)
        return gaussian_losses(self.mu)

    @property
    def guessed_right(self) -> float:
        """How often a reader of all releases guesses one of two values of a unit right, at most.

        The reader knows everything else, and each value is as likely.

        Examples
        --------
        >>> given = {"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6, "horizon": 1, "spread_share": 0}
        >>> [round(AgentsSettings(**given, noise=one).guessed_right, 3) for one in ("laplace", "gaussian")]
        [0.697, 0.547]
        """
        if self.mu is not None:
            return odds_of_a_guess(self.epsilon, self.delta, self.mu)
        return self.losses.odds

    @cached_property
    def numeric_slack(self) -> float:
        """What float64 adds to epsilon over all releases of an agent: at most a hundredth of it."""
        return agents_numeric_slack(self)

    def sum_variance(self, index: Ints) -> Floats:
        """Variance of the noise in released sums, by the index of the release, in squared grid units.

        The published integer is rounded: a twelfth of a squared unit on top of the mechanism's
        noise.
        """
        return np.asarray(self.mechanism.noise_variance(index) * self.fresh.variance + 1 / 12)

    def mean_variance(self, index: Ints, count: Ints) -> Floats:
        """Variance of the noise in released means, by index and number of samples, in squared value units.

        Where older samples weigh less, the sum of the weights is what a mean is divided by.
        """
        return np.asarray(
            self.sum_variance(index) * (self.grid.resolution / count.astype(np.float64)) ** 2
        )

    @cached_property
    def vote(self) -> SpreadVote | None:
        """The votes on the spread of one sample; None if no part of the budget is for them."""
        if not self.spread_share:
            return None
        # K samples of a person are in K pairs at most; where all move alike, that is K times the
        # change of one.
        pairs = PAIRS_OF_CONTENT if self.pairs == BY_CONTENT else 1
        noise = self._counts_noise(
            {norm: pairs * each for norm, each in PAIR_SENSITIVITY.items()}, self.spread_share
        )

        return SpreadVote(self.grid.span, noise, self.remembers.forgets)

    @cached_property
    def blocks(self) -> OwnBlocks | None:
        """What shows how an agent's own samples depend.

        None in paper mode, which takes them for independent.
        """
        if self.mode == "tuned":
            return OwnBlocks(self.remembers)
        return None

    @cached_property
    def histogram(self) -> SampleHistogram | None:
        """The histogram of the samples; None if no part of the budget is for it."""
        if not self.histogram_share:
            return None
        noise = self._counts_noise(SAMPLE_SENSITIVITY, self.histogram_share)
        return SampleHistogram(histogram_edges(self.grid, self.exceeds), noise)

    def _part(self, share: float) -> float:
        """Divide noise by that, where a mechanism has a share of the budget.

        Pure mechanisms share epsilon. Gaussian ones compose like orthogonal parts of one: the
        budget bounds the sum of their squared ratios of sensitivity to noise.
        """
        if self.pure:
            return share
        return math.sqrt(share)

    def _counts_noise(
        self, sensitivity: dict[int, float], share: float
    ) -> GaussianNoise | LaplaceNoise:
        """Noise of counts, of a sensitivity by its norm, for a share of the budget."""
        units = (self.per_person or 1) / self._part(share)
        if self.pure:
            return LaplaceNoise(sensitivity[1] * units / self.epsilon)

        rule = cast("Calibration", self.calibration)  # checked where it is used
        stddev = calibrated_gaussian_stddev(self.epsilon, self.delta_of_noise, calibration=rule)
        return GaussianNoise(stddev * sensitivity[2] * units)

    @property
    def means_share(self) -> float:
        """Part of the budget for means: what votes and the histogram leave of it."""
        return 1 - self.spread_share - self.histogram_share

    @property
    def vote_draws(self) -> int:
        """Draws of all votes that a sample could be in."""
        if self.spread_share:
            return min(self.horizon, MOST_VOTES) * VOTE_BINS
        return 0

    @property
    def histogram_draws(self) -> int:
        """Draws of all histograms of an agent."""
        if self.histogram_share:
            return min(self.horizon, MOST_VOTES) * MOST_BINS
        return 0

    @property
    def delta_of_noise(self) -> float:
        """The part of delta that remains for noise whose tails were not cut.

        The inversion cuts them off, once per draw; pure noise takes no other delta.
        """
        if self.pure:
            return self.delta
        out = f"be more than 0 with noise {self.noise!r}, such as 1e-6, or noise be left out"
        require(self.delta > 0, "delta", out, self.delta)
        tails = (self.mechanism.reach + self.vote_draws + self.histogram_draws) * TAIL_DELTA
        require(
            self.delta > tails,
            "delta",
            f"exceed the {tails:.1e} that the noise's tails cost",
            self.delta,
        )

        return self.delta - tails

    @cached_property
    def times(self) -> Counts | Every:
        """When an agent releases."""
        return self.remembers.times(parse_release_times(self.schedule))

    @property
    def privacy_unit(self) -> str:
        """Whose replacement (epsilon, delta) covers.

        One "sample", or all that counts of one "person" in an agent.
        """
        if self.per_person is None:
            return "sample"
        return "person"

    @property
    def unit(self) -> str:
        """Say in few words what (epsilon, delta) is of."""
        what = "one sample" if self.per_person is None else "one person's samples within an agent"
        over = (
            "releases without end"
            if self.most_releases is None
            else f"at most {self.horizon} releases"
        )

        return f"{what}, over {over}"

    @property
    def protected(self) -> str:
        """Say in one sentence what (epsilon, delta) covers and what it does not.

        Examples
        --------
        >>> AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6).protected
        'Each single sample is protected; a person with many samples is protected less.'
        """
        if self.per_person is None:
            return "Each single sample is protected; a person with many samples is protected less."
        return (
            "All samples of one person within an agent are protected together, of which at most "
            f"{self.per_person} count; a person in several agents is protected less."
        )

    @property
    def mu(self) -> float | None:
        """Gaussian-DP parameter of all releases together, towards one unit.

        None for pure noise.
        """
        if not isinstance(self.fresh, GaussianNoise):
            return None
        means = (
            self.mechanism.l2_sensitivity
            * self.grid.span
            * (self.per_person or 1)
            / self.fresh.stddev
        )

        return means / self._part(self.means_share)

    @property
    def rho(self) -> float:
        """Zero-concentrated DP of all releases together.

        Mu**2 / 2, or epsilon**2 / 2 of pure DP.
        """
        mu = self.epsilon if self.mu is None else self.mu
        return 0.5 * mu * mu

    def epsilon_for(self, units: int) -> float:
        """Return what epsilon becomes, at the same delta, for several samples (or persons) that change together.

        Examples
        --------
        >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, noise="gaussian")
        >>> [round(settings.epsilon_for(k), 1) for k in (1, 2, 5, 10, 20, 50)]
        [1.0, 2.1, 5.9, 13.5, 33.0, 125.5]
        """
        if self.mu is None:
            return units * self.epsilon
        return group_epsilon(units * self.mu, self.delta)

    def epsilon_over(self, agents: int) -> float:
        """Return what epsilon becomes, at the same delta, for a person with one unit in each of several agents.

        Their means have noise of their own; the votes of agents of one host are one vote, in which
        the units of the person add up.

        Examples
        --------
        >>> given = {"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6, "noise": "gaussian"}
        >>> settings = AgentsSettings(**given, per_person=5, spread_share=0)
        >>> round(settings.epsilon_over(4), 2) == round(settings.epsilon_for(2), 2)
        True
        """
        return self._label_of(self.losses_over(agents), agents, self.mu_over(agents))

    def losses_over(self, agents: int) -> LossDistribution:
        """Distribution of the privacy loss of a person with one unit in each of several agents."""
        mu = self.mu_over(agents)

        if mu is None:
            return pure_losses(self, agents)
        return gaussian_losses(mu)

    def mu_over(self, agents: int) -> float | None:
        """Return what mu becomes for a person with one unit in each of several agents.

        None for pure noise.
        """
        together = 1 + self.spread_share * (agents - 1)

        if self.mu is None:
            return None
        return math.sqrt(agents * together) * self.mu

    def losses_of_calls(self, calls: int) -> LossDistribution:
        """Distribution of the privacy loss where all of it is released several times with other noise."""
        return repeated_losses(self.losses, calls)

    def epsilon_of_calls(self, calls: int) -> float:
        """Return what epsilon becomes, at the same delta, where all of it is released several times with other noise.

        Examples
        --------
        >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, noise="gaussian")
        >>> [round(settings.epsilon_of_calls(k), 2) for k in (1, 2, 30)]
        [1.0, 1.45, 6.58]
        """
        mu = None if self.mu is None else math.sqrt(calls) * self.mu
        return self._label_of(self.losses_of_calls(calls), calls, mu)

    def _label_of(self, losses: LossDistribution, parts: int, mu: float | None) -> float:
        """Least epsilon at the delta of the settings, of several parts together."""
        if mu is not None:
            return group_epsilon(mu, self.delta)
        if self.delta:
            return losses.epsilon(self.delta)

        return parts * self.epsilon


def settings_identity(settings: AgentsSettings) -> dict[str, Any]:
    """Give the settings as plain data that tell deployments apart.

    What came later is named only where it is in use.

    Examples
    --------
    >>> "memory" in settings_identity(AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6))
    False
    """
    identity = asdict(settings)
    del identity["odds"]  # epsilon says it

    if settings.memory == FOREVER:
        del identity["memory"]

    if settings.pairs == BY_TIME:
        del identity["pairs"]

    if not settings.histogram_share:
        del identity["histogram_share"], identity["exceeds"]

    return identity
