"""An estimator small enough to check by hand: some users say a coarse bit, the others report near
where it points.

Not for use: it shows what an estimator must have, and keeps tests of hosts independent of the real
ones.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np

from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools
from meanstream.operators.rounds.estimator_traits import EstimatorTraits
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    Count,
    LastRound,
    StageFound,
)


def _uniform(words: RandomWords) -> np.ndarray:
    return (words(0)[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53


class OneBit:
    """Every user one bit, +1 or -1, unbiased around a center that is public."""

    def __init__(self, name: str, epsilon: float, reach: float) -> None:
        self.name, self.epsilon, self.reach = name, epsilon, reach

    @property
    def scale(self) -> float:
        return self.reach * (np.exp(self.epsilon) + 1) / (np.exp(self.epsilon) - 1)

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        x = np.clip(summaries.mean - public.get("center", 0.0), -self.reach, self.reach)
        return np.where(_uniform(words) < 0.5 + x / (2 * self.scale), 1, -1).astype(np.int64)[
            :, None
        ]

    def valid(self, reports: Reports, public: Public) -> Bools:
        return np.asarray(np.abs(reports[:, 0]) == 1)

    def tally(self, reports: Reports, public: Public) -> Tally:
        return Tally(len(reports), (int(reports.sum()),) if len(reports) else ())

    def mean(self, tally: Tally, public: Public) -> float:
        return float(public.get("center", 0.0)) + (
            self.scale * tally.sums[0] / tally.n if tally.n else 0.0
        )


class Located(StageFound, frozen=True, kw_only=True):
    """Public: what the first stage hands on."""

    center: Annotated[float, msgspec.Meta(ge=-0.5, le=0.5)]
    votes: Count


class First(OneBit):
    def decode(self, tally: Tally, public: Public) -> Public:
        center = float(np.clip(self.mean(tally, public), -0.5, 0.5))
        return Located(center=center, votes=tally.n).plain()

    def check(self, found: Public, public: Public) -> None:
        Located.of(found)


class Last(LastRound, OneBit):
    level, mode = 0.95, "tuned"

    def decode(self, tally: Tally, public: Public) -> Estimate:
        value = self.mean(tally, public) if tally.n else 0.0
        stderr = self.scale / max(tally.n, 1) ** 0.5
        ends = (
            np.clip([value - 1.96 * stderr, value + 1.96 * stderr], -1, 1)
            if tally.n
            else [-1.0, 1.0]
        )
        return Estimate(
            value=np.array(np.clip(value, -1, 1)),
            lower=np.array(ends[0]),
            upper=np.array(ends[1]),
            level=self.level,
            stderr=np.array(stderr),
            epsilon=self.epsilon,
            n_users=tally.n + public.get("votes", 0),
            method="tiny",
            mode=self.mode,
            unclipped=np.array(value),
            stages=(dict(public), {"n": tally.n}),
        )


class Tiny(EstimatorTraits):
    """A quarter of the users find where the mean is, the others report around it."""

    name, trust = "tiny", "local"
    options = frozenset({"sizes", "mode", "level", "between_users", "reach"})

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: Any = None,
        mode: str = "tuned",
        level: float = 0.95,
        between_users: float | None = None,
        reach: float = 1.0,
    ) -> None:
        if not 0 < reach <= 1:
            raise ValueError(f"reach must lie in (0, 1], got {reach!r}")
        self.mode, self.epsilon, self.users = mode, epsilon, users
        self.between_users = between_users
        last = Last("refine", epsilon, reach)
        last.level, last.mode = level, mode
        self.rounds = [First("locate", epsilon, 1.0), last]
        self.shares = [0.25, 0.75]

    def describe(self) -> dict[str, Any]:
        last = self.rounds[-1]
        return {
            "reach": last.reach,
            "users": self.users,
            "predicted_stderr": last.scale / self.users**0.5,
        }


TINY = "tests.streaming.support.tiny_estimator:Tiny"
