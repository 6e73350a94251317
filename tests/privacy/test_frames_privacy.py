"""Frames that grow: what calls say is a function of charged releases, and all calls together cost
what one budget is.

The audit plants one row at a bound in each of `CANARIES` groups, by a coin, and adds up what all
calls release of it with the best weights. Whoever does so tells the two bounds apart by at most
`mu` standard deviations; the estimate of that distance has a standard error below
`2 / sqrt(CANARIES) * sqrt(1 + mu**2 / 8)`. Five of them: an alarm by chance in fewer than 1 of a
million runs. Three calls with a budget each are the known-bad twin.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import meanstream
from meanstream.operators.records import Floats
from meanstream.pipelines.frames import stored as frames_stored
from meanstream.pipelines.frames.frame_releases import FrameReleases
from meanstream.pipelines.frames.rows_at_hand import Target
from meanstream.pipelines.frames.values import means_of_column as frames_means
from meanstream.streaming.engine.engine_options import EngineOptions
from tests.pipelines.frames.test_growing_frames import monthly, months, public
from tests.pipelines.frames.test_private_means import SECRET

CANARIES, CALLS, EPSILON = 800, 3, 6.0
COINS = np.random.default_rng(6).integers(0, 2, CANARIES).astype(bool)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)


def everything(found: Any) -> list[Any]:
    """Give all that a result shows."""
    return [public(found), found.to_arrow(), found.notes, repr(found), found._repr_html_()]


@pytest.mark.parametrize("collaboration", ["none", "learned_prior"])
def test_values_in_no_release_reach_nobody(collaboration: str, tmp_path: Path) -> None:
    """The budget is spent; the rows of the next month are read, and no byte depends on their
    values."""
    shown = []
    for raised in (0.0, 70.0):
        store = tmp_path / f"{raised}.db"
        monthly(months(1, 1), store, releases=1, collaboration=collaboration)
        shown.append(
            everything(
                monthly(months(1, 2, raised=raised), store, releases=1, collaboration=collaboration)
            )
        )
    assert shown[0] == shown[1]


def test_released_values_do_reach_the_result_of_their_own_group_alone(tmp_path: Path) -> None:
    """The control: with a release left, the group of the changed row has another release, others
    the same bytes."""
    shown = []
    for raised in (0.0, 70.0):
        store = tmp_path / f"{raised}.db"
        monthly(months(1, 1), store)
        shown.append(public(monthly(months(1, 2, raised=raised), store)))
    assert {a[0] for a, b in zip(*shown, strict=True) if a != b} == {"W0"}
    changed = [(a, b) for a, b in zip(*shown, strict=True) if a != b]
    assert [(a[1], a[2] == b[2]) for a, b in changed] == [(2, True)]
    grid = 70.0 / (150.0 / (1 << 16))
    assert all(
        abs(abs(a[3] - b[3]) - grid) > 1 for a, b in changed
    )  # with other noise, not the same one


@pytest.mark.parametrize("collaboration", ["none", "learned_prior", "pooled_prior", "james_stein"])
def test_answers_are_made_of_releases_alone(
    collaboration: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows whose values are no numbers any more, under the same releases: the same table."""
    kept: list[tuple[FrameReleases, EngineOptions, Any]] = []
    answered = frames_means._answered

    def keep(
        released: FrameReleases, options: EngineOptions, target: Target, *, nested: bool
    ) -> Any:
        answer = answered(released, options, target, nested=nested)
        kept.append((released, options, answer[0]))
        return answer

    monkeypatch.setattr(frames_means, "_answered", keep)
    found = monthly(months(1, 1), tmp_path / "s.db", collaboration=collaboration, quantiles=[0.5])
    ((released, options, answer),) = kept
    released.samples.value[:] = np.nan
    assert answered(released, options, "population", nested=False)[0].equals(answer)
    assert answer.select(found.to_arrow().column_names).equals(found.to_arrow())


def calls(folder: Path, *, one_budget: bool = True) -> tuple[Any, Floats]:
    """Call with a canary in each group, then with a neutral row more and another; give the sums
    that were released."""
    every, found = [], None
    for call in range(1, CALLS + 1):
        value = np.full((call, CANARIES), 5.0)
        value[0] = np.where(COINS, 10.0, 0.0)
        rows = pa.table(
            {
                "who": np.tile(np.arange(CANARIES), call),
                "value": value.ravel(),
                "when": np.repeat(1_700_000_000 + np.arange(call), CANARIES),
            }
        )
        place = folder / ("s.db" if one_budget else f"{call}.db")
        found = meanstream.private_means(
            rows, by="who", value="value", time="when", lower=0, upper=10, epsilon=EPSILON, delta=1e-6,
            store=place, name="canaries" if one_budget else f"canaries {call}", collaboration="none",
            spread_share=0.0, noise="gaussian", releases=CALLS if one_budget else 1,
        )  # fmt: skip
        last = found.releases.slice(found.releases.num_rows - CANARIES)
        order = np.argsort(np.array(last["agent"].to_pylist(), np.int64))
        every.append(np.asarray(last["total"])[order])
    assert found is not None
    return found.settings, np.stack(every, axis=1).astype(np.float64)


def distance(sums: Floats) -> float:
    """Tell the two bounds apart as well as can be: by how many standard deviations."""
    centered = np.where(
        COINS[:, None], sums - sums[COINS].mean(axis=0), sums - sums[~COINS].mean(axis=0)
    )
    weights = np.linalg.solve(np.cov(centered.T), np.ones(sums.shape[1]))
    score = sums @ weights
    spread = (centered @ weights).std()
    return float((score[COINS].mean() - score[~COINS].mean()) / spread)


TOLERANCE = 5 * 2 / math.sqrt(CANARIES)


def test_all_calls_together_cost_one_budget(tmp_path: Path) -> None:
    settings, sums = calls(tmp_path)
    error = TOLERANCE * math.sqrt(1 + settings.mu**2 / 8)
    assert settings.mu - error < distance(sums) < settings.mu + error


def test_a_budget_for_each_call_is_caught(tmp_path: Path) -> None:
    """Known bad: a store for each month protects a row of the first one by sqrt(3) times mu."""
    settings, sums = calls(tmp_path, one_budget=False)
    assert distance(sums) > settings.mu + TOLERANCE * math.sqrt(1 + settings.mu**2 / 8)


def test_rows_that_are_read_twice_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known bad: a call that takes all rows for new ones counts a row of the first month in each
    increment."""
    monkeypatch.setattr(
        frames_stored, "new_rows", lambda _, digests, about: np.arange(len(digests))
    )
    monkeypatch.setattr(frames_stored._FrameSource, "restore", lambda *_: None)
    settings, sums = calls(tmp_path)
    assert distance(sums) > settings.mu + TOLERANCE * math.sqrt(1 + settings.mu**2 / 8)
