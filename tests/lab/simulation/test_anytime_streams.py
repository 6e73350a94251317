"""Anytime intervals hold over whole streams of simulated agents; pointwise ones are the twin that
the test catches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles.anytime_streams import coverage_of_a_stream, looks


@pytest.mark.parametrize("dependence", ["none", "ar:0.5"])
def test_intervals_hold_over_a_whole_stream_and_pointwise_ones_do_not(dependence: str) -> None:
    """Intervals hold for 99 % of the agents: fewer than 95 % of 200 are four standard errors
    away."""
    ever, length = coverage_of_a_stream(dependence, seed=5, agents=200, last=400)
    assert ever[1] >= 0.95
    assert ever[0] < 0.85  # the twin that the same test catches
    assert length[np.array(looks(400)) >= 200].max() <= 1.95
