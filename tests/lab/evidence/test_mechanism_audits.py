"""The audit of all registries: what is right proves its claim to the last digits, and what is wrong
is named."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from meanstream.lab.evidence import counters_audit as counter_audits
from meanstream.lab.evidence.counters_audit import gaussian_sampler_epsilon
from meanstream.lab.evidence.mechanisms_audit import audit_channel, audit_counter, mechanism_audits
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.vote_of_spread import SpreadVote
from meanstream.operators.counters.base import State
from meanstream.operators.counters.pm1 import Pm1
from meanstream.operators.counters.registry import COUNTERS, FORGETTING
from meanstream.operators.counters.toeplitz import Toeplitz
from meanstream.operators.counters.two_level import TwoLevel
from meanstream.operators.estimators.central_mean import CentralMean
from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.operators.noise.calibration import calibrated_analytic_stddev
from meanstream.operators.noise.distributions import GaussianNoise, LaplaceNoise, StaircaseNoise
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.channels.registry import CHANNELS
from meanstream.operators.rounds.channels.window_channel import OneBitChannel
from meanstream.operators.rounds.votes.base import VotesBase
from meanstream.operators.rounds.votes.registry import VOTES
from meanstream.operators.rounds.votes.unary_votes import SymmetricVotes

NAMES = [*mechanism_audits(epsilon=1.0, delta=1e-6)]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "vote.subset"])
def test_every_mechanism_of_the_registries_proves_its_claim(name: str) -> None:
    row = mechanism_audits([name], epsilon=0.8, delta=1e-5)[name]()
    assert not row.violated
    least = (
        0.8999 if name == "central.central.mean" else 0.9999
    )  # nobody moves both of its sums as far as each goes
    assert least < row.ratio < 1.00001


def test_all_registries_are_in_the_table() -> None:
    assert {f"channel.{name}" for name in CHANNELS} | {f"vote.{name}" for name in VOTES} < {*NAMES}
    assert {f"counter.{name}.gaussian" for name in (*COUNTERS, *FORGETTING)} < {*NAMES}
    with pytest.raises(ValueError, match="name must be all"):
        mechanism_audits(["chan"], epsilon=1.0, delta=1e-6)


class Loud:
    """A channel of a kind that nobody has seen: one bit, flipped as if epsilon were twice as
    large."""

    name, draws, low, high, step = "loud", 1, -1, 1, 1.0

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self._bit = OneBitChannel(2 * epsilon)

    def randomize(self, x: npt.ArrayLike, words: RandomWords, first_draw: int = 0) -> Ints:
        return self._bit.randomize(x, words, first_draw)


class Quiet(Loud):
    """The same, and right."""

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self._bit = OneBitChannel(epsilon)


@pytest.mark.parametrize("build", [Quiet, Loud])
def test_a_new_channel_is_audited_without_a_line(
    build: Callable[[float], Loud], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHANNELS, "new", build)  # type: ignore[arg-type]
    row = mechanism_audits(["channel.new"], epsilon=1.0, delta=1e-6)["channel.new"]()
    assert row.violated is (build is Loud)
    assert row.proved > 1.9 if build is Loud else row.proved > 0.95
    assert row.method.startswith("one run")


@dataclass(frozen=True)
class NewCounter(Toeplitz):
    """A counter that is not in the registry."""

    name = "new"


@dataclass(frozen=True)
class LoudCounter(NewCounter):
    """Known bad: the column is longer than it says."""

    l2_sensitivity = 0.95  # type: ignore[assignment]


class NewVotes(VotesBase):
    """Votes of a kind that nobody has seen: those of `sue`."""

    def __init__(self, epsilon: float, bins: int, said: float | None = None) -> None:
        self._votes = SymmetricVotes(epsilon, bins)
        self.epsilon, self.bins = said or epsilon, bins

    def randomize(self, rows: npt.NDArray[Any], words: RandomWords, first_draw: int = 0) -> Ints:
        return self._votes.randomize(rows, words, first_draw)


class LoudVotes(NewVotes):
    """Known bad: bits flipped as if epsilon were twice as large."""

    def __init__(self, epsilon: float, bins: int) -> None:
        super().__init__(2 * epsilon, bins, epsilon)


class NewCurator(CentralMean):
    """An estimator that is not in the registry."""

    name = "new"


class LoudCurator(NewCurator):
    """Known bad: noise of half the scale."""

    name = "loud"

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.rounds = (replace(self.rounds[0], parts=(2 * self.epsilon, 0.0)),)


@pytest.mark.parametrize(
    ("registry", "name", "new", "is_bad"),
    [
        (COUNTERS, "counter.new.gaussian", NewCounter, False),
        (COUNTERS, "counter.new.gaussian", LoudCounter, True),
        (VOTES, "vote.new", NewVotes, False),
        (VOTES, "vote.new", LoudVotes, True),
        (ESTIMATORS, "central.new", f"{__name__}:NewCurator", False),
        (ESTIMATORS, "central.loud", f"{__name__}:LoudCurator", True),
    ],
)
def test_whatever_enters_a_registry_is_audited_without_a_line(
    registry: dict[str, Any], name: str, new: Any, is_bad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry, name.split(".")[1], new)
    row = mechanism_audits([name], epsilon=1.0, delta=1e-6)[name]()
    assert row.violated is is_bad
    assert row.proved > (1.4 if is_bad else 0.89)


def settings(**changes: object) -> AgentsSettings:
    return AgentsSettings(
        **{"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6, "spread_share": 0, **changes}
    )  # type: ignore[arg-type]


class ReusedDraws(Pm1):
    """Known bad: each second increment has the noise of the one before it."""

    def _step(self, state: State, rows: Ints | slice, release: Ints, fresh: Floats) -> Floats:
        return super()._step(state, rows, release, np.where(release % 2 == 0, 0.0, fresh))


class SamplesTwice(Pm1):
    """Known bad: a sample is in its increment and in the next."""

    def workload(self, n: int) -> Floats:
        return np.tri(n) + np.tri(n, k=-1)


class SilentBlocks(TwoLevel):
    """Known bad: the noise of blocks is left out."""

    def _step(self, state: State, rows: Ints | slice, release: Ints, fresh: Floats) -> Floats:
        ends = release % self.block == 0
        return super()._step(state, rows, release, np.where(ends, 0.0, fresh))


class CheapBlocks(TwoLevel):
    """Known bad: the whole of epsilon for increments, and once more for blocks."""

    @property
    def parts(self) -> int:
        return 1


@pytest.mark.parametrize("noise", ["laplace", "staircase"])
@pytest.mark.parametrize("twin", [ReusedDraws, SamplesTwice, SilentBlocks, CheapBlocks])
def test_twins_of_pure_counters_are_caught(noise: str, twin: type[Pm1 | TwoLevel]) -> None:
    made = settings(counter="pm1" if issubclass(twin, Pm1) else "two_level", noise=noise)
    assert not audit_counter("good", made).violated
    made.__dict__.pop("fresh")
    made.__dict__["mechanism"] = twin(40)
    row = audit_counter("bad", made)
    assert row.violated
    assert row.proved > 1.9


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "staircase"])
def test_noise_a_percent_too_narrow_is_a_violation(noise: str) -> None:
    made = settings(counter="pm2", noise=noise)
    fresh = made.fresh
    narrow = (
        GaussianNoise(0.99 * fresh.stddev)
        if isinstance(fresh, GaussianNoise)
        else StaircaseNoise(round(0.99 * fresh.span), fresh.epsilon)
        if isinstance(fresh, StaircaseNoise)
        else LaplaceNoise(0.99 * fresh.scale)
    )
    assert not audit_counter("good", made).violated
    made.__dict__["fresh"] = narrow
    row = audit_counter("bad", made)
    assert row.violated
    # A move beyond the span of a staircase costs a whole step more.
    assert row.proved == pytest.approx(2.0 if noise == "staircase" else 1.01, rel=2e-3)


def test_half_a_column_norm_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toeplitz, "l2_sensitivity", property(lambda self: 1.0))
    row = audit_counter("bad", settings(counter="toeplitz"))
    assert row.violated
    assert row.proved > 1.2


@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-3), (0.5, 1e-9), (4.0, 1e-5)])
def test_the_counted_gaussian_is_the_calibrated_one(epsilon: float, delta: float) -> None:
    shift = 2**14
    noise = GaussianNoise(shift * calibrated_analytic_stddev(epsilon, delta))
    assert gaussian_sampler_epsilon(noise, shift, delta) == pytest.approx(epsilon, rel=1e-4)
    assert gaussian_sampler_epsilon(GaussianNoise(1e6 * shift), shift, delta) < 1e-5


def test_a_channel_that_changes_between_its_steps_is_a_fault() -> None:
    class Jumping(OneBitChannel):
        def randomize(self, x: npt.ArrayLike, words: RandomWords, first_draw: int = 0) -> Ints:
            odd = (words(first_draw)[:, 0] >> np.uint64(33)) % np.uint64(2) == 1
            return np.where(odd, self.low, super().randomize(x, words, first_draw))

    row = audit_channel("jumping", Jumping(1.0))
    assert row.violated
    assert row.fault == "the report changes within an interval"
    assert math.isinf(row.proved)


def test_signed_tails_of_the_sampler_add_up() -> None:
    noise = GaussianNoise(10.0)
    least = np.array([-3, 0, 1, 4])
    found: Floats = counter_audits._chance_above(noise, least)
    below = counter_audits._chance_above(noise, 1 - least)  # P(noise <= least - 1), by symmetry
    assert np.allclose(found + below, 1.0, rtol=0, atol=1e-15)
    assert (np.diff(found) < 0).all()


def test_pairs_that_overlap_are_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known bad: a pair of samples is voted on with each release that follows."""
    audit = mechanism_audits(["agents.means_and_votes"], epsilon=1.0, delta=1e-6)[
        "agents.means_and_votes"
    ]
    cast = SpreadVote.cast_alone

    def again(self: SpreadVote, rows: dict[str, Ints], agent: Ints, *more: Any) -> None:
        pairs = rows["vote_pairs"][agent]
        cast(self, rows, agent, *more)
        rows["vote_pairs"][agent] = pairs

    monkeypatch.setattr(SpreadVote, "cast_alone", again)
    row = audit()
    assert row.violated
    assert row.proved > 1.1
