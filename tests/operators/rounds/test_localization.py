"""Bins and windows on [-1, 1]: every value in exactly one bin, nothing beyond the ends."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.operators.rounds.localization import FINEST, Bins, ClipWindow

half_widths = st.floats(min_value=FINEST, max_value=4.0)


@given(half_widths)
def test_bins_follow_each_other_from_minus_one_to_one(half_width):
    bins = Bins(half_width)
    edges = [bins.edges(j) for j in range(bins.count)]
    assert edges[0][0] == -1.0
    assert edges[-1][1] == 1.0
    assert all(left[1] == pytest.approx(right[0], abs=1e-12) for left, right in pairwise(edges))
    assert all(lower < upper for lower, upper in edges)
    assert bins.count in (math.ceil(1 / half_width), math.ceil(1 / half_width) - 1)


@given(half_widths, st.lists(st.floats(min_value=-1.0, max_value=1.0), min_size=1, max_size=50))
def test_every_value_lies_in_its_bin_and_the_windows_around_it(half_width, values):
    bins = Bins(half_width)
    for value, j in zip(values, bins.which(np.array(values)).tolist(), strict=True):
        lower, upper = bins.edges(j)
        assert lower - 1e-12 <= value <= upper + 1e-12
        for neighbor in range(max(j - 1, 0), min(j + 2, bins.count)):
            window = bins.window(neighbor, reach=2.0)
            assert -1.0 <= window.lower <= value + 1e-12
            assert value - 1e-12 <= window.upper <= 1.0
            assert (
                -1.0 <= window.center <= 1.0
            )  # D4: the middle of an overshooting bin would be 1.5 for half-width 2.5


def test_a_quotient_that_is_an_integer_but_for_rounding_makes_no_extra_bin():
    for n in range(1, 1001):
        assert Bins(1.0 / n).count == n
    assert Bins(0.1 + 0.2).count == 4
    assert Bins(3.5).count == 1
    assert Bins(3.5).edges(0) == (-1.0, 1.0)


def test_means_on_an_edge_vote_once():
    # Means of 10 samples of -1 or 1 all lie on edges of bins of half-width 0.1.
    bins = Bins(0.1)
    lattice = np.arange(-10, 11, 2) / 10
    marks = bins.which(lattice)[:, None] == np.arange(bins.count)
    assert (marks.sum(axis=1) == 1).all()
    lower, upper = np.array([bins.edges(j) for j in range(bins.count)]).T
    closed = (lattice[:, None] >= lower - 1e-12) & (lattice[:, None] <= upper + 1e-12)
    assert closed.sum(axis=1).max() == 2  # what closed bins would do


@given(half_widths)
def test_neighborhoods_are_a_bin_and_those_beside_it(half_width):
    bins = Bins(half_width)
    values = np.linspace(-1, 1, 41)
    marks = bins.neighborhoods(values)
    assert marks.shape == (41, bins.count)
    for value_bin, row in zip(bins.which(values).tolist(), marks, strict=True):
        expected = [j for j in (value_bin - 1, value_bin, value_bin + 1) if 0 <= j < bins.count]
        assert np.flatnonzero(row).tolist() == expected


def test_a_window_survives_json_and_scales_to_the_unit_interval():
    window = Bins(0.137).window(3, reach=6.0)
    assert ClipWindow.of(json.loads(json.dumps(window.as_public()))) == window
    assert ClipWindow.of({}) == ClipWindow(-1.0, 1.0, 0.0)
    ends = window.to_unit(np.array([-1.0, window.lower, window.middle, window.upper, 1.0]))
    assert ends == pytest.approx([-1, -1, 0, 1, 1])


def test_too_many_bins_are_refused():
    assert Bins(FINEST).count == 1000
    with pytest.raises(ValueError, match="half_width must give at most 1000 bins"):
        Bins(0.9 * FINEST)
    with pytest.raises(ValueError, match="half_width must be positive and finite, got 0"):
        Bins(0.0)
