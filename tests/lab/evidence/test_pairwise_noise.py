"""Which pairs are compared with each other, and how seldom right ones are blamed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from meanstream.lab.evidence.pairwise_noise import (
    PairColumns,
    paired_rows,
    shared_by_equal_inputs,
)
from meanstream.operators.noise.distributions import GaussianNoise

PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=60)


@given(PAIRS)
def test_rows_of_one_pair_are_one_and_neighbors_are_of_one_group(
    pairs: list[tuple[int, int]],
) -> None:
    """Rows 2 i and 2 i + 1 have no two groups, and no place is left empty but behind a group."""
    group, member = np.array(pairs).T
    row = paired_rows(group, member)
    of_row = dict(zip(row.tolist(), pairs, strict=True))
    assert len(of_row) == len(set(pairs))
    assert all(of_row[r] == pair for r, pair in zip(row.tolist(), pairs, strict=True))
    for r, (g, _) in of_row.items():
        assert of_row.get(r ^ 1, (g, 0))[0] == g
    assert max(of_row) < len(of_row) + len(set(group.tolist()))


def sums(totals: np.ndarray) -> PairColumns:
    """Of 40 inputs, each released to five readers."""
    n = len(totals)
    return PairColumns(
        agent=np.zeros(n, np.int64),
        reader=np.arange(n) % 5,
        index=np.arange(n) // 5 + 1,
        count=np.arange(n) // 5 + 1,
        total=totals,
        mean=np.zeros(n),
        noise_variance=np.zeros(n),
        version=np.arange(n) // 5,
    )


def test_equal_sums_by_chance_are_not_blamed() -> None:
    """Noise of three units makes a tenth of all sums equal. Of 400 audits at an error of .05 at most
    `binom.isf(1e-6, 400, .05)` are blamed, but for one chance in a million."""
    noise = GaussianNoise(3.0)
    rng = np.random.default_rng(8)
    totals = np.rint(rng.normal(0, 3, (400, 200))).astype(np.int64)
    exact = np.repeat(rng.integers(0, 99, 40), 5)
    blamed = sum(
        shared_by_equal_inputs(sums(row + exact), noise, 0.05) is not None for row in totals
    )
    assert blamed <= binom.isf(1e-6, 400, 0.05)


def test_a_third_of_equal_sums_is_blamed_under_noise_that_hardly_repeats() -> None:
    totals = np.rint(np.random.default_rng(9).normal(0, 1e6, 200)).astype(np.int64)
    totals[1:60:5] = totals[0:59:5]
    assert shared_by_equal_inputs(sums(totals), GaussianNoise(1e6)) == (
        "one sum was released to two readers 12 times in 160 releases of equal inputs"
    )
    apart = sums(totals)
    apart.version[:] = np.arange(200)
    assert shared_by_equal_inputs(apart, GaussianNoise(1e6)) is None
