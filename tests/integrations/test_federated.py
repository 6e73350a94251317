"""A site of a federation: one charge and one noise per round whatever is retried, and a better
mean."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.federated import (
    FederatedSite,
    SiteRelease,
    SiteSettings,
    better_mean,
    read_site_releases,
)
from meanstream.integrations.federated_site import release_noise_variance, rounding_of_sum
from meanstream.operators.noise.calibration import calibration_delta
from meanstream.operators.noise.distributions import StaircaseNoise
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.streaming.store.database import StoreError
from tests.pipelines.command_line import SECRET, meanstream
from tests.streaming.support.stored_rows import stored_rows

ROOT = Path(__file__).parents[2]
SETTINGS = SiteSettings(epsilon=1, delta=1e-6, releases=3, name="clinic")
GIVEN: dict[str, Any] = {"total": 4000.0, "count": 500, "lower": 0, "upper": 30}
FRAMEWORKS = (
    Path(os.environ.get("MEANSTREAM_FEDERATED", ROOT / ".venv-federated")) / "bin" / "python"
)
"""An environment of its own: Flower needs older packages than ours."""


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)


def released(
    store: Path, *rounds: str, settings: SiteSettings = SETTINGS, **changes: Any
) -> list[SiteRelease]:
    with FederatedSite(store, settings) as site:
        return [site.release("stay", one, **GIVEN | changes) for one in rounds]


def test_a_retry_is_the_same_release_and_one_charge_also_after_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "site.db"
    first, again = released(store, "1", "1")
    (later,) = released(store, "1")
    assert first == again == later
    with FederatedSite(store, SETTINGS) as site:
        assert site.remaining == 2
        assert site.release("stay", "2", **GIVEN).mean != first.mean
    checked = meanstream("ledger", "verify", "--store", str(store), "--json").json
    assert (checked["rows"], checked["agents"]) == (2, 2)


@pytest.mark.parametrize(
    "change", [{"total": 4000.1}, {"total": 1e9}, {"total": math.nan}, {"count": 501}]
)
def test_a_released_round_gives_its_release_again_whatever_its_records_are_by_then(
    change: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asks twice learns nothing of the records; the site's own log says that they changed."""
    store = tmp_path / "site.db"
    first = released(store, "1")
    assert released(store, "1") == first
    assert not caplog.records
    assert released(store, "1", **change) == first
    assert "have changed" in caplog.records[-1].message
    with FederatedSite(store, SETTINGS) as site:
        assert site.remaining == 2


def test_other_bounds_of_a_released_round_are_refused_and_cost_nothing(tmp_path: Path) -> None:
    store = tmp_path / "site.db"
    first = released(store, "1")
    with pytest.raises(ValueError, match=r"round must be a new one, got '1', .* other bounds"):
        released(store, "1", upper=31)
    assert released(store, "1") == first
    with FederatedSite(store, SETTINGS) as site:
        assert site.remaining == 2


def test_the_budget_ends(tmp_path: Path) -> None:
    released(tmp_path / "site.db", "1", "2", "3")
    with pytest.raises(ValueError, match="releases must be at most 3, which are spent"):
        released(tmp_path / "site.db", "4")
    assert released(tmp_path / "site.db", "2")[0].round == "2"


def test_a_charge_is_committed_before_the_release_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FederatedSite(tmp_path / "site.db", SETTINGS) as site:
        monkeypatch.setattr(site, "_charge", lambda *_: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            site.release("stay", "1", **GIVEN)
        assert site.remaining == 3
        monkeypatch.undo()
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    (made,) = released(tmp_path / "site.db", "1")
    assert [json.loads(row[-2]) for row in stored_rows(tmp_path / "site.db")] == [made.plain()]


def test_a_ledger_keeps_its_settings_its_secret_and_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "site.db"
    released(store, "1")
    for other in ({"epsilon": 2}, {"releases": 4}, {"name": "other"}):
        with pytest.raises(StoreError):
            released(
                store,
                "1",
                settings=SiteSettings(**{"epsilon": 1, "delta": 1e-6, "releases": 3} | other),
            )
    assert "must be one of" in meanstream("budget", "--store", str(store)).message
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET[::-1])
    with pytest.raises(StoreError):
        released(store, "1")


def test_settings_sites_and_rounds_have_noise_of_their_own(tmp_path: Path) -> None:
    def mean(number: int, **changes: Any) -> float:
        settings = SiteSettings(
            **{"epsilon": 1, "delta": 1e-6, "releases": 3, "name": "clinic"} | changes
        )
        return released(tmp_path / f"{number}.db", "1", settings=settings)[0].mean

    changes: list[dict[str, Any]] = [{}, {"epsilon": 2}, {"name": "b"}, {"releases": 4}]
    means = {mean(number, **change) for number, change in enumerate(changes)}
    assert len(means) == 4
    assert mean(9) in means


@pytest.mark.parametrize("releases", [1, 3])
def test_few_releases_are_pure_and_share_epsilon(releases: int) -> None:
    noise = SiteSettings(epsilon=1, releases=releases).noise(2**20)
    assert isinstance(noise, StaircaseNoise)
    assert (noise.span, noise.epsilon) == (2**20, 1 / releases)
    assert noise == SiteSettings(epsilon=1, delta=1e-6, releases=releases).noise(2**20)


@pytest.mark.parametrize("count", [1, 500, 100_000])
@pytest.mark.parametrize("releases", [12, 40])
def test_all_releases_together_keep_the_promise_exactly(releases: int, count: int) -> None:
    """R Gaussian releases are one, of sensitivity times root R: its delta at epsilon is at most the
    promised one."""
    settings, grid = SiteSettings(epsilon=1, delta=1e-6, releases=releases), FixedPoint(0, 30)
    sensitivity = grid.span + rounding_of_sum(grid, count)
    noise = math.sqrt(release_noise_variance(settings, count, 0, 30)) * count / grid.resolution
    spent = calibration_delta(noise / (sensitivity * math.sqrt(releases)), 1.0)
    assert 0.99e-6 < spent <= 1e-6
    for twin in (
        noise / math.sqrt(2),
        noise * 0.99,
    ):  # half the sensitivity's square, one percent too little
        assert calibration_delta(twin / (sensitivity * math.sqrt(releases)), 1.0) > 1e-6


def test_the_noise_has_the_variance_that_is_declared(tmp_path: Path) -> None:
    """400 rounds: the sum of squares is chi-squared; five standard errors, false alarm 1e-6."""
    settings = SiteSettings(epsilon=1, delta=1e-6, releases=400, name="clinic")
    found = released(tmp_path / "site.db", *map(str, range(400)), settings=settings)
    scores = np.array([(one.mean - 8.0) / math.sqrt(one.noise_variance) for one in found])
    assert abs(np.square(scores).mean() - 1) < 5 * math.sqrt(2 / 400)
    assert abs(scores.mean()) < 5 / math.sqrt(400)
    halved = scores / 2
    assert abs(np.square(halved).mean() - 1) > 5 * math.sqrt(2 / 400)


FAR = 1e6
"""Bounds far from 0, where sums of floats lose digits."""


def sums_of_neighbors(seed: int, count: int) -> Iterator[tuple[float, float]]:
    draw = np.random.default_rng(seed)
    values = draw.uniform(FAR, FAR + 30, count)
    values[0] = FAR
    other = values.copy()
    other[0] = FAR + 30
    for order in (slice(None), slice(None, None, -1)):
        yield float(values[order].sum()), float(np.cumsum(other)[-1])


def test_the_sensitivity_covers_sums_of_floats_in_any_order() -> None:
    grid = FixedPoint(FAR, FAR + 30)
    farthest = 0
    for seed, count in itertools.product(range(20), (3, 1000, 200_000)):
        for one, other in sums_of_neighbors(seed, count):
            change = abs(round(one / grid.resolution) - round(other / grid.resolution))
            assert change <= grid.span + rounding_of_sum(grid, count)
            farthest = max(farthest, change)
    assert farthest > grid.span  # the span alone would not do


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"count": 0}, "count must lie in"),
        ({"count": 10**9}, "count must lie in"),
        ({"lower": 30}, "lower"),
    ],
)
def test_what_cannot_be_is_refused_by_public_numbers(
    changes: Any, rule: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rule):
        released(tmp_path / "site.db", "1", **changes)


@pytest.mark.parametrize(
    ("total", "nearest"),
    [(15001.0, 15000.0), (math.inf, 15000.0), (-1.0, 0.0), (-math.inf, 0.0), (math.nan, 7500.0)],
)
def test_a_sum_that_cannot_be_is_no_refusal_and_counts_as_the_nearest(
    total: float, nearest: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beyond = released(tmp_path / "beyond.db", "1", total=total)
    assert "nearest" in caplog.records[-1].message
    assert str(total) not in caplog.text
    assert beyond == released(tmp_path / "nearest.db", "1", total=nearest)


def plain(**changes: Any) -> dict[str, Any]:
    one = {
        "site": "a",
        "statistic": "stay",
        "round": "1",
        "count": 50,
        "mean": 9.0,
        "noise_variance": 1.0,
    }
    return one | {"lower": 0.0, "upper": 30.0} | changes


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        (plain(mean=1e6), "impossible_mean"),
        (plain(mean=math.inf), "malformed"),
        (plain(noise_variance=0.0), "malformed"),
        (plain(noise_variance="x"), "malformed"),
        (plain(count=0), "malformed"),
        (plain(round="2"), "other_round"),
        (plain(upper=31.0), "other_bounds"),
        (plain(more=1), "malformed"),
        (plain(site="a/b"), "malformed"),
        ({}, "malformed"),
        (None, "malformed"),
        ([1], "malformed"),
    ],
)
def test_a_forged_release_is_counted_and_stops_no_one(forged: Any, reason: str) -> None:
    good = [plain(site="b"), plain(site="c")]
    found, rejected = read_site_releases(
        [good[0], forged, good[1]], statistic="stay", round_name="1", lower=0, upper=30
    )
    assert [one.site for one in found] == ["b", "c"]
    assert dict(rejected) == {reason: 1}


def test_a_release_that_declares_too_little_noise_is_left_out_where_settings_are_agreed_on() -> (
    None
):
    honest = release_noise_variance(SETTINGS, 50, 0, 30)
    wire = [plain(site="b", noise_variance=honest), plain(noise_variance=honest / 2)]
    given: dict[str, Any] = {"statistic": "stay", "round_name": "1", "lower": 0, "upper": 30}
    found, rejected = read_site_releases(wire, **given, settings=SETTINGS)
    assert ([one.site for one in found], dict(rejected)) == (["b"], {"too_precise": 1})
    assert len(read_site_releases(wire, **given)[0]) == 2


def test_together_is_better_than_alone_and_intervals_hold() -> None:
    """20 federations of 30 sites; coverage of 600 intervals: .95 less four standard errors (false
    alarm 3e-5)."""
    draw, noise = np.random.default_rng(11), SiteSettings(epsilon=1, delta=1e-6, releases=1)
    together = alone = 0.0
    inside = []
    for _ in range(20):
        truth, count = 8 + draw.standard_normal(30), draw.integers(10, 150, 30)
        own = [
            np.clip(mean + 5 * draw.standard_normal(n), 0, 30).mean()
            for mean, n in zip(truth, count, strict=True)
        ]
        variance = [release_noise_variance(noise, int(n), 0, 30) for n in count]
        wire = [
            plain(
                site=f"s{i}",
                count=int(count[i]),
                noise_variance=v,
                mean=own[i] + draw.standard_normal() * v**0.5,
            )
            for i, v in enumerate(variance)
        ]
        releases, _ = read_site_releases(wire, statistic="stay", round_name="1", lower=0, upper=30)
        for mean, raw, n in zip(truth, own, count, strict=True):
            found = better_mean(releases, mean=float(raw), count=int(n), stddev=5.0)
            together, alone = together + (found.value - mean) ** 2, alone + (raw - mean) ** 2
            inside.append(found.lower <= mean <= found.upper)
    assert together / alone < 0.85
    assert np.mean(inside) > 0.95 - 4 * math.sqrt(0.95 * 0.05 / len(inside))


def run_example(*words: str, folder: Path) -> str:
    if not FRAMEWORKS.exists():
        if os.environ.get("MEANSTREAM_SERVERS_REQUIRED"):
            pytest.fail(f"{FRAMEWORKS} is missing: make federated")
        pytest.skip(f"{FRAMEWORKS} is missing: make federated")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("MEANSTREAM_SECRET")
    with subprocess.Popen(
        [str(FRAMEWORKS), *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            out, err = running.communicate(timeout=150)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)

    assert running.returncode == 0, out[-2000:] + err[-3000:]
    return out


def run_flare(example: str, folder: Path) -> tuple[str, Path]:
    """Run the example; give what it says and its folder.

    FLARE's simulator stands still in one of twelve runs on a busy machine: a site's answer does not
    come. Three in a row by chance is once in 1,700.
    """
    for attempt in range(3):
        place = folder / str(attempt)
        place.mkdir()
        with suppress(subprocess.TimeoutExpired):
            return run_example(example, str(place), folder=place), place

    pytest.fail("FLARE's simulator stood still three times")


@pytest.mark.servers
def test_the_example_under_flower(tmp_path: Path) -> None:
    runner = ROOT / "tests" / "integrations" / "support" / "flower_threads.py"
    said = run_example(
        str(runner), str(ROOT / "docs" / "examples" / "federated_flower.py"), folder=tmp_path
    )
    first, second = [line for line in said.splitlines() if line][-2:]
    assert first == "40 releases, 0 rejected"
    assert float(second.split()[2]) < 0.9
    assert int(second.split(";")[1].split("%")[0]) >= 85


@pytest.mark.servers
def test_the_example_under_nvflare(tmp_path: Path) -> None:
    said, folder = run_flare(str(ROOT / "docs" / "examples" / "federated_nvflare.py"), tmp_path)
    lines = said.splitlines()
    assert "4 releases" in lines
    assert sum(line.startswith("site-") and "patients" in line for line in lines) == 4
    for number in range(1, 5):
        checked = meanstream(
            "ledger", "verify", "--store", str(folder / f"site-{number}.db"), "--json"
        ).json
        assert checked["rows"] == 1
    code = folder / "raw.py"
    code.write_text(RAW)
    assert (
        run_example(str(code), str(ROOT / "docs" / "examples"), str(folder), folder=folder)
        == "nothing raw\n"
    )


RAW = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from federated_nvflare import AGE, BOUNDS, BUDGET, ROUND, SITES, Ages, ages, np
from meanstream.integrations.nvflare_statistics import charged_site_releases, ledger_of_site, passed_statistics

folder = sys.argv[2]
for site in SITES:
    own = np.clip(ages(site), *BOUNDS)
    raw = {"mean": {"records": {AGE: round(own.mean(), 4)}}, "sum": {"records": {AGE: round(own.sum(), 4)}}}
    raw |= {"count": {"records": {AGE: len(own)}}, "max": {"records": {AGE: own.max()}}}
    charged = charged_site_releases(ledger_of_site(folder, site))
    left = passed_statistics(raw, charged)
    assert left == {"mean": {"records": {}}, "sum": {"records": {}}, "count": raw["count"], "max": {"records": {}}}
    again = Ages(folder, ROUND, **BUDGET, bounds={AGE: BOUNDS})
    again._site = site
    released = {"mean": {"records": {AGE: round(again.mean("records", AGE), 4)}}}
    assert passed_statistics(released, charged) == released
    shown = [str(round(own.mean(), 4)), str(round(own.sum(), 4))]
    files = [path for path in (Path(folder) / "flare").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if any(one.encode() in path.read_bytes() for one in shown)]
    assert [path for path in files if str(released["mean"]["records"][AGE]).encode() in path.read_bytes()]
print("nothing raw")
"""


def test_examples_are_short() -> None:
    for name in ("federated_flower.py", "federated_nvflare.py"):
        assert len((ROOT / "docs" / "examples" / name).read_text().splitlines()) < 95
