"""The estimates of agents that query each other, and what each may learn of its class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from meanstream.operators.records import AgentEstimates, Floats, Ints
from meanstream.streaming.agents.answered import AnsweredAgents
from meanstream.streaming.agents.due_estimates import DueEstimates, MadeEstimates
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.encode import EventLines, encode_columns_as_lines
from meanstream.streaming.events.times import iso_times
from meanstream.streaming.events.wire import PersonalEstimate, Population


class DuePairwiseEstimates(DueEstimates):
    """Knows when the estimates of agents that query each other are due, and makes them.

    **Privacy.** An estimate is a function of the agent's own samples and of what it received; so is its class. There is
    no population: what one agent received is for no other.
    """

    def __init__(
        self, pairs: Any, options: EngineOptions, partners_file: Path | None = None
    ) -> None:
        super().__init__(pairs.release, options)
        self._pairs = pairs
        self._options = options
        self._answers = {"level": options.level, "refresh": options.refresh}

        # Whoever answers from the store needs the graph, of which the store has a digest.
        if partners_file is not None:
            self._answers["partners"] = str(partners_file.resolve())

    def _refreshed(
        self,
        agents: Any,
        followed: Any,  # noqa: ARG002
        which: Ints | None,
        event_time: float,  # noqa: ARG002, RUF100
    ) -> MadeEstimates:
        chosen = agents.seen_since(-np.inf) if which is None else which
        answer, alone = agents.estimate(chosen, level=self._options.level)
        names = [agents.names[number] for number in chosen.tolist()]
        counts = agents.counts()[chosen]
        interval = _ends(answer)

        answered = AnsweredAgents(
            time=event_time, names=tuple(names), agent=chosen, count=counts, value=answer.value, interval=interval,
            local=alone.value, local_interval=_ends(alone),
            effective_class_size=answer.effective_class_size, class_size=answer.class_size,
        )  # fmt: skip
        members = self._options.members
        lines = pairwise_estimate_lines(
            agents, chosen, (answer, alone), event_time, members=members
        )
        width = float(np.median(interval[:, 1] - interval[:, 0]) / 2) if len(chosen) else None

        return MadeEstimates(lines, EventLines(Population, []), width, None, answered)


def pairwise_estimate_lines(
    agents: Any,
    chosen: Ints,
    answers: tuple[AgentEstimates, AgentEstimates],
    event_time: float,
    *,
    members: bool,
) -> EventLines:
    """Write estimates of some agents, and what each has alone; each line is for its agent only."""
    answer, alone = answers
    columns: dict[str, Any] = {
        "agent": [agents.names[number] for number in chosen.tolist()],
        "n": agents.counts()[chosen].tolist(),
        "value": answer.value.tolist(),
        "interval": _ends(answer).tolist(),
        "local": alone.value.tolist(),
        "local_interval": _ends(alone).tolist(),
        "effective_class_size": answer.effective_class_size.tolist(),
        "class_size": answer.class_size.tolist(),
        "component": answer.component.tolist(),
        "membership": answer.membership.tolist(),
    }

    if members:
        columns["members"] = [agents.members(number) for number in chosen.tolist()]

    release = agents.settings.release
    same = {
        "time": iso_times(np.array([event_time]))[0],
        "level": answer.level,
        "method": "pairwise",
        "epsilon": float(release.epsilon),
        "delta": float(release.delta),
        "mode": release.mode,
    }

    return encode_columns_as_lines(PersonalEstimate, columns, same)


def _ends(answer: AgentEstimates) -> Floats:
    return np.stack([answer.lower, answer.upper], axis=1)
