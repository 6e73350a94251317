"""Secrets and ids of the product come from a seed in tests, so that no test is red by chance.

A store that makes its own secret, or a frame without one, would draw other noise in each run. The
seed is the test's own address; a fork of the process draws others, since two engines never have one
id. Tests of servers keep true ones: their topics outlive a test that is tried again.
`tests/chance.py` lists what is drawn without a seed anyway.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from itertools import count
from unittest.mock import patch

import pytest


def seeded_bytes(seed: str) -> Callable[[int | None], bytes]:
    """Make what stands for `secrets.token_bytes`, on which the other functions of `secrets` are
    built."""
    owner, numbers = os.getpid(), count()

    def token_bytes(nbytes: int | None = None) -> bytes:
        process = 0 if os.getpid() == owner else os.getpid()
        return hashlib.shake_256(f"{seed} {process} {next(numbers)}".encode()).digest(
            32 if nbytes is None else nbytes
        )

    return token_bytes


@pytest.fixture(autouse=True)
def secrets_from_a_seed(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("servers"):
        yield
        return
    with patch("secrets.token_bytes", seeded_bytes(request.node.nodeid)):
        yield
