"""Non-interference of the library: frames, river and federated sites, with every value changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from river.feature_extraction import TargetAgg

import meanstream
from meanstream import federated, river
from meanstream.federated import (
    FederatedSite,
    SiteSettings,
    better_mean,
    read_site_releases,
)
from meanstream.river import AgentMean, CollaborativeMean, PrivateMean, environment_noise
from tests.noninterference import surfaces
from tests.noninterference.forced_releases import forced_releases
from tests.noninterference.rounds_worlds import charged_as
from tests.pipelines.command_line import SECRET

FRAMES: dict[str, dict[str, Any]] = {
    "plain": {},
    "persons": {"person": "person", "per_person": 2},
    "covariates": {"covariates": ["region"]},
    "shares": {"quantiles": [0.1, 0.5], "exceeds": [10.0]},
    "anytime": {"coverage": "anytime"},
    "levels": {"by": ["region", "group"], "nested": True},
}


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)


def frame(other: bool) -> pa.Table:
    rng = np.random.default_rng(4)
    group = rng.integers(0, 20, 800)
    person = rng.integers(0, 200, 800)
    value = rng.uniform(-50, 200, 800) if other else rng.normal(10, 3, 800)
    columns = {
        "group": [f"g{i}" for i in group],
        "region": ["north" if i % 2 else "south" for i in group],
        "person": [f"p{i}" for i in person],
        "time": 1.7e9 + np.sort(rng.integers(0, 10**6, 800)).astype(float) if not other else None,
        "value": value,
    }
    if other:  # the same times, whatever was drawn before them
        columns["time"] = frame(False)["time"]
    return pa.table(columns)


def shown(result: Any) -> list[str]:
    """All that a result shows."""
    parts = [str(result), repr(result.to_frame().to_pylist()), repr(result.notes)]
    parts += [repr(result.covariates), result._repr_html_(), *decided(result)]
    if result.levels is None:
        return parts

    above, every = result.means_of("region"), result.consistent()
    tables = [repr(found.to_frame().to_pylist()) for found in (above, every)]
    return [*parts, *tables, str(above), str(every), repr(above.ranks()), result.explain()]


def decided(result: Any) -> list[str]:
    """All that a result decides of its groups."""
    first, second = ("g1", "g2") if result.levels is None else (("north", "g1"), ("south", "g2"))
    made = [result.difference(first, second), result.compare(first), result.ranks(), result.top(3)]
    return [*map(repr, made), *map(str, made)]


@pytest.mark.parametrize("stored", [False, True], ids=["once", "store"])
@pytest.mark.parametrize("kind", FRAMES)
def test_no_value_of_a_frame_is_in_its_means_but_by_releases(
    kind: str, stored: bool, tmp_path: Path
) -> None:
    worlds = []
    with forced_releases():
        for other in (False, True):
            where: dict[str, Any] = {"secret": SECRET, "name": "frames"}
            if stored:
                where = {"store": tmp_path / f"{other}.db", "name": "frames"}
            asked = {"by": "group", "value": "value", "time": "time", "lower": 0, "upper": 30}
            table = frame(other)
            parts = [table.slice(0, 400), table] if stored else [table]
            seen: list[str] = []
            for part in parts:
                found = meanstream.private_means(
                    part, epsilon=1, delta=1e-6, **where, **{**asked, **FRAMES[kind]}
                )
                seen += shown(found)
            worlds.append([text.replace(f"{other}.db", "s.db") for text in seen])
    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("central", [False, True])
@pytest.mark.parametrize("value", [29.0, -1e300, None])
def test_nothing_that_a_user_has_is_in_the_windows_but_by_reports(
    central: bool, value: float | None
) -> None:
    worlds = []
    with charged_as({}):
        for changed in (1.0, value):
            table = pa.table(
                {
                    "user": [f"u{i}" for i in range(40)],
                    "value": [changed if i == 7 else float(i % 9) for i in range(40)],
                    "time": np.arange(40.0),
                }
            )
            found = meanstream.private_windows(
                table, by="user", value="value", time="time", lower=0, upper=30, epsilon=1,
                window="1d", nulls="drop", central=central, secret=SECRET, name="frames",
            )  # fmt: skip
            worlds.append([str(found), repr(found.to_frame().to_pylist()), repr(found.notes)])
    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("statistic", [False, True], ids=["estimator", "statistic"])
def test_no_value_of_river_is_in_its_predictions_but_by_releases(statistic: bool) -> None:
    worlds = []
    with forced_releases():
        for other in (False, True):
            model = CollaborativeMean(lower=0, upper=30, epsilon=2, delta=1e-6, name="river")
            means = TargetAgg(by="group", how=AgentMean(model))
            for row in frame(other).select(["group", "value"]).to_pylist():
                if statistic:
                    means.learn_one({"group": row["group"]}, row["value"])
                else:
                    model.learn_one({"agent": row["group"]}, row["value"])
            names = [f"g{i}" for i in range(21)]
            predicted = (
                [means.transform_one({"group": name}) for name in names]
                if statistic
                else [model.predict_one({"agent": name}) for name in names]
            )
            worlds.append([*map(repr, predicted), repr(model)])
    assert len(set(worlds[0])) > 1
    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("later", [29.0, -1e300])
def test_no_later_value_of_a_stream_is_in_its_mean(later: float) -> None:
    """The default releases after 10 samples, and again after many more."""
    noise = environment_noise("river")
    begun = PrivateMean(0.0, 30.0, epsilon=1.0, delta=1e-6, noise=noise)
    for sample in range(10):
        begun.update(float(sample % 7))
    worlds = []
    for value in (4.0, later):
        mean = PrivateMean.restore(begun.snapshot(), noise=noise)
        for _ in range(3):
            mean.update(value)
        worlds.append([mean.get(), mean.n, mean.noise_stddev, repr(mean), str(mean)])
    assert worlds[0][1] == 10
    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("later", [8000.0, 8000.03, 1e9, -1e9, float("nan")])
def test_a_site_that_is_asked_again_shows_nothing_of_its_records(
    later: float, tmp_path: Path
) -> None:
    seen = []
    settings = SiteSettings(epsilon=0.1, delta=1e-6, releases=4, name="clinic")
    for number, total in enumerate((8000.0, later)):
        with FederatedSite(tmp_path / f"{number}.db", settings) as site:
            asked = {"count": 1000, "lower": 0, "upper": 30}
            first = site.release("stay", "r1", total=8000.0, **asked)
            again = site.release("stay", "r1", total=total, **asked)
            seen.append((first.plain(), again.plain(), site.remaining))
    assert seen[0] == seen[1]


def test_no_record_of_a_site_is_in_the_answer_of_another(tmp_path: Path) -> None:
    """Sites release sums of counts alone, so that every record of the others may differ."""
    settings = SiteSettings(epsilon=1, delta=1e-6, releases=2)
    counts = list(range(40, 60))
    exact = FederatedSite._possible
    worlds = []

    def forced(units: float, largest: int, slack: int, name: str) -> int:
        return exact(largest / 2, largest, slack, name)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(FederatedSite, "_possible", staticmethod(forced))
        for world, value in enumerate((3.0, 28.0)):
            wire = []
            for number, count in enumerate(counts):
                own = replace(settings, name=f"s{number}")
                with FederatedSite(tmp_path / f"{world}-{number}.db", own) as site:
                    made = site.release(
                        "stay", "r1", total=value * count, count=count, lower=0, upper=30
                    )
                    wire.append(made.plain())
            asked = {"statistic": "stay", "round_name": "r1", "lower": 0, "upper": 30}
            releases, rejected = read_site_releases(wire, **asked)
            answer = better_mean(releases, mean=12.0, count=40, stddev=5)
            worlds.append([wire, releases, rejected, answer])
    assert len(worlds[0][1]) == len(counts)
    assert worlds[0] == worlds[1]


def test_what_the_library_offers_is_listed() -> None:
    """Whatever is exported is compared in a row, or takes no data."""
    names = {*meanstream.__all__, *river.__all__, *federated.__all__}
    assert names == {*surfaces.LIBRARY, *surfaces.LIBRARY_WITHOUT_DATA}
    assert not {*surfaces.LIBRARY} & surfaces.LIBRARY_WITHOUT_DATA
    assert {*surfaces.LIBRARY.values()} <= {*surfaces.PROOFS}
