"""Changes of an agent's own mean: against a direct likelihood ratio, false alarms by law,
delays."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.operators.agents.change_tests import OwnChanges
from meanstream.operators.agents.own_moments import BLOCK, OwnMoment
from meanstream.operators.agents.state_columns import empty_columns
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.records import Ints

GRID = FixedPoint(0.0, 1.0)


class Stream:
    """Agents that are tested after every block."""

    def __init__(self, n: int) -> None:
        self.test = OwnChanges(GRID.span // 2)
        self.rows, self.agent = empty_columns(self.test.columns, n), np.arange(n)
        self.number, self.total, self.squares = (
            np.zeros(n, np.int64),
            np.zeros(n, np.int64),
            np.zeros(n),
        )

    def block(self, values: np.ndarray) -> Ints:
        """Take a block of each agent, shape (agents, BLOCK); give who has changed."""
        points = GRID.encode(values)
        self.number = self.number + BLOCK
        self.total = self.total + points.sum(axis=1)
        self.squares = self.squares + ((points - GRID.span // 2).astype(np.float64) ** 2).sum(
            axis=1
        )
        return self.test.test(
            self.rows, self.agent, OwnMoment(self.number, self.total, self.squares)
        ).changed


def test_the_statistic_is_the_likelihood_ratio_of_two_normal_segments() -> None:
    rng = np.random.default_rng(1)
    stream, values = Stream(1), np.clip(rng.normal(0.4, 0.1, (20, BLOCK)), 0, 1)
    values[12:] += 0.03
    for block in values[:-1]:
        stream.block(block[np.newaxis])
    start, past = stream.test._moments(stream.rows, stream.agent)
    points = GRID.encode(values).ravel().astype(np.float64)
    now = OwnMoment(
        np.array([320]),
        np.array([int(points.sum())]),
        np.array([((points - GRID.span // 2) ** 2).sum()]),
    )
    ratio = stream.test._ratio(np.array([[320]]), stream.test._squares(start, past, now))[0]
    for place in np.flatnonzero(ratio):
        at = int(past.number[0, place])
        one, two = points[:at], points[at:]
        variance = max(one.var(ddof=1), two.var(ddof=1))
        square = (one.mean() - two.mean()) ** 2 / (variance * (1 / len(one) + 1 / len(two)))
        assert ratio[place] == pytest.approx(320 * np.log1p(square / 318), rel=1e-9)
    assert sorted(past.number[0][ratio > 0])[-4:] == [256, 272, 288, 304]


LAWS = {
    "uniform": lambda rng, shape: rng.random(shape),
    "coin": lambda rng, shape: (rng.random(shape) < 0.5) * 1.0,
    "rare": lambda rng, shape: (rng.random(shape) < 0.02) * 1.0,
    "exponential": lambda rng, shape: np.minimum(rng.exponential(0.1, shape), 1.0),
    "heavy": lambda rng, shape: np.clip(0.5 + 0.03 * rng.standard_t(2, shape), 0, 1),
}


@pytest.mark.parametrize("law", LAWS)
def test_false_alarms_are_rare_and_most_are_taken_back(law: str) -> None:
    """600 agents, 8,000 samples each: fewer than 12 in a million samples, and in less than 2 % of
    the time."""
    rng, stream, changes, inside, blocks = (
        np.random.default_rng(2),
        Stream(600),
        0,
        0.0,
        8000 // BLOCK,
    )
    for _ in range(blocks):
        changes += len(stream.block(LAWS[law](rng, (600, BLOCK))))
        inside += float((stream.rows["own_origin_number"] >= 0).mean())
    assert changes < 12e-6 * 600 * 8000
    assert inside / blocks < 0.02


def test_a_step_of_one_standard_deviation_is_seen_in_three_blocks() -> None:
    rng, stream = np.random.default_rng(3), Stream(300)
    for _ in range(100):
        stream.block(rng.normal(0.4, 0.05, (300, BLOCK)))
    seen = np.zeros(300, np.bool_)
    for _ in range(3):
        seen[stream.block(rng.normal(0.45, 0.05, (300, BLOCK)))] = True
    assert seen.mean() > 0.95
    assert (np.abs(stream.rows["own_start_number"][seen] - 1600) <= 2 * BLOCK).mean() > 0.95


def spells(coefficient: float, day: int, swing: float, agents: int = 40) -> tuple[float, float]:
    """Agents whose mean stays: 8,000 samples each that hang together; changes per agent, and the
    time spent in one."""
    rng, stream, changes, inside, blocks = (
        np.random.default_rng(4),
        Stream(agents),
        0,
        0.0,
        8000 // BLOCK,
    )
    noise, phase = np.zeros(agents), rng.integers(0, day, agents)
    for block in range(blocks):
        values = np.empty((agents, BLOCK))
        for i in range(BLOCK):
            noise = coefficient * noise + np.sqrt(1 - coefficient**2) * rng.normal(size=agents)
            values[:, i] = noise + swing * np.sin(2 * np.pi * (block * BLOCK + i + phase) / day)
        changes += len(stream.block(np.clip(0.5 + 0.08 * values, 0, 1)))
        inside += float((stream.rows["own_origin_number"] >= 0).mean())
    return changes / agents, inside / blocks


@pytest.mark.parametrize(
    ("coefficient", "day", "swing"), [(0.5, 100, 0.0), (0.9, 100, 0.0), (0.0, 150, 1.0)]
)
def test_samples_that_come_in_spells_are_no_changes(
    coefficient: float, day: int, swing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer than 12 in 8,000 samples, in less than a tenth of the time; as independent ones, twice
    as many."""
    changes, inside = spells(coefficient, day, swing)
    assert changes < 12
    assert inside < 0.1
    monkeypatch.setattr(
        OwnChanges, "_spells", lambda self, rows, agent, now, change: np.ones(len(agent))
    )
    assert spells(coefficient, day, swing)[0] > 2 * changes
