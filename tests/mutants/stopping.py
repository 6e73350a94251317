"""For pytest: begins no test after so many processor seconds."""

from __future__ import annotations

import os

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End a run whose time is over: what was tried until then did not fail."""
    if sum(os.times()[:4]) > float(os.environ["MUTANTS_SECONDS"]):
        pytest.exit(f"time is over before {item.nodeid}", returncode=5)
