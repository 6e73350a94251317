"""No draw has two owners: one table of numbers, every call through it, and no number met twice when
the product runs.

The twins are those that gave exact sums away: bin 0 of the vote met the draw of the mean, bins of
the histogram those of the vote.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from meanstream.lab.papers.colme.pairwise_stream import PairwiseStream
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.own_histogram import MOST_BINS
from meanstream.operators.agents.running_mean import PrivateMean
from meanstream.operators.agents.vote_of_spread import SpreadVote
from meanstream.operators.noise.draw_owners import (
    AGENT_HISTOGRAMS,
    AGENT_MEANS,
    DRAW_OWNERS,
)
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds
from meanstream.operators.records import Words
from tests.privacy.test_twins import VOTES_HISTOGRAM, shared_draws

ROOT = Path(__file__).parents[2]
FOLDERS = ("operators", "streaming", "pipelines", "meanstream/lab", "meanstream/integrations")
SOURCE = KeyedNoise(b"7c1e94b05fa3d2681be60c9d37f25a84", deployment="owners", purpose="agents")
BITS = KeyedNoise.bits


def test_no_number_has_two_owners() -> None:
    for one, other in combinations(DRAW_OWNERS, 2):
        apart = one.first + one.number <= other.first or other.first + other.number <= one.first
        assert one.key != other.key or apart, (one, other)
    assert AGENT_HISTOGRAMS.number >= MOST_BINS
    with pytest.raises(ValueError, match="which votes has"):
        DRAW_OWNERS.claim("agents", "blocks", "release of an agent", first=11, number=3)
    with pytest.raises(ValueError, match="lie below 1 of means"):
        AGENT_MEANS.at(1)


def test_every_call_takes_the_number_of_its_owner() -> None:
    """A literal number, or none, is nobody's."""
    calls = list(_calls_of_bits())
    assert len(calls) >= 8
    unclaimed = [where for where, draw in calls if not draw.isupper() or not _is_owner(draw)]
    assert unclaimed == []


def _calls_of_bits() -> Iterator[tuple[str, str]]:
    """Give each call of `bits` in the product, and the name whose `at` gives the draw."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                if node.func.attr != "bits":
                    continue
                words = [*node.args[1:], *(word.value for word in node.keywords)]
                claimed = [ast.unparse(word).partition(".at(")[0] for word in words]
                yield f"{path.relative_to(ROOT)}:{node.lineno}", "".join(claimed)


def _is_owner(name: str) -> bool:
    from meanstream.operators.noise import draw_owners

    return getattr(draw_owners, name, None) in list(DRAW_OWNERS)


@dataclass
class Met:
    """The draws that were asked for: key, owner, release, input and number."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def twice(self) -> int:
        return len(self.rows) - len(set(self.rows))


@contextmanager
def recorded() -> Iterator[Met]:
    met = Met()

    def bits(self: KeyedNoise, ids: NoiseIds, draw: int = 0) -> Words:
        columns = zip(ids.owner.tolist(), ids.index.tolist(), ids.version.tolist(), strict=True)
        met.rows += [(self.purpose, *owner, index, version, draw)
                     for owner, index, version in columns]  # fmt: skip
        return BITS(self, ids, draw)

    with patch.object(KeyedNoise, "bits", bits):
        yield met


def run_agents() -> None:
    settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, schedule="geometric:4,1.5",
                              horizon=6, histogram_share=0.1, exceeds=(0.5,))  # fmt: skip
    agents = Agents(settings, SOURCE)
    agents.add_agents([f"a{i}" for i in range(20)])
    values = np.random.default_rng(1).random((40, 20))
    made = agents.update(np.tile(np.arange(20), 40), values.ravel(), np.arange(800.0)).releases
    assert made.votes[:, 0].max() > 1
    assert made.histogram[:, 0].max() > 1


def run_pairs() -> None:
    release = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, mode="paper", counter="pm1")
    settings = PairwiseStreamSettings(release=release, variance="released")
    stream = PairwiseStream(settings, SOURCE, capacity=6)
    names = [f"a{i}" for i in range(6)]
    values = np.random.default_rng(1).random((30, 6))
    times = np.repeat(np.arange(30.0), 6)
    assert len(stream.take(np.tile(np.arange(6), 30), values.ravel(), times, names)) == 180


def run_mean() -> None:
    mean = PrivateMean(lower=0, upper=1, epsilon=1, delta=1e-6, noise=SOURCE, horizon=40)
    for value in np.random.default_rng(1).random(300):
        mean.update(float(value))


RUNS = {"agents": run_agents, "pairs": run_pairs, "mean": run_mean}


@pytest.mark.parametrize("name", RUNS)
def test_no_draw_is_met_twice(name: str) -> None:
    with recorded() as met:
        RUNS[name]()
    assert len(met.rows) >= 4
    assert met.twice() == 0


TWINS: dict[str, list[tuple[Any, str, Callable[..., Any]]]] = {
    "vote bin 0 shares the draw of the mean": [(SpreadVote, "cast", shared_draws({1: 0}))],
    "histogram bins share the vote's": VOTES_HISTOGRAM,
}


@pytest.mark.parametrize("name", TWINS)
def test_draws_with_two_owners_are_met_twice(name: str) -> None:
    with ExitStack() as patches:
        for where, method, wrong in TWINS[name]:
            patches.enter_context(patch.object(where, method, wrong))
        met = patches.enter_context(recorded())
        run_agents()
    assert met.twice() > 0
