"""Releases as ledger rows and as events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from operators.agents import AgentsSettings, ReleaseBatch
from operators.records import Floats
from streaming.columns import Rejects, partition_of, place_in_partition
from streaming.encode import EventLines, columns_to_lines
from streaming.events import BudgetEvent, DeadLetter, Refusal, Release
from streaming.release_ids import release_ids
from streaming.store.ledger import LedgerRows
from streaming.times import iso


def ledger_rows(batches: Sequence[ReleaseBatch], names: Sequence[str], settings: AgentsSettings) -> LedgerRows:
    """Write releases as they will leave the process."""
    parts = [(batch.releases, batch.version, batch.time) for batch in batches if len(batch.releases)]
    columns = {
        name: np.concatenate([getattr(r, name) for r, _, _ in parts]) if parts else np.zeros(0, np.int64)
        for name in ("agent", "index", "count", "total", "mean", "noise_variance")
    }
    time: Floats = np.concatenate([t for _, _, t in parts]) if parts else np.zeros(0)
    version = np.concatenate([v for _, v, _ in parts]) if parts else np.zeros(0, np.uint64)
    agent, index = columns["agent"].tolist(), columns["index"].tolist()
    ids = release_ids(names, agent, index)
    fields: dict[str, Any] = {
        "release_id": ids,
        "agent": [names[a] for a in agent],
        "index": index,
        "time": iso(time),
        "n": columns["count"].tolist(),
        "total": columns["total"].tolist(),
        "mean": columns["mean"].tolist(),
        "noise_variance": columns["noise_variance"].tolist(),
    }
    lines = columns_to_lines(Release, fields, _privacy(settings))
    return LedgerRows(
        release_id=ids,
        agent=agent,
        release_index=index,
        input_version=version.view(np.int64).tolist(),
        time=time.tolist(),
        output=list(lines.lines),
    )


def budget_lines(batches: Sequence[ReleaseBatch], names: Sequence[str], settings: AgentsSettings) -> EventLines:
    """Tell which agents made the last release of their horizon, and when."""
    last = [batch.releases.index == settings.horizon for batch in batches]
    agents = [a for batch, at in zip(batches, last, strict=True) for a in batch.releases.agent[at].tolist()]
    times = [t for batch, at in zip(batches, last, strict=True) for t in batch.time[at].tolist()]
    privacy = {"epsilon": float(settings.epsilon), "delta": float(settings.delta)}
    columns: dict[str, Any] = {"agent": [names[a] for a in agents], "time": iso(np.array(times, np.float64))}
    return columns_to_lines(BudgetEvent, columns, {"spent": settings.horizon, "horizon": settings.horizon, **privacy})


def refusal_lines(rows: LedgerRows, refused: Sequence[int], names: Sequence[str], horizon: int) -> EventLines:
    """Tell that releases were refused, what was spent and what remains."""
    spent = [rows.release_index[i] for i in refused]
    columns: dict[str, Any] = {
        "release_id": [rows.release_id[i] for i in refused],
        "agent": [names[rows.agent[i]] for i in refused],
        "time": iso(np.array([rows.time[i] for i in refused])),
        "spent": spent,
        "remaining": [horizon - s for s in spent],
    }
    return columns_to_lines(Refusal, columns, {"asked": 1})


def dead_letter_lines(rejects: Rejects, source: str) -> EventLines:
    """Tell which records were not used and why."""
    position = np.array(rejects.position, np.int64)
    columns: dict[str, Any] = {
        "reason": rejects.reason,
        "partition": partition_of(position).tolist(),
        "position": place_in_partition(position).tolist(),
        "size": rejects.size,
    }
    return columns_to_lines(DeadLetter, columns, {"source": source})


def _privacy(settings: AgentsSettings) -> dict[str, Any]:
    return {"epsilon": float(settings.epsilon), "delta": float(settings.delta), "mode": settings.mode}
