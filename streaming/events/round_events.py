"""The events of rounds.

What users report and pay, what a stage found, and the estimate of a window.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, FiniteFloat

from meanstream.streaming.events.base import (
    Count,
    Delta,
    Epsilon,
    Interval,
    Level,
    Mode,
    Name,
    Natural,
    NotNegative,
    PublicEvent,
    RoundId,
    WindowEnd,
    WindowStart,
    optional_field,
)

WINDOWS_OF_BUDGET = "Windows of a user that `epsilon` and `delta` pay for together."


class Report(PublicEvent):
    """Public: what one user says in a round, randomized.

    All that a statistician ever learns from its samples.

    **Privacy.** A user makes one report per round. It is epsilon-differentially private with
    respect to everything that the user sent within the window, the number of samples included; that
    the user took part is public.
    """

    topic: ClassVar[str] = "report"
    round_id: RoundId
    user: Name = Field(description="User of the report.")
    stage: Natural = Field(description="Stage of this user in the round, from 0.")
    payload: list[int] = Field(
        description="The report: whole numbers, as the estimator's stage makes and reads them."
    )
    epsilon: Epsilon
    schema_version: Literal[1] = 1


class Charge(PublicEvent):
    """Public: a user's data entered a round with a trusted curator, and the user's budget was charged for it.

    **Privacy.** It says that the user took part, which is public; what was released of everyone
    together is made of noised sums.
    """

    topic: ClassVar[str] = "charge"
    round_id: RoundId
    user: Name = Field(description="User who was charged.")
    epsilon: Epsilon
    delta: Delta
    released: str = Field(description="SHA-256 of the line of the window estimate.")
    user_windows: int | None = optional_field(WINDOWS_OF_BUDGET)
    window_number: int | None = optional_field(
        "Number of this window among these: the first is charged, the others cost nothing more."
    )
    schema_version: Literal[1] = 1


class StageReports(PublicEvent):
    """Public: all reports that a users' side makes in one stage of a round are out.

    The stage can be tallied.
    """

    topic: ClassVar[str] = "stage_reports"
    round_id: RoundId
    start: WindowStart
    end: WindowEnd
    stage: Natural = Field(description="Stage of the round, from 0.")
    users: Count = Field(
        description="Number of users that the round is designed for; both sides need the same."
    )
    reports: Natural = Field(description="Number of reports in this stage from this side.")
    schema_version: Literal[1] = 1


class StageResult(PublicEvent):
    """Public: what a stage of a round found.

    The users that are queried next make their reports from it.
    """

    topic: ClassVar[str] = "stage_result"
    round_id: RoundId
    start: WindowStart
    end: WindowEnd
    stage: Natural = Field(description="Stage of the round, from 0.")
    users: Natural = Field(description="Number of reports that were counted in this stage.")
    public: dict[str, Any] = Field(
        description="Public results after this stage, in the estimator's terms."
    )
    schema_version: Literal[1] = 1


class WindowEstimate(PublicEvent):
    """Public: the population's private mean in one window, every user counted once, with its interval.

    Of vectors, `value`, `interval`, `stderr` and `unclipped` are lists, one entry per coordinate;
    of a mixture, one per component; of a density, one per coefficient; of categories or quantiles,
    one for each of them. Shares in `value` add to 1; `unclipped` has unbiased ones. The fields
    `values`, `categories`, `quantiles`, `components` and `function` are left out where they mean
    nothing.

    **Privacy.** Computed from reports alone; from a trusted curator's noised sums where `trust` is
    "central". `epsilon` and `delta` protect everything that a user sent within this window (its
    number of samples, too, unless the method takes them as public: `meanstream explain rounds` says
    so); with `user_windows`, within that many windows together.
    """

    topic: ClassVar[str] = "window_estimate"
    round_id: RoundId
    start: WindowStart
    end: WindowEnd
    value: FiniteFloat | list[FiniteFloat] = Field(
        description="The mean over users of each user's mean, in the value's unit."
    )
    interval: Interval | list[Interval] = Field(
        description="Confidence interval of that mean at `level`."
    )
    level: Level
    stderr: NotNegative | list[NotNegative] = Field(
        description="Standard error of `value`, in the value's unit."
    )
    unclipped: FiniteFloat | list[FiniteFloat] = Field(
        description="The same answer before it was cut to the declared bounds: for averaging over windows."
    )
    users: Natural = Field(description="Number of users whose reports, or samples, were counted.")
    epsilon: Epsilon
    delta: Delta
    trust: Literal["local", "central"] = Field(
        description="Source of the noise: each user, or a trusted curator."
    )
    privacy_unit: Literal["user"] = Field(
        default="user",
        description="Unit of privacy: everything that a user sent within the window.",
    )
    method: str = Field(description="The estimator.")
    mode: Mode
    stages: list[dict[str, Any]] = Field(
        description="Results of the stages, in the estimator's terms, on [-1, 1]."
    )
    values: list[str] | None = optional_field("Names of the coordinates of a vector, in order.")
    categories: list[str] | None = optional_field(
        "Names of the categories, in the order of their shares."
    )
    quantiles: list[FiniteFloat] | None = optional_field(
        "Probabilities of the quantiles, in the order of `value`."
    )
    components: list[dict[str, FiniteFloat]] | None = optional_field(
        "Of a mixture: `weight` and `weight_stderr` of each component."
    )
    function: dict[str, Any] | None = optional_field(
        "A density as `of` reads it: coefficients on a basis."
    )
    user_windows: int | None = optional_field(WINDOWS_OF_BUDGET)
    schema_version: Literal[1] = 1


class RoundRefusal(PublicEvent):
    """Public: a user's data did not enter a round, because the user's budget does not pay for it any more."""

    topic: ClassVar[str] = "round_refusal"
    round_id: RoundId
    user: Name = Field(description="User whose data was left out.")
    spent: NotNegative = Field(description="Total epsilon of the user's reports so far.")
    asked: Epsilon = Field(description="Epsilon of the report that was refused.")
    remaining: NotNegative = Field(
        description="Rest of the user's budget, which is less than `asked`."
    )
    schema_version: Literal[1] = 1
