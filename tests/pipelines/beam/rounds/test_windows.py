"""Windows, late data and budgets: what joins a round, what is counted, and that a round has one
pane."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms import sideinputs
from apache_beam.transforms.window import FixedWindows, IntervalWindow, TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.pipelines.beam.keyed_state.beam_ledger import SpendLedger
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.rounds.answer_rounds import _Together
from meanstream.pipelines.beam.rounds.round_transforms import RunRounds, SummarizeUsers
from meanstream.pipelines.beam.rounds.rounds_windows import CarryRounds, window_release_time
from meanstream.pipelines.beam.rounds.summaries_on_beam import JoinBatches, SumBatches
from meanstream.streaming.rounds.window_widths import Window
from tests.pipelines.beam.support.collecting import run, run_pipeline
from tests.streaming.support.rounds_world import rounds_settings


@pytest.fixture
def empty_bundles_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner of streams that follow a script looks for the window of an empty bundle and dies
    of it."""
    mapping = sideinputs.default_window_mapping_fn

    def tolerant(window_fn: Any) -> Any:
        find, nowhere = mapping(window_fn), IntervalWindow(MIN_TIMESTAMP, MIN_TIMESTAMP)
        return lambda window: nowhere if window is None else find(window)

    monkeypatch.setattr(sideinputs, "default_window_mapping_fn", tolerant)


def at(user: str, value: float, time: float) -> TimestampedValue:
    return TimestampedValue((user, value, time), time)


def script() -> Stream:
    """Windows of ten seconds that wait five: `c` is late and allowed, `d` comes after the
    release."""
    return (
        Stream()
        .advance_watermark_to(0)
        .add_elements([at("a", 0.5, 1), at("b", 0.1, 2), at("a", 0.25, 1.5)])
        .advance_watermark_to(12)
        .add_elements([at("a", 0.3, 12), at("c", 0.1, 3)])
        .advance_watermark_to(16)
        .add_elements([at("d", 0.1, 4), at("d", 0.9, 5), at("e", 0.2, 14)])
        .advance_watermark_to(25)
        .advance_watermark_to(36)
        .advance_watermark_to_infinity()
    )


@pytest.mark.parametrize("estimator", ["one_shot", "tiny"])
@pytest.mark.usefixtures("empty_bundles_are_no_fault")
def test_late_data_within_the_allowance_join_and_later_data_do_not(estimator: str) -> None:
    settings = rounds_settings(window="10s", allowed_lateness=5.0, estimator=estimator)
    estimates, _ = run_pipeline(
        lambda pipeline: pipeline | script() | RunRounds(settings),
        runner=BundleBasedDirectRunner(),
        options=["--streaming"],
    )
    found = sorted((estimate.start.timestamp(), estimate.users) for estimate in estimates)
    assert found == [(0.0, 3), (10.0, 2)]  # one pane each; a, b, c and a, e


@pytest.mark.usefixtures("empty_bundles_are_no_fault")
def test_users_of_a_window_come_once_with_all_their_samples() -> None:
    settings = rounds_settings(window="10s", allowed_lateness=5.0, users=5)
    batches, _ = run_pipeline(
        lambda pipeline: pipeline | script() | SummarizeUsers(settings, shards=2),
        runner=BundleBasedDirectRunner(),
        options=["--streaming"],
    )
    users = {
        (batch.window.start // 10**6, name): count
        for _, batch in batches
        for name, count in zip(batch.names.to_pylist(), batch.sums.count.tolist(), strict=True)
    }
    assert users == {(0, "a"): 2, (0, "b"): 1, (0, "c"): 1, (10, "a"): 1, (10, "e"): 1}


@pytest.mark.parametrize(
    ("timing", "index", "late"),
    [
        (PaneInfoTiming.ON_TIME, 0, 0),
        (PaneInfoTiming.UNKNOWN, 0, 0),
        (PaneInfoTiming.LATE, 0, 3),
        (0, 1, 3),
    ],
)
def test_what_comes_after_the_release_is_counted(timing: int, index: int, late: int) -> None:
    settings, counted = rounds_settings(users=5), []
    total = SumBatches(settings, 1, SummarizeUsers(settings)._intake)
    total.setup()
    total.start_bundle()
    for sample in (("a", 1.0, 5.0), ("a", 2.0, 6.0), ("b", 3.0, 7.0)):
        assert list(total.process(sample, Timestamp(0))) == []
    keyed = [out.value for out in total.finish_bundle()]
    join = JoinBatches(settings, 1, StateOwner(settings={}))
    join.setup()
    join._late = type("Counter", (), {"inc": staticmethod(counted.append)})
    pane = PaneInfo(index == 0, False, timing, index, index)
    out = list(join.process(((join._mark.key(0), 0), [batch for _, batch in keyed]), pane))
    assert sum(counted) == late
    assert sum(len(batch) for _, batch in out) == (0 if late else 2)


@pytest.mark.parametrize("window", ["1d", "session:3h"])
def test_an_empty_pane_of_a_window_changes_nothing(window: str) -> None:
    """Flink gives one where event time passes a window and all its lateness at once: of an old
    backlog, by clock."""
    settings = rounds_settings(users=5, window=window)
    join = JoinBatches(settings, 1, StateOwner(settings={}))
    join.setup()
    pane = PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0)
    assert list(join.process(((join._mark.key(0), 0), []), pane) or ()) == []
    assert list(_Together().process((0, []))) == []


def test_sliding_windows_are_refused_unless_the_budget_covers_their_overlap() -> None:
    rule = r"user_budget must be at least 14 for sliding windows '7d,1d' \(a sample is in 7 windows, .*\), got None"
    with pytest.raises(ValueError, match=rule):
        RunRounds("one_shot", name="rounds", lower=0, upper=1, epsilon=2.0, window="7d,1d")
    RunRounds(rounds_settings(epsilon=2.0, window="7d,1d", user_budget=14.0))


def test_samples_must_not_be_windowed_before() -> None:
    windowed = beam.Create([("a", 1.0, 1.0)], reshuffle=False) | beam.WindowInto(FixedWindows(5))
    with pytest.raises(
        ValueError, match="samples must be in the global window, got 'FixedWindows'"
    ):
        run_pipeline(lambda pipeline: pipeline | windowed | RunRounds(rounds_settings()))


@pytest.mark.parametrize("window", ["10s", "30s,10s", "session:10s"])
@pytest.mark.parametrize("lateness", [0.0, 4.0, 25.0004])
def test_a_carrier_ends_with_the_release_of_its_round_and_carries_no_other(
    window: str, lateness: float
) -> None:
    settings = rounds_settings(window=window, allowed_lateness=lateness, user_budget=1e3)
    pipeline = beam.Pipeline(runner=BundleBasedDirectRunner())
    carrier = (pipeline | beam.Create([]) | CarryRounds(settings)).windowing.windowfn
    size = settings.windows.size
    rounds = [
        Window(start, start + size)
        for start in range(-50_000_000, 70_000_000, settings.windows.period)
    ]
    ends = []
    for one in rounds:
        release = window_release_time(settings, one)
        assert 0 <= release - one.end - lateness * 1e6 < 1000
        stamp = Timestamp(micros=release - 1000)
        (found,) = carrier.assign(beam.transforms.window.WindowFn.AssignContext(stamp))
        assert found.start.micros <= stamp.micros < found.end.micros
        assert window.startswith("session") or found.end.micros == release
        ends.append(found.end.micros)
    assert len(set(ends)) == len(rounds)


def test_sessions_are_those_of_all_users_together() -> None:
    times = [0.0, 9.0, 18.0, 40.0, 45.0, 60.0005]
    settings = rounds_settings(window="session:10s", estimator="one_shot")
    estimates, _ = run(
        [(f"user {n}", 5.0, time) for n, time in enumerate(times)], RunRounds(settings)
    )
    found = sorted((e.start.timestamp(), e.end.timestamp(), e.users) for e in estimates)
    assert found == [(0.0, 28.0, 3), (40.0, 55.0, 2), (60.0005, 70.0005, 1)]


def test_over_the_budget_the_earliest_rounds_count() -> None:
    settings = rounds_settings(estimator="one_shot", user_budget=4.0, window="10s")
    samples = [("a", 1.0, 10.0 * n) for n in range(5)] + [("b", 1.0, 35.0)]
    estimates, counters = run(samples[::-1], RunRounds(settings))
    assert [e.users for e in sorted(estimates, key=lambda e: e.start)] == [1, 1, 0, 1, 0]
    assert counters["over_budget"] == 3


def test_the_ledger_counts_every_user_by_its_whole_hash() -> None:
    rng = np.random.default_rng(1)
    names = keyed_owner_words([f"user {n}" for n in range(50)])
    names = np.concatenate(
        [names, np.stack([names[:5, 0], names[:5, 1] ^ np.uint64(1)], axis=1)]
    )  # half agrees
    ledger, expected = SpendLedger(b""), np.zeros(len(names), np.int64)
    for _ in range(30):
        some = rng.permutation(len(names))[: rng.integers(0, len(names))]
        assert ledger.spent(names[some]).tolist() == expected[some].tolist()
        ledger.charge(names[some])
        expected[some] += 1
        ledger = SpendLedger(ledger.to_bytes())
    assert ledger.spent(names).tolist() == expected.tolist()
