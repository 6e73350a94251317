"""Private means for river.

A statistic of one stream, and an estimator of many agents that learn from each other.

==================  =================================================================================================
`CollaborativeMean`  an estimator: `learn_one({"agent": ...}, y)`, `predict_one`, mini-batches, pipelines
`AgentMean`          the same as a statistic, one agent per group, for `TargetAgg` and `Agg`
`PrivateMean`        the mean of one stream alone, as a statistic
==================  =================================================================================================

All are pickled without the key of their noise. Where they are loaded, the key is that of the
environment: `MEANSTREAM_SECRET`, or the file that `MEANSTREAM_SECRET_FILE` names.
"""

from __future__ import annotations

from meanstream.integrations.river.agent_mean import AgentMean
from meanstream.integrations.river.collaborative_mean import CollaborativeMean
from meanstream.integrations.river.environment_key import environment_noise
from meanstream.integrations.river.picklable_mean import PrivateMean

__all__ = ["AgentMean", "CollaborativeMean", "PrivateMean", "environment_noise"]
