"""The events on the wire: public ones that anybody may read, private ones that belong to one owner.

Every event is frozen, strict and closed (an unknown field is an error) and carries its `schema_version`. The two base
classes are the privacy boundary made visible: a public sink accepts `PublicEvent` only (`streaming.sinks`).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints

SCHEMA_VERSION = 1
MAX_NAME = 256
"""Greatest length of an agent's name or a sample's id, in characters."""

# No control characters, no lone surrogates and at least one visible character.
NAME_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=NAME_PATTERN)]
Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[FiniteFloat, Field(ge=0)]
Epsilon = Annotated[FiniteFloat, Field(gt=0)]
Delta = Annotated[FiniteFloat, Field(gt=0, lt=1)]
Interval = tuple[FiniteFloat, FiniteFloat]


def _is_none(value: object) -> bool:
    return value is None


class Event(BaseModel):
    """What all events share; use `PublicEvent` or `PrivateEvent`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    topic: ClassVar[str]
    """Name of the event type on the command line and in topics."""


class PublicEvent(Event):
    """May leave the trust domain: it is a release, or computed from releases and public facts only."""


class PrivateEvent(Event):
    """Never leaves the trust domain: it holds raw data, or is addressed to its owner and to nobody else."""


class Sample(PrivateEvent):
    """Private: one measured value of one agent.

    The value is what is protected. Public are: who produced it, when, its id, and whether it was valid (missing, not a
    number); an id must therefore not depend on the value.
    """

    topic: ClassVar[str] = "sample"
    agent: Name = Field(description="Whose stream the value belongs to.")
    value: FiniteFloat = Field(description="The measured value, in the unit of the declared bounds.")
    time: AwareDatetime = Field(description="Event time.")
    id: Name | None = Field(default=None, description="Identifies the sample within its source, to drop duplicates.")
    schema_version: Literal[1] = 1


class Release(PublicEvent):
    """Public: an agent's running sum with calibrated noise; the only thing that others learn from its samples.

    **Privacy.** All releases of an agent together are (epsilon, delta)-differentially private for the replacement of
    one sample's value.
    """

    topic: ClassVar[str] = "release"
    release_id: str = Field(description="Stable identity: the same id always carries the same release.")
    agent: Name
    index: Count = Field(description="Which release of this agent it is, from 1.")
    time: AwareDatetime = Field(description="Event time at which it became due.")
    n: Count = Field(description="Number of samples in the sum.")
    total: int = Field(description="The noised sum in grid units; the integer that is published.")
    mean: FiniteFloat = Field(description="The noised mean, in the value's unit; may lie outside the bounds.")
    noise_variance: NotNegative = Field(description="Variance of the privacy noise in `mean`, squared value units.")
    epsilon: Epsilon
    delta: Delta
    mode: Literal["tuned", "paper"]
    schema_version: Literal[1] = 1


class PersonalEstimate(PrivateEvent):
    """Private, addressed to `agent`: its best estimate of its own mean, which mixes in its raw mean."""

    topic: ClassVar[str] = "estimate"
    agent: Name
    time: AwareDatetime = Field(description="Event time up to which samples are included.")
    n: Count = Field(description="Number of the agent's own samples.")
    value: FiniteFloat = Field(description="The estimate, in the value's unit.")
    interval: Interval = Field(description="Where the agent's mean lies, with probability `level`.")
    level: Annotated[FiniteFloat, Field(gt=0, lt=1)]
    local: FiniteFloat = Field(description="What the agent knows alone: its raw mean.")
    local_interval: Interval = Field(description="Interval of `local` at the same level.")
    effective_class_size: NotNegative = Field(
        description="Variance of learning alone over variance of the estimate: 1 means that nothing was gained."
    )
    class_size: NotNegative = Field(description="How many agents the estimate treats as the own class, this one too.")
    component: Annotated[int, Field(ge=-1)] = Field(
        description="Most likely component of the fitted population; -1 if there are none."
    )
    membership: Annotated[FiniteFloat, Field(ge=0, le=1)] = Field(description="Probability of that component.")
    method: str = Field(description="Collaboration that combined the releases.")
    epsilon: Epsilon
    delta: Delta
    mode: Literal["tuned", "paper"]
    schema_version: Literal[1] = 1


class Population(PublicEvent):
    """Public: the population as fitted to everyone's newest release; post-processing, it spends nothing."""

    topic: ClassVar[str] = "population"
    time: AwareDatetime
    agents: Annotated[int, Field(ge=0)] = Field(description="Number of agents with at least one release.")
    method: str
    fitted: dict[str, Any] = Field(description="What the method learned: for the prior its components and density.")
    epsilon: Epsilon
    delta: Delta
    mode: Literal["tuned", "paper"]
    schema_version: Literal[1] = 1


Reason = Literal[
    "bad_agent",
    "bad_id",
    "bad_time",
    "bad_value",
    "duplicate",
    "duplicate_columns",
    "in_future",
    "late",
    "malformed",
    "missing_agent",
    "missing_time",
    "missing_value",
    "not_finite",
    "out_of_bounds",
    "oversized",
    "unknown_schema_version",
]
"""Why a record was not used."""


class DeadLetter(PublicEvent):
    """Public-safe notice of a record that was not used: why and where, never what it said.

    **Privacy.** Whether a value was valid is public by definition of the neighboring relation. The size is given only
    for records that could not be read at all, and rounded up to a power of two: digits of a value must not show.
    """

    topic: ClassVar[str] = "dead_letter"
    reason: Reason
    source: str = Field(description="Name of the source.")
    partition: Annotated[int, Field(ge=0)] = Field(default=0, description="Partition of the source; 0 for a file.")
    position: Annotated[int, Field(ge=0)] = Field(description="Line or row in a file, from 1; offset in a partition.")
    size: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Bytes of an unreadable record, rounded up to a power of two."
    )
    schema_version: Literal[1] = 1


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
    spent: Annotated[int, Field(ge=0)]
    asked: Count
    remaining: Annotated[int, Field(ge=0)]
    schema_version: Literal[1] = 1


class Report(PublicEvent):
    """Public: what one user says in a round, randomized; all that a statistician ever learns from its samples.

    **Privacy.** A user makes one report per round. It is epsilon-differentially private with respect to everything
    that the user sent within the window, the number of samples included; that the user took part is public.
    """

    topic: ClassVar[str] = "report"
    round_id: str = Field(description="Stable identity of the round: deployment, window, protocol.")
    user: Name = Field(description="Whose report it is.")
    stage: Annotated[int, Field(ge=0)] = Field(description="Which stage of the round asked this user, from 0.")
    payload: list[int] = Field(description="The report: whole numbers, as the estimator's stage makes and reads them.")
    epsilon: Epsilon
    schema_version: Literal[1] = 1


class Charge(PublicEvent):
    """Public: a user's data entered a round with a trusted curator, and the user's budget was charged for it.

    **Privacy.** It says that the user took part, which is public; what was released of everybody together is made of
    noised sums.
    """

    topic: ClassVar[str] = "charge"
    round_id: str = Field(description="Stable identity of the round: deployment, window, protocol.")
    user: Name = Field(description="Who was charged.")
    epsilon: Epsilon
    delta: Annotated[FiniteFloat, Field(ge=0, lt=1)]
    released: str = Field(description="SHA-256 of the line of the window estimate that was paid for.")
    schema_version: Literal[1] = 1


class StageReports(PublicEvent):
    """Public: all reports that a users' side makes in one stage of a round are out; the stage can be tallied."""

    topic: ClassVar[str] = "stage_reports"
    round_id: str = Field(description="Stable identity of the round: deployment, window, protocol.")
    start: AwareDatetime = Field(description="Start of the window, included.")
    end: AwareDatetime = Field(description="End of the window, not included.")
    stage: Annotated[int, Field(ge=0)] = Field(description="Which stage of the round, from 0.")
    users: Count = Field(description="Number of users that the round is designed for; both sides need the same.")
    reports: Annotated[int, Field(ge=0)] = Field(description="Number of reports in this stage from this side.")
    schema_version: Literal[1] = 1


class StageResult(PublicEvent):
    """Public: what a stage of a round found; the users that are asked next make their reports from it."""

    topic: ClassVar[str] = "stage_result"
    round_id: str = Field(description="Stable identity of the round: deployment, window, protocol.")
    start: AwareDatetime = Field(description="Start of the window, included.")
    end: AwareDatetime = Field(description="End of the window, not included.")
    stage: Annotated[int, Field(ge=0)] = Field(description="Which stage of the round, from 0.")
    users: Annotated[int, Field(ge=0)] = Field(description="Number of reports that were counted in this stage.")
    public: dict[str, Any] = Field(description="What everybody knows after this stage, in the estimator's terms.")
    schema_version: Literal[1] = 1


class WindowEstimate(PublicEvent):
    """Public: the population's private mean in one window, every user counted once, with its interval.

    Of vectors, `value`, `interval`, `stderr` and `unclipped` are lists, one entry per coordinate; of a mixture, one per
    component; of a density, one per coefficient. The fields `values`, `components` and `function` are left out where
    they mean nothing.

    **Privacy.** Computed from reports alone; from a trusted curator's noised sums where `trust` is "central". `epsilon`
    and `delta` protect everything that a user sent within this window (its number of samples, too, unless the method
    takes them as public: `meanstream explain rounds` says so).
    """

    topic: ClassVar[str] = "window_estimate"
    round_id: str = Field(description="Stable identity of the round: deployment, window, protocol.")
    start: AwareDatetime = Field(description="Start of the window, included.")
    end: AwareDatetime = Field(description="End of the window, not included.")
    value: FiniteFloat | list[FiniteFloat] = Field(
        description="The mean over users of each user's mean, in the value's unit."
    )
    interval: Interval | list[Interval] = Field(description="Where that mean lies, with probability `level`.")
    level: Annotated[FiniteFloat, Field(gt=0, lt=1)]
    stderr: NotNegative | list[NotNegative] = Field(description="Standard error of `value`, in the value's unit.")
    unclipped: FiniteFloat | list[FiniteFloat] = Field(
        description="The same answer before it was cut to the declared bounds: for averaging over windows."
    )
    users: Annotated[int, Field(ge=0)] = Field(description="Number of users whose reports, or samples, were counted.")
    epsilon: Epsilon
    delta: Annotated[FiniteFloat, Field(ge=0, lt=1)]
    trust: Literal["local", "central"] = Field(description="Who adds the noise: each user, or a trusted curator.")
    privacy_unit: Literal["user"] = Field(
        default="user", description="Protected is all that a user sent within the window."
    )
    method: str = Field(description="The estimator.")
    mode: Literal["tuned", "paper"]
    stages: list[dict[str, Any]] = Field(description="What each stage found, in the estimator's terms, on [-1, 1].")
    values: list[str] | None = Field(
        default=None, exclude_if=_is_none, description="Names of the coordinates of a vector, in order."
    )
    components: list[dict[str, FiniteFloat]] | None = Field(
        default=None, exclude_if=_is_none, description="Of a mixture: `weight` and `weight_stderr` of each component."
    )
    function: dict[str, Any] | None = Field(
        default=None,
        exclude_if=_is_none,
        description="A density as `operators.density_function.DensityFunction.of` reads it: coefficients on a basis.",
    )
    schema_version: Literal[1] = 1


class RoundRefusal(PublicEvent):
    """Public: a user's data did not enter a round, because the user's budget does not pay for it any more."""

    topic: ClassVar[str] = "round_refusal"
    round_id: str = Field(description="Stable identity of the round: deployment, window, protocol.")
    user: Name = Field(description="Whose data did not enter.")
    spent: NotNegative = Field(description="Total epsilon of the user's reports so far.")
    asked: Epsilon = Field(description="Epsilon of the report that was refused.")
    remaining: NotNegative = Field(description="What is left of the user's budget; less than was asked.")
    schema_version: Literal[1] = 1


EVENTS: dict[str, type[Event]] = {
    event.topic: event
    for event in (
        Sample,
        Release,
        PersonalEstimate,
        Population,
        DeadLetter,
        BudgetEvent,
        Refusal,
        Report,
        Charge,
        StageReports,
        StageResult,
        WindowEstimate,
        RoundRefusal,
    )
}
"""Every event type by the name that `meanstream schema NAME` takes."""


def schema(name: str) -> dict[str, Any]:
    """JSON Schema of an event type, as it is written to a sink.

    Raises
    ------
    ValueError
        If no event type has this name.

    Examples
    --------
    >>> sorted(schema("dead_letter")["properties"])
    ['partition', 'position', 'reason', 'schema_version', 'size', 'source']
    """
    if name not in EVENTS:
        raise ValueError(f"event must be one of {', '.join(sorted(EVENTS))}, got {name!r}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **EVENTS[name].model_json_schema(mode="serialization"),
    }
