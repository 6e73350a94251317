"""What agents release with where nobody says otherwise."""

from __future__ import annotations

from meanstream.operators.agents.release_times import Counts, Every
from meanstream.operators.counters.optimal import LONGEST, Optimal
from meanstream.operators.counters.toeplitz import Toeplitz

SPREAD_SHARE = 0.1
"""Part of the budget for votes on the spread, where nobody says otherwise (measured by `benchmarks/spread_vote.py`)."""
HISTOGRAM_SHARE = 0.1
"""Part of the budget for histograms where quantiles or exceedances are asked for (`benchmarks/quantiles.py`)."""


def usual_spread_share(mode: str, noise: str) -> float:
    """Part of the budget for votes where nobody says: none where there can be no votes."""
    return SPREAD_SHARE if mode == "tuned" and noise == "gaussian" else 0.0


def usual_counter(mode: str, noise: str, horizon: int, times: Counts | Every) -> str:
    """Counter where nobody says: the one of least noise that knows when releases are made and has room for them."""
    least = mode == "tuned" and noise == "gaussian" and horizon <= LONGEST and isinstance(times, Counts)
    return Optimal.name if least else Toeplitz.name
