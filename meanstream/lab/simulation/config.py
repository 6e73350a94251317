"""What is simulated: a frozen record of every choice, its defaults by mode, and the rules on combinations of choices.

A combination either works or is refused here, before any data is drawn, with one line that names
the option, the rule and the value.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np

from meanstream.lab.simulation.data import (
    DrawnMeans,
    DrawnSamples,
    data_half_width,
    means_model,
    own_or_text,
)
from meanstream.operators.agents.defaults import SPREAD_SHARE
from meanstream.operators.agents.release_times import Counts, parse_release_times
from meanstream.operators.counters.optimal import LONGEST, Optimal
from meanstream.operators.entry_points import COLLABORATIONS_GROUP, entry_points_of
from meanstream.operators.validation import (
    LARGEST,
    require,
    require_between,
    require_epsilon,
    require_least,
)

MODE_DEFAULTS: dict[str, dict[str, str]] = {
    "paper": {
        "counter": "pm1",
        "weights": "last",
        "schedule": "round_robin",
        "collaboration": "tests",
        "test": "lazy",
        "variance": "known",
        "noise": "gaussian",
        "calibration": "classical",
    },
    "tuned": {
        "counter": "toeplitz",
        "weights": "gls",
        "schedule": "broadcast",
        "collaboration": "learned_prior",
        "test": "lazy",
        "variance": "known",
        "noise": "gaussian",
        "calibration": "analytic",
    },
}
RELEASE_TIMES = "preferred:10"
"""Broadcast releases happen at these of an agent's own sample counts, unless `schedule` says
otherwise."""
CHOICES: dict[str, tuple[str, ...]] = {
    "mode": ("paper", "tuned"),
    "data": ("uniform", "beta", "bernoulli", "rademacher", "normal"),
    "counter": ("pm1", "pm2", "toeplitz", "optimal"),
    "weights": ("last", "mean_of_means", "windowed", "gls"),
    "schedule": ("round_robin", "restricted_round_robin", "broadcast"),
    "collaboration": (
        "tests",
        "consensus",
        "message_passing",
        "learned_prior",
        "pooled_prior",
        "james_stein",
        "none",
    ),
    "test": ("lazy", "eager", "oracle"),
    "variance": ("known", "released", "from_releases", "bayesian", "jeffreys", "uniform"),
    "noise": ("gaussian", "laplace"),
    "calibration": ("classical", "analytic"),
}


GLS_RELEASES = 512
"""Pairwise gls keeps every release of every pair and a table of weights that is the square of this
long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """Everything that determines a simulation; the same record and seed give the same numbers.

    Build it with `from_options`, which fills in the mode's defaults.

    Parameters
    ----------
    agents, steps, runs : int
        M agents receive `steps` samples each, one per step; everything is repeated in `runs`
        independent runs.
    checkpoints : tuple of int
        Steps at which errors are measured, increasing.
    seed : int
        Run r depends on (seed, r) only: more runs extend the same list of runs.
    means, spread, class_sizes
        `classes:LIST | normal:MEAN,SD | uniform:A,B | t:DF,MEAN,SCALE`; normal spread of the means
        within a class; sizes of the classes (default: every agent is placed uniformly at random,
        again in every run). Or `DrawnMeans`.
    data, stddev, half_width
        `uniform | beta:CONCENTRATION | bernoulli | rademacher | normal`; standard deviation of
        uniform and normal data; half the length of every agent's interval, which calibrates the
        noise (default: the data's own). Data may be `DrawnSamples`.
    epsilon, delta : float
        Privacy of one sample against one querying agent (pairwise schedules) or against all
        (broadcast).
    counter, weights, schedule, collaboration, test, variance, noise, calibration : str
        See `CHOICES`; `schedule` may also be `broadcast:preferred:FIRST` or
        `broadcast:geometric:FIRST,FACTOR`.
    levels : int or None
        PM-II: p-sums that a sample may meet, the divisor of epsilon and delta. Mode paper takes the
        paper's floor(log2 steps) + 1, mode tuned what the number of releases needs.
    significance, level : float
        The tests run at significance / ln(t + 1); nominal coverage of the intervals.
    spread_share : float
        Part of the budget for votes on the spread, with schedule broadcast and variance
        from_releases; by default that of the command line in mode tuned with gaussian noise.
    partners, lost : int or None, float or None
        Under a pairwise schedule: how many others an agent queries (default: all), and the share of
        answers that do not arrive (default: none).
    """

    agents: int
    steps: int
    means: str | DrawnMeans
    data: str | DrawnSamples
    epsilon: float
    delta: float
    mode: str
    counter: str
    weights: str
    schedule: str
    collaboration: str
    test: str
    variance: str
    noise: str
    calibration: str
    runs: int
    seed: int
    checkpoints: tuple[int, ...]
    half_width: float
    stddev: float | None
    spread: float = 0.0
    class_sizes: tuple[int, ...] | None = None
    levels: int | None = None
    significance: float = 0.05
    level: float = 0.95
    spread_share: float = 0.0
    partners: int | None = None
    lost: float | None = None

    @classmethod
    def from_options(
        cls,
        *,
        mode: str = "tuned",
        agents: int = 200,
        steps: int = 30_000,
        means: str | DrawnMeans = "classes:0.2,0.4,0.8",
        data: str | DrawnSamples = "uniform",
        epsilon: float = 1.0,
        delta: float = 1e-6,
        runs: int = 20,
        seed: int = 1,
        stddev: float | None = None,
        half_width: float | None = None,
        checkpoints: tuple[int, ...] | None = None,
        levels: int | None = None,
        **choices: Any,
    ) -> Self:
        """Fill in the defaults of the mode and of the data; an option that is None was not given.

        Examples
        --------
        >>> SimulationConfig.from_options(mode="paper", steps=1000).counter
        'pm1'
        >>> SimulationConfig.from_options(mode="paper", epsilon=2.0)
        Traceback (most recent call last):
        ValueError: epsilon must be at most 1 with calibration classical, got 2.0
        """
        _require_choice("mode", mode)
        typed = {name: value for name, value in choices.items() if value is not None}
        unknown = set(typed) - {field.name for field in fields(cls)}
        require(not unknown, "options", "be fields of SimulationConfig", sorted(unknown))
        learned = (
            {} if isinstance(data, str) or stddev is not None else {"variance": "from_releases"}
        )
        chosen = MODE_DEFAULTS[mode] | learned | typed

        if "weights" not in typed and not chosen["schedule"].startswith("broadcast"):
            chosen["weights"] = "last"  # a pair's gls weights cost the square of its releases

        if (
            "counter" not in typed
            and mode == "tuned"
            and _releases(chosen["schedule"], steps) <= LONGEST
        ):
            chosen["counter"] = Optimal.name if chosen["noise"] == "gaussian" else chosen["counter"]

        votes = chosen["variance"] == "from_releases" and chosen["schedule"].startswith("broadcast")
        if votes and mode == "tuned" and chosen["noise"] == "gaussian":
            chosen.setdefault("spread_share", SPREAD_SHARE)

        if stddev is None and data in ("uniform", "normal"):
            stddev = 0.5

        config = cls(
            mode=mode,
            agents=agents,
            steps=steps,
            means=means,
            data=data,
            epsilon=epsilon,
            delta=delta,
            runs=runs,
            seed=seed,
            stddev=stddev,
            half_width=data_half_width(data, stddev) if half_width is None else half_width,
            checkpoints=checkpoints or (steps,),
            levels=_default_levels(mode, chosen, agents, steps) if levels is None else levels,
            **chosen,
        )
        config.check()

        return config

    def check(self) -> None:
        """Refuse what cannot be simulated, naming the option, the rule and the value."""
        self._check_numbers()
        for name in ("mode", "counter", "weights", "test", "variance", "noise", "calibration"):
            _require_choice(name, getattr(self, name))

        if self.collaboration not in entry_points_of(COLLABORATIONS_GROUP):
            _require_choice("collaboration", self.collaboration)

        _require_choice("schedule", self.schedule.partition(":")[0], shown=self.schedule)
        means_model(self.means, self.data, self.spread, self.class_sizes).check(self.agents)
        self._check_privacy()
        self._check_truth()

        if self.is_broadcast:
            self._check_broadcast()
        else:
            self._check_pairwise()

    @property
    def is_broadcast(self) -> bool:
        """Whether every agent releases one stream that all read."""
        return self.schedule.partition(":")[0] == "broadcast"

    @property
    def release_times(self) -> str:
        """The release schedule written after `broadcast:`, or the default one."""
        return self.schedule.partition(":")[2] or RELEASE_TIMES

    @property
    def most_releases(self) -> int:
        """How many releases one querier can get of one agent under a pairwise schedule.

        The counter's horizon.
        """
        return _most_releases(self.schedule, self.partners or self.agents - 1, self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"means": own_or_text(self.means), "data": own_or_text(self.data)}

    def _check_numbers(self) -> None:
        require_least(2, agents=self.agents)
        require_least(1, steps=self.steps, runs=self.runs)
        require(self.seed >= 0, "seed", "not be negative", self.seed)

        increasing = all(
            a < b for a, b in zip(self.checkpoints, self.checkpoints[1:], strict=False)
        )
        require(
            increasing and self.checkpoints[0] >= 1 and self.checkpoints[-1] <= self.steps,
            "checkpoints",
            f"increase and lie in 1..steps ({self.steps})",
            ",".join(map(str, self.checkpoints)),
        )

        require_between(0, 1, significance=self.significance, level=self.level)
        require(0 <= self.spread_share < 1, "spread_share", "lie in [0, 1)", self.spread_share)
        require(0 <= self.spread <= LARGEST, "spread", f"be from 0 to {LARGEST:g}", self.spread)
        least = data_half_width(self.data, self.stddev, bounded_only=True)
        require_between(0, 10 * LARGEST, half_width=self.half_width)
        rule = f"be at least that of the data ({least:g})"
        require(self.half_width >= least * (1 - 1e-12), "half_width", rule, self.half_width)

    def _check_privacy(self) -> None:
        require_epsilon(self.epsilon)
        require_between(0, 1, delta=self.delta)
        classical = self.noise == "gaussian" and self.calibration == "classical"
        require(
            not classical or self.epsilon <= 1,
            "epsilon",
            "be at most 1 with calibration classical",
            self.epsilon,
        )

        l2 = self.counter in ("toeplitz", "optimal")
        rule = f"be gaussian with counter {self.counter} (its sensitivity is an l2 norm)"
        require(not l2 or self.noise == "gaussian", "noise", rule, self.noise)

        if self.levels is not None:
            require(
                self.counter == "pm2",
                "levels",
                f"be left out with counter {self.counter}",
                self.levels,
            )

            if not self.is_broadcast:
                need = self.most_releases.bit_length()
                rule = f"be at least {need} for {self.most_releases} releases"
                require(self.levels >= need, "levels", rule, self.levels)

    def _check_truth(self) -> None:
        unknown = (
            self.variance == "known" and self.stddev is None and not isinstance(self.data, str)
        )
        require(not unknown, "stddev", "be given with variance known", None)
        exact = means_model(self.means, self.data, self.spread, self.class_sizes).has_classes
        rule = (
            f"be lazy or eager with means {own_or_text(self.means)} and spread {self.spread:g} "
            "(oracle needs classes)"
        )
        require(self.test != "oracle" or exact, "test", rule, self.test)

    def _check_broadcast(self) -> None:
        """Every release is read by all, so that everyone is tested again.

        Lazy and eager coincide.
        """
        for name in ("partners", "lost"):
            value = getattr(self, name)
            require(not value, name, "be left out with schedule broadcast", value)

        rule = "be broadcast, broadcast:preferred:FIRST or broadcast:geometric:FIRST,FACTOR"
        times = parse_release_times(self.release_times)
        require(isinstance(times, Counts), "schedule", rule, self.schedule)

        if self.counter == "optimal" and isinstance(times, Counts):
            releases = _releases(self.schedule, self.steps)
            rule = (
                f"not be optimal beyond {LONGEST} releases (these steps and schedule: {releases})"
            )
            require(releases <= LONGEST, "counter", rule, self.counter)

        known = self.variance in ("known", "from_releases")
        require(
            known, "variance", "be known or from_releases with schedule broadcast", self.variance
        )
        votes = (
            self.variance == "from_releases" and self.mode == "tuned" and self.noise == "gaussian"
        )
        rule = "be 0 unless mode is tuned, noise gaussian and variance from_releases"
        require(votes or not self.spread_share, "spread_share", rule, self.spread_share)

    def _check_pairwise(self) -> None:
        require(0 <= (self.lost or 0) < 1, "lost", "lie in [0, 1)", self.lost)
        few = self.partners is None or 1 <= self.partners < self.agents
        require(few, "partners", f"lie in 1..{self.agents - 1}", self.partners)
        rule = f"be pm1, pm2 or toeplitz with schedule {self.schedule} (every pair would keep all its draws)"
        require(self.counter != "optimal", "counter", rule, self.counter)
        require(
            self.collaboration in ("tests", "none"),
            "collaboration",
            f"be tests or none with schedule {self.schedule} (pairwise releases give every agent another population; "
            "learned_prior reads one common snapshot: schedule broadcast)",
            self.collaboration,
        )

        rule = "be 0 unless schedule is broadcast"
        require(not self.spread_share, "spread_share", rule, self.spread_share)
        require(
            ":" not in self.schedule,
            "schedule",
            "take no release times unless it is broadcast",
            self.schedule,
        )

        if self.variance in ("bayesian", "jeffreys", "uniform"):
            ok = self.counter == "pm1" and self.schedule == "round_robin"
            rule = (
                f"not be {self.variance} with counter {self.counter} and schedule {self.schedule} (eq. 19: pm1, "
                "round_robin)"
            )
            require(ok, "variance", rule, self.variance)
        elif self.variance == "from_releases" and self.mode == "paper":
            rule = (
                "not be from_releases with counter toeplitz in mode paper "
                "(eq. 16 needs p-sums with independent noise)"
            )
            require(self.counter != "toeplitz", "variance", rule, self.variance)

        if self.weights == "gls":
            rule = f"not be gls beyond {GLS_RELEASES} releases of a pair (these steps and agents: {self.most_releases})"
            restricted = self.schedule == "restricted_round_robin"
            require(restricted or self.most_releases <= GLS_RELEASES, "weights", rule, self.weights)
            rule = "not be gls with schedule restricted_round_robin (every pair has release times of its own)"
            require(not restricted, "weights", rule, self.weights)


def _require_choice(name: str, value: str, shown: str | None = None) -> None:
    require(value in CHOICES[name], name, f"be one of {', '.join(CHOICES[name])}", shown or value)


def _releases(schedule: str, steps: int) -> float:
    """How many releases an agent makes of a broadcast schedule that counts samples.

    Infinitely many of any other.
    """
    kind, _, written = schedule.partition(":")
    times = parse_release_times(written or RELEASE_TIMES) if kind == "broadcast" else None

    if isinstance(times, Counts):
        return int(times.releases_up_to(np.array([steps]))[0])
    return math.inf


def _most_releases(schedule: str, others: int, steps: int) -> int:
    if schedule == "round_robin":
        return -(-steps // max(others, 1))
    return steps


def _default_levels(mode: str, chosen: dict[str, str], agents: int, steps: int) -> int | None:
    """PM-II: the paper divides by floor(log2 steps) + 1.

    What is needed is floor(log2 releases) + 1.
    """
    if chosen["counter"] != "pm2" or (
        mode != "paper" and chosen["schedule"].startswith("broadcast")
    ):
        return None

    if mode == "paper":
        return steps.bit_length()
    return _most_releases(chosen["schedule"], agents - 1, steps).bit_length()
