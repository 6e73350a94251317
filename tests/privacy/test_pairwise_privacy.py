"""What one agent receives of another: a sample is in one partial sum of each pair, under noise of
that pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pytest

from meanstream.lab.papers.colme.pairwise_stream import PairwiseReleases, PairwiseStream
from meanstream.lab.papers.colme.pairwise_stream_settings import (
    PairwiseStreamSettings,
    WholeReleasedVariance,
)
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.counters.pm1 import Pm1
from meanstream.operators.noise.distributions import LaplaceNoise, StaircaseNoise
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds
from meanstream.operators.records import Floats, Ints, Words

AGENTS, STEPS = 12, 330
K = 5.5
"""Standard errors: with the four statistics of each run below, one false alarm in 6 million
runs."""
NAMES = [f"agent {number}" for number in range(AGENTS)]
NOISE = KeyedNoise(b"0d409462e4304f9f66770dc046be10c9", deployment="privacy", purpose="agents")


class SameBits:
    """The same random bits for every input, so that two worlds differ in their sums alone."""

    def derived(self, purpose: str, settings: Any) -> Self:
        return self

    def version_of(self, count: Ints, total: Ints) -> Words:
        return NOISE.version_of(count, total)

    def bits(self, ids: NoiseIds, draw: int = 0) -> Words:
        return NOISE.bits(NoiseIds(ids.owner, ids.index, np.zeros(len(ids), np.uint64)), draw)


def settings_of(schedule: str, *, variance: str = "known") -> PairwiseStreamSettings:
    release = AgentsSettings(
        lower=0,
        upper=1,
        epsilon=1,
        delta=1e-6,
        counter="pm1",
        horizon=1000,
        spread_share=0.0,
        mode="paper",
    )
    stddev = 0.3 if variance == "known" else None
    return PairwiseStreamSettings(
        release=release, schedule=schedule, stddev=stddev, variance=variance
    )


def values_of() -> np.ndarray:
    return np.random.default_rng(8).uniform(0, 1, (STEPS, AGENTS))


def released(
    kind: type[PairwiseStream], noise: Any, values: np.ndarray, schedule: str
) -> PairwiseReleases:
    stream = kind(settings_of(schedule), noise, capacity=AGENTS)
    agent, time = (
        np.tile(np.arange(AGENTS), STEPS),
        np.repeat(np.arange(STEPS, dtype=float), AGENTS),
    )
    return stream.take(agent, values.ravel(), time, NAMES)


def partial_sums(made: PairwiseReleases, totals: Ints) -> tuple[Ints, Ints, Ints]:
    """Undo the prefix sums: what each release added, with its pair, in order of pair and index."""
    pair = made.agent * AGENTS + made.reader
    order = np.lexsort((made.index, pair))
    total, pair = totals[order], pair[order]
    before = np.where(np.r_[True, pair[1:] != pair[:-1]], 0, np.r_[0, total[:-1]])
    return pair, made.index[order], total - before


def check_noise(kind: type[PairwiseStream], schedule: str) -> None:
    """Refuse draws that are not normal with the calibrated variance, or not independent from pair
    to pair."""
    values = values_of()
    made, settings = released(kind, NOISE, values, schedule), settings_of(schedule)
    prefix = np.cumsum(settings.release.grid.encode(values), axis=0)
    exact = prefix[made.count - 1, made.agent]
    pair, index, draw = partial_sums(made, made.total - exact)
    standard = draw / settings.release.fresh.stddev  # type: ignore[union-attr]
    n = len(standard)
    assert n > 3000
    assert abs(standard.mean()) < K / np.sqrt(n)
    assert abs((standard**2).mean() - 1) < K * np.sqrt(2 / n)
    same = pair[1:] == pair[:-1]
    assert abs((standard[1:] * standard[:-1])[same].mean()) < K / np.sqrt(same.sum())
    agent, reader = np.divmod(pair, AGENTS)
    table = np.full((AGENTS, AGENTS, index.max() + 1), np.nan)
    table[reader, agent, index] = standard
    products = np.array([table[r] * table[r + 1] for r in range(AGENTS - 1)])
    products = products[np.isfinite(products)]
    assert abs(products.mean()) < K / np.sqrt(len(products))


def check_sensitivity(kind: type[PairwiseStream]) -> None:
    """Refuse a sample that moves more than one partial sum of a pair, or moves one by more than its
    span."""
    one, other = values_of(), values_of()
    one[100, 4], other[100, 4] = 0.0, 1.0
    first, second = (released(kind, SameBits(), values, "round_robin") for values in (one, other))
    np.testing.assert_array_equal(first.agent, second.agent)
    np.testing.assert_array_equal(first.reader, second.reader)
    pair, _, change = partial_sums(first, second.total - first.total)
    moved = np.flatnonzero(change)
    assert set((pair[moved] // AGENTS).tolist()) == {4}
    assert len(set(pair[moved].tolist())) == len(moved) == AGENTS - 1  # once for each reader
    assert np.abs(change).max() <= settings_of("round_robin").release.grid.span


@pytest.mark.parametrize("schedule", ["round_robin", "restricted_round_robin"])
def test_every_pair_has_calibrated_noise_of_its_own(schedule: str) -> None:
    check_noise(PairwiseStream, schedule)


def test_a_sample_is_in_one_partial_sum_of_each_pair() -> None:
    check_sensitivity(PairwiseStream)


class SharedNoise(PairwiseStream):
    """Known bad: all readers meet the noise of the agent that they query, so an agent that moves
    pays for one."""

    def _words(self, target: Ints, reader: Ints) -> Words:
        return super()._words(target, np.zeros_like(reader))


class FreshEachTime(Pm1):
    """Known bad: each release has one draw, and none of those before it: a sample is in the noise
    of many sums."""

    def _step(self, state: Any, rows: Ints, release: Ints, fresh: Floats) -> Floats:
        return fresh


class HalfNoise(Pm1):
    """Known bad: half of the noise that was calibrated."""

    def _step(self, state: Any, rows: Ints, release: Ints, fresh: Floats) -> Floats:
        return super()._step(state, rows, release, fresh / 2)


def with_counter(counter: type[Pm1]) -> type[PairwiseStream]:
    class Twin(PairwiseStream):
        def __init__(self, settings: PairwiseStreamSettings, noise: Any, *, capacity: int) -> None:
            super().__init__(settings, noise, capacity=capacity)
            self._counter = counter(settings.release.horizon)

    return Twin


class TwiceCounted(PairwiseStream):
    """Known bad: the samples of one time enter at once and once more when the next come."""

    def take(self, agent: Ints, value: Floats, time: Floats, names: Any) -> PairwiseReleases:
        made = super().take(agent, value, time, names)
        points = self.settings.release.grid.encode(value).reshape(STEPS, AGENTS)
        late = np.cumsum(np.roll(points, 40, axis=0), axis=0)
        return replace(made, total=made.total + late[made.count - 1, made.agent])


@contextmanager
def caught() -> Iterator[None]:
    with pytest.raises(AssertionError):
        yield


@pytest.mark.parametrize(
    ("check", "twin"),
    [
        (lambda kind: check_noise(kind, "round_robin"), SharedNoise),
        (lambda kind: check_noise(kind, "round_robin"), with_counter(FreshEachTime)),
        (lambda kind: check_noise(kind, "round_robin"), with_counter(HalfNoise)),
        (check_sensitivity, TwiceCounted),
    ],
)
def test_known_bad_twins_are_caught(
    check: Callable[[type[PairwiseStream]], None], twin: type[PairwiseStream]
) -> None:
    with caught():
        check(twin)


def test_readers_who_pool_what_they_received_learn_what_is_said() -> None:
    """The mean of c readers' releases has 1/c of the noise: sqrt(c) times the Gaussian-DP parameter
    of one."""
    settings = settings_of("round_robin")
    for readers, said in ((5, 2.4), (15, 4.43)):
        assert settings.coalition_epsilon(readers) == pytest.approx(said, abs=0.01)
    values = values_of()
    made = released(PairwiseStream, NOISE, values, "round_robin")
    exact = np.cumsum(settings.release.grid.encode(values), axis=0)[made.count - 1, made.agent]
    _, index, draw = partial_sums(made, made.total - exact)
    table = draw.reshape(
        AGENTS, AGENTS - 1, -1
    )  # agent, reader, index: everyone was queried equally often
    assert index.max() == table.shape[2]
    pooled = table.mean(axis=1) / settings.release.fresh.stddev  # type: ignore[union-attr]
    assert abs(pooled.var() * (AGENTS - 1) - 1) < K * np.sqrt(2 / pooled.size)


# -- released variances (Sch-Var-1) --------------------------------------------------------------------------


def of_deviations(values: Floats) -> float:
    return float((values**2).sum() - values.sum() ** 2 / len(values))


def of_plain_squares(values: Floats) -> float:
    """Known bad: the paper's Remark 2, a sum of squares depends on where 0 is."""
    return float((values**2).sum())


def check_squares_sensitivity(squares: Callable[[Floats], float]) -> None:
    """Refuse a sum that a replaced sample moves by more than the noise is calibrated for, at the
    worst places."""
    settings = settings_of("round_robin", variance="released")
    span = settings.release.grid.span / settings.shift
    rng = np.random.default_rng(3)
    for d in (2, 3, 10, 500):
        for rest in (
            np.full(d - 1, 0.0),
            np.full(d - 1, span),
            rng.integers(0, span + 1, d - 1).astype(float),
        ):
            one, other = (np.rint(squares(np.append(rest, end))) for end in (0.0, span))
            assert abs(one - other) <= (d - 1) / d * ((span + 1) ** 2 + 3)


def test_a_sample_moves_a_sum_of_squared_deviations_by_its_bound_at_most() -> None:
    check_squares_sensitivity(of_deviations)
    with caught():
        check_squares_sensitivity(of_plain_squares)


def law_of_squares(noise: StaircaseNoise, part: float, total: int, ends: Ints) -> Floats:
    """Probabilities of what leaves of a sum, where its draw is scaled and rounded."""
    draws = np.arange(-40 * noise.span, 40 * noise.span + 1)
    left = total + np.rint(part * draws).astype(np.int64)
    law = np.bincount(left - ends[0], noise.pmf(draws), minlength=len(ends))
    return law[: len(ends)]


def test_whole_draws_of_squares_lose_epsilon_and_no_more() -> None:
    """Exactly, for a small span; the twin shrinks whole draws as it may Gaussian ones."""
    noise, d = StaircaseNoise(12, 1.0), 4.0
    ends = np.arange(-41 * noise.span, 41 * noise.span)
    inner = slice(len(ends) // 4, -len(ends) // 4)

    def loss(whole_draws: bool) -> float:
        scheme = WholeReleasedVariance(Pm1(horizon=8), 1.0, 1.0, whole_draws)
        part = float(scheme._part_of_draw(np.array([d]))[0])
        moved = int((d - 1) / d * noise.span)
        laws = [law_of_squares(noise, part, total, ends)[inner] for total in (0, moved)]
        return float(np.abs(np.log(laws[0] / laws[1])).max())

    assert loss(whole_draws=True) <= 1.0 + 1e-9
    assert loss(whole_draws=False) > 1.5


def test_squares_with_pure_noise_have_whole_draws() -> None:
    for noise, whole in (("staircase", True), ("laplace", True), ("gaussian", False)):
        release = AgentsSettings(
            lower=0, upper=1, epsilon=1, delta=1e-6, counter="pm1", spread_share=0, noise=noise
        )
        scheme = PairwiseStreamSettings(release=release, variance="released").scheme
        assert isinstance(scheme, WholeReleasedVariance)
        assert scheme.whole_draws is whole


def check_squares_noise(
    draw_of: Callable[[Floats, Floats], Floats], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse noise of squares that is not calibrated, or not independent of the noise of means."""
    settings, seen = settings_of("round_robin", variance="released"), []

    def noised(self: WholeReleasedVariance, squares: Floats, draw: Floats) -> Floats:
        seen.append(draw)
        return np.rint(squares) + np.rint(draw)

    monkeypatch.setattr(WholeReleasedVariance, "_noised", noised)
    stream, values = PairwiseStream(settings, NOISE, capacity=AGENTS), values_of()
    agent, time = (
        np.tile(np.arange(AGENTS), STEPS),
        np.repeat(np.arange(STEPS, dtype=float), AGENTS),
    )
    made = stream.take(agent, values.ravel(), time, NAMES)
    exact = np.cumsum(settings.release.grid.encode(values), axis=0)[made.count - 1, made.agent]
    pair, index, means = partial_sums(made, made.total - exact)
    # What the stream drew, in the order of its queries: all agents at each step, that is by
    # position.
    length = np.empty(len(made))
    order = np.lexsort((made.index, made.agent * AGENTS + made.reader))
    counts = made.count[order]
    before = np.where(index == 1, 0, np.r_[0, counts[:-1]])
    length[order] = counts - before
    of_means = np.empty(len(made))
    of_means[order] = means / settings.means.fresh.stddev  # type: ignore[union-attr]
    drawn = np.concatenate(seen)
    several = length > 1
    assert not drawn[~several].any()
    scaled = drawn[several] * length[several] / (length[several] - 1)
    standard = draw_of(scaled / settings.squares_noise.stddev, of_means[several])  # type: ignore[union-attr]
    n = len(standard)
    assert n > 3000
    assert len(pair) == len(made)
    assert abs((standard**2).mean() - 1) < K * np.sqrt(2 / n)
    assert abs((standard * of_means[several]).mean()) < K / np.sqrt(n)


def test_released_squares_have_calibrated_noise_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_squares_noise(lambda own, _: own, monkeypatch)


@pytest.mark.parametrize("twin", [lambda own, _: own / 2, lambda _, of_means: of_means])
def test_squares_with_half_the_noise_or_that_of_the_means_are_caught(
    twin: Callable[[Floats, Floats], Floats], monkeypatch: pytest.MonkeyPatch
) -> None:
    with caught():
        check_squares_noise(twin, monkeypatch)


def test_means_and_variances_share_the_budget() -> None:
    settings = settings_of("round_robin", variance="released")
    assert (settings.means.epsilon, settings.means.delta) == (0.5, 5e-7)
    span = settings.release.grid.span / settings.shift + 1
    of_squares = (span**2 + 3) / settings.squares_noise.stddev  # type: ignore[union-attr]
    assert of_squares == pytest.approx(settings.means.mu, rel=1e-9)
    assert settings.coalition_epsilon(5) == pytest.approx(settings.means.epsilon_over(10))


PURE = [LaplaceNoise(80.0), StaircaseNoise(40, 0.5)]


def largest_loss_of_squares(
    noise: LaplaceNoise | StaircaseNoise, length: int, *, whole_noise: bool
) -> float:
    """Enumerate what is released of a sum of squares of `length` samples, and of one moved by up to
    40 units: the largest log ratio of the two laws."""
    scheme = WholeReleasedVariance(Pm1(15), 1.0, 1.0, whole_noise)
    draws = np.arange(-4000, 4001, dtype=np.float64)
    part = scheme._part_of_draw(np.full(len(draws), float(length)))
    shown = scheme._noised(np.zeros(len(draws)), part * draws)
    law = np.bincount(shown.astype(np.int64) + 4000, weights=noise.pmf(draws), minlength=8001)
    # Far from the ends of the enumeration, which cut the last outcomes.
    logs = np.log(law[3000:5001])

    return max(float(np.abs(logs[move:] - logs[:-move]).max()) for move in range(1, 41))


@pytest.mark.parametrize("noise", PURE, ids=str)
@pytest.mark.parametrize("length", [2, 3, 8])
def test_squares_under_integer_noise_lose_no_more_than_was_promised(
    noise: LaplaceNoise | StaircaseNoise, length: int
) -> None:
    assert largest_loss_of_squares(noise, length, whole_noise=True) <= 0.5 + 1e-9


@pytest.mark.parametrize("noise", PURE, ids=str)
@pytest.mark.parametrize("length", [2, 3, 8])
def test_scaled_integer_noise_of_squares_is_caught(
    noise: LaplaceNoise | StaircaseNoise, length: int
) -> None:
    assert largest_loss_of_squares(noise, length, whole_noise=False) > 0.6


@pytest.mark.parametrize("noise", ["laplace", "staircase", "gaussian"])
def test_draws_of_squares_are_scaled_only_where_they_are_continuous(noise: str) -> None:
    release = AgentsSettings(
        lower=0,
        upper=1,
        epsilon=1,
        delta=1e-6,
        counter="pm1",
        horizon=1000,
        spread_share=0.0,
        noise=noise,
    )
    scheme = PairwiseStreamSettings(release=release, variance="released").scheme
    assert isinstance(scheme, WholeReleasedVariance)
    assert scheme.whole_draws == (noise != "gaussian")
    shown = scheme._part_of_draw(np.array([1.0, 2.0, 3.0])) * 60.0
    assert shown.tolist() == ([0.0, 30.0, 40.0] if noise == "gaussian" else [0.0, 60.0, 60.0])
