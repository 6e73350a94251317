"""Received releases: everybody's latest, each release once, whatever else the lines hold."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.streaming.sources.received_releases import Line, ReceivedReleases, Releases


def line(agent: str, index: int, **changes: Any) -> Line:
    fields = {
        "release_id": f"{agent}:{index}",
        "agent": agent,
        "index": index,
        "time": f"2013-01-01T10:00:{index % 60:02}Z",
        "n": 10 * index,
        "total": 64 * index,
        "mean": index / 8,
        "noise_variance": 1 / index,
        "epsilon": 1.0,
        "delta": 1e-6,
        "mode": "tuned",
        "schema_version": 1,
    }
    return agent.encode(), json.dumps(fields | changes).encode()


def rows(releases: Releases) -> list[tuple[str, int, float, float, float]]:
    c = releases.columns
    names = [releases.names[a] for a in c.agent.tolist()]
    return list(
        zip(
            names,
            c.index.tolist(),
            c.mean.tolist(),
            c.noise_variance.tolist(),
            releases.time.tolist(),
            strict=True,
        )
    )


REJECTED = {
    "not JSON": ((b"ann", b"{"), "malformed"),
    "two objects": ((b"ann", line("ann", 5)[1] + b"," + line("ann", 6)[1]), "malformed"),
    "not an object": ((b"ann", b"[]"), "malformed"),
    "another field": (line("ann", 5, value=3.0), "malformed"),
    "a number as text": (line("ann", 5, mean="0.5"), "malformed"),
    "not finite": ((b"ann", line("ann", 5)[1].replace(b"0.625", b"NaN")), "malformed"),
    "too large to hold": (line("ann", 5, total=2**63), "malformed"),
    "far too large": (line("ann", 5, n=10**400), "malformed"),
    "a later version": (line("ann", 5, schema_version=2), "unknown_schema_version"),
    "the id of another": (line("ann", 5, release_id="bob:5"), "wrong_id"),
    "the key of another": ((b"bob", line("ann", 5)[1]), "wrong_key"),
    "no key": ((None, line("ann", 5)[1]), "wrong_key"),
    "no value": ((b"ann", None), "tombstone"),
    "the latest again": (line("ann", 3), "duplicate"),
    "an older one": (line("ann", 2), "superseded"),
    "another one under its id": (line("ann", 3, total=7), "conflict"),
}


@pytest.mark.parametrize("what", REJECTED)
def test_what_is_no_new_release_is_counted_and_changes_nothing(what: str) -> None:
    bad, reason = REJECTED[what]
    received = ReceivedReleases()
    received.take([line("ann", 3)])
    assert len(received.take([bad])) == 0
    assert received.rejected == {reason: 1}
    assert rows(received.take([line("ann", 6)])) == rows(received.latest())
    assert received.names == ["ann"]


names = st.sampled_from(["ann", "böb", "c d"])
streams = st.lists(st.tuples(names, st.integers(1, 9)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(streams, st.integers(0, 40))
def test_the_latest_is_that_of_the_largest_index_and_a_restart_changes_nothing(
    stream: list[tuple[str, int]], cut: int
) -> None:
    def identified(agent: str, index: int) -> Line:
        return line(
            agent, index, release_id=f"{agent.replace('ö', '%C3%B6').replace(' ', '%20')}:{index}"
        )

    largest: dict[str, int] = {}
    fresh = []
    for agent, index in stream:
        if index > largest.get(agent, 0):
            largest[agent] = index
            fresh.append((agent, index))
    lines = [identified(*each) for each in stream]
    first = ReceivedReleases()
    given_on = rows(first.take(lines[:cut]))
    again = ReceivedReleases()
    again.restore(first.latest())
    given_on += rows(again.take(lines[cut:]))
    assert [row[:2] for row in given_on] == fresh
    assert [row[:2] for row in rows(again.latest())] == list(largest.items())
    whole = ReceivedReleases()
    whole.take(lines)
    assert rows(whole.latest()) == rows(again.latest())
    assert np.array_equal(whole.latest().columns.total, again.latest().columns.total)


def test_what_was_given_does_not_change_later() -> None:
    received = ReceivedReleases()
    received.take([line("ann", 1, mode="paper", epsilon=2.0)])
    before = received.latest()
    received.take([line("ann", 2), line("bob", 1)])
    assert (before.columns.index.tolist(), before.tuned.tolist(), before.epsilon.tolist()) == (
        [1],
        [False],
        [2.0],
    )
    assert received.latest().columns.index.tolist() == [2, 1]
    assert received.latest().columns.count.tolist() == [20, 10]
