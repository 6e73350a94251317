"""Engines that are known to be wrong, each caught by the audit that the right one passes."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.audit.black_box import Event, Outputs
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import GaussianNoise, KeyedNoise, LaplaceNoise
from meanstream.operators.records import Ints, Words
from meanstream.streaming.crash import CrashHook, CrashPoint, Moment
from meanstream.streaming.store.store import StoreError
from tests.privacy.engine_audit import (
    EPSILON,
    SETTINGS,
    THRESHOLDS,
    Noise,
    Observer,
    _no_waiting_for_the_disk,  # noqa: F401 - a fixture
    audited_epsilon,
    most_powerful,
    run,
    stream,
)

pytestmark = pytest.mark.slow


class VersionlessNoise(KeyedNoise):
    """Known bad: the same noise for a release id whatever its input."""

    def version_of(self, count: Ints, total: Ints) -> Words:
        return np.zeros(len(count), np.uint64)


def versionless(secret: bytes) -> KeyedNoise:
    return VersionlessNoise.of_judged_key(secret, deployment="audit", purpose="agents")


class HalfSensitivity(AgentsSettings):
    """Known bad: noise as if a sample could move a sum by half of the width only."""

    @cached_property
    def fresh(self) -> GaussianNoise | LaplaceNoise:
        good = super().fresh
        return GaussianNoise(good.stddev / 2) if isinstance(good, GaussianNoise) else LaplaceNoise(good.scale / 2)


class UnclippedGrid(FixedPoint):
    """Known bad: values are taken as they come."""

    def encode(self, values: Any) -> Ints:
        return np.rint((np.asarray(values) - self.lower) / self.resolution).astype(np.int64)


class Unclipped(AgentsSettings):
    """Known bad: encodes without clipping."""

    @cached_property
    def grid(self) -> FixedPoint:
        return UnclippedGrid(self.lower, self.upper)


def test_noise_for_half_the_sensitivity_is_caught(tmp_path: Path) -> None:
    bad = HalfSensitivity(**_fields(SETTINGS))

    def experiment(value: float, secret: str) -> Outputs:
        return run(_folder(tmp_path, secret), stream(value), secret=secret, settings=bad).totals()

    assert audited_epsilon(experiment, most_powerful(SETTINGS, THRESHOLDS)) > 1.3 * EPSILON


@pytest.mark.parametrize("clips", [True, False])
def test_values_that_are_not_clipped_are_caught(clips: bool, tmp_path: Path) -> None:
    """The unknown sample is 0 or, far outside the declared bounds, 4."""
    settings = SETTINGS if clips else Unclipped(**_fields(SETTINGS))

    def experiment(value: float, secret: str) -> Outputs:
        return run(_folder(tmp_path, secret), stream(value), secret=secret, settings=settings).totals()

    bound = audited_epsilon(experiment, most_powerful(SETTINGS, THRESHOLDS), values=(0.0, 4.0))
    assert 0.5 < bound <= EPSILON if clips else bound > 1.3 * EPSILON


class Died(Exception):  # noqa: N818 - it stands for a death
    """The process is gone."""


LIVES = 4


@pytest.mark.parametrize("kind", ["store kept", "store lost, same secret", "store lost, fresh noise"])
def test_fresh_noise_on_retry_is_caught(kind: str, tmp_path: Path) -> None:
    """Killed after each delivery and started again; an observer averages whatever was delivered for a release id.

    With its store the engine delivers the stored release again. Without it, the noise is the same because it is a
    function of the secret and the input. Only noise that is drawn anew lets the average tell more than one release.
    """
    settings = replace(SETTINGS, schedule="geometric:1,2", horizon=1)
    span = settings.grid.span

    def experiment(value: float, secret: str) -> Outputs:
        observer = Observer()
        for life in range(LIVES):
            folder = _folder(tmp_path, secret if kind == "store kept" else f"{secret} {life}")
            key = f"{secret} life {life}" if kind == "store lost, fresh noise" else secret
            crash = die_on_delivery(observer)
            with pytest.raises(Died):
                run(folder, [value], secret=key, settings=settings, observer=observer, crash=crash)
        return observer.totals()

    def average_above(threshold: float) -> Event:
        return lambda outputs: np.asarray(outputs.mean(axis=1) / span > threshold)

    events = [average_above(t) for t in THRESHOLDS.tolist()]
    bound = audited_epsilon(experiment, events)
    assert bound > 1.3 * EPSILON if kind == "store lost, fresh noise" else 0.5 < bound <= EPSILON


def die_on_delivery(observer: Observer) -> CrashHook:
    """Die once this life has written a release."""
    before = len(observer.releases.seen)

    def hook(point: CrashPoint, moment: Moment) -> None:
        if (point, moment) == (CrashPoint.WRITE_RELEASES, Moment.AFTER) and len(observer.releases.seen) > before:
            raise Died

    return hook


def test_a_store_refuses_the_fresh_noise_of_another_secret(tmp_path: Path) -> None:
    observer = Observer()
    with pytest.raises(Died):
        run(tmp_path, stream(0.0), secret="the first secret", observer=observer, crash=die_on_delivery(observer))  # noqa: S106
    with pytest.raises(StoreError, match="secret must be the one"):
        run(tmp_path, stream(0.0), secret="another secret")  # noqa: S106


@pytest.mark.parametrize("noise", [None, versionless])
def test_noise_reused_for_a_different_input_is_caught(noise: Noise | None, tmp_path: Path) -> None:
    """A stream is released, its store lost, and released again after a sample was corrected from 0.5 to 0 or 1.

    The sample that nobody knows is in the second stream only, so the second release pays for it, once.
    """
    settings = replace(SETTINGS, schedule="geometric:2,2", horizon=1)

    def experiment(value: float, secret: str) -> Outputs:
        observer = Observer()
        for life, second in enumerate((0.5, value)):
            folder = _folder(tmp_path, f"{secret} {life}")
            run(folder, [0.5, second], secret=secret, settings=settings, observer=observer, noise=noise)
        return observer.totals()

    exact = settings.grid.span // 2

    def difference_shows(outputs: Outputs) -> Any:
        return outputs[:, 1] - outputs[:, 0] == exact

    def second_above(threshold: float) -> Event:
        return lambda outputs: np.asarray(outputs[:, 1] / settings.grid.span - 0.5 > threshold)

    bound = audited_epsilon(experiment, [difference_shows, *(second_above(t) for t in THRESHOLDS.tolist())])
    assert bound > 5 * EPSILON if noise is versionless else 0.5 < bound <= EPSILON


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir(exist_ok=True)
    return folder


def _fields(settings: AgentsSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}
