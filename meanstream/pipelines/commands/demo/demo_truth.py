"""What the demo knows besides: how far the agents' estimates are from the held-back flights, as the run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meanstream.pipelines.commands.demo.demo_score import score_demo

if TYPE_CHECKING:
    from meanstream.pipelines.commands.demo.flights import Truth
    from meanstream.streaming.agents.refreshed import AnsweredAgents


class MeansOfTruth:
    """Keeps every agent's newest estimate and scores it against the truth, as the demo's table does."""

    def __init__(self, truth: Truth) -> None:
        import numpy as np

        self._truth = truth
        n = len(truth.agent)
        self._count = np.zeros(n, np.int64)
        self._value, self._local, self._lower, self._upper = (np.full(n, np.nan) for _ in range(4))

    def errors(self, answered: AnsweredAgents) -> tuple[float, float] | None:
        """Root mean squared errors together and alone; None while too few agents have samples enough."""
        import numpy as np

        at = np.searchsorted(self._truth.agent, np.array(answered.names, self._truth.agent.dtype))
        self._count[at] = answered.count
        self._value[at], self._local[at] = answered.value, answered.local
        self._lower[at], self._upper[at] = answered.interval.T
        found = score_demo(
            self._truth,
            count=self._count,
            value=self._value,
            local=self._local,
            lower=self._lower,
            upper=self._upper,
        )
        return None if found is None else (max(found.mse, 0.0) ** 0.5, max(found.mse_alone, 0.0) ** 0.5)
