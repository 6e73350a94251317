"""Quantiles and exceedances of agents' shares by bins, with intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betainc, betaincinv, ndtri

from meanstream.operators.agents.own_histogram import CELLS, histogram_edges
from meanstream.operators.collaboration.shares.shares_posterior import SharesPosterior
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.records import Floats
from meanstream.operators.validation import require, valid_floats

WITHIN_BINS = 0.1
"""Of the width of a bin: how far a quantile may lie from where equal density within the bin puts it
(measured by `benchmarks/speed/speed_of_quantiles.py`)."""
_LEAST = 0.05
_MOST = 1e9
_NODES = 400
_HALVINGS = 50
MOST_QUANTILES = 16
"""As many as thresholds: each costs an answer of every agent."""


def valid_quantiles(quantiles: object) -> tuple[float, ...]:
    """Bring quantiles to their one spelling: in order, each once.

    Examples
    --------
    >>> valid_quantiles([0.9, ".5"])
    (0.5, 0.9)
    """
    spelled = tuple(sorted({*valid_floats("quantiles", quantiles)}))
    for quantile in spelled:
        require(0 < quantile < 1, "quantiles", "lie in (0, 1)", quantile)

    require(
        len(spelled) <= MOST_QUANTILES, "quantiles", f"be at most {MOST_QUANTILES}", len(spelled)
    )
    return spelled


@dataclass(frozen=True)
class BinnedLaw:
    """Public: where the bins of a histogram lie.

    Parameters
    ----------
    lower, upper : float
        Bounds of a value.
    exceeds : tuple of float
        Thresholds, as in the settings.

    Examples
    --------
    >>> law = BinnedLaw(0.0, 17.0, (5.0,))
    >>> law.ends.round(3).tolist()[:8], len(law.widths)
    ([0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 19)
    """

    lower: float
    upper: float
    exceeds: tuple[float, ...] = ()

    @property
    def ends(self) -> Floats:
        """Ends of the bins, shape (bins + 1,).

        The first bin is the lower bound, the last the upper bound.
        """
        grid = FixedPoint(self.lower, self.upper)
        inner = grid.lower + np.array(histogram_edges(grid, self.exceeds)) * grid.resolution
        inner[-1] = self.upper  # a step of the grid below it
        return np.concatenate([[self.lower], inner, [self.upper]])

    @property
    def cell_ends(self) -> Floats:
        """Ends of the cells of an agent's own samples."""
        ends = self.ends
        steps = ends[1:-2, None] + np.diff(ends[1:-1])[:, None] * np.arange(1, CELLS + 1) / CELLS
        return np.concatenate([ends[:2], steps.ravel(), ends[-1:]])

    @property
    def widths(self) -> Floats:
        """Width of each bin."""
        return np.diff(self.ends)

    def quantile(self, found: SharesPosterior, q: float, *, level: float) -> Floats:
        """Tell which value a share `q` of each agent's samples does not exceed, and the interval's ends, shape (n, 3).

        Parameters
        ----------
        found : SharesPosterior
            Of the agents.
        q : float
            In (0, 1).
        level : float
            Nominal coverage of the intervals.

        Notes
        -----
        Density is equal within bins. With shares that are as good as A samples, the share below x is a beta law of
        A F(x), A (1 - F(x)): the quantile is below x if that is above q. The ends are those x, or those of
        the normal law of the same variance where these are farther, moved on by `WITHIN_BINS` of a bin, of cells as far
        as they are the prior's.
        """
        ends = self.ends
        cells = found.shares.shape[1] > len(self.widths)
        ends = self.cell_ends if cells else ends
        step = WITHIN_BINS * np.diff(ends)
        wider = 1.0 + CELLS * found.blur
        under = np.concatenate(
            [np.zeros((len(found.shares), 1)), np.cumsum(found.shares, axis=1)], axis=1
        )
        under[:, -1] = 1.0

        value, bin_of_value = _inverse(under, ends, np.full(len(under), q))
        worth = self._worth(found, under, bin_of_value)
        low, high = (_crossing(q, side)(worth) for side in (0.5 - level / 2, 0.5 + level / 2))

        normal = ndtri(0.5 + level / 2) * np.sqrt(q * (1 - q) / (worth + 1))
        low, high = (
            np.minimum(low, q - normal).clip(0.0),
            np.maximum(high, q + normal).clip(max=1.0),
        )
        lower, bin_of_end = _inverse(under, ends, low)
        lower -= step[bin_of_end] * wider
        upper, bin_of_end = _inverse(under, ends, high)
        upper += step[bin_of_end] * wider

        return np.stack(
            [value, np.clip(lower, self.lower, value), np.clip(upper, value, self.upper)], axis=1
        )

    def exceedance(self, found: SharesPosterior, threshold: float, *, level: float) -> Floats:
        """Tell which share of each agent's samples exceeds a threshold of the settings, and the ends, shape (n, 3)."""
        grid = FixedPoint(self.lower, self.upper)
        edge = histogram_edges(grid, self.exceeds).index(grid.encode_one(threshold))
        edge *= CELLS if found.shares.shape[1] > len(self.widths) else 1
        share = np.clip(found.shares[:, edge + 1 :].sum(axis=1), 0.0, 1.0)
        safe = np.clip(share, 1e-6, 1 - 1e-6)
        worth = np.clip(safe * (1 - safe) / found.variance[:, edge] - 1, _LEAST, _MOST)
        low, high = (
            betaincinv(worth * safe, worth * (1 - safe), p)
            for p in (0.5 - level / 2, 0.5 + level / 2)
        )

        normal = ndtri(0.5 + level / 2) * np.sqrt(found.variance[:, edge])
        low, high = (
            np.minimum(low, share - normal).clip(0.0),
            np.maximum(high, share + normal).clip(max=1.0),
        )

        return np.stack([share, low, high], axis=1)

    @staticmethod
    def _worth(found: SharesPosterior, under: Floats, place: np.ndarray) -> Floats:
        """Give how many samples the share below the bin of a quantile is as good as.

        The worse of its two ends.
        """
        inner = np.clip(under[:, 1:-1], 1e-6, 1 - 1e-6)
        worth = np.clip(inner * (1 - inner) / found.variance - 1, _LEAST, _MOST)
        rows = np.arange(len(under))
        last = inner.shape[1] - 1

        return np.asarray(
            np.minimum(
                worth[rows, np.clip(place - 1, 0, last)], worth[rows, np.clip(place, 0, last)]
            ),
            np.float64,
        )


def _inverse(under: Floats, ends: Floats, target: Floats) -> tuple[Floats, np.ndarray]:
    """Give where each row's distribution reaches its target, and in which bin that is."""
    rows = np.arange(len(under))
    bin_index = np.clip((under[:, 1:] < target[:, None]).sum(axis=1), 0, len(ends) - 2)
    before = under[rows, bin_index]
    after = under[rows, bin_index + 1]
    depth = np.clip((target - before) / np.maximum(after - before, 1e-300), 0.0, 1.0)

    return ends[bin_index] + depth * (ends[bin_index + 1] - ends[bin_index]), bin_index


@lru_cache(maxsize=64)
def _crossing(q: float, chance: float) -> Callable[[Floats], Floats]:
    """Make the function from worth A to that share F at which a beta law of A F, A (1 - F) exceeds q by chance.

    Its nodes are public constants.
    """
    nodes = np.geomspace(_LEAST, _MOST, _NODES)
    low = np.zeros(_NODES)
    high = np.ones(_NODES)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        exceeds = 1.0 - betainc(
            np.maximum(nodes * middle, 1e-12), np.maximum(nodes * (1 - middle), 1e-12), q
        )
        high = np.where(exceeds >= chance, middle, high)
        low = np.where(exceeds >= chance, low, middle)

    middles = 0.5 * (low + high)
    log = np.log(nodes)
    return lambda worth: np.interp(np.log(worth), log, middles)
