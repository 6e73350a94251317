"""The estimates of agents that query each other, and what each may learn of its class."""

from __future__ import annotations

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

    def __init__(self, pairs: Any, options: EngineOptions) -> None:
        super().__init__(pairs.release, options)
        self._pairs = pairs
        self._options = options
        self._answers = {"level": options.level, "refresh": options.refresh}

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
        local_interval = _ends(alone)
        columns: dict[str, Any] = {
            "agent": names,
            "n": counts.tolist(),
            "value": answer.value.tolist(),
            "interval": interval.tolist(),
            "local": alone.value.tolist(),
            "local_interval": local_interval.tolist(),
            "effective_class_size": answer.effective_class_size.tolist(),
            "class_size": answer.class_size.tolist(),
            "component": answer.component.tolist(),
            "membership": answer.membership.tolist(),
        }

        if self._options.members:
            columns["members"] = [agents.members(number) for number in chosen.tolist()]

        answered = AnsweredAgents(
            time=event_time, names=tuple(names), agent=chosen, count=counts, value=answer.value, interval=interval,
            local=alone.value, local_interval=local_interval, effective_class_size=answer.effective_class_size,
            class_size=answer.class_size,
        )  # fmt: skip
        lines = encode_columns_as_lines(PersonalEstimate, columns, self._constants(event_time))
        width = float(np.median(interval[:, 1] - interval[:, 0]) / 2) if len(chosen) else None

        return MadeEstimates(lines, EventLines(Population, []), width, None, answered)

    def _constants(self, time: float) -> dict[str, Any]:
        release = self._pairs.release
        return {
            "time": iso_times(np.array([time]))[0],
            "level": self._options.level,
            "method": "pairwise",
            "epsilon": float(release.epsilon),
            "delta": float(release.delta),
            "mode": release.mode,
        }


def _ends(answer: AgentEstimates) -> Floats:
    return np.stack([answer.lower, answer.upper], axis=1)
