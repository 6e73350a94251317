"""What events of agents are made of.

Noised counts of a release, and answers of an estimate next to its mean.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from meanstream.operators.agents.own_histogram import MOST_BINS
from meanstream.operators.records import VOTE_BINS
from meanstream.streaming.events.base import Interval, NotNegative


class SpreadVotes(BaseModel):
    """Public: how far pairs of an agent's samples lie apart, in bins with calibrated noise.

    Its votes so far, added up.

    **Privacy.** Part of its release: (epsilon, delta) covers both.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    number: Annotated[int, Field(ge=0)] = Field(description="Votes so far.")
    pairs: Annotated[int, Field(ge=0)] = Field(
        description="Pairs of samples in them; each is in one bin of one vote."
    )
    counts: Annotated[tuple[int, ...], Field(min_length=VOTE_BINS, max_length=VOTE_BINS)] = Field(
        description="Noised pairs by bin: equal, 9 bins by halvings of the bounds' width, at opposite bounds."
    )
    noise_variance: NotNegative = Field(
        description="Variance of the privacy noise of one bin of one vote."
    )


class SampleCounts(BaseModel):
    """Public: an agent's samples, counted in bins with calibrated noise.

    All that it told of them so far, added up.

    **Privacy.** Part of its release: (epsilon, delta) covers both.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    number: Annotated[int, Field(ge=0)] = Field(
        description="How often samples were counted so far."
    )
    samples: Annotated[int, Field(ge=0)] = Field(
        description="How many they were; each is in one bin of one count."
    )
    counts: Annotated[tuple[int, ...], Field(min_length=1, max_length=MOST_BINS)] = Field(
        description="Noised samples by bin: at the lower bound, between the bounds and thresholds, at the upper bound."
    )
    noise_variance: NotNegative = Field(
        description="Variance of the privacy noise of one bin of one count."
    )


class QuantileAnswer(BaseModel):
    """Private, part of an estimate: a quantile of the agent's own values."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    quantile: Annotated[FiniteFloat, Field(gt=0, lt=1)] = Field(
        description="Share of the values that lie below it."
    )
    value: FiniteFloat = Field(description="The estimate, in the value's unit.")
    interval: Interval = Field(description="Where it lies, with probability `level`.")


class ExceedanceAnswer(BaseModel):
    """Private, part of an estimate: the share of the agent's own values above a threshold."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    threshold: FiniteFloat = Field(description="In the value's unit.")
    share: Annotated[FiniteFloat, Field(ge=0, le=1)] = Field(description="The estimate.")
    interval: Interval = Field(description="Where it lies, with probability `level`.")
