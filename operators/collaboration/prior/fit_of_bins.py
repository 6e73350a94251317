"""What the ways to collaborate share that fit a population to everyone's releases in bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanstream.operators.collaboration.prior.release_bins import ReleaseBins
from meanstream.operators.records import Bools, Floats, ReleaseColumns
from meanstream.operators.validation import require, require_bounds


@dataclass(frozen=True, slots=True)
class FitOfBins:
    """Base of the ways to collaborate that fit a population to everyone's releases in bins.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample, in the value's unit.
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        require_bounds(self.lower, self.upper)

    def summarize(self, releases: ReleaseColumns) -> ReleaseBins:
        """Count releases in bins, which add up with those of other agents."""
        bins = ReleaseBins(self.lower, self.upper)
        bins.update(releases.mean, releases.count, releases.noise_variance, releases.noise_terms)
        return bins


def releases_fit_for_bins(releases: ReleaseColumns, variance: Floats) -> Bools:
    """Tell which releases say something.

    Those with a number, and a total variance that is finite and positive.
    """
    require(
        len(variance) == len(releases), "variance", f"have {len(releases)} entries", len(variance)
    )
    return np.isfinite(variance) & (variance > 0) & np.isfinite(releases.mean)
