"""The releases of secret groups: two noisy sums of each that comes out, and one sum of squares."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from meanstream.operators.noise.distributions import LaplaceNoise
from meanstream.operators.noise.draw_owners import (
    GROUP_FRAMES,
    GROUP_SQUARES,
    GROUP_SUMS,
)
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds, keyed_owner_words
from meanstream.operators.records import Bools, Floats, Ints, ReleaseColumns, Words
from meanstream.pipelines.frames.frame_columns import FrameSamples
from meanstream.pipelines.frames.secret_groups.secret_plan import SecretPlan

PURPOSE = "secret groups"
ALL_GROUPS = "all groups that came out"
LEAST_STDDEV = 1e-4
"""Least standard deviation of a value, in half widths of the bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReleases:
    """Public: what is released of a frame whose groups are secret.

    Attributes
    ----------
    plan : SecretPlan
        How it was released.
    keys : pyarrow.Table
        Names of the groups that came out, in their order, or of all that were declared.
    names : list of str
        The same as texts.
    above, below : int array
        Noisy sum of what values are above `lower`, and of what they are below `upper`, in steps.
    squares : int
        Noisy sum of squares of the groups that have rows enough (`has_squares`), in steps.
    """

    plan: SecretPlan
    keys: pa.Table
    names: list[str]
    above: Ints
    below: Ints
    squares: int

    @property
    def rows(self) -> Floats:
        """Noisy number of rows of each group: both sums together."""
        return (self.above + self.below) / self.plan.grid.span

    @property
    def has_squares(self) -> Bools:
        """Which groups' values are in the sum of squares; noisy numbers of rows decide."""
        return is_in_squares(self.plan, self.rows)

    @property
    def centered(self) -> Floats:
        """Mean of each group, from -1 at `lower` to 1 at `upper`; beyond them by noise alone."""
        return (self.above - self.below) / self.plan.grid.span / self._divisor

    @property
    def noise_variance(self) -> Floats:
        """Variance of the noise in `centered`: that of the sum, and that of the number of rows.

        Of `(A - B) / (A + B)` at m it is `v (1 + m^2) / n^2`, for the variance v of a noisy number
        of rows.
        """
        center = np.clip(self.centered, -1, 1)
        return self.plan.count_stddev**2 * (1 + center**2) / self._divisor**2

    @property
    def _divisor(self) -> Floats:
        """Numbers of rows, at least the noise's standard deviation: near 0 a mean says nothing."""
        return np.maximum(self.rows, self.plan.count_stddev)

    @property
    def stddev(self) -> float:
        """Standard deviation of a value within its group, in half widths of the bounds.

        The sum of squares is `sum n m^2 + sum (n - 1) stddev^2`; the noise in `n m^2` is taken off,
        and one standard error of the difference is added.
        """
        squared = self.has_squares
        rows = self.rows[squared]
        degrees = float(rows.sum()) - len(rows)
        if degrees < 1:
            return 1.0

        mean = self.centered[squared]
        v = self.plan.count_stddev**2
        between = rows * mean**2 - v * (1 + mean**2) / rows
        within = self.squares / self.plan.grid.span - float(between.sum())

        # Errors of the sum of squares, and of what is taken off it.
        error = float(np.sum(v * (4 * mean**2 + mean**4) + 2 * v**2 / rows**2))
        error += self.plan.squares_noise.variance / self.plan.grid.span**2
        variance = (within + math.sqrt(error)) / degrees

        return math.sqrt(min(max(variance, LEAST_STDDEV**2), 1.0))

    def columns(self) -> ReleaseColumns:
        """Give the releases as those of agents, for the prior that all groups share."""
        grid = self.plan.grid
        half = grid.span * grid.resolution / 2
        number = np.arange(len(self.names), dtype=np.int64)

        # How many Laplace draws of equal scale have the kurtosis of the ratio's noise.
        center = np.clip(self.centered, -1, 1)
        weights = np.stack([(1 - center) ** 2, (1 + center) ** 2])
        draws = weights.sum(0) ** 2 / (weights**2).sum(0)

        return ReleaseColumns(
            agent=number,
            index=np.ones_like(number),
            count=np.maximum(np.rint(self.rows), 1).astype(np.int64),
            total=self.above,
            mean=grid.lower + half * (1 + self.centered),
            noise_variance=half**2 * self.noise_variance,
            noise_terms=np.rint(draws).astype(np.int64),
        )

    def table(self) -> pa.Table:
        """Give the releases as a table."""
        sums = {"above": self.above, "below": self.below}
        return pa.table(
            dict(zip(self.keys.column_names, self.keys.columns, strict=True))
            | {name: pa.array(total) for name, total in sums.items()}
        )


def is_in_squares(plan: SecretPlan, rows: Floats) -> Bools:
    """Say which groups are in the sum of squares: those with rows, by noisy numbers."""
    return np.asarray(rows > 3 * plan.count_stddev + 1)


def released_sums(samples: FrameSamples, plan: SecretPlan, source: KeyedNoise) -> SecretReleases:
    """Release what comes out.

    Notes
    -----
    **Privacy.** Each group meets two draws, and all groups that came out one more. The noise is new
    for every frame that differs in any group: under one key, two releases say no more of a group
    than two under two keys, but for whether the frames are equal.
    """
    noise = source.derived(PURPOSE, plan.canonical())
    sums = _exact_sums(samples, plan)
    owner = keyed_owner_words(samples.names).reshape(-1, 2)
    version = _frame_digest(noise, owner, sums)
    ids = NoiseIds(owner, *_of_one_frame(version, len(owner)))

    above = sums.above + _drawn(plan.sums_noise, noise.bits(ids, GROUP_SUMS.at(0)))
    below = sums.below + _drawn(plan.sums_noise, noise.bits(ids, GROUP_SUMS.at(1)))

    # The threshold: a group that does not come out leaves nothing behind.
    out = np.arange(len(owner))
    if not plan.declared:
        out = np.flatnonzero(above + below >= plan.least_total)

    rows = (above + below)[out] / plan.grid.span
    squares = sums.squares[out[is_in_squares(plan, rows)]].sum()
    together = NoiseIds(keyed_owner_words([ALL_GROUPS]), *_of_one_frame(version, 1))
    error = _drawn(plan.squares_noise, noise.bits(together, GROUP_SQUARES.at()))

    return SecretReleases(
        plan=plan,
        keys=samples.keys.take(pa.array(out)),
        names=[samples.names[number] for number in out.tolist()],
        above=above[out],
        below=below[out],
        squares=int(squares + error[0]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactSums:
    """Private: the sums of each group, in steps; squares are of distances from the middle."""

    above: Ints
    below: Ints
    squares: Ints


def _exact_sums(samples: FrameSamples, plan: SecretPlan) -> ExactSums:
    """Private: add up the rows of each group."""
    span = plan.grid.span
    value = plan.grid.encode(samples.value)
    squares = (2 * value - span) ** 2 // span

    # Sums of integers below 2**53 are exact in floats.
    count, above, of_squares = (
        np.bincount(samples.group, weights, len(samples.names)).astype(np.int64)
        for weights in (None, value, squares)
    )

    return ExactSums(above=above, below=count * span - above, squares=of_squares)


def _frame_digest(noise: KeyedNoise, owner: Words, sums: ExactSums) -> int:
    """Private: a keyed digest of all groups and their sums, whatever their order."""
    digest = np.zeros(len(owner), np.uint64)
    for number, total in enumerate((sums.above, sums.below, sums.squares)):
        index = np.full(len(owner), number, np.int64)
        version = digest ^ total.astype(np.uint64)
        digest = noise.bits(NoiseIds(owner, index, version), GROUP_FRAMES.at())[:, 0]

    return int(np.bitwise_xor.reduce(digest, initial=0))


def _of_one_frame(version: int, number: int) -> tuple[Ints, Words]:
    """Index and version of draws that a whole frame decides."""
    return np.ones(number, np.int64), np.full(number, version, np.uint64)


def _drawn(law: LaplaceNoise, bits: Words) -> Ints:
    return np.rint(law.sample(bits)).astype(np.int64)
