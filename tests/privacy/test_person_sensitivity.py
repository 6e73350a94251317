"""All samples of one person replaced: the exact sensitivity of what is released, over all
placements, and its delta.

Small cases are enumerated: where the person's samples stand in the stream, and the corner of the
cube of changes that each takes (a norm is convex, so corners suffice). What moves is read off
`Agents` itself, fed two streams.
"""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest

from meanstream.lab.evidence.counters_audit import counter_columns
from meanstream.operators.agents.admission import COUNTS, PersonCounts
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.counters.registry import COUNTERS, make_counter
from meanstream.operators.noise.calibration import calibration_delta
from meanstream.operators.noise.distributions import TAIL_DELTA
from meanstream.operators.noise.keyed import GaussianNoise
from meanstream.operators.records import Words

OTHERS = 2
RELEASES = 3


class SameNoise:
    """The same bits whatever is released: what differs between two worlds is then exactly what the
    samples move."""

    def bits(self, ids: Any, draw: int = 0) -> Words:
        return np.full((len(ids), 2), 2**62, np.uint64)

    def version_of(self, count: Any, total: Any) -> Words:
        return np.zeros(len(count), np.uint64)

    def derived(self, purpose: str, settings: Any) -> SameNoise:
        return self


class NoLimit(PersonCounts):
    """Known bad: everything that a person sends counts."""

    def take(self, agent: Words, person: Words) -> Any:
        return np.zeros_like(super().take(agent, person)) + np.int8(COUNTS)


def settings(per_person: int | None, **changes: Any) -> AgentsSettings:
    named: dict[str, Any] = {
        "lower": 0,
        "upper": 1,
        "epsilon": 1,
        "delta": 1e-6,
        "horizon": RELEASES + 3,
        "noise": "gaussian",
    }
    return AgentsSettings(
        **named | {"schedule": "every:1s", "per_person": per_person, "spread_share": 0} | changes
    )


def cases(sent: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every way to place a person's samples, to cut the stream into increments, and to choose
    corners: one agent each.

    Whose samples they are, their times, and their values (those of the other world are one minus
    these, where mine).
    """
    n = OTHERS + sent
    rows = []
    for places in combinations(range(n), sent):
        mine = np.isin(np.arange(n), places)
        for cuts in combinations_with_replacement(range(n + 1), RELEASES - 1):
            time = np.searchsorted(np.array(cuts), np.arange(n), side="right")
            for signs in product((0.0, 1.0), repeat=sent - 1):  # the other half mirrors these
                value = np.full(n, 0.5)
                value[mine] = (0.0, *signs)
                rows.append((mine, time, value))
    mine, time, value = (np.array(column) for column in zip(*rows, strict=True))
    return mine, time.astype(float), value


def released(
    how: AgentsSettings, mine: np.ndarray, time: np.ndarray, value: np.ndarray, limit: type
) -> np.ndarray:
    """Noised sums by agent and release, 0 where there is none; everybody else has one sample
    each."""
    agents, (many, n) = Agents(how, SameNoise()), mine.shape  # type: ignore[arg-type]
    agents.persons = limit(how.per_person)
    agents.add_agents([str(number) for number in range(many)])
    order = np.argsort(time.ravel(), kind="stable")
    agent, person = (
        np.repeat(np.arange(many), n),
        np.where(mine, 1, 100 + np.arange(n)).astype(np.uint64),
    )
    batch = agents.update(
        agent[order], value.ravel()[order], time.ravel()[order], person.ravel()[order]
    )
    totals = np.zeros((many, RELEASES))
    for found in (batch.releases, agents.advance(1e9).releases):
        totals[found.agent, found.index - 1] = found.total
    return totals


def largest_move(how: AgentsSettings, sent: int, limit: type = PersonCounts) -> float:
    """Largest l2 norm of `C x` in grid units, where one person replaces all the samples that it
    sent."""
    mine, time, value = cases(sent)
    first = released(how, mine, time, value, limit)
    second = released(how, mine, time, np.where(mine, 1 - value, value), limit)
    moved = (second - first) @ np.linalg.inv(how.mechanism.matrix(RELEASES)).T
    moved[first == 0] = 0.0  # a release that is not made
    return float(np.sqrt((moved**2).sum(1)).max())


@pytest.mark.parametrize("counter", ["pm1", "pm2", "toeplitz", "optimal"])
@pytest.mark.parametrize(("per_person", "sent"), [(1, 1), (1, 2), (2, 2), (2, 3)])
def test_what_a_person_moves_is_k_times_what_a_sample_moves(
    counter: str, per_person: int, sent: int
) -> None:
    """Over all placements, cuts into increments and corners; all that was sent is replaced, also
    what is over K."""
    how = settings(per_person, counter=counter)
    norms = np.sqrt((counter_columns(how.mechanism, RELEASES) ** 2).sum(0))
    assert largest_move(how, sent) == pytest.approx(
        per_person * how.grid.span * norms.max(), rel=1e-9
    )


def test_known_bad_twins_are_caught() -> None:
    """Noise for one sample where two of a person count; and a limit that is not kept."""
    how = settings(2, counter="pm1")
    assert isinstance(how.fresh, GaussianNoise)
    budget = how.delta - how.horizon * TAIL_DELTA
    assert calibration_delta(how.fresh.stddev / largest_move(how, 3), how.epsilon) <= budget * (
        1 + 1e-9
    )
    for_one = settings(None, counter="pm1").fresh
    assert isinstance(for_one, GaussianNoise)
    assert calibration_delta(for_one.stddev / largest_move(how, 3), how.epsilon) > 100 * how.delta
    assert (
        calibration_delta(how.fresh.stddev / largest_move(how, 3, NoLimit), how.epsilon)
        > 10 * how.delta
    )


@pytest.mark.parametrize("name", sorted(COUNTERS))
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_no_spread_over_the_increments_costs_more_than_all_in_one(name: str, k: int) -> None:
    """All ways to place k changes of -1, 0 or 1 in up to five increments, for l2 and, where there
    is one, l1."""
    counter = make_counter(name, horizon=5)
    matrix = counter_columns(counter, 5)
    one = np.array(list(product((-1, 0, 1), repeat=5)))
    placed = {tuple(row) for row in one if np.abs(row).sum() <= 1}
    reached = {(0,) * 5}
    for _ in range(k):
        reached = {tuple(np.add(a, b)) for a in reached for b in placed}
    moved = matrix @ np.array(sorted(reached)).T
    assert np.sqrt((moved**2).sum(0)).max() == pytest.approx(k * counter.l2_sensitivity, rel=1e-9)
    if name not in ("toeplitz", "optimal"):
        assert np.abs(moved).sum(0).max() == pytest.approx(k * counter.l1_sensitivity, rel=1e-9)


@pytest.mark.parametrize("counter", ["pm1", "pm2", "toeplitz", "optimal"])
@pytest.mark.parametrize("k", [1, 2, 10, 300])
def test_all_releases_together_spend_exactly_delta_for_k_samples(counter: str, k: int) -> None:
    how = settings(k, counter=counter, horizon=40)
    assert isinstance(how.fresh, GaussianNoise)
    moved = k * how.grid.span * np.sqrt((counter_columns(how.mechanism, 40) ** 2).sum(0)).max()
    spent = calibration_delta(how.fresh.stddev / moved, how.epsilon)
    assert spent == pytest.approx(how.delta - how.horizon * TAIL_DELTA, rel=1e-5)


def test_laplace_noise_is_calibrated_to_k_too() -> None:
    one, three = (settings(k, counter="pm2", noise="laplace").fresh for k in (1, 3))
    assert three.scale == 3 * one.scale  # type: ignore[union-attr]


def test_which_samples_count_does_not_depend_on_values() -> None:
    """Other values, the same fates; and other samples of one person leave the fates of all others
    as they are."""
    how, n = settings(2), 400
    rng = np.random.default_rng(3)
    agent, person = rng.integers(0, 3, n), rng.integers(0, 60, n).astype(np.uint64)

    def fates(keep: np.ndarray, value: np.ndarray) -> np.ndarray:
        agents = Agents(how, SameNoise())  # type: ignore[arg-type]
        agents.add_agents(["a", "b", "c"])
        found = agents.update(
            agent[keep], value[keep], np.arange(n, dtype=float)[keep], person[keep]
        ).fates
        assert found is not None
        return found

    everybody = np.ones(n, np.bool_)
    whole = fates(everybody, rng.random(n))
    assert np.array_equal(whole, fates(everybody, rng.random(n)))
    assert 0 < np.count_nonzero(whole) < n
    without = person != person[0]
    assert np.array_equal(whole[without], fates(without, rng.random(n)))


def test_without_persons_nothing_is_taken_and_with_none_named_nothing_is_guessed() -> None:
    agents = Agents(settings(2), SameNoise())  # type: ignore[arg-type]
    agents.add_agents(["a"])
    sample = (np.zeros(1, np.int64), np.zeros(1), np.zeros(1))
    with pytest.raises(ValueError, match="person must be given with per_person"):
        agents.update(*sample)
    agents = Agents(settings(None), SameNoise())  # type: ignore[arg-type]
    agents.add_agents(["a"])
    with pytest.raises(ValueError, match="person must be left out without per_person"):
        agents.update(*sample, np.zeros(1, np.uint64))


@pytest.mark.parametrize("bad", [0, -1, 65_536])
def test_a_limit_out_of_range_is_refused(bad: int) -> None:
    with pytest.raises(ValueError, match=r"per_person must lie in 1\.\.65535"):
        settings(bad)
