"""The initial deviation of the central estimators.

How much users' true means differ, by a private median.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from meanstream.lab.papers.cummings.grid import (
    GRID,
    SIZES,
    grid_band_sizes,
    grid_bands,
    grid_interval_scores,
    grid_means,
    in_grid_bands,
)
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Floats
from meanstream.operators.rounds.central_rounds import Rows, central_noisy_argmax
from meanstream.operators.rounds.round_records import Public, Summaries, Tally

EDGES = 2.0 ** np.arange(-10.0, -0.5, 0.5)
"""Between the intervals of the deviation: below 2**-10 it matters to no one with fewer than a
quarter million samples; it is never above 1/2."""

BAND_FACTOR = 8.0**0.25
"""Puts an unbiased estimate into the middle of what the analysis allows, `[s, sqrt(8) s]` (Lemma
F.2)."""

MAX_GROUPS = 256
MEAN_GRID = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeviation:
    """Deviation between users: the private median of the deviations within small groups of users.

    Parameters
    ----------
    groups : int
        Into how many groups the users are put, by a hash of their id, at most: where sizes are
        public, into a quarter of the users who can tell anything. At most 256, whatever the number
        of users.
    literal : bool
        Paper mode: the deviation of the users' observed means stands for that of their true ones,
        and is put into the middle of the band that the analysis asks for. Tuned mode: sampling is
        taken off, and only windows are widened.

    Notes
    -----
    **Privacy.** A user is in one group, fixed by the id, and changes its deviation only: the doubled scores of the
    `central_noisy_argmax` change by at most 2. How many users are as large as `floor` is not released.

    The deviation of a group of two is its pair difference over sqrt(2). Each group's is divided by
    the median that a normal law gives it, so that its median is the deviation itself. Karwa and
    Vadhan's estimator, which the paper names, guarantees a factor of 64 in the variance, not of 8;
    a cohort of log(n) users is hopeless: erratum C3, C4.

    References
    ----------
    Cummings et al., Appendix F.2.
    """

    cohort: int
    payers: str
    epsilon: float
    groups: int
    literal: bool
    name: str = "deviation"
    delta: float = 0.0

    def encode(self, summaries: Summaries, public: Public) -> Rows:
        """Group, mean and reciprocal size of each user who is large enough to tell anything."""
        mine = summaries.take(in_grid_bands(summaries, public, grid_bands(self.name, public)))
        mine = mine.take(mine.count >= max(2, public.get("floor", 2)))
        group = (mine.user[:, 1] % np.uint64(self._groups(public))).astype(np.int64)
        mean = np.rint(MEAN_GRID * grid_means(mine)).astype(np.int64)

        return np.stack([group, mean, GRID // mine.count], axis=1)

    def tally(self, rows: Rows, public: Public) -> Tally:
        """Per group: number of users, sums of means, of their squares, and of reciprocal sizes."""
        sums = np.zeros((self._groups(public), 4), np.int64)
        columns = np.stack(
            [np.ones(len(rows), np.int64), rows[:, 1], rows[:, 1] ** 2, rows[:, 2]], axis=1
        )
        np.add.at(sums, rows[:, 0], columns)

        return Tally(len(rows), tuple(sums.ravel().tolist()))

    def release(self, tally: Tally, public: Public, words: RandomWords) -> Public:
        """Publish the interval of the median, as the deviation for weights and the wider one for windows."""
        found = self._deviations(tally, public["mean"]["value"])
        counts = np.bincount(np.searchsorted(EDGES, found, side="right"), minlength=len(EDGES) + 1)
        scores = grid_interval_scores(counts, len(found))
        best = central_noisy_argmax(scores, 2, self.epsilon, words)
        lowest = best == 0
        middle = float(EDGES[0] if lowest else min(EDGES[best - 1] * 2.0**0.25, 0.5))
        wide = min(middle * BAND_FACTOR, 0.5)
        narrow = wide if self.literal else 0.0 if lowest else middle
        users = {**public.get("users", {})}

        if "sizes" in public:
            users[self.payers] = tally.n

        return public | {"deviation": {"weights": narrow, "windows": wide}, "users": users}

    def _groups(self, public: Public) -> int:
        if "sizes" not in public:
            return self.groups
        telling = grid_band_sizes(public, grid_bands(self.name, public))[SIZES >= 2].sum()
        return min(self.groups, max(1, round(float(telling) / 4)))

    def _deviations(self, tally: Tally, mean: float) -> Floats:
        """Private: the deviation of each group of at least two users."""
        # Integers up to here: squares of 16 bits, as many as there are users, fit Python's integers
        # and then a float.
        table = np.array(tally.sums or (0,) * 4, dtype=object).reshape(-1, 4)
        count, total, squares, inverse = table[np.array(table[:, 0] >= 2, np.bool_)].T
        scatter = np.asarray(count * squares - total * total, np.float64) / MEAN_GRID**2
        n = np.asarray(count, np.float64)
        variance = scatter / n / (2.0 * gammaincinv(0.5 * (n - 1.0), 0.5))

        if not self.literal:
            share = np.asarray(inverse, np.float64) / n / GRID
            variance = np.maximum(variance - mean * (1.0 - mean) * share, 0.0) / (1.0 - share)

        return np.sqrt(variance)
