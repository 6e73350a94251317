"""A world that was cut off from outside is not compared with others."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from meanstream.streaming.crash import CrashPoint, Moment
from tests.noninterference.agents_worlds import common, write_stream
from tests.noninterference.product import Watched, same_clock_and_coins


def time_limit(point: CrashPoint, moment: Moment) -> None:
    assert callable(signal.getsignal(signal.SIGTERM))  # or it would end these tests
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_time_limit_is_told_as_one_and_not_as_a_world_that_differs(tmp_path: Path) -> None:
    """`timeout` sends its signal to a run in the middle of a world, which ends well: only less was
    written."""
    with same_clock_and_coins() as clock:
        watched = Watched(tmp_path, clock)
        write_stream(tmp_path / "private-stream.csv", 3)
        with pytest.raises(
            pytest.exit.Exception, match="has stopped 'cut off': its world was not compared"
        ):
            watched.run(
                "cut off",
                "run",
                "agents",
                die=time_limit,
                **common(store="s.db", sink="estimates.jsonl"),
            )
        assert (
            watched.run(
                "whole", "run", "agents", **common(store="s.db", sink="estimates.jsonl")
            ).code
            == 0
        )
