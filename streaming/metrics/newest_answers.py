"""How precise the newest estimates of all agents are.

The one place that page and private metrics have it from.
"""

from __future__ import annotations

import numpy as np

from meanstream.operators.records import Floats
from meanstream.streaming.agents.answered import AnsweredAgents

NEWEST_COLUMNS = 4


class NewestAnswers:
    """Private: keeps of each agent how precise its newest estimate is, whichever refresh made it."""

    def __init__(self) -> None:
        self.rows = np.full((0, NEWEST_COLUMNS), np.nan)  # by the agent's number

    def take(self, answered: AnsweredAgents) -> None:
        """Take the answers of a refresh."""
        if not len(answered.agent):
            return
        most = int(answered.agent.max()) + 1
        if most > len(self.rows):
            fresh = np.full(
                (max(most, 2 * len(self.rows)) - len(self.rows), NEWEST_COLUMNS), np.nan
            )
            self.rows = np.concatenate([self.rows, fresh])

        for column, interval in enumerate((answered.interval, answered.local_interval)):
            self.rows[answered.agent, column] = (interval[:, 1] - interval[:, 0]) / 2

        self.rows[answered.agent, 2] = answered.effective_class_size
        self.rows[answered.agent, 3] = answered.class_size

    def half_widths(self) -> tuple[Floats, Floats]:
        """Half-widths of the intervals of all who were answered.

        Of their estimates, and of what they have alone.
        """
        known = self._known()
        return known[:, 0], known[:, 1]

    def class_sizes(self) -> Floats:
        """Variance of what each has alone over that of its estimate."""
        return self._known()[:, 2]

    def class_members(self) -> Floats:
        """Return the number of agents in the class of each, with itself."""
        return self._known()[:, 3]

    def classes(self) -> float:
        """Return the number of classes: each agent counts for one over the size of its own."""
        return float((1 / np.maximum(self.class_members(), 1.0)).sum())

    def _known(self) -> Floats:
        known: Floats = self.rows[np.isfinite(self.rows[:, 0])]
        return known
