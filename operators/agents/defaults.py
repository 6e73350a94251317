"""What stands in for settings that are left open: shares, counter, the mechanism of least noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meanstream.operators.agents.agent_memory import FOREVER
from meanstream.operators.agents.release_times import Counts, Every
from meanstream.operators.counters.optimal import LONGEST, Optimal
from meanstream.operators.counters.pm1 import Pm1
from meanstream.operators.counters.registry import NOISES, PURE
from meanstream.operators.counters.toeplitz import Toeplitz
from meanstream.operators.counters.two_level import TwoLevel
from meanstream.operators.noise.group_privacy import group_epsilon
from meanstream.operators.noise.loss_distributions import (
    LossDistribution,
    gaussian_mu_of_odds,
    pure_epsilon_of_odds,
    valid_odds,
)
from meanstream.operators.records import Ints
from meanstream.operators.validation import require, valid_float, valid_floats

if TYPE_CHECKING:
    from meanstream.operators.agents.agents_settings import AgentsSettings

SPREAD_SHARE = 0.1
"""Part of the budget for votes on the spread by default (measured by
`benchmarks/goals/spread_vote.py`)."""
HISTOGRAM_SHARE = 0.1
"""Part of the budget for histograms with quantiles or exceedances
(`benchmarks/speed/speed_of_quantiles.py`)."""

AT_THE_END = "geometric:1000000000000,2"
"""A schedule that never comes due: each agent releases once, when all is read."""


def usual_spread_share(mode: str) -> float:
    """Part of the budget for votes where no one says: none where there can be no votes."""
    if mode == "tuned":
        return SPREAD_SHARE
    return 0.0


def usual_counter(mode: str, noise: str, horizon: int, times: Counts | Every) -> str:
    """Counter of Gaussian noise where no one says.

    The one of least noise that knows when releases are made and has room for them.
    """
    least = (
        mode == "tuned" and noise == "gaussian" and horizon <= LONGEST and isinstance(times, Counts)
    )

    if least:
        return Optimal.name
    return Toeplitz.name


def usual_histogram(
    quantiles: Sequence[float], exceeds: Sequence[float], given: dict[str, Any]
) -> dict[str, Any]:
    """Give the settings of a histogram where something is requested of it, and none where nothing is."""
    thresholds = valid_floats("exceeds", exceeds)
    share = given.get("histogram_share", HISTOGRAM_SHARE if quantiles or thresholds else 0.0)
    if quantiles or thresholds:
        require(share != 0, "histogram_share", "be more than 0 with quantiles or exceeds", share)
        return {"histogram_share": share, "exceeds": tuple(thresholds)}

    require(not share, "histogram_share", "be left out without quantiles or exceeds", share)
    return {}


AUTO = "auto"
GAUSSIAN_COUNTERS = (Toeplitz.name, Optimal.name)
"""Counters that Laplace noise does not fit."""
NOISE_NAMES = (AUTO, *NOISES)
ODDS_DELTA = 1e-6
"""Delta at which the epsilon of Gaussian noise is told where only odds were promised."""
_MOST_SHOWN = 4096
"""Releases whose noise is averaged; of more, as many that are spaced evenly."""
_PURE_COUNTERS = (Pm1.name, TwoLevel.name)


def least_noise(asked: dict[str, Any], make: type[AgentsSettings]) -> AgentsSettings:
    """Give the settings of least noise among all mechanisms that keep what was asked.

    Parameters
    ----------
    asked : dict
        Fields of the settings, of which `noise`, `counter` and `odds` may be open.
    make : type
        The class of the settings.

    Notes
    -----
    **Privacy.** Bounds, budget, unit, horizon and schedule decide; no value does.

    Raises
    ------
    ValueError
        If nothing can keep it: that of the first mechanism.
    """
    # Each mechanism that can keep the promise; the first refusal says why none can.
    made = []
    refusal: ValueError | None = None
    for fields in _candidates(asked, make):
        try:
            made.append(make(**fields))
        except ValueError as error:
            refusal = refusal or error

    # Noise that nobody named is in no refusal: a delta is what such a counter needs.
    if not made and asked["noise"] == AUTO and asked["counter"] in GAUSSIAN_COUNTERS:
        rule = f"be positive, such as 1e-6, for the {asked['counter']} counter, whose noise is Gaussian"
        require(asked["delta"] > 0, "delta", rule, asked["delta"])

    if not made:
        raise refusal or ValueError("noise must be known")
    return min(made, key=mean_noise_variance)


def other_mechanisms(settings: AgentsSettings) -> list[AgentsSettings]:
    """Give settings of the same label and unit with each other mechanism, the least noise first.

    Examples
    --------
    >>> from meanstream.operators.agents.agents_settings import AgentsSettings
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6)
    >>> [mechanism_name(one) for one in (settings, *other_mechanisms(settings))][:3]
    ['pm1.staircase', 'pm1.laplace', 'two_level.staircase']
    """
    # The same label, with everything open that decides the mechanism.
    fields_asked = {name: getattr(settings, name) for name in settings.__dataclass_fields__}
    fields_asked |= {"noise": AUTO, "counter": None, "levels": None}
    if settings.spread_share == usual_spread_share(settings.mode):
        fields_asked["spread_share"] = None

    others: dict[str, AgentsSettings] = {}
    for fields in _candidates(fields_asked, type(settings)):
        try:
            candidate = type(settings)(**fields)
        except ValueError:
            continue

        if mechanism_name(candidate) != mechanism_name(settings):
            others.setdefault(mechanism_name(candidate), candidate)

    return sorted(others.values(), key=mean_noise_variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismFacts:
    """Public: a mechanism, its noise, the best other one at the same label, and both yardsticks.

    Attributes
    ----------
    mechanism, other : str
        Counter and noise; `other` is empty where none keeps the label.
    stddev, other_stddev : float
        Of the noise in a sum, in the value's unit: root of the mean variance over the releases.
    guessed_right, other_guessed_right : float
        As of `AgentsSettings.guessed_right`.
    """

    mechanism: str
    stddev: float
    guessed_right: float
    other: str = ""
    other_stddev: float = math.nan
    other_guessed_right: float = math.nan

    @property
    def other_differs(self) -> bool:
        """Whether there is another mechanism with other noise: of one release two may be one law."""
        return self.other != "" and f"{self.other_stddev:.4g}" != f"{self.stddev:.4g}"

    @property
    def said(self) -> str:
        """The facts as a clause."""
        own = (
            f"{self.mechanism}, standard deviation {self.stddev:.4g} in a sum: a guess between two "
        )
        own += f"values is right at most {percent_of_guesses(self.guessed_right)} of the time"

        if not self.other_differs:
            return own

        best = f"next best: {self.other}, {self.other_stddev:.4g}, "
        return f"{own}; {best}{percent_of_guesses(self.other_guessed_right)}"


def mechanism_facts(settings: AgentsSettings) -> MechanismFacts:
    """Give the mechanism in use beside the best other one.

    Examples
    --------
    >>> import re
    >>> from meanstream.operators.agents.agents_settings import AgentsSettings
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, horizon=12, spread_share=0)
    >>> own, guess, other = re.split("[:;] ", mechanism_facts(settings).said, maxsplit=2)
    >>> own
    'pm1.staircase, standard deviation 3.531 in a sum'
    >>> guess
    'a guess between two values is right at most 72.4 % of the time'
    >>> other
    'next best: pm1.laplace, 3.606, 69.7 %'
    """
    # With a memory there is only one mechanism to speak of.
    used = mechanism_name(settings), _stddev(settings), settings.guessed_right
    facts = MechanismFacts(mechanism=used[0], stddev=used[1], guessed_right=used[2])
    others = [] if settings.remembers.forgets else other_mechanisms(settings)
    if not others:
        return facts

    best = others[0]

    return replace(
        facts,
        other=mechanism_name(best),
        other_stddev=_stddev(best),
        other_guessed_right=best.guessed_right,
    )


def percent_of_guesses(share: float) -> str:
    """Write a share of right guesses."""
    if share < 0.9995:
        return f"{100 * share:.1f} %"
    return "nearly 100 %"


def _stddev(settings: AgentsSettings) -> float:
    return math.sqrt(mean_noise_variance(settings)) * settings.grid.resolution


def mechanism_name(settings: AgentsSettings) -> str:
    """Counter and noise, as `meanstream audit mechanism` names them."""
    return f"{settings.counter}.{settings.noise}"


def mean_noise_variance(settings: AgentsSettings) -> float:
    """Mean variance of the noise in an agent's sums over all its releases, in squared grid units."""
    return float(np.mean(settings.sum_variance(_releases(settings))))


def _releases(settings: AgentsSettings) -> Ints:
    horizon = settings.most_releases or _MOST_SHOWN
    return np.unique(np.rint(np.linspace(1, horizon, min(horizon, _MOST_SHOWN))).astype(np.int64))


def _candidates(asked: dict[str, Any], make: type[AgentsSettings]) -> Iterator[dict[str, Any]]:
    """Give the fields of each mechanism that is looked at, with its epsilon where odds were asked."""
    # Epsilon and odds are two promises: one of them is asked.
    odds = None if asked["odds"] is None else valid_odds(asked["odds"])
    require(
        odds is None or asked["epsilon"] is None,
        "odds",
        "be left out with epsilon: each is a promise of its own",
        asked["odds"],
    )
    require(odds is not None or asked["epsilon"] is not None, "epsilon", "be given, or odds", None)

    named = asked["noise"]
    require(named in NOISE_NAMES, "noise", f"be one of {', '.join(NOISE_NAMES)}", named)
    delta = valid_float("delta", asked["delta"])
    require(0 <= delta < 1, "delta", "lie in [0, 1)", delta)

    # Noise by counter; for odds each has an epsilon of its own.
    for noise in _noises(asked, named, delta):
        for counter in _counters(asked, noise):
            fields = asked | {"noise": noise, "counter": counter, "odds": None}
            if odds is not None:
                fields |= _label(fields, odds, delta, make)

            yield fields


def _noises(asked: dict[str, Any], named: str, delta: float) -> tuple[str, ...]:
    """Distributions that are open, pure ones first."""
    if named != AUTO:
        return (named,)

    # The papers have Gaussian noise.
    if asked["mode"] == "paper" or asked["calibration"] != "analytic":
        return ("gaussian",)

    # What forgets has no end, which pure noise would pay for with all of epsilon at each release.
    forgets = asked["memory"] != FOREVER
    pure = [] if forgets else [*PURE]
    gaussian = delta > 0 or asked["odds"] is not None
    if not pure and not gaussian:
        why = "with a memory that forgets" if forgets else "with a spread_share or histogram_share"
        require(
            False, "delta", f"be more than 0, such as 1e-6, {why}: the noise is Gaussian", delta
        )

    if gaussian:
        return (*pure, "gaussian")
    return tuple(pure)


def _counters(asked: dict[str, Any], noise: str) -> tuple[str | None, ...]:
    """Counters that are open; None is the usual one of Gaussian noise."""
    if asked["counter"] is not None:
        return (asked["counter"],)

    if noise in PURE:
        if asked["mode"] == "paper":
            return (Pm1.name,)
        return _PURE_COUNTERS

    several = asked["noise"] == AUTO and asked["mode"] == "tuned" and asked["memory"] == FOREVER

    if several:
        return (None, Toeplitz.name)
    return (None,)


def _label(
    fields: dict[str, Any], odds: float, delta: float, make: type[AgentsSettings]
) -> dict[str, float]:
    """Give epsilon, and for Gaussian noise delta, at which a mechanism keeps the odds."""
    # The Gaussian by its mu, at a delta; pure noise by its whole distribution of losses.
    if fields["noise"] not in PURE:
        delta_of_label = delta or ODDS_DELTA
        epsilon = group_epsilon(gaussian_mu_of_odds(odds), delta_of_label)
        return {"epsilon": _rounded_down(epsilon), "delta": delta_of_label}

    def losses(epsilon: float) -> LossDistribution:
        return make(**fields | {"epsilon": epsilon}).losses

    return {"epsilon": _rounded_down(pure_epsilon_of_odds(odds, losses))}


def _rounded_down(epsilon: float) -> float:
    """Six digits: the same on every machine, and never more than was allowed."""
    return float(f"{epsilon * (1.0 - 5e-6):.6g}")
