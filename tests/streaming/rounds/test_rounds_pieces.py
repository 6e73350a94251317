"""What both hosts share: windows, users' sums, reports, events."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import canonical_plain, keyed_owner_words
from meanstream.operators.rounds.round_records import Estimate
from meanstream.streaming.rounds.rounds_settings import (
    RoundsSettings,
    settings_round_id,
    settings_round_noise,
)
from meanstream.streaming.rounds.summarize_users import (
    UserSums,
    join_summaries,
    summarize,
    summarize_windows,
)
from meanstream.streaming.rounds.window_round import (
    WindowRound,
    estimate_event_line,
    report_event_lines,
)
from meanstream.streaming.rounds.window_widths import MICROS, Window, Windows, merge_session_windows
from tests.streaming.support.tiny_estimator import TINY

SECRET = b"a secret of more than sixteen bytes"
DAY = 86_400


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)


def rounds_settings(**changes: Any) -> RoundsSettings:
    tiny = {
        "lower": 0,
        "upper": 10,
        "epsilon": 1.0,
        "window": "1d",
        "estimator": "tiny",
        "name": "rounds",
    }
    return RoundsSettings(**{**tiny, **changes})


# -- windows -------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e9, 4e9), min_size=1, max_size=20),
    st.sampled_from(["90s", "1h", "7d", "6h,2h", "3d,1d"]),
)
def test_windows_are_those_of_beam(times: list[float], text: str) -> None:
    beam = pytest.importorskip("apache_beam")
    from apache_beam.transforms import window

    here = Windows.parse(text)
    there = (
        window.FixedWindows(here.size // MICROS)
        if here.overlap == 1
        else window.SlidingWindows(here.size // MICROS, here.period // MICROS)
    )
    at = here.assign(np.array(times))
    for i, time in enumerate(times):
        context = window.WindowFn.AssignContext(beam.utils.timestamp.Timestamp(seconds=time))
        expected = [(w.start.micros, w.end.micros) for w in there.assign(context)]
        which = at.sample == i
        assert list(zip(at.start[which].tolist(), at.end[which].tolist(), strict=True)) == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=20), st.integers(1, 15))
def test_sessions_are_those_of_beam(times: list[int], gap: int) -> None:
    pytest.importorskip("apache_beam")
    from apache_beam.transforms import window

    there = window.Sessions(gap)
    merged: list[Any] = []

    class Context(window.WindowFn.MergeContext):
        def merge(self, to_be_merged: Any, merge_result: Any) -> None:
            merged.append((list(to_be_merged), merge_result))

    singles = {window.IntervalWindow(t, t + gap) for t in times}
    there.merge(Context(list(singles)))
    gone = {w for parts, _ in merged for w in parts}
    expected = sorted(
        (w.start.micros, w.end.micros) for w in (singles - gone) | {w for _, w in merged}
    )
    at = Windows.parse(f"session:{gap}s").assign(np.array(times, np.float64))
    number, found = merge_session_windows(at.start, at.end)
    assert [tuple(w) for w in found] == expected
    for i, window_of in enumerate(number.tolist()):
        assert found[window_of].start <= at.start[i] < found[window_of].end


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "0d",
        "1.5s",
        "7d,2d",
        "1d,7d",
        "7d,1d,1h",
        "session:",
        "session:1h,2h",
        "session:0s",
        "7days",
    ],
)
def test_other_windows_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^window must "):
        Windows.parse(text)


# -- sums ----------------------------------------------------------------------------------------------------


def some_samples(n: int, users: int, seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    time = rng.integers(0, 5 * DAY, n) + rng.choice([0.0, 0.25], n)
    return rng.integers(0, users, n), rng.uniform(-2, 12, n), time.astype(np.float64)


def same(a: UserSums, b: UserSums) -> bool:
    return all(
        np.array_equal(x, y)
        for x, y in zip(a.columns().values(), b.columns().values(), strict=True)
    )


@pytest.mark.parametrize("spread", [1, 10**12])
def test_sums_are_those_of_a_loop_over_samples(spread: int) -> None:
    grid = FixedPoint(0, 10)
    user, value, time = some_samples(400, 40, 1)
    time = np.floor(time / DAY)  # many ties
    sums = summarize(user * spread, value, time, grid)
    assert sums.user.tolist() == sorted(set((user * spread).tolist()))
    for i, number in enumerate(sums.user.tolist()):
        mine = user * spread == number
        points = grid.encode(value[mine])
        assert (sums.count[i], sums.total[i]) == (mine.sum(), points.sum())
        assert sums.first_time[i] == time[mine].min() * MICROS
        assert sums.first[i] == points[time[mine] == time[mine].min()].min()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 6), st.randoms(use_true_random=False)
)
def test_batches_may_be_cut_and_joined_in_any_order(
    seed: int, n: int, cuts: int, order: Any
) -> None:
    grid = FixedPoint(0, 10)
    user, value, time = some_samples(n, 7, seed)
    whole = summarize(user, value, time, grid)
    shuffled = list(range(n))
    order.shuffle(shuffled)
    parts = [
        summarize(user[p], value[p], time[p], grid)
        for p in np.array_split(np.array(shuffled), cuts)
    ]
    left = parts[0]
    for part in parts[1:]:
        left = join_summaries([left, part])
    assert same(left, whole)
    assert same(join_summaries(parts[::-1]), whole)


@pytest.mark.parametrize("text", ["1d", "2d,1d", "session:20m"])
def test_all_windows_at_once_are_each_window_alone(text: str) -> None:
    grid, windows = FixedPoint(0, 10), Windows.parse(text)
    user, value, time = some_samples(300, 20, 3)
    found = summarize_windows(windows, user, value, time, grid)
    assert len(found) > 4
    assert sum(int(part.count.sum()) for part in found.values()) == 300 * windows.overlap
    for window, part in found.items():
        inside = (time * MICROS >= window.start) & (time * MICROS < window.end)
        assert same(part, summarize(user[inside], value[inside], time[inside], grid))


def test_large_sums_are_exact() -> None:
    n = 5
    big = np.full(n, 2**52 + 1, np.int64)
    none = np.zeros(n, np.int64)
    sums = join_summaries(
        [UserSums(user=none, count=none + 1, total=big, first_time=none, first=none)]
    )
    assert sums.total.tolist() == [5 * (2**52 + 1)]


def test_no_samples_are_no_sums() -> None:
    none = np.zeros(0, np.int64)
    assert len(join_summaries([])) == 0
    assert len(summarize(none, np.zeros(0), np.zeros(0), FixedPoint(0, 1))) == 0
    assert (
        summarize_windows(Windows.parse("1d"), none, np.zeros(0), np.zeros(0), FixedPoint(0, 1))
        == {}
    )


# -- settings, ids, noise ------------------------------------------------------------------------------------


def test_sliding_windows_need_a_budget_that_covers_the_overlap() -> None:
    with pytest.raises(
        ValueError, match=r"user_budget must be at least 7 for sliding windows '7d,1d' .*, got 6\.5"
    ):
        rounds_settings(window="7d,1d", user_budget=6.5)
    with pytest.raises(ValueError, match="got None"):
        rounds_settings(window="7d,1d")
    assert rounds_settings(window="7d,1d", user_budget=7).horizon == 7
    assert (
        rounds_settings(epsilon=0.1, user_budget=0.3).horizon == 3
    )  # 0.3 / 0.1 is 2.9999999999999996
    assert rounds_settings().horizon is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lower": 10}, "lower must be below upper"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"level": 1.0}, "level must lie"),
        ({"mode": "best"}, "mode must be"),
        ({"estimator": "median"}, "estimator must be one of"),
        ({"users": 0}, "users must be at least 1"),
        ({"between_users": -1.0}, "between_users must be at least 0"),
        ({"allowed_lateness": float("nan")}, "allowed_lateness must be"),
        ({"user_budget": 0.5}, "user_budget must be at least epsilon 1"),
        ({"name": "a/b"}, "name must"),
    ],
)
def test_settings_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rounds_settings(**changes)


def test_the_id_names_window_and_protocol_and_not_what_concerns_the_host() -> None:
    window = Window(0, DAY * MICROS)
    base = settings_round_id(rounds_settings(), window)
    assert (
        settings_round_id(rounds_settings(user_budget=9.0, allowed_lateness=60.0), window) == base
    )
    others = [
        {"epsilon": 2.0},
        {"upper": 11},
        {"users": 5},
        {"level": 0.9},
        {"options": {"reach": 0.5}},
        {"name": "b"},
    ]
    assert (
        len({settings_round_id(rounds_settings(**other), window) for other in others} | {base})
        == len(others) + 1
    )
    assert settings_round_id(rounds_settings(), Window(DAY * MICROS, 2 * DAY * MICROS)) != base


def test_the_estimator_is_designed_once_for_about_so_many_users() -> None:
    here = rounds_settings(between_users=1.0)
    assert here.estimator_for(4043) is here.estimator_for(4011)
    assert here.estimator_for(4043).describe()["users"] == 4000
    assert here.estimator_for(4043).between_users == 0.2  # type: ignore[attr-defined]  # in half widths
    assert rounds_settings(users=4043).estimator_for(1).describe()["users"] == 4043
    assert [here.design_users(n) for n in (0, 1, 99, 101, 12_345)] == [1, 1, 99, 100, 12_000]


def test_every_shape_of_a_report_has_its_own_noise() -> None:
    from meanstream.operators.noise.keyed import NoiseIds

    here = rounds_settings()
    this = WindowRound(here, Window(0, DAY * MICROS), users=50)
    ids = NoiseIds(keyed_owner_words(["ann"]), np.zeros(1, np.int64), np.zeros(1, np.uint64))

    def bits(noise: Any) -> bytes:
        return noise.bits(ids).tobytes()  # type: ignore[no-any-return]

    base = bits(this.stage_noise(SECRET, 0, {}))
    assert bits(this.stage_noise(SECRET, 0, {})) == base
    others = [
        this.stage_noise(SECRET, 1, {}),
        this.stage_noise(SECRET, 0, {"center": 0.1}),
        this.stage_noise(b"another secret of sixteen bytes", 0, {}),
        replace(this, users=500).stage_noise(SECRET, 0, {}),
        replace(this, window=Window(DAY * MICROS, 2 * DAY * MICROS)).stage_noise(SECRET, 0, {}),
        replace(this, settings=rounds_settings(epsilon=2.0)).stage_noise(SECRET, 0, {}),
        settings_round_noise(SECRET, here, this.id),
    ]
    assert len({bits(noise) for noise in others} | {base}) == len(others) + 1


# -- a round -------------------------------------------------------------------------------------------------


def run(
    this: WindowRound, sums: UserSums, names: list[str], batches: int
) -> tuple[Estimate, list[bytes]]:
    """Run a round in memory, the users in so many batches."""
    words = keyed_owner_words(names)
    stage_of = this.stage_of(words)
    public: Any = {}
    lines: list[bytes] = []
    for stage in this.stages:
        mine = np.flatnonzero(stage_of == stage)
        rows = []
        for part in np.array_split(mine, batches):
            reports = this.reports(
                SECRET, stage, public, sums.take(part).summaries(words[part], this.settings.grid)
            )
            lines += report_event_lines(this, stage, [names[i] for i in part], reports).lines
            rows.append(this.tally(stage, public, reports)[0])
        public = this.decode(stage, public, sum(rows[1:], rows[0]))
    return public, lines


def world(n: int = 300) -> tuple[WindowRound, UserSums, list[str]]:
    here = rounds_settings()
    rng = np.random.default_rng(2)
    user = rng.integers(0, n, 10 * n)
    sums = summarize(user, rng.normal(6, 1, 10 * n), rng.uniform(0, DAY, 10 * n), here.grid)
    return (
        WindowRound(here, Window(0, DAY * MICROS), users=len(sums)),
        sums,
        [f"u{i}" for i in range(len(sums))],
    )


def test_reports_do_not_depend_on_batches_and_are_the_same_again() -> None:
    this, sums, names = world()
    one, two = run(this, sums, names, 1), run(this, sums, names, 7)
    assert one[0].value == two[0].value
    assert one[1] == two[1] == run(this, sums, names, 1)[1]
    assert len(one[1]) == len(names)


def test_another_sample_is_another_report() -> None:
    """Known bad: noise that is not keyed by the input would show the difference of two inputs."""
    this, sums, names = world()
    words = keyed_owner_words(names)
    public: Any = {}
    more = UserSums(**{**sums.columns(), "total": sums.total + 1})
    grid = this.settings.grid
    noise = [this.versions(SECRET, 0, public, s.summaries(words, grid)) for s in (sums, more, sums)]
    assert np.array_equal(noise[0], noise[2])
    assert not np.any(noise[0] == noise[1])


def test_reports_that_no_user_can_have_made_are_not_counted() -> None:
    this, *_ = world()
    tally, refused = this.tally(0, {}, np.array([[1], [7], [-1]]))
    assert (tally.n, refused) == (2, 1)


def test_public_results_survive_json() -> None:
    value = {
        "a": np.array([0.1, 1 / 3]),
        "b": np.float64(0.1),
        "c": (1, 2),
        "d": {"e": np.int64(3)},
    }
    assert canonical_plain(value) == {"a": [0.1, 1 / 3], "b": 0.1, "c": [1, 2], "d": {"e": 3}}
    assert canonical_plain(json.loads(json.dumps(canonical_plain(value)))) == canonical_plain(value)
    with pytest.raises(TypeError, match="public data must be plain, got object"):
        canonical_plain({"a": object()})


def test_an_answer_is_written_in_the_unit_of_the_value() -> None:
    this, sums, names = world()
    estimate, _ = run(this, sums, names, 1)
    event = json.loads(estimate_event_line(this, estimate, len(names)).lines[0])
    assert event["value"] == pytest.approx(5 + 5 * float(estimate.value))
    assert event["interval"][0] <= 6.0 <= event["interval"][1]
    assert event["stderr"] == pytest.approx(5 * float(estimate.stderr))
    assert (event["users"], event["privacy_unit"], event["end"]) == (
        len(names),
        "user",
        "1970-01-02T00:00:00Z",
    )
