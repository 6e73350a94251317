"""The newest answer of any agent of a pairwise store, as its last commit has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np

from meanstream.streaming.agents.pairwise.pairwise_deployment import pooled_epsilon
from meanstream.streaming.agents.pairwise.pairwise_engine import (
    pairs_at_rest,
    pairwise_estimate_lines,
)
from meanstream.streaming.agents.store_answers import CommittedAnswers, StoreAnswers, age_of
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_identity import OF_AGENTS, OF_PAIRS, store_kind


@dataclass(frozen=True, slots=True)
class CommittedPairs:
    """Private: what a commit says of agents that query each other.

    **Privacy.** An answer is for its agent: a function of its own samples, of what it received, and
    of the times of samples. How many releases it made to whom is in it where that is a function of
    times, under round_robin; under restricted_round_robin it depends on the samples of its readers,
    and is left out.
    """

    number: int
    stream: Any
    numbers: Mapping[str, int]
    event_time: float
    level: float

    def names(self) -> list[str]:
        """Public: the agents that the store knows."""
        return list(self.numbers)

    def answer(self, name: str) -> dict[str, Any] | None:
        """Give an agent's estimate, its members and its budget; None if no sample of it counts."""
        number = self.numbers.get(name)
        stream = self.stream
        if number is None or not stream.counts()[number]:  # forgotten, or all of it waits
            return None

        chosen = np.array([number])
        answers = stream.estimate(chosen, level=self.level)
        lines = pairwise_estimate_lines(stream, chosen, answers, self.event_time, members=True)

        return {
            **msgspec.json.decode(lines.lines[0]),
            **age_of(self.event_time),
            "budget": self._budget(number),
        }

    def public(self) -> None:
        """Refuse to say what releases say of all: each is for one reader.

        Raises
        ------
        StoreError
            Naming what can be had instead.
        """
        raise StoreError(
            "store must have releases that everyone reads, got those of agents that query each "
            "other: `meanstream get AGENT` has the answer of each, for that agent"
        )

    def _budget(self, number: int) -> dict[str, Any]:
        settings = self.stream.settings
        horizon = settings.release.horizon
        if settings.schedule != "round_robin":
            return {"readers": None, "spent": None, "remaining": None, "horizon": horizon}

        # Towards the reader that has most: each has a budget of its own.
        released = self.stream.released_to(number)
        most = max(released.values(), default=0)

        return {
            "readers": len(released),
            "spent": most,
            "remaining": horizon - most,
            "horizon": horizon,
            "epsilon_of_all_readers": pooled_epsilon(settings, len(released)),
        }


class HostedAnswers(StoreAnswers):
    """Private: answers agents from a store of `run agents`, whichever schedule it has."""

    kinds: ClassVar[tuple[str, ...]] = (OF_AGENTS, OF_PAIRS)

    def _committed(
        self, store: Store, saved: dict[str, Any], state: dict[str, Any]
    ) -> CommittedAnswers:
        if store_kind(saved) == OF_PAIRS:
            return _committed_pairs(store, saved, float(state["event_time"]))
        return super()._committed(store, saved, state)


def _committed_pairs(store: Store, saved: Mapping[str, Any], event_time: float) -> CommittedPairs:
    """Read what the last commit says of agents that query each other."""
    answers = (store.state("delivered") or {}).get("answers", {})
    stream = pairs_at_rest(store, saved)
    numbers = {name: number for number, name in enumerate(stream.names)}

    return CommittedPairs(
        store.commits(), stream, numbers, event_time, float(answers.get("level", 0.95))
    )
