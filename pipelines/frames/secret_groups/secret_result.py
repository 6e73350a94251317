"""What `private_means(private_counts=True)` gives, and what it promises in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meanstream.operators.agents.noise_choice import percent_of_guesses
from meanstream.pipelines.frames.frame_result import PrivateMeans, frame_like
from meanstream.pipelines.frames.secret_groups.secret_plan import SQUARES_SHARE, SecretPlan

if TYPE_CHECKING:
    from meanstream.pipelines.commands.report.report_parts import ReportPart


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
        from meanstream.pipelines.frames.explanation import LIMITS

        plan = self.plan
        _, names, calls, noise, bounds, *_ = self.notes
        guess = percent_of_guesses(plan.guessed_right)
        unit = unit_in_words(plan, self.person)
        adversary = "This holds against everyone who sees the result, also together and whatever else they know."
        odds = (
            f"Suppose someone knows everything except whether {unit} is in the frame, and that both are equally likely. "
            f"From the result they guess right at most {guess} of the time (a coin: 50 %)."
        )

        return [
            ReportPart(title="What is protected?", text=f"{self.guarantee}. {adversary}"),
            ReportPart(title="What does that mean?", text=odds),
            ReportPart(title="Which names come out?", text=f"{names}."),
            ReportPart(title="What is estimated?", text=f"{self.meaning}."),
            ReportPart(title="What was spent?", text=f"{calls}. {noise}."),
            ReportPart(title="Limits", text=" ".join([f"{bounds}.", TYPES, *LIMITS])),
            ReportPart(title="Settings", table=self._settings_in_words()),
        ]

    def _settings_in_words(self) -> list[tuple[str, str]]:
        plan = self.plan
        shares = f"{1 - SQUARES_SHARE:g} for two sums of each group, {SQUARES_SHARE:g} for one sum of squares"
        return [
            ("value", self.value),
            ("groups", f"{len(self):,} by {', '.join(self.keys)}"),
            ("deployment", str(self.settings.name)),
            ("bounds", f"{plan.lower:g} to {plan.upper:g}"),
            ("epsilon, delta", f"{plan.epsilon:g}, {plan.delta:g}"),
            ("parts of epsilon", shares),
            ("unit", unit_in_words(plan, self.person)),
        ]


TYPES = "Types of columns, and the kind of the frame, are public."


def unit_in_words(plan: SecretPlan, person: str | None) -> str:
    """Name what is protected.

    Examples
    --------
    >>> unit_in_words(SecretPlan(lower=0, upper=1, epsilon=1.0, delta=1e-6), None)
    'one row'
    """
    if person is None:
        return "one row"
    return f"one person (column {person!r}, all rows in all groups)"


def secret_notes(plan: SecretPlan, person: str | None) -> tuple[str, ...]:
    """Say what is protected, which names come out, what was spent and how."""
    unit = unit_in_words(plan, person)
    protected = (
        f"({plan.epsilon:g}, {plan.delta:g})-differentially private towards adding or removing {unit}: names of groups, "
        "numbers of rows and means"
    )
    limits = plan.limits
    if person is not None:
        protected += (
            f"; at most {limits.max_groups} groups of a person and {limits.max_rows} rows in each count, drawn by a "
            "secret key"
        )

    if plan.declared:
        protected = protected.replace("names of groups, ", "")
        names = "The names of groups are those that were declared, and public; each is answered"
    else:
        names = (
            f"A name comes out if its noisy number of rows is at least {plan.least_rows:.1f}. If all its rows are of "
            f"{unit}, that happens with probability {plan.delta:g} at most"
        )

    two = f"epsilon {2 * plan.epsilon:g}"
    many = f"{30 * plan.epsilon:g}"
    if not plan.declared:
        two += f" and delta {2 * plan.delta:g}"
        many += f" and {30 * plan.delta:g}"
    calls = (
        f"No ledger counts this call: 2 calls are {two} together, 30 calls {many}. Give each frame a name of its own "
        "under a secret: equal results say that frames are equal"
    )

    noise = (
        f"Laplace noise of standard deviation {plan.count_stddev:.3g} in a number of rows, and of "
        f"{plan.count_stddev * (plan.upper - plan.lower) / 2:.4g} in a sum around the middle of the bounds"
    )
    bounds = f"Values outside [{plan.lower:g}, {plan.upper:g}] count as the nearest bound"
    return protected, names, calls, noise, bounds
