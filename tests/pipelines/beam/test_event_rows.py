"""Transforms whose outputs are rows: as many as there are events, with the same content, and a
schema for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from meanstream.beam import rows
from meanstream.pipelines.beam.agents.agent_transforms import (
    AgentsSettings,
    CollaborateAgents,
    EngineOptions,
    SampleFields,
    SingleEvents,
)
from meanstream.pipelines.beam.rounds.round_transforms import RunRounds
from meanstream.pipelines.beam.worker.event_rows import EventRows, row_columns
from meanstream.streaming.events.base import Event
from meanstream.streaming.events.round_events import WindowEstimate
from meanstream.streaming.events.wire import EVENTS, BudgetEvent
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from tests.pipelines.beam.support.collecting import collector
from tests.streaming.rounds.test_rounds_vectors import vector_settings

NAMED = {"agent": "tail", "value": "delay", "time": "departed"}
FLIGHTS = [
    beam.Row(tail=f"N{i % 7}", delay=i % 11 * 6.0, departed=1357034400 + i) for i in range(210)
]
AGENTS: dict[str, Any] = {
    "name": "delays",
    "lower": -30,
    "upper": 120,
    "epsilon": 1.0,
    "delta": 1e-6,
}
USERS: dict[str, Any] = {
    "name": "delays",
    "lower": -30,
    "upper": 120,
    "epsilon": 1.0,
    "window": "60s",
}


def as_row(event: Event) -> dict[str, Any]:
    """Write an event as its row shall be, without the code that makes rows."""
    found: dict[str, Any] = {}
    for name, value in event.model_dump(mode="json").items():
        if name.endswith("interval"):
            before = name.removesuffix("interval")
            several = isinstance(value[0], list)
            found[f"{before}lower"] = [pair[0] for pair in value] if several else value[0]
            found[f"{before}upper"] = [pair[1] for pair in value] if several else value[1]
        elif name != "schema_version":
            found[name] = value
    return found


def read_row(row: Any, texts: Sequence[str]) -> dict[str, Any]:
    """Read a row, with the parts that are text of JSON; what has no value is left out."""
    told = {name: value for name, value in row._asdict().items() if value is not None}
    return {name: json.loads(value) if name in texts else value for name, value in told.items()}


def made(
    transform: Any, elements: Sequence[Any] = FLIGHTS, events: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Run a transform, and give what each of its outputs holds; rows pass their coder on the
    way."""
    found: dict[str, list[Any]] = {}
    with beam.Pipeline(FnApiRunner()) as pipeline:
        outputs = pipeline | beam.Create(elements) | transform
        for name, output in (outputs if isinstance(outputs, dict) else outputs._asdict()).items():
            collect, found[name] = collector()
            single = (events or {}).get(name, beam.Reshuffle())
            _ = output | f"Single {name}" >> single | f"Collect {name}" >> collect
    return found


def sorted_rows(found: Sequence[dict[str, Any]]) -> list[str]:
    """Give rows in an order of their own."""
    return sorted(json.dumps(row, sort_keys=True) for row in found)


def test_rows_of_agents_are_their_events() -> None:
    settings = AgentsSettings(**AGENTS, histogram_share=0.1, horizon=4)
    options = EngineOptions(quantiles=(0.5,), level=0.9)
    singles = {name: SingleEvents(settings) for name in ("estimates", "releases")}
    plain = CollaborateAgents(settings, options, fields=SampleFields(**NAMED))
    elements = [*FLIGHTS, beam.Row(tail="N1", delay=float("nan"), departed=1357034400)]
    expected = made(plain, elements, singles)
    given = {
        "settings": {**AGENTS, "histogram_share": 0.1, "horizon": 4},
        "options": {"quantiles": [0.5], "level": 0.9},
    }
    rowed = made(rows.CollaborateAgents(**given, fields=NAMED), elements)
    assert set(rowed) == set(expected)
    assert len(rowed["estimates"]) == 7
    assert len(rowed["releases"]) == 28
    assert len(rowed["notices"]) == 7
    assert [row.reason for row in rowed["rejected"]] == ["not_finite"]
    texts = ("quantiles", "histogram", "votes", "fitted")
    for name, events in expected.items():
        want = sorted_rows(
            [{k: v for k, v in as_row(event).items() if v is not None} for event in events]
        )
        assert sorted_rows([read_row(row, texts) for row in rowed[name]]) == want, name


@pytest.mark.parametrize("whole", [False, True])
def test_rows_of_rounds_are_their_events(whole: bool) -> None:
    expected = made(RunRounds(RoundsSettings(**USERS), fields=SampleFields(**NAMED)))
    arguments = {"settings": USERS} if whole else USERS
    rowed = made(rows.RunRounds(**arguments, fields=NAMED))
    assert len(rowed["estimates"]) == 4
    want = sorted_rows(
        [
            {k: v for k, v in as_row(event).items() if v is not None}
            for event in expected["estimates"]
        ]
    )
    assert sorted_rows([read_row(row, ("stages",)) for row in rowed["estimates"]]) == want


def test_an_answer_about_vectors_is_lists() -> None:
    settings = vector_settings(epsilon=6.0, name="delays")
    points = [
        {"user": f"u{i % 40}", "x": i % 5 / 5, "y": 0.5, "z": -0.5, "time": 60.0 + i}
        for i in range(80)
    ]
    fields = {"agent": "user", "value": ["x", "y", "z"]}
    plain = made(
        RunRounds(settings, fields=SampleFields(agent="user", value=("x", "y", "z"))), points
    )
    (row,) = made(rows.RunRounds(settings=settings, fields=fields), points)["estimates"]
    (event,) = plain["estimates"]
    assert (list(row.value), list(row.lower)) == (event.value, [low for low, _ in event.interval])
    assert len(row.value) == 3


def test_every_event_has_a_schema() -> None:
    for kind in EVENTS.values():
        columns = dict(row_columns(kind))
        assert "schema_version" not in columns
        assert kind is WindowEstimate or not any(name.endswith("interval") for name in columns)
    assert row_columns(BudgetEvent) == [
        ("agent", str), ("time", str), ("spent", int), ("horizon", int), ("epsilon", float), ("delta", float)
    ]  # fmt: skip
    window = dict(row_columns(WindowEstimate))
    assert (window["value"], window["users"], window["stages"]) == (float, int, str)


class _Settings(NamedTuple):
    name: str
    lower: float
    upper: float
    epsilon: float
    delta: float
    horizon: int | None


def test_parameters_come_as_rows_of_other_languages() -> None:
    plain = rows.CollaborateAgents(**AGENTS).display_data()
    for row in (
        _Settings(**AGENTS, horizon=None),
        beam.Row(**AGENTS),
        AGENTS,
        AgentsSettings(**AGENTS),
    ):
        assert rows.CollaborateAgents(settings=row).display_data() == plain


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {**AGENTS, "options": {"levle": 0.9}},
            "options must have known parameters, got 'levle'; did you mean 'level'?",
        ),
        (
            {**AGENTS, "options": {"covariates": {}}},
            "options must have known parameters, got 'covariates'",
        ),
        ({**AGENTS, "fields": "tail"}, "fields must be parameters by name, got 'str'"),
        (
            {**AGENTS, "secret": ["MEANSTREAM_SECRET"]},
            "secret must be parameters by name, got 'list'",
        ),
        ({"settings": AGENTS, "epsilon": 1.0}, "settings must be given once, got 'epsilon'"),
        ({**AGENTS, "epsilon": -1}, "epsilon must be positive and finite, got -1"),
        ({**AGENTS, "name": None}, "name must be given on Beam"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        rows.CollaborateAgents(**arguments)
    assert str(caught.value).startswith(message)


def test_the_file_of_providers_names_every_transform() -> None:
    text = rows.PROVIDERS.read_text()
    for name in set(rows.__all__) - {"PROVIDERS"}:
        assert f"    {name}: meanstream.beam.rows.{name}\n" in text


def test_a_line_that_lacks_a_column_would_be_found() -> None:
    line = b'{"agent":"a","time":"2013-01-01T00:00:00Z","spent":1,"horizon":4,"epsilon":1}'
    with (
        pytest.raises(Exception, match=r"StepError|null|None"),
        beam.Pipeline(FnApiRunner()) as pipeline,
    ):
        _ = (
            pipeline
            | beam.Create([SimpleNamespace(lines=[line])])
            | EventRows(BudgetEvent, lambda e: e.lines)
            | beam.Reshuffle()
        )
