"""What an audit found: claimed, proved, and what it could have proved at its size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from meanstream.operators.validation import require, require_positive

NUMERIC = 1e-9
"""Relative: a proved epsilon above the claimed one by less is the arithmetic of the audit."""

MOST_EPSILON = 30.0
"""Of what is audited by coins or by counting: with more every coin is guessed, and nothing is
told."""


def require_auditable(epsilon: float) -> None:
    """Refuse an epsilon that no audit could tell from another one."""
    require_positive(epsilon=epsilon)
    require(
        epsilon <= MOST_EPSILON, "epsilon", f"be at most {MOST_EPSILON:g} for an audit", epsilon
    )


class AuditFaultError(AssertionError):
    """A mechanism is not of the kind that its audit is for, or shows more than that kind may."""


def require_as_audited(holds: object, fault: str) -> None:
    """Refuse a mechanism that does what its audit excludes."""
    if not holds:
        raise AuditFaultError(fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One line of an audit's table.

    Attributes
    ----------
    name : str
        Of the mechanism.
    claimed : float
        The epsilon that is promised, at `delta`.
    delta : float
        0 for pure privacy.
    proved : float
        Lower bound on the true epsilon at `delta`: no one can promise less.
    ceiling : float
        What the bound would be, on average, for a mechanism that uses all that is claimed: where it
        is low, a low bound says nothing.
    method, assumption : str
        How it was found, and what that rests on.
    alarm : float, optional
        The bound on which a violation is decided, where chance has a part in `proved`; surer than
        that, so that no good mechanism is blamed.
    runs : int, optional
        After how many canaries it was clear that more than the claim is proved; None if it never
        was.
    fault : str, optional
        What was found wrong, where it is not a matter of epsilon.
    """

    name: str
    claimed: float
    delta: float
    proved: float
    ceiling: float
    method: str
    assumption: str
    alarm: float | None = None
    runs: int | None = None
    fault: str | None = None

    @property
    def violated(self) -> bool:
        """Whether more was proved than is claimed."""
        bound = self.proved if self.alarm is None else self.alarm
        return (
            self.fault is not None
            or self.runs is not None
            or not bound <= self.claimed * (1.0 + NUMERIC)
        )

    @property
    def ratio(self) -> float:
        """How much of the claim was proved."""
        if self.claimed:
            return self.proved / self.claimed
        return math.nan

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "claimed": self.claimed,
            "delta": self.delta,
            "proved": self.proved,
            "ratio": self.ratio,
            "ceiling": self.ceiling,
            "method": self.method,
            "assumption": self.assumption,
            "violated": self.violated,
            "runs": self.runs,
            "fault": self.fault,
        }
