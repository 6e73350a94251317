"""Who makes releases tells what their agents had released before; who receives them keeps it. Both
learn the same."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.released_rows import ReleaseBatch
from meanstream.operators.collaboration.followed_releases import FollowedReleases, NewestReleases
from meanstream.operators.noise.keyed import KeyedNoise

BOUNDS = {"lower": 0.0, "upper": 1.0, "epsilon": 3.0, "delta": 1e-6}
WAYS = {
    "counts": {"schedule": "geometric:4,1.3", "horizon": 20},
    "votes": {"schedule": "geometric:4,1.3", "horizon": 20, "spread_share": 0.2},
    "times": {"schedule": "every:10s", "horizon": 20},
    "forgetting": {"memory": "half-life:50"},
    "window": {"memory": "window:50"},
}


def agents_of(settings: AgentsSettings) -> Agents:
    agents = Agents(
        settings,
        KeyedNoise(np.random.default_rng(3).bytes(32), deployment="test", purpose="agents"),
    )
    agents.add_agents([str(i) for i in range(30)])
    return agents


def made(agents: Agents, seed: int) -> list[ReleaseBatch]:
    """Batches in which some agents release not at all, and others often."""
    rng = np.random.default_rng(seed)
    batches = []
    for turn in range(8):
        size = int(rng.integers(5, 900))
        who = np.minimum(rng.geometric(0.1, size), 30).astype(np.int64) - 1
        time = np.sort(rng.uniform(0, 40, size)) + 40 * turn
        batches.append(agents.update(who, rng.uniform(0.2, 0.9, size), time))
    return [*batches, agents.release_now(400.0)]


@pytest.mark.parametrize("way", WAYS)
def test_who_makes_releases_and_who_receives_them_learn_the_same(way: str) -> None:
    settings = AgentsSettings(**BOUNDS, **WAYS[way])
    batches = made(agents_of(settings), seed=4)
    maker, receiver, kept = FollowedReleases(settings), FollowedReleases(settings), NewestReleases()
    one_by_one, newest = FollowedReleases(settings), NewestReleases()
    several = 0
    for batch in batches:
        maker.observe(batch.releases, batch.before)
        receiver.observe(batch.releases, kept.replaced(batch.releases))
        for place in range(len(batch.releases)):
            single = batch.releases.take(np.array([place]))
            one_by_one.observe(single, newest.replaced(single))
        several += len(batch.releases) - len(np.unique(batch.releases.agent))
        assert repr(maker.posterior) == repr(receiver.posterior)
        assert maker.snapshot() == receiver.snapshot()
    assert several > 0  # an agent that releases twice at once was before itself
    assert one_by_one.variance == pytest.approx(maker.variance, rel=1e-9)
    assert (maker.snapshot().get("votes") is not None) == (settings.vote is not None)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_before_is_what_the_agent_had_released_last(way: str) -> None:
    batches = made(agents_of(AgentsSettings(**BOUNDS, **WAYS[way])), seed=5)
    newest: dict[int, tuple] = {}
    for batch in batches:
        rows = list(zip(*(getattr(batch.releases, name).tolist() for name in NAMES), strict=True))
        told = list(zip(*(getattr(batch.before, name).tolist() for name in NAMES), strict=True))
        assert sorted(told) == sorted(
            newest[agent] for agent in {row[0] for row in rows} & newest.keys()
        )
        newest |= {row[0]: row for row in rows}
    assert len(newest) == 30


NAMES = ("agent", "index", "count", "total", "mean", "noise_variance", "votes")


@pytest.mark.parametrize("way", WAYS)
def test_after_a_restart_it_goes_on_with_the_newest_of_the_agents(way: str) -> None:
    settings = AgentsSettings(**BOUNDS, **WAYS[way])
    agents, whole = agents_of(settings), FollowedReleases(settings)
    for batch in made(agents, seed=6):
        whole.observe(batch.releases, batch.before)
    again = FollowedReleases(settings)
    again.restore(whole.snapshot(), agents.latest())
    rng = np.random.default_rng(7)
    last = agents.update(
        rng.integers(0, 30, 2000), rng.uniform(0, 1, 2000), np.linspace(400, 500, 2000)
    )
    for one in (whole, again):
        one.observe(last.releases, last.before)
    assert repr(again.posterior) == repr(whole.posterior)
    assert again.snapshot() == whole.snapshot()
