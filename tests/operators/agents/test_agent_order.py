"""Samples by agent: one answer, whether agents are fewer than samples or more."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.operators.agents.sorting import samples_by_agent


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
@pytest.mark.parametrize(
    ("samples", "agents", "known"), [(1, 1, 1), (500, 20, 20), (500, 200, 300), (40, 200, 70_000)]
)
def test_samples_of_each_agent_stay_in_their_order(
    samples: int, agents: int, known: int, dtype: type
) -> None:
    agent = np.random.default_rng(3).integers(0, agents, samples).astype(dtype)
    order, who, starts, added = samples_by_agent(agent, known)
    of_each = {a: np.flatnonzero(agent == a).tolist() for a in sorted(set(agent.tolist()))}
    assert who.tolist() == list(of_each)
    found = [
        order[start : start + n].tolist()
        for start, n in zip(starts.tolist(), added.tolist(), strict=True)
    ]
    assert found == list(of_each.values())
    assert sum(added) == samples
    assert all(column.dtype == np.int64 for column in (order, who, starts, added))
