"""The whole engine against a neighboring stream: everything that anybody can read, and the known-bad twins.

One run is thousands of trials: agents draw independent noise, so each agent is one trial of the same experiment. The
two runs of an audit have secrets of their own and streams in which one sample of every agent is replaced. All false
alarms are at most 1e-6 per audit, by the confidence of the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.audit.black_box import Outputs
from meanstream.operators.audit.counters import counter_columns as strategy_columns
from meanstream.operators.audit.sampler import implemented_tail
from meanstream.operators.collaboration.registry import COLLABORATIONS
from meanstream.operators.counters.registry import COUNTERS
from meanstream.operators.noise.calibration import calibration_delta
from meanstream.operators.noise.keyed import GaussianNoise, LaplaceNoise
from meanstream.operators.records import Floats, Words
from meanstream.streaming.engine.options import EngineOptions
from tests.privacy.engine_audit import (
    DELTA,
    EPSILON,
    RELEASES,
    SETTINGS,
    THRESHOLDS,
    N,
    Observer,
    _no_waiting_for_the_disk,  # noqa: F401 - a fixture
    audited_epsilon,
    most_powerful,
    run,
    stream,
)
from tests.privacy.test_engine_audit_twins import HalfSensitivity, _fields, _folder, versionless

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("counter", "noise", "power"),
    [("toeplitz", "gaussian", 0.5), ("pm2", "gaussian", 0.5), ("pm1", "laplace", 0.59)],
)
def test_all_releases_of_an_engine_run_keep_epsilon(counter: str, noise: str, power: float, tmp_path: Path) -> None:
    """The bound is at most epsilon, and close enough to it that a wrong engine could not hide (see the twins).

    With Laplace noise the bound is .755 on average with a standard error of .031 over runs (400 of 6000 agents each,
    drawn from the noise itself): .59 is five of them below, a false alarm in a million.
    """
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


def without_votes(**named: Any) -> AgentsSettings:
    """All of the budget is for means."""
    return AgentsSettings(name="test", spread_share=0, **named)


CALIBRATIONS = [
    without_votes(lower=-30, upper=120, epsilon=1, delta=1e-6, counter="toeplitz"),
    without_votes(lower=-30, upper=120, epsilon=4, delta=1e-9, counter="pm2", horizon=100),
    without_votes(lower=0, upper=0.3, epsilon=0.1, delta=1e-5, counter="pm1", horizon=7),
    without_votes(lower=-1, upper=1, epsilon=1, delta=1e-6, counter="pm1", mode="paper", calibration="classical"),
    without_votes(lower=-1, upper=1, epsilon=1, delta=1e-6, counter="pm2", mode="paper", calibration="classical"),
    without_votes(lower=0, upper=10, epsilon=2, delta=1e-6, counter="pm2", noise="laplace", horizon=31),
    without_votes(lower=0, upper=10, epsilon=0.5, delta=1e-6, counter="pm1", noise="laplace"),
    without_votes(lower=0, upper=1, epsilon=3, delta=1e-6, counter="optimal", horizon=60),
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
    return calibration_delta(fresh.stddev / moved, settings.epsilon) + settings.horizon * fresh.tail_delta


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
