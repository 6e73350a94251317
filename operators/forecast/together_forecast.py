"""What collaboration will bring to agents of given counts and spread, before anything runs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.forecast.learned_forecast import (
    LearnedErrors,
    LearnedForecast,
    Remembered,
    least_enough,
)
from meanstream.operators.forecast.users_needed import number_or
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require, require_between, require_positive

MOST_EPSILON = 50.0
"""No larger epsilon is proposed."""
PAYS = 0.95
"""Collaboration pays where it leaves at most this share of the squared error."""
_ROUNDING = 1e-9
"""Probabilities that add up to 1 may miss it by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What agents of one count can expect.

    Root mean squared errors and half-widths, in the value's unit.

    Attributes
    ----------
    samples : int
    quantile : float
        Share of the agents with at most that many.
    alone, together : float
        Error of learning alone, and with the others' releases.
    sampling, privacy : float
        Parts of `together`: it is the root of the sum of their squares. `sampling` is what would be
        left if all data were public, `privacy` what the noise of the releases costs.
    half_width_alone, half_width : float
        Of the intervals that will be stated.
    """

    samples: int
    quantile: float
    alone: float
    together: float
    sampling: float
    privacy: float
    half_width_alone: float
    half_width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsForecast:
    """What a configuration will bring.

    Attributes
    ----------
    rows : list of Row
        At the quantiles `SHOWN` of the counts.
    releasing : float
        Share of the agents with samples enough for a release.
    error_ratio, public_ratio : float
        Mean squared error over that of learning alone, over all agents: with these releases, with
        all data public.
    by_epsilon : dict
        Error together of an agent of median count, for other epsilons.
    epsilon_needed, samples_needed, samples_alone : float, int, int or None
        For the wanted half-width at the median count: the least epsilon, how many samples the
        median agent needs if all counts grow alike, and how many it needs alone; None where nothing
        within reach is enough.
    """

    epsilon: float
    agents: int
    level: float
    stated_error: float
    rows: list[Row]
    releasing: float
    error_ratio: float
    public_ratio: float
    by_epsilon: dict[float, float]
    target_half_width: float | None = None
    epsilon_needed: float | None = None
    samples_needed: int | None = None
    samples_alone: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"sentences": self.sentences()}

    def sentences(self) -> list[str]:
        """Say whether it pays, why not, and what is needed."""
        few = f"{1 - self.releasing:.0%} of the agents have too few samples for a release; they only read."
        return [
            self._verdict(),
            *([few] if self.releasing < 1 - _ROUNDING else []),
            *([] if self.target_half_width is None else [self._target()]),
        ]

    def _verdict(self) -> str:
        left = f"{self.error_ratio:.0%}"
        public = f"{self.public_ratio:.0%}"
        if self.public_ratio > PAYS:
            return (
                f"Collaboration will not pay: even with all data public it would leave {public} of the squared error. "
                "Agents differ by more than the uncertainty of their own means."
            )

        if self.error_ratio > PAYS:
            return (
                f"Collaboration will not pay at epsilon {self.epsilon:g}: it leaves {left} of the squared error, and "
                f"{public} with all data public. The noise hides the common structure of agents. Use more samples per "
                "agent, more agents or a larger epsilon."
            )

        return (
            f"Together agents will have {left} of the squared error of learning alone (with all "
            f"data public {public})."
        )

    def _target(self) -> str:
        epsilon = (
            f"no epsilon up to {MOST_EPSILON:g} is enough"
            if self.epsilon_needed is None
            else f"epsilon {self.epsilon_needed:.3g} is enough"
        )
        samples = number_or("no number within reach", self.samples_needed)
        alone = number_or("no number is enough", self.samples_alone)

        return (
            f"For a half-width of {self.target_half_width:g} at the median count {epsilon}; at epsilon "
            f"{self.epsilon:g} its agent needs {samples} samples, alone {alone}."
        )


STATED_ERROR = 0.17
UNEQUAL_ERROR = 0.3
"""Error of a predicted squared error, in units of that of learning alone, as found against the
simulator: of agents of one count, and of unequal ones, whom a trend by counts is less certain for
than is predicted here."""
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
SHOWN = (0.1, 0.5, 0.9)
"""Quantiles of the counts that are shown."""
LEAST_EPSILON = 0.01
MOST_FACTOR = 1e4
_BEYOND = 1e100
"""So many times narrower is beyond any number of samples."""
_PER_E = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Agents that are planned for.

    Parameters
    ----------
    agents : int
        How many there are, at least 2.
    sizes : SizeDistribution
        Samples per agent: public.
    spread : float
        Standard deviation of the agents' own means, in the value's unit; 0 if all have the same.
    stddev : float
        Standard deviation of one sample around its agent's mean, in the value's unit.
    """

    agents: int
    sizes: SizeDistribution
    spread: float
    stddev: float

    def __post_init__(self) -> None:
        require(self.agents >= 2, "agents", "be at least 2", self.agents)
        require(
            math.isfinite(self.spread) and self.spread >= 0,
            "spread",
            "be finite and not negative",
            self.spread,
        )
        require_positive(stddev=self.stddev)

    def scaled(self, factor: float) -> Self:
        """Give everyone that many times the samples."""
        support, size_index = np.unique(
            np.maximum(np.rint(self.sizes.support * factor), 1), return_inverse=True
        )
        sizes = SizeDistribution(
            support.astype(np.int64), _sums(size_index, self.sizes.probability)
        )

        return replace(self, sizes=sizes)


def forecast_together(
    crowd: Crowd,
    settings: AgentsSettings,
    *,
    level: float = 0.95,
    target_half_width: float | None = None,
) -> AgentsForecast:
    """Predict errors and intervals of the learned prior, alone and together, with the noise's part apart.

    Parameters
    ----------
    crowd : Crowd
        Who takes part.
    settings : AgentsSettings
        How they release; a schedule that counts samples.
    level : float
        Of the intervals.
    target_half_width : float, optional
        What an agent of median count wants, in the value's unit.

    Notes
    -----
    **Privacy.** A function of what is declared: it reads no data and spends nothing.

    Releases are `T_b ~ N(theta_b, stddev^2/t_b + noise_b)`, means `theta ~ N(center, spread^2)`
    without classes. The learned prior's posterior of the spread is computed for several outcomes of
    the releases' sum of squares, under its own prior (flat in the cube of the spread, center
    unknown), and an agent's squared error by the weight that it then gives to the others.
    The same with everyone's raw data in the releases' place is the part of sampling. Agents in
    exact classes gain more. The variance of one sample is taken for known. With a memory that
    forgets means are taken to stay, and the weights are those that samples then have
    (`Remembered`).

    Examples
    --------
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, noise="gaussian")
    >>> crowd = Crowd(agents=1000, sizes=SizeDistribution.parse("point:100"), spread=0.02, stddev=0.25)
    >>> found = forecast_together(crowd, settings)
    >>> row = found.rows[1]
    >>> [round(x, 4) for x in (row.alone, row.together, row.sampling, row.privacy)]
    [0.025, 0.0161, 0.0157, 0.0036]
    """
    require_between(0, 1, level=level)
    if target_half_width is not None:
        require_positive(target_half_width=target_half_width)

    # Means and samples lie within the bounds, so their spreads do, too.
    width = settings.upper - settings.lower
    rule = (
        f"be at most half the width from lower ({settings.lower!r}) to upper ({settings.upper!r})"
    )
    require(crowd.spread <= width / 2, "spread", rule, crowd.spread)
    require(crowd.stddev <= width / 2, "stddev", rule, crowd.stddev)
    middle = _quantiles(crowd.sizes, (0.5,))

    # Similar sizes are joined; a small, a median and a large agent are shown.
    counts, share = _joined(crowd.sizes)
    every = np.append(counts, _quantiles(crowd.sizes, SHOWN))
    held = Remembered(settings)

    # What each knows alone, from releases, and if raw means were public.
    alone = crowd.stddev**2 / held.own(every)
    released = _released(crowd, held)
    together = released.predict(alone)
    public = _public(crowd, held).predict(alone)
    half = half_width_alone(alone, level), released.half_width(together, alone, level)

    # Over all agents, not over those shown.
    ratios = [
        float(share @ errors.error[: len(share)] / (share @ alone[: len(share)]))
        for errors in (together, public)
    ]
    errors_by_epsilon = {
        epsilon: math.sqrt(_with_epsilon(crowd, settings, epsilon, middle, level)[0])
        for epsilon in sorted({*EPSILONS, settings.epsilon})
    }

    forecast = AgentsForecast(
        epsilon=settings.epsilon,
        agents=crowd.agents,
        level=level,
        stated_error=STATED_ERROR if len(share) == 1 else UNEQUAL_ERROR,
        rows=_rows(every[len(share) :], together, public, alone, half),
        releasing=float(share @ (held.newest(counts) > 0)),
        error_ratio=ratios[0],
        public_ratio=ratios[1],
        by_epsilon={
            epsilon: error for epsilon, error in errors_by_epsilon.items() if math.isfinite(error)
        },
    )

    if target_half_width is not None:
        forecast = replace(
            forecast,
            target_half_width=target_half_width,
            **_needed(crowd, settings, level, target_half_width),
        )

    return forecast


def _released(crowd: Crowd, held: Remembered) -> LearnedForecast:
    """Everyone's newest release, but one's own."""
    # How many have made each number of releases.
    number = _sums(held.newest(crowd.sizes.support), crowd.sizes.probability)
    made = np.flatnonzero(number[1:]) + 1
    samples, noise = held.released(made)
    others = (crowd.agents - 1) * number[made]

    return LearnedForecast(others, samples, crowd.stddev**2, noise, crowd.spread, _width(held))


def _public(crowd: Crowd, held: Remembered) -> LearnedForecast:
    """Everyone's raw mean, but one's own."""
    counts, share = _joined(crowd.sizes)
    number = (crowd.agents - 1) * share
    no = np.zeros(len(share))
    return LearnedForecast(
        number, held.own(counts), crowd.stddev**2, no, crowd.spread, _width(held)
    )


def _width(held: Remembered) -> float:
    return held.settings.upper - held.settings.lower


def _joined(sizes: SizeDistribution) -> tuple[Floats, Floats]:
    """Join similar sizes: their means, and their probabilities."""
    # Sizes within a step of a logarithm count as one.
    step = np.floor(_PER_E * np.log(sizes.support)).astype(np.int64)
    number = _sums(step, sizes.probability)
    used = number > 0
    return _sums(step, sizes.probability * sizes.support)[used] / number[used], number[used]


def _sums(place: Ints, weight: Floats) -> Floats:
    return np.asarray(np.bincount(place, weight), dtype=np.float64)


def _quantiles(sizes: SizeDistribution, levels: tuple[float, ...]) -> Floats:
    below = np.cumsum(sizes.probability)
    return sizes.support[np.minimum(np.searchsorted(below, levels), len(below) - 1)].astype(
        np.float64
    )


def _median_agent(
    crowd: Crowd, settings: AgentsSettings, count: Floats, level: float
) -> tuple[float, float]:
    """Predict the squared error and the half-width of an agent of this count."""
    held = Remembered(settings)
    alone = crowd.stddev**2 / held.own(count)
    released = _released(crowd, held)
    together = released.predict(alone)

    return float(together.error[0]), float(released.half_width(together, alone, level)[0])


def _with_epsilon(
    crowd: Crowd, settings: AgentsSettings, epsilon: float, count: Floats, level: float
) -> tuple[float, float]:
    """Predict squared error and half-width at another epsilon.

    Infinite where the settings refuse it.
    """
    # An epsilon may be too small for any noise.
    try:
        other = replace(settings, epsilon=epsilon)
    except ValueError:
        return math.inf, math.inf

    return _median_agent(crowd, other, count, level)


def _rows(
    counts: Floats,
    told: LearnedErrors,
    public: LearnedErrors,
    alone: Floats,
    half_width: tuple[Floats, Floats],
) -> list[Row]:
    """Say what agents of the last counts of `told` can expect.

    Half-widths are those alone and together.
    """
    shown = slice(-len(counts), None)
    error = told.error[shown]

    # The error of raw public means is sampling; what is above it is the noise's.
    sampling = np.minimum(public.error[shown], error)

    columns = {
        "samples": counts.astype(np.int64),
        "quantile": np.array(SHOWN),
        "alone": np.sqrt(alone[shown]),
        "together": np.sqrt(error),
        "sampling": np.sqrt(sampling),
        "privacy": np.sqrt(error - sampling),
        "half_width_alone": half_width[0][shown],
        "half_width": half_width[1][shown],
    }

    return [
        Row(**dict(zip(columns, row, strict=True)))
        for row in zip(*(c.tolist() for c in columns.values()), strict=True)
    ]


def _needed(crowd: Crowd, settings: AgentsSettings, level: float, target: float) -> dict[str, Any]:
    """Find the least epsilon, and the least growth of all counts, that bring the median agent to the target."""
    middle = _quantiles(crowd.sizes, (0.5,))
    alone = (
        min(float(half_width_alone(np.array([crowd.stddev**2]), level)[0]) / target, _BEYOND) ** 2
    )

    # Each goal by halving: more epsilon, or more samples.
    def with_epsilon(epsilon: float) -> bool:
        return _with_epsilon(crowd, settings, epsilon, middle, level)[1] <= target

    def with_factor(factor: float) -> bool:
        grown = crowd.scaled(factor)
        return _median_agent(grown, settings, _quantiles(grown.sizes, (0.5,)), level)[1] <= target

    factor = least_enough(with_factor, 1 / float(middle[0]), MOST_FACTOR)
    return {
        "epsilon_needed": least_enough(with_epsilon, LEAST_EPSILON, MOST_EPSILON),
        "samples_needed": None
        if factor is None
        else int(_quantiles(crowd.scaled(factor).sizes, (0.5,))[0]),
        "samples_alone": Remembered(settings).needed(alone),
    }
