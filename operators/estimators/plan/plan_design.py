"""The tuned plan's design as a record.

What each stage asks, and what the plan is predicted to reach.

Everything follows from public numbers (epsilon, how many users, the law of their sizes), so a
design is public and the same for everyone. `meanstream.operators.estimators.plan.plan_search` finds
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from meanstream.operators.rounds.localization import FINEST
from meanstream.operators.rounds.round_results import LEAST_WIDTH, MOST, Error
from meanstream.operators.rounds.votes.base import MAX_BINS

GREATEST_SIZE = 2**40
_LEAST_GAIN = 1e-3

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Gain = Annotated[float, msgspec.Meta(ge=_LEAST_GAIN, le=1.0)]


class StageDesign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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

    kind: Literal["vote", "full", "clip"]
    share: Share
    channel: str = ""
    second_moment: Share = 1.0
    cap: Annotated[float, msgspec.Meta(ge=1.0, le=float(GREATEST_SIZE))] = 1.0
    shrunk: Gain = 1.0
    window: Annotated[float, msgspec.Meta(ge=LEAST_WIDTH, le=2.0)] = 1.0
    gain: Gain = 1.0
    error: Error = 1.0
    bias: Error = 0.0
    least: Annotated[int, msgspec.Meta(ge=1, le=GREATEST_SIZE)] = 1
    half_width: Annotated[float, msgspec.Meta(ge=FINEST, le=MOST)] = 1.0
    bins: Annotated[int, msgspec.Meta(ge=1, le=MAX_BINS)] = 1
    threshold: Error = 0.0

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
