"""What agents release with where no one says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meanstream.operators.agents.release_times import Counts, Every
from meanstream.operators.counters.optimal import LONGEST, Optimal
from meanstream.operators.counters.toeplitz import Toeplitz
from meanstream.operators.validation import require, valid_floats

SPREAD_SHARE = 0.1
"""Part of the budget for votes on the spread by default (measured by
`benchmarks/goals/spread_vote.py`)."""
HISTOGRAM_SHARE = 0.1
"""Part of the budget for histograms with quantiles or exceedances
(`benchmarks/speed/speed_of_quantiles.py`)."""

AT_THE_END = "geometric:1000000000000,2"
"""A schedule that never comes due: each agent releases once, when all is read."""


def usual_spread_share(mode: str) -> float:
    """Part of the budget for votes where no one says: none where there can be no votes."""
    if mode == "tuned":
        return SPREAD_SHARE
    return 0.0


def usual_counter(mode: str, noise: str, horizon: int, times: Counts | Every) -> str:
    """Counter of Gaussian noise where no one says.

    The one of least noise that knows when releases are made and has room for them.
    """
    least = (
        mode == "tuned" and noise == "gaussian" and horizon <= LONGEST and isinstance(times, Counts)
    )

    if least:
        return Optimal.name
    return Toeplitz.name


def usual_histogram(
    quantiles: Sequence[float], exceeds: Sequence[float], given: dict[str, Any]
) -> dict[str, Any]:
    """Give the settings of a histogram where something is requested of it, and none where nothing is."""
    thresholds = valid_floats("exceeds", exceeds)
    share = given.get("histogram_share", HISTOGRAM_SHARE if quantiles or thresholds else 0.0)
    if quantiles or thresholds:
        require(share != 0, "histogram_share", "be more than 0 with quantiles or exceeds", share)
        return {"histogram_share": share, "exceeds": tuple(thresholds)}

    require(not share, "histogram_share", "be left out without quantiles or exceeds", share)
    return {}
