"""What `private_means(private_counts=True)` gives, and what it promises in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meanstream.operators.agents.defaults import percent_of_guesses
from meanstream.pipelines.frames.frame_releases import CALLS
from meanstream.pipelines.frames.frame_result import PrivateMeans
from meanstream.pipelines.frames.private_frame import frame_like
from meanstream.pipelines.frames.secret_groups.secret_plan import SQUARES_SHARE, SecretPlan

if TYPE_CHECKING:
    from meanstream.pipelines.commands.report.report_parts import ReportPart

TYPES = "Types of columns, and the kind of the frame, are public."


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SecretMeans(PrivateMeans):
    """One private mean per group that came out; see `private_means`.

    Attributes
    ----------
    plan : SecretPlan
        How the groups were released.
    releases : pyarrow.Table
        Public: both noisy sums of each group, in steps of the grid.
    """

    plan: SecretPlan

    def to_frame(self) -> Any:
        """Give the answers as a frame of the kind that was given.

        Names have plain types: a categorical type would list those that have not come out.
        """
        return frame_like(self.table, self.original)

    def _explained(self) -> list[ReportPart]:
        from meanstream.pipelines.commands.report.report_parts import ReportPart
        from meanstream.pipelines.frames.explanation import ADVERSARY, LIMITS

        _, names, calls, noise, bounds, *_ = self.notes
        odds = (
            f"Suppose someone knows everything except whether {unit_in_words(self.person)} is in "
            "the frame, and that both are equally likely. From the result they guess right at most "
            f"{percent_of_guesses(self.plan.guessed_right)} of the time (a coin: 50 %)."
        )

        return [
            ReportPart(title="What is protected?", text=f"{self.guarantee}. {ADVERSARY}"),
            ReportPart(title="What does that mean?", text=odds),
            ReportPart(title="Which names come out?", text=f"{names}."),
            ReportPart(title="What is estimated?", text=f"{self.meaning}."),
            ReportPart(title="What was spent?", text=f"{calls}. {noise}."),
            ReportPart(title="Limits", text=" ".join([f"{bounds}.", TYPES, *LIMITS])),
            ReportPart(title="Settings", table=self._settings_in_words()),
        ]

    def _settings_in_words(self) -> list[tuple[str, str]]:
        plan = self.plan
        rest = 1 - SQUARES_SHARE
        return [
            ("value", self.value),
            ("groups", f"{len(self):,} by {', '.join(self.keys)}"),
            ("deployment", str(self.settings.name)),
            ("bounds", f"{plan.lower:g} to {plan.upper:g}"),
            ("epsilon, delta", f"{plan.epsilon:g}, {plan.delta:g}"),
            ("parts of epsilon", f"{rest:g} for sums of groups, {SQUARES_SHARE:g} for squares"),
            ("unit", unit_in_words(self.person)),
        ]


def unit_in_words(person: str | None) -> str:
    """Name what is protected.

    Examples
    --------
    >>> unit_in_words("customer")
    "one person (column 'customer'; all rows in all groups)"
    """
    if person is None:
        return "one row"
    return f"one person (column {person!r}; all rows in all groups)"


def secret_notes(plan: SecretPlan, person: str | None) -> tuple[str, ...]:
    """Say what is protected, which names come out, what was spent and how: public facts alone."""
    stddev = plan.count_stddev
    half = (plan.upper - plan.lower) / 2
    noise = (
        f"Laplace noise of standard deviation {stddev:.3g} in a number of rows, and of "
        f"{stddev * half:.4g} in a sum around the middle of the bounds"
    )
    bounds = f"Values outside [{plan.lower:g}, {plan.upper:g}] count as the nearest bound"
    return _protected(plan, person), _names(plan, person), _calls(plan), noise, bounds


def _protected(plan: SecretPlan, person: str | None) -> str:
    what = "numbers of rows and means" if plan.declared else "names, numbers of rows and means"
    guarantee = (
        f"({plan.epsilon:g}, {plan.delta:g})-differentially private towards adding or removing "
        f"{unit_in_words(person)}: {what} of groups are released with noise"
    )
    if person is None:
        return guarantee

    limits = plan.limits
    return (
        f"{guarantee}; at most {limits.max_groups} groups of a person and {limits.max_rows} rows "
        "in each count, drawn by a secret key"
    )


def _names(plan: SecretPlan, person: str | None) -> str:
    if plan.declared:
        return "The groups are those that were declared, each of which is answered"

    whose = "a group of one row" if person is None else "a group of one person"
    return (
        f"A name comes out if its noisy number of rows is at least {plan.least_rows:.1f}; the name "
        f"of {whose} does with probability {plan.delta:g} at most"
    )


def _calls(plan: SecretPlan) -> str:
    costs = []
    for calls in CALLS:
        cost = f"{calls} calls are epsilon {calls * plan.epsilon:g}"
        costs.append(cost if plan.declared else f"{cost} and delta {calls * plan.delta:g}")

    return (
        f"No ledger counts this call: together {', '.join(costs)}. Under a secret, give each frame "
        "a name of its own: equal results say that frames are equal"
    )
