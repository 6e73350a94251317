"""The tuned plan's design as a record.

What each stage asks, and what the plan is predicted to reach.

Everything follows from public numbers (epsilon, how many users, the law of their sizes), so a
design is public and the same for everyone. `meanstream.operators.estimators.plan.plan_search` finds
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

from meanstream.operators.rounds.channels.registry import CHANNELS
from meanstream.operators.rounds.localization import FINEST
from meanstream.operators.rounds.round_results import (
    LEAST_WIDTH,
    MOST,
    result_fields,
    result_number,
    result_one_of,
    result_whole_number,
)
from meanstream.operators.rounds.votes.base import MAX_BINS

KINDS = ("vote", "full", "clip")
GREATEST_SIZE = 2**40
_LEAST_GAIN = 1e-3
RANGES = {
    "share": (0.0, 1.0),
    "second_moment": (0.0, 1.0),
    "cap": (1.0, float(GREATEST_SIZE)),
    "shrunk": (_LEAST_GAIN, 1.0),
    "window": (LEAST_WIDTH, 2.0),
    "gain": (_LEAST_GAIN, 1.0),
    "error": (0.0, MOST),
    "bias": (0.0, MOST),
    "half_width": (FINEST, MOST),
    "threshold": (0.0, MOST),
}
"""Least and greatest value of the numbers of a stage's design."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDesign:
    """Public: what one stage asks.

    Attributes
    ----------
    kind : str
        "vote" (for a bin of the mean), "full" (the mean on [-1, 1]) or "clip" (the mean within a
        window).
    share : float
        Of the users.
    channel, second_moment : str, float
        How a number is randomized ("" for votes).
    cap, shrunk : float
        Size from which users are not shrunk; mean shrinkage A.
    window, gain : float
        Half-width, and kappa.
    error : float
        Predicted standard error of the stage's center estimate.
    bias : float
        Predicted root mean square of the clip bias, over the error of the center: the largest over
        laws.
    least : int
        Votes: users with fewer samples send the random zero row.
    half_width, bins : float, int
        Votes: half the width of a bin, number of bins.
    threshold : float
        Mean report above which the vote is taken to have failed; 0 for never.
    """

    kind: str
    share: float
    channel: str = ""
    second_moment: float = 1.0
    cap: float = 1.0
    shrunk: float = 1.0
    window: float = 1.0
    gain: float = 1.0
    error: float = 1.0
    bias: float = 0.0
    least: int = 1
    half_width: float = 1.0
    bins: int = 1
    threshold: float = 0.0

    @classmethod
    def of(cls, found: Any) -> StageDesign:
        """Read a design from outside: every field within its range, or `ValueError`."""
        given = result_fields(found, {one.name for one in dataclass_fields(cls)})
        vote = result_one_of(given["kind"], "kind", KINDS) == "vote"
        result_one_of(given["channel"], "channel", ("",) if vote else tuple(CHANNELS))

        for name, (low, high) in RANGES.items():
            result_number(given[name], name, low, high)

        result_whole_number(given["least"], "least", 1, GREATEST_SIZE)
        result_whole_number(given["bins"], "bins", 1, MAX_BINS)
        return cls(**given)

    def describe(self) -> dict[str, Any]:
        """Plain data."""
        found: dict[str, Any] = {
            "stage": self.kind,
            "share": round(self.share, 4),
            "stderr": self.error,
        }

        if self.kind == "vote":
            return found | {
                "bins": self.bins,
                "half_width": self.half_width,
                "least_size": self.least,
            }

        return found | {"window": self.window, "channel": self.channel, "effective_size": self.cap}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDesign:
    """Public: the stages, and what they are predicted to reach.

    Attributes
    ----------
    stages : tuple of StageDesign
        In order.
    risk : float
        Predicted mean squared error on [-1, 1], the worst over two-point laws.
    failure : float
        Part of `risk` due to votes that go wrong.
    """

    stages: tuple[StageDesign, ...]
    risk: float
    failure: float

    @property
    def kind(self) -> str:
        """One letter per stage: H (vote), R (report on [-1, 1]), C (clipped report)."""
        return "".join({"vote": "H", "full": "R", "clip": "C"}[stage.kind] for stage in self.stages)
