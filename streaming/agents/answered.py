"""The answers of one refresh, as a record that outlives the turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meanstream.operators.records import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredAgents:
    """Private: the estimates of one refresh; they mix in raw means and stay in the trust domain.

    Attributes
    ----------
    time : float
        Event time up to which samples are included, in seconds.
    names : tuple of str
        The agents that were answered.
    agent, count : int array, shape (n,)
        Their numbers, and how many samples each had.
    value, local : float array, shape (n,)
        Each agent's estimate, and its raw mean.
    interval, local_interval : float array, shape (n, 2)
        Their intervals.
    effective_class_size : float array, shape (n,)
        Variance of what each agent has alone, its own samples, over that of its estimate: its gain
        by collaboration.
    class_size : float array, shape (n,)
        Number of agents in the class of each, with itself.
    questions : tuple of str
        Quantiles and exceedances that each answer has, too.
    shares : float array, shape (n, questions, 3)
        Their values with both ends of their intervals.
    coverage : {"pointwise", "anytime"}
        Promise of the intervals of means.
    """

    time: float
    names: tuple[str, ...]
    agent: Ints
    count: Ints
    value: Floats
    interval: Floats
    local: Floats
    local_interval: Floats
    effective_class_size: Floats
    class_size: Floats
    questions: tuple[str, ...] = ()
    shares: Floats = field(default_factory=lambda: np.zeros((0, 0, 3)))
    coverage: str = "pointwise"

    def number(self, name: str) -> int | None:
        """Give the number of an agent by its name; None if it was not answered."""
        try:
            return int(self.agent[self.names.index(name)])
        except ValueError:
            return None

    def row(self, number: int) -> dict[str, Any] | None:
        """Give the answer of one agent; None if it has none."""
        found = np.flatnonzero(self.agent == number)
        if not len(found):
            return None
        at = int(found[0])

        return {
            "time": self.time,
            "n": int(self.count[at]),
            "value": float(self.value[at]),
            "lower": float(self.interval[at, 0]),
            "upper": float(self.interval[at, 1]),
            "local": float(self.local[at]),
            "local_lower": float(self.local_interval[at, 0]),
            "local_upper": float(self.local_interval[at, 1]),
            "coverage": self.coverage,
            **(
                {"shares": dict(zip(self.questions, self.shares[at].tolist(), strict=True))}
                if self.questions
                else {}
            ),
        }
