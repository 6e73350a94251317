"""A statistic whose copies are agents that learn from each other, for river's aggregates."""

from __future__ import annotations

from typing import Any, Self

from river import stats

from meanstream.integrations.river.collaborative_mean import CollaborativeMean


class AgentMean(stats.base.Univariate):
    """The mean of one agent of a `CollaborativeMean`, as a statistic; each copy is another agent.

    `TargetAgg` and `Agg` copy it for each group, so groups are agents that learn from each other.

    Parameters
    ----------
    model : CollaborativeMean
        What all copies share.

    Notes
    -----
    **Privacy.** As `CollaborativeMean`; `get` answers from public releases.

    Examples
    --------
    >>> from river import feature_extraction
    >>> from meanstream.operators.noise.keyed import KeyedNoise
    >>> key = KeyedNoise(bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="doc", purpose="agents")
    >>> model = CollaborativeMean(lower=0, upper=10, epsilon=1.0, delta=1e-6, name="doc", noise=key)
    >>> by_carrier = feature_extraction.TargetAgg(by="carrier", how=AgentMean(model))
    >>> for i in range(2000):
    ...     by_carrier.learn_one({"carrier": i % 20}, 4 + i % 3)
    >>> {name: round(mean) for name, mean in by_carrier.transform_one({"carrier": 3}).items()}
    {'y_private_mean_by_carrier': 5}
    """

    def __init__(self, model: CollaborativeMean) -> None:
        self.model = model
        self._copies = [0]
        self._who = 0

    @property
    def name(self) -> str:
        """Name of the statistic in the features that river makes of it."""
        return "private_mean"

    def update(self, x: float) -> None:
        """Take one sample of this agent."""
        self.model.learn_one({self.model.agent: self._who}, x)

    def get(self) -> float:
        """Public: the agent's mean as anyone can estimate it from all agents' releases."""
        return self.model.predict_one({self.model.agent: self._who})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Make another agent of the same model."""
        made = type(self)(self.model)
        self._copies[0] += 1
        made._copies = self._copies
        made._who = self._copies[0]

        return made
