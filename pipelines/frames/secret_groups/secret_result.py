"""What `private_means(private_counts=True)` gives, and what it promises in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meanstream.pipelines.frames.frame_releases import CALLS
from meanstream.pipelines.frames.frame_result import PrivateMeans
from meanstream.pipelines.frames.private_frame import frame_like
from meanstream.pipelines.frames.secret_groups.secret_plan import SQUARES_SHARE, SecretPlan

if TYPE_CHECKING:
    from meanstream.pipelines.frames.explanation import FramePromise

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

    def _promise(self) -> FramePromise:
        from meanstream.pipelines.frames.explanation import FramePromise, odds_in_words

        _, names, calls, noise, bounds, *_ = self.notes

        return FramePromise(
            guarantee=f"{self.guarantee}.",
            odds=odds_in_words(
                f"whether {unit_in_words(self.person)} is in the frame",
                "the result",
                self.plan.guessed_right,
                cases="both are equally likely",
            ),
            names=f"{names}.",
            meaning=self.meaning,
            learned=self.learned,
            spent=f"{calls}. {noise}.",
            limits=f"{bounds}. {TYPES}",
            settings=self._settings_in_words(),
        )

    def _settings_in_words(self) -> list[tuple[str, str]]:
        plan = self.plan
        sums_share = 1 - SQUARES_SHARE
        return [
            ("value", self.value),
            ("groups", f"{len(self):,} by {', '.join(self.keys)}"),
            ("deployment", str(self.settings.name)),
            ("bounds", f"{plan.lower:g} to {plan.upper:g}"),
            ("epsilon, delta", f"{plan.epsilon:g}, {plan.delta:g}"),
            (
                "parts of epsilon",
                f"{sums_share:g} for sums of groups, {SQUARES_SHARE:g} for squares",
            ),
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
