"""The initial mean of the central estimators, and the public sizes and private order statistics before the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from meanstream.lab.papers.cummings.cummings_windows import (
    window_initial_error,
    window_tight_initial_error,
)
from meanstream.lab.papers.cummings.grid import (
    GRID,
    SIZES,
    cummings_grid_layout,
    grid_bands,
    grid_first_samples,
    grid_interval_scores,
    grid_means,
    grid_size_bins,
    in_grid_bands,
)
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Ints
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
        found = {}

        for number, (name, twice_rank) in enumerate(ranks.items()):
            scores = grid_interval_scores(counts, twice_rank)
            best = central_noisy_argmax(scores, 2, each, words, number * len(counts))
            found[name] = int(SIZES[self.starts[best]])

        return public | found | {"users": {**public.get("users", {}), self.payers: tally.n}}

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
        mine = summaries.take(in_grid_bands(summaries, public, grid_bands(self.name, public)))
        values = grid_first_samples(mine) if self.literal else grid_means(mine)
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
        found = {
            "value": value,
            "raw": raw,
            "error": bound(value, n, self.epsilon) if n else 1.0,
            "sampling": math.sqrt(min(value * (1.0 - value) + 1.0 / max(n, 1), 0.25) / max(n, 1)),
            "noise": noise,
        }

        return public | {"mean": found, "users": {**public.get("users", {}), self.payers: n}}
