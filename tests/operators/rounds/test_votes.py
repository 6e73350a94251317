"""Private votes: unbiased shares, the variances and z-scores that they state, packed rows."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from meanstream.lab.random_words import SeededWords
from meanstream.operators.records import Bools, Ints
from meanstream.operators.rounds.votes.registry import VOTES, Votes, make_votes
from meanstream.operators.rounds.votes.vote_packing import (
    pack_votes,
    packed_column_sums,
    packed_columns,
    packing_fits,
    unpack_votes,
)

N = 40_000


def as_input(votes: Votes, row: Ints) -> Any:
    """Bins, or rows of bits for the votes that take those."""
    return row[:, None] == np.arange(votes.bins) if votes.name == "binary" else row


@pytest.mark.parametrize(
    ("name", "options", "printed"),
    [
        ("binary", {}, (0.035, 0.074, 0.118, 0.237, 0.480)),
        ("sue", {}, (0.106, 0.223, 0.357, 0.737, 1.66)),
        ("oue", {}, (0.106, 0.220, 0.346, 0.639, 0.93)),
        ("subset", {"zero_row": False}, (0.108, 0.224, 0.350, 0.66, 0.89)),
        ("krr", {"zero_row": False}, (0.029, 0.064, 0.111, 0.274, 0.89)),
    ],
)
def test_z_scores_of_the_specification(
    name: str, options: dict[str, Any], printed: tuple[float, ...]
) -> None:
    """Spec section 4(b), 64 bins: to 2 % or half of the last printed digit."""
    for epsilon, z in zip((0.3, 22 / 35, 1.0, 2.0, 4.0), printed, strict=True):
        assert make_votes(name, epsilon, 64, **options).z_score == pytest.approx(
            z, rel=0.02, abs=0.0006
        )


@pytest.mark.parametrize("name", VOTES)
def test_z_score_is_that_of_the_reports(name: str) -> None:
    votes = make_votes(name, 2.0, 7)
    reports = votes.randomize(
        as_input(votes, np.full(N, 2)), SeededWords(np.random.default_rng(11), N)
    )
    named = np.array([votes.counts(reports[i : i + 1]) for i in range(0, N, 8)])
    difference = (named[:, 2] - named[:, 5]).astype(float)
    # The standard error of mean / deviation is at most 1.3 / sqrt(n) for these z: 4.5 of them, 1e-5
    # for each of five.
    assert difference.mean() / difference.std() == pytest.approx(
        votes.z_score, abs=4.5 * 1.3 / math.sqrt(len(named))
    )


@pytest.mark.parametrize("bins", [1, 2, 5, 62, 63, 130])
@pytest.mark.parametrize("name", VOTES)
def test_shares_are_unbiased_with_the_stated_variance(name: str, bins: int) -> None:
    # 5 standard errors over 400 shares and 30 variances: a false alarm once in 3,000 seeds.
    votes = make_votes(name, 1.5, bins)
    rng = np.random.default_rng(bins)
    row = np.minimum(rng.geometric(0.4, N) - 2, bins - 1)
    reports = votes.randomize(as_input(votes, row), SeededWords(rng, N))
    assert reports.shape == (N, votes.width)
    assert reports.dtype == np.int64
    assert votes.valid(reports).all()
    counts = votes.counts(reports)
    assert len(counts) == bins
    assert all(isinstance(count, int) for count in counts)
    law = np.array([0.4 * 0.6 ** (i + 1) for i in range(bins)])
    law[-1] = 0.6**bins
    z = (votes.shares(counts, N) - law) / np.sqrt(votes.share_variance(law, N))
    assert np.abs(z).max() < 5.0
    assert abs((z**2).mean() - 1.0) < 5.0 * math.sqrt(2.0 / bins)


@pytest.mark.parametrize("name", VOTES)
def test_counts_add_up_and_repeat(name: str) -> None:
    votes = make_votes(name, 1.0, 70)
    row = np.arange(200) % 70
    words = SeededWords(np.random.default_rng(5), 200)
    reports = votes.randomize(as_input(votes, row), words)
    assert (reports == votes.randomize(as_input(votes, row), words)).all()
    assert not (reports == votes.randomize(as_input(votes, row), words, first_draw=40)).all()
    parts = [votes.counts(reports[:50]), votes.counts(reports[50:])]
    assert tuple(a + b for a, b in zip(*parts, strict=True)) == votes.counts(reports)


@pytest.mark.parametrize("name", VOTES)
def test_without_any_report(name: str) -> None:
    votes = make_votes(name, 1.0, 3)
    reports = votes.randomize(
        as_input(votes, np.zeros(0, np.int64)), SeededWords(np.random.default_rng(5), 0)
    )
    assert reports.shape == (0, votes.width)
    assert votes.counts(reports) == (0, 0, 0)
    assert votes.shares((0, 0, 0), 0).tolist() == [0.0, 0.0, 0.0]
    assert votes.share_variance(np.array([0.5]), 0).tolist() == [math.inf]


@pytest.mark.parametrize("name", VOTES)
def test_forged_reports_are_not_valid(name: str) -> None:
    votes = make_votes(name, 1.0, 70)
    good = votes.randomize(
        as_input(votes, np.zeros(3, np.int64)), SeededWords(np.random.default_rng(5), 3)
    )
    assert votes.valid(good).all()
    for value in (-1, -(2**63), 2**62, 2**63 - 1):
        for column in range(votes.width):
            bad = good.copy()
            bad[1, column] = value
            assert votes.valid(bad).tolist() == [True, False, True]
    bad = good.copy()
    bad[1, -1] |= 1 << 9  # 70 bins and one for none take 71 bits: 62 and 9.
    assert not votes.valid(bad)[1]


def test_subsets_of_another_size_are_not_valid() -> None:
    votes = make_votes("subset", 1.0, 20)
    sets = np.array([[2**6 - 1], [2**5 - 1], [2**7 - 1], [0]])
    assert votes.valid(sets).tolist() == [True, False, False, False]


def test_zero_rows_take_a_category() -> None:
    words = SeededWords(np.random.default_rng(5), 1)
    for name in ("krr", "subset"):
        votes = make_votes(name, 1.0, 4, zero_row=False)
        with pytest.raises(ValueError, match="row must hold bins from 0 to 3"):
            votes.randomize(np.array([-1]), words)
        with pytest.raises(ValueError, match="bins must be at least 2"):
            make_votes(name, 1.0, 1, zero_row=False)


@pytest.mark.parametrize("name", ["sue", "oue", "krr", "subset"])
@pytest.mark.parametrize("row", [-2, 4])
def test_rows_that_do_not_exist(name: str, row: int) -> None:
    with pytest.raises(ValueError, match="row must hold bins from -1 to 3, got '1 that are not'"):
        make_votes(name, 1.0, 4).randomize(
            np.array([row]), SeededWords(np.random.default_rng(5), 1)
        )


def test_bad_options() -> None:
    with pytest.raises(ValueError, match="votes must be one of sue, oue, krr, subset, binary"):
        make_votes("hadamard", 1.0, 4)
    with pytest.raises(ValueError, match="sue takes no option 'bits'"):
        make_votes("sue", 1.0, 4, bits=3)
    with pytest.raises(
        ValueError, match="krr takes no option 'zero_rows'; did you mean 'zero_row'"
    ):
        make_votes("krr", 1.0, 4, zero_rows=True)
    with pytest.raises(ValueError, match="bits must lie between 1 and 4, got 5"):
        make_votes("binary", 1.0, 4, bits=5)
    with pytest.raises(ValueError, match="rows must have 4 columns"):
        make_votes("binary", 1.0, 4).randomize(
            np.zeros((1, 3), np.bool_), SeededWords(np.random.default_rng(5), 1)
        )


@pytest.mark.parametrize("name", VOTES)
def test_bad_numbers(name: str) -> None:
    for epsilon in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="epsilon must be positive and finite"):
            make_votes(name, epsilon, 4)
    for bins in (0, 1001):
        with pytest.raises(ValueError, match="bins must lie between 1 and 1000"):
            make_votes(name, 1.0, bins)


BIT_ROWS = hnp.arrays(np.bool_, st.tuples(st.integers(0, 5), st.integers(1, 200)))


@given(BIT_ROWS)
def test_packing(rows: Bools) -> None:
    packed = pack_votes(rows)
    assert packed.shape == (len(rows), packed_columns(rows.shape[1]))
    assert (unpack_votes(packed, rows.shape[1]) == rows).all()
    assert packing_fits(packed, rows.shape[1]).all()
    assert packed_column_sums(packed, rows.shape[1]) == tuple(rows.sum(axis=0).tolist())
