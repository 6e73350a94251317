"""Secrets from a seed: the same in each run, others in each draw, each test and each process."""

from __future__ import annotations

import os

from tests.seeded import seeded_bytes


def test_a_seed_gives_the_same_bytes_and_each_draw_others() -> None:
    first, second = seeded_bytes("a test"), seeded_bytes("a test")
    drawn = [first(16) for _ in range(100)]
    assert drawn == [second(16) for _ in range(100)]
    assert len(set(drawn)) == 100
    assert seeded_bytes("another")(16) not in drawn
    assert len(first(None)) == 32


def test_a_fork_draws_others() -> None:
    draw, (reading, writing) = seeded_bytes("a test"), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, draw(16))
        os._exit(0)
    os.waitpid(child, 0)
    theirs, ours = os.read(reading, 16), draw(16)
    os.close(reading)
    os.close(writing)
    assert len(theirs) == 16
    assert theirs != ours
