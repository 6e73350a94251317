"""Packed columns come back bit by bit, in fewer bytes where there is little in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.streaming.store.state_snapshot import (
    DTYPES,
    PACKED_MAGIC,
    CorruptedSnapshotError,
    pack_columns,
    unpack_columns,
)


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


@given(st.data())
def test_every_array_comes_back_bit_by_bit(data: st.DataObject) -> None:
    columns = {}
    for number in range(data.draw(st.integers(0, 3))):
        kind = np.dtype(data.draw(st.sampled_from(DTYPES)))
        shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=40))
        zero = data.draw(st.sampled_from([0, 1]))
        fill = st.just(kind.type(zero)) if data.draw(st.booleans()) else None
        columns[f"c{number}"] = data.draw(hnp.arrays(kind, shape, fill=fill))
    read = unpack_columns(pack_columns(columns))
    assert list(read) == list(columns)
    assert all(same(read[name], columns[name]) for name in columns)
    for column in read.values():
        column[...] = 0  # one's own, and writable


@pytest.mark.parametrize("kind", ["<i4", "<i8", "<u2", "<u4", "<u8"])
def test_integers_at_the_edges_of_a_width_come_back(kind: str) -> None:
    limits = np.iinfo(kind)
    edges = {limits.min, limits.max}
    for bits in (8, 16, 32, 64):
        edges |= {
            e for at in (2**bits, 2 ** (bits - 1)) for s in (at, -at) for e in (s - 1, s, s + 1)
        }
    for edge in sorted(e for e in edges if limits.min <= e <= limits.max):
        column = np.array([edge, 0, 1], kind)
        wide = np.zeros((300, 3), kind)
        wide[7, 1], wide[8, 1] = edge, 1
        for array in (column, wide):
            assert same(unpack_columns(pack_columns({"x": array}))["x"], array)


def test_minus_zero_and_payloads_of_nan_come_back() -> None:
    odd = np.zeros((1000, 4))
    odd[3, 2], odd[4, 2] = -0.0, np.frombuffer(b"\x01\0\0\0\0\0\xf8\xff", "<f8")[0]
    columns = {"odd": odd, "column": odd[:, 2].copy(), "minus": np.full(9, -0.0)}
    read = unpack_columns(pack_columns(columns))
    assert all(same(read[name], columns[name]) for name in columns)
    assert len(pack_columns({"odd": odd})) < 500


def test_agents_with_one_release_take_few_bytes() -> None:
    settings = AgentsSettings(lower=-30, upper=60, epsilon=1, delta=1e-6)
    agents = Agents(
        settings,
        KeyedNoise(
            bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="test", purpose="agents"
        ),
    )
    n, rng = 1024, np.random.default_rng(3)
    agents.add_agents([f"agent {i}" for i in range(n)])
    followed = FollowedReleases(settings)
    who = rng.permutation(np.repeat(np.arange(n), 12))
    batch = agents.update(who, rng.normal(20, 5, len(who)), np.arange(float(len(who))))
    followed.observe(batch.releases, batch.before)
    for columns in (agents.snapshot_chunk(0, copy=False), next(iter(followed.own.changes()))[1]):
        packed = pack_columns(columns)
        assert len(packed) < 128 * n
        read = unpack_columns(packed)
        assert all(same(read[name], np.asarray(columns[name])) for name in columns)


def test_other_bytes_are_refused() -> None:
    written = pack_columns({"x": np.arange(3)})
    with pytest.raises(CorruptedSnapshotError, match="must start with its mark"):
        unpack_columns(b"x" + written[1:])
    with pytest.raises(CorruptedSnapshotError, match="must have version 1, got 9"):
        unpack_columns(PACKED_MAGIC + b"\x09" + written[len(PACKED_MAGIC) + 1 :])
