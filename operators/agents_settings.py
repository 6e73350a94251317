"""How agents release: bounds, privacy parameters, counter and schedule, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from operators.counter import Counter, fresh_noise, make_counter
from operators.fixed_point import FixedPoint
from operators.noise import GaussianNoise, LaplaceNoise
from operators.noise_distributions import TAIL_DELTA
from operators.release_times import Counts, Every, parse_schedule
from operators.validation import require, require_between, require_bounds, require_positive

MAX_HORIZON = 1_000_000


@dataclass(frozen=True, kw_only=True)
class AgentsSettings:
    """How agents release: bounds, privacy parameters, counter and schedule; plain values, checked at once.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample, in the value's unit; samples are clipped to them.
    epsilon, delta : float
        What one sample's value costs over the whole life of its agent's stream.
    counter : str
        Continual-counting mechanism: "toeplitz" (tuned), "pm1" or "pm2" (paper).
    horizon : int
        Greatest number of releases of one agent: its budget.
    schedule : str
        "preferred:FIRST" or "geometric:FIRST,FACTOR" in the agent's own sample count, or "every:DURATION" of event
        time. The default, after 10, 15, 20, 30, 50, 70, 100, ... samples, serves agents with 15 samples and, at 40
        releases, with 3e7.
    noise, calibration : str
        "gaussian" or "laplace"; "analytic" or "classical" (Gaussian only, epsilon <= 1).
    levels : int, optional
        Divisor of the budget of "pm2"; by default what the horizon needs.
    mode : str
        "tuned", or "paper" for the papers' basic composition.

    Raises
    ------
    ValueError
        Naming the parameter, the rule and the value.
    """

    lower: float
    upper: float
    epsilon: float
    delta: float
    counter: str = "toeplitz"
    horizon: int = 40
    schedule: str = "preferred:10"
    noise: str = "gaussian"
    calibration: str = "analytic"
    levels: int | None = None
    mode: str = "tuned"

    def __post_init__(self) -> None:
        require_bounds(self.lower, self.upper)
        require_positive(epsilon=self.epsilon)
        require_between(0, 1, delta=self.delta)
        require(1 <= self.horizon <= MAX_HORIZON, "horizon", f"lie in 1..{MAX_HORIZON}", self.horizon)
        require(self.mode in ("tuned", "paper"), "mode", "be 'tuned' or 'paper'", self.mode)
        _ = self.fresh, self.times  # the parts check their own parameters

    @cached_property
    def grid(self) -> FixedPoint:
        """The fixed-point grid of samples and sums."""
        return FixedPoint(self.lower, self.upper)

    @cached_property
    def mechanism(self) -> Counter:
        """The counter whose linear noise makes the prefix sums private."""
        return make_counter(self.counter, horizon=self.horizon, levels=self.levels)

    @cached_property
    def fresh(self) -> GaussianNoise | LaplaceNoise:
        """Distribution of the one fresh draw of a release, in grid units."""
        # What the inversion cuts off the tails, once per release, is counted in delta (Laplace: see `explain`).
        tails = self.horizon * TAIL_DELTA if self.noise == "gaussian" else 0.0
        require(self.delta > tails, "delta", f"exceed the {tails:.1e} that the noise's tails cost", self.delta)
        return fresh_noise(
            self.mechanism,
            epsilon=self.epsilon,
            delta=self.delta - tails,
            sensitivity=self.grid.span,
            noise=self.noise,
            calibration=self.calibration,
            composition="basic" if self.mode == "paper" else "concentrated",
        )

    @cached_property
    def times(self) -> Counts | Every:
        """When an agent releases."""
        return parse_schedule(self.schedule)
