"""The events of agents on the wire, the notices of records that were not used, and the list of all events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import AwareDatetime, Field, FiniteFloat

from meanstream.operators.agents.own_histogram import MOST_BINS
from meanstream.operators.records import VOTE_BINS
from meanstream.streaming.events.base import (
    Count,
    Delta,
    Epsilon,
    Event,
    EventPart,
    Interval,
    Level,
    Mode,
    Name,
    Natural,
    NotNegative,
    PrivateEvent,
    PublicEvent,
    optional_field,
)
from meanstream.streaming.events.round_events import (
    Charge,
    Report,
    RoundRefusal,
    StageReports,
    StageResult,
    WindowEstimate,
)


class SpreadVotes(EventPart):
    """Public: how far pairs of an agent's samples lie apart, in bins with calibrated noise.

    Its votes so far, added up.

    **Privacy.** Part of its release: (epsilon, delta) covers both.
    """

    number: Natural = Field(description="Votes so far.")
    pairs: Natural = Field(description="Pairs of samples in them; each is in one bin of one vote.")
    counts: Annotated[tuple[int, ...], Field(min_length=VOTE_BINS, max_length=VOTE_BINS)] = Field(
        description="Noised pairs by bin: equal, 9 bins by halvings of the bounds' width, at opposite bounds."
    )
    noise_variance: NotNegative = Field(
        description="Variance of the privacy noise of one bin of one vote."
    )


class SampleCounts(EventPart):
    """Public: an agent's samples, counted in bins with calibrated noise.

    All that it told of them so far, added up.

    **Privacy.** Part of its release: (epsilon, delta) covers both.
    """

    number: Natural = Field(description="How often samples were counted so far.")
    samples: Natural = Field(description="How many they were; each is in one bin of one count.")
    counts: Annotated[tuple[int, ...], Field(min_length=1, max_length=MOST_BINS)] = Field(
        description="Noised samples by bin: at the lower bound, between the bounds and thresholds, at the upper bound."
    )
    noise_variance: NotNegative = Field(
        description="Variance of the privacy noise of one bin of one count."
    )


class QuantileAnswer(EventPart):
    """Private, part of an estimate: a quantile of the agent's own values."""

    quantile: Level = Field(description="Share of the values that lie below it.")
    value: FiniteFloat = Field(description="The estimate, in the value's unit.")
    interval: Interval = Field(description="Where it lies, with probability `level`.")


class ExceedanceAnswer(EventPart):
    """Private, part of an estimate: the share of the agent's own values above a threshold."""

    threshold: FiniteFloat = Field(description="In the value's unit.")
    share: Annotated[FiniteFloat, Field(ge=0, le=1)] = Field(description="The estimate.")
    interval: Interval = Field(description="Where it lies, with probability `level`.")


class Sample(PrivateEvent):
    """Private: one measured value of one agent.

    The value is what is protected. Public are: who produced it, when, its id, and whether it was
    valid (missing, not a number); an id must therefore not depend on the value.
    """

    topic: ClassVar[str] = "sample"
    agent: Name = Field(description="Whose stream the value belongs to.")
    value: FiniteFloat = Field(
        description="The measured value, in the unit of the declared bounds."
    )
    time: AwareDatetime = Field(description="Event time.")
    id: Name | None = Field(
        default=None, description="Identifies the sample within its source, to drop duplicates."
    )
    schema_version: Literal[1] = 1


class Release(PublicEvent):
    """Public: an agent's running sum with calibrated noise.

    The only thing that others learn from its samples.

    **Privacy.** All releases of an agent together are (epsilon, delta)-differentially private for
    the replacement of one sample's value.
    """

    topic: ClassVar[str] = "release"
    release_id: str = Field(
        description="Stable identity: the same id always carries the same release."
    )
    agent: Name
    index: Count = Field(description="Which release of this agent it is, from 1.")
    time: AwareDatetime = Field(description="Event time at which it became due.")
    n: Count = Field(
        description="Number of samples in the sum; where older ones weigh less, the effective number."
    )
    total: int = Field(description="The noisy sum in grid units, as published.")
    mean: FiniteFloat = Field(
        description="The noisy mean, in the unit of the value; may lie outside the bounds."
    )
    noise_variance: NotNegative = Field(
        description="Variance of the privacy noise in `mean`, squared value units."
    )
    votes: SpreadVotes | None = optional_field("Votes on the spread, with --spread-share.")
    histogram: SampleCounts | None = optional_field("Histogram, with --histogram-share.")
    epsilon: Epsilon
    delta: Delta
    mode: Mode
    schema_version: Literal[1] = 1


class PairRelease(PrivateEvent):
    """Private, addressed to `reader`.

    The running sum with noise of an agent that it queried; kept in the ledger.

    **Privacy.** All releases of one agent to one reader are (epsilon, delta)-differentially private
    for the replacement of one sample's value. Readers who pool theirs learn more.
    """

    topic: ClassVar[str] = "pair_release"
    release_id: str = Field(
        description="Stable identity: the same id always carries the same release."
    )
    agent: Name
    reader: Name = Field(description="The agent that queried, the only one that may see this.")
    index: Count = Field(description="Which release of this agent to this reader it is, from 1.")
    time: AwareDatetime = Field(description="Event time of the query.")
    n: Count = Field(description="Number of samples in the sum.")
    total: int = Field(description="The noisy sum in grid units.")
    mean: FiniteFloat = Field(
        description="The noisy mean, in the unit of the value; may lie outside the bounds."
    )
    noise_variance: NotNegative = Field(
        description="Variance of the privacy noise in `mean`, squared value units."
    )
    variance: NotNegative | None = optional_field(
        "Variance of one sample with noise, with --variance released, where it can be used."
    )
    epsilon: Epsilon
    delta: Delta
    mode: Mode
    schema_version: Literal[1] = 1


class PersonalEstimate(PrivateEvent):
    """Private, addressed to `agent`.

    Its best estimate of its own mean, which mixes in its raw mean.
    """

    topic: ClassVar[str] = "estimate"
    agent: Name
    time: AwareDatetime = Field(description="Event time up to which samples are included.")
    n: Count = Field(
        description="Number of the agent's own samples; where older ones weigh less, the effective number."
    )
    value: FiniteFloat = Field(description="The estimate, in the value's unit.")
    interval: Interval = Field(description="Confidence interval of the agent's mean at `level`.")
    level: Level
    coverage: Literal["anytime"] | None = optional_field(
        "anytime: the intervals of means hold at all moments together, with --coverage anytime."
    )
    noise_half_width: NotNegative | None = optional_field(
        "Part of the interval's half-width that is privacy noise of the releases; the rest is sampling."
    )
    moved_by_covariates: FiniteFloat | None = optional_field(
        "By how much public covariates moved the estimate, where some are declared."
    )
    quantiles: tuple[QuantileAnswer, ...] | None = optional_field(
        "Figures of the agent's own values, with --quantiles or --exceeds."
    )
    exceeds: tuple[ExceedanceAnswer, ...] | None = optional_field(
        "Figures of the agent's own values, with --quantiles or --exceeds."
    )
    local: FiniteFloat = Field(description="Raw mean of the agent alone.")
    local_interval: Interval = Field(description="Interval of `local` at the same level.")
    effective_class_size: NotNegative = Field(
        description="Variance of learning alone divided by that of the estimate; 1 means no gain."
    )
    class_size: NotNegative = Field(
        description="Number of agents in the agent's class, with itself."
    )
    component: Annotated[int, Field(ge=-1)] = Field(
        description="Most likely component of the fitted population; -1 if there are none."
    )
    membership: Annotated[FiniteFloat, Field(ge=0, le=1)] = Field(
        description="Probability of that component."
    )
    members: tuple[Name, ...] | None = optional_field(
        "The other agents whose releases count in the estimate, with --members; they do not learn of it."
    )
    method: str = Field(description="Collaboration that combined the releases.")
    population_time: AwareDatetime | None = optional_field(
        "Event time of the population of an overtaken window, later than `time`."
    )
    epsilon: Epsilon
    delta: Delta
    mode: Mode
    schema_version: Literal[1] = 1


class Population(PublicEvent):
    """Public: the population as fitted to everyone's releases.

    Post-processing, it spends nothing.
    """

    topic: ClassVar[str] = "population"
    time: AwareDatetime
    agents: Natural = Field(description="Number of agents with at least one release.")
    method: str
    fitted: dict[str, Any] = Field(
        description="Fitted parameters: components and density of the prior."
    )
    overtaken: Annotated[int, Field(ge=1)] | None = optional_field(
        "Earlier windows that had no population of their own and use this one."
    )
    epsilon: Epsilon
    delta: Delta
    mode: Mode
    schema_version: Literal[1] = 1


Reason = Literal[
    "bad_agent",
    "bad_category",
    "bad_id",
    "bad_person",
    "bad_time",
    "bad_value",
    "duplicate",
    "duplicate_columns",
    "epsilon_declined",
    "forgotten",
    "in_future",
    "late",
    "malformed",
    "missing_agent",
    "missing_category",
    "missing_person",
    "missing_time",
    "missing_value",
    "not_finite",
    "other_store",
    "out_of_bounds",
    "over_person",
    "oversized",
    "too_many_agents",
    "too_many_persons",
    "unknown_category",
    "unknown_schema",
    "unknown_schema_version",
]
"""Why a record was not used."""


class _Unused(Event):
    """Why and where a record was not used, never what it said.

    The size is given only for records that could not be read at all, and rounded up to a power of
    two: digits of a value must not show.
    """

    reason: Reason
    source: str = Field(description="Name of the source.")
    partition: Natural = Field(default=0, description="Partition of the source; 0 for a file.")
    position: Natural = Field(description="Line or row in a file, from 1; offset in a partition.")
    size: Natural | None = Field(
        default=None, description="Bytes of an unreadable record, rounded up to a power of two."
    )
    schema_version: Literal[1] = 1


class DeadLetter(_Unused, PublicEvent):
    """Public-safe notice of a record of an agent that was not used.

    **Privacy.** Whether a value was valid is public by definition of the neighboring relation.
    """

    topic: ClassVar[str] = "dead_letter"


class PrivateDeadLetter(_Unused, PrivateEvent):
    """Private, for who runs the users' side: notice of a record that was not used in rounds.

    **Privacy.** Rounds protect how many samples a user sends and when, which the place and the
    reason tell of.
    """

    topic: ClassVar[str] = "private_dead_letter"


class BudgetEvent(PublicEvent):
    """Public: an agent made the last release of its horizon; its releases stop here."""

    topic: ClassVar[str] = "budget"
    agent: Name
    time: AwareDatetime
    spent: Count = Field(description="Releases made.")
    horizon: Count = Field(description="Releases allowed over the life of the stream.")
    epsilon: Epsilon
    delta: Delta
    schema_version: Literal[1] = 1


class Refusal(PublicEvent):
    """Public: a release was refused, because its id was released before from another input."""

    topic: ClassVar[str] = "refusal"
    release_id: str
    agent: Name
    time: AwareDatetime
    spent: Natural
    asked: Count
    remaining: Natural | None = Field(description="Releases left; none without a horizon.")
    schema_version: Literal[1] = 1


class DriftEvent(PublicEvent):
    """Public: the mean behind an agent's releases seems to have changed.

    Only where releases forget (`--memory`).

    **Privacy.** It follows from what the agent has released, so it spends nothing.
    """

    topic: ClassVar[str] = "drift"
    agent: Name
    time: AwareDatetime = Field(description="Event time of the release that shows it.")
    index: Count = Field(description="Number of that release.")
    found: Literal["warning", "drift"] = Field(
        description="`warning`: a change is likely; `drift`: a change, after which the agent's sums restart."
    )
    since: Natural = Field(
        description="Number of the release after which its sums begin: the last one before the newest change, or 0."
    )
    schema_version: Literal[1] = 1


EVENTS: dict[str, type[Event]] = {
    event.topic: event
    for event in (
        Sample,
        Release,
        PairRelease,
        PersonalEstimate,
        Population,
        DeadLetter,
        PrivateDeadLetter,
        BudgetEvent,
        Refusal,
        DriftEvent,
        Report,
        Charge,
        StageReports,
        StageResult,
        WindowEstimate,
        RoundRefusal,
    )
}
"""Every event type by the name that `meanstream schema NAME` takes."""


def wire_event_schema(name: str) -> dict[str, Any]:
    """JSON Schema of an event type, as it is written to a sink.

    Examples
    --------
    >>> sorted(wire_event_schema("dead_letter")["properties"])
    ['partition', 'position', 'reason', 'schema_version', 'size', 'source']
    """
    if name not in EVENTS:
        raise ValueError(f"name must be one of {', '.join(sorted(EVENTS))}, got {name!r}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **EVENTS[name].model_json_schema(mode="serialization"),
    }


_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")  # what percent-encoding leaves alone


def release_ids(
    names: Sequence[str],
    agent: Sequence[int],
    index: Sequence[int],
    *,
    deployment: str | None = None,
) -> list[str]:
    """Give the ids of releases.

    Deployment, slash, agent, colon, and which release of the agent it is, from 1.

    Deployment and agent are percent-encoded. Ids of a store that was begun before deployments had
    names have none.

    Examples
    --------
    >>> release_ids(["N14228", "tail 7"], [0, 1], [3, 1], deployment="flights")
    ['flights/N14228:3', 'flights/tail%207:1']
    """
    prefix = "" if deployment is None else f"{_encoded(deployment)}/"
    owners = [names[a] for a in agent]
    if not _PLAIN.fullmatch("".join(owners)):
        encoded = {name: _encoded(name) for name in set(owners)}
        owners = [encoded[name] for name in owners]

    return [f"{prefix}{owner}:{i}" for owner, i in zip(owners, index, strict=True)]


def _encoded(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    return quote(name, safe="")
