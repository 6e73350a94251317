"""A bound of a paper as a number, with the status of its constants."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

EXPLICIT = "explicit"
"""The number is the bound, with the constants of the proof."""
RATE_ONLY = "rate only"
"""The paper gives no constants: all are set to 1, so that only ratios of such numbers mean
something."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One statement of a paper, evaluated.

    Attributes
    ----------
    paper, statement : str
        The authors, and the theorem, equation or table.
    quantity : str
        What the number is.
    value : float
        Infinite where the exponential is beyond a float.
    constants : str
        `EXPLICIT` or `RATE_ONLY`.
    holds : bool, optional
        Whether the statement's assumptions hold; None where they have constants that the paper does
        not give.
    note : str
        The assumption, or an error in print.
    """

    paper: str
    statement: str
    quantity: str
    value: float
    constants: str
    holds: bool | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Paper:
    """Makes the bounds of one paper."""

    name: str

    def explicit(
        self, statement: str, quantity: str, value: float, *, holds: bool = True, note: str = ""
    ) -> Bound:
        """Make a bound with the constants of the proof."""
        return Bound(self.name, statement, quantity, float(value), EXPLICIT, holds, note)

    def rate(
        self,
        statement: str,
        quantity: str,
        value: float,
        *,
        holds: bool | None = None,
        note: str = "",
    ) -> Bound:
        """Make a rate, its constants set to 1."""
        return Bound(self.name, statement, quantity, float(value), RATE_ONLY, holds, note)


def exponential(exponent: float) -> float:
    """Compute e to this power; infinite where no float is large enough.

    Examples
    --------
    >>> exponential(0.0), exponential(1e6)
    (1.0, inf)
    """
    if exponent < 709.0:
        return math.exp(exponent)
    return math.inf
