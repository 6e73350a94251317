"""Private means for river: `CollaborativeMean`, `AgentMean` and `PrivateMean`."""

from __future__ import annotations

from meanstream.integrations.river import (
    AgentMean,
    CollaborativeMean,
    PrivateMean,
    environment_noise,
)

__all__ = ["AgentMean", "CollaborativeMean", "PrivateMean", "environment_noise"]
