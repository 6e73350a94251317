"""Names without end are refused by number in rounds on Beam; samples of the others are counted for
the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.pipelines.beam.rounds.budget_of_users import SLOTS
from meanstream.pipelines.beam.rounds.round_transforms import (
    RunRounds,
    SummarizeUsers,
    sample_batch,
)
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.rounds.user_places import slot_key, slot_name_hashes
from tests.pipelines.beam.support.collecting import run
from tests.streaming.support.rounds_world import rounds_settings

DAY = 86400.0
USERS = [f"user {number}" for number in range(400)]


def day(number: int, users: list[str], times: int = 1) -> Any:
    who = [name for name in users for _ in range(times)]
    return sample_batch(who, np.ones(len(who)), number * DAY + np.linspace(0, DAY - 1, len(who)))


def windows_of(batches: list[Any]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for _, batch in batches:
        found.setdefault(round(batch.window.start / 1e6 / DAY), set()).update(
            batch.names.to_pylist()
        )
    return found


def least(users: list[str], shards: int, most: int) -> set[str]:
    """Of each part of the users those who come first by the hash that the engine keys with the
    secret."""
    words = keyed_owner_words(users)
    order = np.argsort(slot_name_hashes(users, slot_key(SecretLocation().load()))).tolist()
    taken: dict[int, list[str]] = {}
    for place in order:
        part = taken.setdefault(int(words[place, 1] % np.uint64(shards)), [])
        if len(part) < most:
            part.append(users[place])
    return {name for part in taken.values() for name in part}


@pytest.mark.parametrize(
    ("window", "users", "parts"), [("1d", None, 4), ("session:7h", None, 4), ("1d", 400, 1)]
)
def test_without_a_budget_each_window_has_room_for_so_many(
    window: str, users: int | None, parts: int
) -> None:
    """Where few users are declared, they are in one part."""
    settings = rounds_settings(window=window, estimator="one_shot", users=users)
    summarize = SummarizeUsers(settings, EngineOptions(max_agents=82), shards=4)
    orders = [USERS, USERS[::-1]]
    found = [run([day(0, order), day(0, order[:50])], summarize) for order in orders]
    for batches, counters in found:
        kept = least(USERS, parts, -(-82 // parts))
        assert set().union(*windows_of(batches).values()) == kept
        assert len(kept) == (84 if parts == 4 else 82)  # a part is rounded up
        again = sum(name in kept for name in orders[0 if batches is found[0][0] else 1][:50])
        assert counters["rejected_too_many_agents"] == 450 - len(kept) - again


def test_with_a_budget_who_was_taken_is_never_displaced() -> None:
    settings = rounds_settings(window="1d", estimator="one_shot", users=400, user_budget=100.0)
    first, later = USERS[:100], USERS[100:]
    taken = least(first, SLOTS, 4)
    batches, counters = run(
        [day(0, first, 2), day(1, [*first, *later])],
        SummarizeUsers(settings, EngineOptions(max_agents=4 * SLOTS), shards=4),
    )
    found = windows_of(batches)
    assert found[0] == taken
    assert taken <= found[1]
    words = keyed_owner_words(sorted(found[1]))[:, 1] % np.uint64(SLOTS)
    assert np.bincount(words.astype(np.int64)).max() == 4
    assert counters["rejected_too_many_agents"] == 2 * (100 - len(found[0])) + 400 - len(found[1])


@pytest.mark.parametrize(
    ("most", "budget", "message"),
    [
        (7, None, "max_agents must be at least 8, the parts that users fall into, got 7"),
        (7, 5.0, "max_agents must be at least 8, the parts that users fall into, got 7"),
    ],
)
def test_too_few_for_the_parts_are_refused(most: int, budget: float | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunRounds(rounds_settings(user_budget=budget), EngineOptions(max_agents=most))
