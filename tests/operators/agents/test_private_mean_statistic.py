"""The private mean as a river statistic: what it releases and when, and that it works wherever
river puts it.

Noise tolerances are 6 standard deviations of the stated noise: false alarm 2e-9 per comparison.
Identities of streams, which are drawn at random, decide what noise each has: here they are the same
ones each time.
"""

import copy
import datetime as dt
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from river import compose, feature_extraction, linear_model, stats, utils

from meanstream.operators.agents.running_mean import PrivateMean
from meanstream.operators.forecast.simulated_noise import SimulationNoise
from meanstream.operators.noise.keyed import KeyedNoise

SECRET = b"0d409462e4304f9f66770dc046be10c9"
NOISE = KeyedNoise(SECRET, deployment="test", purpose="private mean")
SETTINGS: dict[str, Any] = {
    "lower": 0.0,
    "upper": 10.0,
    "epsilon": 1.0,
    "delta": 1e-6,
    "noise": NOISE,
}


@pytest.fixture(autouse=True)
def _same_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_bytes", np.random.default_rng(1).bytes)


def make(**changes: Any) -> PrivateMean:
    return PrivateMean(**{**SETTINGS, **changes})


def feed(mean: Any, values: Any) -> Any:
    for value in values:
        mean.update(float(value))
    return mean


def values(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 10, n)


def close(mean: Any, truth: float) -> bool:
    error = abs(mean.get() - truth)
    return bool(error < 6 * mean.noise_stddev + 1e-5)


def test_nothing_is_shown_before_the_first_release_and_then_only_on_schedule() -> None:
    mean = make(schedule="geometric:10,1.5")
    shown = []
    for x in values(60):
        mean.update(x)
        shown.append((mean.get(), mean.n))
    assert [n for _, n in shown] == [0] * 9 + [10] * 5 + [15] * 8 + [23] * 11 + [34] * 17 + [
        51
    ] * 10
    assert all(math.isnan(value) for value, _ in shown[:9])
    assert len({value for value, _ in shown[9:]}) == 5
    assert mean.releases_left == 40 - 5


@pytest.mark.parametrize("schedule", ["geometric:10,1.25", 100])
def test_every_release_is_the_mean_of_the_prefix_plus_the_stated_noise(schedule: str | int) -> None:
    data = np.append(values(3000), [-1e300, 1e300])
    mean = make(schedule=schedule)
    for t, x in enumerate(data, start=1):
        mean.update(x)
        if mean.n == t:
            assert close(mean, float(np.clip(data[:t], 0, 10).mean()))
    assert mean.n > 2000


def test_the_stated_noise_is_the_noise() -> None:
    """Variance of 2000 first and 2000 third releases within 6 standard errors: false alarm 4e-9."""
    prototype = make(noise=SimulationNoise(seed=2), schedule=1, horizon=4)
    errors = []
    for _ in range(2000):
        mean = copy.deepcopy(prototype)
        mean.update(5.0)
        first = (mean.get() - 5.0) / mean.noise_stddev
        feed(mean, [5.0, 5.0])
        errors.append((first, (mean.get() - 5.0) / mean.noise_stddev))
    standardized = np.array(errors)
    assert np.abs(standardized.mean(axis=0)).max() < 6 / math.sqrt(2000)
    assert np.abs(standardized.var(axis=0) - 1).max() < 6 * math.sqrt(2 / 2000)


def test_the_horizon_ends_with_one_warning_and_the_last_release_stays() -> None:
    mean = feed(make(schedule=5, horizon=3), values(19))
    last = mean.get(), mean.n
    assert mean.n == 15
    assert mean.releases_left == 0
    with pytest.warns(RuntimeWarning, match="all 3 releases of its horizon"):
        mean.update(1.0)
    feed(mean, values(100))  # a second warning would be an error here
    assert (mean.get(), mean.n) == last


def test_a_bad_sample_is_refused_unseen_and_changes_nothing() -> None:
    mean = feed(make(), values(9))
    before = mean.snapshot()
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="value must be finite"):
            mean.update(bad)
    assert mean.snapshot() == before


@pytest.mark.parametrize("cut", [0, 7, 10, 23, 99])
def test_a_replay_from_a_snapshot_releases_the_same_integers(cut: int) -> None:
    data = values(100)
    original = feed(make(schedule="geometric:3,1.3", removals=True), data[:cut])
    plain = json.loads(json.dumps(original.snapshot()))
    restored = PrivateMean.restore(
        plain, noise=KeyedNoise(SECRET, deployment="test", purpose="private mean")
    )
    for x in data[cut:]:
        original.update(x)
        restored.update(x)
        assert original.snapshot() == restored.snapshot()
    assert original.get() == restored.get()


def test_another_input_after_the_snapshot_meets_independent_noise() -> None:
    start = feed(make(schedule=10), values(9)).snapshot()
    released = []
    for x in (1.0, 2.0):
        mean = PrivateMean.restore(start, noise=NOISE)
        mean.update(x)
        released.append(mean.snapshot()["released_total"])
    exact_difference = 2**20 / 16  # one unit of value on the grid of resolution 2**-16
    assert abs(released[1] - released[0]) != exact_difference


def test_a_snapshot_of_another_version_or_key_is_refused() -> None:
    plain = make().snapshot()
    with pytest.raises(ValueError, match="snapshot version must be 1 or 2, got 3"):
        PrivateMean.restore({**plain, "version": 3}, noise=NOISE)
    other = KeyedNoise(
        b"5a045ad1250fc2174cff61aaee98f009", deployment="test", purpose="private mean"
    )
    with pytest.raises(ValueError, match="noise must have the key of the snapshot"):
        PrivateMean.restore(plain, noise=other)


def test_an_old_snapshot_still_loads() -> None:
    """Its key is a phrase, of before keys were judged: whoever began with one says so, and goes
    on."""
    key = b"a secret for the tests only"
    noise = KeyedNoise.of_judged_key(key, deployment="test", purpose="private mean")
    mean = feed(PrivateMean.restore(OLD_SNAPSHOT, noise=noise), [5.0] * 5)
    assert mean.snapshot()["released_total"] == OLD_SNAPSHOT_NEXT_RELEASE


OLD_SNAPSHOT: dict[str, Any] = {
    "version": 1,
    "key": 16804998124274267233,
    "lower": 0.0,
    "upper": 10.0,
    "epsilon": 1.0,
    "delta": 1e-06,
    "schedule": 5,
    "horizon": 8,
    "removals": False,
    "count": 7,
    "total": 1835008,
    "updates": 7,
    "index": 1,
    "released_count": 5,
    "released_total": -2427461,
    "warned": False,
    "owner": "7c4770cef83bc2fdeb7c371afa91c605",
    "counter": {"buffers": [-3410500.768703521, -3410500.768703521]},
}
OLD_SNAPSHOT_NEXT_RELEASE = 4273055


def test_clones_and_copies_of_an_empty_instance_have_identities_of_their_own() -> None:
    mean = make(schedule=1, removals=True)
    family = [
        mean,
        mean.clone(),
        mean.clone(),
        copy.deepcopy(mean),
        mean.clone(include_attributes=True),
    ]
    assert all(relative._get_params() == mean._get_params() for relative in family)
    assert len({relative.snapshot()["owner"] for relative in family}) == len(family)
    assert len({feed(relative, [3.0]).get() for relative in family}) == len(family)
    assert mean.clone().n == 0


def test_an_instance_with_samples_cannot_be_copied_into_a_second_release() -> None:
    mean = feed(make(), [3.0])
    with pytest.raises(
        TypeError, match="cannot be copied: the copy would release them a second time"
    ):
        copy.deepcopy(mean)
    with pytest.raises(
        TypeError, match="cannot be copied: the copy would release them a second time"
    ):
        mean.clone(include_attributes=True)


def test_the_secret_is_in_no_representation() -> None:
    mean = make()
    pipeline: Any = compose.Pipeline(feature_extraction.Agg(on="x", by="g", how=mean))
    shown = [
        repr(mean),
        str(mean),
        str(mean._get_params()),
        repr(pipeline),
        str(vars(mean)),
        str(mean.snapshot()),
    ]
    assert all(SECRET.decode() not in text and str(SECRET) not in text for text in shown)
    assert repr(mean) == "PrivateMean: nan"


def test_rolling_releases_the_mean_of_the_window() -> None:
    rolling: Any = utils.Rolling(
        PrivateMean, window_size=500, schedule=100, horizon=50, removals=True, **SETTINGS
    )
    data = np.concatenate([values(2000) / 10, 9 + values(2000) / 10])
    for t, x in enumerate(data, start=1):
        rolling.update(float(x))
        if t % 100 == 0:
            window = data[max(0, t - 500) : t]
            assert rolling.n == len(window)
            assert close(rolling, float(window.mean()))
    assert rolling.get() > 8.5


def test_time_rolling_releases_the_mean_of_the_period() -> None:
    settings = {**SETTINGS, "schedule": 50, "removals": True}
    rolling: Any = utils.TimeRolling(PrivateMean, period=dt.timedelta(hours=400), **settings)
    data = np.concatenate([values(1000) / 10, 9 + values(1000) / 10])
    for t, x in enumerate(data):
        rolling.update(float(x), t=dt.datetime(2024, 1, 1) + dt.timedelta(hours=t))
    # TimeRolling adds before it removes: the one sample that expires now is still in the release.
    assert rolling.n == 401
    assert close(rolling, float(data[-401:].mean()))


def test_a_window_without_the_wider_noise_is_refused() -> None:
    rolling: Any = utils.Rolling(PrivateMean, window_size=3, **SETTINGS)
    with pytest.raises(ValueError, match="removals must be True where samples are removed"):
        feed(rolling, [1.0] * 4)
    with pytest.raises(ValueError, match="added before it is removed"):
        make(removals=True).revert(1.0)


def rows(n: int) -> Iterator[dict[str, Any]]:
    for i, x in enumerate(values(n)):
        yield {
            "place": "even" if i % 2 == 0 else "odd",
            "spend": float(x) / 2 + (5 if i % 2 else 0),
        }


@pytest.mark.parametrize("windowed", [False, True])
def test_agg_keeps_one_private_mean_per_group(windowed: bool) -> None:
    how: Any = make(schedule=100)
    if windowed:
        settings = {**SETTINGS, "schedule": 100, "removals": True}
        how = utils.TimeRolling(PrivateMean, period=dt.timedelta(hours=2000), **settings)
    agg: Any = feature_extraction.Agg(on="spend", by="place", how=how)
    data = list(rows(4000))
    assert math.isnan(agg.transform_one(data[0])["spend_private_mean_by_place"])
    for hour, row in enumerate(data):
        time = {"t": dt.datetime(2024, 1, 1) + dt.timedelta(hours=hour)} if windowed else {}
        agg.learn_one(row, **time)
    for place in ("even", "odd"):
        group = agg._groups[(place,)]
        truth = np.mean([row["spend"] for row in data if row["place"] == place][-group.n :])
        assert agg.transform_one({"place": place})["spend_private_mean_by_place"] == group.get()
        assert close(group, float(truth))


def test_groups_with_equal_data_release_different_noise() -> None:
    agg: Any = feature_extraction.Agg(on="spend", by="place", how=make(schedule=1))
    for place in "abcde":
        agg.learn_one({"place": place, "spend": 4.0})
    assert (
        len(
            {
                agg.transform_one({"place": place})["spend_private_mean_by_place"]
                for place in "abcde"
            }
        )
        == 5
    )


def test_target_agg() -> None:
    agg: Any = feature_extraction.TargetAgg(by="place", how=make())
    data = list(rows(4000))
    for row in data:
        agg.learn_one({"place": row["place"]}, row["spend"])
    for place in ("even", "odd"):
        group = agg._groups[(place,)]
        truth = np.mean([row["spend"] for row in data if row["place"] == place][: group.n])
        assert agg.transform_one({"place": place}) == {"y_private_mean_by_place": group.get()}
        assert close(group, float(truth))


def test_link_after_a_shift_is_the_private_mean_of_the_past() -> None:
    link: Any = stats.Shift(1) | make(schedule=1000)
    data = values(1001)
    feed(link, data[:1000])
    assert math.isnan(link.get())
    link.update(float(data[1000]))
    assert close(link.right, float(data[:1000].mean()))
    assert link.name == "private_mean_of_shift_1"


def known_only(x: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in x.items() if not math.isnan(value)}


def test_a_pipeline_learns_from_the_private_mean() -> None:
    """Spending is predicted from the private mean of the place alone: the error falls to that of
    knowing the place."""
    model: Any = compose.Pipeline(
        feature_extraction.TargetAgg(by="place", how=make(schedule=100)),
        compose.FuncTransformer(known_only),
        linear_model.LinearRegression(intercept_lr=0.0),
    )
    errors = []
    for row in rows(6000):
        x, y = {"place": row["place"]}, row["spend"]
        errors.append((model.predict_one(x) - y) ** 2)
        model.learn_one(x, y)
    assert np.mean(errors[-1000:]) < 5.0  # variance within a place 2.1, of everything 8.3
    assert np.mean(errors[:100]) > 20.0
    fresh = model.clone()
    assert fresh.predict_one({"place": "even"}) == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lower": 10.0}, "lower must be below upper"),
        ({"epsilon": 0.0}, r"epsilon must be positive and finite, got 0\.0"),
        ({"delta": 1.0}, r"delta must lie strictly between 0 and 1, got 1\.0"),
        ({"delta": 1e-18}, r"delta must exceed 40 \* 2\*\*-64"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"schedule": 0}, "schedule must be at least 1 update"),
        (
            {"schedule": "every:1d"},
            "schedule must be of counts or a number of updates, got 'every:1d'",
        ),
        ({"schedule": "weekly"}, "schedule must be"),
    ],
)
def test_bad_parameters_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


OPTIMAL: dict[str, Any] = {"counter": "optimal", "horizon": 20}


@pytest.mark.parametrize("removals", [False, True])
def test_the_optimal_counter_releases_the_prefix_plus_its_noise_and_resumes(removals: bool) -> None:
    """The noise is that of the stated variance; a snapshot goes on with the same releases."""
    data = values(500)
    whole = feed(make(**OPTIMAL, removals=removals), data)
    assert close(whole, data[: whole.n].mean())
    cut = make(**OPTIMAL, removals=removals)
    cut._stream.owner[:] = whole._stream.owner
    feed(cut, data[:123])
    plain = json.loads(json.dumps(cut.snapshot()))
    assert plain["mechanism"] == "optimal"
    resumed = feed(PrivateMean.restore(plain, noise=NOISE), data[123:])
    assert (resumed.get(), resumed.n) == (whole.get(), whole.n)
    with pytest.raises(ValueError, match="noise must have the key of the snapshot"):
        PrivateMean.restore({k: v for k, v in plain.items() if k != "mechanism"}, noise=NOISE)


def test_the_optimal_counter_has_less_noise_at_the_end() -> None:
    """For 20 releases after 10, 15, ..., 15,000 samples: the geometric mean over releases of what a
    mean errs by."""
    stddev: dict[str, list[float]] = {"optimal": [], "toeplitz": []}
    for name, found in stddev.items():
        mean = make(counter=name, horizon=20)
        for x in values(2000):
            before = mean.n
            mean.update(x)
            if mean.n != before:
                found.append(mean.noise_stddev)
    assert np.exp(np.mean(np.log(np.array(stddev["optimal"]) / stddev["toeplitz"]))) < 0.97


def test_counters_that_do_not_serve_one_stream_are_refused() -> None:
    with pytest.raises(ValueError, match="counter must be one of toeplitz, optimal, got 'pm1'"):
        make(counter="pm1")
    with pytest.raises(
        ValueError, match="horizon must be at most 128 for the optimal counter, got 129"
    ):
        make(counter="optimal", horizon=129)


@pytest.mark.parametrize(
    ("memory", "schedule"),
    [("half-life:500", "preferred:10"), ("half-life:500", 100), ("window:1000", 50)],
)
def test_a_memory_follows_a_mean_that_moves_for_ever(memory: str, schedule: str | int) -> None:
    """After ten half-lives or windows the old mean is gone: what is left of it is below the
    tolerance; 300 releases."""
    mean = feed(make(memory=memory, schedule=schedule), np.full(8000, 2.0))
    assert abs(mean.get() - 2.0) < 6 * mean.noise_stddev + 1e-5
    feed(mean, np.full(30_000, 7.0))
    assert abs(mean.get() - 7.0) < 6 * mean.noise_stddev + 1e-5
    assert mean.releases_left is None
    assert mean._stream.index > 300


def test_the_effective_number_of_samples_and_the_stated_noise() -> None:
    """120 instances of a constant stream: mean squared error over stated variance within 5 standard
    errors of 1."""
    ratios = []
    for seed in range(120):
        mean = feed(
            make(memory="half-life:80", schedule="preferred:10", noise=SimulationNoise(seed)),
            np.full(600, 5.0),
        )
        ratios.append(((mean.get() - 5.0) / mean.noise_stddev) ** 2)
    assert abs(np.mean(ratios) - 1.0) < 5 * math.sqrt(2 / 120)
    weight = 0.5 ** (np.arange(60)[::-1] / 8) * 10  # of each ten samples
    assert mean.n == pytest.approx(weight.sum() ** 2 / (weight**2 / 10).sum(), rel=0.02)


@pytest.mark.parametrize(
    ("memory", "schedule"), [("half-life:50", "preferred:10"), ("window:100", 20)]
)
@pytest.mark.parametrize("cut", [0, 9, 10, 137, 400])
def test_a_mean_that_forgets_goes_on_from_its_snapshot(
    memory: str, schedule: str | int, cut: int
) -> None:
    data, whole = values(700), make(memory=memory, schedule=schedule)
    feed(whole, data[:cut])
    again = PrivateMean.restore(json.loads(json.dumps(whole.snapshot())), noise=NOISE)
    feed(whole, data[cut:])
    feed(again, data[cut:])
    assert (again.get(), again.n, again.noise_stddev) == (whole.get(), whole.n, whole.noise_stddev)
    assert again.memory == memory
    other = make(memory=memory, schedule=schedule).clone()
    assert (other.memory, other.n, other._key_digest()) == (memory, 0, whole._key_digest())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"memory": "half-life:3d"},
            "memory must be forever, half-life:UPDATES or window:UPDATES, got 'half-life:3d'",
        ),
        ({"memory": "half-life:0"}, "memory must be forever, half-life:LENGTH"),
        ({"memory": "half-life:-5"}, "memory must be forever"),
        ({"memory": "half-life:"}, "memory must be forever"),
        ({"memory": "ever"}, "memory must be forever"),
        (
            {"memory": "window:100"},
            "schedule must be a number of updates with memory window:UPDATES",
        ),
        (
            {"memory": "window:100", "schedule": 30},
            "memory must be 1 to 128 times the schedule of 30 updates",
        ),
        (
            {"memory": "window:1000", "schedule": 1},
            "memory must be 1 to 128 times the schedule of 1 updates",
        ),
        (
            {"memory": "half-life:9", "horizon": 40},
            "horizon must be left out with memory half-life:9",
        ),
        (
            {"memory": "half-life:9", "removals": True},
            "removals must be False with memory half-life:9",
        ),
        (
            {"memory": "half-life:9", "counter": "optimal"},
            "counter must be one of decayed, got 'optimal'",
        ),
        ({"memory": "half-life:999999999999999"}, "memory must forget something"),
        (
            {"memory": "half-life:1", "schedule": 100},
            "memory must not forget all within 100 updates",
        ),
    ],
)
def test_refused_memories(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_a_mean_that_keeps_everything_has_the_key_that_it_had() -> None:
    assert make(memory="forever")._settings() == make()._settings()
    assert "memory" not in make()._settings()
