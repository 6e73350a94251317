"""Samples are taken by name, each on its own; what is none goes out with its reason and changes
nothing beside it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from meanstream.pipelines.beam.agents.agent_transforms import (
    CollaborateAgents,
    CollaboratePairwise,
    ReleaseMeans,
    SampleFields,
    agent_batch,
)
from meanstream.pipelines.beam.element_types import elements
from meanstream.pipelines.beam.element_types.elements import ElementParts
from meanstream.pipelines.beam.input.beam_intake import SampleIntake, SampleReader
from meanstream.pipelines.beam.kafka.write_kafka import WriteKafka
from meanstream.pipelines.beam.rounds.round_transforms import (
    ReportRounds,
    RunRounds,
    SummarizeUsers,
    sample_batch,
)
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.times import LARGEST
from meanstream.streaming.events.wire import DeadLetter, PrivateDeadLetter, Sample
from tests.pipelines.beam.agents.test_agents_pairwise import SETTINGS as PAIRWISE
from tests.pipelines.beam.support.agents_world import (
    HOUR,
    SETTINGS,
    engine_on,
    release_lines,
    samples,
)
from tests.pipelines.beam.support.collecting import collector, lines, run_pipeline
from tests.streaming.support.rounds_world import rounds_settings
from tests.streaming.support.rounds_world import samples as rounds_samples

SHOWN = "37.25 of Ann"
"""Nothing that is rejected may show what it held."""


class TimeFirst(NamedTuple):
    """A schema whose order is not that of the convention: by position, a time would be an agent."""

    time: float
    value: float
    agent: str


@dataclasses.dataclass(frozen=True)
class Measured:
    value: float
    time: float
    agent: str
    other: object = None


Rows = Sequence[tuple[str, float, float]]
KINDS: dict[str, Any] = {
    "named tuple": lambda who, value, at: TimeFirst(at, value, who),
    "row": lambda who, value, at: beam.Row(value=value, time=at, agent=who),
    "mapping": lambda who, value, at: {"time": at, "other": None, "value": value, "agent": who},
    "dataclass": lambda who, value, at: Measured(value, at, who),
    "event": lambda who, value, at: Sample(
        agent=who, value=value, time=datetime.fromtimestamp(at, UTC)
    ),
    "tuple": lambda who, value, at: (who, value, at),
    "datetime": lambda who, value, at: {
        "agent": who,
        "value": Decimal(value),
        "time": datetime.fromtimestamp(at, UTC),
    },
    "numpy": lambda who, value, at: {
        "agent": np.str_(who),
        "value": np.float64(value),
        "time": np.float64(at),
    },
    "beam time": lambda who, value, at: {"agent": who, "value": value, "time": Timestamp.of(at)},
}


def intake(**parts: Any) -> SampleIntake:
    return SampleIntake.of(SampleFields(**parts), SampleFields(), secret=None, max_future=None)


def read(
    given: Sequence[Any], reads: SampleIntake | None = None, *, at: float | None = None
) -> tuple[Rows, list[str]]:
    """What one bundle makes of elements: samples, and reasons."""
    reader = SampleReader(reads or intake())
    for element in given:
        assert not reader.add(
            element, Timestamp.of(at) if at is not None else beam.utils.timestamp.MIN_TIMESTAMP
        )
    parts, rejects = reader.read()
    found = [
        (part.names[who], value, when)
        for part in parts
        for who, value, when in zip(
            part.agent.tolist(), part.value.tolist(), part.time.tolist(), strict=True
        )
    ]
    return found, rejects.reason


STREAM = [("ann", 3.5, 0.25), ("bob", -1.0, 1357034400.0), ("ann", 1e300, 99.0)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_element_is_taken_by_name(kind: str) -> None:
    assert read([KINDS[kind](*sample) for sample in STREAM]) == (STREAM, [])


def test_by_position_the_twin_takes_a_time_for_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there before: whatever unpacks is `(agent, value, time)`."""
    numbered = [TimeFirst(at, value, "7") for _, value, at in STREAM]
    assert [sample[0] for sample in read(numbered)[0]] == ["7", "7", "7"]
    monkeypatch.setattr(ElementParts, "_raw", lambda self, element, stamp: (*element, None))
    monkeypatch.setattr(elements, "_seconds", float)
    monkeypatch.setattr(elements, "_text", lambda raw, kind: str(raw).encode())
    assert read(numbered)[0] == [(str(at), value, 7.0) for _, value, at in STREAM]


def test_fields_are_named_or_made() -> None:
    reads = intake(agent="tail", value=lambda row: row["delay"] / 60, time="departed", id="flight")
    rows = [
        {
            "tail": 7,
            "delay": 90.0,
            "departed": 5,
            "flight": "1",
            "time": 99.0,
            "agent": "no",
            "value": 0.0,
        }
    ]
    assert read(rows, reads) == ([("7", 1.5, 5.0)], [])
    made = intake(
        agent=lambda line: line.split(b";")[0].decode(),
        value=lambda line: float(line.split(b";")[1]),
    )
    assert read([b"ann;2.5", b"bob", b";1.0"], made, at=8.0) == (
        [("ann", 2.5, 8.0)],
        ["bad_value", "missing_agent"],
    )
    # Where something is named, a plain tuple has no names.
    assert read([("ann", 1.0, 2.0)], intake(time="when")) == ([], ["malformed"])


def test_an_element_without_a_time_has_its_timestamp_and_one_with_a_time_does_not() -> None:
    assert read([("ann", 1.0)], at=7.5) == ([("ann", 1.0, 7.5)], [])
    assert read([{"agent": "ann", "value": 1.0}], at=7.5) == ([("ann", 1.0, 7.5)], [])
    assert read([{"agent": "ann", "value": 1.0, "time": 3}], at=7.5) == ([("ann", 1.0, 3.0)], [])
    assert read([{"agent": "ann", "value": 1.0, "time": None}], at=7.5) == ([], ["missing_time"])
    assert read([{"agent": "ann", "value": 1.0}], intake(time="time"), at=7.5) == (
        [],
        ["missing_time"],
    )
    assert read([("ann", 1.0)]) == ([], ["missing_time"]), "a source that gives no timestamps"


class Rude(dict[str, Any]):
    """Does not like to be asked."""

    def get(self, *_: Any) -> Any:
        raise RuntimeError(SHOWN)


def test_a_number_beyond_all_floats_is_a_sample_as_in_a_file() -> None:
    huge = [10**400, 10**10_000, Decimal("1e400"), np.longdouble("1e400"), 1e308 * 1.5]
    found, reasons = read([("a", sign * value, 2.0) for value in huge for sign in (1, -1)])
    assert [abs(value) for _, value, _ in found] == [LARGEST] * 8 + [1.5e308] * 2
    assert [value > 0 for _, value, _ in found] == [True, False] * 5
    assert reasons == []


NOW = time.time()
BAD: list[tuple[str, Any]] = [
    *[
        ("malformed", one)
        for one in (None, "", SHOWN, b"", SHOWN.encode(), (), ("a",), [1, 2, 3, 4], 5)
    ],
    *[
        ("malformed", one)
        for one in (object(), Rude(agent="a"), {1, 2, 3}, np.zeros(3), float("nan"))
    ],
    ("missing_agent", {"value": 1.0, "time": 2.0}),
    ("missing_agent", (None, 1.0, 2.0)),
    ("missing_agent", ("", 1.0, 2.0)),
    ("missing_value", {"agent": "a", "time": 2.0}),
    ("missing_value", ("a", None, 2.0)),
    ("missing_time", {"agent": "a", "value": 1.0, "time": None}),
    *[
        ("bad_agent", (who, 1.0, 2.0))
        for who in (True, 1.5, b"ann", "a\0b", " ", "x" * 257, "\ud800", 10**5000, [])
    ],
    *[
        ("bad_value", ("a", value, 2.0))
        for value in (True, np.True_, "37.25", b"1", [1.0], 1j, np.ones(1), {})
    ],
    *[
        ("not_finite", ("a", value, 2.0))
        for value in (np.nan, np.inf, -np.inf, np.float32("nan"), np.float32("inf"))
    ],
    *[("not_finite", ("a", Decimal(text), 2.0)) for text in ("sNaN", "NaN", "-Infinity")],
    *[
        ("bad_time", ("a", 1.0, when))
        for when in (1357034400000, np.nan, np.inf, -1e10, 10**400, True, "1357034400")
    ],
    *[
        ("bad_time", ("a", 1.0, when))
        for when in (datetime(2013, 1, 1), datetime.max.replace(tzinfo=UTC), b"1", {})
    ],
    ("bad_time", ("a", 1.0, datetime.min.replace(tzinfo=timezone(timedelta(hours=14))))),
    ("in_future", ("a", 1.0, NOW + 1e7)),
]


@pytest.mark.parametrize("place", range(len(BAD)))
def test_a_bad_element_has_its_reason_alone_and_in_company(place: int) -> None:
    reason, element = BAD[place]
    assert read([element]) == ([], [reason])
    assert read([*STREAM[:1], element, *STREAM[1:]]) == (STREAM, [reason])


def test_what_becomes_of_an_element_does_not_depend_on_its_bundle() -> None:
    rng = np.random.default_rng(11)
    given = [(None, sample) for sample in STREAM * 20] + BAD
    for _ in range(10):
        shuffled = [given[i] for i in rng.permutation(len(given)).tolist()]
        cuts = [0, *sorted(rng.integers(0, len(given), 3).tolist()), len(given)]
        for start, stop in itertools.pairwise(cuts):
            bundle = shuffled[start:stop]
            found, reasons = read([element for _, element in bundle])
            assert found == [element for reason, element in bundle if reason is None]
            assert Counter(reasons) == Counter(reason for reason, _ in bundle if reason is not None)


def test_batches_lose_their_bad_samples_only() -> None:
    names = ["ann", None, "a\0b", "bob", "", "\u2003", "ann", "bob", "ann", "x" * 257]
    value = [1.0, 1.0, 1.0, np.nan, 1.0, 1.0, 2.0, 3.0, None, 1.0]
    times = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, NOW + 1e7, 1357034400000.0, 9.0, 10.0]
    for batch in (sample_batch(names, value, times), agent_batch(names, value, times)):
        found, reasons = read([batch])
        assert found == [("ann", 1.0, 1.0)]
        assert Counter(reasons) == {"bad_agent": 5, "not_finite": 2, "in_future": 1, "bad_time": 1}
    whole = agent_batch(["a", "b"], [1.0, 2.0], [1.0, 2.0])
    for broken in (
        dataclasses.replace(whole, agent=np.array([0, 2])),
        dataclasses.replace(whole, agent=np.array([-1, 0])),
        dataclasses.replace(whole, value=np.zeros((2, 3))),
        dataclasses.replace(whole, time=np.zeros(1)),
    ):
        assert read([broken, STREAM[0]]) == (STREAM[:1], ["malformed"] * 2)
        found, reasons = read([whole, broken, whole])  # of one directory, which are read together
        assert (len(found), reasons) == (4, ["malformed"] * 2)


@pytest.mark.parametrize("value", [1.5, -0.0, np.nan, np.inf])
@pytest.mark.parametrize("who", ["ann", "", "Zo\u00eb", "\ud800"])
def test_the_usual_tuple_is_taken_as_any_other(
    who: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parts() -> str:
        try:
            return repr(ElementParts(elements.SampleFields(), tuples=True).of((who, value, 2.0), 5))
        except elements.BadElementError as bad:
            return str(bad)

    usual = parts()
    monkeypatch.setattr(elements, "_USUAL", ())
    assert parts() == usual


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((["a"], ["37.25 x"], [1.0]), "value must be numbers, got something else"),
        ((["a"], [1.0], ["37.25 x"]), "time must be numbers, got something else"),
        (([5.0], [1.0], [1.0]), "user must be strings, got something else"),
        ((["a"], [1.0, 2.0], [1.0]), r"columns must be of one length, got \[1, 2, 1\]"),
    ],
)
def test_a_batch_of_something_else_is_one_line_without_a_datum(columns: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        sample_batch(*columns)


def test_coordinates_are_fields_of_their_own_or_one_field() -> None:
    settings = rounds_settings(estimator="kent.l2", values=["x", "y"], window="1d", users=100)
    assert SummarizeUsers(settings)._intake.coordinates == 2
    row = {"y": 2.0, "user": "ann", "x": 1.0, "time": 5.0}
    assert read([row, ("ann", [1.0, 2.0], 5.0)], SummarizeUsers(settings)._intake) == (
        [("ann", [1.0, 2.0], 5.0)] * 2,
        [],
    )
    bad = [
        {**row, "x": None},
        {**row, "y": np.inf},
        ("ann", 1.0, 5.0),
        ("ann", [1.0], 5.0),
        ("ann", [1.0, "2"], 5.0),
    ]
    reasons = read(bad, SummarizeUsers(settings)._intake)[1]
    assert sorted(reasons) == ["bad_value", "bad_value", "bad_value", "missing_value", "not_finite"]
    one = SummarizeUsers(settings, fields=SampleFields(agent="user", value="point"))._intake
    assert read([{"user": "ann", "point": np.array([1.0, 2.0]), "time": 5.0}], one)[0] == [
        ("ann", [1.0, 2.0], 5.0)
    ]


# -- pipelines --------------------------------------------------------------------------------------------------------


def agents(
    stream: Sequence[Any], transform: Any, *options: str, kind: Any = Any
) -> tuple[list[bytes], list[DeadLetter], dict[str, int]]:
    """Lines of releases, what was rejected, and counters."""
    keep, released = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        places = pipeline | beam.Create(range(len(stream)), reshuffle=False)
        answers = (
            places
            | "Element" >> beam.Map(lambda place: stream[place]).with_output_types(kind)
            | transform
        )
        _ = answers.releases | "Releases" >> keep
        return answers.rejected

    letters, counters = run_pipeline(build, options=options)
    return release_lines(released), letters, counters


def test_agents_release_the_same_beside_everything_that_is_no_sample(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = samples(200)
    mixed = [*stream, *(element for _, element in BAD)]
    mixed = [mixed[place] for place in np.random.default_rng(3).permutation(len(mixed)).tolist()]
    expected, none, _ = agents(stream, CollaborateAgents(SETTINGS))
    random.seed(
        3
    )  # Beam weighs elements drawn at random by encoding them, which it cannot do with all of these
    with caplog.at_level(logging.DEBUG):
        found, letters, counters = agents(mixed, CollaborateAgents(SETTINGS))
    assert found == expected
    assert none == []
    wanted = Counter(reason for reason, _ in BAD)
    assert Counter(letter.reason for letter in letters) == wanted
    assert {name: n for name, n in counters.items() if name.startswith("rejected_")} == {
        f"rejected_{reason}": n for reason, n in wanted.items()
    }
    assert counters["samples"] == len(mixed)
    told = "".join(letter.model_dump_json() for letter in letters)
    assert "37.25" not in told + caplog.text
    assert "Ann" not in told + caplog.text


def test_a_schema_in_another_order_gives_the_same_releases_and_estimates_under_type_checks() -> (
    None
):
    stream = samples(120)
    expected = agents(stream, ReleaseMeans(SETTINGS))[0]
    rows = [TimeFirst(at, value, who) for who, value, at in stream]
    assert (
        agents(
            rows, CollaborateAgents(SETTINGS), "--performance_runtime_type_check", kind=TimeFirst
        )[0]
        == expected
    )


def test_event_time_of_a_pair_is_its_timestamp() -> None:
    stream = samples(120)
    micros = [(who, value, Timestamp.of(at).micros / 1e6) for who, value, at in stream]
    stamped = [TimestampedValue((who, value), Timestamp.of(at)) for who, value, at in stream]
    keep, released = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        pairs = (
            pipeline
            | beam.Create(stamped, reshuffle=False)
            | "Stamp" >> beam.Map(lambda pair: pair)
        )
        return (pairs | ReleaseMeans(SETTINGS)).releases | keep

    run_pipeline(build)
    assert release_lines(released) == agents(micros, ReleaseMeans(SETTINGS))[0]
    assert released


def test_agents_beyond_the_greatest_number_are_counted_and_displace_nobody(tmp_path: Path) -> None:
    stream = samples(200)
    names = list(dict.fromkeys(who for who, _, _ in stream))[:7]
    kept = [sample for sample in stream if sample[0] in names]
    shuffled = [
        stream[place] for place in np.random.default_rng(2).permutation(len(stream)).tolist()
    ]
    found, _, counters = agents(
        shuffled, ReleaseMeans(SETTINGS, EngineOptions(max_agents=7, final_release=False), shards=1)
    )
    assert found == sorted(engine_on(tmp_path, kept, final_release=False).lines("releases"))
    assert (counters["agents"], counters["rejected_too_many_agents"]) == (
        7,
        len(stream) - len(kept),
    )
    # Window after window, too: who comes later finds no room.
    windows = ReleaseMeans(SETTINGS, EngineOptions(max_agents=7), shards=1, refresh=20 * HOUR)
    later, _, counters = agents(shuffled, windows)
    assert {json.loads(line)["agent"] for line in later} <= set(names)
    assert counters["agents"] == 7
    with pytest.raises(ValueError, match="max_agents must be at least the shards, 16, got 7"):
        ReleaseMeans(SETTINGS, EngineOptions(max_agents=7))


ROUNDS_BAD = [
    "nothing",
    None,
    ("user 1", np.nan, 5.0),
    ("user 1", 1.0, 1357034400000),
    ("user 1", -np.inf, 5.0),
    {},
]


@pytest.mark.parametrize("estimator", ["tiny", "cummings.ratio"])
def test_rounds_answer_the_same_beside_what_is_no_sample(estimator: str) -> None:
    settings = rounds_settings(estimator=estimator)
    stream = rounds_samples()

    # A value that is none counts as a sample without one: its user takes part.
    without = [("user 1", math.nan, 5.0)] * 2
    expected, _ = run_pipeline(
        lambda p: p | beam.Create([*stream, *without], reshuffle=False) | RunRounds(settings)
    )
    rows = [{"time": at, "user": who, "value": value} for who, value, at in stream]
    keep, letters = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        answers = (
            pipeline | beam.Create([*ROUNDS_BAD, *rows], reshuffle=False) | RunRounds(settings)
        )
        _ = answers.rejected | "Rejected" >> keep
        return answers

    found, counters = run_pipeline(build, options=["--performance_runtime_type_check"])
    assert lines(found) == lines(expected)
    assert len(found) > 1
    assert Counter(letter.reason for letter in letters) == {
        "malformed": 2,
        "not_finite": 2,
        "bad_time": 1,
        "missing_agent": 1,
    }
    assert {type(letter) for letter in letters} == {PrivateDeadLetter}, (
        "how many a user sends is protected"
    )
    assert counters["rejected_not_finite"] == 2


def test_reports_and_pairs_reject_too() -> None:
    def report(pipeline: beam.Pipeline) -> Any:
        given = pipeline | beam.Create([*ROUNDS_BAD, *rounds_samples(30)], reshuffle=False)
        return (given | ReportRounds(rounds_settings())).rejected

    assert len(run_pipeline(report)[0]) == len(ROUNDS_BAD)
    rows = [
        {"value": 5.0, "agent": who, "time": float(at)} for at in range(4) for who in ("ann", "bob")
    ]

    def pairs(pipeline: beam.Pipeline) -> Any:
        return (
            pipeline
            | beam.Create([None, b"", *rows], reshuffle=False)
            | CollaboratePairwise(PAIRWISE)
        ).rejected

    assert [letter.reason for letter in run_pipeline(pairs)[0]] == ["malformed"] * 2


def test_what_is_rejected_may_go_to_a_topic_of_dead_letters() -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    answers = pipeline | beam.Create(STREAM) | CollaborateAgents(SETTINGS)
    assert answers.rejected.element_type is DeadLetter
    _ = answers.rejected | WriteKafka("kafka://127.0.0.1:1/letters", role="dead_letters")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ReleaseMeans(SETTINGS, fields=SampleFields(agent="who")),
            "agent must name a field of the samples, got 'who'; the samples have",
        ),
        (
            lambda: ReleaseMeans(SETTINGS, fields=SampleFields(value="valeu")),
            "value must name a field .*, got 'valeu'; did you mean 'value'",
        ),
        (
            lambda: RunRounds(rounds_settings()),
            "user must name a field of the samples, got 'user'; the samples have",
        ),
        (
            lambda: ReleaseMeans(SETTINGS, fields=SampleFields(agent="")),
            "agent must be a name or a function, got ''",
        ),
        (
            lambda: ReleaseMeans(SETTINGS, fields=SampleFields(time=3)),
            "time must be a name or a function, got 3",
        ),  # type: ignore[arg-type]
        (
            lambda: ReleaseMeans(SETTINGS, EngineOptions(max_future=-1.0)),
            "max_future must be at least 0 and finite, got -1.0",
        ),
    ],
)
def test_a_schema_without_a_field_is_one_line_before_anything_runs(make: Any, message: str) -> None:
    given = beam.Create([TimeFirst(1.0, 2.0, "ann")]).with_output_types(TimeFirst)
    with pytest.raises(ValueError, match=message):
        _ = beam.Pipeline(runner="FnApiRunner") | given | make()


def test_with_a_schema_a_plain_tuple_is_no_sample() -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    typed = pipeline | beam.Create([TimeFirst(1.0, 2.0, "ann")]).with_output_types(TimeFirst)
    reads = intake().taking(typed, owner="agent")
    assert reads.fields.time == "time"
    assert read([("ann", 1.0, 2.0), TimeFirst(1.0, 2.0, "ann")], reads) == (
        [("ann", 2.0, 1.0)],
        ["malformed"],
    )


def reader(**changes: Any) -> SampleReader:
    fields = SampleFields(**changes)
    intake = SampleIntake.of(fields, SampleFields(), secret=None, max_future=None)
    return SampleReader(intake)


def read_bundle(into: SampleReader, rows: Sequence[Any]) -> int:
    for row in rows:
        into.add(row, Timestamp(0))
    parts, _ = into.read()

    return sum(map(len, parts))


def test_a_first_bundle_without_a_sample_is_a_warning_with_the_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [{"sensor": f"s{i}", "v": 271828.5 + i, "t": 1000.0 + i} for i in range(50)]
    without = reader()
    assert read_bundle(without, rows) == 0
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "no element of the first 50 is a sample (missing_agent 50): elements have 'sensor', 't', 'v'; "
        "name them with fields=SampleFields(agent=..., value=...)"
    )
    assert "271828" not in caplog.text
    assert read_bundle(without, rows) == 0
    assert len(caplog.records) == 1  # once for each reader


def test_names_that_are_data_are_not_in_the_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert read_bundle(reader(), [{f"Ann{i}": 1.0, "37 of Ann": 2.0} for i in range(50)]) == 0
    assert "no element of the first 50 is a sample" in caplog.text
    assert "Ann" not in caplog.text


@pytest.mark.parametrize("n_good", [1, 50])
def test_a_first_bundle_with_a_sample_is_no_warning(
    n_good: int, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"sensor": "s", "v": 1.0, "t": 1000.0} for _ in range(n_good)]
    other = [{"agent": "a", "value": 1.0, "time": 1000.0}] * (50 - n_good)
    assert read_bundle(reader(agent="sensor", value="v", time="t"), rows + other) == n_good
    assert caplog.records == []
