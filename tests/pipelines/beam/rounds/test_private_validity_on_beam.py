"""Whether an element holds a valid value decides nothing about who takes part, on Beam either."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from meanstream.pipelines.beam.element_types.elements import SampleFields
from meanstream.pipelines.beam.rounds.round_transforms import SummarizeUsers, sample_batch
from tests.pipelines.beam.support.collecting import run
from tests.streaming.support.rounds_world import rounds_settings

FIELDS = SampleFields(agent="user", value="value", time="time")
WITH_IDS = SampleFields(agent="user", value="value", time="time", id="id")


def elements(value: Any, name: Any = "a") -> list[Any]:
    rows = [{"user": f"u{i}", "value": 1.0, "time": 1000.0 + i, "id": f"{i}"} for i in range(5)]
    return [*rows, {"user": "u5", "value": value, "time": 1005.0, "id": name}]


def users_and_letters(given: list[Any], **more: Any) -> tuple[set[str], dict[str, int]]:
    settings = rounds_settings(
        **{"window": "1d", "estimator": "one_shot", **more.pop("settings", {})}
    )
    batches, counters = run(given, SummarizeUsers(settings, shards=2, **more))
    users = {name for _, batch in batches for name in batch.names.to_pylist()}
    rejected = {name: n for name, n in counters.items() if name.startswith("rejected_") and n}
    return users, rejected


@pytest.mark.parametrize("value", [None, "x", True, math.nan, math.inf, [1.0], {"a": 1}], ids=repr)
@pytest.mark.parametrize("fields", [FIELDS, WITH_IDS], ids=["without ids", "ids"])
def test_an_element_without_a_valid_value_counts_for_its_user(
    value: Any, fields: SampleFields
) -> None:
    valid = users_and_letters(elements(1.0), fields=fields)
    invalid = users_and_letters(elements(value), fields=fields)
    assert valid[0] == invalid[0] == {f"u{i}" for i in range(6)}
    assert not valid[1]
    assert sum(invalid[1].values()) == 1


@pytest.mark.parametrize("value", [None, "fridge", 1.5, True, ""], ids=repr)
def test_neither_does_one_without_a_declared_category(value: Any) -> None:
    settings = {"estimator": "category_shares", "categories": ("1", "2"), "lower": 0, "upper": 1}
    given = [{**one, "value": "1"} for one in elements(1.0)[:5]] + elements(value)[5:]
    users, rejected = users_and_letters(given, fields=FIELDS, settings=settings)
    assert users == {f"u{i}" for i in range(6)}
    assert sum(rejected.values()) == 1


def test_neither_does_a_function_that_fails_nor_an_id_that_is_none() -> None:
    failing = SampleFields(
        agent="user", value=lambda one: 1 / (one["value"] - 2), time="time", id="id"
    )
    users, rejected = users_and_letters(elements(2.0, name=2.5), fields=failing)
    assert users == {f"u{i}" for i in range(6)}
    assert sum(rejected.values()) == 1


def test_neither_does_a_value_of_a_batch() -> None:
    batch = sample_batch(["a", "b", "c"], np.array([1.0, math.inf, math.nan]), np.full(3, 1000.0))
    users, _ = users_and_letters([batch])
    assert users == {"a", "b", "c"}


def test_a_name_or_a_time_that_is_none_counts_for_nobody() -> None:
    given = [*elements(1.0), {"user": 1.5, "value": 1.0, "time": 1000.0}]
    given += [{"user": "late", "value": 1.0, "time": "noon"}]
    users, rejected = users_and_letters(given, fields=FIELDS)
    assert users == {f"u{i}" for i in range(6)}
    assert sum(rejected.values()) == 2
