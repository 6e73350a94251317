"""The whole engine against a neighboring stream: everything that anybody can read, and the known-bad twins.

One run is thousands of trials: agents draw independent noise, so each agent is one trial of the same experiment. The
two runs of an audit have secrets of their own and streams in which one sample of every agent is replaced. All false
alarms are at most 1e-6 per audit, by the confidence of the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dp_accounting
import msgspec
import numpy as np
import pytest

from operators.agents import AgentsSettings
from operators.calibration import gaussian_delta
from operators.collaboration import COLLABORATIONS
from operators.counter import COUNTERS
from operators.fixed_point import FixedPoint
from operators.noise import GaussianNoise, KeyedNoise, LaplaceNoise
from operators.records import Floats, Ints, Words
from streaming.columns import Batch, Position, Rejects, SampleColumns
from streaming.crash import CrashHook, CrashPoint, Moment, no_crash
from streaming.deployment import open_deployment
from streaming.encode import EventLines
from streaming.engine import Engine
from streaming.options import EngineOptions
from streaming.sinks.group import Sinks
from streaming.sinks.sink import Trust
from streaming.store.store import StoreError
from streaming.testing import MemorySink, SettableClock
from tests.privacy.audit import Event, Outputs, audit_epsilon_lower_bound, implemented_tail
from tests.privacy.test_counter_sensitivity import columns as strategy_columns

EPSILON, DELTA = 1.0, 0.05  # a large delta makes the bound sharp: the optimal attack proves two thirds of epsilon
N = 6_000
RELEASES = 4
SETTINGS = AgentsSettings(lower=0, upper=1, epsilon=EPSILON, delta=DELTA, schedule="geometric:2,1.5", horizon=RELEASES)
SAMPLES = 7  # per agent: releases at 2, 3, 5 and 7


class Rounds:
    """A source in which every agent gives one sample per second; `values[k]` is everybody's k-th."""

    name = "rounds"
    bounded = True

    def __init__(self, values: list[float]) -> None:
        self._values = values
        self._names = [f"agent {i}" for i in range(N)]
        self._at = 0

    def next_batch(self, max_samples: int) -> Batch:
        took = self._values[self._at : self._at + 1]
        n = N * len(took)
        columns = SampleColumns(
            self._names,
            np.arange(n),
            np.full(n, took[0] if took else 0.0),
            np.full(n, float(self._at)),
            None,
            np.arange(n) + self._at * N + 1,
        )
        self._at += len(took)
        return Batch(columns, Rejects(), {"at": self._at}, exhausted=not took)

    def restore(self, position: Position) -> None:
        self._at = int(position["at"])

    def close(self) -> None:
        """Nothing is open."""


class Wiretap(MemorySink):
    """An observer keeps what was ever written, also what the engine took back."""

    def __init__(self, *, trust: Trust = Trust.PUBLIC) -> None:
        super().__init__(trust=trust)
        self.seen: list[bytes] = []

    def write(self, events: EventLines) -> None:
        super().write(events)
        self.seen += events.lines


@dataclass
class Observer:
    """Reads every public sink; knows neither store nor secret."""

    releases: Wiretap = field(default_factory=Wiretap)
    population: Wiretap = field(default_factory=Wiretap)
    dead_letters: Wiretap = field(default_factory=Wiretap)
    notices: Wiretap = field(default_factory=Wiretap)
    estimates: MemorySink = field(default_factory=lambda: MemorySink(trust=Trust.PRIVATE))
    """Private; no part of what an observer reads."""

    def events(self) -> list[dict[str, Any]]:
        decoder = msgspec.json.Decoder(dict[str, Any])
        return [decoder.decode(line) for line in self.releases.seen]

    def totals(self) -> Ints:
        """Noised totals, one row per agent and one column per delivery, in the order of delivery."""
        seen: list[list[int]] = [[] for _ in range(N)]
        for event in self.events():
            seen[int(event["agent"].removeprefix("agent "))].append(event["total"])
        return np.array(seen, dtype=np.int64)


Noise = Callable[[bytes], KeyedNoise]
ALONE = EngineOptions(refresh=None, collaboration="none")


def run(
    folder: Path,
    values: list[float],
    *,
    secret: str,
    settings: AgentsSettings = SETTINGS,
    observer: Observer | None = None,
    noise: Noise | None = None,
    crash: CrashHook = no_crash,
    options: EngineOptions = ALONE,
) -> Observer:
    """One life of a real engine on a real store; everything public goes to the observer."""
    observer = observer or Observer()
    secret = secret.ljust(16, ".")
    deployment = open_deployment(folder / "s.db", settings, environment={"MEANSTREAM_SECRET": secret})
    sinks = Sinks(
        releases=observer.releases,
        population=observer.population,
        dead_letters=observer.dead_letters,
        notices=observer.notices,
        estimates=observer.estimates,
    )
    try:
        Engine(
            source=Rounds(values),
            settings=settings,
            noise=deployment.noise if noise is None else noise(secret.encode()),
            store=deployment.store,
            sinks=sinks,
            options=options,
            clock=SettableClock(1e9),
            crash=crash,
        ).run()
    finally:
        deployment.store.close()
    return observer


def stream(value: float, *, at: int = 0) -> list[float]:
    """Everybody's samples: known ones, but for one that the adversary does not know."""
    values = [0.5, 0.25, 0.75, 0.5, 0.0, 1.0, 0.5]
    values[at] = value
    return values[:SAMPLES]


def most_powerful(settings: AgentsSettings, thresholds: Floats) -> list[Event]:
    """Threshold events on the best linear statistic of all releases, fixed by the mechanism and not by its outputs.

    With a sample of the first increment replaced all totals move by one span, so the weights are `Cov^-1 1`; they are
    scaled so that the statistic moves from 0 to 1 as the sample moves from the lower bound to the upper.
    """
    covariance = settings.mechanism.covariance(RELEASES)
    weights = np.linalg.solve(covariance, np.ones(RELEASES))
    weights /= weights.sum()
    known = np.cumsum(settings.grid.encode(np.array(stream(0.0))))[settings.times.times(RELEASES) - 1]  # type: ignore[union-attr]

    def statistic(outputs: Outputs) -> Floats:
        return np.asarray((outputs[:, :RELEASES] - known) @ weights / settings.grid.span, dtype=np.float64)

    def event(threshold: float) -> Event:
        return lambda outputs: statistic(outputs) > threshold

    return [event(t) for t in thresholds.tolist()]


THRESHOLDS = np.linspace(-2.5, 3.5, 9)


def audited_epsilon(
    experiment: Callable[[float, str], Outputs],
    events: list[Event],
    *,
    delta: float = DELTA,
    values: tuple[float, float] = (0.0, 1.0),
) -> float:
    """The one audit of this file: an experiment on two neighboring inputs, under a secret of its own each."""
    first, second = (experiment(value, f"secret number {i}") for i, value in enumerate(values))
    return audit_epsilon_lower_bound(first, second, events, delta=delta)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


class VersionlessNoise(KeyedNoise):
    """Known bad: the same noise for a release id whatever its input."""

    def version_of(self, count: Ints, total: Ints) -> Words:
        return np.zeros(len(count), np.uint64)


def versionless(secret: bytes) -> KeyedNoise:
    return VersionlessNoise(secret, deployment="audit", purpose="agents")


# -- the engine as it is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "noise", "power"),
    [("toeplitz", "gaussian", 0.5), ("pm2", "gaussian", 0.5), ("pm1", "laplace", 0.7)],
)
def test_all_releases_of_an_engine_run_keep_epsilon(counter: str, noise: str, power: float, tmp_path: Path) -> None:
    """The bound is at most epsilon, and close enough to it that a wrong engine could not hide (see the twins)."""
    settings = replace(SETTINGS, counter=counter, noise=noise)

    def experiment(value: float, secret: str) -> Outputs:
        return run(_folder(tmp_path, secret), stream(value), secret=secret, settings=settings).totals()

    delta = DELTA if noise == "gaussian" else 0.0  # Laplace noise spends no delta
    assert power < audited_epsilon(experiment, most_powerful(settings, THRESHOLDS), delta=delta) <= EPSILON


def test_nothing_else_that_is_public_depends_on_values(tmp_path: Path) -> None:
    """Two neighboring runs differ in `total` and in `mean`, which is a function of it, and in nothing else."""
    seen = [run(_folder(tmp_path, s), stream(v), secret=f"secret {s}") for v, s in ((0.0, "low"), (1.0, "high"))]
    events = [observer.events() for observer in seen]
    assert len(events[0]) == N * RELEASES
    for event in (*events[0], *events[1]):
        total, count = np.array([event.pop("total")]), np.array([event["n"]])
        assert event.pop("mean") == SETTINGS.grid.mean(total, count)[0]
    assert events[0] == events[1]
    assert seen[0].notices.seen == seen[1].notices.seen
    assert len(seen[0].notices.seen) == N  # every agent came to its horizon
    assert seen[0].dead_letters.seen == seen[1].dead_letters.seen


@dataclass(frozen=True)
class ShiftedNoise(GaussianNoise):
    """Noise of one counter `pm1` whose first draw hides that the first sample is 1 and not 0."""

    shifts: list[float] = field(default_factory=list)

    def sample(self, bits: Words) -> Floats:
        return super().sample(bits) - (self.shifts.pop(0) if self.shifts else 0.0)


class Shifted(AgentsSettings):
    """The same releases from another stream: all that the totals of the two streams differ by is taken off."""

    @cached_property
    def fresh(self) -> GaussianNoise | LaplaceNoise:
        good = super().fresh
        assert isinstance(good, GaussianNoise)
        return ShiftedNoise(good.stddev, shifts=[float(self.grid.span)])


@pytest.mark.parametrize("collaboration", sorted(COLLABORATIONS))
def test_all_that_is_public_is_a_function_of_the_totals(collaboration: str, tmp_path: Path) -> None:
    """Two streams that differ, and noise that makes their totals equal: every public byte is equal.

    So the fitted population, and whatever else is published, is post-processing of audited totals.
    """
    pm1 = replace(SETTINGS, counter="pm1")
    seen, answers = [], []
    for value, settings in ((0.0, pm1), (1.0, Shifted(**_fields(pm1)))):
        sinks = Observer()
        secret = "one secret, and noise of the release id only"  # noqa: S105 - of a test
        folder = _folder(tmp_path, f"{value}")
        run(
            folder,
            stream(value),
            secret=secret,
            settings=settings,
            observer=sinks,
            noise=versionless,
            options=EngineOptions(refresh=1.0, collaboration=collaboration),
        )
        seen.append([sink.seen for sink in (sinks.releases, sinks.population, sinks.dead_letters, sinks.notices)])
        answers.append(sinks.estimates.lines)
    assert seen[0] == seen[1]
    assert len(seen[0][1]) >= RELEASES
    assert answers[0] != answers[1]  # the private side does depend on the sample


# -- what the engine really calibrates ------------------------------------------------------------------------------

CALIBRATIONS = [
    AgentsSettings(lower=-30, upper=120, epsilon=1, delta=1e-6),
    AgentsSettings(lower=-30, upper=120, epsilon=4, delta=1e-9, counter="pm2", horizon=100),
    AgentsSettings(lower=0, upper=0.3, epsilon=0.1, delta=1e-5, counter="pm1", horizon=7),
    AgentsSettings(lower=-1, upper=1, epsilon=1, delta=1e-6, counter="pm1", mode="paper", calibration="classical"),
    AgentsSettings(lower=-1, upper=1, epsilon=1, delta=1e-6, counter="pm2", mode="paper", calibration="classical"),
    AgentsSettings(lower=0, upper=10, epsilon=2, delta=1e-6, counter="pm2", noise="laplace", horizon=31),
    AgentsSettings(lower=0, upper=10, epsilon=0.5, delta=1e-6, counter="pm1", noise="laplace"),
    SETTINGS,
]


def spent_delta(settings: AgentsSettings) -> float:
    """Exact delta at epsilon of all releases together, tails included; from the step function, not from the formula."""
    columns = strategy_columns(settings.mechanism, settings.horizon)
    fresh = settings.fresh
    if isinstance(fresh, LaplaceNoise):
        spent = np.abs(columns).sum(0).max() * settings.grid.span / fresh.scale
        return 0.0 if spent <= settings.epsilon * (1 + 1e-12) else math.inf
    moved = np.sqrt((columns**2).sum(0)).max() * settings.grid.span
    return gaussian_delta(fresh.stddev / moved, settings.epsilon) + settings.horizon * fresh.tail_delta


@pytest.mark.parametrize("settings", CALIBRATIONS)
def test_the_calibration_in_use_keeps_delta_exactly(settings: AgentsSettings) -> None:
    assert set(COUNTERS) == {s.counter for s in CALIBRATIONS}
    assert spent_delta(settings) <= settings.delta * (1 + 1e-9)
    if settings.mode == "tuned":  # the papers' calibrations are so wide that half of them may do
        assert spent_delta(settings) > 0.99 * settings.delta or settings.noise == "laplace"
        assert spent_delta(HalfSensitivity(**_fields(settings))) > 3 * settings.delta


def test_dp_accounting_agrees_on_the_epsilon_of_a_run() -> None:
    for settings in CALIBRATIONS:
        if isinstance(settings.fresh, GaussianNoise):
            columns = strategy_columns(settings.mechanism, settings.horizon)
            moved = np.sqrt((columns**2).sum(0)).max() * settings.grid.span
            spent = dp_accounting.get_epsilon_gaussian(settings.fresh.stddev / moved, settings.delta)
            assert spent <= settings.epsilon * (1 + 1e-6)


@pytest.mark.parametrize("settings", [s for s in CALIBRATIONS if s.counter == "pm1" and s.noise == "gaussian"])
def test_one_release_as_the_code_computes_it_keeps_delta_at_the_real_sensitivity(settings: AgentsSettings) -> None:
    """Hockey-stick divergence of the published integer, by counting all 2**128 inputs of the sampler, at several sets.

    The worst set of a shift by s is {y >= t} with t = s/2 + epsilon stddev^2/s (monotone likelihood ratio).
    """

    def hockey_stick(chosen: AgentsSettings) -> float:
        noise, shift = chosen.fresh, chosen.grid.span
        assert isinstance(noise, GaussianNoise)
        worst = shift / 2 + chosen.epsilon * noise.stddev**2 / shift
        sets = np.rint(worst + np.linspace(-0.2, 0.2, 5) * shift).astype(np.int64)
        counts = implemented_tail(noise, np.concatenate([sets - shift, sets]))
        tails = [count / 2**128 for count in counts]
        slack = math.exp(chosen.epsilon + noise.epsilon_slack)
        return max(near - slack * far for near, far in zip(tails[:5], tails[5:], strict=True))

    cut = settings.horizon * settings.fresh.tail_delta
    assert hockey_stick(settings) + cut <= settings.delta * (1 + 1e-9)
    if settings.mode == "tuned":
        assert hockey_stick(settings) + cut > 0.99 * settings.delta  # the sets are the worst ones
        assert hockey_stick(HalfSensitivity(**_fields(settings))) > 3 * settings.delta


# -- the known-bad twins --------------------------------------------------------------------------------------------


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
