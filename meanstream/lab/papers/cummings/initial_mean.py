"""The first releases of Cummings et al.'s estimators: a mean from order statistics, and how far users lie apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammaincinv

from meanstream.lab.papers.cummings.grid import (
    GRID,
    SIZES,
    cummings_grid_layout,
    grid_band_sizes,
    grid_bands,
    grid_first_samples,
    grid_interval_scores,
    grid_means,
    grid_size_bins,
    in_grid_bands,
    window_initial_error,
    window_tight_initial_error,
)
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.central_rounds import Rows, central_noised, central_noisy_argmax
from meanstream.operators.rounds.round_records import Public, Summaries, Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicSizes:
    """How many users have each size: released as it is, for estimators that take sizes as public.

    Parameters
    ----------
    literal : bool or None
        Mode of the `cummings_grid_layout` that is released along; None for an estimator that asks
        everyone.
    """

    literal: bool | None
    name: str = "sizes"
    cohort: int = 0
    payers: str = "nobody"
    epsilon: float = 0.0
    delta: float = 0.0

    def encode(self, summaries: Summaries, public: Public) -> Rows:  # noqa: ARG002 - the first release
        """Bin of each user's size."""
        return grid_size_bins(summaries.count)[:, None]

    def tally(self, rows: Rows, public: Public) -> Tally:  # noqa: ARG002 - the same sums whatever was found
        """Count the users of each size."""
        return Tally(len(rows), tuple(np.bincount(rows[:, 0], minlength=len(SIZES)).tolist()))

    def release(self, tally: Tally, public: Public, words: RandomWords) -> Public:  # noqa: ARG002 - public: no noise
        """Publish the counts."""
        sizes = list(tally.sums) or [0] * len(SIZES)
        bands = (
            {}
            if self.literal is None
            else {"bands": cummings_grid_layout(sizes, literal=self.literal)}
        )

        return (
            public
            | bands
            | {"sizes": sizes, "users": {**public.get("users", {}), self.name: tally.n}}
        )


MISSED = 1e-3
"""Probability, about, that the cap of tuned mode is a size that no one has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderStatistics:
    """Noisy order statistics of private sizes, Algorithm 3 line 5.

    The size of some rank from the top.

    Parameters
    ----------
    epsilon : float
        Privacy of all of them together, in equal parts.
    floor : bool
        Release the median, as `floor`.
    cap : bool
        Release the size above which only few users are, as `cap`: rank `2 ln(n) / epsilon` in paper
        mode; in tuned mode the least rank that the noise lets be found.
    largest : int
        Public upper bound on sizes; larger ones count as this.

    Notes
    -----
    **Privacy.** Each is a `central_noisy_argmax` over half-octaves whose doubled scores one user changes by at most 2.
    """

    cohort: int
    payers: str
    epsilon: float
    floor: bool
    cap: bool
    largest: int
    literal: bool
    name: str = "order"
    delta: float = 0.0
    starts: Ints = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        halves = np.rint(2.0 ** (np.arange(2 * math.log2(self.largest) + 1) / 2))
        object.__setattr__(self, "starts", np.unique(grid_size_bins(halves.astype(np.int64))))

    def encode(self, summaries: Summaries, public: Public) -> Rows:  # noqa: ARG002 - of sizes alone
        """Interval of each user's size."""
        bins = grid_size_bins(summaries.count)
        return (np.searchsorted(self.starts, bins, side="right").astype(np.int64) - 1)[:, None]

    def tally(self, rows: Rows, public: Public) -> Tally:  # noqa: ARG002 - the same sums whatever was found
        """Count the users of each interval."""
        return Tally(len(rows), tuple(np.bincount(rows[:, 0], minlength=len(self.starts)).tolist()))

    def release(self, tally: Tally, public: Public, words: RandomWords) -> Public:
        """Publish the sizes of the ranks asked for."""
        counts = np.array(tally.sums or [0] * len(self.starts), np.int64)
        each = self.epsilon / (self.floor + self.cap)
        ranks = ({"floor": tally.n} if self.floor else {}) | (
            {"cap": self._twice_rank(tally.n, each)} if self.cap else {}
        )
        facts = {}

        for number, (name, twice_rank) in enumerate(ranks.items()):
            scores = grid_interval_scores(counts, twice_rank)
            best = central_noisy_argmax(scores, 2, each, words, number * len(counts))
            facts[name] = int(SIZES[self.starts[best]])

        return public | facts | {"users": {**public.get("users", {}), self.payers: tally.n}}

    def _twice_rank(self, n: int, epsilon: float) -> int:
        """Twice the rank of the cap; below it, the noise would find sizes that no one has."""
        wanted = math.log(max(n, 2)) if self.literal else math.log(len(self.starts) / MISSED)
        return min(2 * math.ceil(2.0 * wanted / epsilon), n)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialMean:
    """The initial mean, line 2 of Algorithms 2 and 3.

    Of one sample of each user (paper), or of users' means (tuned).

    Notes
    -----
    **Privacy.** A user's part of the exact sum lies in `0..GRID`, and discrete Laplace noise of scale
    `GRID / epsilon` is added once. The number of users is public.

    The variance of a user's part is at most `p (1 - p)` in either mode (Lemma 2.1).
    """

    cohort: int
    payers: str
    epsilon: float
    literal: bool
    name: str = "mean"
    delta: float = 0.0

    def encode(self, summaries: Summaries, public: Public) -> Rows:
        """One integer in `0..GRID` per user."""
        in_bands = summaries.take(in_grid_bands(summaries, public, grid_bands(self.name, public)))
        values = grid_first_samples(in_bands) if self.literal else grid_means(in_bands)
        return np.rint(GRID * values).astype(np.int64)[:, None]

    def tally(self, rows: Rows, public: Public) -> Tally:  # noqa: ARG002 - the same sums whatever was found
        """Add them up."""
        return Tally(len(rows), (int(rows.sum()),))

    def release(self, tally: Tally, public: Public, words: RandomWords) -> Public:
        """Publish the noised mean, clamped inside [0, 1], with a bound on its error and its standard error."""
        n = tally.n
        total = central_noised(tally.sums[0] if tally.sums else 0, GRID, self.epsilon, words, 0)
        raw = total / GRID / n if n else 0.5
        margin = 0.5 / max(n, 1)
        value = min(max(raw, margin), 1.0 - margin)

        bound = window_initial_error if self.literal else window_tight_initial_error
        noise = 1.0 / self.epsilon / max(n, 1)
        facts = {
            "value": value,
            "raw": raw,
            "error": bound(value, n, self.epsilon) if n else 1.0,
            "sampling": math.sqrt(min(value * (1.0 - value) + 1.0 / max(n, 1), 0.25) / max(n, 1)),
            "noise": noise,
        }

        return public | {"mean": facts, "users": {**public.get("users", {}), self.payers: n}}


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
        in_bands = summaries.take(in_grid_bands(summaries, public, grid_bands(self.name, public)))
        in_bands = in_bands.take(in_bands.count >= max(2, public.get("floor", 2)))
        group = (in_bands.user[:, 1] % np.uint64(self._groups(public))).astype(np.int64)
        mean = np.rint(MEAN_GRID * grid_means(in_bands)).astype(np.int64)

        return np.stack([group, mean, GRID // in_bands.count], axis=1)

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
        facts = self._deviations(tally, public["mean"]["value"])
        counts = np.bincount(np.searchsorted(EDGES, facts, side="right"), minlength=len(EDGES) + 1)
        scores = grid_interval_scores(counts, len(facts))
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
