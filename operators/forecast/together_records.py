"""What a forecast of agents says: numbers by count, and whether collaboration will pay."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

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
        samples = (
            "no number within reach" if self.samples_needed is None else f"{self.samples_needed:,}"
        )
        alone = "no number is enough" if self.samples_alone is None else f"{self.samples_alone:,}"

        return (
            f"For a half-width of {self.target_half_width:g} at the median count {epsilon}; at epsilon "
            f"{self.epsilon:g} its agent needs {samples} samples, alone {alone}."
        )
