"""Secret groups over many seeds: coverage, and the error beside a plain baseline on the same frames.

The baseline is what OpenDP's and PipelineDP's recipes do: Laplace noise on a sum around the middle
of the bounds and on a number of rows, half of epsilon each, and a threshold on the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

import meanstream
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.pipelines.frames.secret_groups.secret_plan import SecretPlan
from tests.pipelines.command_line import SECRET

SEEDS = 12
LEVEL = 0.95
DELTA = 1e-6


@dataclass(frozen=True, kw_only=True)
class Population:
    """Groups with lognormal sizes, normal means and normal samples, clipped to bounds."""

    groups: int = 400
    log_size: float = 3.5
    center: float = 10.0
    spread: float = 4.0
    stddev: float = 15.0
    lower: float = -30.0
    upper: float = 60.0
    epsilon: float = 1.0

    def frame(self, seed: int) -> tuple[pa.Table, Floats]:
        """Give rows, and the long-run mean of clipped values of each group."""
        rng = np.random.default_rng(seed)
        size = np.maximum(rng.lognormal(self.log_size, 1.2, self.groups), 1).astype(int)
        mean = rng.normal(self.center, self.spread, self.groups)
        group = np.repeat(np.arange(self.groups), size)
        value = rng.normal(mean[group], self.stddev)

        low, high = ((end - mean) / self.stddev for end in (self.lower, self.upper))
        clipped = self.lower * norm.cdf(low) + self.upper * norm.sf(high)
        clipped += mean * (norm.cdf(high) - norm.cdf(low))
        clipped += self.stddev * (norm.pdf(low) - norm.pdf(high))
        return pa.table({"group": group, "value": value}), clipped

    def baseline(self, frame: pa.Table, seed: int) -> tuple[Bools, Floats]:
        """Say which names the baseline brings out, and its means."""
        rng = np.random.default_rng([seed, 1])
        group = np.asarray(frame["group"])
        middle = (self.lower + self.upper) / 2
        centered = np.clip(np.asarray(frame["value"]), self.lower, self.upper) - middle
        scale = 2 / self.epsilon
        half = (self.upper - self.lower) / 2
        rows = np.bincount(group, minlength=self.groups) + rng.laplace(0, scale, self.groups)
        total = np.bincount(group, centered, self.groups)
        total += rng.laplace(0, scale * half, self.groups)

        threshold = 1 + scale * np.log(1 / (2 * DELTA))
        mean = np.clip(middle + total / np.maximum(rows, 1), self.lower, self.upper)
        return rows > threshold, mean


POPULATIONS = {
    "usual": Population(),
    "off the middle": Population(upper=120.0),
    "far apart": Population(spread=12.0),
    "little noise of values": Population(spread=2.0, stddev=3.0, center=40.0),
    "small epsilon": Population(log_size=4.5, epsilon=0.4),
    "large epsilon": Population(epsilon=4.0),
}


def answered(
    population: Population, seed: int, **changes: Any
) -> tuple[pa.Table, Floats, pa.Table]:
    frame, truth = population.frame(seed)
    options = {"epsilon": population.epsilon, "delta": DELTA, **changes}
    found = meanstream.private_means(
        frame, by="group", value="value", lower=population.lower, upper=population.upper,
        private_counts=True, secret=SECRET, name=f"seed {seed}", **options,
    )  # fmt: skip
    return found.table, truth, frame


def ends(table: pa.Table) -> tuple[Ints, Floats, Floats, Floats]:
    columns = (np.asarray(table[name]) for name in ("group", "lower", "upper", "mean"))
    group, lower, upper, mean = columns
    return group, lower, upper, mean


@pytest.mark.parametrize("name", POPULATIONS)
def test_intervals_cover_the_long_run_means(name: str) -> None:
    """About 3,000 intervals in 12 frames: .93 to .976.

    By a binomial law 4 standard errors of .95 are .016, beyond which one lies by a chance of 6e-5;
    the groups of one frame share a prior, which makes its errors alike, and the other 1 % is what
    groups at the threshold lack, whose noise brought them out.
    """
    population = POPULATIONS[name]
    covered = total = 0
    for seed in range(SEEDS):
        table, truth, _ = answered(population, seed)
        group, lower, upper, _ = ends(table)
        covered += np.count_nonzero((lower <= truth[group]) & (truth[group] <= upper))
        total += len(group)
    assert total > 2_000
    slack = 4 * np.sqrt(LEVEL * (1 - LEVEL) / total)
    assert LEVEL - 0.01 - slack / 2 <= covered / total <= LEVEL + 0.01 + slack


def test_declared_groups_are_covered_and_empty_ones_too() -> None:
    """A third of the groups have no rows: .934 of 4,800 intervals or more (4 standard errors: .013)."""
    population = Population(log_size=2.5)
    covered: dict[bool, list[bool]] = {True: [], False: []}
    for seed in range(SEEDS):
        frame, truth = population.frame(seed)
        frame = frame.filter(pa.array(np.asarray(frame["group"]) % 3 != 0))
        found = meanstream.private_means(
            frame, by="group", value="value", lower=population.lower, upper=population.upper,
            epsilon=1.0, private_counts=True, groups=[*range(400)], secret=SECRET, name=f"{seed}",
        )  # fmt: skip
        group, lower, upper, _ = ends(found.table)
        for number, low, high in zip(group.tolist(), lower, upper, strict=True):
            covered[number % 3 == 0].append(low <= truth[number] <= high)
    for name in (True, False):
        assert np.mean(covered[name]) >= 0.934 - 0.01


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_error_is_less_than_the_baselines_and_no_name_is_lost(name: str) -> None:
    """On the groups that both bring out, each beside the long-run mean: at most 1.05 (.47 to .82 here)."""
    population = POPULATIONS[name]
    squares = np.zeros(2)
    names = np.zeros(2)
    for seed in range(SEEDS):
        table, truth, frame = answered(population, seed)
        group, _, _, mean = ends(table)
        is_out, plain = population.baseline(frame, seed)
        both = group[is_out[group]]
        squares += [
            np.sum((mean[is_out[group]] - truth[both]) ** 2),
            np.sum((plain[both] - truth[both]) ** 2),
        ]
        names += [len(group), np.count_nonzero(is_out)]
    ratio = np.sqrt(squares[0] / squares[1])
    assert ratio <= 1.05, ratio
    assert names[0] >= names[1]


def test_as_many_names_as_the_optimal_selection_at_the_same_budget() -> None:
    """The optimum for names alone (PoPETs 2022) spends all of epsilon on them, and releases no more.

    Expected names on the same sizes, by both exact laws. With half of epsilon for names, as who also
    releases means has it, the optimum finds fewer.
    """
    plan = SecretPlan(lower=0, upper=1, epsilon=1.0, delta=DELTA)
    ours = np.array([0.0, *(plan.comes_out(rows) for rows in range(1, MOST_ROWS + 1))])
    for log_size, least in ((3.5, 0.91), (4.5, 0.95)):
        size = np.random.default_rng(1).lognormal(log_size, 1.2, 20_000)
        size = np.minimum(size.astype(int), MOST_ROWS)
        names = ours[size].sum()
        assert names >= least * optimal_selection(plan.epsilon)[size].sum()
        assert names >= 1.05 * optimal_selection(plan.epsilon / 2)[size].sum()


MOST_ROWS = 400


def optimal_selection(epsilon: float) -> Floats:
    """Give the largest probabilities to come out that (epsilon, delta) allows, by number of rows."""
    best = [0.0]
    for _ in range(MOST_ROWS):
        up = np.exp(epsilon) * best[-1] + DELTA
        down = 1 - np.exp(-epsilon) * (1 - best[-1] - DELTA)
        best.append(min(up, down, 1.0))
    return np.array(best)
