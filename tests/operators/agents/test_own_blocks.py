"""Blocks of own samples: a function of the sequence of samples alone, and what their energies
say."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats, Ints

M, N = 4, 500
KEY = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
MEMORIES = {
    "forever": "preferred:10",
    "window:60": "preferred:10",
    "half-life:30": "preferred:10",
    "window:2m": "every:30s",
    "half-life:1m": "every:30s",
}
every_memory = pytest.mark.parametrize("memory", MEMORIES)


@cache
def settings_of(memory: str, per_person: int | None) -> AgentsSettings:
    known = {"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6, "schedule": MEMORIES[memory]}
    return AgentsSettings(**known, memory=memory, per_person=per_person)


def agents_of(memory: str, *, per_person: int | None = None) -> Agents:
    agents = Agents(
        settings_of(memory, per_person), KeyedNoise(KEY, deployment="blocks", purpose="agents")
    )
    agents.add_agents([f"agent {i}" for i in range(M)])
    return agents


def stream(seed: int = 3) -> tuple[Ints, Floats, Floats]:
    rng = np.random.default_rng(seed)
    return (
        rng.choice(M, N, p=[0.7, 0.2, 0.09, 0.01]),
        rng.random(N),
        np.sort(rng.uniform(0, 1200, N)),
    )


@every_memory
@pytest.mark.parametrize("seed", range(3))
def test_batches_restarts_and_moves_change_no_bit(memory: str, seed: int) -> None:
    agent, value, time = stream(seed)
    rng = np.random.default_rng((seed, 7))
    cuts, restarts = rng.integers(0, N, 4 ** (seed + 1) // 2).tolist(), 1 + 2 * seed
    whole, parts = agents_of(memory), agents_of(memory)
    whole.update(agent, value, time)
    ends = sorted({0, N, *cuts})
    for turn, (start, stop) in enumerate(pairwise(ends)):
        parts.update(agent[start:stop], value[start:stop], time[start:stop])
        if turn % restarts == 0:  # a restart, or a move of single agents
            again = agents_of(memory)
            if turn % 2:
                again.restore_chunk(0, parts.snapshot_chunk(0))
            else:
                again.put_rows(np.arange(M), parts.rows(np.arange(M)))
            parts = again
    one, other = whole.snapshot_chunk(0), parts.snapshot_chunk(0)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    for name in ("energies", "energy_degrees", "block_log"):
        assert getattr(whole.own(), name).tobytes() == getattr(parts.own(), name).tobytes()


@every_memory
def test_ends_of_blocks_hold_what_came_before(memory: str) -> None:
    agent, value, time = stream()
    agents = agents_of(memory)
    agents.update(agent, value, time)
    rows, grid = agents.rows(np.arange(M)), agents.settings.grid
    for a in range(M):
        points = grid.encode(value[agent == a])
        sums = np.concatenate([[0], np.cumsum(points)])
        pairs = np.concatenate(
            [[0], np.cumsum((points[1::2] - points[: len(points) // 2 * 2 : 2]) ** 2)]
        )
        log = int(rows["block_log"][a])
        last = len(points) >> log
        first = max(last - 31, int(rows.get("block_first", np.zeros(M, np.int64))[a]))
        assert last - first >= min(15, len(points))
        for block in range(first, last + 1):
            assert rows["block_total"][a, block % 32] == sums[block << log]
            if "block_pairs" in rows:
                assert rows["block_pairs"][a, block % 32] == pairs[(block << log) // 2]
        assert rows["pair_squares_low"][a] == pairs[-1]


def test_without_memory_blocks_are_as_short_as_31_of_them_allow() -> None:
    agents = agents_of("forever")
    for count, log in ((31, 0), (32, 1), (63, 1), (64, 2), (1000, 5)):
        more = count - int(agents.counts()[0])
        agents.update(np.zeros(more, np.int64), np.full(more, 0.5), np.full(more, float(count)))
        assert agents.own().block_log[0] == log


def test_energies_are_those_of_the_definition() -> None:
    """16 to 31 blocks; pairs of samples and what is left between them and the blocks make all
    squared deviations."""
    agents, value = agents_of("forever"), np.random.default_rng(1).random(200)
    agents.update(np.zeros(200, np.int64), value, np.arange(200.0))
    own, grid = agents.own(), agents.settings.grid
    x = grid.encode(value) * grid.resolution
    assert own.block_log[0] == 3
    blocks = x[: 25 * 8].reshape(25, 8).mean(axis=1)
    expected = [0.5 * np.mean((x[1::2] - x[::2]) ** 2)]
    rest = (
        np.sum((x - x.mean()) ** 2) - 8 * np.sum((blocks - blocks.mean()) ** 2) - expected[0] * 100
    )
    expected.append(rest / (200 - 25 - 100))
    for level in range(4):
        means = blocks[: 25 >> level << level].reshape(-1, 1 << level).mean(axis=1)
        pairs = means[: len(means) // 2 * 2].reshape(-1, 2)
        expected.append(0.5 * 8 * 2**level * np.mean((pairs[:, 0] - pairs[:, 1]) ** 2))
    np.testing.assert_allclose(own.energies[0], expected, rtol=2e-5)
    assert own.energy_degrees[0].tolist() == [16, 16, 12, 6, 3, 1]


def test_samples_beyond_a_persons_limit_are_in_no_block() -> None:
    limited, plain = agents_of("forever", per_person=1), agents_of("forever")
    agent, value, time = stream()
    person = np.random.default_rng(5).integers(0, 500, N).astype(np.uint64)
    fates = limited.update(agent, value, time, person).fates
    assert fates is not None
    some = fates == 0
    assert 0 < some.sum() < N
    plain.update(agent[some], value[some], time[some])
    assert limited.own().energies.tobytes() == plain.own().energies.tobytes()


def test_a_memory_compares_only_what_it_holds() -> None:
    """The level moves before the window begins: no energy sees it."""
    agents = agents_of("window:60")
    rng = np.random.default_rng(2)
    value = np.concatenate([np.zeros(500), 0.5 + 0.1 * rng.standard_normal(300)])
    agents.update(np.zeros(800, np.int64), value, np.arange(800.0))
    own = agents.own()
    some = own.energy_degrees[0] > 0
    assert own.energies[0, some].max() < 0.1
    assert agents.own().energy_degrees[1].sum() == 0  # nothing is known of an agent without samples


@every_memory
def test_no_release_reads_blocks(memory: str) -> None:
    """Known bad blocks, put in after each batch, change nothing of what is released."""
    agent, value, time = stream()
    plain, broken = agents_of(memory), agents_of(memory)
    told: list[list[bytes]] = [[], []]
    for start in range(0, N, 50):
        part = slice(start, start + 50)
        for agents, found in zip((plain, broken), told, strict=True):
            batch = agents.update(agent[part], value[part], time[part])
            found += [
                column.tobytes()
                for column in (batch.releases.total, batch.releases.votes, batch.time)
            ]
        rows = broken.rows(np.arange(M))
        for name in ("block_total", "pair_squares_low", "pair_squares_high", "block_pairs"):
            if name in rows:
                rows[name] = np.full_like(rows[name], 7)
        broken.put_rows(np.arange(M), rows)
    assert told[0] == told[1]
    assert len(b"".join(told[0]))
